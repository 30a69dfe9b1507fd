//! A report as data: what the page and the text both show, in the order in which it is read.

use std::path::Path;

use crate::data::{Ended, Latency, Measured, PANEL_AXES, RunData, Setting, drift};
use crate::figures::{self, Group, View};
use crate::flames::{Flames, flames};
use crate::lists::{distinct, tally};
use crate::table::{Cell, Table};
use crate::units::{date, grouped, shortened};
use crate::{compare, conditions};

/// Everything that is shown.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// Machine, version and time on one line.
    pub(crate) subtitle: String,
    /// Figures that are missing or spoilt.
    pub(crate) notices: Vec<String>,
    /// The findings.
    pub(crate) headline: Vec<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) flames: Flames,
    /// Every point.
    pub(crate) points: Table,
    /// Conditions, in sections.
    pub(crate) sections: Vec<Section>,
}

/// A part of the conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) text: Vec<String>,
    pub(crate) table: Option<Table>,
    /// Commands, a plan or a log, as they are.
    pub(crate) verbatim: String,
}

/// Puts the report of runs together; it will be written into the folder `out`.
pub(crate) fn report(runs: &[RunData], out: &Path) -> Report {
    let view = View::new(runs);
    let compared = compare::compared(&view);
    let mut findings = peaks(&view);
    findings.extend(figures::findings(&view));
    findings.extend(compare::findings(&compared));
    findings.extend(drifts(runs));
    Report {
        title: title(runs),
        subtitle: subtitle(runs),
        notices: notices(runs),
        headline: findings,
        groups: figures::groups(&view, &compared),
        flames: flames(runs, out),
        points: points_table(&view),
        sections: conditions::sections(&view),
    }
}

/// More drift than this part between the first point and its repetition is worth a warning.
const DRIFT_WARN: f64 = 0.05;

/// Names of the plans.
fn title(runs: &[RunData]) -> String {
    let names = distinct(runs.iter().map(|run| run.file().name.as_str()));
    match runs.len() {
        1 => names.join(", "),
        n => format!("{} ({n} runs)", names.join(", ")),
    }
}

/// When, with what and where.
fn subtitle(runs: &[RunData]) -> String {
    let of = |run: &RunData| {
        let (file, build) = (run.file(), &run.file().carmine);
        let hash: String = build.git_hash.chars().take(10).collect();
        let version = [build.version.as_str(), hash.as_str(), build.profile.as_str()];
        let version: Vec<&str> = version.into_iter().filter(|w| !w.is_empty()).collect();
        let label = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        format!("{label}{} · carmine {} · {}", date(file.created_unix_s), version.join(" "), file.kernel)
    };
    runs.iter().map(of).collect::<Vec<_>>().join(" | ")
}

/// Notices to read before believing any figure.
fn notices(runs: &[RunData]) -> Vec<String> {
    let mut notices = Vec::new();
    for run in runs {
        let name = if runs.len() > 1 { format!("{}: ", run.label) } else { String::new() };
        let planned: Vec<_> = run.points.iter().filter(|m| m.is_planned()).collect();
        let done = planned.iter().filter(|m| m.ended == Ended::Done).count();
        let clean = planned.iter().filter(|m| m.is_clean()).count();
        if clean < done {
            let words = spoiled_by(&planned);
            notices.push(format!(
                "{name}{clean} of {done} measured points are clean. The others are marked ({words}) and left out of slopes."
            ));
        }
        if run.file().label == "smoke" {
            notices.push(format!("{name}SMOKE: windows under 60 s show that it runs, not how fast it is."));
        }
        notices
            .extend(conditions::spoils(&run.file().doctor).into_iter().map(|text| format!("{name}{text}.")));
        notices.extend(run.missing.iter().map(|text| format!("{name}{text}.")));
    }
    notices
}

/// Marks with the number of points that have them: `SHARED 4, NOISY 1`.
fn spoiled_by(points: &[&Measured]) -> String {
    let counts = tally(points.iter().filter(|m| !m.is_clean()).flat_map(|m| &m.words));
    counts.into_iter().map(|(w, n)| format!("{w} {n}")).collect::<Vec<_>>().join(", ")
}

/// For each workload the most that was reached, and what limited it.
fn peaks(view: &View<'_>) -> Vec<String> {
    let mut peaks = Vec::new();
    for panel in view.panels() {
        let rank = |s: &Setting<'_>| (s.is_clean, s.iops());
        let best = panel.settings.iter().copied().reduce(|a, b| if rank(b) < rank(a) { a } else { b });
        let Some(best) = best else { continue };
        let name = view.name(best, &PANEL_AXES);
        let at = if name.is_empty() { String::new() } else { format!(" at {name}") };
        let p99 = best
            .latency
            .p99_ns
            .map_or(String::new(), |ns| format!(" with a p99 of {} ms", grouped(ns / 1e6, 2)));
        let cpu = best.mean(|r| r.carmine.machine_cpu_us_per_op);
        let cpu = cpu.map_or(String::new(), |us| format!(", {us:.1} µs of CPU per op"));
        let marks = if best.is_clean { String::new() } else { format!(" ({})", best.words.join(" ")) };
        let limit = best.limiter().map_or(String::new(), |(name, why)| match name {
            "UNKNOWN" => format!(" The limiter is unknown: {why}."),
            name => format!(" Limited by {name}: {why}."),
        });
        let figure = format!(
            "{} IOPS, {} MB/s",
            grouped(best.iops(), 0),
            grouped(best.bw_bytes() / 1e6, usize::from(best.bw_bytes() < 1e7))
        );
        peaks.push(format!("{}: at most {figure}{p99}{cpu}{at}{marks}.{limit}", panel.title));
    }
    peaks
}

