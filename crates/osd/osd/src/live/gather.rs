//! What all shards of an OSD count, under the names that are shown outside. Names that mean the same are Seastar's and
//! Crimson's: `reactor_utilization`, `reactor_cpu_busy_ms`, `smp_total_sent_messages`, `scheduler_runtime_ms`.
//!
//! Each shard renders its own numbers; the shard that was asked joins them. Nothing is shared.

use std::rc::Rc;

use carmine_metrics::{Counter, Families, Gauge, Kind, Label, Level, MetricInfo, Sample, metric_set};
use carmine_reactor::{Group, ReactorStats, ShardId};
use carmine_store::StoreStats;

use super::load::Load;
use crate::shard::OsdShard;

metric_set! {
    /// The reactor: its four clocks, its turns, its I/O.
    pub(crate) struct ReactorMetrics {
        /// Share of the last second in which the reactor worked; spinning with nothing to do is not work.
        utilization: Level,
        /// CPU time of work: thread CPU time less spinning.
        cpu_busy_ms: Counter,
        /// CPU time of spinning with nothing to do.
        cpu_spin_ms: Counter,
        /// CPU time of the reactor's thread.
        cpu_used_time_ms: Counter,
        /// Time in which the reactor could have run and something else had its CPU.
        cpu_steal_time_ms: Counter,
        /// Time asleep in the kernel.
        sleep_time_ms_total: Counter,
        /// Time not asleep.
        awake_time_ms_total: Counter,
        /// Time since the start.
        uptime_ms: Counter,
        /// Turns of the reactor's loop.
        polls: Counter,
        /// Polls of tasks.
        tasks_processed: Counter,
        /// Tasks alive.
        tasks: Gauge,
        /// Polls of one task that held the reactor longer than the stall limit.
        stalls: Counter,
        /// Times that the kernel was entered.
        kernel_enters: Counter,
        /// Times that the reactor went to sleep.
        sleeps: Counter,
        /// Operations that the kernel completed: disk and network.
        io_completed: Counter,
        /// Operations that the kernel works on: disk, and sends.
        io_in_flight: Gauge,
        /// Accepts and receives that the kernel holds until a peer sends something.
        io_standing: Gauge,
        /// Bytes copied by code that could not avoid it.
        copied_bytes: Counter,
        /// Buffers that the arena could not give and the heap gave.
        buffer_fallbacks: Counter,
    }
}

metric_set! {
    /// Messages between the reactors of this process.
    pub(crate) struct SmpMetrics {
        /// Messages (hops) sent to other shards.
        total_sent_messages: Counter,
        /// Messages (hops) received from other shards.
        total_received_messages: Counter,
        /// Messages that found the other shard's queue full, once per turn that they waited.
        delayed_messages: Counter,
        /// Sleeping shards woken.
        wakes_sent: Counter,
    }
}

metric_set! {
    /// Threads for code that blocks (RocksDB).
    pub(crate) struct AlienMetrics {
        /// Closures given to alien threads.
        jobs: Counter,
        /// CPU time of alien threads on behalf of this shard.
        cpu_busy_ms: Counter,
    }
}

metric_set! {
    /// The messenger's part of a shard.
    pub(crate) struct NetMetrics {
        /// Bytes sent on all connections.
        sent_bytes: Counter,
        /// Bytes sent to other OSDs.
        sent_to_osds_bytes: Counter,
        /// Bytes received on all connections.
        received_bytes: Counter,
    }
}

metric_set! {
    /// What a shard holds at this moment.
    pub(crate) struct HeldMetrics {
        /// PGs that the shard owns.
        pgs: Gauge,
        /// Client connections that the shard serves.
        connections: Gauge,
        /// Objects that some operation works on or waits for.
        objects_in_use: Gauge,
        /// Writes that are not durable on every replica yet.
        writes_in_flight: Gauge,
        /// Operations that wait for a map or for their PG to become active.
        ops_waiting: Gauge,
    }
}

