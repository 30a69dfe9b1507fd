//! The cost of a load on a bare store: what reactors and store say of themselves, and the kernel of this process, at both ends
//! of its window.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use carmine_bench::raw::Measured;
use carmine_bench::sample::{Sampler, Snapshot, WatchedOsd};
use carmine_load::window::OsdWindow;
use carmine_load::{LoadSpec, Rw};
use carmine_metrics::MetricSet;
use carmine_reactor::{ReactorStats, Shard};
use carmine_store::{Store, StoreStats};
use serde::Serialize;

/// How often a shard looks whether it is asked.
const LOOK: Duration = Duration::from_millis(2);
/// Time for the shards to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// One load's figures; `_us` are microseconds of CPU per operation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    rw: Rw,
    bs_bytes: u64,
    iodepth: u32,
    reactors: u32,
    /// RocksDB was made to compact all the time.
    pub(super) compacting: bool,
    iops: f64,
    mean_us: f64,
    p99_us: f64,
    /// Operations per second for each core that the process used.
    iops_per_core_used: f64,
    /// All threads of the process, without spinning.
    process_us: f64,
    reactor_us: f64,
    alien_us: f64,
    /// The part of those that feeds RocksDB.
    feeder_us: f64,
    /// RocksDB's own threads: those that write out what is in memory only, and those that merge tables.
    rocksdb_us: f64,
    /// The part of those that merges tables.
    compaction_us: f64,
    /// The whole machine's busy time.
    machine_us: f64,
    flushes_per_op: f64,
    device_writes_per_op: f64,
    /// Bytes that the store wrote to its log, for each byte of the load.
    log_per_byte: f64,
    /// Groups that its log took.
    groups_per_op: f64,
    /// Times that one of them waited for room in the log.
    log_waits_per_op: f64,
    /// Operations whose data went into the log first.
    deferred_per_op: f64,
    /// Bytes that it wrote to its device, log included, for each byte of the load.
    written_per_byte: f64,
    /// Bytes that the process wrote to all drives (RocksDB's tables too), for each byte of the load.
    process_written_per_byte: f64,
    enters_per_op: f64,
    kv_commits_per_op: f64,
    /// Transactions that were held back because RocksDB was behind, and groups that waited for room in the log.
    waits: u64,
    copied_per_op_bytes: f64,
    rss_bytes: u64,
}

