//! Comparisons: the arms of one run, or runs with each other. What is compared, and how it is judged, is that of
//! `carmine compare`; here it becomes charts and sentences, with Holm's correction over the whole report.

use std::collections::{BTreeMap, BTreeSet};

use carmine_stats::{Comparison, Outcome, holm};
use carmine_study::archive::Config;
use carmine_study::compare::{
    self, Arm, Difference, Judgement, METRICS, Measured, Refusal, arm_of_run, arms_of_run, differing_axes,
    pair_up,
};
use carmine_types::counted;

use crate::chart::{Axis, Chart, Key, Plot, Row, RowPlot};
use crate::data::{PANEL_AXES, RunData, words};
use crate::figures::{View, context, slug};
use crate::lists::{distinct, grouped, span};
use crate::table::{Cell, Table};

/// Differences up to this part count as equal.
pub(crate) const TOLERANCE: f64 = 0.05;

/// One figure of two arms with the same load.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) base: String,
    pub(crate) new: String,
    /// Workload: what is never mixed in a chart.
    pub(crate) panel: String,
    /// The rest of the configuration that both share, as far as it varies in the report.
    pub(crate) name: String,
    /// Words such as SHARED that any of the points has.
    pub(crate) words: String,
    /// With p and outcome after Holm's correction over the report.
    pub(crate) row: compare::Row,
    /// Place of its configuration in the order of running.
    order: usize,
}

/// All comparisons of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) lines: Vec<Line>,
    /// Why arms were not compared.
    pub(crate) refused: Vec<String>,
    /// Settings in which arms differ, each once.
    pub(crate) differences: Vec<Difference>,
    /// Warnings, each once.
    pub(crate) warnings: Vec<String>,
}

/// Compares the runs with the first of them, or the arms of the only run with its first.
pub(crate) fn compared(view: &View<'_>) -> Compared {
    let mut compared = Compared::default();
    for arms in arms(view.runs) {
        match arms.and_then(|(base, new)| Ok((compare::compare(&base, &new, TOLERANCE)?, base, new))) {
            Ok((judgement, base, new)) => compared.add(view, judgement, &base, &new),
            Err(refusal) => compared.refused.push(refusal.to_string()),
        }
    }
    correct(&mut compared.lines);
    compared
}

type Arms = Result<(Arm, Arm), Refusal>;

fn arms(runs: &[RunData]) -> Vec<Arms> {
    match runs {
        [] => Vec::new(),
        [only] => arms_within(only),
        [first, others @ ..] => others.iter().map(|new| between(first, new)).collect(),
    }
}

fn arms_within(run: &RunData) -> Vec<Arms> {
    let names = run.file().comparison.iter().flat_map(|c| &c.arms);
    let names: Vec<&str> = names.map(String::as_str).collect();
    let Some((base, others)) = names.split_first() else { return Vec::new() };
    others.iter().map(|new| arms_of_run(&run.run, Some((base, new)))).collect()
}

fn between(base: &RunData, new: &RunData) -> Arms {
    let (old, young) = (arm_of_run(&base.run)?, arm_of_run(&new.run)?);
    Ok((Arm { name: base.label.clone(), ..old }, Arm { name: new.label.clone(), ..young }))
}

