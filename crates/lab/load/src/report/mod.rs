//! The object `carmine` of a result, and the table: figures per core, of the window's kernel accounting.

mod costs;
mod marks;
mod shape;
mod table;
#[cfg(test)]
mod tests;

use carmine_metrics::SparseHistogram;
use serde_json::{Value, json};

use crate::baseline::Achieved;
use crate::fio;
use crate::result::{DirStats, JobResult};
use crate::spec::LoadSpec;
use crate::verdict::{Evidence, Facts};
use crate::window::{CounterWindow, OsdWindow, ReactorWindow, Window};
use costs::{device_reads, hops_per_op, machine_seconds};

pub use shape::{CacheState, Context, CpuSeconds, LatencyHistograms, OsdReport, PerCore, Report, Setting};
pub use table::table;

/// Shorter windows, in seconds, are marked SMOKE: they show that a set-up works, not how fast it is.
pub const WINDOW_MIN_S: f64 = 10.0;

/// Part of a CPU that controller and monitor may use of a reactor's before that reactor's CPU counts as shared.
const GUESTS_MAX: f64 = 0.02;
/// An open-loop load that ends behind its schedule by more than this part of the window could not keep up.
const BEHIND_MAX: f64 = 0.01;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0 && part.is_finite()).then(|| part / whole)
}

/// Makes the report of a window.
pub fn report(spec: &LoadSpec, result: &JobResult, window: &Window, mut context: Context) -> Report {
    let wall = seconds(window.wall_ns);
    let ops = result.ops() as f64;
    let iops = ratio(ops, wall).unwrap_or(0.0);
    let osd_ops = result.read.ops as f64 + result.write.ops as f64 * f64::from(context.size.max(1));
    let osd_iops = ratio(osd_ops, wall).unwrap_or(0.0);
    // Controller and monitor sit on a reactor's CPU when the machine has no other: while they sleep, the reactor has it to itself.
    context.setting.shared |= context.setting.in_process && marks::guests_seconds(window) > GUESTS_MAX * wall;
    let kernel: f64 = window.osds.iter().map(|o| seconds(o.process.cpu_ns)).sum();
    let spin: f64 = window.osds.iter().map(|o| seconds(o.spin_ns())).sum();
    // What a load puts off is its own cost: one sum is behind every figure per operation, core used and core busy.
    let drain = window.drain.map_or(0.0, |d| seconds(d.cpu_ns));
    let osd_cpu = kernel + drain;
    let clocks_known = window.osds.iter().all(|o| !o.reactors.is_empty());
    let achieved = Achieved {
        iops,
        osd_iops,
        drives: context.drives.unwrap_or(0),
        pairs: pairs(spec, window, &context),
    };
    let raw = context
        .setting
        .baseline
        .as_ref()
        .map(|b| b.percentages(spec, &context.setting.flush_mode, &achieved))
        .unwrap_or_default();
    let evidence = Evidence {
        percent_of_device: raw.device,
        percent_of_messenger: raw.messenger,
        ..evidence(spec, result, window, &context)
    };
    let facts = Facts::of(window, &evidence);
    let verdict = facts.verdict();
    let ops_in_flight = marks::in_flight(result, wall);
    let mut marks = std::mem::take(&mut context.marks);
    marks.extend(marks::marks(result, window, &context, &facts));
    marks.extend(marks::little(spec, ops_in_flight));
    let above = marks::above(&raw);
    let above_baseline = !above.is_empty();
    marks.extend(above);
    marks.extend(raw.refused);
    let (shared, in_process) = (context.setting.shared, context.setting.in_process);
    let alone = |figure: Option<f64>| figure.filter(|_| !shared);
    Report {
        load: spec.clone(),
        osds: window.osds.iter().map(osd_report).collect(),
        window_seconds: wall,
        iops,
        osd_iops,
        ops_in_flight,
        iops_per_core: PerCore {
            allocated: alone(ratio(iops, context.allocated_cores)),
            used: alone(ratio(ops, osd_cpu)),
            busy: alone(ratio(ops, osd_cpu - spin).filter(|_| clocks_known)),
        },
        osd_cpu_us_per_op: ratio(osd_cpu * 1e6, ops).filter(|_| kernel > 0.0),
        machine_cpu_us_per_op: machine_seconds(&window.machine, wall, kernel)
            .and_then(|s| ratio((s + drain) * 1e6, ops)),
        cycles_per_op: counted(window, ops, |c| c.cycles),
        instructions_per_op: counted(window, ops, |c| c.instructions),
        client_cores_used: ratio(seconds(window.machine.generator_ns), wall)
            .map(|cores| (cores - window.instrument.map_or(0.0, |i| i.cores)).max(0.0))
            .filter(|_| !in_process),
        hops_per_op: hops_per_op(window, ops).filter(|_| clocks_known),
        device_reads_per_client_read: device_reads(spec, window)
            .and_then(|n| ratio(n, result.read.ops as f64)),
        device_bytes_per_client_byte: context
            .drives
            .and_then(|_| costs::device_bytes_per_client_byte(window, result)),
        wire_bytes_per_client_byte: costs::wire_bytes_per_client_byte(window, result).filter(|_| !in_process),
        iops_per_drive: context.drives.and_then(|drives| ratio(iops, f64::from(drives))),
        latency_histogram: LatencyHistograms {
            read: histogram(&result.read),
            write: histogram(&result.write),
        },
        route: if in_process { "in-process".to_owned() } else { spec.route.to_string() },
        percent_of_device: raw.device,
        percent_of_messenger: raw.messenger,
        above_baseline,
        throttled_seconds: throttled_seconds(window),
        drain: window.drain,
        metrics: window.metrics.clone(),
        instrument_cores: window.instrument.map(|i| i.cores),
        profile: None,
        machine: window.machine,
        devices: window.devices.clone(),
        verdict: verdict.limiter,
        verdict_reason: verdict.reason,
        verdict_next: verdict.next,
        errors: result.errors,
        abandoned: result.abandoned,
        verify: result.verify.clone(),
        behind_ns: result.behind_ns,
        marks,
        setting: context.setting,
    }
}

