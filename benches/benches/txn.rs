//! A 4 KiB write transaction (data, versions, one PG log entry) through `carmine-store` on a pinned reactor, until it is
//! durable: `cyan` (memory), and `blue` on real files with RocksDB, one and sixteen in flight. The files lie in
//! CARGO_TARGET_TMPDIR: the figures of `blue` are those of that drive and its file system.
//! Expected: 1 to 4 µs for `cyan`. `blue` alone pays a data write, a flush and a synced RocksDB batch in a row: 0.1 to
//! 10 ms, the drive's flush decides; sixteen in flight share flush and batch: up to ten times less each.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real time and files

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_pgtypes::{LogEntry, ObjectChange, Step, Transaction};
use carmine_reactor::{Bytes, Config, Group, Payload, Shard, block_on, sync::oneshot};
use carmine_store::blue::{Fill, MkfsOptions, MountOptions, mkfs};
use carmine_store::{BlueShared, Kv, Store, StoreShared};
use carmine_types::{Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, SpgId, UTime, Uuid};
use criterion::{Criterion, criterion_group, criterion_main};

const BLOCK_BYTES: usize = 4096;
const OBJECTS: u64 = 16;
const OBJECT_BLOCKS: u64 = 256;
const DEVICE_BYTES: u64 = 64 << 20;
/// Log entries that stay, and how many are dropped at once.
const LOG_KEPT: u64 = 1000;
const LOG_TRIM_EVERY: u64 = 64;
const PG: SpgId = SpgId::replicated(PgId::new(1, 0));

/// Writes of one PG: versions rise in the order of submission.
struct Writer {
    store: Store,
    objects: Vec<Arc<ObjectId>>,
    block: Bytes,
    version: Cell<u64>,
}

impl Writer {
    fn new(store: Store, shard: &Shard, version: u64) -> Rc<Writer> {
        let objects =
            (0..OBJECTS).map(|n| ObjectId::head(1, b"", b"", format!("bench.{n}").as_bytes()).into());
        let mut buf = shard.buf(BLOCK_BYTES);
        buf.as_mut_slice().fill(0xa5);
        Rc::new(Writer {
            store,
            objects: objects.collect(),
            block: buf.freeze(),
            version: Cell::new(version),
        })
    }

    fn transaction(&self) -> Transaction {
        let version = self.version.get() + 1;
        self.version.set(version);
        let place = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let oid = &self.objects[(place % OBJECTS) as usize];
        let off = place / OBJECTS % OBJECT_BLOCKS * BLOCK_BYTES as u64;
        let (version, mtime) = (Eversion::new(4, version), UTime::ZERO);
        let user_version = version.version;
        let data = Payload::from(self.block.clone());
        let mut txn = Transaction::new(PG, 0);
        let steps = [Step::Write { off, data }, Step::SetMeta { version, user_version, mtime }];
        txn.changes.push(ObjectChange::new(Arc::clone(oid), steps));
        txn.log.push(LogEntry {
            version,
            prior: Eversion::ZERO,
            reqid: ReqId { client: 4100, inc: 0, tid: user_version },
            oid: Arc::clone(oid),
            op: LogOp::Modify,
            user_version,
            result: 0,
            mtime,
            clones: Box::default(),
            returned: None,
        });
        if user_version.is_multiple_of(LOG_TRIM_EVERY) && user_version > LOG_KEPT {
            txn.log_trim_to = Some(Eversion::new(4, user_version - LOG_KEPT));
        }
        txn
    }

    async fn write(&self) {
        let txn = self.transaction();
        let prepared = self.store.prepare(&txn.changes).await.expect("prepared");
        let commit = self.store.submit(txn);
        drop(prepared);
        commit.await.expect("committed");
    }

    /// `iterations` transactions, `iodepth` in flight.
    async fn run(self: Rc<Writer>, shard: &Shard, iterations: u64, iodepth: u64) -> Duration {
        let begin = Instant::now();
        let mut lanes = Vec::new();
        for lane in 0..iodepth {
            let (tell, told) = oneshot::channel();
            let writer = Rc::clone(&self);
            let share = iterations / iodepth + u64::from(lane < iterations % iodepth);
            shard.spawn(Group::Client, "write", async move {
                for _ in 0..share {
                    writer.write().await;
                }
                let _ = tell.send(());
            });
            lanes.push(told);
        }
        for told in lanes {
            told.await.expect("a lane ends");
        }
        begin.elapsed()
    }
}

fn config() -> Config {
    Config { alien_threads: 2, ..carmine_benches::reactors(1) }
}

fn cyan(iterations: u64) -> Duration {
    block_on(config(), async move |shard: Shard| {
        let store = Store::open_shard(&StoreShared::cyan(DEVICE_BYTES), &shard).await.expect("opens");
        Writer::new(store, &shard, 0).run(&shard, iterations, 1).await
    })
    .expect("a reactor starts")
}

/// A store on files, made once and written through, so that no write pays for the file system's allocation.
struct OnFiles {
    dir: tempfile::TempDir,
    kv: Arc<dyn Kv>,
    /// Version of the last transaction.
    version: Cell<u64>,
}

impl OnFiles {
    fn new() -> OnFiles {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
        let kv = RocksKv::open(&dir.path().join("db"), RocksOptions::default()).expect("RocksDB opens");
        let files = OnFiles { dir, kv: Arc::new(kv), version: Cell::new(0) };
        let options = MkfsOptions {
            fsid: Uuid([7; 16]),
            osd: OsdId(0),
            size_bytes: Some(DEVICE_BYTES),
            fill: Fill::Zeros,
            force: false,
        };
        let (path, kv) = (files.dir.path().join("block"), Arc::clone(&files.kv));
        block_on(config(), async |shard: Shard| mkfs(&shard, &path, options, kv, &mut |_, _| {}).await)
            .expect("a reactor starts")
            .expect("mkfs");
        files
    }

    fn run(&self, iterations: u64, iodepth: u64) -> Duration {
        let (path, kv) = (self.dir.path().join("block"), Arc::clone(&self.kv));
        block_on(config(), async |shard: Shard| {
            let mounted =
                BlueShared::mount(&shard, &path, kv, MountOptions::default()).await.expect("mounts");
            let store = Store::open_shard(&StoreShared::Blue(mounted), &shard).await.expect("opens");
            let writer = Writer::new(store.clone(), &shard, self.version.get());
            let elapsed = Rc::clone(&writer).run(&shard, iterations, iodepth).await;
            self.version.set(writer.version.get());
            store.umount().await.expect("unmounts");
            elapsed
        })
        .expect("a reactor starts")
    }
}

fn transactions(c: &mut Criterion) {
    let mut group = c.benchmark_group("store/4KiB transaction");
    group.bench_function("cyan", |b| b.iter_custom(cyan));
    let files = OnFiles::new();
    group.bench_function("blue, iodepth 1", |b| b.iter_custom(|n| files.run(n, 1)));
    group.bench_function("blue, iodepth 16", |b| b.iter_custom(|n| files.run(n, 16)));
    group.finish();
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = transactions
}
criterion_main!(benches);
