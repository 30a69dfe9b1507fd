//! `carmine study`: the five studies as plans that fit a machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use carmine_study::answer::NoAnswer;
use carmine_study::archive::write_whole;
use carmine_study::expand::{Expansion, Machine, expand, fitted, summary};
use carmine_study::plan::{Plan, SHIPPED, shipped};
use carmine_testbed::{note, usage};
use clap::Args;
use serde_json::{Value, json};

use super::print_as;
use super::sweep::machine;

#[derive(Args)]
pub(crate) struct StudyArgs {
    /// `list`, or the number of a study: prints its plan, and a summary of what it measures on the machine
    #[arg(value_name = "N|list")]
    study: String,
    /// Another machine: a file with the output of `lscpu -p` or `lstopo --of xml`, or a shape such as 2x28x2; see `carmine plan
    /// --help`
    #[arg(long, value_name = "FILE|SHAPE")]
    topology: Option<String>,
    /// Write the plan to this file, for `carmine sweep FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Starts nothing.
pub(crate) fn run(args: &StudyArgs) -> Result<ExitCode> {
    let studies =
        || SHIPPED.iter().filter_map(|plan| shipped(plan.name)?.ok()).filter(|plan| plan.study.is_some());
    if args.study == "list" {
        let machine = machine(args.topology.as_deref(), &[])?;
        let listed: Vec<Listed> = studies().map(|plan| Listed::on(plan, &machine)).collect();
        let json: Vec<_> = listed.iter().map(Listed::json).collect();
        return print_as(args.json, &json, || list(&listed));
    }
    let (asked, count) = (&args.study, studies().count());
    let wrong = || usage!("study {asked}: the studies are 1 to {count}; see `carmine study list`");
    let number: u8 = args.study.parse().map_err(|_| wrong())?;
    let plan = studies().find(|plan| plan.study == Some(number)).ok_or_else(wrong)?;
    let machine = machine(args.topology.as_deref(), &[])?;
    let expansion = expand(&plan, &machine)?;
    let text = fitted(&plan, &expansion);
    if let Some(path) = &args.out {
        write_whole(path, text.as_bytes())?;
        note(&format!("plan in {0}; run it with: carmine sweep {0}", path.display()));
    }
    print_as(args.json, &expansion, || match args.out {
        Some(_) => summary(&plan, &expansion),
        None => format!("{text}\n{}", summary(&plan, &expansion)),
    })
}

/// A study and its points on a machine if they can answer anything; else the reasons.
struct Listed {
    plan: Plan,
    points: Result<Expansion, String>,
}

impl Listed {
    fn on(plan: Plan, machine: &Machine) -> Listed {
        let points = match expand(&plan, machine) {
            Err(_) => Err("no part of it fits this machine".to_owned()),
            Ok(Expansion { no_answer: Some(NoAnswer { whole: true, why }), .. }) => Err(why.join("; ")),
            Ok(points) => Ok(points),
        };
        Listed { plan, points }
    }

    /// `no_answer` is null if it answers anything here, and `estimate_s` if it does not; `open` has the parts without an answer.
    fn json(&self) -> Value {
        let Plan { study, question, about, .. } = &self.plan;
        let points = self.points.as_ref();
        json!({
            "study": study, "question": question, "about": about, "no_answer": points.err(),
            "estimate_s": points.ok().map(|points| points.estimate.as_secs_f64()),
            "open": points.ok().and_then(|points| Some(&points.no_answer.as_ref()?.why)),
        })
    }
}

/// Number, question, and what it takes; no hours for what answers nothing.
fn list(studies: &[Listed]) -> String {
    let line = |listed: &Listed| {
        let here = match &listed.points {
            Ok(points) if points.no_answer.is_some() => format!("here, in part: {}", points.takes()),
            Ok(points) => format!("here: {}", points.takes()),
            Err(why) => format!("here: no answer: {why}"),
        };
        let Plan { study, question, about, .. } = &listed.plan;
        format!("{}  {question}\n   {about}; {here}\n", study.unwrap_or_default())
    };
    let all: String = studies.iter().map(line).collect();
    format!(
        "{all}\ncarmine study N prints a plan and what stays open; carmine sweep study-N runs it; add --quick for a look that takes \
         minutes.\n"
    )
}
