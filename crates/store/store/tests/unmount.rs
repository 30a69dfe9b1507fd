//! What a clean unmount leaves behind, and when a mount must not believe it.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carmine_reactor::Shard;
use carmine_store::blue::MountOptions;
use carmine_store::{BlueShared, Kv, KvBatch, KvError, MemKv, StoreShared};
use common::*;

/// A key-value store that counts the pieces of block maps that scans give.
#[derive(Default)]
struct CountingKv {
    kv: MemKv,
    scanned: AtomicU64,
}

impl Kv for CountingKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.kv.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        self.kv.scan(start, end, &mut |key, value| {
            self.scanned.fetch_add(u64::from(key.starts_with(b"X")), Ordering::Relaxed);
            each(key, value)
        })
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        self.kv.commit(batches, sync)
    }

    fn flush(&self) -> Result<(), KvError> {
        self.kv.flush()
    }

    fn place(&self) -> String {
        "a test".to_owned()
    }
}

/// The pairs that a clean unmount leaves, whole or not.
fn left(kv: &dyn Kv) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    kv.scan(b"S/clean", b"S/clean/", &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        true
    })
    .unwrap();
    kv.scan(b"S/space/", b"S/space0", &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        true
    })
    .unwrap();
    pairs
}

fn put(kv: &dyn Kv, pairs: &[(Vec<u8>, Vec<u8>)]) {
    let mut batch = KvBatch::default();
    pairs.iter().for_each(|(key, value)| batch.put(key, value));
    kv.commit(&[batch], true).unwrap();
}

/// A store of 600 MiB, so of three pieces, with objects that share blocks, on a counting key-value store. It was unmounted.
fn on_unmounted(main: impl AsyncFnOnce(Shard, &std::path::Path, Arc<CountingKv>)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        let counting = Arc::new(CountingKv::default());
        let kv = Arc::clone(&counting) as Arc<dyn Kv>;
        mkfs(&shard, &path, &kv, 600 << 20).await;
        let (_, store) = mount(&shard, &path, &kv).await;
        submit(&store, txn([write(&oid(1), 0, noise(1, 1 << 20)), write(&oid(2), 0, noise(2, 70_000))]))
            .await
            .unwrap();
        for n in 3..5 {
            submit(&store, txn([clone(&oid(n), &oid(1))])).await.unwrap();
        }
        submit(&store, txn([write(&oid(1), 8192, noise(3, 9000)), remove(&oid(2))])).await.unwrap();
        store.umount().await.unwrap();
        drop(store);
        main(shard, &path, counting).await;
    });
}

#[test]
fn a_mount_after_a_clean_unmount_scans_no_block_maps() {
    on_unmounted(async |shard, path, counting| {
        let kv = Arc::clone(&counting) as Arc<dyn Kv>;
        for _ in 0..2 {
            counting.scanned.store(0, Ordering::Relaxed);
            let (shared, store) = mount(&shard, path, &kv).await;
            assert_eq!(counting.scanned.load(Ordering::Relaxed), 0);
            assert!(left(&*kv).is_empty(), "it is of the epoch before");
            let report = clean(&shared, &shard).await;
            assert_eq!((report.objects, report.shared_blocks), (3, 256));
            store.umount().await.unwrap();
            clean(&shared, &shard).await;
        }
        // Blocks that three objects have are free when the last lets go of them.
        let (shared, store) = mount(&shard, path, &kv).await;
        submit(&store, txn([remove(&oid(1)), remove(&oid(3))])).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 256);
        submit(&store, txn([remove(&oid(4))])).await.unwrap();
        assert_eq!(clean(&shared, &shard).await.blocks, 0);
    });
}

#[test]
fn a_mount_after_a_crash_scans_the_block_maps() {
    on_unmounted(async |shard, path, counting| {
        let kv = Arc::clone(&counting) as Arc<dyn Kv>;
        let before = left(&*kv);
        let (_, store) = mount(&shard, path, &kv).await;
        submit(&store, txn([write(&oid(9), 0, noise(4, 50_000))])).await.unwrap();
        store.sync().await.unwrap();
        drop(store);
        // As if it had been forgotten to remove it: it is of an earlier epoch.
        put(&*kv, &before);
        counting.scanned.store(0, Ordering::Relaxed);
        let (shared, _store) = mount(&shard, path, &kv).await;
        assert!(counting.scanned.load(Ordering::Relaxed) > 0);
        clean(&shared, &shard).await;
    });
}

#[test]
fn a_damaged_or_incomplete_remainder_is_not_believed() {
    on_unmounted(async |shard, path, counting| {
        let kv = Arc::clone(&counting) as Arc<dyn Kv>;
        let pairs = left(&*kv);
        assert!(pairs.len() >= 3, "{} pairs", pairs.len());
        for n in 0..pairs.len() {
            for is_lost in [false, true] {
                let mut pairs = left(&*kv);
                let mut batch = KvBatch::default();
                if is_lost {
                    batch.delete(&pairs[n].0);
                } else {
                    pairs[n].1[3] ^= 1;
                    batch.put(&pairs[n].0, &pairs[n].1);
                }
                kv.commit(&[batch], true).unwrap();
                counting.scanned.store(0, Ordering::Relaxed);
                let (shared, store) = mount(&shard, path, &kv).await;
                assert!(counting.scanned.load(Ordering::Relaxed) > 0, "pair {n}, lost: {is_lost}");
                clean(&shared, &shard).await;
                store.umount().await.unwrap();
            }
        }
    });
}

#[test]
fn nobody_opens_a_store_that_is_unmounted() {
    on_unmounted(async |shard, path, kv| {
        let shared =
            BlueShared::mount(&shard, path, kv as Arc<dyn Kv>, MountOptions::default()).await.unwrap();
        let all = StoreShared::Blue(Arc::clone(&shared));
        let store = carmine_store::Store::open_shard(&all, &shard).await.unwrap();
        store.umount().await.unwrap();
        let again = carmine_store::Store::open_shard(&all, &shard).await;
        assert!(again.err().unwrap().to_string().contains("unmounted"));
    });
}
