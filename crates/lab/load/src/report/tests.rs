use super::*;
use crate::profile::{HotFrame, Profile, ProfileMode};
use crate::spec::Rw;
use crate::window::{
    CounterWindow, DrainWindow, GeneratorWindow, MachineWindow, ProcessWindow, ThreadWindow,
};

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
        ThreadWindow { tid: 8, cpu_ns: 100_000_000, ..ThreadWindow::default() },
        ThreadWindow { tid: 9, name: "rocksdb:high".into(), cpu_ns: 30_000_000, ..ThreadWindow::default() },
        ThreadWindow { tid: 10, name: "rocksdb:low".into(), cpu_ns: 70_000_000, ..ThreadWindow::default() },
    ];
    let process = ProcessWindow { pid: 42, cpu_ns: 1_600_000_000, threads, ..ProcessWindow::default() };
    let osd = OsdWindow {
        process,
        reactors: vec![reactor],
        device_reads: Some(3000),
        feeder_ns: Some(40_000_000),
        ..OsdWindow::default()
    };
    let machine = MachineWindow {
        cpus: 2,
        busy_ns: 3_000_000_000,
        idle_baseline_cores: 0.05,
        generator_ns: 800_000_000,
        mon_ns: 100_000_000,
        ..MachineWindow::default()
    };
    let window = Window { wall_ns: 2_000_000_000, osds: vec![osd], machine, ..Window::default() };
    (
        spec,
        result,
        window,
        Context {
            setting: Setting { shared, ..Setting::default() },
            allocated_cores: 1.0,
            size: 3,
            ..Context::default()
        },
    )
}

/// The terminal, fio's JSON and `carmine table` give the same figure, whichever clock a window has.
#[test]
fn rates_are_of_the_generators_window() {
    let (spec, result, window, context) = case(false);
    let seconds = 1.998;
    let report = report(&spec, &result, &window, Context { client_seconds: Some(seconds), ..context });
    let text = table(&spec, &result, &report);
    let told = fio_json::jobs(&spec, &result, seconds, &GeneratorWindow::default());
    let iops = format!("{:.0}", told[0]["read"]["iops"].as_f64().unwrap());
    assert!(text.lines().any(|line| line.starts_with("read") && line.contains(&iops)), "{iops}: {text}");
    assert_eq!(report.iops.round(), (8000.0_f64 / seconds).round());
}

#[test]
fn the_terminal_says_whether_an_offered_rate_was_met() {
    let (mut spec, result, window, context) = case(false);
    let mut line = |offered: f64, behind_ns: u64| {
        spec.rate_iops = Some(offered);
        let result = JobResult { behind_ns, ..result.clone() };
        let text = table(&spec, &result, &report(&spec, &result, &window, context.clone()));
        text.lines().find(|line| line.starts_with("rate ")).unwrap_or_default().to_owned()
    };
    assert_eq!(line(4000.0, 0), "rate      4000 of 4000 IOPS offered (100 %), met");
    let late = "rate      4000 of 8000 IOPS offered (50 %), NOT MET: 1.0 s behind schedule at the end";
    assert_eq!(line(8000.0, 1_000_000_000), late);
    assert_eq!(line(8000.0, 0), "rate      4000 of 8000 IOPS offered (50 %), NOT MET");
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
    let cpu = r.osds[0].cpu_seconds;
    near(cpu.alien, 0.2);
    near(cpu.rocksdb_feeder, 0.04);
    near(cpu.rocksdb_flush, 0.03);
    near(cpu.rocksdb_compaction, 0.07);
    assert_eq!(r.verdict.as_deref(), Some("QD"), "{}", r.verdict_reason);
}

#[test]
fn what_is_put_off_counts_in_every_figure_of_cpu_time() {
    let (spec, result, mut window, context) = case(false);
    window.drain = Some(DrainWindow { wall_ns: 900_000_000, cpu_ns: 400_000_000, finished: true });
    let r = report(&spec, &result, &window, context);
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() / b - 1.0).abs() < 1e-9, "{a:?} against {b}");
    // 8,000 operations took 1.6 s in the window and 0.4 s after it; 0.4 s were spinning.
    near(r.osd_cpu_us_per_op, 250.0);
    near(r.iops_per_core.used, 4000.0);
    near(r.iops_per_core.busy, 5000.0);
    near(r.machine_cpu_us_per_op, 300.0);
    near(r.iops_per_core.used, 1e6 / r.osd_cpu_us_per_op.unwrap());
}

