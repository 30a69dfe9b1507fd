//! Changes that the key-value store was not given yet are in the log and in memory only: they are read and listed from there, survive
//! a kill, and reach the key-value store once, however often a key changed.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carmine_pgtypes::{Sealed, Step, Transaction};
use carmine_reactor::{Bytes, Shard};
use carmine_store::{Kv, KvBatch, KvError, MemKv, OmapRange, Store};
use carmine_types::{Eversion, ObjectId};
use common::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Large enough for all transactions of a life to be in one window.
const DEVICE_BYTES: u64 = 256 << 20;
/// Beyond this a transaction might go around the log, which feeds the key-value store.
const TXN_BYTES_MAX: usize = 32 << 10;
const LIVES: u64 = 4;
const TXNS: u64 = 50;

fn transaction(runner: &mut TestRunner, version: u64) -> Transaction {
    loop {
        let changes = proptest::collection::vec((0u8..5, change()), 1..4);
        let changes = changes.new_tree(runner).unwrap().current();
        let mut txn = txn(changes.iter().map(|(object, change)| change.to_change(&oid(*object))));
        txn.log.push(log_entry(version, &oid(changes[0].0)));
        txn.log_trim_to = version.is_multiple_of(8).then(|| Eversion::new(4, version - 5));
        if Sealed::from(txn.clone()).encoded().len() < TXN_BYTES_MAX {
            return txn;
        }
    }
}

async fn life(
    shard: &Shard,
    path: &Path,
    kv: &Arc<dyn Kv>,
    runner: &mut TestRunner,
    model: &mut Model,
    number: u64,
) {
    let (shared, store) = mount(shard, path, kv).await;
    let replayed = if number == 0 { 0 } else { TXNS };
    assert_eq!(shared.replayed().txns, replayed);
    model.compare(&store, PG, 1, 3).await;
    for n in 1..=TXNS {
        let txn = transaction(runner, number * TXNS + n);
        model.apply(&txn);
        submit(&store, txn).await.unwrap();
        if n % 5 == 0 {
            model.compare(&store, PG, 1, 3).await;
        }
    }
    let stats = store.stats();
    assert_eq!((stats.kv_commits, stats.around_log), (0, 0), "the key-value store was fed");
}

#[test]
fn what_only_the_log_has_is_read_and_listed_and_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (path, kv) = (folder.path().join("block"), mem());
    let (mut runner, mut model) = (TestRunner::deterministic(), Model::default());
    on_reactor(async |shard| mkfs(&shard, &path, &kv, DEVICE_BYTES).await);
    for number in 0..LIVES {
        // Nothing is stopped: the reactor ends in the middle of everything.
        on_reactor(async |shard| life(&shard, &path, &kv, &mut runner, &mut model, number).await);
    }
    on_reactor(async |shard| {
        let (shared, store) = mount(&shard, &path, &kv).await;
        model.compare_pg(&store, PG).await;
        model.compare(&store, PG, 1, 3).await;
        clean(&shared, &shard).await;
        store.umount().await.unwrap();
    });
}

#[test]
fn what_is_written_again_and_again_reaches_the_key_value_store_once() {
    on_new_store(DEVICE_BYTES, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        for version in 1..=400 {
            let mut txn = txn([write(&oid(1), version % 200 * 4096, noise(version, 4096))]);
            txn.log.push(log_entry(version, &oid(1)));
            txn.log_trim_to = (version > 20).then(|| Eversion::new(4, version - 10));
            submit(&store, txn).await.unwrap();
        }
        store.umount().await.unwrap();
        let stats = store.stats();
        // One onode, four pieces of up to 576 bytes, and about 15 log entries for each of a few windows.
        assert!((1..=4).contains(&stats.kv_commits), "{} commits", stats.kv_commits);
        assert!(stats.kv_bytes < 400 * 100, "{} bytes", stats.kv_bytes);
        drop(store);
        let (shared, store) = mount(&shard, &path, &kv).await;
        assert_eq!(shared.replayed().txns, 0, "a clean stop leaves nothing to replay");
        assert_eq!(store.load_pg(PG).await.unwrap().unwrap().log.len(), 10);
        clean(&shared, &shard).await;
    });
}

