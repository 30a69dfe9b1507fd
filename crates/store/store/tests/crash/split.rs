//! Power cuts while PGs are split and merged: a split is there with all of its children, a merge with all of its sources gone, or not at
//! all, and every PG goes on from there. The next life has another number of reactors.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_pgtypes::{LogEntry, PgInfo, PgState, Step, Transaction, pg_bits};
use carmine_reactor::sim::{Sim, Tape, Unflushed};
use carmine_reactor::{Group, Shard};
use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv};
use carmine_types::{Eversion, ObjectId, PgId, SpgId};

use crate::common::*;
use crate::kv::{TapeKv, recorded};
use crate::work::{LIMIT, QUIET, make, on_node, open_shard, places, submit_when_room};
use crate::{cuts, mix};

/// PGs of the pool at first: one for each reactor at least.
const PGS: u32 = 3;
/// Transactions of a reactor in a life.
const TXNS: usize = 30;
/// Lives that begin with an empty store.
const SEEDS: u64 = 4;
/// PGs become parts of a pool of this many at most.
const PG_NUM_MAX: u32 = 24;

/// The reactor of a PG, and of its children.
fn owner(pg: SpgId, shards: u16) -> usize {
    let first = (0..PGS).find(|first| PgId::of_hash(1, pg.pgid.ps, PGS).ps == *first).unwrap();
    first as usize % usize::from(shards)
}

/// What a reactor did in a life. All of it is in one lane of the log, so a power cut leaves a prefix of it.
#[derive(Clone, Default)]
struct Lane {
    submitted: Vec<Transaction>,
    /// How much of the tape stands when each, from the first, was acknowledged.
    acknowledged: Vec<usize>,
}

/// A life of a store, on tape.
struct Life {
    tape: Tape,
    kv: Arc<TapeKv>,
    /// What was done before it.
    before: Vec<Transaction>,
    lanes: Vec<Lane>,
}

struct World {
    tape: Tape,
    kv: Arc<dyn Kv>,
    shared: RefCell<Option<Arc<BlueShared>>>,
    lanes: Vec<RefCell<Lane>>,
    /// What the store has if all goes well.
    model: RefCell<Model>,
    done: Cell<usize>,
}

/// The info of a PG by a model; PGs of the pool that were never written have one, too.
fn info_of(model: &Model, pg: SpgId) -> PgInfo {
    let info = model.pg(pg).map(|state| state.info).unwrap_or_default();
    PgInfo { pg, pg_num: info.pg_num.max(PGS), ..info }
}

/// All PGs, by a model.
fn pgs_of(model: &Model) -> Vec<SpgId> {
    let mut pgs: Vec<SpgId> = (0..PGS).map(|ps| pg_id(1, ps)).chain(model.pgs()).collect();
    pgs.sort_unstable();
    pgs.dedup();
    pgs
}

/// The next transaction of one of these PGs: few are splits and merges.
fn next(shard: &Shard, model: &Model, pgs: &[SpgId]) -> Transaction {
    let pg = pgs[shard.random_u64() as usize % pgs.len()];
    let info = info_of(model, pg);
    let random = shard.random_u64();
    let pg_num = info.pg_num * (2 << (random >> 8 & 1));
    if random.is_multiple_of(5) && pg_num <= PG_NUM_MAX {
        let txn = split(&info, pg_num);
        if !txn.split.is_empty() {
            return txn;
        }
    }
    let pg_num = info.pg_num / (2 << (random >> 8 & 1));
    if random % 5 == 1 && pg_num >= PGS && pg.pgid.ps < pg_num {
        let sources = merged_into(pg, pg_num, pgs.iter().copied());
        let infos: Vec<PgInfo> = sources.iter().map(|source| info_of(model, *source)).collect();
        if !infos.is_empty() {
            // The log of a merge may be too long for a group of the store's log.
            let answers = [0, 1, 2, 200][random as usize >> 16 & 3];
            return merge(&info, &infos, pg_num, answers);
        }
    }
    let bits = pg_bits(pg.pgid.ps, info.pg_num);
    let version = info.last_update.version + 1;
    let hash = (shard.random_u64() as u32 % 4) << bits | pg.pgid.ps;
    let oid = ObjectId { name: (*b"object").into(), ..ObjectId::cursor(1, hash) };
    let mut txn = Transaction::new(pg, bits);
    txn.changes.push(write(&oid, random % 9000, noise(random, random as usize % 12_000)));
    let entries = vec![(version.to_be_bytes().into(), noise(version, 9).into())];
    txn.changes.push(only(&mapper(pg), Step::SetOmap { entries }));
    txn.log.push(LogEntry { version: Eversion::new(4, version), ..log_entry(version, &oid) });
    txn.log_trim_to = version.is_multiple_of(8).then(|| Eversion::new(4, version - 5));
    txn
}