#[test]
fn shared_cpus_have_no_figures_per_core() {
    let (spec, result, window, context) = case(true);
    let r = report(&spec, &result, &window, context);
    let json = result_json(&spec, &result, &r, 0);
    assert_eq!(json["carmine"]["iops_per_core"], json!({"allocated": null, "used": null, "busy": null}));
    assert_eq!(json["carmine"]["verdict"], "SHARED");
    assert!(table(&spec, &result, &r).contains("SHARED (left out)"));
}

/// Keys that readers of fio's results use: CBT, fio-plot, ceph-bench scripts. `*` stands for `read` and `write`.
const READERS: &[&str] = &[
    "/fio version",
    "/timestamp",
    "/timestamp_ms",
    "/time",
    "/global options/bs",
    "/global options/rw",
    "/global options/iodepth",
    "/global options/numjobs",
    "/jobs/0/jobname",
    "/jobs/0/error",
    "/jobs/0/elapsed",
    "/jobs/0/job options/bs",
    "/jobs/0/job_runtime",
    "/jobs/0/usr_cpu",
    "/jobs/0/sys_cpu",
    "/jobs/0/ctx",
    "/jobs/0/latency_us/1000",
    "/jobs/0/latency_ms/>=2000",
    "/jobs/0/trim/iops",
    "/jobs/0/sync/lat_ns/mean",
    "/jobs/0/*/io_bytes",
    "/jobs/0/*/io_kbytes",
    "/jobs/0/*/bw",
    "/jobs/0/*/bw_bytes",
    "/jobs/0/*/bw_min",
    "/jobs/0/*/bw_max",
    "/jobs/0/*/bw_agg",
    "/jobs/0/*/bw_mean",
    "/jobs/0/*/bw_dev",
    "/jobs/0/*/bw_samples",
    "/jobs/0/*/iops",
    "/jobs/0/*/iops_min",
    "/jobs/0/*/iops_max",
    "/jobs/0/*/iops_mean",
    "/jobs/0/*/iops_stddev",
    "/jobs/0/*/iops_samples",
    "/jobs/0/*/runtime",
    "/jobs/0/*/total_ios",
    "/jobs/0/*/lat_ns/mean",
    "/jobs/0/*/slat_ns/mean",
    "/jobs/0/*/clat_ns/stddev",
    "/jobs/0/*/clat_ns/percentile/99.990000",
];

#[test]
fn readers_of_fios_results_find_their_keys() {
    let (spec, result, mut window, context) = case(false);
    window.machine.generator =
        GeneratorWindow { user_ns: 500_000_000, system_ns: 300_000_000, switches: 9, throttled_ns: None };
    let json = result_json(&spec, &result, &report(&spec, &result, &window, context), 1_795_893_535_473);
    for key in READERS.iter().flat_map(|key| ["read", "write"].map(|way| key.replace('*', way))) {
        assert!(json.pointer(&key).is_some_and(|value| !value.is_null()), "no {key} in {json:#}");
    }
    assert_eq!(
        (&json["timestamp"], &json["timestamp_ms"]),
        (&json!(1_795_893_535), &json!(1_795_893_535_473_u64))
    );
    let job = &json["jobs"][0];
    assert_eq!((&job["usr_cpu"], &job["sys_cpu"], &job["ctx"]), (&json!(25.0), &json!(15.0), &json!(9)));
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
    let text = table(&spec, &result, &r);
    assert!(
        text.contains("verdict   QD")
            && text.contains("try next  raise --iodepth")
            && text.contains("mark      SMOKE")
    );
    assert_eq!(json["carmine"]["verdict_next"], "raise --iodepth or --numjobs");
    assert!(text.contains("IOPS/core allocated 4000"), "{text}");
}