/// How far the machine drifted during each run.
fn drifts(runs: &[RunData]) -> Vec<String> {
    let of = |run: &RunData| {
        let drift = drift(run)?;
        let warn = if drift.part().abs() > DRIFT_WARN {
            ": differences of that size between points mean nothing"
        } else {
            ""
        };
        let name = if runs.len() > 1 { format!("{}: d", run.label) } else { "D".to_owned() };
        Some(format!(
            "{name}rift: the first point, run again at the end, gave {} instead of {} IOPS ({}){warn}.",
            grouped(drift.again_iops, 0),
            grouped(drift.first_iops, 0),
            format!("{:+.1} %", drift.part() * 100.0).replace('-', "−")
        ))
    };
    runs.iter().filter_map(of).collect()
}

const COLUMNS: &str = "point | state | marks | IOPS | MB/s | mean (µs) | p50 (µs) | p99 (µs) | p99.9 (µs) | limiter | \
    decided by | IOPS/core allocated | IOPS/core used | IOPS/core busy | machine µs/op | OSD µs/op | \
    cycles/op | instructions/op | client cores | hops/op | of device (%) | of messenger (%) | \
    throttled (s) | cache | before it | seconds";

/// Characters of an error that the table shows.
const ERROR_MAX: usize = 240;

/// All points of all runs in the order of running; the error stands beside a point that failed.
fn points_table(view: &View<'_>) -> Table {
    let mut table = Table::new(COLUMNS);
    let several = view.runs.len() > 1;
    for run in view.runs {
        for point in &run.points {
            let prefix = if several { format!("{}/", run.label) } else { String::new() };
            table.push(point_row(&prefix, point));
        }
    }
    table.without_empty_columns()
}

fn point_row(prefix: &str, measured: &Measured) -> Vec<Cell> {
    let name = format!("{prefix}{}", measured.point.stem);
    let (state, why) = match &measured.ended {
        Ended::Done if measured.is_planned() => ("done", None),
        Ended::Done => ("done again", None),
        Ended::Failed(why) => ("failed", Some(why.clone())),
        Ended::NotRun => ("not run", None),
        Ended::Unreadable(why) => ("unreadable", Some(why.clone())),
    };
    let mut row = vec![name.into(), state.into(), measured.words.join(" ").into()];
    let Some(result) = &measured.result else {
        row.resize(10, Cell::None);
        row.push(why.map_or(Cell::None, |why| shortened(&why, ERROR_MAX).into()));
        row.resize(COLUMNS.split(" | ").count() - 1, Cell::None);
        row.push(Cell::number((measured.seconds > 0.0).then_some(measured.seconds), 1));
        return row;
    };
    let carmine = &result.carmine;
    let latency = Latency::of(&[result]);
    let us = |ns: Option<f64>| Cell::number(ns.map(|ns| ns / 1e3), 0);
    let text = |text: &Option<String>| text.as_deref().map_or(Cell::None, Cell::from);
    row.extend([Cell::Number(result.iops(), 0), Cell::Number(result.bw_bytes() / 1e6, 1)]);
    row.extend([latency.mean_ns, latency.p50_ns, latency.p99_ns, latency.p999_ns].map(us));
    row.extend([text(&carmine.verdict), text(&carmine.verdict_reason)]);
    let cores = &carmine.iops_per_core;
    row.extend([cores.allocated, cores.used, cores.busy].map(|v| Cell::number(v, 0)));
    row.extend([carmine.machine_cpu_us_per_op, carmine.osd_cpu_us_per_op].map(|v| Cell::number(v, 1)));
    row.extend([carmine.cycles_per_op, carmine.instructions_per_op].map(|v| Cell::number(v, 0)));
    row.extend([carmine.client_cores_used, carmine.hops_per_op].map(|v| Cell::number(v, 2)));
    row.extend([carmine.percent_of_device, carmine.percent_of_messenger].map(|v| Cell::number(v, 1)));
    row.push(Cell::number(carmine.throttled_seconds, 2));
    row.push(text(&carmine.cache_state));
    row.push(if measured.condition.is_empty() { Cell::None } else { measured.condition.as_str().into() });
    row.push(Cell::number(Some(measured.seconds), 1));
    row
}
