//! `carmine compare`: whether a change made anything slower; and `carmine table`: results side by side.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use carmine_stats::Outcome;
use carmine_study::archive::{Run, write_whole};
use carmine_study::compare::{Arm, Judgement, Row, arm_of_files, arm_of_run, arms_of_run, compare};
use carmine_testbed::TestbedError::{self, Usage};
use carmine_testbed::output::{json_text, note, print};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

/// Pairs of points with the same configuration are compared by Student's t on the logarithms of their ratios, with Holm's
/// correction over all figures. Exits with 0 if nothing is rejected, 1 if something is, 2 if the two cannot be compared.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// Folder of a run, or results of `carmine bench --json`: FILE,FILE,… or a folder of them
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The results to compare with BASE, in the same form; without it, compare two arms of the run BASE
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Two arms of the run BASE [default: those that its plan compares]
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, conflicts_with = "new")]
    arms: Vec<String>,
    /// Accept figures that get worse by less than this, such as 5% or 0.05
    #[arg(long, value_name = "PART", default_value = "5%", value_parser = parse_part)]
    tolerance: f64,
    /// Write the comparison to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder of a testbed (not used: BASE and NEW name the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (base, new) = arms(args)?;
    let judged = compare(&base, &new, args.tolerance).map_err(usage)?;
    print(&render(&judged))?;
    if let Some(path) = &args.json {
        write_whole(path, json_text(&judged)?.as_bytes())?;
        note(&format!("comparison in {}", path.display()));
    }
    Ok(if judged.accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage(error: impl std::fmt::Display) -> TestbedError {
    Usage(error.to_string())
}

fn arms(args: &CompareArgs) -> anyhow::Result<(Arm, Arm)> {
    if let Some(new) = &args.new {
        return Ok((arm(&args.base)?, arm(new)?));
    }
    let names = match args.arms.as_slice() {
        [] => None,
        [base, new] => Some((base.as_str(), new.as_str())),
        names => anyhow::bail!(Usage(format!("--arms {}: name two arms, as --arms A,B", names.join(",")))),
    };
    let run = Run::open(&args.base).map_err(usage)?;
    Ok(arms_of_run(&run, names).map_err(usage)?)
}

/// A run, a folder of results, or a list of them.
fn arm(path: &Path) -> anyhow::Result<Arm> {
    if path.join("run.json").is_file() {
        return Ok(arm_of_run(&Run::open(path).map_err(usage)?).map_err(usage)?);
    }
    let files = if path.is_dir() {
        results_in(path).with_context(|| format!("cannot read {}", path.display()))?
    } else {
        path.to_string_lossy().split(',').map(PathBuf::from).collect()
    };
    Ok(arm_of_files(&path.display().to_string(), &files).map_err(usage)?)
}

/// The folder's JSON files in the order of their names.
fn results_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let files =
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> =
        files.into_iter().filter(|path| path.extension() == Some("json".as_ref())).collect();
    files.sort();
    Ok(files)
}

/// A part of 1, or percent: `0.05`, `5%`.
fn parse_part(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    let part = digits.parse::<f64>().map_err(|_| "write it as 5% or 0.05".to_owned())? * unit;
    if (0.0..1.0).contains(&part) {
        Ok(part)
    } else {
        Err("it must be 0 % or more, and less than 100 %".to_owned())
    }
}

/// Differences of the two sides, a row for each figure, warnings, and the verdict.
fn render(judged: &Judgement) -> String {
    let mut text = format!("base      {}\nnew       {}\n", judged.base, judged.new);
    for d in &judged.differences {
        let _ = writeln!(text, "differs   {}: {} -> {}", d.setting, d.base, d.new);
    }
    for warning in &judged.warnings {
        let _ = writeln!(text, "warning   {warning}");
    }
    let _ = writeln!(text, "{}", rows_table(judged).trim_fmt());
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

fn rows_table(judged: &Judgement) -> Table {
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

/// Options of the table.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Results of `carmine bench --json`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder of a testbed (not used: FILE names the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn table(args: &TableArgs) -> anyhow::Result<ExitCode> {
    let mut results = Vec::with_capacity(args.files.len());
    for path in &args.files {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no result of carmine bench", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        results.push((name.trim_end_matches(".json").to_owned(), value));
    }
    print(&carmine_load::compare(&results))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_stats::{judge, paired_log_ratios};

    #[test]
    fn parts() {
        assert_eq!(parse_part("5%"), Ok(0.05));
        assert_eq!((parse_part(" 2.5 %"), parse_part("0.1"), parse_part("0")), (Ok(0.025), Ok(0.1), Ok(0.0)));
        for bad in ["5", "100%", "-1%", "five", "", "nan"] {
            assert!(parse_part(bad).is_err(), "{bad}");
        }
    }

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
