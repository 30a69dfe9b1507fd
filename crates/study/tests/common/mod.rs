//! A machine that is only described: the expansion on it is the same everywhere.

use carmine_study::expand::Machine;
use carmine_topology::{Grid, PlanRequest, Topology};

/// A described machine.
pub(crate) struct Described {
    pub(crate) topology: Topology,
    pub(crate) devices: Vec<String>,
}

impl Described {
    /// From sockets x cores x threads, such as `2x28x2`.
    pub(crate) fn new(shape: &str) -> Described {
        Described { topology: Topology::from_short(shape).unwrap(), devices: Vec::new() }
    }
}

fn option<T: std::str::FromStr>(up: &[String], name: &str) -> Option<T> {
    let at = up.iter().position(|word| word == name)?;
    up.get(at + 1)?.parse().ok()
}

impl Machine for Described {
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
        carmine_study::expand::cpu_list(&self.topology, smt, reactors)
    }

    fn place(&self, up: &[String]) -> Result<Grid, String> {
        let osds = option(up, "--osds").unwrap_or(1);
        let size: u32 = option(up, "--size").unwrap_or(1);
        if size as usize > osds {
            return Err(format!("--size {size}: there are only {osds} OSDs"));
        }
        let reactors: usize = option(up, "--reactors").unwrap_or(1);
        let request = PlanRequest {
            osds,
            reactors,
            strategy: option(up, "--balance").unwrap_or_default(),
            cpus: option(up, "--cpus"),
            overprovisioned: up.iter().any(|word| word == "--overprovisioned"),
            clients: (osds * reactors).div_ceil(2).min(self.cpus().saturating_sub(osds * reactors)).max(1),
            pgs: option(up, "--pgs").unwrap_or(0),
            size,
            osds_per_device: option(up, "--osds-per-device").unwrap_or(1),
            ..PlanRequest::default()
        };
        Grid::plan(&self.topology, &request).map_err(|e| e.to_string())
    }
}
