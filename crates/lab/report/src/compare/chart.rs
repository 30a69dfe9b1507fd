//! A comparison as rows with intervals.

use std::collections::BTreeSet;

use carmine_stats::{Comparison, Outcome};

use super::Compared;
use super::duel::{Line, TOLERANCE};
use super::sentence::metric_name;
use crate::chart::{Axis, Chart, Key, Plot, Row, RowPlot};
use crate::figures::{View, context, slug};
use crate::lists::distinct;
use crate::table::{Cell, Table};

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
        remarks.push(format!(
            "The chart shows the first {ROWS_MAX} of {} loads; the table has all.",
            lines.len()
        ));
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
