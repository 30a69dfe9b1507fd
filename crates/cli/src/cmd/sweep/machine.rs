//! The machine as the study's expansion sees it: grids are those that `carmine up` would make.

use carmine_study::expand::{Machine, cpu_list};
use carmine_testbed::Plan;
use carmine_topology::{Grid, Topology};
use clap::Parser;

use super::args::SweepArgs;
use crate::args::RawArgs;
use crate::output::Usage;

/// This machine, or the one of `--topology`.
pub(crate) struct ThisMachine {
    topology: Topology,
    devices: Vec<String>,
}

impl ThisMachine {
    pub(crate) fn new(args: &SweepArgs) -> anyhow::Result<ThisMachine> {
        let topology = match &args.topology {
            Some(text) => Topology::from_arg(text).map_err(|e| Usage(format!("--topology {text}: {e}")))?,
            None => Topology::detect()?,
        };
        let devices = args.devs.iter().map(|device| device.display().to_string()).collect();
        Ok(ThisMachine { topology, devices })
    }
}

/// The options of `carmine up`, parsed as it does.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Up {
    #[command(flatten)]
    wish: RawArgs,
}

impl Machine for ThisMachine {
    fn cpus(&self) -> usize {
        self.topology.allowed().len()
    }

    fn sockets(&self) -> usize {
        self.topology.sockets()
    }

    fn devices(&self) -> &[String] {
        &self.devices
    }

    fn cpu_list(&self, smt: bool, reactors: usize) -> Option<String> {
        cpu_list(&self.topology, smt, reactors)
    }

    fn place(&self, up: &[String]) -> Result<Grid, String> {
        let up = Up::try_parse_from(up)
            .map_err(|e| e.to_string().lines().next().unwrap_or_default().to_owned())?;
        Plan::new(&up.wish.wish(), &self.topology, "").map(|plan| plan.grid).map_err(|e| e.to_string())
    }
}