impl Compared {
    fn add(&mut self, view: &View<'_>, judgement: Judgement, base: &Arm, new: &Arm) {
        let (old, young): (Vec<&Measured>, Vec<&Measured>) =
            (base.points.iter().collect(), new.points.iter().collect());
        let axes = differing_axes(&old, &young);
        let groups = pair_up((&base.name, &old), (&new.name, &young), &axes).unwrap_or_default();
        for row in judgement.rows {
            let Some(group) = groups.iter().find(|g| g.name == row.config) else { continue };
            let Some((first, _)) = group.pairs.first() else { continue };
            let of = |m: &&Measured| words(&m.result, false);
            let words: BTreeSet<String> = group.pairs.iter().flat_map(|(a, b)| [a, b]).flat_map(of).collect();
            self.lines.push(Line {
                base: base.name.clone(),
                new: new.name.clone(),
                panel: view.panel_title(&first.config, Some(&first.result)),
                name: name(view, &first.config, &axes),
                words: words.into_iter().collect::<Vec<_>>().join(" "),
                row,
                order: view.settings.iter().position(|s| *s.config == first.config).unwrap_or(usize::MAX),
            });
        }
        self.lines.sort_by_key(|line| line.order);
        self.differences = distinct(self.differences.drain(..).chain(judgement.differences));
        self.warnings = distinct(self.warnings.drain(..).chain(judgement.warnings));
    }
}

fn name(view: &View<'_>, config: &Config, axes: &BTreeSet<&str>) -> String {
    let without: Vec<&str> = axes.iter().copied().chain(PANEL_AXES).collect();
    view.axes.short_name(config, &without)
}

/// Each comparison was corrected for itself; a report with several is corrected as one.
fn correct(lines: &mut [Line]) {
    let decidable = || |line: &Line| line.row.comparison.map(|c: Comparison| c.p);
    let p: Vec<f64> = lines.iter().filter_map(decidable()).collect();
    let mut adjusted = holm(&p).into_iter();
    for line in lines {
        if line.row.comparison.is_some() {
            line.row.correct(adjusted.next().unwrap_or(1.0), TOLERANCE);
        }
    }
}

/// Rows that one chart shows; its table has all.
const ROWS_MAX: usize = 40;
const COLUMNS: &str = "load | base | new | pairs | of base | of new | difference (%) | from (%) | to (%) | p (Holm) | \
    outcome | smallest detectable (%) | marks";

/// A chart for each workload and figure.
pub(crate) fn charts(view: &View<'_>, compared: &Compared) -> Vec<Chart> {
    let keys = distinct(compared.lines.iter().map(|line| (line.panel.as_str(), line.row.metric)));
    keys.into_iter().map(|(panel, metric)| chart(view, compared, panel, metric)).collect()
}

fn chart(view: &View<'_>, compared: &Compared, panel: &str, metric: &str) -> Chart {
    let lines: Vec<&Line> =
        compared.lines.iter().filter(|l| l.panel == panel && l.row.metric == metric).collect();
    let arms: BTreeSet<&str> = lines.iter().map(|l| l.new.as_str()).collect();
    let mut table = Table::new(COLUMNS);
    lines.iter().for_each(|line| table.push(table_row(line)));
    let rows: Vec<Row> = lines.iter().take(ROWS_MAX).map(|line| row(line, arms.len() > 1)).collect();
    let name = metric_name(metric);
    let base = lines.first().map_or("the base", |l| l.base.as_str());
    let against = match arms.iter().collect::<Vec<_>>().as_slice() {
        [one] => format!("{one} against {base}"),
        _ => format!("against {base}"),
    };
    let side = if lines.first().is_some_and(|l| l.row.more_is_better) { "right" } else { "left" };
    let tolerance = TOLERANCE * 100.0;
    let mut remarks =
        vec![format!("To the {side} is better; the grey band is ±{tolerance:.0} %, which counts as equal.")];
    if lines.len() > ROWS_MAX {
        let all = counted(lines.len(), "load");
        remarks.push(format!("The chart shows the first {ROWS_MAX} of {all}; the table has all."));
    }
    let plot = RowPlot {
        x: Axis { label: format!("{name}: difference to the base (%)"), ..Axis::default() },
        keys: vec![Key::series(0, "ratio of pairs with its 95 % interval")],
        rows,
        stacked: false,
        reference: Some(0.0),
        band: Some((-tolerance, tolerance)),
    };
    Chart {
        id: format!("compare-{}-{}", slug(metric), slug(panel)),
        title: format!("{name}, {against}: {panel}"),
        context: context(&view.settings.iter().collect::<Vec<_>>()),
        plot: Plot::Rows(plot),
        table: table.without_empty_columns(),
        remarks,
        family: format!("compare-{metric}"),
    }
}

