//! The object `carmine` of a result, and the table: figures per core, of the window's kernel accounting.

mod marks;
mod shape;
mod table;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::baseline::Achieved;
use crate::fio;
use crate::result::{DirStats, JobResult};
use crate::spec::LoadSpec;
use crate::verdict::{Evidence, Facts};
use crate::window::{OsdWindow, ReactorWindow, Window};

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
    let (wall, ops, osds) = (seconds(window.wall_ns), result.ops() as f64, &window.osds);
    let iops = ratio(ops, wall).unwrap_or(0.0);
    let osd_ops = result.read.ops as f64 + result.write.ops as f64 * f64::from(context.size.max(1));
    let osd_iops = ratio(osd_ops, wall).unwrap_or(0.0);
    // Controller and monitor sit on a reactor's CPU when the machine has no other: while they sleep, the reactor has it to itself.
    context.setting.shared |= context.setting.in_process && marks::guests_seconds(window) > GUESTS_MAX * wall;
    let Context { setting, drives, .. } = &context;
    let (shared, in_process) = (setting.shared, setting.in_process);
    let kernel = seconds(window.osds_ns());
    let spin: f64 = osds.iter().map(|osd| seconds(osd.sum(|r| r.spin_ns))).sum();
    // Work that a load puts off is its own cost: one sum is behind every figure per operation, core used and core busy.
    let drain = window.drain.map_or(0.0, |drain| seconds(drain.cpu_ns));
    let osd_cpu = kernel + drain;
    let clocks_known = osds.iter().all(|osd| !osd.reactors.is_empty());
    // A generator thread and a reactor can work side by side.
    let pairs = spec.numjobs.min(osds.iter().map(|osd| osd.reactors.len() as u32).sum::<u32>().max(1));
    let pairs = if in_process { 0 } else { pairs };
    let achieved = Achieved { iops, osd_iops, drives: drives.unwrap_or(0), pairs };
    let raw = setting.baseline.as_ref().map(|b| b.percentages(spec, &setting.flush_mode, &achieved));
    let raw = raw.unwrap_or_default();
    let evidence = Evidence {
        percent_of_device: raw.device,
        percent_of_messenger: raw.messenger,
        ..evidence(spec, result, window, &context)
    };
    let facts = Facts::of(window, &evidence);
    let verdict = facts.verdict();
    let ops_in_flight = marks::in_flight(result, wall);
    let above = marks::above(&raw);
    let above_baseline = !above.is_empty();
    let more = marks::marks(result, window, &context, &facts);
    let little = marks::little(spec, ops_in_flight);
    let marks = context.marks.iter().cloned().chain(more).chain(little).chain(above).chain(raw.refused);
    let alone = |figure: Option<f64>| figure.filter(|_| !shared);
    let per_op = |counted: Option<u64>| ratio(counted? as f64, ops);
    let per_client_byte = |bytes: u64| ratio(bytes as f64, (result.read.bytes + result.write.bytes) as f64);
    let disk = osds.iter().map(|osd| osd.process.device_read_bytes + osd.process.device_write_bytes).sum();
    let wire: Option<u64> = osds.iter().map(|osd| osd.wire_bytes).sum();
    let hops: Option<u64> = osds.iter().map(|osd| osd.hopped_ops).sum();
    let sampler = window.instrument.map(|instrument| instrument.cores);
    let generator = ratio(seconds(window.machine.generator_ns), wall);
    let histogram = |stats: &DirStats| (stats.ops > 0).then(|| stats.latency_ns.to_sparse());
    Report {
        load: spec.clone(),
        osds: osds.iter().map(osd_report).collect(),
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
        machine_cpu_us_per_op: machine_seconds(window, wall).and_then(|s| ratio((s + drain) * 1e6, ops)),
        cycles_per_op: per_op(window.counters.and_then(|counters| counters.cycles)),
        instructions_per_op: per_op(window.counters.and_then(|counters| counters.instructions)),
        client_cores_used: generator
            .map(|cores| (cores - sampler.unwrap_or(0.0)).max(0.0))
            .filter(|_| !in_process),
        hops_per_op: per_op(hops.or_else(|| Some(osds.iter().map(|osd| osd.sum(|r| r.hops)).sum())))
            .filter(|_| clocks_known),
        device_reads_per_client_read: device_reads(spec, window)
            .and_then(|n| ratio(n, result.read.ops as f64)),
        device_bytes_per_client_byte: drives.and_then(|_| per_client_byte(disk)).filter(|_| !osds.is_empty()),
        wire_bytes_per_client_byte: wire
            .and_then(per_client_byte)
            .filter(|_| !osds.is_empty() && !in_process),
        iops_per_drive: drives.and_then(|drives| ratio(iops, f64::from(drives))),
        latency_histogram: LatencyHistograms {
            read: histogram(&result.read),
            write: histogram(&result.write),
        },
        route: if in_process { "in-process".to_owned() } else { spec.route.to_string() },
        percent_of_device: raw.device,
        percent_of_messenger: raw.messenger,
        above_baseline,
        throttled_seconds: osds
            .iter()
            .filter_map(|osd| osd.process.throttled_ns)
            .reduce(|a, b| a + b)
            .map(seconds),
        drain: window.drain,
        metrics: window.metrics.clone(),
        instrument_cores: sampler,
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
        marks: marks.collect(),
        setting: context.setting,
    }
}

/// Busy time of all CPUs less the idle baseline, the generator, the controller and the monitor. It has the OSDs' own CPU
/// time in it: less than most of that means that the baseline did not hold, and the figure is worth nothing.
fn machine_seconds(window: &Window, wall: f64) -> Option<f64> {
    let machine = &window.machine;
    let others = machine.idle_baseline_cores * wall + seconds(machine.generator_ns + machine.mon_ns);
    let left = seconds(machine.busy_ns) - others;
    (left >= 0.9 * seconds(window.osds_ns())).then_some(left)
}

/// The store's own count, or else the kernel's bytes in blocks of the load.
fn device_reads(spec: &LoadSpec, window: &Window) -> Option<f64> {
    let counted: Option<u64> = window.osds.iter().map(|osd| osd.device_reads).sum();
    let bytes: u64 = window.osds.iter().map(|osd| osd.process.device_read_bytes).sum();
    let reads = counted.map(|n| n as f64).or_else(|| ratio(bytes as f64, spec.bs_bytes as f64));
    reads.filter(|_| spec.rw.reads() && !window.osds.is_empty())
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
    let known = |ns: u64| (!osd.reactors.is_empty()).then_some(seconds(ns));
    let sum = |clock: fn(&ReactorWindow) -> u64| known(osd.sum(clock));
    let (flush_ns, compaction_ns) = osd.rocksdb_ns();
    OsdReport {
        id: osd.id,
        pid: osd.process.pid,
        cpu_seconds: CpuSeconds {
            busy: sum(|r| r.busy_ns),
            spin: sum(|r| r.spin_ns),
            sleep: sum(|r| r.sleep_ns),
            wait: sum(|r| r.wait_ns),
            alien: known(osd.alien_ns()),
            rocksdb_feeder: known(osd.feeder_ns.unwrap_or(0)),
            rocksdb_flush: known(flush_ns),
            rocksdb_compaction: known(compaction_ns),
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
