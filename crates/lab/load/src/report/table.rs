//! The result as a table for a terminal.

use std::fmt::Write as _;

use carmine_types::counted;

use super::{Report, ratio, seconds};
use crate::drive::StoreFacts;
use crate::profile::Profile;
use crate::result::{DirStats, JobResult};
use crate::spec::show_bytes;
use crate::words::word;

/// Functions of a flamegraph that are named.
const HOTTEST: usize = 3;

/// The result as a table for a terminal.
pub fn table(result: &JobResult, report: &Report) -> String {
    let way = if report.setting.in_process { String::new() } else { "route ".to_owned() } + &report.route;
    let mut text = format!(
        "{}, {way}\n{:<6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        report.load.summary(),
        "",
        "IOPS",
        "MB/s",
        "mean us",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "stddev us"
    );
    for (name, stats) in [("read", &result.read), ("write", &result.write)] {
        if stats.ops > 0 {
            text += &direction_row(name, stats, report.window_seconds);
        }
    }
    let mut line = |line: &str| {
        text += line;
        text.push('\n');
    };
    line(&cores_line(report));
    line(&raw_line(report));
    StoreFacts::lines(&report.setting.stores).iter().for_each(|store| line(store));
    for osd in &report.osds {
        let c = &osd.cpu_seconds;
        let show = |seconds: Option<f64>| seconds.map_or_else(|| "n/a".into(), |s| format!("{s:.2}"));
        let [busy, spin, sleep, wait, alien] = [c.busy, c.spin, c.sleep, c.wait, c.alien].map(show);
        let [feeder, flush, compaction] = [c.rocksdb_feeder, c.rocksdb_flush, c.rocksdb_compaction].map(show);
        let (id, total, mib) = (osd.id, c.kernel_total, osd.rss_bytes >> 20);
        line(&format!(
            "osd.{id:<3} CPU s: busy {busy} spin {spin} sleep {sleep} wait {wait} alien {alien} (RocksDB: feeder {feeder} \
             flush {flush} compaction {compaction}), kernel total {total:.2}; memory {mib} MiB"
        ));
    }
    if report.errors > 0 {
        line(&format!("errors    {}: {}", report.errors, result.first_error.as_deref().unwrap_or("?")));
    }
    if report.abandoned > 0 {
        let abandoned = counted(report.abandoned as usize, "operation");
        line(&format!("abandoned {abandoned} had no answer 10 s after the end"));
    }
    if report.load.verifies() {
        let blocks = counted(report.verify.checked as usize, "block");
        line(&format!("verify    {blocks} checked, {} wrong", report.verify.mismatches));
        report.verify.details.iter().for_each(|detail| line(&format!("          {detail}")));
    }
    report.profile.iter().for_each(|profile| line(&profile_line(profile)));
    line(&format!("verdict   {}: {}", report.verdict, report.verdict_reason));
    line(&format!("try next  {}", report.verdict_next));
    for mark in &report.marks {
        let known = mark.split_once(':').and_then(|(name, _)| word(name)).is_some();
        line(&format!("{}      {mark}", if known { "mark" } else { "note" }));
    }
    text
}

fn profile_line(profile: &Profile) -> String {
    let hot = profile.hottest.iter().take(HOTTEST).map(|f| format!("{} {:.0} %", f.name, f.percent));
    let hot = hot.collect::<Vec<_>>().join(", ");
    match (&profile.svg, &profile.missing) {
        (Some(svg), _) => {
            format!("flames    {svg}: {} of {} stacks; most: {hot}", profile.mode, profile.stacks)
        }
        (None, why) => format!("flames    no flamegraph: {}", why.as_deref().unwrap_or("it was not made")),
    }
}

/// Latencies that are not known (a generator without a histogram) are dashes.
fn direction_row(name: &str, stats: &DirStats, wall: f64) -> String {
    let h = &stats.latency_ns;
    let rate = |n: f64| ratio(n, wall).unwrap_or(0.0);
    let mut row =
        format!("{name:<6} {:>10.0} {:>9.1}", rate(stats.ops as f64), rate(stats.bytes as f64 / 1e6));
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| h.percentile(percent) as f64);
    for latency_ns in [h.mean(), p50, p99, p999, h.max() as f64, h.stddev()] {
        let _ = write!(row, " {:>9}", show(Some(latency_ns / 1e3).filter(|_| !h.is_empty()), 1));
    }
    row + "\n"
}

/// A figure, or a dash if it is not known.
fn show(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |n| format!("{n:.digits$}"))
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

fn cores_line(report: &Report) -> String {
    let c = &report.iops_per_core;
    let [allocated, used, busy] = [c.allocated, c.used, c.busy].map(|iops| show(iops, 0));
    let cores = match report.setting.shared {
        true => "SHARED (left out)".to_owned(),
        false => format!("allocated {allocated}, used {used}, busy {busy}"),
    };
    let mut line = format!(
        "IOPS/core {cores}; CPU us/op OSDs {}, machine without the client {}; client cores {}; hops/op {}",
        show(report.osd_cpu_us_per_op, 1),
        show(report.machine_cpu_us_per_op, 1),
        show(report.client_cores_used, 2),
        show(report.hops_per_op, 2),
    );
    if report.load.rw.reads() {
        let _ = write!(line, "; device reads/read {}", show(report.device_reads_per_client_read, 2));
    }
    // Absent, not zero, where nothing counts them.
    for (name, figure, digits, unit) in [
        ("cycles/op", report.cycles_per_op, 0, ""),
        ("instructions/op", report.instructions_per_op, 0, ""),
        ("throttled", report.throttled_seconds, 2, " s"),
        ("after the window", report.drain.map(|drain| seconds(drain.cpu_ns)), 2, " CPU s"),
    ] {
        if let Some(figure) = figure {
            let _ = write!(line, "; {name} {figure:.digits$}{unit}");
        }
    }
    line + &format!("; {:.1} s, bs {}", report.window_seconds, show_bytes(report.load.bs_bytes))
}
