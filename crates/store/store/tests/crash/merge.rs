//! Power cuts while a PG goes to another reactor and is merged into one of that.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::{LogEntry, PgInfo, PgState, Transaction, pg_bits};
use carmine_reactor::sim::{Sim, Tape, Unflushed};
use carmine_reactor::{Shard, ShardId};
use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv, Store, StoreError, StoreShared};
use carmine_types::{Eversion, ObjectId, SpgId};

use crate::common::*;
use crate::kv::{TapeKv, recorded};
use crate::work::{make, on_node, open_shard, places};
use crate::{cuts, mix};

const TARGET: SpgId = pg_id(1, 0);
const SOURCE: SpgId = pg_id(1, 1);
const HOME: ShardId = ShardId(0);
const AWAY: ShardId = ShardId(1);

/// Transactions in the order of their acknowledgements, each with how much of the tape stood then.
type Done = Vec<(Transaction, usize)>;

struct Life {
    tape: Tape,
    kv: Arc<TapeKv>,
    done: Done,
}

/// The next write of a PG of a pool of `pg_num`, to one of three objects.
fn next(model: &Model, pg: SpgId, pg_num: u32) -> Transaction {
    let version = model.pg(pg).map_or(0, |state| state.info.last_update.version) + 1;
    let bits = pg_bits(pg.pgid.ps, pg_num);
    let oid =
        ObjectId { name: (*b"object").into(), ..ObjectId::cursor(1, (version as u32 % 3) << 1 | pg.pgid.ps) };
    let mut txn = Transaction::new(pg, bits);
    txn.changes.push(write(&oid, version * 1000, noise(version, 7000)));
    txn.log.push(LogEntry { version: Eversion::new(4, version), ..log_entry(version, &oid) });
    txn.info = (version == 1).then(|| PgInfo { pg, pg_num, ..PgInfo::default() }.into());
    txn
}

/// Writes on both reactors; then the source goes to the target's, unless it is left out that it does, and is merged there.
async fn live(shard: Shard, kv: Arc<dyn Kv>, tape: Tape, done: Rc<RefCell<Done>>, moves: bool) {
    let shared = BlueShared::mount(&shard, places(), kv, MountOptions::default()).await.unwrap();
    for to in [HOME, AWAY] {
        let shared = StoreShared::Blue(Arc::clone(&shared));
        let open = async move |shard: Shard| {
            shard.set_local(Rc::new(Store::open_shard(&shared, &shard).await.unwrap()));
        };
        shard.call(to, open).await;
    }
    let mut model = Model::default();
    let run = async |model: &mut Model, on: ShardId, txn: Transaction| {
        model.apply(&txn);
        let own = txn.clone();
        shard.call(on, async move |shard| submit(&shard.local::<Store>().unwrap(), own).await.unwrap()).await;
        done.borrow_mut().push((txn, tape.mark() + 1));
    };
    for (pg, on) in [(TARGET, HOME), (SOURCE, AWAY)].repeat(4) {
        let txn = next(&model, pg, 2);
        run(&mut model, on, txn).await;
    }
    if moves {
        let release = async |shard: Shard| {
            shard.local::<Store>().unwrap().release(SOURCE, pg_bits(1, 2)).await.unwrap()
        };
        let released = shard.call(AWAY, release).await;
        shard.local::<Store>().unwrap().adopt(released).await;
        for _ in 0..2 {
            let txn = next(&model, SOURCE, 2);
            run(&mut model, HOME, txn).await;
        }
    }
    let info = |pg| model.pg(pg).unwrap().info;
    let txn = merge(&info(TARGET), &[info(SOURCE)], 1, 1);
    run(&mut model, HOME, txn).await;
    for _ in 0..3 {
        let txn = next(&model, TARGET, 1);
        run(&mut model, HOME, txn).await;
    }
}

fn life(seed: u64, moves: bool) -> Life {
    let sim = Sim::new(seed);
    let base = make(&sim, seed.is_multiple_of(2));
    let tape = sim.record();
    let kv = Arc::new(recorded(tape.clone(), base));
    let (own, at, done) = (Arc::clone(&kv) as Arc<dyn Kv>, tape.clone(), Rc::<RefCell<Done>>::default());
    let out = Rc::clone(&done);
    on_node(&sim, 2, async move |shard| live(shard, own, at, out, moves).await).unwrap();
    Life { tape, kv, done: done.take() }
}

/// Opens what a power cut leaves, on one reactor: all that was acknowledged, and perhaps what was on its way. How much it is.
async fn check(shard: Shard, kv: Arc<dyn Kv>, done: Done, at: usize) -> Result<usize, StoreError> {
    let shared = BlueShared::mount(&shard, places(), kv, MountOptions::default()).await?;
    let store = open_shard(&shared, &shard).await;
    let mut found: Vec<(SpgId, PgState)> = Vec::new();
    for pg in store.list_pgs().await? {
        found.push((pg, store.load_pg(pg).await?.unwrap()));
    }
    let acknowledged = done.partition_point(|(_, mark)| *mark <= at);
    let mut model = Model::default();
    let is_it = |model: &Model| {
        model.pgs().into_iter().map(|pg| (pg, model.pg(pg).unwrap())).eq(found.iter().cloned())
    };
    let mut there = 0;
    while there < acknowledged || !is_it(&model) {
        let next = done.get(there).filter(|_| there <= acknowledged);
        let (next, _) =
            next.unwrap_or_else(|| panic!("{acknowledged} were acknowledged, and it has {found:?}"));
        model.apply(next);
        there += 1;
    }
    for pg in model.pgs() {
        let pg_num = model.pg(TARGET).map_or(2, |state| state.info.pg_num);
        model.compare(&store, pg, pg_num, 100).await;
    }
    clean(&shared, &shard).await;
    store.umount().await.unwrap();
    Ok(there)
}

/// The store after a power cut.
fn left(life: &Life, at: usize, unflushed: Unflushed) -> Result<usize, StoreError> {
    let sim = Sim::new(at as u64);
    sim.restore(&life.tape, at, unflushed);
    let kv: Arc<dyn Kv> = Arc::new(life.kv.watch.left_kv(at, unflushed));
    let done = life.done.clone();
    let checked = on_node(&sim, 1, async move |shard| check(shard, kv, done, at).await);
    checked.unwrap_or_else(|error| panic!("cut at {at}, {unflushed:?}: {error}"))
}

#[test]
fn a_pg_that_came_from_another_reactor_is_merged_as_a_whole_or_not_at_all() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..3 {
        let life = life(seed, true);
        let merged = life.done.iter().position(|(txn, _)| !txn.merge.is_empty()).unwrap();
        for (at, unflushed) in cuts(&life.tape, &life.kv.watch, 0, mix(seed)) {
            let there = left(&life, at, unflushed).unwrap();
            before += usize::from(there <= merged);
            after += usize::from(there > merged);
        }
    }
    println!("{before} images before the merge, {after} after it");
    assert!(before > 20 && after > 10);
}

/// What two lanes have of one PG has no order.
#[test]
fn a_pg_that_is_merged_on_another_reactor_than_its_own_is_found_out() {
    let life = life(1, false);
    let error = left(&life, life.tape.len(), Unflushed::Lost).unwrap_err().to_string();
    assert!(error.contains("the log of pg 1.1") && error.contains("in lane 1"), "{error}");
}
