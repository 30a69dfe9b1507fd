//! The object `carmine` of a result, and the table: figures per core, of the window's kernel accounting.

mod table;
#[cfg(test)]
mod tests;

use std::ops::Deref;

use carmine_metrics::SparseHistogram;
use carmine_stats::mean_with_interval;
use carmine_types::counted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::baseline::{Achieved, Baseline, Percentages};
use crate::drive::StoreFacts;
use crate::fio_json;
use crate::hosts::{self, LoadHost};
use crate::origin::Origin;
use crate::profile::Profile;
use crate::result::{DirStats, JobResult, VerifyCounts};
use crate::spec::LoadSpec;
use crate::stages::{Stages, places_us};
use crate::verdict::{DISTURBED, Evidence, FOREIGN, Facts, Figure, MoreLoad, RAW_WRONG, UNEVEN};
use crate::window::{
    DeviceWindow, DrainWindow, MachineWindow, MetricsWindow, OsdWindow, ReactorWindow, Window,
};

pub use table::{osd_line, show, table};

/// Shorter windows, in seconds, are marked SMOKE: they show that a set-up works, not how fast it is.
pub const WINDOW_MIN_S: f64 = 10.0;

/// A window may end a moment early by the kernel's clock.
const SMOKE_BELOW_S: f64 = WINDOW_MIN_S - 0.1;
/// The mean of a longer window is to be known within this part of it.
const SMOKE_WITHIN: f64 = 0.10;
/// The mean number of operations in flight should lie between these parts of the load's depth: operations at the ends of
/// the window are counted in part only.
const LITTLE_MIN: f64 = 0.8;
const LITTLE_MAX: f64 = 1.1;
/// Part of a reactor's CPU that controller and monitor may use before it counts as shared.
const GUESTS_MAX: f64 = 0.02;
/// An open-loop load that ends behind its schedule by more than this part of the window could not keep up.
const BEHIND_MAX: f64 = 0.01;

/// Facts of a load beside its window; a part of its result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// The plan that the testbed was started with.
    pub plan: Value,
    pub grid: Value,
    /// Machine, kernel, versions.
    pub host: Value,
    /// Build, machine, drives and time.
    pub origin: Origin,
    /// A CPU of the grid is shared with something else.
    pub shared: bool,
    /// The load ran inside the OSD: its CPU time is in the OSD's.
    pub in_process: bool,
    /// How the stores make writes durable: `flush`, `dsync` or `none`.
    pub flush_mode: String,
    /// It was asked for, not what the drives need.
    pub flush_forced: bool,
    /// The drives of data, log and database of each OSD, and how its store was treated for them; none for stores in memory, and
    /// for a peer.
    pub stores: Vec<StoreFacts>,
    /// The word of a [`CacheState`].
    pub cache_state: Option<String>,
    /// The baselines of `--baseline`.
    pub baseline: Option<Baseline>,
    /// The history of the store before the window, and the work that it still had at its ends.
    pub conditions: Value,
    /// Findings of the doctor.
    pub doctor: Value,
    /// A short window with more load, made to confirm the limiter; `None` without `--confirm`.
    pub more_load: Option<MoreLoad>,
}

/// Facts that only the controller knows.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub setting: Setting,
    /// Distinct CPUs of reactors and aliens, or less where a quota gives them less time.
    pub allocated_cores: f64,
    /// CPUs that a foreign generator may use; `None` for our own.
    pub client_cpus: Option<u32>,
    /// Replicas of the pool.
    pub size: u32,
    /// Distinct block devices with the stores' data; `None` for stores in memory.
    pub drives: Option<u32>,
    /// Remarks: what could not be measured.
    pub marks: Vec<String>,
    /// Length of the window by a foreign generator's own clock; its rates are of that. `None`: the kernel's window.
    pub client_seconds: Option<f64>,
    /// The hosts whose generators made the load; none if this one did. Their rates are not known yet.
    pub load_hosts: Vec<LoadHost>,
}

carmine_types::words! {
    /// The state of the OSDs' caches when the window began.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CacheState: "cache state" {
        /// The OSDs have served nothing since their start.
        Cold = "cold",
        /// Metadata of the objects was loaded, their data was not.
        OnodeWarm = "onode-warm",
        /// The same load ran just before.
        Cached = "cached",
    }
}

