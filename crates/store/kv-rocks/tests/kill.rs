//! `blue` on a real file and RocksDB: a process is killed again and again while it writes, and what it acknowledged is
//! there every time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction};
use carmine_reactor::{Config, Group, Payload, PollPolicy, Shard};
use carmine_store::blue::{self, Fill, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, Store, StoreShared};
use carmine_types::{Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, SpgId, UTime, Uuid};

const FOLDER: &str = "CARMINE_KILL_TEST_FOLDER";
const PG: SpgId = SpgId::replicated(PgId::new(1, 0));
const OBJECTS: u64 = 12;
const DEPTH: u64 = 8;

fn oid(version: u64) -> ObjectId {
    ObjectId::head(1, b"", b"", format!("object-{}", version * 7 % OBJECTS).as_bytes())
}

/// The content that a version wrote: of some length, each block different.
fn content(version: u64) -> Vec<u8> {
    let len = 1 + (version.wrapping_mul(2_654_435_761) % 20_000) as usize;
    (0..len as u64).map(|i| (version.wrapping_mul(31) ^ i ^ (i >> 12)) as u8).collect()
}

fn transaction(version: u64) -> Transaction {
    let (oid, data) = (oid(version), content(version));
    let mut txn = Transaction::new(PG, 0);
    let oid = Arc::new(oid);
    let steps = [
        Step::Truncate { size: data.len() as u64 },
        Step::Write { off: 0, data: Payload::from(data) },
        Step::SetOmap { entries: vec![((*b"version").into(), version.to_le_bytes().to_vec().into())] },
    ];
    txn.changes.push(ObjectChange::new(Arc::clone(&oid), steps));
    txn.log.push(LogEntry {
        version: Eversion::new(1, version),
        prior: Eversion::ZERO,
        reqid: ReqId { client: 1, inc: 0, tid: version },
        oid,
        op: LogOp::Modify,
        user_version: version,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    });
    txn
}

async fn open(shard: &Shard, folder: &Path) -> (Arc<BlueShared>, Store) {
    let options = RocksOptions { write_buffer_bytes: 1 << 20, ..RocksOptions::default() };
    let kv: Arc<dyn Kv> = Arc::new(RocksKv::open(&folder.join("db"), options).unwrap());
    let path = folder.join("block");
    if !path.exists() {
        let options = MkfsOptions {
            fsid: Uuid([3; 16]),
            osd: OsdId(1),
            size_bytes: Some(16 << 20),
            fill: Fill::Nothing,
            force: false,
        };
        blue::mkfs(shard, &path, options, Arc::clone(&kv), &mut |_, _| {}).await.unwrap();
    }
    let shared = BlueShared::mount(shard, &path, kv, MountOptions::default()).await.unwrap();
    let store = Store::open_shard(&StoreShared::Blue(Arc::clone(&shared)), shard).await.unwrap();
    (shared, store)
}

fn on_reactor<R>(main: impl AsyncFnOnce(Shard) -> R) -> R {
    let config = Config {
        poll: PollPolicy::Sleep,
        arena_bytes_per_shard: 16 << 20,
        ring_entries: 64,
        ..Config::unpinned("kill-test", 1)
    };
    carmine_reactor::block_on(config, main).unwrap()
}

async fn last_version(store: &Store) -> u64 {
    store.load_pg(PG).await.unwrap().map_or(0, |state| state.info.last_update.version)
}

/// The process that is killed: writes for ever, and prints each version when it is durable. (Run by the other test.)
#[test]
fn writer() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    on_reactor(async |shard| {
        let (_shared, store) = open(&shard, Path::new(&folder)).await;
        let mut version = last_version(&store).await;
        println!("ready");
        let in_flight = std::rc::Rc::new(std::cell::Cell::new(0));
        loop {
            version += 1;
            let txn = transaction(version);
            let prepared = store.prepare(&txn.changes).await.unwrap();
            let commit = store.submit(txn);
            drop(prepared);
            in_flight.set(in_flight.get() + 1);
            let count = std::rc::Rc::clone(&in_flight);
            shard.spawn(Group::Client, "acknowledge", async move {
                commit.await.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "durable {version}").unwrap();
                out.flush().unwrap();
                count.set(count.get() - 1);
            });
            while in_flight.get() >= DEPTH {
                shard.yield_now().await;
            }
        }
    });
}

/// Runs the writer for a while and kills it; the last version that it said to be durable.
fn write_and_kill(folder: &Path, time: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--nocapture", "--test-threads", "1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The test harness prints without a line end before "ready".
    assert!(lines.any(|line| line.ends_with("ready")), "the writer did not start");
    std::thread::sleep(time);
    child.kill().unwrap();
    child.wait().unwrap();
    let versions = lines.filter_map(|line| line.strip_prefix("durable ").and_then(|n| n.parse().ok()));
    versions.max().unwrap_or(0)
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let rounds = std::env::var("KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(6);
    let mut before = 0;
    for round in 0..rounds {
        let acknowledged =
            write_and_kill(folder.path(), Duration::from_millis(20 + round * 37 % 300)).max(before);
        before = on_reactor(async |shard| {
            let (shared, store) = open(&shard, folder.path()).await;
            let log = store.load_pg(PG).await.unwrap().unwrap_or_default().log;
            let last = log.len() as u64;
            assert!(log.iter().map(|entry| entry.version.version).eq(1..=last), "the log has a gap");
            assert!(last >= acknowledged, "{acknowledged} was acknowledged, and the log ends at {last}");
            for n in 1..=OBJECTS.min(last) {
                let newest = last + 1 - n;
                let data = store.read(&oid(newest), 0, u64::MAX).await.unwrap();
                assert!(data.to_vec() == content(newest), "version {newest} of {last}");
                let values = store.omap_values(&oid(newest), &[(*b"version").into()]).await.unwrap();
                assert_eq!(values[0].as_ref().map(|value| value.to_vec()), Some(newest.to_le_bytes().into()));
            }
            let report = blue::fsck(&shared, &shard, true).await.unwrap();
            assert!(report.is_clean(), "{report:?}");
            store.umount().await.unwrap();
            last
        });
    }
    assert!(before > rounds, "only {before} versions in {rounds} rounds");
}
