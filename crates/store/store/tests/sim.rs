//! `blue` in the simulator: slow disks in random order, several shards, and processes that die at any moment.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction, pg_bits};
use carmine_reactor::sim::Sim;
use carmine_reactor::{Group, Shard};
use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv, MemKv, OmapRange, Store, StoreError, StoreShared};
use carmine_types::{Eversion, ObjectId, SpgId};
use common::*;

/// Two of them are shards of one: see [`part`].
const PGS: u32 = 4;
const OBJECTS_PER_PG: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

fn path() -> PathBuf {
    PathBuf::from("/sim/block")
}

/// The outside world's knowledge of a PG; it survives the process.
#[derive(Default)]
struct Pg {
    /// By version, from 1: object and whether it was written or removed.
    submitted: Vec<(usize, bool)>,
    /// Highest version that was acknowledged.
    acknowledged: u64,
    /// Highest version that a restarted store had; those above are gone.
    wrong: Vec<String>,
}

struct World {
    mem: Arc<MemKv>,
    kv: Arc<dyn Kv>,
    pgs: Vec<RefCell<Pg>>,
    shared: RefCell<Option<Arc<BlueShared>>>,
    /// The store was mounted once.
    made: Cell<bool>,
    done: Cell<u32>,
    reads: Cell<u32>,
}

impl World {
    fn new() -> Rc<World> {
        let mem = Arc::new(MemKv::new());
        Rc::new(World {
            kv: Arc::clone(&mem) as Arc<dyn Kv>,
            mem,
            pgs: (0..PGS).map(|_| RefCell::default()).collect(),
            shared: RefCell::new(None),
            made: Cell::new(false),
            done: Cell::new(0),
            reads: Cell::new(0),
        })
    }
}

fn object(pg: u32, n: usize) -> ObjectId {
    object_of(pg as usize, n)
}

/// A PG, and the low bits that its objects' hashes share.
fn pg_of(pg: u32) -> (SpgId, u32) {
    let id = part(pg as usize);
    (id, pg_bits(id.pgid.ps, PART_PGS))
}

