//! Random 4 KiB transactions on a bare store, without an OSD: rate, and CPU time by thread.
//!
//! `store_bench cyan|null|blue|blue-mem [DEPTH] [SECONDS] [FOLDER]`
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use carmine_kv_rocks::{RocksKv, RocksOptions};
use carmine_reactor::{Config, Group, Payload, PollPolicy, Shard};
use carmine_store::blue::{self, MkfsOptions, MountOptions};
use carmine_store::{BlueShared, Kv, LogEntry, LogOp, MemKv, Store, StoreShared, Transaction, TxnOp};
use carmine_types::{Eversion, ObjectId, OsdId, PgId, ReqId, UTime, Uuid};

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: u64 = 128;
const OBJECT_BYTES: u64 = 4 << 20;
const PGS: u32 = 32;

struct Pg {
    id: PgId,
    version: u64,
}

/// Nanoseconds of CPU of each thread of this process, by name.
fn cpu_ns() -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        *out.entry(read("comm").trim().to_owned()).or_default() += ns;
    }
    out
}

fn transaction(pg: &mut Pg, oid: &ObjectId, off: u64, data: &Payload) -> Transaction {
    pg.version += 1;
    let version = Eversion::new(1, pg.version);
    let mtime = UTime { sec: 1, nsec: 2 };
    let mut txn = Transaction::new(pg.id);
    txn.ops.push(TxnOp::Write { oid: oid.clone(), off, data: data.clone(), crc: None });
    txn.ops.push(TxnOp::SetMeta { oid: oid.clone(), version, user_version: pg.version, mtime });
    txn.log.push(LogEntry {
        version,
        prior: version,
        reqid: ReqId { client: 4100, inc: 0, tid: pg.version },
        oid: oid.clone(),
        op: LogOp::Modify,
        user_version: pg.version,
        result: 0,
        mtime,
    });
    if pg.version.is_multiple_of(64) && pg.version > 1000 {
        txn.log_trim_to = Some(Eversion::new(1, pg.version - 1000));
    }
    txn
}

async fn submit(store: &Store, txn: Transaction) {
    let prepared = store.prepare(&txn.ops).await.unwrap();
    let commit = store.submit(txn);
    drop(prepared);
    commit.await.unwrap();
}

async fn open(shard: &Shard, kind: &str, folder: &Path) -> (Store, Option<Arc<dyn Kv>>) {
    let shared = match kind {
        "cyan" => StoreShared::cyan(8 << 30),
        "null" => StoreShared::null(),
        _ => {
            let kv: Arc<dyn Kv> = match kind {
                "blue" => Arc::new(RocksKv::open(&folder.join("db"), RocksOptions::default()).unwrap()),
                _ => Arc::new(MemKv::new()),
            };
            let path = folder.join("block");
            let options = MkfsOptions {
                fsid: Uuid([1; 16]),
                osd: OsdId(0),
                size_bytes: Some(2 * OBJECTS * OBJECT_BYTES),
                sparse: false,
                force: true,
            };
            blue::mkfs(shard, &path, options, Arc::clone(&kv), &mut |_, _| {}).await.unwrap();
            let mounted =
                BlueShared::mount(shard, &path, Arc::clone(&kv), MountOptions::default()).await.unwrap();
            let store = Store::open_shard(&StoreShared::Blue(mounted), shard).await.unwrap();
            return (store, Some(kv));
        }
    };
    (Store::open_shard(&shared, shard).await.unwrap(), None)
}

