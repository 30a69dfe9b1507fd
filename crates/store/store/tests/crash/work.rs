//! A random load on `blue` in the simulator, all of it on tape: disk, key-value store, acknowledgements.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use carmine_pgtypes::{LogEntry, PgInfo, Step, Transaction, pg_bits};
use carmine_reactor::sim::{Sim, Tape, Unflushed};
use carmine_reactor::{Group, Shard};
use carmine_store::blue::{self, MountOptions, Places, ReplayReport};
use carmine_store::{
    BlueShared, Commit, Kv, KvBatch, Label, MemKv, Store, StoreError, StoreShared, StoreStats,
};
use carmine_types::{Eversion, ObjectId, SpgId};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common::*;
use crate::kv::{TapeKv, recorded};
use crate::mix;

/// PGs that are changed, two of them shards of one; the ballast is in the PG of another pool.
pub const PGS: u32 = 3;
/// The pool with the ballast.
const BALLAST: SpgId = pg_id(2, 0);
const OBJECTS_PER_PG: usize = 3;
/// Bytes of an object, about: several blocks, so that a transaction has many ways to be torn.
const OBJECT_BYTES: u64 = 40_000;
/// Small, so that a freed block is taken again soon.
const DEVICE_BYTES: u64 = 4 << 20;
/// Free blocks that the ballast leaves.
const FREE_BLOCKS: u64 = 150;
pub const LIMIT: Duration = Duration::from_secs(60);
/// Transactions of a burst for one of another load: they are small.
const BURST: u64 = 5;
/// Long enough for all to be in the key-value store.
pub const QUIET: Duration = Duration::from_millis(60);

/// Where the simulated store lies.
pub fn path() -> PathBuf {
    PathBuf::from("/sim/block")
}

/// Where its log may lie.
pub fn wal_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/sim/wal.{number}"))
}

/// The store, and all places where its log may lie.
pub fn places() -> Places {
    Places { wal: (0..2).map(|n| (&wal_path(n)).into()).collect(), ..Places::from(&path()) }
}

/// All transactions of a PG, in order.
#[derive(Clone, Default)]
pub struct History {
    pub submitted: Vec<Transaction>,
    /// How much of the tape stands when each, from the first, was acknowledged. For those from before the tape: 0.
    pub acknowledged: Vec<usize>,
}

/// By PG, the ballast's last.
pub type Histories = Vec<History>;

/// A life of a store on tape.
pub struct Life {
    pub tape: Tape,
    pub kv: Arc<TapeKv>,
    pub histories: Histories,
    /// At its end.
    pub label: Label,
    /// The log's own device.
    pub wal: Option<PathBuf>,
    /// How much of the tape stood when it was mounted.
    pub mounted_at: usize,
    pub replayed: ReplayReport,
    /// Of each shard, at its end.
    pub stats: Vec<StoreStats>,
}

impl Life {
    /// The device that the log lies on.
    pub fn log_path(&self) -> PathBuf {
        self.wal.clone().unwrap_or_else(path)
    }
}

/// The store before a life: files and keys that a power cut left, and what is in them.
pub struct Start<'a> {
    pub life: Option<(&'a Life, usize, Unflushed)>,
    pub histories: Histories,
}

pub fn pg_of(index: usize) -> (SpgId, u32) {
    if index == PGS as usize { (BALLAST, 1) } else { (part(index), PART_PGS) }
}

struct World {
    tape: Tape,
    kv: Arc<dyn Kv>,
    shared: RefCell<Option<Arc<BlueShared>>>,
    pgs: Vec<RefCell<History>>,
    /// Draws the transactions.
    runner: RefCell<TestRunner>,
    /// Freed space is discarded.
    discard: bool,
    /// All at once, so that the log gets full.
    burst: bool,
    mounted_at: Cell<usize>,
    stores: RefCell<Vec<Store>>,
    done: Cell<usize>,
}

/// A generator for strategies.
fn runner(seed: u64) -> RefCell<TestRunner> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    RefCell::new(TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &bytes),
    ))
}

impl World {
    fn draw<T>(&self, strategy: impl Strategy<Value = T>) -> T {
        strategy.new_tree(&mut self.runner.borrow_mut()).unwrap().current()
    }

    /// The next transaction of a PG.
    fn transaction(&self, pg: usize, version: u64) -> Transaction {
        let most = if self.burst { 1 } else { 3 };
        let changes = self.draw(proptest::collection::vec(
            (0..OBJECTS_PER_PG, change_or_clone(OBJECTS_PER_PG as u8)),
            1..=most,
        ));
        let (id, pgs) = pg_of(pg);
        let mut txn = Transaction::new(id, pg_bits(id.pgid.ps, pgs));
        for (n, change) in &changes {
            let mut change = change.clone().within(OBJECT_BYTES);
            if let Change::Write { len, .. } = &mut change
                && self.burst
            {
                *len %= 4096;
            }
            txn.changes.push(change.with_sources(&object_of(pg, *n), |from| object_of(pg, from.into())));
        }
        txn.log.push(LogEntry {
            version: Eversion::new(4, version),
            ..log_entry(version, &object_of(pg, changes[0].0))
        });
        txn.log_trim_to = version.is_multiple_of(8).then(|| Eversion::new(4, version - 5));
        txn.info = version.is_multiple_of(7).then(|| PgInfo { pg: txn.pg, ..info(version) }.into());
        txn
    }

