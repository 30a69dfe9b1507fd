//! What must be true of every store that a power cut leaves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_reactor::Shard;
use carmine_reactor::sim::{Sim, Unflushed};
use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreShared};

use crate::common::*;
use crate::work::{Histories, History, Life, PGS, path, pg_of};

const LIMIT: Duration = Duration::from_secs(600);

/// Opens what a power cut after the first `at` events leaves: it is clean, each PG is a prefix of its history with all that
/// was acknowledged, and its objects are those of that prefix. Gives back these prefixes.
///
/// # Errors
/// What is not as it must be, in words.
pub fn check(life: &Life, at: usize, unflushed: Unflushed) -> Result<Histories, String> {
    let sim = Sim::new(at as u64);
    sim.restore(&life.tape, at, unflushed);
    let kv = MemKv::new();
    kv.commit(&life.kv.left(at, unflushed), true).map_err(|error| error.to_string())?;
    let kv: Arc<dyn Kv> = Arc::new(kv);
    let histories = Rc::new(life.histories.clone());
    let found: Rc<RefCell<Histories>> = Rc::default();
    let done = Rc::new(Cell::new(false));
    let (out, flag) = (Rc::clone(&found), Rc::clone(&done));
    let node = sim.node("osd", 1, move |shard| {
        let (kv, histories, out, flag) =
            (Arc::clone(&kv), Rc::clone(&histories), Rc::clone(&out), Rc::clone(&flag));
        async move {
            let prefixes = examine(&shard, &kv, &histories, at).await;
            *out.borrow_mut() = prefixes;
            flag.set(true);
        }
    });
    let result = sim.run(|| done.get(), LIMIT).map_err(|error| error.to_string());
    sim.kill(node);
    result.map(|()| found.take())
}

async fn examine(shard: &Shard, kv: &Arc<dyn Kv>, histories: &[History], at: usize) -> Histories {
    let options = MountOptions { cache_bytes_per_shard: 1 << 20, ..MountOptions::default() };
    let shared = BlueShared::mount(shard, &path(), Arc::clone(kv), options).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    let mut prefixes = Histories::new();
    for (index, history) in histories.iter().enumerate() {
        prefixes.push(examine_pg(&store, index, history, at).await);
    }
    clean(&shared, shard).await;
    store.umount().await.unwrap();
    prefixes
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
