//! `carmine peer up`: a real Ceph with the sizes, PGs and CPUs that Carmine would have.

use carmine_topology::{CpuList, Grid};

use crate::archive::Config;

/// Axes that are options of `carmine peer up`.
const OPTIONS: [(&str, &str); 6] = [
    ("osds", "--osds"),
    ("pool_size", "--size"),
    ("pgs", "--pgs"),
    ("osd_size_bytes", "--osd-size"),
    ("osd_memory_bytes", "--osd-memory"),
    ("peer_build", "--peer-build"),
];

/// Refuses what a peer can't be given, so that it is not compared with a Carmine that has it.
pub(super) fn check(config: &Config) -> Result<(), String> {
    if config.text("confine") == Some("quota") && config.float("cpus").is_some() {
        return Err("confine = quota: a peer is confined to CPUs, not by time; take cpuset".to_owned());
    }
    match config.number("osds_per_device") {
        Some(n) if n > 1 => Err(format!("osds_per_device = {n}: a peer has a device or file for each OSD")),
        _ => Ok(()),
    }
}

/// Options of a peer on the CPUs of `grid`.
pub(super) fn options(
    config: &Config,
    grid: &Grid,
    overprovisioned: bool,
    devices: Vec<String>,
) -> Vec<String> {
    // Devices are used whole.
    let given = |axis: &str| axis != "osd_size_bytes" || devices.is_empty();
    let mut options = devices.clone();
    for (axis, option) in OPTIONS.into_iter().filter(|(axis, _)| given(axis)) {
        if let Some(value) = config.show(axis) {
            options.extend([option.to_owned(), value]);
        }
    }
    for (name, value) in &config.0 {
        if let (Some(name), Some(value)) = (name.strip_prefix("peer_opt."), value.as_str()) {
            options.extend(["--opt".to_owned(), format!("{name}={value}")]);
        }
    }
    let mut put = |option: &str, cpus: CpuList| options.extend([option.to_owned(), cpus.to_string()]);
    put("--cpus", grid.allocated_cpus());
    put("--client-cpus", grid.client_cpus());
    if config.text("peer") == Some("ceph-tuned") {
        options.push("--tuned".to_owned());
    }
    if overprovisioned {
        options.push("--overprovisioned".to_owned());
    }
    options
}
