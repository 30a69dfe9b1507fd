//! The object `carmine` of a result, and the table: figures per core, of the window's kernel accounting.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fio;
use crate::result::{DirStats, JobResult};
use crate::spec::{LoadSpec, show_bytes};
use crate::verdict::{Evidence, Limiter, NOISE, noise, verdict};
use crate::window::{DeviceWindow, MachineWindow, OsdWindow, ReactorWindow, Window};

/// An open-loop load that ends behind its schedule by more than this part of the window could not keep up.
const BEHIND_MAX: f64 = 0.01;

/// What only the controller knows.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The plan that the testbed was started with.
    pub plan: Value,
    pub grid: Value,
    /// Machine, kernel, versions.
    pub host: Value,
    /// Some CPU of the grid is not had alone.
    pub shared: bool,
    /// Distinct CPUs of reactors and aliens.
    pub allocated_cpus: usize,
    /// Replicas of the pool.
    pub size: u32,
    /// The load ran inside the OSD: its CPU time is in the OSD's.
    pub in_process: bool,
    /// Remarks: what could not be measured.
    pub marks: Vec<String>,
}

/// CPU seconds of one OSD process in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// Reactors doing work.
    pub busy: f64,
    /// Reactors looking for work.
    pub spin: f64,
    /// Reactors asleep.
    pub sleep: f64,
    /// Reactors ready, but without a CPU.
    pub wait: f64,
    /// Threads that are not reactors.
    pub alien: f64,
    /// All threads, as the kernel counts.
    pub kernel_total: f64,
}

/// One OSD in a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsdReport {
    pub id: u32,
    pub pid: u32,
    pub cpu_seconds: CpuSeconds,
    pub rss_bytes: u64,
    pub device_read_bytes: u64,
    pub device_write_bytes: u64,
    pub reactors: Vec<ReactorWindow>,
}

/// Client operations per second and core; `null` where CPUs are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerCore {
    /// Of the distinct CPUs of reactors and aliens.
    pub allocated: Option<f64>,
    /// Of the kernel CPU seconds of all OSD processes.
    pub used: Option<f64>,
    /// Of those less spinning.
    pub busy: Option<f64>,
}

/// The object `carmine`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub plan: Value,
    pub grid: Value,
    pub host: Value,
    pub load: LoadSpec,
    pub osds: Vec<OsdReport>,
    pub window_seconds: f64,
    pub iops: f64,
    /// Client IOPS × replicas of writes, as OSDs see it.
    pub osd_iops: f64,
    pub shared: bool,
    pub in_process: bool,
    pub iops_per_core: PerCore,
    pub osd_cpu_us_per_op: Option<f64>,
    pub machine_cpu_us_per_op: Option<f64>,
    pub client_cores_used: Option<f64>,
    pub hops_per_op: Option<f64>,
    pub device_reads_per_client_read: Option<f64>,
    pub machine: MachineWindow,
    pub devices: Vec<DeviceWindow>,
    pub verdict: Limiter,
    pub verdict_reason: String,
    pub errors: u64,
    pub abandoned: u64,
    pub verify: crate::result::VerifyCounts,
    /// How far behind its schedule an open-loop load ended.
    pub behind_ns: u64,
    pub marks: Vec<String>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0 && part.is_finite()).then(|| part / whole)
}

