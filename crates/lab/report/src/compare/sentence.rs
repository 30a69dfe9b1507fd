//! Comparisons in words.

use std::collections::BTreeMap;

use carmine_stats::{Comparison, Outcome};
use carmine_study::compare::METRICS;

use super::Compared;
use super::duel::{Line, TOLERANCE};
use crate::lists::span;

/// A figure's name as people say it.
pub(super) fn metric_name(metric: &str) -> String {
    match metric {
        "iops" => "IOPS".into(),
        "p99_latency_us" => "p99 latency".into(),
        "osd_cpu_us_per_op" => "CPU of OSDs per op".into(),
        "machine_cpu_us_per_op" => "CPU of the machine per op".into(),
        other => other.replace('_', " "),
    }
}

/// A ratio as a difference in percent.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}

/// One sentence for each figure and pair of arms, over all loads; and why arms were not compared.
pub(crate) fn findings(compared: &Compared) -> Vec<String> {
    let place = |metric: &str| METRICS.iter().position(|m| m.name == metric).unwrap_or(METRICS.len());
    let mut groups: BTreeMap<(&str, &str, usize), Vec<&Line>> = BTreeMap::new();
    for line in &compared.lines {
        groups.entry((&line.base, &line.new, place(line.row.metric))).or_default().push(line);
    }
    let mut findings: Vec<String> =
        groups.into_iter().map(|((base, new, _), lines)| sentence(base, new, &lines)).collect();
    findings.extend(compared.refused.iter().map(|why| format!("Not compared: {why}.")));
    findings
}

fn sentence(base: &str, new: &str, lines: &[&Line]) -> String {
    let metric = lines.first().map_or("", |l| l.row.metric);
    let of = |wanted: fn(&Outcome) -> bool| -> Vec<Comparison> {
        lines.iter().filter(|l| wanted(&l.row.outcome)).filter_map(|l| l.row.comparison).collect()
    };
    let more_is_better = lines.first().is_some_and(|l| l.row.more_is_better);
    let (better, worse): (Vec<_>, Vec<_>) = of(|o| matches!(o, Outcome::Different { .. }))
        .into_iter()
        .partition(|c| (c.ratio > 1.0) == more_is_better);
    let equal = of(|o| matches!(o, Outcome::Equal { .. })).len();
    let undecided = lines.len() - better.len() - worse.len() - equal;
    let mut parts = Vec::new();
    for (word, which) in [("better", better), ("worse", worse)] {
        if !which.is_empty() {
            parts.push(format!("{word} in {} ({})", which.len(), extremes(&which)));
        }
    }
    parts.extend((equal > 0).then(|| format!("equal within ±{:.0} % in {equal}", TOLERANCE * 100.0)));
    parts.extend((undecided > 0).then(|| format!("undecided in {undecided}")));
    let loads = if lines.len() == 1 { "1 load".to_owned() } else { format!("{} loads", lines.len()) };
    format!("{}, {new} against {base}, {loads}: {}.", metric_name(metric), parts.join(", "))
}

/// The smallest and the largest difference.
fn extremes(comparisons: &[Comparison]) -> String {
    let (low, high) = span(comparisons.iter().map(|c| c.ratio));
    if percent(low) == percent(high) {
        percent(low)
    } else {
        format!("{} to {}", percent(low), percent(high))
    }
}

/// What holds for all comparisons of the report: what differs between the arms, and what to mind.
pub(crate) fn remarks(compared: &Compared) -> Vec<String> {
    let mut remarks = Vec::new();
    if !compared.differences.is_empty() {
        let all = compared.differences.iter().map(|d| format!("{} ({} and {})", d.setting, d.base, d.new));
        remarks.push(format!("The arms differ in: {}.", all.collect::<Vec<_>>().join(", ")));
    }
    remarks.extend(compared.warnings.iter().map(|warning| format!("Mind: {warning}.")));
    remarks
}
