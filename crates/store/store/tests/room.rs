//! Metadata is a part of a store's size: an omap fills a store as data does, and removing it gives the space back.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use carmine_pgtypes::{ObjectChange, Step};
use carmine_store::blue::MountOptions;
use carmine_store::{Kv, KvBatch, KvError, MemKv, Store, StoreError, StoreShared};
use common::*;

const STORE_BYTES: u64 = 16 << 20;
const OMAP_BYTES: usize = 100 << 10;

/// A key-value store that knows its size, and gives back the space of what was removed only when it is told to.
#[derive(Default)]
struct SizedKv {
    kv: MemKv,
    used_bytes: AtomicU64,
}

impl SizedKv {
    fn content_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.scan(&[], &[255], &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            true
        })
        .unwrap();
        bytes
    }
}

impl Kv for SizedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.kv.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        self.kv.scan(start, end, each)
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        self.kv.commit(batches, sync)
    }

    fn flush(&self) -> Result<(), KvError> {
        self.kv.flush()
    }

    fn used_bytes(&self) -> u64 {
        let bytes = self.content_bytes();
        self.used_bytes.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    fn reclaim(&self) {
        self.used_bytes.store(self.content_bytes(), Ordering::Relaxed);
    }

    fn place(&self) -> String {
        "a test".to_owned()
    }
}

fn set_omap(object: u8, seed: u64) -> ObjectChange {
    let entries = vec![(format!("key-{seed}").into_bytes().into(), noise(seed, OMAP_BYTES).into())];
    only(&oid(object), Step::SetOmap { entries })
}

/// Adds to omaps until there is no room; how often that was possible.
async fn fill(store: &Store) -> u64 {
    for n in 0.. {
        match submit(store, txn([set_omap((n % 16) as u8, n)])).await {
            Ok(()) => {}
            Err(StoreError::NoSpace { .. }) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

#[test]
fn an_omap_fills_a_store_and_gives_its_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("block");
    on_reactor(async |shard| {
        let kv = Arc::new(SizedKv::default()) as Arc<dyn Kv>;
        mkfs(&shard, &path, &kv, STORE_BYTES).await;
        let (shared, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
        let all = store.statfs();
        let filled = fill(&store).await;
        let bytes = filled * OMAP_BYTES as u64;
        assert!(bytes > all.total / 2 && bytes < all.total + (4 << 20), "{bytes} bytes of {all:?}");
        let full = store.statfs();
        assert!(full.used > all.total * 9 / 10 && full.free < OMAP_BYTES as u64, "{full:?}");
        let refused = submit(&store, txn([write(&oid(99), 0, noise(1, 200 << 10))])).await.unwrap_err();
        assert!(matches!(refused, StoreError::NoSpace { .. }), "data has no room either: {refused}");
        // Removing works, and gives the room back, though nothing else is committed then.
        for object in 0..16 {
            submit(&store, txn([remove(&oid(object))])).await.unwrap();
        }
        // A busy machine may take long for what takes a few of these on another.
        for _ in 0..1000 {
            shard.sleep(Duration::from_millis(20)).await;
            if store.statfs().free > all.free * 9 / 10 {
                break;
            }
        }
        let again = store.statfs();
        assert!(again.free > all.free * 9 / 10, "{again:?} of {all:?}");
        submit(&store, txn([set_omap(1, 1), write(&oid(99), 0, noise(1, 200 << 10))])).await.unwrap();
        // A mount knows it at once.
        store.umount().await.unwrap();
        drop((store, shared));
        let (_, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
        assert!(store.statfs().used > (300 << 10), "{:?}", store.statfs());
    });
}

#[test]
fn a_store_in_memory_counts_omaps_too() {
    on_reactor(async |shard| {
        let store = Store::open_shard(&StoreShared::cyan(1 << 20), &shard).await.unwrap();
        let filled = fill(&store).await;
        assert_eq!(filled, 10);
        assert!(store.statfs().used > 10 * OMAP_BYTES as u64);
        submit(&store, txn([only(&oid(0), Step::ClearOmap)])).await.unwrap();
        submit(&store, txn([set_omap(0, 77)])).await.unwrap();
        for object in 0..16 {
            submit(&store, txn([remove(&oid(object))])).await.unwrap();
        }
        assert_eq!(store.statfs().used, 0);
    });
}
