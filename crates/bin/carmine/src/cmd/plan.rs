//! `carmine plan`: the CPU grid, without starting anything.

use std::process::ExitCode;

use carmine_testbed::{Layout, Plan, load_plan};
use carmine_topology::Topology;

use crate::args::PlanArgs;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, print};

pub(crate) fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let topology = match &args.topology {
        Some(text) => Topology::from_arg(text).map_err(|e| Usage(format!("--topology {text}: {e}")))?,
        None => Topology::detect()?,
    };
    let wish = args.wish;
    // With an existing testbed it shows the grid of the next `up`; else that of a new one.
    let stored = if args.topology.is_none() { load_plan(&Layout::new(&args.dir.dir)?)? } else { None };
    let plan = match stored {
        Some(plan) => plan.revise(&wish, &topology)?,
        None => Plan::new(&wish, &topology, "")?,
    };
    if args.json {
        print(&json_text(&plan)?)?;
    } else {
        print(&plan.render())?;
    }
    Ok(ExitCode::SUCCESS)
}
