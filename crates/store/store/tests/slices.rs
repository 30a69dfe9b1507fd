//! Several stores on one file, each with its slice: none sees or harms another, and a wrong slice is refused.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::path::Path;
use std::sync::Arc;

use carmine_reactor::Shard;
use carmine_store::blue::{self, MkfsOptions, MountOptions, Place, Slice};
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreShared};
use carmine_types::OsdId;
use common::*;

const SLICE_BYTES: u64 = 8 << 20;

fn place(path: &Path, number: u64) -> Place {
    let slice = Slice { offset_bytes: number * SLICE_BYTES, size_bytes: SLICE_BYTES };
    Place { path: path.to_owned(), slice: Some(slice), ..Place::from(path) }
}

async fn make(shard: &Shard, place: Place, osd: u32, kv: &Arc<dyn Kv>) -> Result<(), String> {
    let options = MkfsOptions { osd: OsdId(osd), force: false, ..mkfs_options(SLICE_BYTES) };
    let label = blue::mkfs(shard, place, options, Arc::clone(kv), &mut |_, _| {}).await;
    label.map(drop).map_err(|error| error.to_string())
}

async fn open(shard: &Shard, place: Place, kv: &Arc<dyn Kv>) -> Result<(Arc<BlueShared>, Store), String> {
    let shared = BlueShared::mount(shard, place, Arc::clone(kv), MountOptions::default()).await;
    let shared = shared.map_err(|error| error.to_string())?;
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    Ok((shared, store))
}

#[test]
fn two_stores_share_a_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("device");
    let kvs: [Arc<dyn Kv>; 2] = [Arc::new(MemKv::new()), Arc::new(MemKv::new())];
    on_reactor(async |shard| {
        for osd in 0..2 {
            make(&shard, place(&path, u64::from(osd)), osd, &kvs[osd as usize]).await.unwrap();
        }
        assert_eq!(path.metadata().unwrap().len(), 2 * SLICE_BYTES);
        for round in 0..3 {
            let mut open_stores = Vec::new();
            for osd in [0, 1] {
                open_stores.push(open(&shard, place(&path, osd), &kvs[osd as usize]).await.unwrap());
            }
            for (osd, (_, store)) in (0..).zip(&open_stores) {
                if round > 0 {
                    let found = store.read(&oid(1), 0, 500_000).await.unwrap().to_vec();
                    assert_eq!(found, noise(10 * osd + round - 1, 500_000), "OSD {osd}, round {round}");
                }
                submit(store, txn([write(&oid(1), 0, noise(10 * osd + round, 500_000))])).await.unwrap();
            }
            for (shared, store) in open_stores {
                clean(&shared, &shard).await;
                store.umount().await.unwrap();
            }
        }
    });
}

#[test]
fn a_wrong_slice_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("device");
    let kvs: [Arc<dyn Kv>; 2] = [Arc::new(MemKv::new()), Arc::new(MemKv::new())];
    on_reactor(async |shard| {
        for osd in 0..2 {
            make(&shard, place(&path, u64::from(osd)), osd, &kvs[osd as usize]).await.unwrap();
        }
        let mut half = place(&path, 0);
        half.slice = Some(Slice { offset_bytes: SLICE_BYTES / 2, size_bytes: SLICE_BYTES });
        let mut crooked = place(&path, 0);
        crooked.slice = Some(Slice { offset_bytes: 100, size_bytes: SLICE_BYTES });
        let mut short = place(&path, 0);
        short.slice = Some(Slice { offset_bytes: 0, size_bytes: SLICE_BYTES - 4096 });
        for (wrong, part) in [
            (place(&path, 1), "do not belong together"),
            (half, "no store of type blue"),
            (crooked, "multiple of 4096"),
            (short, "was it cut"),
            (place(&path, 2), "too short"),
        ] {
            let error = open(&shard, wrong.clone(), &kvs[0]).await.err().unwrap();
            assert!(error.contains(part), "{wrong:?}: {error}");
        }
        let fresh: Arc<dyn Kv> = Arc::new(MemKv::new());
        let error = make(&shard, place(&path, 1), 1, &fresh).await.unwrap_err();
        assert!(error.contains("not blank"), "{error}");
        let (_, store) = open(&shard, place(&path, 0), &kvs[0]).await.unwrap();
        store.umount().await.unwrap();
    });
}