async fn work(world: Rc<World>, shard: Shard) {
    let own = usize::from(shard.id().0);
    if own == 0 {
        let options = MountOptions { cache_bytes_per_shard: 2048, ..MountOptions::default() };
        let shared = BlueShared::mount(&shard, places(), Arc::clone(&world.kv), options).await.unwrap();
        *world.shared.borrow_mut() = Some(shared);
    }
    let shared = loop {
        let shared = world.shared.borrow().clone();
        match shared {
            Some(shared) => break shared,
            None => shard.sleep(Duration::from_micros(100)).await,
        }
    };
    let store = open_shard(&shared, &shard).await;
    for n in 0..TXNS {
        let txn = {
            let model = world.model.borrow();
            let mut pgs = pgs_of(&model);
            pgs.retain(|pg| owner(*pg, shard.shards()) == own);
            next(&shard, &model, &pgs)
        };
        let commit = submit_when_room(&shard, &store, &txn).await;
        world.model.borrow_mut().apply(&txn);
        world.lanes[own].borrow_mut().submitted.push(txn);
        let world = Rc::clone(&world);
        shard.spawn(Group::Client, "acknowledge", async move {
            commit.await.unwrap();
            let mut lane = world.lanes[own].borrow_mut();
            assert_eq!(lane.acknowledged.len(), n, "acknowledged out of order");
            lane.acknowledged.push(world.tape.mark() + 1);
        });
        match shard.random_u64() % 16 {
            // The key-value store catches up.
            0 => shard.sleep(QUIET / 2).await,
            1..8 => shard.sleep(Duration::from_micros(shard.random_u64() % 300)).await,
            _ => {}
        }
    }
    store.sync().await.unwrap();
    shard.sleep(QUIET).await;
    world.done.set(world.done.get() + 1);
}

/// Lives on from what a power cut left of a life, or begins with an empty store.
fn live(seed: u64, start: Option<(&Life, usize, Unflushed)>, before: Vec<Transaction>, shards: u16) -> Life {
    let sim = Sim::new(seed);
    let base = match start {
        None => make(&sim, seed.is_multiple_of(2)),
        Some((life, at, unflushed)) => {
            sim.restore(&life.tape, at, unflushed);
            life.kv.watch.left(at, unflushed)
        }
    };
    let tape = sim.record();
    let kv = Arc::new(recorded(tape.clone(), base));
    let mut model = Model::default();
    before.iter().for_each(|txn| model.apply(txn));
    let world = Rc::new(World {
        tape: tape.clone(),
        kv: Arc::clone(&kv) as Arc<dyn Kv>,
        shared: RefCell::default(),
        lanes: vec![RefCell::default(); usize::from(shards)],
        model: model.into(),
        done: Cell::default(),
    });
    let own = Rc::clone(&world);
    let node = sim.node("osd", shards, move |shard| work(Rc::clone(&own), shard));
    let ran = sim.run(|| world.done.get() == usize::from(shards), LIMIT);
    ran.unwrap_or_else(|error| panic!("seed {seed}, the load itself: {error}"));
    sim.kill(node);
    world.shared.take();
    let lanes = world.lanes.iter().map(|lane| lane.borrow().clone()).collect();
    Life { tape, kv, before, lanes }
}

/// What the store after a power cut has.
struct Left {
    /// All that was done and is there.
    done: Vec<Transaction>,
    /// PGs of which only the log had an info, which they get when they are split.
    replayed: usize,
    /// PGs of which only the log knew that they are merged.
    absorbed: usize,
}