metric_set! {
    /// The object store's part of a shard.
    pub(crate) struct StoreMetrics {
        /// Transactions submitted.
        txns: Counter,
        /// Transactions not durable yet.
        txns_in_flight: Gauge,
        /// Reads of objects.
        reads: Counter,
        /// Writes to the device.
        device_writes: Counter,
        /// Bytes written to the device.
        device_write_bytes: Counter,
        /// Reads from the device.
        device_reads: Counter,
        /// Bytes read from the device.
        device_read_bytes: Counter,
        /// Flushes of the device.
        flushes: Counter,
        /// Groups written to the log.
        groups: Counter,
        /// Bytes written to the log.
        log_bytes: Counter,
        /// Blocks written to the log only to say what is durable.
        log_marks: Counter,
        /// Times that a group waited for room in the log.
        log_waits: Counter,
        /// Times that the log was trimmed (of the whole process).
        log_trims: Counter,
        /// Transactions whose data went into the log first.
        deferred_txns: Counter,
        /// Writes of such data to its place.
        deferred_writes: Counter,
        /// Transactions too large for the log.
        around_log: Counter,
        /// Transactions that waited for the key-value store.
        held_back: Counter,
        /// Discards of freed space.
        discards: Counter,
        /// Bytes discarded.
        discard_bytes: Counter,
        /// Batches committed to the key-value store (of the whole process).
        kv_commits: Counter,
        /// Bytes of keys and values in those batches (of the whole process).
        kv_bytes: Counter,
        /// Wall time of those commits (of the whole process).
        kv_commit_ms: Counter,
        /// Objects found in the cache.
        cache_hits: Counter,
        /// Objects that had to be loaded.
        cache_misses: Counter,
        /// Size of the cache.
        cache_bytes: Gauge,
        /// Blocks found in the cache of data.
        data_cache_hits: Counter,
        /// Size of the cache of data.
        data_cache_bytes: Gauge,
        /// Blocks read ahead of a reader.
        readahead_blocks: Counter,
        /// Blocks that a reader found read ahead.
        readahead_hits: Counter,
        /// Bytes copied to reach the device's alignment.
        copied_bytes: Counter,
        /// Blocks whose checksum was wrong.
        corrupt_blocks: Counter,
        /// Times that the device did not give a block.
        unreadable_blocks: Counter,
        /// Blocks that were given their content back from another copy.
        healed_blocks: Counter,
    }
}

metric_set! {
    /// The key-value store under the metadata, of the whole process: its threads and those that feed it.
    pub(crate) struct KvMetrics {
        /// CPU time of alien threads that feed it and tell it to write its tables out.
        feeder_cpu_ms: Counter,
        /// CPU time of its own threads that write out what is in memory only.
        flush_cpu_ms: Counter,
        /// CPU time of its own threads that merge tables.
        compaction_cpu_ms: Counter,
    }
}

/// Time of a scheduling group on the CPU.
const GROUP_RUNTIME: MetricInfo = MetricInfo {
    name: "runtime_ms",
    kind: Kind::Counter,
    description: "Time of the tasks of a scheduling group.",
};
/// Share of a scheduling group.
const GROUP_SHARES: MetricInfo = MetricInfo {
    name: "shares",
    kind: Kind::Gauge,
    description: "Relative CPU share of a scheduling group when several have ready tasks.",
};
/// Operations that passed a stage.
const STAGE_OPS: MetricInfo = MetricInfo {
    name: "stage_ops",
    kind: Kind::Counter,
    description: "Operations that have passed a stage.",
};
/// Time that operations spent in a stage.
const STAGE_TIME: MetricInfo = MetricInfo {
    name: "stage_time_ns",
    kind: Kind::Counter,
    description: "Sum of the time that operations spent in a stage.",
};

fn ms(ns: u64) -> Counter {
    let mut counter = Counter::default();
    counter.set(ns / 1_000_000);
    counter
}

fn count(total: u64) -> Counter {
    let mut counter = Counter::default();
    counter.set(total);
    counter
}

fn gauge(value: u64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}

/// The metrics of every shard of the OSD.
pub(crate) async fn all(osd: &Rc<OsdShard>) -> Families {
    let mut families = Families::default();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let own = osd.shard.call(to, |shard| async move { OsdShard::of(&shard).map(|osd| own(&osd)) });
        // A shard that has not started yet, or has ended, has nothing to show.
        families.merge(own.await.unwrap_or_default());
    }
    if let Some(cpu) = osd.store.kv_cpu().await {
        let kv = KvMetrics {
            feeder_cpu_ms: ms(osd.store.stats().feeder_cpu_ns),
            flush_cpu_ms: ms(cpu.flush_ns),
            compaction_cpu_ms: ms(cpu.compaction_ns),
        };
        // Of the process; told by the shard that was asked.
        families.add_set("kv", &[("shard", osd.shard.id().0.to_string())], &kv);
    }
    families
}

/// This shard's metrics.
pub(crate) fn own(osd: &OsdShard) -> Families {
    let stats = osd.shard.stats();
    let labels = [("shard", osd.shard.id().0.to_string())];
    let mut families = Families::default();
    families.add_set("reactor", &labels, &reactor(&stats, utilization_percent(osd, &stats)));
    families.add_set("smp", &labels, &smp(&stats));
    families.add_set("alien", &labels, &alien(&stats));
    groups(&mut families, &labels, &stats);
    families.add_set("net", &labels, &net(osd));
    families.add_set("osd", &labels, &*osd.metrics.borrow());
    families.add_set("osd", &labels, &held(osd));
    stages(&mut families, &labels, osd);
    families.add_set("store", &labels, &store(&osd.store.stats()));
    families
}

/// Of the last second where that is measured, else since the start.
fn utilization_percent(osd: &OsdShard, stats: &ReactorStats) -> f64 {
    let load = osd.shard.local::<Load>().and_then(|load| load.percent());
    load.unwrap_or_else(|| 100.0 * stats.busy_ns as f64 / stats.wall_ns.max(1) as f64)
}

