//! A RocksDB that opens with less than was durable in it: its MANIFEST is cut where a record ends, or it is a copy of another
//! time. `blue` trimmed its log to what was there: it mounts only if all that was acknowledged is there, and says so otherwise.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::{Config, Payload, PollPolicy, Shard};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, Store, StoreError, StoreShared};
use carmine_types::{ObjectId, OsdId, PgId, SpgId, Uuid};

const PG: SpgId = SpgId::replicated(PgId::new(1, 0));
/// Blocks of RocksDB's log format, and bytes of a record's header (checksum, length, type).
const LOG_BLOCK: usize = 32 << 10;
const RECORD_HEADER: usize = 7;
const OBJECTS: u64 = 24;

fn on_reactor<R>(main: impl AsyncFnOnce(Shard) -> R) -> R {
    let config = Config {
        poll: PollPolicy::Sleep,
        arena_bytes_per_shard: 16 << 20,
        ring_entries: 64,
        ..Config::unpinned("older-test", 1)
    };
    carmine_reactor::block_on(config, main).unwrap()
}

fn options() -> RocksOptions {
    RocksOptions {
        block_cache_bytes: 1 << 20,
        write_buffer_bytes: 64 << 10,
        background_threads: 2,
        ..RocksOptions::default()
    }
}

fn open_kv(folder: &Path) -> Result<Arc<dyn Kv>, String> {
    let kv = RocksKv::open(&folder.join("db"), options()).map_err(|error| error.to_string())?;
    Ok(Arc::new(kv))
}

fn oid(n: u64) -> ObjectId {
    ObjectId::head(1, b"", b"", format!("object-{n}").as_bytes())
}

fn content(n: u64, round: u64) -> Vec<u8> {
    (0..9000u64).map(|at| (at ^ (at >> 8) ^ n.wrapping_mul(7) ^ round.wrapping_mul(31)) as u8).collect()
}

/// Overwrites all objects; ends cleanly, or as a killed process.
async fn write_round(shard: &Shard, folder: &Path, round: u64, umount: bool) {
    let kv = open_kv(folder).unwrap();
    let block = folder.join("block");
    let shared = BlueShared::mount(shard, &block, kv, MountOptions::default()).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(shared), shard).await.unwrap();
    for n in 0..OBJECTS {
        let data = Payload::from(content(n, round));
        let mut txn = Transaction::new(PG, 0);
        txn.changes.push(ObjectChange::new(oid(n), [Step::Write { off: 0, data }]));
        let prepared = store.prepare(&txn.changes).await.unwrap();
        let commit = store.submit(txn);
        drop(prepared);
        commit.await.unwrap();
    }
    if umount {
        store.umount().await.unwrap();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn manifest(folder: &Path) -> PathBuf {
    let current = fs::read_to_string(folder.join("db/CURRENT")).unwrap();
    folder.join("db").join(current.trim())
}

/// Where its records end.
fn borders(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut ends) = (0, Vec::new());
    while at + RECORD_HEADER <= bytes.len() {
        let left = LOG_BLOCK - at % LOG_BLOCK;
        let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        if left < RECORD_HEADER || bytes[at + 6] == 0 {
            at += left;
            continue;
        }
        at += RECORD_HEADER + len;
        ends.push(at);
    }
    ends
}

/// Mounts the store and checks that all objects are those of the last round; an error if it does not mount.
async fn mount(shard: &Shard, folder: &Path) -> Result<(), String> {
    let kv = open_kv(folder)?;
    let block = folder.join("block");
    let mounted = BlueShared::mount(shard, &block, kv, MountOptions::default()).await;
    let shared = mounted.map_err(|error: StoreError| error.to_string())?;
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    for n in 0..OBJECTS {
        let found = store.read(&oid(n), 0, u64::MAX).await;
        assert!(
            found.is_ok_and(|found| found.to_vec() == content(n, LAST)),
            "object {n} is not as it was acknowledged"
        );
    }
    let report = blue::fsck(&shared, shard, true).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    store.umount().await.unwrap();
    Ok(())
}

const LAST: u64 = 4;

fn make(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    on_reactor(async |shard| {
        let options = MkfsOptions {
            fsid: Uuid([3; 16]),
            osd: OsdId(1),
            size_bytes: Some(8 << 20),
            fill: Fill::Nothing,
            force: false,
        };
        let (block, kv) = (folder.join("block"), open_kv(folder).unwrap());
        blue::mkfs(&shard, &block, options, kv, &mut |_, _| {}).await.unwrap();
    });
    for round in 1..=LAST {
        on_reactor(async |shard| write_round(&shard, folder, round, round % 2 == 0).await);
        copy_folder(&folder.join("db"), &folder.with_file_name(format!("after-{round}")));
    }
}

#[test]
fn a_database_that_lost_what_the_log_was_trimmed_to_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let good = root.path().join("good");
    make(&good);
    let bytes = fs::read(manifest(&good)).unwrap();
    let (mut whole, mut refused) = (0, 0);
    let mut said = Vec::new();
    for end in borders(&bytes) {
        let folder = root.path().join(format!("cut-{end}"));
        copy_folder(&good, &folder);
        fs::OpenOptions::new().write(true).open(manifest(&folder)).unwrap().set_len(end as u64).unwrap();
        match on_reactor(async |shard| mount(&shard, &folder).await) {
            Ok(()) => whole += 1,
            Err(error) => {
                assert!(error.contains(folder.to_str().unwrap()), "{error}");
                refused += 1;
                said.push(error);
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("of {} cuts {whole} lose nothing, {refused} are refused", whole + refused);
    assert!(whole > 0 && refused > 0, "{said:?}");
    // A whole database of an earlier time, of a clean end and of a kill.
    for round in 1..LAST {
        let folder = root.path().join(format!("old-{round}"));
        copy_folder(&good, &folder);
        fs::remove_dir_all(folder.join("db")).unwrap();
        copy_folder(&root.path().join(format!("after-{round}")), &folder.join("db"));
        let error = on_reactor(async |shard| mount(&shard, &folder).await).unwrap_err();
        assert!(error.contains("is older than what the log was trimmed to"), "round {round}: {error}");
        assert!(error.contains("restore this store from its replicas"), "{error}");
    }
}