/// What a processor counted, for each operation.
fn counted(window: &Window, ops: f64, of: fn(&CounterWindow) -> Option<u64>) -> Option<f64> {
    ratio(window.counters.as_ref().and_then(of)? as f64, ops)
}

/// Pairs of a generator thread and a reactor that can work side by side.
fn pairs(spec: &LoadSpec, window: &Window, context: &Context) -> u32 {
    let reactors = window.osds.iter().map(|o| o.reactors.len() as u32).sum::<u32>();
    if context.setting.in_process { 0 } else { spec.numjobs.min(reactors.max(1)) }
}

fn histogram(stats: &DirStats) -> Option<SparseHistogram> {
    (stats.ops > 0).then(|| stats.latency_ns.to_sparse())
}

fn throttled_seconds(window: &Window) -> Option<f64> {
    let known: Vec<u64> = window.osds.iter().filter_map(|o| o.process.throttled_ns).collect();
    (!known.is_empty()).then(|| seconds(known.iter().sum()))
}

fn evidence(spec: &LoadSpec, result: &JobResult, window: &Window, context: &Context) -> Evidence {
    let wall = seconds(window.wall_ns);
    // A generator thread that waits for a CPU holds the load back just as one that is busy.
    let client = result.client.busy_ns + result.client.wait_ns;
    let client = ratio(client as f64, result.client.wall_ns as f64);
    Evidence {
        shared: context.setting.shared,
        client_busy: client.filter(|_| !context.setting.in_process),
        client_cpus: ratio(seconds(window.machine.generator_ns), wall).zip(context.client_cpus),
        depth: spec.depth_total() as f64,
        rate_met: spec.rate_iops.map(|_| seconds(result.behind_ns) <= BEHIND_MAX * wall),
        allocated_cores: context.allocated_cores,
        on_drive: context.drives.is_some(),
        more_load: context.setting.more_load.clone(),
        ..Evidence::default()
    }
}

fn osd_report(osd: &OsdWindow) -> OsdReport {
    // A peer's RocksDB has threads of these names, too, but nothing else of it is told apart.
    let known = |seconds: f64| (!osd.reactors.is_empty()).then_some(seconds);
    let sum = |clock: fn(&ReactorWindow) -> u64| known(seconds(osd.reactors.iter().map(clock).sum()));
    let rocksdb = osd.rocksdb_ns();
    OsdReport {
        id: osd.id,
        pid: osd.process.pid,
        cpu_seconds: CpuSeconds {
            busy: sum(|r| r.busy_ns),
            spin: sum(|r| r.spin_ns),
            sleep: sum(|r| r.sleep_ns),
            wait: sum(|r| r.wait_ns),
            alien: known(seconds(osd.alien_ns())),
            rocksdb_feeder: known(seconds(osd.feeder_ns.unwrap_or(0))),
            rocksdb_flush: known(seconds(rocksdb.flush)),
            rocksdb_compaction: known(seconds(rocksdb.compaction)),
            kernel_total: seconds(osd.process.cpu_ns),
        },
        rss_bytes: osd.process.rss_bytes,
        device_read_bytes: osd.process.device_read_bytes,
        device_write_bytes: osd.process.device_write_bytes,
        reactors: osd.reactors.clone(),
    }
}

/// The whole result file: fio's `jobs[]` with `carmine` beside it.
pub fn result_json(spec: &LoadSpec, result: &JobResult, report: &Report, unix_seconds: u64) -> Value {
    json!({
        "fio version": concat!("carmine-", env!("CARGO_PKG_VERSION")),
        "timestamp": unix_seconds,
        "jobs": fio::jobs(spec, result, report.window_seconds),
        "carmine": report,
    })
}