/// Makes the report of a window.
pub fn report(spec: &LoadSpec, result: &JobResult, window: &Window, context: Context) -> Report {
    let wall = seconds(window.wall_ns);
    let ops = result.ops() as f64;
    let iops = ratio(ops, wall).unwrap_or(0.0);
    let kernel: f64 = window.osds.iter().map(|o| seconds(o.process.cpu_ns)).sum();
    let spin: f64 = window.osds.iter().map(|o| seconds(o.spin_ns())).sum();
    let clocks_known = window.osds.iter().all(|o| !o.reactors.is_empty());
    let evidence = evidence(spec, result, &context, wall);
    let (limiter, verdict_reason) = verdict(window, &evidence);
    let mut marks = context.marks;
    if !clocks_known && !window.osds.is_empty() {
        marks.push("an OSD did not give its clocks: busy, spin, sleep, wait and hops are missing".into());
    }
    marks.extend(noise_marks(window));
    let client_wait = ratio(result.client.wait_ns as f64, result.client.wall_ns as f64).unwrap_or(0.0);
    if client_wait >= NOISE && !context.in_process {
        marks.push(format!(
            "NOISY: a generator thread was without a CPU for {:.0} % of the window",
            client_wait * 100.0
        ));
    }
    if context.in_process {
        marks.push("in-process load: the generator's CPU time is part of the OSD's".into());
    }
    let alone = |figure: Option<f64>| figure.filter(|_| !context.shared);
    let used_cores = ratio(kernel, wall).unwrap_or(0.0);
    let busy_cores = ratio(kernel - spin, wall).filter(|_| clocks_known).unwrap_or(0.0);
    Report {
        plan: context.plan,
        grid: context.grid,
        host: context.host,
        load: spec.clone(),
        osds: window.osds.iter().map(osd_report).collect(),
        window_seconds: wall,
        iops,
        osd_iops: ratio(
            result.read.ops as f64 + result.write.ops as f64 * f64::from(context.size.max(1)),
            wall,
        )
        .unwrap_or(0.0),
        shared: context.shared,
        in_process: context.in_process,
        iops_per_core: PerCore {
            allocated: alone(ratio(iops, context.allocated_cpus as f64)),
            used: alone(ratio(iops, used_cores)),
            busy: alone(ratio(iops, busy_cores)),
        },
        osd_cpu_us_per_op: ratio(kernel * 1e6, ops),
        machine_cpu_us_per_op: machine_seconds(&window.machine, wall, kernel)
            .and_then(|s| ratio(s * 1e6, ops)),
        client_cores_used: ratio(seconds(window.machine.generator_ns), wall).filter(|_| !context.in_process),
        hops_per_op: hops_per_op(window, ops).filter(|_| clocks_known),
        device_reads_per_client_read: device_reads(spec, window)
            .and_then(|n| ratio(n, result.read.ops as f64)),
        machine: window.machine,
        devices: window.devices.clone(),
        verdict: limiter,
        verdict_reason,
        errors: result.errors,
        abandoned: result.abandoned,
        verify: result.verify.clone(),
        behind_ns: result.behind_ns,
        marks,
    }
}

fn evidence(spec: &LoadSpec, result: &JobResult, context: &Context, wall: f64) -> Evidence {
    // A generator thread that waits for a CPU holds the load back just as one that is busy.
    let client = result.client.busy_ns + result.client.wait_ns;
    let client = ratio(client as f64, result.client.wall_ns as f64);
    Evidence {
        shared: context.shared,
        client_busy: client.filter(|_| !context.in_process),
        depth: spec.depth_total() as f64,
        rate_met: spec.rate_iops.map(|_| seconds(result.behind_ns) <= BEHIND_MAX * wall),
    }
}

/// Busy time of all CPUs less the idle baseline, the generator, the controller and the monitor. It has the OSDs' own CPU
/// time in it: less than most of that means that the baseline did not hold, and the figure is worth nothing.
fn machine_seconds(machine: &MachineWindow, wall: f64, osds: f64) -> Option<f64> {
    let others = machine.idle_baseline_cores * wall + seconds(machine.generator_ns) + seconds(machine.mon_ns);
    let left = seconds(machine.busy_ns) - others;
    (left >= 0.9 * osds).then_some(left)
}

/// What other processes did to the measurement.
fn noise_marks(window: &Window) -> Vec<String> {
    let mut marks = Vec::new();
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let noise = noise(window);
    if noise >= NOISE {
        marks.push(format!(
            "NOISY: reactors were ready but without a CPU for {} of the window",
            percent(noise)
        ));
    }
    let machine = &window.machine;
    if machine.idle_baseline_cores > NOISE * f64::from(machine.cpus.max(1)) {
        let cores = machine.idle_baseline_cores;
        marks.push(format!(
            "NOISY: {cores:.2} of {} cores were busy with other things before the load",
            machine.cpus
        ));
    }
    if machine.steal_ns as f64 > NOISE * window.wall_ns as f64 * f64::from(machine.cpus.max(1)) {
        marks.push(format!("NOISY: the hypervisor took {:.2} CPU seconds away", seconds(machine.steal_ns)));
    }
    marks
}

fn hops_per_op(window: &Window, ops: f64) -> Option<f64> {
    let counted: Option<Vec<u64>> = window.osds.iter().map(|o| o.hopped_ops).collect();
    let hops: u64 = match counted {
        Some(hopped) => hopped.iter().sum(),
        None => window.osds.iter().flat_map(|o| &o.reactors).map(|r| r.hops).sum(),
    };
    ratio(hops as f64, ops)
}

/// The store's own count, or else the kernel's bytes in blocks of the load.
fn device_reads(spec: &LoadSpec, window: &Window) -> Option<f64> {
    if !spec.rw.reads() || window.osds.is_empty() {
        return None;
    }
    let counted: Option<Vec<u64>> = window.osds.iter().map(|o| o.device_reads).collect();
    match counted {
        Some(reads) => Some(reads.iter().sum::<u64>() as f64),
        None => {
            let bytes: u64 = window.osds.iter().map(|o| o.process.device_read_bytes).sum();
            ratio(bytes as f64, spec.bs_bytes as f64)
        }
    }
}