fn reactor(s: &ReactorStats, utilization_percent: f64) -> ReactorMetrics {
    let mut utilization = Level::default();
    utilization.set(utilization_percent);
    ReactorMetrics {
        utilization,
        cpu_busy_ms: ms(s.busy_ns),
        cpu_spin_ms: ms(s.spin_ns),
        cpu_used_time_ms: ms(s.busy_ns + s.spin_ns),
        cpu_steal_time_ms: ms(s.wait_ns),
        sleep_time_ms_total: ms(s.sleep_ns),
        awake_time_ms_total: ms(s.wall_ns.saturating_sub(s.sleep_ns)),
        uptime_ms: ms(s.wall_ns),
        polls: count(s.turns),
        tasks_processed: count(s.polls),
        tasks: gauge(s.tasks),
        stalls: count(s.stalls),
        kernel_enters: count(s.enters),
        sleeps: count(s.sleeps),
        io_completed: count(s.ops),
        io_in_flight: gauge(s.ops_in_flight.saturating_sub(s.ops_standing)),
        io_standing: gauge(s.ops_standing),
        copied_bytes: count(s.bytes_copied),
        buffer_fallbacks: count(s.buf_fallbacks),
    }
}

fn smp(s: &ReactorStats) -> SmpMetrics {
    SmpMetrics {
        total_sent_messages: count(s.hops_sent),
        total_received_messages: count(s.hops_received),
        delayed_messages: count(s.hops_delayed),
        wakes_sent: count(s.wakes_sent),
    }
}

fn alien(s: &ReactorStats) -> AlienMetrics {
    AlienMetrics { jobs: count(s.alien_jobs), cpu_busy_ms: ms(s.alien_busy_ns) }
}

fn net(osd: &OsdShard) -> NetMetrics {
    let traffic = carmine_messenger::traffic(&osd.shard);
    NetMetrics {
        sent_bytes: count(traffic.sent_bytes),
        sent_to_osds_bytes: count(traffic.sent_to_osds_bytes),
        received_bytes: count(traffic.received_bytes),
    }
}

fn groups(families: &mut Families, labels: &[Label], stats: &ReactorStats) {
    for (group, runtime_ns) in Group::ALL.into_iter().zip(stats.group_ns) {
        let labels = [labels, &[("group", group.name().to_owned())]].concat();
        let runtime = Sample::Count(runtime_ns / 1_000_000);
        families.add("scheduler", GROUP_RUNTIME, labels.clone(), runtime);
        families.add("scheduler", GROUP_SHARES, labels, Sample::Level(f64::from(group.shares())));
    }
}

fn held(osd: &OsdShard) -> HeldMetrics {
    let pgs = osd.pgs.borrow();
    let sum = |of: fn(&crate::pg::Pg) -> usize| pgs.values().map(|pg| of(pg)).sum::<usize>() as u64;
    let parked = osd.waiting.borrow().len() + osd.unplaced.borrow().len();
    HeldMetrics {
        pgs: gauge(pgs.len() as u64),
        connections: gauge(osd.conns.borrow().len() as u64),
        objects_in_use: gauge(sum(|pg| pg.lengths().1)),
        writes_in_flight: gauge(sum(|pg| pg.lengths().2)),
        ops_waiting: gauge(sum(|pg| pg.lengths().0) + parked as u64),
    }
}

fn stages(families: &mut Families, labels: &[Label], osd: &OsdShard) {
    for (stage, stat) in osd.stages.borrow().iter() {
        let labels = [labels, &[("stage", stage.to_owned())]].concat();
        families.add("osd", STAGE_OPS, labels.clone(), Sample::Count(stat.count));
        families.add("osd", STAGE_TIME, labels, Sample::Count(stat.sum_ns));
    }
}

fn store(s: &StoreStats) -> StoreMetrics {
    StoreMetrics {
        txns: count(s.txns),
        txns_in_flight: gauge(s.txns_in_flight),
        reads: count(s.reads),
        device_writes: count(s.device_writes),
        device_write_bytes: count(s.device_write_bytes),
        device_reads: count(s.device_reads),
        device_read_bytes: count(s.device_read_bytes),
        flushes: count(s.flushes),
        groups: count(s.groups),
        log_bytes: count(s.log_bytes),
        log_marks: count(s.log_marks),
        log_waits: count(s.log_waits),
        log_trims: count(s.log_trims),
        deferred_txns: count(s.deferred_txns),
        deferred_writes: count(s.deferred_writes),
        around_log: count(s.around_log),
        held_back: count(s.held_back),
        discards: count(s.discards),
        discard_bytes: count(s.discard_bytes),
        kv_commits: count(s.kv_commits),
        kv_bytes: count(s.kv_bytes),
        kv_commit_ms: ms(s.kv_commit_ns),
        cache_hits: count(s.cache_hits),
        cache_misses: count(s.cache_misses),
        cache_bytes: gauge(s.cache_bytes),
        data_cache_hits: count(s.data_cache_hits),
        data_cache_bytes: gauge(s.data_cache_bytes),
        readahead_blocks: count(s.readahead_blocks),
        readahead_hits: count(s.readahead_hits),
        copied_bytes: count(s.bytes_copied),
        corrupt_blocks: count(s.corrupt_blocks),
        unreadable_blocks: count(s.unreadable_blocks),
        healed_blocks: count(s.healed_blocks),
    }
}
