//! Comparisons: the arms of one run, or runs with each other. The figures and the judgement are those of
//! `carmine compare`; here they become charts and sentences, with Holm's correction over the whole report.

use carmine_stats::{Comparison, Outcome};
use carmine_study::compare::{
    self, Arm, Judgement, METRICS, Refusal, arm_of_run, arms_of_run, differing_axes, pair_up,
};
use carmine_study::support::SPOILS;
use carmine_types::counted;

use crate::chart::{Axis, Chart, Form, Ink, Key, Plot, Row, Shape};
use crate::data::{PANEL_AXES, RunData, words};
use crate::figures::{View, context, slug};
use crate::lists::{distinct, grouped, joined, sorted, span};
use crate::table::{Cell, Table};
use crate::units::percent;

/// Differences up to this part count as equal.
const TOLERANCE: f64 = 0.05;

/// One figure of two arms with the same load.
#[derive(Clone, Debug)]
struct Line {
    base: String,
    new: String,
    /// The workload, which is never mixed in a chart.
    panel: String,
    /// The rest of the configuration that both share, as far as it varies in the report.
    name: String,
    /// Words such as SHARED that any of the points has.
    words: String,
    /// With p and outcome after Holm's correction over the report.
    row: compare::Row,
    /// Place of its configuration in the order of running.
    order: usize,
}

/// All comparisons of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compared {
    lines: Vec<Line>,
    /// Why arms were not compared.
    refused: Vec<String>,
    /// Settings in which arms differ, each once, with their values.
    differences: Vec<String>,
    /// Warnings, each once.
    pub(crate) warnings: Vec<String>,
}

/// Compares the runs with the first of them, or the arms of the only run with its first.
pub(crate) fn compared(view: &View<'_>) -> Compared {
    let mut compared = Compared::default();
    for arms in arms(view.runs) {
        match arms.and_then(|(base, new)| Ok((compare::compare(&base, &new, TOLERANCE)?, base, new))) {
            Ok((judgement, base, new)) => compared.add(view, judgement, &base, &new),
            Err(refusal) => compared.refused.push(format!("Not compared: {refusal}.")),
        }
    }
    compared.lines.sort_by_key(|line| line.order);
    compared.differences = distinct(compared.differences);
    compared.warnings = distinct(compared.warnings);
    // Each comparison was corrected for itself; a report with several is corrected as one.
    compare::correct(compared.lines.iter_mut().map(|line| &mut line.row), TOLERANCE);
    compared
}

fn arms(runs: &[RunData]) -> Vec<Result<(Arm, Arm), Refusal>> {
    let named = |run: &RunData| -> Result<Arm, Refusal> {
        Ok(Arm { name: run.label.clone(), ..arm_of_run(&run.run)? })
    };
    match runs {
        [] => Vec::new(),
        [only] => {
            let names: Vec<&str> =
                only.file().comparison.iter().flat_map(|c| &c.arms).map(String::as_str).collect();
            let against_first = |new: &&str| arms_of_run(&only.run, Some((names[0], new)));
            names.iter().skip(1).map(against_first).collect()
        }
        [first, others @ ..] => others.iter().map(|new| Ok((named(first)?, named(new)?))).collect(),
    }
}

impl Compared {
    fn add(&mut self, view: &View<'_>, judgement: Judgement, base: &Arm, new: &Arm) {
        let axes = differing_axes(base, new);
        let groups = pair_up(base, new, &axes).unwrap_or_default();
        let without: Vec<&str> = axes.iter().copied().chain(PANEL_AXES).collect();
        for row in judgement.rows {
            let Some(group) = groups.iter().find(|g| g.name == row.config) else { continue };
            let Some((first, _)) = group.pairs.first() else { continue };
            let points = group.pairs.iter().flat_map(|(a, b)| [a, b]);
            self.lines.push(Line {
                base: base.name.clone(),
                new: new.name.clone(),
                panel: view.panel_title(&first.config, &first.result),
                name: view.axes.name(&first.config, &without, true),
                words: sorted(points.flat_map(|m| words(&m.result, false)), " "),
                row,
                order: view.settings.iter().position(|s| *s.config == first.config).unwrap_or(usize::MAX),
            });
        }
        let difference = |d: compare::Difference| format!("{} ({} and {})", d.setting, d.base, d.new);
        self.differences.extend(judgement.differences.into_iter().map(difference));
        self.warnings.extend(judgement.warnings);
    }
}

/// Rows that one chart shows; its table has all.
const ROWS_MAX: usize = 40;
const COLUMNS: &str = "load | base | new | pairs | of base | of new | difference (%) | from (%) | to (%) | p (Holm) | \
    outcome | smallest detectable (%) | marks";

/// A chart for each workload and figure.
pub(crate) fn charts(view: &View<'_>, compared: &Compared) -> Vec<Chart> {
    let lines = grouped(compared.lines.iter().map(|line| ((line.panel.as_str(), line.row.metric), line)));
    lines.iter().map(|((panel, metric), lines)| chart(view, panel, metric, lines)).collect()
}

