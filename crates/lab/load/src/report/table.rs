//! The result as a table for a terminal.

use std::fmt::Display;

use carmine_types::counted;

use super::{OsdReport, Recovery, Report, is_on_schedule, ratio, seconds};
use crate::drive::StoreFacts;
use crate::hosts::LoadHost;
use crate::profile::Profile;
use crate::result::{DirStats, JobResult};
use crate::spec::LoadSpec;
use crate::words::word;

/// Functions of a flamegraph that are named.
const HOTTEST: usize = 3;

/// Less than this part of an offered rate does not meet it; random arrivals alone may be some percent fewer.
const RATE_MIN: f64 = 0.95;

/// The result as a table for a terminal.
pub fn table(spec: &LoadSpec, result: &JobResult, report: &Report) -> String {
    let way = if report.setting.in_process { "" } else { "route " };
    let columns = ["IOPS", "MB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "max us", "stddev us"];
    let mut lines = vec![format!("{}, {way}{}", spec.summary(), report.route), row("", columns)];
    for (name, stats) in [("read", &result.read), ("write", &result.write)] {
        lines.extend((stats.ops > 0).then(|| row(name, direction(stats, report.client_seconds))));
    }
    lines.extend(spec.rate_iops.map(|offered| rate_line(offered, report)));
    lines.extend([cores_line(spec, report), raw_line(report)]);
    lines.extend(StoreFacts::lines(&report.setting.stores));
    let origin = &report.setting.origin;
    lines.extend(origin.is_known().then(|| format!("from      {origin}, {}", origin.started())));
    lines.extend(report.load_hosts.iter().map(LoadHost::line));
    lines.extend(report.osds.iter().map(osd_line));
    lines.extend(
        report
            .longest_pause_ms
            .map(|ms| format!("pause     {ms:.1} ms at most without an acknowledged operation")),
    );
    lines.extend(report.recovery.map(recovery_line));
    if report.errors > 0 {
        lines.push(format!("errors    {}: {}", report.errors, result.first_error.as_deref().unwrap_or("?")));
    }
    if report.abandoned > 0 {
        let abandoned = counted(report.abandoned as usize, "operation");
        lines.push(format!("abandoned {abandoned} had no answer 10 s after the end"));
    }
    if spec.verifies() {
        let blocks = counted(report.verify.checked as usize, "block");
        lines.push(format!("verify    {blocks} checked, {} wrong", report.verify.mismatches));
        lines.extend(report.verify.details.iter().map(|detail| format!("          {detail}")));
    }
    lines.extend(report.stages.iter().flat_map(|stages| stages.lines()));
    lines.extend(report.profile.iter().map(profile_line));
    lines.extend(
        report.verdict.as_ref().map(|limiter| format!("verdict   {limiter}: {}", report.verdict_reason)),
    );
    lines.push(format!("try next  {}", report.verdict_next));
    lines.extend(report.marks.iter().map(|mark| {
        let is_known = mark.split_once(':').and_then(|(name, _)| word(name)).is_some();
        format!("{}      {mark}", if is_known { "mark" } else { "note" })
    }));
    lines.join("\n") + "\n"
}

/// The rate that was offered, and whether it was met.
fn rate_line(offered: f64, report: &Report) -> String {
    let part = ratio(report.iops, offered).unwrap_or(0.0);
    // A stock tool does not say how far behind its schedule it is.
    let met = match is_on_schedule(report.behind_ns, report.window_seconds) {
        true if part >= RATE_MIN => "met".to_owned(),
        true => "NOT MET".to_owned(),
        false => format!("NOT MET: {:.1} s behind schedule at the end", seconds(report.behind_ns)),
    };
    format!("rate      {:.0} of {offered:.0} IOPS offered ({:.0} %), {met}", report.iops, part * 100.0)
}

fn recovery_line(recovery: Recovery) -> String {
    let Recovery { osd_out, clean_s, p99_ns, p99_after_ns } = recovery;
    let ms = |ns: Option<f64>| show(ns.map(|ns| ns / 1e6), 2);
    let clean = match clean_s {
        Some(seconds) => format!("all PGs clean after {seconds:.1} s"),
        None => "not all PGs clean within the window".to_owned(),
    };
    let (until, after) = (ms(p99_ns), ms(p99_after_ns));
    format!("recovery  osd.{osd_out} out: {clean}; p99 {until} ms until then, {after} ms after it")
}

/// The work of an OSD, as a line.
pub fn osd_line(osd: &OsdReport) -> String {
    let (c, id, mib) = (&osd.cpu_seconds, osd.id, osd.rss_bytes >> 20);
    let show = |seconds: Option<f64>| seconds.map_or_else(|| "n/a".into(), |s| format!("{s:.2}"));
    let [busy, spin, sleep, wait, alien] = [c.busy, c.spin, c.sleep, c.wait, c.alien].map(show);
    let [feeder, flush, compaction] = [c.rocksdb_feeder, c.rocksdb_flush, c.rocksdb_compaction].map(show);
    format!(
        "osd.{id:<3} CPU s: busy {busy} spin {spin} sleep {sleep} wait {wait} alien {alien} (RocksDB: feeder {feeder} \
         flush {flush} compaction {compaction}), kernel total {:.2}; memory {mib} MiB",
        c.kernel_total
    )
}

fn profile_line(profile: &Profile) -> String {
    let (mode, stacks, hot) = (profile.mode, profile.stacks, profile.hot(HOTTEST));
    match (&profile.svg, &profile.missing) {
        (Some(svg), _) => format!("flames    {svg}: {mode} of {stacks} stacks; most: {hot}"),
        (None, why) => format!("flames    no flamegraph: {}", why.as_deref().unwrap_or("it was not made")),
    }
}

fn row(name: &str, columns: [impl Display; 8]) -> String {
    let (iops, others) = (&columns[0], columns[1..].iter().map(|column| format!(" {column:>9}")));
    format!("{name:<6} {iops:>10}{}", others.collect::<String>())
}

/// Latencies that are not known (a generator without a histogram) are dashes.
fn direction(stats: &DirStats, wall: f64) -> [String; 8] {
    let h = &stats.latency_ns;
    let rate = |n: f64| ratio(n, wall).or(Some(0.0));
    let us = |ns: f64| show(Some(ns / 1e3).filter(|_| !h.is_empty()), 1);
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| us(h.percentile(percent) as f64));
    let (iops, megabytes) = (show(rate(stats.ops as f64), 0), show(rate(stats.bytes as f64 / 1e6), 1));
    [iops, megabytes, us(h.mean()), p50, p99, p999, us(h.max() as f64), us(h.stddev())]
}