/// Opens what a power cut leaves: of each lane a prefix with all that was acknowledged.
fn check(life: &Life, at: usize, unflushed: Unflushed) -> Result<Left, String> {
    let sim = Sim::new(at as u64);
    sim.restore(&life.tape, at, unflushed);
    let kv: Arc<dyn Kv> = Arc::new(life.kv.watch.left_kv(at, unflushed));
    let (before, lanes) = (life.before.clone(), life.lanes.clone());
    on_node(&sim, 1, async move |shard| {
        let infos = infos_in(&*kv);
        let shared =
            BlueShared::mount(&shard, places(), Arc::clone(&kv), MountOptions::default()).await.unwrap();
        let after = infos_in(&*kv);
        let (replayed, absorbed) = (after.difference(&infos).count(), infos.difference(&after).count());
        let store = open_shard(&shared, &shard).await;
        let mut found: Vec<(SpgId, PgState)> = Vec::new();
        for pg in store.list_pgs().await.unwrap() {
            found.push((pg, store.load_pg(pg).await.unwrap().unwrap()));
        }
        let (mut model, mut done) = (Model::default(), before);
        done.iter().for_each(|txn| model.apply(txn));
        for (own, lane) in lanes.iter().enumerate() {
            let acknowledged = lane.acknowledged.partition_point(|mark| *mark <= at);
            let is_own = |pg: SpgId| owner(pg, lanes.len() as u16) == own;
            let there = prefix(&mut model, lane, &found, is_own);
            assert!(there >= acknowledged, "lane {own}: {acknowledged} were acknowledged, {there} are there");
            done.extend_from_slice(&lane.submitted[..there]);
        }
        assert_eq!(found.len(), model.pgs().len());
        for pg in model.pgs() {
            model.compare(&store, pg, info_of(&model, pg).pg_num, 100).await;
        }
        clean(&shared, &shard).await;
        store.umount().await.unwrap();
        Left { done, replayed, absorbed }
    })
}

/// Applies transactions of a lane to the model until its PGs are those that were found; how many these are.
fn prefix(
    model: &mut Model,
    lane: &Lane,
    found: &[(SpgId, PgState)],
    is_own: impl Fn(SpgId) -> bool,
) -> usize {
    let own: Vec<_> = found.iter().filter(|(pg, _)| is_own(*pg)).collect();
    let is_it = |model: &Model| {
        let pgs = model.pgs().into_iter().filter(|pg| is_own(*pg));
        pgs.map(|pg| (pg, model.pg(pg).unwrap())).eq(own.iter().map(|found| (*found).clone()))
    };
    let mut there = 0;
    while !is_it(model) {
        let next = lane.submitted.get(there).unwrap_or_else(|| panic!("no prefix of its lane: {own:?}"));
        model.apply(next);
        there += 1;
    }
    there
}

/// The keys of the infos that the key-value store has.
fn infos_in(kv: &dyn Kv) -> BTreeSet<Vec<u8>> {
    let mut infos = BTreeSet::new();
    kv.scan(b"I", b"J", &mut |key, _| {
        infos.insert(key.to_vec());
        true
    })
    .unwrap();
    infos
}

/// What was met.
#[derive(Debug, Default)]
struct Met {
    images: usize,
    /// Images of first lives, with splits and with merges.
    splits: usize,
    merges: usize,
    /// Infos that came from the log, and went by it.
    replayed: usize,
    absorbed: usize,
}

impl Met {
    fn image(&mut self, left: &Left) {
        self.images += 1;
        self.replayed += left.replayed;
        self.absorbed += left.absorbed;
    }
}

#[test]
fn a_power_cut_leaves_a_split_or_a_merge_as_a_whole_or_not_at_all() {
    let mut met = Met::default();
    for seed in 0..SEEDS {
        let shards = 1 + (seed % 3) as u16;
        let life = live(seed, None, Vec::new(), shards);
        for (n, (at, unflushed)) in
            cuts(&life.tape, &life.kv.watch, 0, seed).into_iter().enumerate().step_by(2)
        {
            let says = |error| format!("seed {seed}, cut {n} at {at}, {unflushed:?}: {error}");
            let left = check(&life, at, unflushed).unwrap_or_else(|error| panic!("{}", says(error)));
            met.image(&left);
            met.splits += usize::from(left.done.iter().any(|txn| !txn.split.is_empty()));
            met.merges += usize::from(left.done.iter().any(|txn| !txn.merge.is_empty()));
            if n % 32 != 6 {
                continue;
            }
            // The PGs, and the children of the same ones, are other reactors' now.
            let again = live(mix(seed ^ at as u64), Some((&life, at, unflushed)), left.done, shards % 3 + 1);
            for (m, (at, unflushed)) in
                cuts(&again.tape, &again.kv.watch, 0, seed).into_iter().enumerate().step_by(7)
            {
                let left = check(&again, at, unflushed);
                let left = left.unwrap_or_else(|error| {
                    panic!("{}", says(format!("then cut {m} at {at}, {unflushed:?}: {error}")))
                });
                met.image(&left);
            }
        }
    }
    println!("{met:?}");
    let Met { images, splits, merges, replayed, absorbed } = met;
    assert!(images > 200 && splits > 20 && splits < images && replayed > 20);
    assert!(merges > 20 && merges < splits && absorbed > 20);
}