/// The data that version `version` wrote.
fn content(pg: u32, version: u64) -> Vec<u8> {
    let seed = u64::from(pg) << 32 | version;
    let mut bytes = noise(seed, 8 + (noise(seed, 2)[0] as usize) * 80);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

type Omap = Vec<(Vec<u8>, Vec<u8>)>;

/// The omap of what version `version` wrote: none of ten keys, or up to four.
fn omap(pg: u32, version: u64) -> Omap {
    let keys: BTreeSet<u64> =
        (0..(version * 7 + u64::from(pg)) % 5).map(|i| (version * 3 + i * i) % 10).collect();
    keys.into_iter().map(|key| (format!("k{key}").into(), version.to_le_bytes().into())).collect()
}

/// Version `version` of an object. The omap's earlier content is removed in one of three ways.
fn steps(pg: u32, version: u64) -> Vec<Step> {
    let data = content(pg, version);
    // In two parts, so that the second begins in the middle of a block.
    let (a, b) = data.split_at(data.len() / 2);
    let write = |off: usize, data: &[u8]| Step::Write { off: off as u64, data: data.to_vec().into() };
    let key = |n: u64| -> Box<[u8]> { format!("k{n}").into_bytes().into() };
    vec![
        Step::Truncate { size: data.len() as u64 },
        write(0, a),
        write(a.len(), b),
        Step::SetXattr { name: (*b"version").into(), value: version.to_le_bytes().to_vec().into() },
        match version % 3 {
            0 => Step::ClearOmap,
            1 => Step::RemoveOmapRange { from: key(0), to: (*b"l").into() },
            _ => Step::RemoveOmap { keys: (0..10).map(key).collect() },
        },
        Step::SetOmapHeader { header: version.to_le_bytes().to_vec().into() },
        Step::SetOmap {
            entries: omap(pg, version).into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        },
    ]
}

/// The version that an object has after `upto` versions of its PG, if it exists.
fn expected(history: &[(usize, bool)], n: usize, upto: u64) -> Option<u64> {
    let last = history[..upto as usize].iter().rposition(|(object, _)| *object == n)?;
    history[last].1.then_some(last as u64 + 1)
}

async fn content_of(store: &Store, oid: &ObjectId) -> Option<Vec<u8>> {
    match store.read(oid, 0, u64::MAX).await {
        Ok(data) => Some(data.to_vec()),
        Err(StoreError::NotFound(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn omap_of(store: &Store, oid: &ObjectId) -> Omap {
    let page = store.omap_page(oid, &OmapRange::all(usize::MAX)).await.unwrap();
    assert!(!page.more);
    page.entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

async fn open(world: &World, shard: &Shard, fresh: bool) -> Store {
    if shard.id().0 == 0 {
        if fresh {
            // Small, so that freed blocks are taken again soon.
            mkfs(shard, &path(), &world.kv, 4 << 20).await;
        }
        let options = MountOptions { cache_bytes_per_shard: 2048, ..MountOptions::default() };
        let shared = BlueShared::mount(shard, &path(), Arc::clone(&world.kv), options).await.unwrap();
        *world.shared.borrow_mut() = Some(shared);
        world.made.set(true);
    }
    let shared = loop {
        if let Some(shared) = world.shared.borrow().clone() {
            break shared;
        }
        shard.sleep(Duration::from_micros(100)).await;
    };
    Store::open_shard(&StoreShared::Blue(shared), shard).await.unwrap()
}

fn one_in(shard: &Shard, n: u64) -> bool {
    shard.random_u64().is_multiple_of(n)
}

/// Leaves only a few blocks free, in all parts of the device, so that each is taken again soon after it was freed.
async fn fill(store: &Store) {
    let ballast = ObjectId::head(2, b"", b"", b"ballast");
    let txn = |changes: Vec<ObjectChange>| Transaction {
        changes: changes.into(),
        ..Transaction::new(pg_id(2, 0), 0)
    };
    submit(store, txn(vec![write(&ballast, 0, vec![7; 900 * 4096])])).await.unwrap();
    let holes = (0..900).step_by(9).map(|block| only(&ballast, Step::Zero { off: block * 4096, len: 4096 }));
    submit(store, txn(holes.collect())).await.unwrap();
}

/// Changes the objects of a PG at random, up to `count` versions; many transactions are in flight together.
async fn write_pg(world: Rc<World>, shard: Shard, store: Store, pg: u32, count: u64) {
    while (world.pgs[pg as usize].borrow().submitted.len() as u64) < count {
        let n = (shard.random_u64() % OBJECTS_PER_PG as u64) as usize;
        let oid = object(pg, n);
        let exists = !one_in(&shard, 3);
        let version = world.pgs[pg as usize].borrow().submitted.len() as u64 + 1;
        let (id, bits) = pg_of(pg);
        let mut txn = Transaction::new(id, bits);
        let steps = if exists { steps(pg, version) } else { vec![Step::Remove] };
        txn.changes.push(ObjectChange::new(oid.clone(), steps));
        txn.log.push(LogEntry { version: Eversion::new(1, version), ..log_entry(version, &oid) });
        let prepared = store.prepare(&txn.changes).await.unwrap();
        if one_in(&shard, 3) {
            // Prepared objects stay so, whatever becomes durable meanwhile.
            shard.sleep(Duration::from_micros(shard.random_u64() % 500)).await;
        }
        let commit = loop {
            let mut commit = Box::pin(store.submit(txn.clone()));
            // A refusal is there at once.
            let refusal = std::future::poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx))).await;
            match refusal {
                Poll::Pending => break commit,
                Poll::Ready(Err(StoreError::NoSpace { .. })) => shard.sleep(Duration::from_micros(50)).await,
                Poll::Ready(other) => panic!("{other:?}"),
            }
        };
        world.pgs[pg as usize].borrow_mut().submitted.push((n, exists));
        drop(prepared);
        let acknowledge = {
            let world = Rc::clone(&world);
            async move {
                commit.await.unwrap();
                let mut pg = world.pgs[pg as usize].borrow_mut();
                if version != pg.acknowledged + 1 {
                    let wrong = format!("{version} acknowledged after {}", pg.acknowledged);
                    pg.wrong.push(wrong);
                }
                pg.acknowledged = version;
            }
        };
        // A removal is durable sooner than a slow read is done, and the next write may take its blocks.
        if !exists || one_in(&shard, 6) {
            acknowledge.await;
            store.sync().await.unwrap();
        } else {
            shard.spawn(Group::Client, "acknowledge", acknowledge);
        }
        if one_in(&shard, 3) {
            shard.sleep(Duration::from_micros(shard.random_u64() % 300)).await;
        }
    }
    store.sync().await.unwrap();
    world.done.set(world.done.get() + 1);
}

/// Checks that the content read is of one version, one that the object had during the read.
fn check_version(world: &World, pg: u32, n: usize, before: u64, fits: impl Fn(Option<u64>) -> bool) {
    let state = world.pgs[pg as usize].borrow();
    let now = state.submitted.len() as u64;
    let possible = (before..=now).any(|upto| fits(expected(&state.submitted, n, upto)));
    assert!(possible, "pg {pg}: object {n} is as in none of its versions {before}..={now}");
    world.reads.set(world.reads.get() + 1);
}

/// Reads objects of a PG all the time.
async fn read_pg(world: Rc<World>, shard: Shard, store: Store, pg: u32) {
    loop {
        let n = (shard.random_u64() % OBJECTS_PER_PG as u64) as usize;
        let before = world.pgs[pg as usize].borrow().submitted.len() as u64;
        if one_in(&shard, 4) {
            let found = omap_of(&store, &object(pg, n)).await;
            let fits =
                |version: Option<u64>| found == version.map_or(Omap::new(), |version| omap(pg, version));
            check_version(&world, pg, n, before, fits);
        } else {
            let found = content_of(&store, &object(pg, n)).await;
            let fits = |version: Option<u64>| found == version.map(|version| content(pg, version));
            check_version(&world, pg, n, before, fits);
        }
        shard.sleep(Duration::from_micros(20 + shard.random_u64() % 50)).await;
    }
}

async fn work(world: Rc<World>, shard: Shard, fresh: bool, count: u64) {
    let store = open(&world, &shard, fresh).await;
    if fresh && shard.id().0 == 0 {
        fill(&store).await;
    }
    for pg in (0..PGS).filter(|pg| (pg % u32::from(shard.shards())) as u16 == shard.id().0) {
        verify(&world, &store, pg).await;
        for _ in 0..2 {
            let reader = read_pg(Rc::clone(&world), shard.clone(), store.clone(), pg);
            shard.spawn(Group::Client, "reader", reader);
        }
        let writer = write_pg(Rc::clone(&world), shard.clone(), store.clone(), pg, count);
        shard.spawn(Group::Client, "writer", writer);
    }
}

/// After a restart: the PG is a prefix of its history with all that was acknowledged, and its objects are those of
/// that prefix.
async fn verify(world: &World, store: &Store, pg: u32) {
    let (id, bits) = pg_of(pg);
    let log = store.load_pg(id).await.unwrap().map_or(Vec::new(), |state| state.log);
    let versions: Vec<u64> = log.iter().map(|entry| entry.version.version).collect();
    let last = versions.len() as u64;
    assert_eq!(versions, (1..=last).collect::<Vec<_>>());
    let (history, acknowledged) = {
        let pg = world.pgs[pg as usize].borrow();
        assert!(pg.wrong.is_empty(), "{:?}", pg.wrong);
        (pg.submitted.clone(), pg.acknowledged)
    };
    assert!(last >= acknowledged, "pg {pg}: {acknowledged} was acknowledged, {last} is there");
    let mut listed = Vec::new();
    for n in 0..OBJECTS_PER_PG {
        let (oid, version) = (object(pg, n), expected(&history, n, last));
        let found = content_of(store, &oid).await;
        assert!(found == version.map(|v| content(pg, v)), "pg {pg}: object {n} after {last} versions");
        assert_eq!(omap_of(store, &oid).await, version.map_or(Omap::new(), |v| omap(pg, v)), "{oid}");
        let number = version.map(|v| v.to_le_bytes().to_vec());
        let meta = store.stat(&oid).await.unwrap();
        let xattr = meta.map(|meta| meta.xattrs.get(b"version").unwrap().to_vec());
        assert_eq!(xattr, number, "{oid}");
        assert_eq!(store.omap_header(&oid).await.unwrap().to_vec(), number.unwrap_or_default(), "{oid}");
        listed.extend(version.map(|_| oid));
    }
    listed.sort();
    assert_eq!(store.list(id, bits, None, 100).await.unwrap(), listed);
    // Versions that were not durable never existed.
    let mut pg = world.pgs[pg as usize].borrow_mut();
    pg.submitted.truncate(last as usize);
    pg.acknowledged = last;
}

fn run(seed: u64) -> (u64, u32) {
    let sim = Sim::new(seed);
    let world = World::new();
    let mut random = seed;
    let mut fresh = true;
    for life in 0u64..4 {
        let shards = 1 + ((seed + life) % 3) as u16;
        world.done.set(0);
        let node = {
            let world = Rc::clone(&world);
            sim.node("osd", shards, move |shard| work(Rc::clone(&world), shard, fresh, 25 * (life + 1)))
        };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let until_ns = sim.now_ns() + 3_000_000 + (random >> 33) % 30_000_000;
        if life < 3 {
            sim.run(|| sim.now_ns() >= until_ns || world.done.get() == PGS, LIMIT).unwrap();
            sim.kill(node);
            // The key-value store loses its unsynced commits with the process, all of them or the last ones.
            world.mem.crash((random >> 20) as usize % 8);
            *world.shared.borrow_mut() = None;
            // A store that was killed while it was made is made again.
            fresh = !world.made.get();
        } else {
            sim.run(|| world.done.get() == PGS, LIMIT).unwrap();
            sim.kill(node);
            *world.shared.borrow_mut() = None;
        }
    }
    check(&sim, &world);
    (sim.trace_hash(), world.reads.get())
}

/// A last life, in which nothing is written.
fn check(sim: &Sim, world: &Rc<World>) {
    world.done.set(0);
    let node = {
        let world = Rc::clone(world);
        sim.node("osd", 1, move |shard| {
            let world = Rc::clone(&world);
            async move {
                let store = open(&world, &shard, false).await;
                for pg in 0..PGS {
                    verify(&world, &store, pg).await;
                }
                let shared = world.shared.borrow().clone().unwrap();
                clean(&shared, &shard).await;
                world.done.set(1);
            }
        })
    };
    sim.run(|| world.done.get() == 1, LIMIT).unwrap();
    sim.kill(node);
}

#[test]
fn killed_stores_keep_what_they_acknowledged_and_reads_see_one_version() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30u64);
    let reads: u32 = (0..seeds).map(|seed| run(seed).1).sum();
    assert!(u64::from(reads) > 100 * seeds, "{reads}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).0, run(8).0);
}
