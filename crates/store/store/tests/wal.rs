//! A log on a device of its own, on real files: foreign, missing and cut ones are refused by name; after a move the old place is
//! really unused.
// The tests look at the files from outside.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carmine_reactor::Shard;
use carmine_store::blue::{self, Fill, LogMove, MountOptions, NewLog, Places, mkfs, move_log};
use carmine_store::{BlueShared, Kv, MemKv, Store, StoreShared};
use common::*;

fn places(block: &Path, wal: &[&PathBuf]) -> Places {
    Places { wal: wal.iter().map(|path| (*path).into()).collect(), ..Places::from(block) }
}

fn new_log(path: &PathBuf) -> NewLog {
    NewLog { place: path.into(), size_bytes: None, fill: Fill::Nothing, force: false }
}

fn make(places: Places, kv: &Arc<dyn Kv>) {
    let options = mkfs_options(8 << 20);
    on_reactor(async |shard| {
        mkfs(&shard, places, options, Arc::clone(kv), &mut |_, _| {}).await.unwrap();
    });
}

async fn open(shard: &Shard, places: Places, kv: &Arc<dyn Kv>) -> (Arc<BlueShared>, Store) {
    let options = MountOptions { prefer_deferred_bytes: Some(32 << 10), ..MountOptions::default() };
    let shared = BlueShared::mount(shard, places, Arc::clone(kv), options).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    (shared, store)
}

/// Why a mount is refused.
fn refusal(places: Places, kv: &Arc<dyn Kv>) -> String {
    on_reactor(async |shard| {
        let mounted = BlueShared::mount(&shard, places, Arc::clone(kv), MountOptions::default()).await;
        mounted.map(|_| ()).unwrap_err().to_string()
    })
}

fn relocate(places: Places, kv: &Arc<dyn Kv>, to: Option<NewLog>) -> Result<LogMove, String> {
    on_reactor(async |shard| {
        move_log(&shard, places, Arc::clone(kv), to).await.map_err(|error| error.to_string())
    })
}

/// Overwrites some of a file with noise.
fn garbage(path: &Path, bytes: std::ops::Range<u64>) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&noise(99, (bytes.end - bytes.start) as usize), bytes.start).unwrap();
    file.sync_all().unwrap();
}

/// Writes, and ends as a killed process does: the key-value store keeps what was synced.
fn write_and_die(places: Places, kv: &Arc<MemKv>, seed: u64) {
    let as_kv: Arc<dyn Kv> = Arc::clone(kv) as Arc<dyn Kv>;
    on_reactor(async |shard| {
        let (_, store) = open(&shard, places, &as_kv).await;
        for n in 0..6 {
            submit(&store, txn([write(&oid(n), 0, noise(seed + u64::from(n), 3000))])).await.unwrap();
        }
        assert!(store.stats().deferred_txns > 0);
    });
    kv.crash(0);
}

/// Checks that all writes are there; gives the number of transactions that the mount replayed.
fn check(places: Places, kv: &Arc<dyn Kv>, seed: u64) -> u64 {
    on_reactor(async |shard| {
        let (shared, store) = open(&shard, places, kv).await;
        for n in 0..6 {
            let found = store.read(&oid(n), 0, u64::MAX).await.unwrap().to_vec();
            assert!(found == noise(seed + u64::from(n), 3000));
        }
        clean(&shared, &shard).await;
        let replayed = shared.replayed().txns;
        store.umount().await.unwrap();
        replayed
    })
}

