//! What a load on a bare store cost.

use carmine_load::window::OsdWindow;
use carmine_load::{LoadSpec, Rw};
use serde::Serialize;

use super::probe::{Reading, ShardReading};
use carmine_bench::raw::Measured;

/// One load's figures; `_us` are microseconds of CPU per operation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    rw: Rw,
    bs_bytes: u64,
    iodepth: u32,
    reactors: u32,
    /// RocksDB was made to compact all the time.
    compacting: bool,
    iops: f64,
    mean_us: f64,
    p99_us: f64,
    /// Operations per second for each core that the process used.
    iops_per_core_used: f64,
    /// All threads of the process, without spinning.
    process_us: f64,
    reactor_us: f64,
    alien_us: f64,
    /// Of those, what feeds RocksDB.
    feeder_us: f64,
    /// RocksDB's own threads: those that write out what is in memory only, and those that merge tables.
    rocksdb_us: f64,
    /// Of those, what merges tables.
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

/// Column titles of [`Row::text`].
pub(super) fn header() -> String {
    format!(
        "{:<10} {:>5} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6}",
        "rw",
        "depth",
        "IOPS",
        "mean us",
        "p99 us",
        "IOPS/core",
        "CPU us",
        "reactor",
        "alien",
        "feeder",
        "rocksdb",
        "compact",
        "machine",
        "flush/op",
        "B/B log",
        "B/B dev",
        "B/B all",
        "enter/op",
        "waits"
    )
}

impl Row {
    pub(super) fn new(spec: &LoadSpec, measured: &Measured, begin: &Reading, end: &Reading) -> Row {
        let window = end.sampler.window(&begin.kernel, &end.kernel, 0.0);
        let process = window.osds.first().map(|osd| osd.process.clone()).unwrap_or_default();
        let ops = (measured.result.ops() as f64).max(1.0);
        let us = |ns: f64| ns / ops / 1e3;
        let grown = |of: fn(&ShardReading) -> u64| of(&end.all).saturating_sub(of(&begin.all)) as f64;
        let spin_ns = grown(|all| all.reactor.spin_ns);
        let rocksdb = window.osds.first().map(OsdWindow::rocksdb_ns).unwrap_or_default();
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
            rocksdb_us: us((rocksdb.flush + rocksdb.compaction) as f64),
            compaction_us: us(rocksdb.compaction as f64),
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

    /// Says whether RocksDB was made to compact meanwhile.
    pub(super) fn with_compaction(self, compacting: bool) -> Row {
        Row { compacting, ..self }
    }

    /// One line, as [`header`] has it.
    pub(super) fn text(&self) -> String {
        format!(
            "{:<10} {:>5} {:>8.0} {:>8.1} {:>8.1} {:>9.0} {:>8.2} {:>8.2} {:>8.2} {:>7.2} {:>7.2} {:>7.2} {:>8.2} {:>8.3} {:>8.2} {:>8.2} {:>7.2} {:>8.2} {:>6}{}",
            self.rw,
            self.iodepth,
            self.iops,
            self.mean_us,
            self.p99_us,
            self.iops_per_core_used,
            self.process_us,
            self.reactor_us,
            self.alien_us,
            self.feeder_us,
            self.rocksdb_us,
            self.compaction_us,
            self.machine_us,
            self.flushes_per_op,
            self.log_per_byte,
            self.written_per_byte,
            self.process_written_per_byte,
            self.enters_per_op,
            self.waits,
            if self.compacting { "  compacting" } else { "" }
        )
    }
}