#[test]
fn a_depth_that_was_not_in_flight_is_marked() {
    let (mut spec, mut result, window, _) = case(false);
    let mut little = |spec: &LoadSpec, latency_ns: u64| {
        for stats in [&mut result.read, &mut result.write] {
            stats.latency_ns.clear();
            stats.latency_ns.record_n(latency_ns, stats.ops);
        }
        let r = report(spec, &result, &window, case(false).3);
        (r.ops_in_flight.unwrap(), r.marks.into_iter().find(|mark| mark.starts_with("LITTLE")))
    };
    // 4,000 IOPS of 4 ms each.
    spec.iodepth = 16;
    spec.numjobs = 1;
    let (in_flight, mark) = little(&spec, 4_000_000);
    assert!((in_flight / 16.0 - 1.0).abs() < 0.01 && mark.is_none(), "{in_flight}, {mark:?}");
    let (_, mark) = little(&spec, 400_000);
    assert!(mark.is_some_and(|mark| mark.contains("is 1.6 operations in flight, not the 16")));
    let (_, mark) = little(&spec, 8_000_000);
    assert!(mark.is_some_and(|mark| mark.contains("not measured by the same clock")));
    spec.rate_iops = Some(4000.0);
    assert_eq!(little(&spec, 400_000).1, None, "an open loop has no depth to keep");
}

#[test]
fn noise_is_marked_and_spoils_the_machines_figure() {
    let (spec, result, mut window, context) = case(false);
    window.machine.idle_baseline_cores = 1.9;
    window.osds[0].reactors[0].wait_ns = 900_000_000;
    let r = report(&spec, &result, &window, context);
    assert_eq!(r.machine_cpu_us_per_op, None);
    let noisy = |part: &str| r.marks.iter().any(|m| m.starts_with("NOISY") && m.contains(part));
    assert!(noisy("35 % of the window") && noisy("1.90 of 2 CPUs"), "{:?}", r.marks);
}

#[test]
fn without_clocks_it_says_so() {
    let (spec, result, mut window, context) = case(false);
    window.osds[0].reactors.clear();
    let r = report(&spec, &result, &window, context);
    assert_eq!((r.iops_per_core.busy, r.hops_per_op), (None, None));
    let cpu = r.osds[0].cpu_seconds;
    assert_eq!((cpu.busy, cpu.alien, cpu.kernel_total), (None, None, 1.6), "unknown is not zero");
    assert!(
        table(&spec, &result, &r).contains("busy n/a")
            && table(&spec, &result, &r).contains("kernel total 1.60")
    );
    assert!(r.marks.iter().any(|m| m.contains("clocks")));
}

#[test]
fn a_result_carries_its_latencies_route_and_amplification() {
    let (spec, result, mut window, context) = case(false);
    window.osds[0].process.device_write_bytes = 8000 * 4096 * 2;
    window.osds[0].wire_bytes = Some(8000 * 4096);
    let mut context = Context { drives: Some(2), ..context };
    context.setting.flush_mode = "flush".into();
    let r = report(&spec, &result, &window, context.clone());
    assert_eq!((r.device_bytes_per_client_byte, r.wire_bytes_per_client_byte), (Some(2.0), Some(1.0)));
    assert_eq!(
        (r.iops_per_drive, r.route.as_str(), r.setting.flush_mode.as_str()),
        (Some(2000.0), "direct", "flush")
    );
    assert_eq!(r.latency_histogram.read.map(|h| h.count), Some(6000));
    assert!(r.marks.iter().any(|m| m.starts_with("SMOKE")) && !r.above_baseline);
    let memory = report(&spec, &result, &window, Context { drives: None, ..context });
    assert_eq!((memory.device_bytes_per_client_byte, memory.iops_per_drive), (None, None));
}

#[test]
fn more_than_the_raw_device_is_flagged() {
    let (mut spec, result, window, context) = case(false);
    spec.rw = Rw::RandRead;
    let device = crate::baseline::RawFigures {
        iops: 1000.0,
        bw_bytes: 4_096_000.0,
        mean_ns: 1e5,
        p99_ns: 1,
        bs_bytes: 4096,
        iodepth: 16,
        rw: Rw::RandRead,
        flush_mode: "none".into(),
        drive: "vda".into(),
        ..crate::baseline::RawFigures::default()
    };
    let baseline = Some(crate::baseline::Baseline { device: Some(device), ..Default::default() });
    let mut context = Context { drives: Some(1), ..context };
    context.setting.baseline = baseline;
    let r = report(&spec, &result, &window, context);
    assert_eq!(r.percent_of_device, Some(600.0));
    assert!(
        r.above_baseline && r.marks.iter().any(|m| m.starts_with("ABOVE") && m.contains("cache")),
        "{:?}",
        r.marks
    );
}

