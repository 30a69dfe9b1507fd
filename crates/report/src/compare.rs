//! Comparisons: the arms of one run, or runs with each other, pair by pair.

use std::collections::{BTreeMap, BTreeSet};

use carmine_stats::{Comparison, NoComparison, Outcome, holm, judge, paired_log_ratios};
use carmine_study::archive::{Config, PointResult};

use crate::chart::{Axis, Chart, Ink, Key, Plot, Row, RowPlot};
use crate::data::{Latency, Measured, RunData};
use crate::figures::View;
use crate::table::{Cell, Table};

/// Differences up to this part count as equal.
pub(crate) const TOLERANCE: f64 = 0.05;

/// What is compared: name, whether more is better, and the figure.
type Metric = (&'static str, bool, fn(&PointResult) -> Option<f64>);

const METRICS: [Metric; 4] = [
    ("IOPS", true, |r| Some(r.iops())),
    ("mean latency", false, |r| Latency::of(&[r]).mean_ns),
    ("p99 latency", false, |r| Latency::of(&[r]).p99_ns),
    ("machine CPU per op", false, |r| r.carmine.machine_cpu_us_per_op.or(r.carmine.osd_cpu_us_per_op)),
];

/// Two arms with the same load.
struct Duel<'a> {
    base: String,
    new: String,
    /// What both have in common, of what varies in the report.
    name: String,
    pairs: Vec<(&'a Measured, &'a Measured)>,
    /// Axes on which they differ.
    differ: BTreeSet<String>,
}

/// One metric of a duel.
struct Verdict {
    duel: usize,
    metric: usize,
    comparison: Result<Comparison, NoComparison>,
    adjusted_p: f64,
    outcome: Outcome,
}

/// The comparison as a chart for each metric; nothing if there is nothing to compare.
pub(crate) fn charts(view: &View<'_>) -> Vec<Chart> {
    let duels = duels(view);
    let verdicts = verdicts(&duels);
    (0..METRICS.len()).filter_map(|metric| chart(view, &duels, &verdicts, metric)).collect()
}

/// One sentence a duel and metric that is different; or how many could not be told apart.
pub(crate) fn findings(view: &View<'_>) -> Vec<String> {
    let duels = duels(view);
    let verdicts = verdicts(&duels);
    let mut findings: Vec<String> = verdicts.iter().filter_map(|v| difference(&duels[v.duel], v)).collect();
    let count = |wanted: fn(&Outcome) -> bool| verdicts.iter().filter(|v| wanted(&v.outcome)).count();
    let (equal, undecided) =
        (count(|o| matches!(o, Outcome::Equal { .. })), count(|o| matches!(o, Outcome::Undecided { .. })));
    if !verdicts.is_empty() {
        let all = verdicts.len();
        findings.push(format!(
            "Of {all} comparisons {} are different, {equal} equal within ±{:.0} %, {undecided} undecided (Holm over all).",
            all - equal - undecided,
            TOLERANCE * 100.0
        ));
    }
    findings
}

fn difference(duel: &Duel<'_>, verdict: &Verdict) -> Option<String> {
    let (Outcome::Different { .. }, Ok(c)) = (&verdict.outcome, &verdict.comparison) else { return None };
    let (metric, more_is_better, _) = METRICS[verdict.metric];
    let better = (c.ratio > 1.0) == more_is_better;
    let name = if duel.name.is_empty() { String::new() } else { format!(" ({})", duel.name) };
    Some(format!(
        "{metric} of {} against {}{name}: {} [{} to {}], {}.",
        duel.new,
        duel.base,
        percent(c.ratio),
        percent(c.interval.0),
        percent(c.interval.1),
        if better { "better" } else { "worse" }
    ))
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}

fn duels<'a>(view: &View<'a>) -> Vec<Duel<'a>> {
    if view.runs.len() > 1 {
        let Some((base, others)) = view.runs.split_first() else { return Vec::new() };
        return others.iter().flat_map(|new| between_runs(view, base, new)).collect();
    }
    view.runs.iter().flat_map(|run| between_arms(view, run)).collect()
}

