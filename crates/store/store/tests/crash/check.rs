//! Conditions that every store must meet after a power cut.

use std::rc::Rc;
use std::sync::Arc;

use carmine_reactor::Shard;
use carmine_reactor::sim::{Sim, Unflushed};
use carmine_store::blue::{FsckReport, MountOptions, ReplayReport};
use carmine_store::{BlueShared, Kv, Store, StoreShared};

use crate::common::*;
use crate::work::{Histories, History, Life, PGS, on_node, pg_of, places};

/// A store that is as it must be.
pub struct Checked {
    /// The part of each PG's history that the store has.
    pub prefixes: Histories,
    /// The mount's report of its replay.
    pub replayed: ReplayReport,
    /// The report of fsck.
    pub fsck: FsckReport,
}

/// Opens what a power cut after the first `at` events leaves: it is clean, each PG is a prefix of its history with all that
/// was acknowledged, and its objects are those of that prefix.
///
/// # Errors
/// The condition that is not met, in words.
pub fn check(life: &Life, at: usize, unflushed: Unflushed) -> Result<Checked, String> {
    let sim = Sim::new(at as u64);
    sim.restore(&life.tape, at, unflushed);
    let kv: Arc<dyn Kv> = Arc::new(life.kv.watch.left_kv(at, unflushed));
    let histories = Rc::new(life.histories.clone());
    on_node(&sim, 1, async move |shard| examine(&shard, &kv, &histories, at).await)
}

async fn examine(shard: &Shard, kv: &Arc<dyn Kv>, histories: &[History], at: usize) -> Checked {
    let options = MountOptions { cache_bytes_per_shard: 1 << 20, ..MountOptions::default() };
    let shared = BlueShared::mount(shard, places(), Arc::clone(kv), options).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    let mut prefixes = Histories::new();
    for (index, history) in histories.iter().enumerate() {
        prefixes.push(examine_pg(&store, index, history, at).await);
    }
    let fsck = clean(&shared, shard).await;
    store.umount().await.unwrap();
    Checked { prefixes, replayed: *shared.replayed(), fsck }
}

async fn examine_pg(store: &Store, index: usize, history: &History, at: usize) -> History {
    let (pg, pg_num) = pg_of(index);
    let acknowledged = history.acknowledged.partition_point(|mark| *mark <= at);
    // The ballast has no log; it was acknowledged, or never was.
    let last = match store.load_pg(pg).await.unwrap() {
        Some(state) => state.info.last_update.version as usize,
        None if index as u32 == PGS => acknowledged,
        None => 0,
    };
    assert!(last >= acknowledged, "pg {pg}: {acknowledged} was acknowledged, {last} is there");
    let submitted = history.submitted.get(..last);
    let Some(submitted) = submitted else {
        panic!("pg {pg}: {last} is there, {} were made", history.submitted.len())
    };
    let mut model = Model::default();
    submitted.iter().for_each(|txn| model.apply(txn));
    model.compare_pg(store, pg).await;
    model.compare(store, pg, pg_num, 100).await;
    History { submitted: submitted.to_vec(), acknowledged: Vec::new() }
}