#[test]
fn a_log_of_its_own_is_written_and_replayed_there_and_none_other_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (block, wal, other) = (path("block"), path("wal"), path("other"));
    let mem = Arc::new(MemKv::new());
    let kv: Arc<dyn Kv> = Arc::clone(&mem) as Arc<dyn Kv>;
    let own = || places(&block, &[&wal]);
    make(own(), &kv);
    write_and_die(own(), &mem, 1);
    // Missing, another's, an earlier one's, cut.
    let said = refusal(places(&block, &[]), &kv);
    assert!(said.contains("log lies on a device of its own") && said.contains("osd.3"), "{said}");
    let said = refusal(places(&block, &[&path("none")]), &kv);
    assert!(said.contains("none"), "{said}");
    make(places(&path("other-block"), &[&other]), &self::mem());
    let said = refusal(places(&block, &[&other]), &kv);
    assert!(said.contains("of an earlier osd.3") && said.contains("other"), "{said}");
    let said = refusal(places(&block, &[&block]), &kv);
    assert!(said.contains("magic is missing"), "{said}");
    std::fs::copy(&wal, path("cut")).unwrap();
    std::fs::OpenOptions::new().write(true).open(path("cut")).unwrap().set_len(100 << 10).unwrap();
    let said = refusal(places(&block, &[&path("cut")]), &kv);
    assert!(said.contains("was it cut"), "{said}");
    // The right one among others; the home beside the data is not touched.
    let home = (8 << 20) - 4096 - (256 << 10)..(8 << 20) - 4096;
    garbage(&block, home);
    assert!(check(places(&block, &[&other, &wal]), &kv, 1) >= 6);
    // One of its labels is enough; fsck tells of the other one, until that is repaired.
    garbage(&wal, 0..4096);
    on_reactor(async |shard| {
        let (shared, store) = open(&shard, own(), &kv).await;
        let report = blue::fsck(&shared, &shard, true).await.unwrap();
        assert!(
            report.error_count == 1 && report.errors[0].contains("label of the log in block 0"),
            "{report:?}"
        );
        store.umount().await.unwrap();
        assert_eq!(blue::repair(&shard, own(), Arc::clone(&kv)).await.unwrap().len(), 1);
    });
    assert_eq!(check(own(), &kv, 1), 0);
}

#[test]
fn after_a_move_the_old_place_is_unused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (block, first, second) = (path("block"), path("first"), path("second"));
    let mem = Arc::new(MemKv::new());
    let kv: Arc<dyn Kv> = Arc::clone(&mem) as Arc<dyn Kv>;
    make(places(&block, &[]), &kv);
    write_and_die(places(&block, &[]), &mem, 1);
    let home = {
        let (first, copy) = on_reactor(async |shard| {
            let labels = blue::labels(&shard, &block).await.unwrap();
            (labels.first.unwrap(), labels.copy.unwrap())
        });
        assert_eq!(first, copy);
        first.log_range()
    };
    // To a device of its own.
    let moved = relocate(places(&block, &[]), &kv, Some(new_log(&first))).unwrap();
    assert_eq!((moved.from, moved.to), (None, Some((&first).into())));
    garbage(&block, home);
    check(places(&block, &[&first]), &kv, 1);
    write_and_die(places(&block, &[&first]), &mem, 2);
    // To another one: the first says nothing any more, and may hold anything.
    let again = Some(new_log(&second));
    relocate(places(&block, &[&first]), &kv, again).unwrap();
    let said = refusal(places(&block, &[&first]), &kv);
    assert!(said.contains("magic is missing"), "{said}");
    let bytes = std::fs::metadata(&first).unwrap().len();
    garbage(&first, 0..bytes);
    check(places(&block, &[&first, &second]), &kv, 2);
    write_and_die(places(&block, &[&second]), &mem, 3);
    // Home.
    relocate(places(&block, &[&second]), &kv, None).unwrap();
    std::fs::remove_file(&second).unwrap();
    check(places(&block, &[]), &kv, 3);
    let none = relocate(places(&block, &[]), &kv, None).unwrap_err();
    assert!(none.contains("nothing to move"), "{none}");
}

#[test]
fn a_full_or_used_place_is_refused_and_the_store_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (block, precious) = (path("block"), path("precious"));
    let mem = Arc::new(MemKv::new());
    let kv: Arc<dyn Kv> = Arc::clone(&mem) as Arc<dyn Kv>;
    make(places(&block, &[]), &kv);
    write_and_die(places(&block, &[]), &mem, 1);
    std::fs::write(&precious, b"x").unwrap();
    let tiny = NewLog { size_bytes: Some(100 << 10), ..new_log(&path("tiny")) };
    for (new, words) in [(new_log(&precious), "not empty"), (tiny, "too few")] {
        let said = relocate(places(&block, &[]), &kv, Some(new));
        let said = said.unwrap_err();
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"x");
    check(places(&block, &[]), &kv, 1);
}