/// A figure, or a dash if it is not known.
pub fn show(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |n| format!("{n:.digits$}"))
}

/// Amplification and baselines.
fn raw_line(report: &Report) -> String {
    let [device, wire] = [report.device_bytes_per_client_byte, report.wire_bytes_per_client_byte];
    format!(
        "bytes per client byte: device {}, wire {}; IOPS/drive {}; percent of the raw device {} (of its best depth {}), of the raw messenger {}{}; \
         flush mode {}{}",
        show(device, 2),
        show(wire, 2),
        show(report.iops_per_drive, 0),
        show(report.percent_of_device, 0),
        show(report.percent_of_device_limit, 0),
        show(report.percent_of_messenger, 0),
        report.baseline_age_seconds.map(|age_s| format!(", measured {age_s} s before")).unwrap_or_default(),
        report.setting.flush_mode,
        if report.setting.flush_forced { ", forced" } else { "" },
    )
}

fn cores_line(spec: &LoadSpec, report: &Report) -> String {
    let c = &report.iops_per_core;
    let [allocated, used, busy] = [c.allocated, c.used, c.busy].map(|iops| show(iops, 0));
    let cores = match report.setting.shared {
        true => "SHARED (left out)".to_owned(),
        false => format!("allocated {allocated}, used {used}, busy {busy}"),
    };
    let drain = report.drain.map(|drain| seconds(drain.cpu_ns));
    // The last ones are absent, not a dash, where nothing counts them.
    let figures = [
        ("; CPU us/op OSDs ", report.osd_cpu_us_per_op, 1, "", true),
        (", machine without the client ", report.machine_cpu_us_per_op, 1, "", true),
        ("; client cores ", report.client_cores_used, 2, "", true),
        ("; hops/op ", report.hops_per_op, 2, "", true),
        ("; device reads/read ", report.device_reads_per_client_read, 2, "", spec.rw.reads()),
        ("; cycles/op ", report.cycles_per_op, 0, "", false),
        ("; instructions/op ", report.instructions_per_op, 0, "", false),
        ("; throttled ", report.throttled_seconds, 2, " s", false),
        ("; after the window ", drain, 2, " CPU s", false),
    ];
    let told = figures.into_iter().filter(|(_, figure, .., always)| *always || figure.is_some());
    let told: String =
        told.map(|(name, n, digits, unit, _)| format!("{name}{}{unit}", show(n, digits))).collect();
    let (window, bs) = (report.window_seconds, spec.show_bs());
    format!("IOPS/core {cores}{told}; {window:.1} s, bs {bs}")
}