async fn run(shard: Shard, kind: String, depth: usize, seconds: u64, folder: PathBuf) {
    let (store, kv) = open(&shard, &kind, &folder).await;
    let pgs: Rc<Vec<std::cell::RefCell<Pg>>> = Rc::new(
        (0..PGS).map(|ps| std::cell::RefCell::new(Pg { id: PgId::new(1, ps), version: 0 })).collect(),
    );
    let oids: Rc<Vec<ObjectId>> =
        Rc::new((0..OBJECTS).map(|n| ObjectId::head(1, b"", b"", format!("bench_{n}").as_bytes())).collect());
    for oid in oids.iter() {
        let data = Payload::from(vec![7; OBJECT_BYTES as usize]);
        let pg = &pgs[(oid.hash % PGS) as usize];
        let txn = transaction(&mut pg.borrow_mut(), oid, 0, &data);
        submit(&store, txn).await;
    }
    let (done, stop, latency) =
        (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
    let before = (cpu_ns(), store.stats(), shard.stats(), Instant::now());
    let running = Rc::new(Cell::new(depth));
    for _ in 0..depth {
        let (store, pgs, oids, shard2) = (store.clone(), Rc::clone(&pgs), Rc::clone(&oids), shard.clone());
        let (done, stop, latency, running) =
            (Rc::clone(&done), Rc::clone(&stop), Rc::clone(&latency), Rc::clone(&running));
        shard.spawn(Group::Client, "bench", async move {
            let mut buf = shard2.buf(4096);
            buf.fill(9);
            let data = Payload::from(buf.freeze());
            while !stop.get() {
                let random = shard2.random_u64();
                let oid = &oids[(random % OBJECTS) as usize];
                let off = (random >> 32) % (OBJECT_BYTES / 4096) * 4096;
                let pg = &pgs[(oid.hash % PGS) as usize];
                let start = shard2.now_ns();
                let txn = transaction(&mut pg.borrow_mut(), oid, off, &data);
                submit(&store, txn).await;
                latency.set(latency.get() + shard2.now_ns() - start);
                done.set(done.get() + 1);
                if !store.kind().is_durable() && done.get().is_multiple_of(256) {
                    shard2.yield_now().await;
                }
            }
            running.set(running.get() - 1);
        });
    }
    shard.sleep(std::time::Duration::from_secs(seconds)).await;
    let after = (cpu_ns(), store.stats(), shard.stats(), before.3.elapsed());
    let ops = done.get() as f64;
    stop.set(true);
    while running.get() > 0 {
        shard.sleep(std::time::Duration::from_millis(1)).await;
    }
    let wall = after.3.as_secs_f64();
    println!(
        "{kind} depth {depth}: {:.0} op/s, mean latency {:.1} us",
        ops / wall,
        latency.get() as f64 / ops / 1e3
    );
    let mut total = 0.0;
    for (name, ns) in &after.0 {
        let used = (ns - before.0.get(name).unwrap_or(&0)) as f64;
        total += used;
        println!("  {name:>16}: {:6.2} us/op, {:3.0} % of a CPU", used / ops / 1e3, used / wall / 1e7);
    }
    let (a, b) = (after.1, before.1);
    let (r, q) = (after.2, before.2);
    println!(
        "  process {:.2} us/op; reactor busy {:.2} us/op, spin {:.2}; turns/op {:.2}, enters/op {:.2}",
        total / ops / 1e3,
        (r.busy_ns - q.busy_ns) as f64 / ops / 1e3,
        (r.spin_ns - q.spin_ns) as f64 / ops / 1e3,
        (r.turns - q.turns) as f64 / ops,
        (r.enters - q.enters) as f64 / ops
    );
    if kv.is_some() {
        println!(
            "  txns/flush {:.1}, txns/kv commit {:.1}, kv commit {:.1} us (with the way there and back), kv bytes/op {:.0}, copied/op {:.0}, cache {} MiB",
            ops / (a.flushes - b.flushes) as f64,
            ops / (a.kv_commits - b.kv_commits) as f64,
            (a.kv_commit_ns - b.kv_commit_ns) as f64 / (a.kv_commits - b.kv_commits) as f64 / 1e3,
            (a.kv_bytes - b.kv_bytes) as f64 / ops,
            (a.bytes_copied - b.bytes_copied) as f64 / ops,
            a.cache_bytes >> 20,
        );
    }
    store.umount().await.unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let arg = |n: usize, default: &str| args.get(n).cloned().unwrap_or(default.to_owned());
    let (kind, depth) = (arg(1, "blue"), arg(2, "16").parse().unwrap());
    let seconds = arg(3, "5").parse().unwrap();
    let folder = PathBuf::from(arg(4, "/tmp/carmine-store-bench"));
    std::fs::create_dir_all(&folder).unwrap();
    let cpus = |name: &str| std::env::var(name).ok().and_then(|cpu| cpu.parse().ok());
    let config = Config {
        poll: std::env::var("POLL").ok().map_or(PollPolicy::default(), |poll| poll.parse().unwrap()),
        cpus: vec![cpus("REACTOR_CPU")],
        alien_cpus: cpus("ALIEN_CPU").into_iter().collect(),
        alien_shares_cpu: cpus("ALIEN_CPU") == cpus("REACTOR_CPU"),
        ..Config::unpinned("bench", 1)
    };
    carmine_reactor::block_on(config, async |shard| run(shard, kind, depth, seconds, folder.clone()).await)
        .unwrap();
    let _ = std::fs::remove_dir_all(folder);
}