#[test]
fn counters_are_absent_where_nothing_counts() {
    let (spec, result, mut window, context) = case(false);
    let none = report(&spec, &result, &window, context.clone());
    let json = result_json(&spec, &result, &none, 0);
    for field in ["cycles_per_op", "instructions_per_op", "profile"] {
        assert!(json["carmine"].get(field).is_none(), "{field} is neither zero nor null");
    }
    let back: Report = serde_json::from_value(json["carmine"].clone()).unwrap();
    assert!(back.cycles_per_op.is_none() && !table(&spec, &result, &none).contains("cycles"));
    window.counters = Some(CounterWindow { cycles: Some(80_000_000), instructions: None, user_only: true });
    let some = report(&spec, &result, &window, context);
    assert_eq!((some.cycles_per_op, some.instructions_per_op), (Some(10_000.0), None));
    let text = table(&spec, &result, &some);
    assert!(text.contains("cycles/op 10000;") && !text.contains("instructions/op"), "{text}");
    assert!(some.marks.iter().any(|mark| mark.contains("user mode")), "{:?}", some.marks);
}

#[test]
fn a_flamegraph_is_named_or_why_there_is_none() {
    let (spec, result, window, context) = case(false);
    let mut r = report(&spec, &result, &window, context);
    let hottest = vec![HotFrame { name: "crc32c".into(), percent: 12.4 }];
    let svg = Some("a.oncpu.svg".to_owned());
    r.profile = Some(Profile {
        mode: ProfileMode::OnCpu,
        svg,
        missing: None,
        stacks: 7,
        hottest,
        stages: Vec::new(),
    });
    assert!(table(&spec, &result, &r).contains("a.oncpu.svg: oncpu of 7 stacks; most: crc32c 12 %"));
    r.profile = Some(Profile::missing(ProfileMode::OffCpu, "perf is not installed".into()));
    assert!(table(&spec, &result, &r).contains("no flamegraph: perf is not installed"));
}

#[test]
fn guests_that_work_on_a_reactors_cpu_share_it() {
    let (spec, result, mut window, mut context) = case(false);
    context.setting.in_process = true;
    window.machine.generator_ns = 10_000_000;
    window.machine.mon_ns = 10_000_000;
    let quiet = report(&spec, &result, &window, context.clone());
    assert!(!quiet.setting.shared && quiet.iops_per_core.allocated.is_some(), "{:?}", quiet.marks);
    window.machine.mon_ns = 100_000_000;
    let busy = report(&spec, &result, &window, context);
    assert!(
        busy.setting.shared
            && busy.iops_per_core.allocated.is_none()
            && busy.verdict.as_deref() == Some("SHARED")
    );
    assert!(busy.marks.iter().any(|m| m.starts_with("SHARED")));
}

#[test]
fn the_host_that_is_the_limit_is_named_and_hosts_add_up() {
    let (spec, mut result, window, mut context) = case(false);
    (result.client.busy_ns, result.client.wall_ns) = (1_900_000_000, 2_000_000_000);
    let host = |host: &str, ops, client_busy| LoadHost {
        host: host.into(),
        ops,
        client_busy: Some(client_busy),
        client_cores_used: client_busy,
        window_seconds: 10.0,
        generator: GeneratorWindow { user_ns: 1_000, ..GeneratorWindow::default() },
        ..LoadHost::default()
    };
    context.load_hosts = vec![host("a:1", 5000, 0.3), host("b:1", 3000, 0.95)];
    let report = report(&spec, &result, &window, context);
    assert_eq!(report.verdict.as_deref(), Some("CLIENT"));
    assert!(report.verdict_reason.contains("thread of load host b:1 was busy"), "{}", report.verdict_reason);
    let sum: f64 = report.load_hosts.iter().map(|host| host.iops).sum();
    assert!((sum - report.iops).abs() < 1e-6 && (report.client_cores_used.unwrap() - 1.25).abs() < 1e-9);
    assert_eq!(report.generator().user_ns, 2_000);
    let text = table(&spec, &result, &report);
    assert!(text.contains("host      b:1: 1500 IOPS"), "{text}");
    let read: Report = serde_json::from_value(json!(report)).unwrap();
    assert_eq!(read.load_hosts, report.load_hosts);
}
