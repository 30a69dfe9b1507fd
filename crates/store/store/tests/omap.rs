//! Omaps and xattrs of `blue` that are large: beyond a group of the log, and beyond a page.

mod common;

use std::collections::BTreeMap;

use carmine_pgtypes::{ObjectChange, Step};
use carmine_reactor::Bytes;
use carmine_store::blue::MountOptions;
use carmine_store::{OmapRange, Store};
use carmine_types::ObjectId;
use common::*;

type Entries = BTreeMap<Box<[u8]>, Bytes>;

fn entries(count: u64, len: usize) -> Entries {
    (0..count).map(|n| (format!("key-{n:05}").into_bytes().into(), noise(n, len).into())).collect()
}

/// All of an omap, in pages of so many bytes, and how many they were.
async fn read_all(store: &Store, oid: &ObjectId, bytes_max: usize) -> (Entries, usize) {
    let (mut all, mut pages, mut range) = (Entries::new(), 0, OmapRange::all(bytes_max));
    loop {
        let page = store.omap_page(oid, &range).await.unwrap();
        all.extend(page.entries.iter().cloned());
        pages += 1;
        if !page.more {
            return (all, pages);
        }
        range = range.after(&page);
    }
}

#[test]
fn an_omap_larger_than_the_log_is_read_page_by_page_and_survives_a_restart() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let wanted = entries(3000, 400);
        let set = Step::SetOmap { entries: wanted.clone().into_iter().collect() };
        let xattr = Step::SetXattr { name: (*b"large").into(), value: noise(1, 60_000).into() };
        submit(&store, txn([ObjectChange::new(oid(1), [set, xattr])])).await.unwrap();
        assert!(store.stats().around_log > 0, "it fitted into the log");
        let (found, pages) = read_all(&store, &oid(1), 100_000).await;
        assert!(found == wanted && (12..14).contains(&pages), "{pages} pages");
        store.umount().await.unwrap();
        drop(store);
        let (shared, store) = mount(&shard, &path, &kv).await;
        assert!(read_all(&store, &oid(1), usize::MAX).await == (wanted, 1));
        let meta = store.stat(&oid(1)).await.unwrap().unwrap();
        assert_eq!(meta.xattrs.get(b"large").map(|value| value.to_vec()), Some(noise(1, 60_000)));
        clean(&shared, &shard).await;
    });
}

/// A read is of what was submitted before it, whether that is durable or not.
#[test]
fn a_change_is_read_right_after_it_was_submitted() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount(&shard, &path, &kv).await;
        let mut commits = Vec::new();
        for n in 1..=20 {
            let wanted = entries(n, 10);
            let change = only(&oid(1), Step::SetOmap { entries: wanted.clone().into_iter().collect() });
            let prepared = store.prepare(std::slice::from_ref(&change)).await.unwrap();
            commits.push(store.submit(txn([change])));
            drop(prepared);
            assert_eq!(read_all(&store, &oid(1), usize::MAX).await.0, wanted);
        }
        for commit in commits {
            commit.await.unwrap();
        }
    });
}

/// The xattrs of a removed object are no longer counted as cached.
#[test]
fn xattrs_of_a_removed_object_are_not_counted() {
    on_new_store(8 << 20, async |shard, path, kv| {
        let (_, store) = mount_with(&shard, &path, &kv, MountOptions::default()).await;
        let xattr = Step::SetXattr { name: (*b"large").into(), value: noise(1, 60_000).into() };
        submit(&store, txn([only(&oid(1), xattr)])).await.unwrap();
        assert!(store.stats().cache_bytes > 60_000);
        submit(&store, txn([remove(&oid(1))])).await.unwrap();
        assert!(store.stats().cache_bytes < 10_000, "{}", store.stats().cache_bytes);
    });
}
