//! `carmine study`: the five studies as plans that fit a machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use carmine_study::archive::write_whole;
use carmine_study::expand::{expand, fitted, summary};
use carmine_study::plan::{Plan, SHIPPED, shipped};
use carmine_testbed::{note, usage};
use clap::Args;
use serde_json::json;

use super::print_as;
use super::sweep::machine;

#[derive(Args)]
pub(crate) struct StudyArgs {
    /// `list`, or the number of a study: prints its plan, and a summary of what it measures on the machine
    #[arg(value_name = "N|list")]
    study: String,
    /// Another machine: a file with the output of `lscpu -p`, or sockets x cores x threads such as 2x28x2
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
        let all = studies().map(|p| json!({"study": p.study, "question": p.question, "about": p.about}));
        return print_as(args.json, &all.collect::<Vec<_>>(), || list(studies()));
    }
    let (asked, count) = (&args.study, studies().count());
    let wrong = || usage!("study {asked}: the studies are 1 to {count}; see `carmine study list`");
    let number: u8 = args.study.parse().map_err(|_| wrong())?;
    let plan = studies().find(|plan| plan.study == Some(number)).ok_or_else(wrong)?;
    let machine = machine(args.topology.as_deref(), &[])?;
    let expansion = expand(&plan, &machine).map_err(|e| usage!("{e}"))?;
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

/// Number, question, and what it takes.
fn list(studies: impl Iterator<Item = Plan>) -> String {
    let here = machine(None, &[]);
    let line = |plan: Plan| {
        let takes = match here.as_ref().map(|machine| expand(&plan, machine)) {
            Ok(Ok(expansion)) => expansion.takes(),
            Ok(Err(_)) | Err(_) => "cannot be run on this machine".to_owned(),
        };
        let number = plan.study.unwrap_or_default();
        format!("{number}  {}\n   {}; here: {takes}\n", plan.question, plan.about)
    };
    let all: String = studies.map(line).collect();
    format!(
        "{all}\ncarmine study N prints a plan; carmine sweep study-N runs it; add --quick for a look that takes minutes.\n"
    )
}
