//! Freed space is discarded, and nothing depends on it.
#![allow(clippy::disallowed_methods)] // looks at the file below a store

mod common;

use std::cell::Cell;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_reactor::Shard;
use carmine_reactor::sim::Sim;
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, MemKv, Store};
use common::*;

const LIMIT: Duration = Duration::from_secs(60);

fn discarding() -> MountOptions {
    MountOptions { discard: true, ..MountOptions::default() }
}

fn path() -> PathBuf {
    PathBuf::from("/sim/block")
}

/// Runs `work` on one simulated shard with a store of `bytes` that discards.
fn in_sim<F: AsyncFn(Shard, Arc<BlueShared>, Store) + 'static>(sim: &Sim, bytes: u64, work: F) {
    let (work, done) = (Rc::new(work), Rc::new(Cell::new(false)));
    let flag = Rc::clone(&done);
    let node = sim.node("osd", 1, move |shard| {
        let (work, flag) = (Rc::clone(&work), Rc::clone(&flag));
        async move {
            let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
            mkfs(&shard, &path(), &kv, bytes).await;
            let (shared, store) = mount_with(&shard, &path(), &kv, discarding()).await;
            work(shard.clone(), shared, store).await;
            flag.set(true);
        }
    });
    sim.run(|| done.get(), LIMIT).unwrap();
    sim.kill(node);
}

/// How many blocks on the disk begin with these.
fn copies(sim: &Sim, content: &[u8]) -> usize {
    sim.disk("osd", &path()).find(&content[..64]).len()
}

#[test]
fn what_is_overwritten_is_gone_from_the_drive_and_what_replaced_it_is_there() {
    let sim = Sim::new(1);
    let (old, new) = (noise(1, 4096), noise(2, 4096));
    let (first, second) = (old.clone(), new.clone());
    in_sim(&sim, 8 << 20, async move |shard, shared, store| {
        for data in [&first, &second] {
            submit(&store, txn([write(&oid(1), 0, data.clone())])).await.unwrap();
        }
        clean(&shared, &shard).await;
        assert_eq!((store.stats().discards, store.stats().discard_bytes), (1, 4096));
        assert_eq!(store.read(&oid(1), 0, 4096).await.unwrap().to_vec(), second);
        assert_eq!(shared.statfs().used, 4096, "the block is free again");
    });
    assert_eq!((copies(&sim, &old), copies(&sim, &new)), (0, 1));
}

#[test]
fn a_moment_is_enough_without_anybody_waiting_for_it() {
    let sim = Sim::new(2);
    let old = noise(1, 4096);
    let content = old.clone();
    in_sim(&sim, 64 << 20, async move |shard, shared, store| {
        submit(&store, txn([write(&oid(1), 0, content.clone())])).await.unwrap();
        submit(&store, txn([remove(&oid(1))])).await.unwrap();
        shard.sleep(Duration::from_secs(1)).await;
        assert_eq!((shared.statfs().used, store.stats().discard_bytes), (0, 4096));
    });
    assert_eq!(copies(&sim, &old), 0);
}

#[test]
fn a_drive_that_takes_none_costs_nothing_but_the_first() {
    let sim = Sim::new(3);
    sim.disk("osd", &path()).fail_discards(true);
    in_sim(&sim, 8 << 20, async move |shard, shared, store| {
        for n in 0..5u8 {
            submit(&store, txn([write(&oid(1), 0, noise(n.into(), 20_480))])).await.unwrap();
        }
        clean(&shared, &shard).await;
        assert_eq!((store.stats().discards, shared.statfs().used), (0, 20_480));
    });
}

#[test]
fn space_that_waits_to_be_discarded_is_not_missing() {
    let sim = Sim::new(4);
    in_sim(&sim, 16 << 20, async move |_, shared, store| {
        // Nearly all, and with each turn all of it anew: there is no room for two.
        let bytes = shared.statfs().free as usize / 4096 * 4096;
        for n in 0..3u8 {
            submit(&store, txn([write(&oid(n), 0, noise(n.into(), bytes))])).await.unwrap();
            submit(&store, txn([remove(&oid(n))])).await.unwrap();
        }
    });
}

#[test]
fn a_file_gets_smaller() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let block = folder.path().join("block");
    let kept_bytes = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    on_reactor(async |shard| {
        let kv: Arc<dyn Kv> = Arc::new(MemKv::new());
        let options = MkfsOptions { fill: Fill::Zeros, ..mkfs_options(16 << 20) };
        blue::mkfs(&shard, &block, options, Arc::clone(&kv), &mut |_, _| {}).await.unwrap();
        let (_, store) = mount_with(&shard, &block, &kv, discarding()).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 8 << 20))])).await.unwrap();
        submit(&store, txn([write(&oid(2), 0, noise(2, 8192))])).await.unwrap();
        let before = kept_bytes(&block);
        submit(&store, txn([remove(&oid(1))])).await.unwrap();
        store.umount().await.unwrap();
        let stats = store.stats();
        if stats.discards == 0 {
            println!("the file system under {} takes no discards", block.display());
            return;
        }
        assert_eq!(stats.discard_bytes, 8 << 20);
        assert!(kept_bytes(&block) + (8 << 20) <= before, "{before}");
        let (_, store) = mount(&shard, &block, &kv).await;
        assert_eq!(store.read(&oid(2), 0, 8192).await.unwrap().to_vec(), noise(2, 8192));
    });
}
