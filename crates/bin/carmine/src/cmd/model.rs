//! `carmine model`: what more reactors would do, from results of one and of two.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use carmine_stats::Interval;
use carmine_study::compare::{Arm, check_files};
use carmine_study::model::{Line, Model};
use carmine_types::counted;
use clap::{Args, value_parser};

use super::compare::{arm, usage};
use super::{print_as, table};

/// Exit code if no load supports a prediction, as of a comparison that decided nothing.
const NO_ANSWER: u8 = 3;

const AFTER_HELP: &str = "The cost of an operation is the reactors' time for it: reactors / IOPS. Each added reactor raises it by what the second one did. \
The interval (95 %) is where the mean of three repeats would fall, by the noise of the repeats; it holds if the assumptions do, which are printed.

A size counts if three repeats have no mark that spoils them, and if the reactors were the limit (OSD) or, inside the OSD, waited as each of more would \
(QD, WAIT); the machine must not have drifted by more than 5 %. Sizes above two, if there are any, are compared with the prediction.

Measure with: carmine sweep model --out RUN

Exit codes: 0 predicted; 1 a measured size lies outside its interval, or an error; 2 the results cannot be used; 3 no load supports a prediction.";

/// Options of the model.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ModelArgs {
    /// Folder of a run, or results of `carmine bench --json`: FILE,FILE,… or a folder of them
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// Numbers of reactors to predict
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', num_args = 1, default_value = "1,2,4,8,16,32,64",
        value_parser = value_parser!(u32).range(1..=1024))]
    reactors: Vec<u32>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Folder of a testbed (not used: RESULTS names the results)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ModelArgs) -> Result<ExitCode> {
    let arm = arm(&args.results)?;
    check_files(&arm, &Arm::default()).map_err(usage)?;
    let model = Model::new(&arm, &args.reactors).map_err(usage)?;
    print_as(args.json, &model, || render(&model))?;
    Ok(if model.answered().next().is_none() {
        ExitCode::from(NO_ANSWER)
    } else {
        super::code(model.falsified().next().is_none())
    })
}

/// Predictions and costs of each load, the checks, the assumptions, and what would prove it wrong.
fn render(model: &Model) -> String {
    let mut parts: Vec<String> = model.lines.iter().map(line).collect();
    if !model.held_out.is_empty() {
        parts.push(held_out(model));
    }
    let list = |title: &str, lines: &[String]| -> Option<String> {
        let lines: String = lines.iter().map(|line| format!("- {line}\n")).collect();
        (!lines.is_empty()).then(|| format!("{title}:\n{lines}"))
    };
    if model.answered().next().is_some() {
        parts.extend(list("It assumes", &model.assumptions.map(str::to_owned)));
    }
    parts.extend(list("It is proved wrong on a large machine like this", &model.falsified_by));
    parts.extend(list("Left out", &model.left_out));
    let (all, answered, wrong) = (model.lines.len(), model.answered().count(), model.falsified().count());
    parts.push(match (answered, wrong) {
        (0, _) => "no answer: no load supports a prediction\n".to_owned(),
        (_, 0) => format!("predicted: {answered} of {}\n", counted(all, "load")),
        _ => format!("FALSIFIED: {} outside the interval\n", counted(wrong, "measured size")),
    });
    parts.join("\n")
}

fn percent(part: f64) -> String {
    format!("{:+.1} %", part * 100.0)
}

fn range((low, high): Interval) -> String {
    format!("{low:.0} to {high:.0}")
}

/// The rows of a load: sizes, costs, checks; or why there is no prediction.
fn line(line: &Line) -> String {
    let name = if line.name.is_empty() { "all results" } else { &line.name };
    let (Some(law), None) = (line.law, &line.no_answer) else {
        return format!("{name}: no answer: {}\n", line.no_answer.as_deref().unwrap_or_default());
    };
    let (low, high) = law.growth_interval;
    let mut text = format!(
        "{name}: an operation takes {:.0} ns of a reactor; each added reactor changes that by {} (95 %: {} to {})\n",
        law.one,
        percent(law.growth),
        percent(low),
        percent(high)
    );
    let first = 1e9 / law.one;
    let rows = line.predictions.iter().map(|p| {
        let part = 100.0 * p.iops / (f64::from(p.reactors) * first);
        let bound = if p.is_drive_bound { "the drive" } else { "reactors" };
        let [iops, flat, part] = [p.iops, p.iops_if_flat, part].map(|figure| format!("{figure:.0}"));
        vec![p.reactors.to_string(), iops, range(p.interval), part, flat, bound.to_owned()]
    });
    text += &table(
        "reactors | IOPS | 95 % interval | % of linear | IOPS if growth ends at 2 | bound by",
        0..5,
        rows,
    );
    if !line.parts.is_empty() {
        let rows = line.parts.iter().map(|part| {
            let figures = [part.one_ns, part.two_ns, part.two_ns - part.one_ns];
            std::iter::once(part.name.clone()).chain(figures.map(|ns| format!("{ns:.0}"))).collect()
        });
        text += &table("ns of an operation | at 1 | at 2 | growth", 1..4, rows);
    }
    text + &checks(line)
}

/// What was measured beside what is predicted.
fn checks(line: &Line) -> String {
    let mut text = String::new();
    for check in line.two_from_one.iter().chain(&line.larger) {
        let word = if check.holds() { "within" } else { "FALSIFIED: outside" };
        let (from, verdict) = match check.interval {
            Some(interval) => ("1 and 2", format!("; {word} {}", range(interval))),
            None => ("1 alone, without growth", String::new()),
        };
        text += &format!(
            "check: {} reactors from {from}: predicted {:.0}, measured {:.0}, error {}{verdict}\n",
            check.reactors,
            check.predicted_iops,
            check.measured_iops,
            percent(check.error)
        );
    }
    text.extend(line.unsupported.iter().map(|why| format!("check: no answer {why}\n")));
    text
}

fn held_out(model: &Model) -> String {
    let rows = model.held_out.iter().map(|held| {
        let [growth, mean, worst] = [held.growth_of_others, held.mean_error, held.worst_error].map(percent);
        vec![held.held_out.clone(), held.lines.to_string(), growth, mean, worst]
    });
    let head = "held out | loads | growth of the others | mean size of errors | worst error";
    let text = table(head, 1..5, rows);
    format!(
        "Two reactors of what was held out, from its own cost at one and the growth of all others:\n{text}"
    )
}
