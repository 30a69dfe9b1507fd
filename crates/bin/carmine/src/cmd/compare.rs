//! `carmine compare` judges whether a change made anything slower; `carmine table` shows results side by side.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use carmine_load::report::show;
use carmine_report::write_results;
use carmine_stats::{Comparison, Outcome, Verdict};
use carmine_study::archive::{Run, write_whole};
use carmine_study::compare::{
    Arm, Judgement, Row, arm_of_files, arm_of_run, arms_of_run, check_axes, check_files, compare,
};
use carmine_study::table::Results;
use carmine_testbed::{TestbedError, json_text, note, print, usage};
use clap::Args;

/// Exit code of a comparison that decided nothing: 1 also stands for an error, and 2 for wrong options.
const UNDECIDED: u8 = 3;

const AFTER_HELP: &str = "Pairs of points with the same configuration are compared by Student's t on the logarithms of their ratios, with 95 % \
intervals; arms are different at a level of 1 %, after Holm's correction over all figures. A figure is rejected if it is shown to be worse by more than the tolerance. It is accepted \
if it cannot be worse by more than that, or is not shown to be worse by pairs that would have found a difference of that size. Otherwise it is \
undecided. The verdict of the comparison is the worst verdict of any figure.

Both must be of the same load on the same testbed, but for the build, the machine and each --axis. A measurement counts once: a file that \
is given twice is refused, and so is a copy.

Exit codes: 0 accepted; 1 rejected, or an error; 2 the two cannot be compared; 3 undecided: the last line says how many pairs would \
probably decide.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
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
    /// Compare loads or testbeds that differ in this setting, such as iodepth; repeatable
    #[arg(long = "axis", value_name = "AXIS", requires = "new")]
    axes: Vec<String>,
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

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let (base, new) = arms(args)?;
    let judged = compare(&base, &new, args.tolerance).map_err(usage)?;
    print(&render(&judged))?;
    if let Some(path) = &args.json {
        write_whole(path, json_text(&judged)?.as_bytes())?;
        note(&format!("comparison in {}", path.display()));
    }
    Ok(match judged.verdict {
        Verdict::Accepted => ExitCode::SUCCESS,
        Verdict::Rejected => ExitCode::FAILURE,
        Verdict::Undecided => ExitCode::from(UNDECIDED),
    })
}

pub(super) fn usage(error: impl std::fmt::Display) -> TestbedError {
    usage!("{error}")
}

fn arms(args: &CompareArgs) -> Result<(Arm, Arm)> {
    if let Some(new) = &args.new {
        let (base, new) = (arm(&args.base)?, arm(new)?);
        let [base, new] = [base, new].map(|arm| Arm { compared: args.axes.clone(), ..arm });
        check_files(&base, &new).map_err(usage)?;
        check_axes(&base, &new).map_err(usage)?;
        return Ok((base, new));
    }
    let names = match args.arms.as_slice() {
        [] => None,
        [base, new] => Some((base.as_str(), new.as_str())),
        names => anyhow::bail!(usage!("--arms {}: name two arms, as --arms A,B", names.join(","))),
    };
    let run = Run::open(&args.base).map_err(usage)?;
    Ok(arms_of_run(&run, names).map_err(usage)?)
}

/// A run, a folder of results, or a list of them.
pub(super) fn arm(path: &Path) -> Result<Arm> {
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
    let mut text = String::new();
    for (arm, name, origins) in
        [("base", &judged.base, &judged.base_from), ("new", &judged.new, &judged.new_from)]
    {
        let _ = writeln!(text, "{arm:<9} {name}");
        text.extend(origins.iter().map(|origin| format!("          from {origin}\n")));
    }
    for d in &judged.differences {
        let _ = writeln!(text, "differs   {}: {} -> {}", d.setting, d.base, d.new);
    }
    for warning in &judged.warnings {
        let _ = writeln!(text, "warning   {warning}");
    }
    text += &rows_table(judged);
    for row in judged.rows.iter().filter(|row| row.verdict == Verdict::Undecided) {
        let why = match &row.outcome {
            Outcome::Undecided { reason } => reason.clone(),
            _ => format!("it differs, but by more than {} or by less?", percent(judged.tolerance)),
        };
        let _ = writeln!(text, "undecided {}: {why}; {}", name(row), would_decide(row.pairs_to_decide));
    }
    let _ = writeln!(text, "{}", verdict(judged));
    text
}

fn name(row: &Row) -> String {
    if row.config.is_empty() { row.metric.to_owned() } else { format!("{}, {}", row.config, row.metric) }
}

const HEADER: &str =
    "figure | pairs | base | new | change | 95 % interval | p (Holm) | detects | outcome | verdict";

fn rows_table(judged: &Judgement) -> String {
    let rows = judged.rows.iter();
    if rows.clone().all(|row| row.config.is_empty()) {
        return super::table(HEADER, 1..8, rows.map(cells));
    }
    let rows = rows.map(|row| [vec![row.config.clone()], cells(row)].concat());
    super::table(&format!("configuration | {HEADER}"), 2..9, rows)
}