    fn submitted(&self, pg: usize, txn: Transaction) {
        self.pgs[pg].borrow_mut().submitted.push(txn);
    }

    async fn acknowledge(&self, pg: usize, version: u64, commit: Commit) {
        commit.await.unwrap();
        let at = self.tape.mark() + 1;
        let mut history = self.pgs[pg].borrow_mut();
        assert_eq!(history.acknowledged.len() as u64 + 1, version, "acknowledged out of order");
        history.acknowledged.push(at);
    }
}

/// Submits a transaction, again and again while there is no room for it.
pub async fn submit_when_room(shard: &Shard, store: &Store, txn: &Transaction) -> Commit {
    for _ in 0..2000 {
        let prepared = store.prepare(&txn.changes).await.unwrap();
        let mut commit = store.submit(txn.clone());
        drop(prepared);
        let refusal = std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut commit).poll(cx))).await;
        match refusal {
            Poll::Pending => return commit,
            Poll::Ready(Err(StoreError::NoSpace { .. })) => shard.sleep(Duration::from_micros(50)).await,
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }
    panic!("there is never room: {:?}", store.statfs());
}

/// Changes a PG; many transactions are in flight together.
async fn write_pg(world: Rc<World>, shard: Shard, store: Store, pg: usize, count: u64) {
    let count = if world.burst { BURST * count } else { count };
    let first = world.pgs[pg].borrow().submitted.len() as u64 + 1;
    for version in first..first + count {
        let txn = world.transaction(pg, version);
        let commit = submit_when_room(&shard, &store, &txn).await;
        world.submitted(pg, txn);
        let own = Rc::clone(&world);
        let acknowledge = async move { own.acknowledge(pg, version, commit).await };
        if !world.burst && shard.random_u64().is_multiple_of(5) {
            acknowledge.await;
        } else {
            shard.spawn(Group::Client, "acknowledge", acknowledge);
        }
        match shard.random_u64() % 24 {
            _ if world.burst => {}
            // The key-value store catches up.
            0 => shard.sleep(QUIET / 2).await,
            1..9 => shard.sleep(Duration::from_micros(shard.random_u64() % 300)).await,
            _ => {}
        }
    }
    store.sync().await.unwrap();
    shard.sleep(QUIET).await;
    world.done.set(world.done.get() + 1);
}

/// Takes most of the device, and leaves holes all over it.
async fn fill(world: &World, shard: &Shard, store: &Store) {
    let oid = ObjectId::head(BALLAST.pgid.pool, b"", b"", b"ballast");
    let blocks = (store.statfs().free / 4096).saturating_sub(10);
    let mut ballast = Transaction::new(BALLAST, 0);
    ballast.changes.push(write(&oid, 0, noise(blocks, blocks as usize * 4096)));
    let mut holes = Transaction::new(BALLAST, 0);
    for block in (0..blocks).step_by((blocks / FREE_BLOCKS).max(1) as usize) {
        holes.changes.push(only(&oid, Step::Zero { off: block * 4096, len: 4096 }));
    }
    let pg = PGS as usize;
    for (txn, version) in [(ballast, 1), (holes, 2)] {
        let commit = submit_when_room(shard, store, &txn).await;
        world.submitted(pg, txn);
        world.acknowledge(pg, version, commit).await;
    }
    store.sync().await.unwrap();
}

/// This shard's part of the store. The others open theirs when the ballast is in: it needs all of the device.
async fn open(world: &World, shard: &Shard, fresh: bool) -> Store {
    if shard.id().0 > 0 {
        loop {
            let shared = world.shared.borrow().clone();
            if let Some(shared) = shared {
                return open_shard(&shared, shard).await;
            }
            shard.sleep(Duration::from_micros(100)).await;
        }
    }
    // More in the log than it takes in that time.
    let prefer_deferred_bytes = world.burst.then_some(8 << 10);
    let options = MountOptions {
        cache_bytes_per_shard: 2048,
        prefer_deferred_bytes,
        discard: world.discard,
        ..MountOptions::default()
    };
    let shared = BlueShared::mount(shard, places(), Arc::clone(&world.kv), options).await.unwrap();
    world.mounted_at.set(world.tape.len());
    let store = open_shard(&shared, shard).await;
    if fresh {
        fill(world, shard, &store).await;
    }
    *world.shared.borrow_mut() = Some(shared);
    store
}