/// Latencies of the window in nanoseconds; `None` for a direction without operations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyHistograms {
    pub read: Option<SparseHistogram>,
    pub write: Option<SparseHistogram>,
}

/// CPU seconds of one OSD process in the window. Only OSDs that give their reactors' clocks have more than the kernel's total:
/// of others it is not known, which is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSeconds {
    /// Reactors doing work.
    pub busy: Option<f64>,
    /// Reactors looking for work.
    pub spin: Option<f64>,
    /// Reactors asleep.
    pub sleep: Option<f64>,
    /// Reactors ready, but without a CPU.
    pub wait: Option<f64>,
    /// Threads that are not reactors: with the three below.
    pub alien: Option<f64>,
    /// Of those, aliens that feed RocksDB.
    pub rocksdb_feeder: Option<f64>,
    /// Of those, RocksDB's threads that write out what is in memory only.
    pub rocksdb_flush: Option<f64>,
    /// Of those, RocksDB's threads that merge tables.
    pub rocksdb_compaction: Option<f64>,
    /// All threads, as the kernel counts.
    pub kernel_total: f64,
}

/// One OSD in a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsdReport {
    pub id: u32,
    pub pid: u32,
    pub cpu_seconds: CpuSeconds,
    pub rss_bytes: u64,
    pub device_read_bytes: u64,
    pub device_write_bytes: u64,
    pub reactors: Vec<ReactorWindow>,
}

/// Client operations per second and core; `null` where CPUs are shared. CPU time that the OSDs spent on the load after its window
/// (`drain`) is in `used` and `busy`, as it is in the CPU time per operation: `used` is 1,000,000 / `osd_cpu_us_per_op`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerCore {
    /// Of the distinct CPUs of reactors and aliens, or of the time that a quota gives them.
    pub allocated: Option<f64>,
    /// Of the CPU seconds of all OSD processes, as the kernel counts them.
    pub used: Option<f64>,
    /// Of those less spinning.
    pub busy: Option<f64>,
}

/// The object `carmine`. One that is read back may lack what an earlier version did not measure; its words are text, since
/// another version may have words that this one does not know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    #[serde(flatten)]
    pub setting: Setting,
    /// The load's [`LoadSpec`].
    pub load: Value,
    pub osds: Vec<OsdReport>,
    pub window_seconds: f64,
    /// The same by the clock of the generator, which all rates of clients are of.
    pub client_seconds: f64,
    pub iops: f64,
    /// Client IOPS × replicas of writes, as OSDs see it.
    pub osd_iops: f64,
    /// Operations in flight on average: IOPS × mean latency (Little's law); `None` if not every latency is known.
    pub ops_in_flight: Option<f64>,
    pub iops_per_core: PerCore,
    /// CPU time of all OSD processes, `drain` included.
    pub osd_cpu_us_per_op: Option<f64>,
    /// CPU time of the machine without the generator, the controller and the monitor, `drain` included.
    pub machine_cpu_us_per_op: Option<f64>,
    /// Processor cycles of the OSDs for each client operation. Absent where no hardware counts them (most virtual machines).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_op: Option<f64>,
    /// The same of instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_op: Option<f64>,
    pub client_cores_used: Option<f64>,
    /// The hosts whose generators made the load; absent if this one did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_hosts: Vec<LoadHost>,
    pub hops_per_op: Option<f64>,
    pub device_reads_per_client_read: Option<f64>,
    /// Bytes that OSDs read from and wrote to block devices per byte that clients read and wrote; `None` for stores in memory.
    pub device_bytes_per_client_byte: Option<f64>,
    /// Bytes of all messages, those between OSDs included, per byte that clients read and wrote.
    pub wire_bytes_per_client_byte: Option<f64>,
    /// Client operations per second and drive under the stores.
    pub iops_per_drive: Option<f64>,
    pub latency_histogram: LatencyHistograms,
    /// `direct`, `single`, or `in-process`.
    pub route: String,
    /// Of what the raw device does at its best depth.
    pub percent_of_device_limit: Option<f64>,
    /// Of the raw baselines of the same block size, depth, direction and flush mode.
    pub percent_of_device: Option<f64>,
    pub percent_of_messenger: Option<f64>,
    /// From the oldest measurement of the raw baselines to the start of the load; `None` without one.
    pub baseline_age_seconds: Option<u64>,
    /// More than its raw baseline: a cache, or a mistake.
    pub above_baseline: bool,
    /// Time that a cgroup's CPU quota kept the OSDs from running; `None` without a quota.
    pub throttled_seconds: Option<f64>,
    /// The recovery that was made under the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Work that the OSDs still had after the window; its CPU time is in every figure per operation, core used and core busy.
    /// `None` for stores that put nothing off.
    pub drain: Option<DrainWindow>,
    /// `dump_metrics` of every OSD at both ends of the window, and the difference: for people, and large; not read back.
    #[serde(skip_deserializing)]
    pub metrics: Vec<MetricsWindow>,
    /// CPU of the sampler (`--samples`) in cores: the instrument's own cost. `None` without samples.
    pub instrument_cores: Option<f64>,
    /// The flamegraph that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Where an operation's time goes, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    pub machine: MachineWindow,
    pub devices: Vec<DeviceWindow>,
    /// The word of a [`Limiter`](crate::verdict::Limiter).
    pub verdict: Option<String>,
    /// The limit of the load, as a clause with its figures.
    pub verdict_reason: String,
    /// The next thing to try.
    pub verdict_next: String,
    pub errors: u64,
    pub abandoned: u64,
    /// The longest time in the window for which a job had no operation acknowledged; `None` for a tool that does not report it.
    pub longest_pause_ms: Option<f64>,
    pub verify: VerifyCounts,
    /// How far behind its schedule an open-loop load ended.
    pub behind_ns: u64,
    pub marks: Vec<String>,
}

