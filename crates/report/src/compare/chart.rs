//! A comparison as rows with intervals.

use std::collections::BTreeSet;

use carmine_stats::{Comparison, Outcome};

use super::duel::Duel;
use super::verdict::{METRICS, TOLERANCE, Verdict};
use crate::chart::{Axis, Chart, Ink, Key, Plot, Row, RowPlot};
use crate::figures::{View, context, slug};
use crate::table::{Cell, Table};

/// Rows that one chart shows; its table has all.
const ROWS_MAX: usize = 40;

/// One metric of one workload; nothing if nothing was compared.
pub(super) fn chart(
    view: &View<'_>,
    duels: &[Duel<'_>],
    verdicts: &[Verdict],
    panel: &str,
    metric: usize,
) -> Option<Chart> {
    let (name, more_is_better, _) = METRICS[metric];
    let mut rows = Vec::new();
    let mut table = Table::new(&[
        "comparison",
        "base",
        "new",
        "pairs",
        "difference (%)",
        "from (%)",
        "to (%)",
        "p (Holm)",
        "outcome",
        "smallest detectable (%)",
        "marks",
    ]);
    let arms: BTreeSet<&str> = duels.iter().map(|d| d.new.as_str()).collect();
    for verdict in verdicts.iter().filter(|v| v.metric == metric && duels[v.duel].panel == panel) {
        let duel = &duels[verdict.duel];
        let words = duel.words();
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
        // With two arms the title names them.
        let arm = if arms.len() > 1 || duel.name.is_empty() { duel.new.as_str() } else { "" };
        let label = [duel.name.as_str(), arm].into_iter().filter(|n| !n.is_empty());
        rows.push(Row {
            name: label.collect::<Vec<_>>().join(" · "),
            values: vec![ratio],
            interval: c.map(|c| ((c.interval.0 - 1.0) * 100.0, (c.interval.1 - 1.0) * 100.0)),
            marked: !words.is_empty(),
        });
    }
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(ROWS_MAX);
    let settings: Vec<_> = view.settings.iter().collect();
    let tolerance = TOLERANCE * 100.0;
    let plot = RowPlot {
        x: Axis { label: format!("{name}: difference to the base (%)"), ..Axis::default() },
        keys: vec![Key {
            name: "ratio of pairs with its 95 % interval".into(),
            ink: Ink::Series(0),
            dotted: false,
        }],
        rows,
        stacked: false,
        reference: Some(0.0),
        band: Some((-tolerance, tolerance)),
    };
    let better = if more_is_better { "to the right is better" } else { "to the left is better" };
    let mut remarks = remarks(duels, view.runs.len() > 1, better, tolerance);
    if all > ROWS_MAX {
        remarks.push(format!("The chart shows the first {ROWS_MAX} of {all} loads; the table has all."));
    }
    Some(Chart {
        id: format!("compare-{}-{}", slug(name), slug(panel)),
        title: format!("{name}, {}: {panel}", against(duels)),
        context: context(&settings),
        plot: Plot::Rows(plot),
        table: table.without_empty_columns(),
        remarks,
        family: format!("compare-{metric}"),
    })
}

/// The arms in words: `socket against osd`, or the base alone where there are several.
fn against(duels: &[Duel<'_>]) -> String {
    let arms: BTreeSet<&str> = duels.iter().map(|d| d.new.as_str()).collect();
    let base = duels.first().map_or("the base", |d| d.base.as_str());
    match arms.into_iter().collect::<Vec<_>>().as_slice() {
        [one] => format!("{one} against {base}"),
        _ => format!("against {base}"),
    }
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
