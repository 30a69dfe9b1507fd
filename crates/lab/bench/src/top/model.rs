//! The view: the difference of two readings, for people and as JSON.

use std::collections::BTreeMap;

use carmine_topology::Grid;
use serde::Serialize;

use super::source::{OsdSample, Sample};
use crate::sample::proc::IDLE;

/// Everything of one second.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct View {
    pub(super) osds: Vec<OsdView>,
    pub(super) cpus: Vec<CpuView>,
}

/// One OSD.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct OsdView {
    pub(super) osd: usize,
    /// Why nothing else is known.
    pub(super) problem: Option<String>,
    /// By the keys of [`FIGURES`].
    #[serde(flatten)]
    pub(super) figures: BTreeMap<&'static str, Option<f64>>,
}

/// A figure of an OSD: its key in JSON; its column's title, width, digits behind the point, and unit; its metrics.
pub(super) type Figure = (&'static str, &'static str, u16, usize, f64, Of);

/// Metrics that a figure is made of.
pub(super) enum Of {
    /// Growth of their sum per second, in this unit.
    Rate(&'static [&'static str], f64),
    /// The present sum over the shards.
    Level(&'static str),
    /// Mean in us of the times of operations that ended; absent if none did.
    Mean(&'static str),
    /// Their 99th percentile.
    P99(&'static str),
}

use Of::{Level, Mean, P99, Rate};

pub(super) const FIGURES: [Figure; 14] = [
    ("read_iops", "reads/s", 8, 0, 1.0, Rate(&["osd_read_ops"], 1.0)),
    ("write_iops", "writes/s", 8, 0, 1.0, Rate(&["osd_write_ops"], 1.0)),
    ("bytes_per_s", "MB/s", 8, 1, 1e6, Rate(&["osd_read_bytes", "osd_write_bytes"], 1.0)),
    ("read_mean_us", "read us", 8, 0, 1.0, Mean("osd_read_latency_ns")),
    ("read_p99_us", "p99 us", 8, 0, 1.0, P99("osd_read_latency_ns")),
    ("write_mean_us", "write us", 8, 0, 1.0, Mean("osd_write_latency_ns")),
    ("write_p99_us", "p99 us", 8, 0, 1.0, P99("osd_write_latency_ns")),
    // Operations that the kernel works on: disk, and sends.
    ("io_in_flight", "I/Os", 5, 0, 1.0, Level("reactor_io_in_flight")),
    // Transactions that are not durable yet, and writes that are not durable on every replica yet.
    ("txns_in_flight", "txns", 5, 0, 1.0, Level("store_txns_in_flight")),
    ("writes_in_flight", "writes", 6, 0, 1.0, Level("osd_writes_in_flight")),
    // Operations that wait for a map or a PG.
    ("ops_waiting", "waiting", 7, 0, 1.0, Level("osd_ops_waiting")),
    ("hops_per_s", "hops/s", 8, 0, 1.0, Rate(&["smp_total_sent_messages"], 1.0)),
    ("alien_cores", "aliens", 6, 2, 1.0, Rate(&["alien_cpu_busy_ms"], 1e3)),
    ("alien_jobs_per_s", "jobs/s", 7, 0, 1.0, Rate(&["alien_jobs"], 1.0)),
];

impl Of {
    /// The figure between two readings; without them nothing was done.
    fn between(&self, both: Option<(&OsdSample, &OsdSample)>) -> Option<f64> {
        let Some((before, now)) = both else {
            return matches!(self, Rate(..) | Level(_)).then_some(0.0);
        };
        let seconds = (now.taken_at_ns - before.taken_at_ns) as f64 / 1e9;
        let rate = |name: &&str| ((now.sum(name) - before.sum(name)) / seconds).max(0.0);
        match self {
            Rate(names, unit) => Some(names.iter().map(rate).sum::<f64>() / unit),
            Level(name) => Some(now.sum(name)),
            Mean(name) => now.mean_since(before, name).map(|ns| ns / 1e3),
            P99(name) => now.percentile_since(before, name, 99.0).map(|ns| ns / 1e3),
        }
    }
}

/// One CPU.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct CpuView {
    pub(super) cpu: usize,
    /// Reactors that are pinned here, `osd.0/1`; several where CPUs are overprovisioned.
    pub(super) reactors: Vec<String>,
    /// The reactors' own clocks; absent on CPUs without.
    pub(super) reactor: Option<ReactorShare>,
    /// Busy time as the kernel counts it, whatever ran.
    pub(super) kernel_busy_percent: f64,
}

/// How the reactors of a CPU spent the time; they slept for the rest of it.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub(super) struct ReactorShare {
    pub(super) busy_percent: f64,
    pub(super) spin_percent: f64,
    /// They could have run, but something else had the CPU.
    pub(super) wait_percent: f64,
}