/// A recovery under a load: an OSD was taken out when the window began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recovery {
    pub osd_out: u32,
    /// From then until all PGs were active and clean without it; `None`: not within the window.
    pub clean_s: Option<f64>,
    /// 99th percentile of the latencies in the seconds until then, in nanoseconds.
    pub p99_ns: Option<f64>,
    /// The same in the rest of the window.
    pub p99_after_ns: Option<f64>,
}

impl Recovery {
    /// From the latencies that a load has kept for each second.
    #[must_use]
    pub fn new(osd_out: u32, clean_s: Option<f64>, load: &JobResult) -> Recovery {
        let until = clean_s.map_or(usize::MAX, |seconds| seconds.ceil() as usize);
        let p99 = |range| load.seconds.percentile_of(range, 99.0);
        Recovery { osd_out, clean_s, p99_ns: p99(0..until), p99_after_ns: p99(until..usize::MAX) }
    }
}

impl Deref for Report {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.setting
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// An open-loop load that ended this far behind its schedule kept up with it.
fn is_on_schedule(behind_ns: u64, window_s: f64) -> bool {
    seconds(behind_ns) <= BEHIND_MAX * window_s
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0 && part.is_finite()).then(|| part / whole)
}

/// Makes the report of a window.
pub fn report(spec: &LoadSpec, result: &JobResult, window: &Window, mut context: Context) -> Report {
    let (wall, ops, osds) = (seconds(window.wall_ns), result.ops() as f64, &window.osds);
    let (in_process, drives) = (context.setting.in_process, context.drives);
    // Controller and monitor sit on a reactor's CPU when the machine has no other: while they sleep, the reactor has it to itself.
    context.setting.shared |= in_process && guests_seconds(window) > GUESTS_MAX * wall;
    let shared = context.setting.shared;
    let osd_ops = result.read.ops as f64 + result.write.ops as f64 * f64::from(context.size.max(1));
    let client_wall = context.client_seconds.filter(|seconds| *seconds > 0.0).unwrap_or(wall);
    let [iops, osd_iops] = [ops, osd_ops].map(|ops| ratio(ops, client_wall).unwrap_or(0.0));
    // Work that a load puts off is its own cost: one sum is behind every figure per operation, core used and core busy.
    let drain = window.drain.map_or(0.0, |drain| seconds(drain.cpu_ns));
    let (kernel, spin_ns) = (seconds(window.osds_ns()), osds.iter().map(|osd| osd.sum(|r| r.spin_ns)).sum());
    let osd_cpu = kernel + drain;
    let clocks_known = osds.iter().all(|osd| !osd.reactors.is_empty());
    // A generator thread and a reactor can work side by side.
    let pairs = spec.numjobs.min(osds.iter().map(|osd| osd.reactors.len() as u32).sum::<u32>().max(1));
    let pairs = if in_process { 0 } else { pairs };
    let achieved = Achieved { iops, osd_iops, drives: drives.unwrap_or(0), pairs };
    let (baseline, flush_mode) = (context.setting.baseline.as_ref(), &context.setting.flush_mode);
    let origin = &context.setting.origin;
    let raw = baseline.map(|b| b.percentages(spec, origin, flush_mode, &achieved)).unwrap_or_default();
    let (aged, age_s) = (baseline.and_then(|b| b.aged(origin)), baseline.and_then(|b| b.age_s(origin)));
    let facts = Facts::new(window, &context.evidence(spec, result, window, &raw));
    let verdict = facts.verdict();
    let ops_in_flight = in_flight(result, wall);
    let above = above(&raw);
    let above_baseline = !above.is_empty();
    let more = marks(result, window, &context, &facts);
    let planned_s = (!spec.ends_by_itself()).then_some(spec.runtime_ms as f64 / 1e3);
    let of_hosts = hosts::marks(&context.load_hosts, wall, planned_s);
    let load_hosts = std::mem::take(&mut context.load_hosts).into_iter();
    let load_hosts =
        load_hosts.map(|host| LoadHost { iops: host.ops as f64 / client_wall.max(1e-9), ..host });
    let load_hosts: Vec<LoadHost> = load_hosts.collect();
    let little = little(spec, ops_in_flight);
    let marks = context
        .marks
        .into_iter()
        .chain(more)
        .chain(of_hosts)
        .chain(little)
        .chain(above)
        .chain(aged)
        .chain(raw.refused);
    let is_foreign = is_foreign(&facts);
    let alone = |figure: Option<f64>| figure.filter(|_| !shared && !is_foreign);
    let per_op = |counted: Option<u64>| ratio(counted? as f64, ops);
    let per_client_byte = |bytes: u64| ratio(bytes as f64, (result.read.bytes + result.write.bytes) as f64);
    let disk = osds.iter().map(|osd| osd.process.device_read_bytes + osd.process.device_write_bytes).sum();
    let wire: Option<u64> = osds.iter().map(|osd| osd.wire_bytes).sum();
    let hops: Option<u64> = osds.iter().map(|osd| osd.hopped_ops).sum();
    let sampler = window.instrument.as_ref().map(|instrument| instrument.cores);
    let generator = ratio(seconds(window.machine.generator_ns), wall);
    let histogram = |stats: &DirStats| (stats.ops > 0).then(|| stats.latency_ns.to_sparse());
    Report {
        load: json!(spec),
        osds: osds.iter().map(osd_report).collect(),
        window_seconds: wall,
        client_seconds: client_wall,
        iops,
        osd_iops,
        ops_in_flight,
        iops_per_core: PerCore {
            allocated: alone(ratio(iops, context.allocated_cores)),
            used: alone(ratio(ops, osd_cpu)),
            busy: alone(ratio(ops, osd_cpu - seconds(spin_ns)).filter(|_| clocks_known)),
        },
        osd_cpu_us_per_op: ratio(osd_cpu * 1e6, ops).filter(|_| kernel > 0.0 && !is_foreign),
        machine_cpu_us_per_op: machine_seconds(window, wall).and_then(|s| ratio((s + drain) * 1e6, ops)),
        cycles_per_op: per_op(window.counters.and_then(|counters| counters.cycles)),
        instructions_per_op: per_op(window.counters.and_then(|counters| counters.instructions)),
        client_cores_used: match load_hosts.as_slice() {
            [] => generator.map(|cores| (cores - sampler.unwrap_or(0.0)).max(0.0)).filter(|_| !in_process),
            hosts => Some(hosts.iter().map(|host| host.client_cores_used).sum()),
        },
        load_hosts,
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
        percent_of_device_limit: raw.device_limit,
        percent_of_device: raw.device,
        percent_of_messenger: raw.messenger,
        baseline_age_seconds: age_s,
        above_baseline,
        throttled_seconds: osds
            .iter()
            .filter_map(|osd| osd.process.throttled_ns)
            .reduce(|a, b| a + b)
            .map(seconds),
        drain: window.drain,
        metrics: window.metrics.clone(),
        instrument_cores: sampler,
        machine: window.machine,
        devices: window.devices.clone(),
        verdict: Some(verdict.limiter.to_string()),
        verdict_reason: verdict.reason,
        verdict_next: verdict.next,
        errors: result.errors,
        abandoned: result.abandoned,
        longest_pause_ms: (result.longest_pause_ns > 0).then_some(result.longest_pause_ns as f64 / 1e6),
        verify: result.verify.clone(),
        behind_ns: result.behind_ns,
        marks: marks.collect(),
        setting: context.setting,
        ..Report::default()
    }
}