fn between_runs<'a>(view: &View<'a>, base: &'a RunData, new: &'a RunData) -> Vec<Duel<'a>> {
    let keyed = |run: &'a RunData| -> BTreeMap<(String, u32), &'a Measured> {
        let key = |m: &Measured| (key_without(&m.point.config, &BTreeSet::new()), m.point.repeat);
        run.points.iter().filter(|m| m.is_planned() && m.result.is_some()).map(|m| (key(m), m)).collect()
    };
    let (left, right) = (keyed(base), keyed(new));
    let mut by_config: BTreeMap<&str, Vec<(&Measured, &Measured)>> = BTreeMap::new();
    for (key, old) in &left {
        if let Some(found) = right.get(key) {
            by_config.entry(&key.0).or_default().push((old, found));
        }
    }
    let duel = |pairs: Vec<(&'a Measured, &'a Measured)>| Duel {
        base: base.label.clone(),
        new: new.label.clone(),
        name: pairs.first().map_or_else(String::new, |(m, _)| view.axes.name(&m.point.config, &[])),
        pairs,
        differ: BTreeSet::new(),
    };
    by_config.into_values().map(duel).collect()
}

fn between_arms<'a>(view: &View<'a>, run: &'a RunData) -> Vec<Duel<'a>> {
    let Some(comparison) = &run.file().comparison else { return Vec::new() };
    let Some((base, others)) = comparison.arms.split_first() else { return Vec::new() };
    let of_arm = |arm: &str| -> Vec<&'a Measured> {
        run.points.iter().filter(|m| m.is_planned() && m.result.is_some() && m.point.arm.as_deref() == Some(arm)).collect()
    };
    let left = of_arm(base);
    let mut duels = Vec::new();
    for arm in others {
        let right = of_arm(arm);
        let differ = arm_axes(&left, &right, &comparison.axis);
        let turn = |m: &Measured| (key_without(&m.point.config, &differ), m.point.pair.unwrap_or(m.point.repeat));
        let right: BTreeMap<_, &Measured> = right.iter().map(|m| (turn(m), *m)).collect();
        let mut groups: BTreeMap<String, Vec<(&Measured, &Measured)>> = BTreeMap::new();
        for old in &left {
            let key = turn(old);
            if let Some(new) = right.get(&key) {
                groups.entry(key.0).or_default().push((old, new));
            }
        }
        let without: Vec<&str> = differ.iter().map(String::as_str).collect();
        duels.extend(groups.into_values().map(|pairs| Duel {
            base: base.clone(),
            new: arm.clone(),
            name: pairs.first().map_or_else(String::new, |(m, _)| view.axes.name(&m.point.config, &without)),
            pairs,
            differ: differ.clone(),
        }));
    }
    duels
}

/// Axes that have one value in all of an arm and another in the other arm: what makes them arms.
fn arm_axes(left: &[&Measured], right: &[&Measured], named: &str) -> BTreeSet<String> {
    let values = |points: &[&Measured], axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|m| m.point.config.show(axis)).collect()
    };
    let all: BTreeSet<&String> = left.iter().chain(right).flat_map(|m| m.point.config.0.keys()).collect();
    let differs = |axis: &&&String| values(left, axis).is_disjoint(&values(right, axis));
    all.iter().filter(differs).map(|a| (*a).clone()).chain([named.to_owned()]).collect()
}

fn key_without(config: &Config, without: &BTreeSet<String>) -> String {
    let kept: BTreeMap<_, _> = config.0.iter().filter(|(axis, _)| !without.contains(*axis)).collect();
    serde_json::to_string(&kept).unwrap_or_default()
}

/// Every metric of every duel, with Holm's correction over all of them.
fn verdicts(duels: &[Duel<'_>]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for (number, duel) in duels.iter().enumerate() {
        for (metric, (_, _, figure)) in METRICS.iter().enumerate() {
            let of = |m: &Measured| m.result.as_ref().and_then(figure).filter(|v| *v > 0.0);
            let both = duel.pairs.iter().filter_map(|(old, new)| of(old).zip(of(new)));
            let (base, new): (Vec<f64>, Vec<f64>) = both.unzip();
            if !base.is_empty() {
                found.push((number, metric, paired_log_ratios(&base, &new)));
            }
        }
    }
    let decidable: Vec<f64> = found.iter().filter_map(|(_, _, c)| c.as_ref().ok().map(|c| c.p)).collect();
    let mut adjusted = holm(&decidable).into_iter();
    let verdict = |(duel, metric, comparison): (usize, usize, Result<Comparison, NoComparison>)| {
        let adjusted_p = if comparison.is_ok() { adjusted.next().unwrap_or(1.0) } else { 1.0 };
        let outcome = judge(&comparison, adjusted_p, TOLERANCE);
        Verdict { duel, metric, comparison, adjusted_p, outcome }
    };
    found.into_iter().map(verdict).collect()
}