fn chart(view: &View<'_>, panel: &str, metric: &'static str, lines: &[&Line]) -> Chart {
    let first = lines[0];
    let is_only = lines.iter().all(|line| line.new == first.new);
    let table = Table::new(COLUMNS, lines.iter().map(|line| table_row(line)));
    let rows: Vec<Row> = lines.iter().take(ROWS_MAX).map(|line| row(line, !is_only)).collect();
    let name = metric_name(metric);
    let new = if is_only { first.new.as_str() } else { "" };
    let against = joined([new, "against", &first.base], " ");
    let side = if first.row.more_is_better { "right" } else { "left" };
    let tolerance = TOLERANCE * 100.0;
    let mut remarks =
        vec![format!("Further {side} is better; the grey band is ±{tolerance:.0} %, which counts as equal.")];
    if lines.len() > ROWS_MAX {
        let all = counted(lines.len(), "load");
        remarks.push(format!("The chart shows the first {ROWS_MAX} of {all}; the table has all."));
    }
    let x = Axis { floats: true, ..Axis::from_zero(&format!("{name}: difference to the base (%)")) };
    let keys = vec![Key::series(0, "ratio of pairs with its 95 % interval")];
    let mut plot = Plot::of_rows(x, keys, &rows, false);
    plot.upright(0.0, Ink::AXIS);
    let band = Form::Area([-tolerance, f64::NEG_INFINITY, tolerance, f64::INFINITY], 0.7);
    plot.shapes.insert(0, Shape::new(band, Ink::GRID));
    Chart {
        id: format!("compare-{}-{}", slug(metric), slug(panel)),
        title: format!("{name}, {against}: {panel}"),
        context: context(&view.settings.iter().collect::<Vec<_>>()),
        plots: vec![plot],
        table: table.without_empty_columns(),
        remarks,
        family: format!("compare-{metric}"),
    }
}

fn row(line: &Line, several_arms: bool) -> Row {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    // With two arms the title names them.
    let arm = if several_arms || line.name.is_empty() { line.new.as_str() } else { "" };
    Row {
        name: joined([line.name.as_str(), arm], " · "),
        values: vec![line.row.comparison.map(|c| percent(c.ratio))],
        interval: line.row.comparison.map(|c| (percent(c.interval.0), percent(c.interval.1))),
        marked: !line.words.is_empty(),
    }
}

fn table_row(line: &Line) -> Vec<Cell> {
    let row = &line.row;
    let of = |figure: &dyn Fn(Comparison) -> f64, digits| Cell::number(row.comparison.map(figure), digits);
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
        of(&|c| (c.ratio - 1.0) * 100.0, 2),
        of(&|c| (c.interval.0 - 1.0) * 100.0, 2),
        of(&|c| (c.interval.1 - 1.0) * 100.0, 2),
        of(&|_| row.adjusted_p, 4),
        outcome.into(),
        of(&|c| c.detectable * 100.0, 1),
        line.words.as_str().into(),
    ]
}

/// A figure's name as people say it.
fn metric_name(metric: &str) -> &'static str {
    METRICS.iter().find(|known| known.name == metric).map_or("", |known| known.title)
}

/// One sentence for each pair of arms, with each figure over all loads; and why arms were not compared.
pub(crate) fn findings(compared: &Compared) -> Vec<String> {
    let lines = compared.lines.iter().map(|line| ((line.base.as_str(), line.new.as_str()), line));
    let sentence = |((base, new), lines): ((&str, &str), Vec<&Line>)| {
        let figures = grouped(lines.into_iter().map(|line| (line.row.metric, line)));
        let loads = counted(figures.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0), "load");
        let figures: Vec<String> = figures.iter().map(|(metric, lines)| figure(metric, lines)).collect();
        format!("{new} against {base}, {loads}: {}.", figures.join("; "))
    };
    grouped(lines).into_iter().map(sentence).chain(compared.refused.iter().cloned()).collect()
}

/// One figure over all loads: how many are better and worse, with the smallest and the largest difference.
fn figure(metric: &'static str, lines: &[&Line]) -> String {
    let spoilt = |line: &Line| line.words.split(' ').any(|word| SPOILS.contains(&word));
    let word = |line: &&Line| match (&line.row.outcome, line.row.comparison) {
        _ if spoilt(line) => "no answer",
        (Outcome::Different { .. }, Some(c)) if (c.ratio > 1.0) == line.row.more_is_better => "better",
        (Outcome::Different { .. }, _) => "worse",
        (Outcome::Equal { .. }, _) => "equal",
        _ => "undecided",
    };
    let part = |wanted: &str| {
        let of: Vec<&&Line> = lines.iter().filter(|line| word(line) == wanted).collect();
        let (low, high) = span(of.iter().filter_map(|line| Some(line.row.comparison?.ratio)));
        let (low, high) = (percent(low), percent(high));
        match (of.len(), wanted) {
            (0, _) => String::new(),
            (n, "equal") => format!("equal within ±{:.0} % in {n}", TOLERANCE * 100.0),
            (n, "undecided") => format!("undecided in {n}"),
            (n, "no answer") => format!("no answer in {n}, as points are marked"),
            (n, _) if low == high => format!("{wanted} in {n} ({low})"),
            (n, _) => format!("{wanted} in {n} ({low} to {high})"),
        }
    };
    let parts = ["better", "worse", "equal", "undecided", "no answer"].map(part);
    format!("{} {}", metric_name(metric), joined(parts.iter().map(String::as_str), ", "))
}

/// Remarks about all comparisons of the report: differences between the arms, and warnings.
pub(crate) fn remarks(compared: &Compared) -> Vec<String> {
    let differences = compared.differences.join(", ");
    let differ = (!differences.is_empty()).then(|| format!("The arms differ in: {differences}."));
    let others = compared.warnings.iter().filter(|warning| !warning.starts_with("CONFOUNDED"));
    differ.into_iter().chain(others.map(|warning| format!("Mind: {warning}."))).collect()
}
