//! A store that is 80 % full and overwritten again and again: it stays clean, its free space stays what it was, and objects
//! fall apart no further than by random writes of their first life.
//!
//! The long run: `AGING_TIMES=20 cargo test --release -p carmine-store --test aging -- --nocapture`.

mod common;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_reactor::Shard;
use carmine_reactor::sim::Sim;
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreError};
use carmine_types::ObjectId;
use common::*;

const DEVICE_BYTES: u64 = 48 << 20;
const OBJECT_BLOCKS: u64 = 1024;
const DEPTH: usize = 16;

fn object(n: u64) -> ObjectId {
    ObjectId::head(1, b"", b"", format!("image.{n}").as_bytes())
}

/// Overwrites random blocks, so many times the capacity of the store, some of them together.
async fn overwrite(shard: &Shard, store: &Store, objects: u64, blocks: u64) {
    let mut commits = std::collections::VecDeque::new();
    for n in 0..blocks {
        let (at, seed) = (shard.random_u64(), n);
        let op = write(&object(at % objects), (at >> 32) % OBJECT_BLOCKS * 4096, noise(seed, 4096));
        loop {
            let txn = txn([op.clone()]);
            let prepared = store.prepare(&txn.changes).await.unwrap();
            let commit = store.submit(txn);
            drop(prepared);
            match commit.peek() {
                Some(Err(StoreError::NoSpace { .. })) => store.sync().await.unwrap(),
                Some(other) => panic!("{other:?}"),
                None => break commits.push_back(commit),
            }
        }
        if commits.len() == DEPTH
            && let Some(commit) = commits.pop_front()
        {
            commit.await.unwrap();
        }
    }
    store.sync().await.unwrap();
}

/// Extents of an object of 4 MiB, on average.
async fn extents(shared: &Arc<BlueShared>, shard: &Shard, objects: u64) -> u64 {
    let report = carmine_store::blue::fsck(shared, shard, false).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.objects, report.blocks), (objects, objects * OBJECT_BLOCKS));
    report.extents / objects
}

async fn age(shard: Shard, times: u64) {
    let path = PathBuf::from("/sim/block");
    let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
    mkfs(&shard, &path, &kv, DEVICE_BYTES).await;
    let (shared, store) = mount(&shard, &path, &kv).await;
    let blocks = store.statfs().total / 4096;
    let objects = blocks * 8 / 10 / OBJECT_BLOCKS;
    for n in 0..objects {
        submit(&store, txn([write(&object(n), 0, noise(n, OBJECT_BLOCKS as usize * 4096))])).await.unwrap();
    }
    let written_in_order = extents(&shared, &shard, objects).await;
    let full = store.statfs();
    overwrite(&shard, &store, objects, objects * OBJECT_BLOCKS).await;
    let fresh = extents(&shared, &shard, objects).await;
    overwrite(&shard, &store, objects, times * blocks).await;
    let aged = extents(&shared, &shard, objects).await;
    println!(
        "extents of a 4 MiB object: {written_in_order} written in order, {fresh} after one life of random 4 KiB writes, \
         {aged} after {times} × capacity"
    );
    assert!(aged <= 2 * fresh, "{fresh} extents have become {aged}");
    assert_eq!(store.statfs(), full, "nothing leaks");
    clean(&shared, &shard).await;
}

#[test]
fn overwriting_a_store_that_is_nearly_full_neither_leaks_nor_scatters_for_ever() {
    let times = std::env::var("AGING_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(2);
    let sim = Sim::new(1);
    sim.set_step_budget(u64::MAX);
    let done = Rc::new(Cell::new(false));
    let flag = Rc::clone(&done);
    sim.node("osd", 1, move |shard| {
        let flag = Rc::clone(&flag);
        async move {
            age(shard, times).await;
            flag.set(true);
        }
    });
    sim.run(|| done.get(), Duration::from_secs(100_000)).unwrap();
}