fn cells(row: &Row) -> Vec<String> {
    let number = |n: Option<f64>| show(n, if n < Some(1000.0) { 2 } else { 0 });
    let c = row.comparison.as_ref();
    let of = |text: &dyn Fn(&Comparison) -> String| c.map_or_else(|| "-".to_owned(), text);
    vec![
        row.metric.to_owned(),
        row.pairs.to_string(),
        number(row.base),
        number(row.new),
        of(&|c| change(c.ratio)),
        of(&|c| format!("{} to {}", change(c.interval.0), change(c.interval.1))),
        of(&|_| if row.adjusted_p < 1e-4 { "<0.0001".into() } else { format!("{:.4}", row.adjusted_p) }),
        of(&|c| format!("{:.1} %", c.detectable * 100.0)),
        match (&row.outcome, c) {
            // The last column says what follows from it.
            (Outcome::Undecided { .. }, Some(_)) => "no difference shown".to_owned(),
            (outcome, _) => outcome.to_string(),
        },
        match row.verdict {
            Verdict::Accepted => "accepted",
            Verdict::Undecided => "undecided",
            Verdict::Rejected => "REJECTED",
        }
        .to_owned(),
    ]
}

/// A ratio as the difference to 1.
fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// A part of 1 as percent, with at most two digits.
fn percent(part: f64) -> String {
    format!("{} %", (part * 1e4).round() / 100.0)
}

fn would_decide(pairs: Option<usize>) -> String {
    match pairs {
        Some(pairs) => format!("about {pairs} pairs would decide"),
        None => "no number of pairs that anyone measures would decide".to_owned(),
    }
}

/// The last line: the verdict of the whole, and what it takes to get one.
fn verdict(judged: &Judgement) -> String {
    let (tolerance, all) = (percent(judged.tolerance), judged.rows.len());
    let count = |verdict| judged.rows.iter().filter(|row| row.verdict == verdict).count();
    let undecided = count(Verdict::Undecided);
    match judged.verdict {
        Verdict::Accepted => format!("accepted: no figure is worse by more than {tolerance}"),
        Verdict::Undecided => {
            let pairs = judged.rows.iter().map(|row| row.pairs).max().unwrap_or_default();
            format!(
                "undecided: {undecided} of {all} figures may be worse by more than {tolerance}; {} (measured: {pairs}), or longer windows",
                would_decide(judged.pairs_to_decide)
            )
        }
        Verdict::Rejected => {
            let rejected = count(Verdict::Rejected);
            let more = if undecided > 0 { format!("; undecided: {undecided}") } else { String::new() };
            format!("rejected: {rejected} of {all} figures got worse by more than {tolerance}{more}")
        }
    }
}

/// Options of the table.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Results of `carmine bench --json`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also write a page to this file: the answer in words, and one chart
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print only the names of rows without an answer that one more repeat may give one: other work spoilt repeats, and there are
    /// fewer than five
    #[arg(long, conflicts_with = "html")]
    lacking: bool,
    /// Folder of a testbed (not used: FILE names the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn table(args: &TableArgs) -> Result<ExitCode> {
    let arm = arm_of_files("the table", &args.files).map_err(usage)?;
    let results = Results::new(&arm.points);
    if args.lacking {
        return super::done(&results.lacking().map(|row| format!("{}\n", row.name)).collect::<String>());
    }
    if let Some(path) = &args.html {
        write_results(&results, path)?;
    }
    super::done(&results.to_string())
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
        let pairs: Vec<(f64, f64)> = (0..8).map(|n| (1.0, factor * (1.0 + sign(n)))).collect();
        let comparison = paired_log_ratios(&pairs);
        let p = comparison.map_or(1.0, |c| c.p);
        let mut row = Row {
            config: String::new(),
            metric,
            more_is_better: true,
            pairs: 8,
            base: Some(1e5),
            new: Some(1e5 * factor),
            outcome: judge(&comparison, p, 0.05),
            comparison: comparison.ok(),
            adjusted_p: p,
            verdict: Verdict::Undecided,
            pairs_to_decide: None,
        };
        carmine_study::compare::correct(std::iter::once(&mut row), 0.05);
        row
    }

    fn judged(rows: Vec<Row>) -> Judgement {
        let verdict = rows.iter().map(|r| r.verdict).max().unwrap();
        let pairs_to_decide = rows.iter().filter_map(|r| r.pairs_to_decide).max();
        let (base, new) = ("old".to_owned(), "young".to_owned());
        Judgement {
            base,
            new,
            base_from: Vec::new(),
            new_from: Vec::new(),
            tolerance: 0.05,
            differences: Vec::new(),
            warnings: Vec::new(),
            rows,
            verdict,
            pairs_to_decide,
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
        assert!(line("undecided p99_latency_us").contains("8 measurements of each"), "{text}");
        let last = "rejected: 1 of 2 figures got worse by more than 5 %; undecided: 1\n";
        assert!(text.ends_with(last), "{text}");
    }

    #[test]
    fn what_is_undecided_is_not_accepted() {
        let row = row("iops", 1.0, 0.3);
        let pairs = row.pairs_to_decide.unwrap();
        let text = render(&judged(vec![row]));
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with("undecided: 1 of 1 figures may be worse by more than 5 %; about"), "{text}");
        assert!(last.contains(&format!("{pairs} pairs would decide (measured: 8)")), "{text}");
        let text = render(&judged(vec![self::row("iops", 1.0, 0.01)]));
        assert!(text.ends_with("accepted: no figure is worse by more than 5 %\n"), "{text}");
    }
}
