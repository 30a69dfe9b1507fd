//! The head of a report: what it is of, what was found, what spoils it.

use crate::conditions::doctor;
use crate::data::{Ended, RunData, drift};
use crate::figures::View;
use crate::lists::{distinct, tally};
use crate::units::{date, grouped};

/// More drift than this part between the first point and its repetition is worth a warning.
const DRIFT_WARN: f64 = 0.05;

/// Names of the plans.
pub(crate) fn title(runs: &[RunData]) -> String {
    let names = distinct(runs.iter().map(|run| run.file().name.as_str()));
    match runs.len() {
        1 => names.join(", "),
        n => format!("{} ({n} runs)", names.join(", ")),
    }
}

/// When, with what and where.
pub(crate) fn subtitle(runs: &[RunData]) -> String {
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

/// What must be known before any figure is believed.
pub(crate) fn notices(runs: &[RunData]) -> Vec<String> {
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
        notices.extend(doctor::spoils(&run.file().doctor).into_iter().map(|text| format!("{name}{text}.")));
        notices.extend(run.missing.iter().map(|text| format!("{name}{text}.")));
    }
    notices
}

/// Marks with the number of points that have them: `SHARED 4, NOISY 1`.
fn spoiled_by(points: &[&crate::data::Measured]) -> String {
    let counts = tally(points.iter().filter(|m| !m.is_clean()).flat_map(|m| &m.words));
    counts.into_iter().map(|(w, n)| format!("{w} {n}")).collect::<Vec<_>>().join(", ")
}

/// For each workload the most that was reached, and what limited it.
pub(crate) fn peaks(view: &View<'_>) -> Vec<String> {
    let mut peaks = Vec::new();
    for panel in view.panels() {
        let rank = |s: &crate::data::Setting<'_>| (s.is_clean, s.iops());
        let best = panel.settings.iter().max_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let Some(best) = best else { continue };
        let name = view.name(best, &crate::data::PANEL_AXES);
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
pub(crate) fn drifts(runs: &[RunData]) -> Vec<String> {
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