impl Report {
    /// The same with the stages of an operation.
    #[must_use]
    pub fn with_stages(self) -> Report {
        let latency_us = self.ops_in_flight.map(|in_flight| in_flight / self.iops * 1e6);
        let mean = (self.iops * self.window_seconds, latency_us, self.osd_cpu_us_per_op);
        Report { stages: Some(Stages::new(self.profile.as_ref(), &self.metrics, mean)), ..self }
    }
}

/// Busy time of all CPUs less the idle baseline, the generator, the controller and the monitor. It includes the OSDs' own CPU
/// time: if it is much less than that, the baseline did not hold, and the figure is worth nothing.
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
    let reads = counted.map(|n| n as f64).or_else(|| ratio(bytes as f64, spec.mean_bytes_of(true)));
    reads.filter(|_| spec.rw.reads() && !window.osds.is_empty())
}

impl Context {
    fn evidence(&self, spec: &LoadSpec, result: &JobResult, window: &Window, raw: &Percentages) -> Evidence {
        let (wall, setting, client) = (seconds(window.wall_ns), &self.setting, &result.client);
        // A generator thread that waits for a CPU holds the load back just as one that is busy.
        let (latencies, latency_sum_ns) = latencies(result);
        let latency_us = ratio(latency_sum_ns / 1e3, latencies as f64);
        let throttled = self.load_hosts.iter().max_by_key(|host| host.generator.throttled_ns);
        let throttled_ns = throttled.map_or(&window.machine.generator, |host| &host.generator).throttled_ns;
        let client_busy = ratio((client.busy_ns + client.wait_ns) as f64, client.wall_ns as f64);
        Evidence {
            shared: setting.shared,
            client_busy: client_busy.filter(|_| !setting.in_process),
            client_cpus: ratio(seconds(window.machine.generator_ns), wall).zip(self.client_cpus),
            client_host: hosts::hottest(&self.load_hosts).map(|host| host.host.clone()),
            throttled_host: throttled.map(|host| host.host.clone()),
            client_throttled: ratio(seconds(throttled_ns.unwrap_or(0)), wall)
                .filter(|_| !setting.in_process)
                .map(|part| part.min(1.0)),
            own_ops: result.ops() as f64,
            depth: spec.depth_total() as f64,
            rate_met: spec.rate_iops.map(|_| is_on_schedule(result.behind_ns, wall)),
            allocated_cores: self.allocated_cores,
            on_drive: self.drives.is_some(),
            percent_of_device_limit: raw.device_limit,
            percent_of_device: raw.device,
            percent_of_messenger: raw.messenger,
            latency_us,
            places_us: latency_us
                .map(|us| places_us(&window.metrics, result.ops() as f64, us))
                .unwrap_or_default(),
            more_load: setting.more_load.clone(),
        }
    }
}

