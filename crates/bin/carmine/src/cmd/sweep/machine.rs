//! The machine as the study's expansion sees it: grids are those that `carmine up` would make.

use carmine_study::expand::Machine;
use carmine_testbed::{Plan, Wish};
use carmine_topology::{Grid, Topology};
use clap::Parser;

use super::args::SweepArgs;
use carmine_testbed::TestbedError::Usage;

/// This machine, or the one of `--topology`.
pub(crate) fn machine(args: &SweepArgs) -> anyhow::Result<Machine> {
    let topology = match &args.topology {
        Some(text) => Topology::from_arg(text).map_err(|e| Usage(format!("--topology {text}: {e}")))?,
        None => Topology::detect()?,
    };
    let devices = args.devs.iter().map(|device| device.display().to_string()).collect();
    Ok(Machine { topology, devices, place })
}

/// The options of `carmine up`, parsed as it does.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Up {
    #[command(flatten)]
    wish: Wish,
}

fn place(topology: &Topology, up: &[String]) -> Result<Grid, String> {
    let up =
        Up::try_parse_from(up).map_err(|e| e.to_string().lines().next().unwrap_or_default().to_owned())?;
    Plan::new(&up.wish, topology, "").map(|plan| plan.grid).map_err(|e| e.to_string())
}