impl View {
    /// The difference of two readings of a testbed with this grid.
    pub(super) fn between(grid: &Grid, before: &Sample, now: &Sample) -> View {
        let osds = now.osds.iter().zip(before.osds.values());
        View {
            osds: osds.map(|((osd, now), before)| osd_view(*osd, before, now)).collect(),
            cpus: cpu_views(grid, before, now),
        }
    }
}

fn osd_view(osd: usize, before: &Result<OsdSample, String>, now: &Result<OsdSample, String>) -> OsdView {
    let both = match (before, now) {
        (Ok(before), Ok(now)) if now.taken_at_ns > before.taken_at_ns => Ok((before, now)),
        (_, Err(problem)) => Err(problem.clone()),
        // It has just answered for the first time, or has been restarted.
        _ => Err("has just started".to_owned()),
    };
    let both_or_none = both.as_ref().ok().copied();
    let figures = FIGURES.iter().map(|(key, .., of)| (*key, of.between(both_or_none)));
    OsdView { osd, figures: figures.collect(), problem: both.err() }
}

fn cpu_views(grid: &Grid, before: &Sample, now: &Sample) -> Vec<CpuView> {
    let cpus = now.cpus.iter().filter_map(|(cpu, ticks)| {
        let old = before.cpus.get(cpu)?;
        let spent: Vec<u64> = ticks.iter().zip(old).map(|(now, old)| now.saturating_sub(*old)).collect();
        let (all, idle) = (spent.iter().sum::<u64>(), spent.get(IDLE).copied().unwrap_or(0));
        let kernel_busy_percent = if all == 0 { 0.0 } else { 100.0 * (all - idle) as f64 / all as f64 };
        let view = CpuView { cpu: *cpu as usize, kernel_busy_percent, ..CpuView::default() };
        Some(with_reactors(view, grid, before, now))
    });
    cpus.collect()
}

fn with_reactors(mut view: CpuView, grid: &Grid, before: &Sample, now: &Sample) -> CpuView {
    for row in &grid.osds {
        for slot in row.reactors.iter().filter(|slot| slot.place.cpu == view.cpu) {
            view.reactors.push(format!("osd.{}/{}", row.osd, slot.reactor));
            let samples = before.osds.get(&row.osd).zip(now.osds.get(&row.osd));
            let Some((Ok(before), Ok(now))) = samples else { continue };
            let wall_ms = now.taken_at_ns.saturating_sub(before.taken_at_ns) as f64 / 1e6;
            let share = |name: &str| {
                let ms = now.of_shard(name, slot.reactor) - before.of_shard(name, slot.reactor);
                if wall_ms > 0.0 { (100.0 * ms / wall_ms).clamp(0.0, 100.0) } else { 0.0 }
            };
            let sum = view.reactor.get_or_insert_default();
            sum.busy_percent += share("reactor_cpu_busy_ms");
            sum.spin_percent += share("reactor_cpu_spin_ms");
            sum.wait_percent += share("reactor_cpu_steal_time_ms");
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::example;
    use serde_json::json;

    #[test]
    fn rates_and_shares() {
        let view = example();
        let osd = &view.osds[0];
        for (key, want) in [
            ("read_iops", Some(3_000.0)),
            ("hops_per_s", Some(100.0)),
            ("alien_cores", Some(0.2)),
            ("txns_in_flight", Some(7.0)),
            ("read_p99_us", None),
            ("write_iops", Some(0.0)),
        ] {
            assert_eq!(osd.figures[key], want, "{key}");
        }
        let json = serde_json::to_value(osd).unwrap();
        assert_eq!((&json["read_iops"], json.as_object().unwrap().len()), (&json!(3_000.0), 16));
        assert_eq!(view.osds[1].problem.as_deref(), Some("gone"));
        let cpu = view.cpus.iter().find(|cpu| cpu.reactors == ["osd.0/0"]).unwrap();
        assert_eq!(
            cpu.reactor,
            Some(ReactorShare { busy_percent: 80.0, spin_percent: 15.0, wait_percent: 0.0 })
        );
        assert_eq!(
            (view.cpus.len(), view.cpus[7].reactor, view.cpus[7].kernel_busy_percent),
            (8, None, 25.0)
        );
    }
}
