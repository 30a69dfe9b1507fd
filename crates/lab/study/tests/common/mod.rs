//! A machine that is only described: the expansion on it is the same everywhere.

use carmine_study::expand::Machine;
use carmine_topology::{Grid, PlanRequest, Topology};

/// A machine of sockets x cores x threads, such as `2x28x2`.
pub(crate) fn described(shape: &str) -> Machine {
    Machine { topology: Topology::from_short(shape).unwrap(), devices: Vec::new(), place }
}

fn option<T: std::str::FromStr>(up: &[String], name: &str) -> Option<T> {
    let at = up.iter().position(|word| word == name)?;
    up.get(at + 1)?.parse().ok()
}

/// As `carmine up` does with the options that matter here: it is in a crate above.
fn place(topology: &Topology, up: &[String]) -> Result<Grid, String> {
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
        client_cpus: option(up, "--client-cpus"),
        overprovisioned: up.iter().any(|word| word == "--overprovisioned"),
        alien_cpus: option(up, "--alien-cpus"),
        system_cpus: option(up, "--system-cpus"),
        neighbour_cpus: option(up, "--neighbour-cpus"),
        pgs: option(up, "--pgs").unwrap_or(0),
        size,
        osds_per_device: option(up, "--osds-per-device").unwrap_or(1),
        ..PlanRequest::default()
    };
    Grid::plan(topology, &request).map_err(|e| e.to_string())
}