/// The work of an OSD in a window.
pub fn osd_report(osd: &OsdWindow) -> OsdReport {
    // A peer's RocksDB has threads of these names, too, but its other threads cannot be told apart.
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

/// The whole result file: fio's keys with `carmine` beside them.
pub fn result_json(spec: &LoadSpec, result: &JobResult, report: &Report, unix_ms: u64) -> Value {
    json!({
        "fio version": concat!("carmine-", env!("CARGO_PKG_VERSION")),
        "timestamp": unix_ms / 1000,
        "timestamp_ms": unix_ms,
        "time": fio_json::ctime(unix_ms / 1000),
        "global options": fio_json::options(spec),
        "jobs": fio_json::jobs(spec, result, report.window_seconds, &report.generator()),
        "carmine": report,
    })
}

/// Others used the OSDs or their drives: what an operation costs cannot be told.
fn is_foreign(facts: &Facts) -> bool {
    let is_much = |figure| facts.get(figure).is_some_and(|part| part >= FOREIGN);
    is_much(Figure::ForeignOps) || is_much(Figure::ForeignBytes)
}

/// Remarks about a window.
fn marks(result: &JobResult, window: &Window, context: &Context, facts: &Facts) -> Vec<String> {
    let (wall, setting) = (seconds(window.wall_ns), &context.setting);
    let rates = result.iops_samples(wall);
    let at_least = |figure: Figure, least: f64| facts.get(figure).is_some_and(|value| value >= least);
    let machine = &window.machine;
    let disturbed = DISTURBED / 100.0 * f64::from(machine.cpus.max(1));
    let client_wait = ratio(result.client.wait_ns as f64 * 100.0, result.client.wall_ns as f64);
    let client_wait = client_wait.filter(|part| *part >= DISTURBED && !setting.in_process);
    let guests = ratio(guests_seconds(window) * 100.0, wall).unwrap_or(0.0);
    let marks = [
        setting.shared.then(|| "SHARED: reactors, aliens or clients share CPUs; figures per core are left out".to_owned()),
        smoke(&rates, wall),
        window.osds.iter().any(|osd| osd.reactors.is_empty()).then(|| {
            "an OSD did not give its clocks: busy, spin, sleep, wait and hops are missing".to_owned()
        }),
        at_least(Figure::Waiting, DISTURBED).then(|| {
            let part = facts.percent(Figure::Waiting);
            format!("NOISY: reactors were ready but without a CPU for {part} of the window")
        }),
        (machine.idle_baseline_cores > disturbed).then(|| {
            let (cores, cpus) = (machine.idle_baseline_cores, counted(machine.cpus as usize, "CPU"));
            format!("NOISY: {cores:.2} of {cpus} went to other work before the load")
        }),
        (machine.steal_ns as f64 > disturbed * window.wall_ns as f64).then(|| {
            format!("NOISY: the hypervisor took {:.2} CPU seconds away", seconds(machine.steal_ns))
        }),
        carmine_stats::trend(&rates).filter(|trend| trend.unsteady).map(|trend| {
            let (percent, p) = (trend.drift * 100.0, trend.p);
            format!("UNSTEADY: IOPS drifted by {percent:+.0} % over the window (p = {p:.3})")
        }),
        at_least(Figure::ForeignOps, FOREIGN).then(|| {
            let (ops, part) = (facts.name(Figure::ForeignOps), facts.percent(Figure::ForeignOps));
            format!("FOREIGN: other clients had {ops} of the OSDs ({part}); figures per operation and core are left out")
        }),
        at_least(Figure::ForeignBytes, FOREIGN).then(|| {
            let (bytes, part) = (facts.name(Figure::ForeignBytes), facts.percent(Figure::ForeignBytes));
            format!("FOREIGN: the drives moved {bytes} for other programs ({part}); figures per operation and core are left out")
        }),
        at_least(Figure::ClientThrottled, DISTURBED).then(|| {
            let part = facts.percent(Figure::ClientThrottled);
            format!("NOISY: a CPU quota stopped the generator for {part} of the window")
        }),
        at_least(Figure::PgRatio, UNEVEN)
            .then(|| format!("IMBALANCED: {}; raise --pgs", facts.name(Figure::PgRatio))),
        window.drain.is_some_and(|drain| !drain.finished).then(|| {
            "the OSDs' background work had not ended when the wait for it was given up: some of it is not charged".to_owned()
        }),
        window.instrument.as_ref().is_some_and(|instrument| instrument.cpus.is_empty()).then(|| {
            "SHARED: every CPU belongs to an OSD, so the sampler ran on those, too".to_owned()
        }),
        window.counters.is_some_and(|counters| counters.user_only).then(|| {
            "cycles and instructions are those of user mode: this user is not allowed to count the kernel's (as root: sysctl kernel.perf_event_paranoid=1)".to_owned()
        }),
        client_wait.map(|part| format!("NOISY: a generator thread was without a CPU for {part:.0} % of the window")),
        setting.in_process.then(|| {
            format!(
                "in-process load: the generator's CPU time is part of the OSD's; controller and monitor used {guests:.1} % of a CPU"
            )
        }),
    ];
    marks.into_iter().flatten().collect()
}

/// The number and the sum (ns) of all latencies.
fn latencies(result: &JobResult) -> (u64, f64) {
    let (read, write) = (&result.read.latency_ns, &result.write.latency_ns);
    (read.count() + write.count(), (read.sum() + write.sum()) as f64)
}

/// Operations in flight on average by Little's law, IOPS × mean latency; `None` without the latency of every operation.
fn in_flight(result: &JobResult, wall_s: f64) -> Option<f64> {
    let (count, sum_ns) = latencies(result);
    ratio(sum_ns / 1e9, wall_s).filter(|_| count > 0 && count == result.ops())
}

/// A closed loop keeps as many operations in flight as it is asked to, or one of its figures is not what its name says.
fn little(spec: &LoadSpec, in_flight: Option<f64>) -> Option<String> {
    let asked = spec.depth_total() as f64;
    let found = in_flight.filter(|_| spec.rate_iops.is_none() && !spec.ends_by_itself())?;
    let why = match found / asked {
        part if part < LITTLE_MIN => {
            "latency is only a part of an operation's time, or the generator did not keep its queue full"
        }
        part if part > LITTLE_MAX => "latency and the window were not measured by the same clock",
        _ => return None,
    };
    Some(format!(
        "LITTLE: IOPS x mean latency is {found:.1} operations in flight, not the {asked} of the load: {why}"
    ))
}

/// A window that is too short for what it shows. Samples are of half a second, of which two neighbours resemble each other.
fn smoke(iops_samples: &[f64], wall_s: f64) -> Option<String> {
    if wall_s < SMOKE_BELOW_S {
        return Some(format!("SMOKE: a window of {wall_s:.1} s says little; take {WINDOW_MIN_S} s or more"));
    }
    let seconds: Vec<f64> =
        iops_samples.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    let (mean, interval) = mean_with_interval(&seconds).filter(|(mean, _)| *mean > 0.0)?;
    let within = interval.map(|(_, high)| high / mean - 1.0).filter(|part| *part > SMOKE_WITHIN)?;
    Some(format!(
        "SMOKE: IOPS varied so much that their mean is only known within {:.0} %; take more than {wall_s:.0} s",
        within * 100.0
    ))
}

/// CPU time that others than the OSDs had on the OSDs' CPUs when there is no generator: the controller (this process), the
/// monitor, and the sampler if it had no CPU of its own.
fn guests_seconds(window: &Window) -> f64 {
    let apart = window.instrument.as_ref().filter(|instrument| !instrument.cpus.is_empty());
    let apart = apart.map_or(0.0, |instrument| instrument.cores * seconds(window.wall_ns));
    (seconds(window.machine.generator_ns + window.machine.mon_ns) - apart).max(0.0)
}

/// The marks of a result that is above what is possible.
fn above(raw: &Percentages) -> Vec<String> {
    let raw = [("device", raw.device_limit.or(raw.device)), ("messenger", raw.messenger)];
    let above = raw.into_iter().filter_map(|(what, percent)| Some((what, percent?)));
    let above = above.filter(|(_, percent)| *percent >= RAW_WRONG).map(|(what, percent)| {
        format!(
            "ABOVE: {percent:.0} % of the raw {what}: a cache answered, the store wrote neighbours as one, or the \
             baseline is wrong"
        )
    });
    above.collect()
}
