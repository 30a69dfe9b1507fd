//! Collects the metrics of all shards of an OSD. A counter is declared where it is counted (`metric_set!`); values computed on
//! request are declared here. Where the meaning is the same, names are Seastar's and Crimson's: `reactor_utilization`,
//! `reactor_cpu_busy_ms`, `smp_total_sent_messages`, `scheduler_runtime_ms`.
//!
//! Each shard renders its own metrics; the shard that was asked merges them.

use std::rc::Rc;

use carmine_metrics::{Families, Gauge, Kind, Label, Level, Max, MetricInfo, Sample, Sum, metric_set};
use carmine_reactor::{Group, ReactorStats};

use super::Load;
use crate::shard::OsdShard;

metric_set! {
    /// Metrics that follow from several of the reactor's counters.
    struct Derived: "reactor" {
        /// Share of the last second in which the reactor worked; spinning with nothing to do is not work.
        utilization: Level,
        /// CPU time of the reactor's thread.
        used_ns: Sum => "reactor_cpu_used_time_ms",
        /// Time not asleep.
        awake_ns: Sum => "reactor_awake_time_ms_total",
        /// Operations that the kernel works on: disk, and sends.
        io_in_flight: Gauge,
    }
}

metric_set! {
    /// Current numbers of things that a shard holds.
    struct Held: "osd" {
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
    /// CPU time of the key-value store for the whole process: its own threads and those that feed it.
    pub(crate) struct KvMetrics: "kv" {
        /// CPU time of alien threads that feed it and tell it to write its tables out.
        feeder_cpu_ns: Max => "kv_feeder_cpu_ms",
        /// CPU time of its own threads that write out what is in memory only.
        flush_cpu_ns: Max => "kv_flush_cpu_ms",
        /// CPU time of its own threads that merge tables.
        compaction_cpu_ns: Max => "kv_compaction_cpu_ms",
    }
}

/// Time of a scheduling group on the CPU.
const GROUP_RUNTIME: MetricInfo = counter("scheduler_runtime_ms", "Time of the tasks of a scheduling group.");
/// Share of a scheduling group.
const GROUP_SHARES: MetricInfo = MetricInfo {
    name: "scheduler_shares",
    kind: Kind::Gauge,
    description: "Relative CPU share of a scheduling group when several have ready tasks.",
};
/// Operations that passed a stage.
const STAGE_OPS: MetricInfo = counter("osd_stage_ops", "Operations that have passed a stage.");
/// Time that operations spent in a stage.
const STAGE_TIME: MetricInfo =
    counter("osd_stage_time_ns", "Sum of the time that operations spent in a stage.");

const fn counter(name: &'static str, description: &'static str) -> MetricInfo {
    MetricInfo { name, kind: Kind::Counter, description }
}

/// The metrics of every shard of the OSD.
pub(crate) async fn all(osd: &Rc<OsdShard>) -> Families {
    let mut families = Families::default();
    osd.on_all(|osd| shard_families(osd)).await.into_iter().for_each(|own| families.merge(own));
    if let Some(kv) = kv(osd).await {
        // Of the process, so only the asked shard adds it.
        families.add_set(&[("shard", osd.shard.id().0.to_string())], &kv);
    }
    families
}

/// CPU time of the key-value store's own threads and of those that feed it; `None` for stores that have none.
pub(crate) async fn kv(osd: &OsdShard) -> Option<KvMetrics> {
    let feeder_cpu_ns = osd.store.stats().feeder_cpu_ns;
    let cpu = osd.store.kv_cpu().await?;
    Some(KvMetrics { feeder_cpu_ns, flush_cpu_ns: cpu.flush_ns, compaction_cpu_ns: cpu.compaction_ns })
}

/// This shard's metrics.
fn shard_families(osd: &OsdShard) -> Families {
    let stats = osd.shard.stats();
    let labels = [("shard", osd.shard.id().0.to_string())];
    let mut families = Families::default();
    families.add_set(&labels, &stats);
    families.add_set(&labels, &derived(osd, &stats));
    add_groups(&mut families, &labels, osd);
    families.add_set(&labels, &carmine_messenger::traffic(&osd.shard));
    families.add_set(&labels, &osd.metrics_now());
    families.add_set(&labels, &held(osd));
    stages(&mut families, &labels, osd);
    families.add_set(&labels, &osd.store.stats());
    families
}

fn derived(osd: &OsdShard, stats: &ReactorStats) -> Derived {
    // Over the last second if that is measured, else since the start.
    let load = osd.shard.local::<Load>().and_then(|load| load.percent());
    Derived {
        utilization: load.unwrap_or_else(|| 100.0 * stats.busy_ns as f64 / stats.wall_ns.max(1) as f64),
        used_ns: stats.busy_ns + stats.spin_ns,
        awake_ns: stats.wall_ns.saturating_sub(stats.sleep_ns),
        io_in_flight: stats.ops_in_flight.saturating_sub(stats.ops_standing),
    }
}

fn add_groups(families: &mut Families, labels: &[Label], osd: &OsdShard) {
    for (group, runtime_ns) in Group::ALL.iter().zip(osd.shard.group_ns()) {
        let labels = [labels, &[("group", group.word().to_owned())]].concat();
        families.add(GROUP_RUNTIME, labels.clone(), Sample::Count(runtime_ns / 1_000_000));
        families.add(GROUP_SHARES, labels, Sample::Level(f64::from(group.shares())));
    }
}

fn held(osd: &OsdShard) -> Held {
    let pgs = osd.pgs.borrow();
    let sum = |of: fn(&crate::pg::Pg) -> usize| pgs.values().map(|pg| of(pg)).sum::<usize>() as u64;
    let parked = osd.waiting.borrow().len() + osd.unplaced.borrow().len();
    Held {
        pgs: pgs.values().count() as u64,
        connections: osd.conns.borrow().len() as u64,
        objects_in_use: sum(|pg| pg.lengths().1),
        writes_in_flight: sum(|pg| pg.lengths().2),
        ops_waiting: sum(|pg| pg.lengths().0) + parked as u64,
    }
}

fn stages(families: &mut Families, labels: &[Label], osd: &OsdShard) {
    for (stage, stat) in osd.stages.borrow().iter() {
        let labels = [labels, &[("stage", stage.to_owned())]].concat();
        families.add(STAGE_OPS, labels.clone(), Sample::Count(stat.count));
        families.add(STAGE_TIME, labels, Sample::Count(stat.sum_ns));
    }
}