pub async fn open_shard(shared: &Arc<BlueShared>, shard: &Shard) -> Store {
    Store::open_shard(&StoreShared::Blue(Arc::clone(shared)), shard).await.unwrap()
}

async fn work(world: Rc<World>, shard: Shard, fresh: bool, count: u64) {
    let store = open(&world, &shard, fresh).await;
    world.stores.borrow_mut().push(store.clone());
    for pg in (0..PGS as usize).filter(|pg| pg % usize::from(shard.shards()) == usize::from(shard.id().0)) {
        let writer = write_pg(Rc::clone(&world), shard.clone(), store.clone(), pg, count);
        shard.spawn(Group::Client, "writer", writer);
    }
}

/// Makes an empty store, its log on a device of its own if wished.
pub async fn make_store(shard: &Shard, kv: &Arc<dyn Kv>, with_wal: bool) -> Label {
    let mut all = places();
    all.wal.truncate(usize::from(with_wal));
    let made = blue::mkfs(shard, all, mkfs_options(DEVICE_BYTES), Arc::clone(kv), &mut |_, _| {}).await;
    made.unwrap()
}

/// Makes an empty store, all of it durable; its keys.
pub fn make(sim: &Sim, with_wal: bool) -> Vec<KvBatch> {
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    let made = Arc::clone(&kv);
    on_node(sim, 1, async move |shard| {
        make_store(&shard, &made, with_wal).await;
    })
    .unwrap();
    let mut keys = KvBatch::default();
    let all = kv.scan(&[0], &[0xff], &mut |key, value| {
        keys.put(key, value);
        true
    });
    all.unwrap();
    vec![keys]
}

/// Runs `main` on the first shard of a node of its own, to its end; what it came to.
///
/// # Errors
/// A panic or a standstill, in words with the seed.
pub fn on_node<T: 'static>(
    sim: &Sim,
    shards: u16,
    main: impl AsyncFnOnce(Shard) -> T + 'static,
) -> Result<T, String> {
    let outcome: Rc<RefCell<Option<T>>> = Rc::default();
    let (out, main) = (Rc::clone(&outcome), Cell::new(Some(main)));
    let node = sim.node("osd", shards, move |shard| {
        let main = main.take().filter(|_| shard.id().0 == 0);
        let out = Rc::clone(&out);
        async move {
            if let Some(main) = main {
                let value = main(shard).await;
                *out.borrow_mut() = Some(value);
            }
        }
    });
    let result = sim.run(|| outcome.borrow().is_some(), LIMIT * 10);
    sim.kill(node);
    result.map_err(|error| error.to_string())?;
    Ok(outcome.take().unwrap())
}

/// Lives on from `start`: a store is made if there is none, and each PG gets `count` transactions.
pub fn live(seed: u64, start: Start<'_>, count: u64) -> Life {
    let sim = Sim::new(seed);
    let drawn = mix(seed ^ 0xa11);
    let base = match start.life {
        None => make(&sim, drawn.is_multiple_of(3)),
        Some((life, at, unflushed)) => {
            sim.restore(&life.tape, at, unflushed);
            life.kv.watch.left(at, unflushed)
        }
    };
    let tape = sim.record();
    let kv = Arc::new(recorded(tape.clone(), base));
    let mut histories = start.histories;
    histories.resize_with(PGS as usize + 1, History::default);
    for history in &mut histories {
        // Transactions that are there when the tape begins are acknowledged from its beginning.
        history.acknowledged = vec![0; history.submitted.len()];
    }
    let world = Rc::new(World {
        tape: tape.clone(),
        kv: Arc::clone(&kv) as Arc<dyn Kv>,
        shared: RefCell::new(None),
        pgs: histories.into_iter().map(RefCell::new).collect(),
        runner: runner(seed),
        discard: !seed.is_multiple_of(3),
        burst: (drawn >> 8).is_multiple_of(2),
        mounted_at: Cell::new(usize::MAX),
        stores: RefCell::default(),
        done: Cell::new(0),
    });
    let fresh = start.life.is_none();
    let shards = 1 + (drawn >> 16) as u16 % 3;
    let node = {
        let world = Rc::clone(&world);
        sim.node("osd", shards, move |shard| work(Rc::clone(&world), shard, fresh, count))
    };
    let ran = sim.run(|| world.done.get() == PGS as usize, LIMIT);
    // A store may go wrong without any cut.
    ran.unwrap_or_else(|error| panic!("CRASH_SEED={seed}, the load itself: {error}"));
    let stats = world.stores.take().iter().map(Store::stats).collect();
    sim.kill(node);
    let shared = world.shared.take().unwrap();
    Life {
        tape,
        kv,
        histories: world.pgs.iter().map(|pg| pg.borrow().clone()).collect(),
        label: shared.label().clone(),
        wal: shared.wal().map(|place| place.path.clone()),
        mounted_at: world.mounted_at.get(),
        replayed: *shared.replayed(),
        stats,
    }
}