/// A read looks through removed ranges for each key, so a client that removes many must not make that long.
#[test]
fn a_read_behind_many_removed_ranges_lets_the_key_value_store_have_them() {
    on_new_store(DEVICE_BYTES, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let key = |n: u32| -> Box<[u8]> { n.to_be_bytes().into() };
        let value = |n: u32| Bytes::from(n.to_be_bytes().to_vec());
        let set = Step::SetOmap { entries: (0..1000).map(|n| (key(n), value(n))).collect() };
        submit(&store, txn([only(&oid(1), set)])).await.unwrap();
        for n in 0..500 {
            let range = Step::RemoveOmapRange { from: key(2 * n), to: key(2 * n + 1) };
            submit(&store, txn([only(&oid(1), range)])).await.unwrap();
        }
        let commits = store.stats().kv_commits;
        let found = store.omap_values(&oid(1), &[key(10), key(11)]).await.unwrap();
        assert_eq!(found, [None, Some(value(11))]);
        assert!(store.stats().kv_commits > commits, "500 ranges were looked through");
    });
}

/// Counts scans.
#[derive(Default)]
struct Scans(AtomicU64);

impl Watch for Scans {
    fn before_scan(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn before(&self, _: &[KvBatch], _: bool) -> Result<(), KvError> {
        Ok(())
    }
}

/// Keys of an omap and objects of a PG that are removed, and that the key-value store still has: removed in a range, then one by one.
const REMOVED: u32 = 2000;

async fn first_and_last_keys(store: &Store, key: impl Fn(u32) -> Box<[u8]>) -> Vec<Box<[u8]>> {
    let range = OmapRange { entries_max: 10, ..OmapRange::all(usize::MAX) };
    let page = store.omap_page(&oid(1), &range).await.unwrap();
    assert!(page.more);
    let rest = store.omap_page(&oid(1), &range.after(&page)).await.unwrap();
    let keys: Vec<_> = page.entries.into_iter().chain(rest.entries).map(|(key, _)| key).collect();
    assert_eq!(keys, (0..10).chain(REMOVED + 10..REMOVED + 20).map(key).collect::<Vec<_>>());
    keys
}

/// A page that is nearly full wants one more key, which may lie after any number of removed ones.
#[test]
fn removed_keys_and_objects_are_passed_in_few_scans() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    let watched = Arc::new(WatchedKv { live: MemKv::new(), watch: Scans::default() });
    let kv: Arc<dyn Kv> = watched.clone();
    let scans = || watched.watch.0.swap(0, Ordering::Relaxed);
    let key = |n: u32| -> Box<[u8]> { n.to_be_bytes().into() };
    let object = |n: u32| ObjectId::head(1, b"", b"", format!("listed-{n}").as_bytes());
    on_reactor(async |shard| {
        mkfs(&shard, &path, &kv, DEVICE_BYTES).await;
        let (_, store) = mount(&shard, &path, &kv).await;
        let entries = (0..REMOVED + 20).map(|n| (key(n), Bytes::from(vec![7]))).collect();
        submit(&store, txn([only(&oid(1), Step::SetOmap { entries })])).await.unwrap();
        for first in (0..REMOVED).step_by(100) {
            let written = (first..first + 100).map(|n| write(&object(n), 0, vec![1]));
            submit(&store, txn(written)).await.unwrap();
        }
        store.umount().await.unwrap();
        drop(store);
        let (_, store) = mount(&shard, &path, &kv).await;
        let listed = store.list(PG, 0, None, usize::MAX).await.unwrap();
        let (kept, removed) = listed.split_at(10);
        assert_eq!(listed.len(), REMOVED as usize + 1);
        scans();
        let range = Step::RemoveOmapRange { from: key(10), to: key(REMOVED + 10) };
        submit(&store, txn([only(&oid(1), range)])).await.unwrap();
        first_and_last_keys(&store, key).await;
        assert!(scans() <= 5, "a removed range is not scanned");
        for first in (10..REMOVED + 10).step_by(100) {
            let keys = (first..first + 100).map(key).collect();
            submit(&store, txn([only(&oid(1), Step::RemoveOmap { keys })])).await.unwrap();
        }
        first_and_last_keys(&store, key).await;
        assert!(scans() <= 20, "keys that were removed one by one are passed in few scans");
        for some in removed.chunks(100) {
            submit(&store, txn(some.iter().map(remove))).await.unwrap();
        }
        scans();
        assert_eq!(store.list(PG, 0, None, 11).await.unwrap(), kept);
        let scans = scans();
        assert!((2..=15).contains(&scans), "{scans} scans");
        assert_eq!(store.stats().kv_commits, 0, "the key-value store was fed");
    });
}
