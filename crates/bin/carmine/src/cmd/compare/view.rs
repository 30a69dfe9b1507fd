//! A comparison for a terminal.

use std::fmt::Write as _;

use carmine_stats::Outcome;
use carmine_study::compare::{Judgement, Row};
use comfy_table::{CellAlignment, Table, presets};

/// What differs, a row a figure, what to mind, and the verdict.
pub(super) fn render(judged: &Judgement) -> String {
    let mut text = format!("base      {}\nnew       {}\n", judged.base, judged.new);
    for d in &judged.differences {
        let _ = writeln!(text, "differs   {}: {} -> {}", d.setting, d.base, d.new);
    }
    for warning in &judged.warnings {
        let _ = writeln!(text, "warning   {warning}");
    }
    let _ = writeln!(text, "{}", table(judged).trim_fmt());
    for row in &judged.rows {
        if let Outcome::Undecided { reason } = &row.outcome {
            let _ = writeln!(text, "undecided {}: {reason}", name(row));
        }
    }
    let _ = writeln!(text, "{}", verdict(judged));
    text
}

fn name(row: &Row) -> String {
    if row.config.is_empty() { row.metric.to_owned() } else { format!("{}, {}", row.config, row.metric) }
}

fn table(judged: &Judgement) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "configuration",
        "figure",
        "pairs",
        "base",
        "new",
        "change",
        "95 % interval",
        "p (Holm)",
        "detects",
        "outcome",
        "verdict",
    ]);
    for row in &judged.rows {
        table.add_row(cells(row));
    }
    for at in 2..=8 {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if judged.rows.iter().all(|row| row.config.is_empty())
        && let Some(column) = table.column_mut(0)
    {
        column.set_constraint(comfy_table::ColumnConstraint::Hidden);
    }
    table
}

fn cells(row: &Row) -> [String; 11] {
    let number = |n: Option<f64>| {
        n.map_or_else(|| "-".to_owned(), |n| format!("{n:.*}", if n < 1000.0 { 2 } else { 0 }))
    };
    let c = row.comparison.as_ref();
    let dash = || "-".to_owned();
    [
        row.config.clone(),
        row.metric.to_owned(),
        row.pairs.to_string(),
        number(row.base),
        number(row.new),
        c.map_or_else(dash, |c| change(c.ratio)),
        c.map_or_else(dash, |c| format!("{} to {}", change(c.interval.0), change(c.interval.1))),
        c.map_or_else(dash, |_| probability(row.adjusted_p)),
        c.map_or_else(dash, |c| format!("{:.1} %", c.detectable * 100.0)),
        row.outcome.to_string(),
        if row.accepted { "accepted" } else { "REJECTED" }.to_owned(),
    ]
}

fn probability(p: f64) -> String {
    if p < 1e-4 { "<0.0001".to_owned() } else { format!("{p:.4}") }
}

/// A ratio as the difference to 1.
fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn verdict(judged: &Judgement) -> String {
    let percent = judged.tolerance * 100.0;
    let rejected = judged.rows.iter().filter(|row| !row.accepted).count();
    if rejected > 0 {
        return format!(
            "rejected: {rejected} of {} figures are worse by more than {percent} %",
            judged.rows.len()
        );
    }
    let undecided: Vec<&Row> =
        judged.rows.iter().filter(|row| matches!(row.outcome, Outcome::Undecided { .. })).collect();
    let mut text = format!("accepted: no figure is shown to be worse by more than {percent} %");
    if !undecided.is_empty() {
        let _ = write!(
            text,
            "; {} of {} are undecided: measure more pairs, or longer windows",
            undecided.len(),
            judged.rows.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_stats::{judge, paired_log_ratios};

    fn row(metric: &'static str, factor: f64, noise: f64) -> Row {
        let sign = |n: u32| if n.is_multiple_of(2) { noise } else { -noise };
        let new: Vec<f64> = (0..8).map(|n| factor * (1.0 + sign(n))).collect();
        let comparison = paired_log_ratios(&[1.0; 8], &new);
        let p = comparison.map_or(1.0, |c| c.p);
        let outcome = judge(&comparison, p, 0.05);
        let accepted = outcome != Outcome::Different { within: false };
        Row {
            config: String::new(),
            metric,
            more_is_better: true,
            pairs: 8,
            base: Some(1e5),
            new: Some(1e5 * factor),
            comparison: comparison.ok(),
            adjusted_p: p,
            outcome,
            accepted,
        }
    }

    fn judged(rows: Vec<Row>) -> Judgement {
        let accepted = rows.iter().all(|r| r.accepted);
        let (base, new) = ("old".to_owned(), "young".to_owned());
        Judgement {
            base,
            new,
            tolerance: 0.05,
            differences: Vec::new(),
            warnings: Vec::new(),
            rows,
            accepted,
        }
    }

    #[test]
    fn a_row_a_figure_and_the_verdict() {
        let text = render(&judged(vec![row("iops", 0.9, 0.01), row("p99_latency_us", 1.0, 0.3)]));
        let line = |start: &str| {
            text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or_default().to_owned()
        };
        let words: Vec<String> = line("iops").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words[..5], ["iops", "8", "100000", "90000", "-10.0"], "{text}");
        assert!(line("iops").contains("different") && line("iops").ends_with("REJECTED"), "{text}");
        assert!(line("undecided p99_latency_us").contains("8 pairs"), "{text}");
        assert!(text.ends_with("rejected: 1 of 2 figures are worse by more than 5 %\n"), "{text}");
    }

    #[test]
    fn what_is_undecided_is_not_passed_over() {
        let text = render(&judged(vec![row("iops", 1.0, 0.3)]));
        assert!(text.contains("accepted: no figure") && text.contains("1 of 1 are undecided"), "{text}");
    }
}