fn row(line: &Line, several_arms: bool) -> Row {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    // With two arms the title names them.
    let arm = if several_arms || line.name.is_empty() { line.new.as_str() } else { "" };
    let words: Vec<&str> = [line.name.as_str(), arm].into_iter().filter(|n| !n.is_empty()).collect();
    Row {
        name: words.join(" · "),
        values: vec![line.row.comparison.map(|c| percent(c.ratio))],
        interval: line.row.comparison.map(|c| (percent(c.interval.0), percent(c.interval.1))),
        marked: !line.words.is_empty(),
    }
}

fn table_row(line: &Line) -> Vec<Cell> {
    let row = &line.row;
    let part = |of: fn(&Comparison) -> f64| Cell::number(row.comparison.map(|c| (of(&c) - 1.0) * 100.0), 2);
    let outcome = match &row.outcome {
        Outcome::Undecided { reason } => format!("undecided: {reason}"),
        Outcome::Different { within: true } => "different, but within the tolerance".into(),
        other => other.to_string(),
    };
    let figure = |value: Option<f64>| Cell::number(value, if row.metric == "iops" { 0 } else { 1 });
    vec![
        line.name.as_str().into(),
        line.base.as_str().into(),
        line.new.as_str().into(),
        Cell::Number(row.pairs as f64, 0),
        figure(row.base),
        figure(row.new),
        part(|c| c.ratio),
        part(|c| c.interval.0),
        part(|c| c.interval.1),
        Cell::number(row.comparison.map(|_| row.adjusted_p), 4),
        outcome.into(),
        Cell::number(row.comparison.map(|c| c.detectable * 100.0), 1),
        line.words.as_str().into(),
    ]
}

/// A figure's name as people say it.
fn metric_name(metric: &str) -> String {
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

/// One sentence for each pair of arms, with each figure over all loads; and why arms were not compared.
pub(crate) fn findings(compared: &Compared) -> Vec<String> {
    let place = |metric: &str| METRICS.iter().position(|m| m.name == metric).unwrap_or(METRICS.len());
    let lines = compared.lines.iter().map(|line| ((line.base.as_str(), line.new.as_str()), line));
    let sentence = |((base, new), lines): ((&str, &str), Vec<&Line>)| {
        let mut figures: BTreeMap<usize, Vec<&Line>> = BTreeMap::new();
        lines.into_iter().for_each(|line| figures.entry(place(line.row.metric)).or_default().push(line));
        let loads = counted(figures.values().map(Vec::len).max().unwrap_or(0), "load");
        let figures: Vec<String> = figures.values().map(|lines| figure(lines)).collect();
        format!("{new} against {base}, {loads}: {}.", figures.join("; "))
    };
    let mut findings: Vec<String> = grouped(lines).into_iter().map(sentence).collect();
    findings.extend(compared.refused.iter().map(|why| format!("Not compared: {why}.")));
    findings
}

/// One figure over all loads.
fn figure(lines: &[&Line]) -> String {
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
    format!("{} {}", metric_name(metric), parts.join(", "))
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

/// Remarks about all comparisons of the report: differences between the arms, and warnings.
pub(crate) fn remarks(compared: &Compared) -> Vec<String> {
    let mut remarks = Vec::new();
    if !compared.differences.is_empty() {
        let all = compared.differences.iter().map(|d| format!("{} ({} and {})", d.setting, d.base, d.new));
        remarks.push(format!("The arms differ in: {}.", all.collect::<Vec<_>>().join(", ")));
    }
    let others = compared.warnings.iter().filter(|warning| !warning.starts_with("CONFOUNDED"));
    remarks.extend(others.map(|warning| format!("Mind: {warning}.")));
    remarks
}