fn osd_report(osd: &OsdWindow) -> OsdReport {
    let sum = |clock: fn(&ReactorWindow) -> u64| seconds(osd.reactors.iter().map(clock).sum());
    OsdReport {
        id: osd.id,
        pid: osd.process.pid,
        cpu_seconds: CpuSeconds {
            busy: sum(|r| r.busy_ns),
            spin: sum(|r| r.spin_ns),
            sleep: sum(|r| r.sleep_ns),
            wait: sum(|r| r.wait_ns),
            alien: seconds(osd.alien_ns()),
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

/// The result as a table for a terminal.
pub fn table(result: &JobResult, report: &Report) -> String {
    let mut text = String::new();
    let way =
        if report.in_process { "in-process".to_owned() } else { format!("route {}", report.load.route) };
    let _ = writeln!(text, "{}, {way}", report.load.summary());
    let _ = writeln!(
        text,
        "{:<6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "IOPS", "MB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "max us", "stddev us"
    );
    for (name, stats) in [("read", &result.read), ("write", &result.write)] {
        if stats.ops > 0 {
            text.push_str(&direction_row(name, stats, report.window_seconds));
        }
    }
    let _ = writeln!(text, "{}", cores_line(report));
    for osd in &report.osds {
        let c = &osd.cpu_seconds;
        let _ = writeln!(
            text,
            "osd.{:<3} CPU s: busy {:.2} spin {:.2} sleep {:.2} wait {:.2} alien {:.2}, kernel total {:.2}; memory {} MiB",
            osd.id,
            c.busy,
            c.spin,
            c.sleep,
            c.wait,
            c.alien,
            c.kernel_total,
            osd.rss_bytes >> 20
        );
    }
    if report.errors > 0 {
        let _ =
            writeln!(text, "errors    {}: {}", report.errors, result.first_error.as_deref().unwrap_or("?"));
    }
    if report.abandoned > 0 {
        let _ = writeln!(text, "abandoned {} operations had no answer 10 s after the end", report.abandoned);
    }
    if report.load.verify || report.load.verify_only {
        let _ = writeln!(
            text,
            "verify    {} blocks checked, {} wrong",
            report.verify.checked, report.verify.mismatches
        );
        report.verify.details.iter().for_each(|detail| text.push_str(&format!("          {detail}\n")));
    }
    let _ = writeln!(text, "verdict   {}: {}", report.verdict, report.verdict_reason);
    report.marks.iter().for_each(|mark| text.push_str(&format!("note      {mark}\n")));
    text
}

fn direction_row(name: &str, stats: &DirStats, wall: f64) -> String {
    let h = &stats.latency_ns;
    let us = |ns: u64| ns as f64 / 1e3;
    format!(
        "{name:<6} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}\n",
        ratio(stats.ops as f64, wall).unwrap_or(0.0),
        ratio(stats.bytes as f64 / 1e6, wall).unwrap_or(0.0),
        h.mean() / 1e3,
        us(h.percentile(50.0)),
        us(h.percentile(99.0)),
        us(h.percentile(99.9)),
        us(h.max()),
        h.stddev() / 1e3,
    )
}

fn cores_line(report: &Report) -> String {
    let show =
        |figure: Option<f64>, digits: usize| figure.map_or_else(|| "-".into(), |n| format!("{n:.digits$}"));
    let cores = if report.shared {
        "IOPS/core SHARED (left out)".to_owned()
    } else {
        let c = &report.iops_per_core;
        format!(
            "IOPS/core allocated {}, used {}, busy {}",
            show(c.allocated, 0),
            show(c.used, 0),
            show(c.busy, 0)
        )
    };
    let mut line = format!(
        "{cores}; CPU us/op machine {}, OSDs {}; client cores {}; hops/op {}",
        show(report.machine_cpu_us_per_op, 1),
        show(report.osd_cpu_us_per_op, 1),
        show(report.client_cores_used, 2),
        show(report.hops_per_op, 2),
    );
    if report.load.rw.reads() {
        let _ = write!(line, "; device reads/read {}", show(report.device_reads_per_client_read, 2));
    }
    let _ = write!(line, "; {:.1} s, bs {}", report.window_seconds, show_bytes(report.load.bs_bytes));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rw;
    use crate::window::{ProcessWindow, ThreadWindow};

    fn case(shared: bool) -> (LoadSpec, JobResult, Window, Context) {
        let spec = LoadSpec { rw: Rw::RandRw, iodepth: 16, ..LoadSpec::default() };
        let mut result = JobResult::default();
        (0..6000).for_each(|n| result.read.record(4096, 100_000, n * 300_000));
        (0..2000).for_each(|n| result.write.record(4096, 300_000, n * 900_000));
        result.client.busy_ns = 500_000_000;
        result.client.wall_ns = 2_000_000_000;
        let reactor = ReactorWindow {
            tid: 7,
            busy_ns: 1_000_000_000,
            spin_ns: 400_000_000,
            sleep_ns: 500_000_000,
            wait_ns: 100_000_000,
            hops: 4000,
            ..ReactorWindow::default()
        };
        let threads = vec![
            ThreadWindow { tid: 7, cpu_ns: 1_400_000_000, ..ThreadWindow::default() },
            ThreadWindow { tid: 8, cpu_ns: 200_000_000, ..ThreadWindow::default() },
        ];
        let process = ProcessWindow { pid: 42, cpu_ns: 1_600_000_000, threads, ..ProcessWindow::default() };
        let osd =
            OsdWindow { process, reactors: vec![reactor], device_reads: Some(3000), ..OsdWindow::default() };
        let machine = MachineWindow {
            cpus: 2,
            busy_ns: 3_000_000_000,
            idle_baseline_cores: 0.05,
            generator_ns: 800_000_000,
            mon_ns: 100_000_000,
            ..MachineWindow::default()
        };
        let window = Window { wall_ns: 2_000_000_000, osds: vec![osd], machine, devices: Vec::new() };
        (spec, result, window, Context { shared, allocated_cpus: 1, size: 3, ..Context::default() })
    }

    #[test]
    fn figures_add_up() {
        let (spec, result, window, context) = case(false);
        let r = report(&spec, &result, &window, context);
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() / b - 1.0).abs() < 1e-9, "{a:?} against {b}");
        near(Some(r.iops), 4000.0);
        near(Some(r.osd_iops), 6000.0);
        near(r.iops_per_core.allocated, 4000.0);
        near(r.iops_per_core.used, 5000.0);
        near(r.iops_per_core.busy, 4000.0 / 0.6);
        near(r.osd_cpu_us_per_op, 200.0);
        // (3.0 − 0.05 × 2 − 0.8 − 0.1) s ÷ 8000
        near(r.machine_cpu_us_per_op, 250.0);
        near(r.client_cores_used, 0.4);
        near(r.hops_per_op, 0.5);
        near(r.device_reads_per_client_read, 0.5);
        near(Some(r.osds[0].cpu_seconds.alien), 0.2);
        assert_eq!(r.verdict, Limiter::Qd, "{}", r.verdict_reason);
    }

    #[test]
    fn shared_cpus_have_no_figures_per_core() {
        let (spec, result, window, context) = case(true);
        let r = report(&spec, &result, &window, context);
        let json = result_json(&spec, &result, &r, 0);
        assert_eq!(json["carmine"]["iops_per_core"], json!({"allocated": null, "used": null, "busy": null}));
        assert_eq!(json["carmine"]["verdict"], "SHARED");
        assert!(table(&result, &r).contains("SHARED (left out)"));
    }

    #[test]
    fn result_has_every_field_of_the_issue() {
        let (spec, result, window, context) = case(false);
        let r = report(&spec, &result, &window, context);
        let json = result_json(&spec, &result, &r, 1);
        for field in [
            "plan",
            "grid",
            "osds",
            "window_seconds",
            "iops_per_core",
            "osd_cpu_us_per_op",
            "machine_cpu_us_per_op",
            "client_cores_used",
            "hops_per_op",
            "verdict",
        ] {
            assert!(json["carmine"].get(field).is_some(), "no {field}");
        }
        let osd = &json["carmine"]["osds"][0];
        assert_eq!((&osd["pid"], &osd["cpu_seconds"]["kernel_total"]), (&json!(42), &json!(1.6)));
        assert!(json["jobs"][0]["read"]["clat_ns"]["percentile"]["99.000000"].is_u64());
        let back: Report = serde_json::from_value(json["carmine"].clone()).unwrap();
        assert_eq!(back.osds, r.osds);
        let text = table(&result, &r);
        assert!(text.contains("verdict   QD") && text.contains("IOPS/core allocated 4000"), "{text}");
    }

    #[test]
    fn noise_is_marked_and_spoils_the_machines_figure() {
        let (spec, result, mut window, context) = case(false);
        window.machine.idle_baseline_cores = 1.9;
        window.osds[0].reactors[0].wait_ns = 900_000_000;
        let r = report(&spec, &result, &window, context);
        assert_eq!(r.machine_cpu_us_per_op, None);
        let noisy = |part: &str| r.marks.iter().any(|m| m.starts_with("NOISY") && m.contains(part));
        assert!(noisy("45 % of the window") && noisy("1.90 of 2 cores"), "{:?}", r.marks);
    }

    #[test]
    fn without_clocks_it_says_so() {
        let (spec, result, mut window, context) = case(false);
        window.osds[0].reactors.clear();
        let r = report(&spec, &result, &window, context);
        assert_eq!((r.iops_per_core.busy, r.hops_per_op), (None, None));
        assert!(r.marks.iter().any(|m| m.contains("clocks")));
    }
}