/// A column: title, width, digits behind the point, figure.
type Column = (&'static str, usize, usize, fn(&Row) -> f64);

const COLUMNS: [Column; 18] = [
    ("depth", 5, 0, |row| row.iodepth.into()),
    ("IOPS", 8, 0, |row| row.iops),
    ("mean us", 8, 1, |row| row.mean_us),
    ("p99 us", 8, 1, |row| row.p99_us),
    ("IOPS/core", 9, 0, |row| row.iops_per_core_used),
    ("CPU us", 8, 2, |row| row.process_us),
    ("reactor", 8, 2, |row| row.reactor_us),
    ("alien", 8, 2, |row| row.alien_us),
    ("feeder", 7, 2, |row| row.feeder_us),
    ("rocksdb", 7, 2, |row| row.rocksdb_us),
    ("compact", 7, 2, |row| row.compaction_us),
    ("machine", 8, 2, |row| row.machine_us),
    ("flush/op", 8, 3, |row| row.flushes_per_op),
    ("B/B log", 8, 2, |row| row.log_per_byte),
    ("B/B dev", 8, 2, |row| row.written_per_byte),
    ("B/B all", 7, 2, |row| row.process_written_per_byte),
    ("enter/op", 8, 2, |row| row.enters_per_op),
    ("waits", 6, 0, |row| row.waits as f64),
];

/// Column titles of [`Row::text`].
pub(super) fn header() -> String {
    let titles = COLUMNS.map(|(title, width, ..)| format!(" {title:>width$}"));
    format!("{:<10}{}", "rw", titles.concat())
}

impl Row {
    pub(super) fn new(spec: &LoadSpec, measured: &Measured, begin: &Reading, end: &Reading) -> Row {
        let window = end.sampler.window(&begin.kernel, &end.kernel, 0.0);
        let process = window.osds.first().map(|osd| osd.process.clone()).unwrap_or_default();
        let ops = (measured.result.ops() as f64).max(1.0);
        let us = |ns: f64| ns / ops / 1e3;
        let grown = |of: fn(&ShardReading) -> u64| of(&end.all).saturating_sub(of(&begin.all)) as f64;
        let spin_ns = grown(|all| all.reactor.spin_ns);
        let (flush_ns, compaction_ns) = window.osds.first().map(OsdWindow::rocksdb_ns).unwrap_or_default();
        let used_ns = process.cpu_ns as f64 - spin_ns;
        let bytes = ops * spec.bs_bytes as f64;
        let log_bytes = grown(|all| all.store.log_bytes);
        let mut latency = measured.result.read.latency_ns.clone();
        latency.merge(&measured.result.write.latency_ns);
        Row {
            rw: spec.rw,
            bs_bytes: spec.bs_bytes,
            iodepth: spec.iodepth,
            reactors: spec.numjobs,
            compacting: false,
            iops: ops / measured.seconds.max(1e-9),
            mean_us: latency.mean() / 1e3,
            p99_us: latency.percentile(99.0) as f64 / 1e3,
            iops_per_core_used: ops * 1e9 / (process.cpu_ns as f64).max(1.0),
            process_us: us(used_ns),
            reactor_us: us(grown(|all| all.reactor.busy_ns)),
            alien_us: us(grown(|all| all.reactor.alien_busy_ns)),
            feeder_us: us(grown(|all| all.store.feeder_cpu_ns)),
            rocksdb_us: us((flush_ns + compaction_ns) as f64),
            compaction_us: us(compaction_ns as f64),
            machine_us: us(window.machine.busy_ns as f64 - spin_ns),
            flushes_per_op: grown(|all| all.store.flushes) / ops,
            device_writes_per_op: grown(|all| all.store.device_writes) / ops,
            log_per_byte: log_bytes / bytes,
            groups_per_op: grown(|all| all.store.groups) / ops,
            log_waits_per_op: grown(|all| all.store.log_waits) / ops,
            deferred_per_op: grown(|all| all.store.deferred_txns) / ops,
            written_per_byte: (grown(|all| all.store.device_write_bytes) + log_bytes) / bytes,
            process_written_per_byte: process.device_write_bytes as f64 / bytes,
            enters_per_op: grown(|all| all.reactor.enters) / ops,
            kv_commits_per_op: grown(|all| all.store.kv_commits) / ops,
            waits: grown(|all| all.store.held_back + all.store.log_waits) as u64,
            copied_per_op_bytes: grown(|all| all.store.bytes_copied) / ops,
            rss_bytes: process.rss_bytes,
        }
    }

    /// One line, as [`header`] has it.
    pub(super) fn text(&self) -> String {
        let cells = COLUMNS.map(|(_, width, digits, of)| format!(" {:>width$.digits$}", of(self)));
        let compacting = if self.compacting { "  compacting" } else { "" };
        format!("{:<10}{}{compacting}", self.rw, cells.concat())
    }
}

/// The question, and the shards' answers to it.
pub(super) struct Probe {
    shards: u32,
    /// Number of the question.
    asked: AtomicU32,
    answers: Mutex<Vec<ShardReading>>,
}

/// The counters of one shard, or of all.
#[derive(Clone, Copy, Default)]
struct ShardReading {
    reactor: ReactorStats,
    store: StoreStats,
}

/// All counters of one moment.
pub(super) struct Reading {
    all: ShardReading,
    sampler: Sampler,
    kernel: Snapshot,
}

impl Probe {
    pub(super) fn new(shards: u32) -> Probe {
        Probe { shards, asked: AtomicU32::new(0), answers: Mutex::default() }
    }

    /// Answers as long as the shard runs.
    pub(super) async fn answer(&self, shard: &Shard, store: &Store) {
        let mut seen = 0;
        loop {
            let asked = self.asked.load(Ordering::Acquire);
            if asked > seen {
                seen = asked;
                let reading = ShardReading { reactor: shard.stats(), store: store.stats() };
                // Held for the push only, by the controller too.
                self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
            }
            shard.sleep(LOOK).await;
        }
    }

    fn ask(&self) -> anyhow::Result<Vec<ShardReading>> {
        self.asked.fetch_add(1, Ordering::Release);
        let began = Instant::now();
        loop {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            if answers.len() == self.shards as usize {
                return Ok(std::mem::take(&mut *answers));
            }
            drop(answers);
            if began.elapsed() > LIMIT {
                bail!("the reactors did not answer for {} s", LIMIT.as_secs());
            }
            std::thread::sleep(LOOK / 4);
        }
    }
}

impl Reading {
    pub(super) fn take(probe: &Probe) -> anyhow::Result<Reading> {
        let mut all = ShardReading::default();
        for shard in probe.ask()? {
            all.reactor.merge_from(&shard.reactor);
            all.store.merge_from(&shard.store);
        }
        let me = WatchedOsd { id: 0, pid: std::process::id(), alien_cpus: 0 };
        let sampler = Sampler::new(vec![me], None, Vec::new());
        let kernel = sampler.sample()?;
        Ok(Reading { all, sampler, kernel })
    }
}
