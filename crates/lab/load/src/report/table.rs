//! The result as a table for a terminal.

use std::fmt::Write as _;

use carmine_types::counted;

use super::{Report, ratio};
use crate::drive::StoreFacts;
use crate::profile::Profile;
use crate::result::{DirStats, JobResult};
use crate::spec::show_bytes;
use crate::words::word;

/// Functions of a flamegraph that are named.
const HOTTEST: usize = 3;

/// The result as a table for a terminal.
pub fn table(result: &JobResult, report: &Report) -> String {
    let mut text = String::new();
    let way = if report.setting.in_process {
        "in-process".to_owned()
    } else {
        format!("route {}", report.load.route)
    };
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
    let _ = writeln!(text, "{}", raw_line(report));
    StoreFacts::lines(&report.setting.stores).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    for osd in &report.osds {
        let c = &osd.cpu_seconds;
        let show = |seconds: Option<f64>| seconds.map_or_else(|| "n/a".into(), |s| format!("{s:.2}"));
        let [busy, spin, sleep, wait, alien] = [c.busy, c.spin, c.sleep, c.wait, c.alien].map(show);
        let [feeder, flush, compaction] = [c.rocksdb_feeder, c.rocksdb_flush, c.rocksdb_compaction].map(show);
        let _ = writeln!(
            text,
            "osd.{:<3} CPU s: busy {busy} spin {spin} sleep {sleep} wait {wait} alien {alien} (RocksDB: feeder {feeder} \
             flush {flush} compaction {compaction}), kernel total {:.2}; memory {} MiB",
            osd.id,
            c.kernel_total,
            osd.rss_bytes >> 20
        );
    }
    if report.errors > 0 {
        let _ =
            writeln!(text, "errors    {}: {}", report.errors, result.first_error.as_deref().unwrap_or("?"));
    }
    if report.abandoned > 0 {
        let abandoned = counted(report.abandoned as usize, "operation");
        let _ = writeln!(text, "abandoned {abandoned} had no answer 10 s after the end");
    }
    if report.load.verify || report.load.verify_only {
        let _ = writeln!(
            text,
            "verify    {} checked, {} wrong",
            counted(report.verify.checked as usize, "block"),
            report.verify.mismatches
        );
        report.verify.details.iter().for_each(|detail| text.push_str(&format!("          {detail}\n")));
    }
    if let Some(profile) = &report.profile {
        text.push_str(&profile_line(profile));
    }
    let _ = writeln!(text, "verdict   {}: {}", report.verdict, report.verdict_reason);
    let _ = writeln!(text, "try next  {}", report.verdict_next);
    for mark in &report.marks {
        let known = mark.split_once(':').and_then(|(name, _)| word(name)).is_some();
        let _ = writeln!(text, "{}      {mark}", if known { "mark" } else { "note" });
    }
    text
}

fn profile_line(profile: &Profile) -> String {
    let hot = profile.hottest.iter().take(HOTTEST).map(|f| format!("{} {:.0} %", f.name, f.percent));
    let hot = hot.collect::<Vec<_>>().join(", ");
    match (&profile.svg, &profile.missing) {
        (Some(svg), _) => {
            format!("flames    {svg}: {} of {} stacks; most: {hot}\n", profile.mode, profile.stacks)
        }
        (None, why) => format!("flames    no flamegraph: {}\n", why.as_deref().unwrap_or("it was not made")),
    }
}

/// Amplification and baselines.
fn raw_line(report: &Report) -> String {
    format!(
        "bytes per client byte: device {}, wire {}; IOPS/drive {}; percent of the raw device {}, of the raw messenger {}; flush mode {}{}",
        show(report.device_bytes_per_client_byte, 2),
        show(report.wire_bytes_per_client_byte, 2),
        show(report.iops_per_drive, 0),
        show(report.percent_of_device, 0),
        show(report.percent_of_messenger, 0),
        report.setting.flush_mode,
        if report.setting.flush_forced { ", forced" } else { "" },
    )
}

/// Latencies that are not known (a generator without a histogram) are dashes.
fn direction_row(name: &str, stats: &DirStats, wall: f64) -> String {
    let h = &stats.latency_ns;
    let rates =
        [ratio(stats.ops as f64, wall).unwrap_or(0.0), ratio(stats.bytes as f64 / 1e6, wall).unwrap_or(0.0)];
    let ns = |value: u64| value as f64;
    let latencies = [
        h.mean(),
        ns(h.percentile(50.0)),
        ns(h.percentile(99.0)),
        ns(h.percentile(99.9)),
        ns(h.max()),
        h.stddev(),
    ];
    let mut row = format!("{name:<6} {:>10.0} {:>9.1}", rates[0], rates[1]);
    for latency in latencies {
        let text = if h.is_empty() { "-".to_owned() } else { format!("{:.1}", latency / 1e3) };
        let _ = write!(row, " {text:>9}");
    }
    row.push('\n');
    row
}

/// A figure, or a dash if it is not known.
fn show(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |n| format!("{n:.digits$}"))
}

fn cores_line(report: &Report) -> String {
    let cores = if report.setting.shared {
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
        "{cores}; CPU us/op OSDs {}, machine without the client {}; client cores {}; hops/op {}",
        show(report.osd_cpu_us_per_op, 1),
        show(report.machine_cpu_us_per_op, 1),
        show(report.client_cores_used, 2),
        show(report.hops_per_op, 2),
    );
    if report.load.rw.reads() {
        let _ = write!(line, "; device reads/read {}", show(report.device_reads_per_client_read, 2));
    }
    // Absent, not zero, where no hardware counts.
    if let Some(cycles) = report.cycles_per_op {
        let _ = write!(line, "; cycles/op {cycles:.0}");
    }
    if let Some(instructions) = report.instructions_per_op {
        let _ = write!(line, "; instructions/op {instructions:.0}");
    }
    if let Some(seconds) = report.throttled_seconds {
        let _ = write!(line, "; throttled {seconds:.2} s");
    }
    if let Some(drain) = report.drain {
        let _ = write!(line, "; after the window {:.2} CPU s", drain.cpu_ns as f64 / 1e9);
    }
    let _ = write!(line, "; {:.1} s, bs {}", report.window_seconds, show_bytes(report.load.bs_bytes));
    line
}