fn chart(view: &View<'_>, duels: &[Duel<'_>], verdicts: &[Verdict], metric: usize) -> Option<Chart> {
    let (name, more_is_better, _) = METRICS[metric];
    let mut rows = Vec::new();
    let mut table = Table::new(&[
        "comparison", "base", "new", "pairs", "difference (%)", "from (%)", "to (%)", "p (Holm)", "outcome",
        "smallest detectable (%)", "marks",
    ]);
    for verdict in verdicts.iter().filter(|v| v.metric == metric) {
        let duel = &duels[verdict.duel];
        let words: BTreeSet<&String> = duel.pairs.iter().flat_map(|(a, b)| a.words.iter().chain(&b.words)).collect();
        let words = words.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let c = verdict.comparison.as_ref().ok();
        let part = |of: fn(&Comparison) -> f64| Cell::number(c.map(|c| (of(c) - 1.0) * 100.0), 2);
        let outcome = match &verdict.outcome {
            Outcome::Undecided { reason } => format!("undecided: {reason}"),
            Outcome::Different { within: true } => "different, but within the tolerance".into(),
            other => other.to_string(),
        };
        table.push(vec![
            duel.name.as_str().into(),
            duel.base.as_str().into(),
            duel.new.as_str().into(),
            Cell::Number(duel.pairs.len() as f64, 0),
            part(|c| c.ratio),
            part(|c| c.interval.0),
            part(|c| c.interval.1),
            Cell::number(c.map(|_| verdict.adjusted_p), 4),
            outcome.into(),
            Cell::number(c.map(|c| c.detectable * 100.0), 1),
            words.as_str().into(),
        ]);
        let ratio = c.map(|c| (c.ratio - 1.0) * 100.0);
        let label = [duel.name.as_str(), duel.new.as_str()].into_iter().filter(|n| !n.is_empty());
        rows.push(Row {
            name: label.collect::<Vec<_>>().join(": "),
            values: vec![ratio],
            interval: c.map(|c| ((c.interval.0 - 1.0) * 100.0, (c.interval.1 - 1.0) * 100.0)),
            marked: !words.is_empty(),
        });
    }
    if rows.is_empty() {
        return None;
    }
    let settings: Vec<_> = view.settings.iter().collect();
    let tolerance = TOLERANCE * 100.0;
    let plot = RowPlot {
        x: Axis { label: format!("{name}: difference to the base (%)"), ..Axis::default() },
        keys: vec![Key { name: "ratio of pairs with its 95 % interval".into(), ink: Ink::Series(0), dotted: false }],
        rows,
        stacked: false,
        reference: Some(0.0),
        band: Some((-tolerance, tolerance)),
    };
    let better = if more_is_better { "to the right is better" } else { "to the left is better" };
    Some(Chart {
        id: format!("compare-{}", crate::figures::slug(name)),
        title: format!("Comparison: {name}"),
        context: crate::figures::context(&settings),
        plot: Plot::Rows(plot),
        table: table.without_empty_columns(),
        remarks: remarks(duels, view.runs.len() > 1, better, tolerance),
        family: String::new(),
    })
}

fn remarks(duels: &[Duel<'_>], runs: bool, better: &str, tolerance: f64) -> Vec<String> {
    let mut remarks =
        vec![format!("{}; the grey band is ±{tolerance:.0} %, which counts as equal.", capital(better))];
    let differ: BTreeSet<&String> = duels.iter().flat_map(|d| &d.differ).collect();
    if differ.len() > 1 {
        let names: Vec<&str> = differ.into_iter().map(String::as_str).collect();
        remarks.push(format!("The arms differ in more than one setting: {}.", names.join(", ")));
    }
    if runs {
        remarks.push(
            "These are different runs: their pairs were not run side by side, so drift of the machine between the runs \
             is part of the difference."
                .into(),
        );
    }
    remarks
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
