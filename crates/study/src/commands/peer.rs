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

/// Options of a peer on the CPUs of `grid`.
pub(super) fn options(
    config: &Config,
    grid: &Grid,
    overprovisioned: bool,
    devices: Vec<String>,
) -> Vec<String> {
    let mut options = devices;
    for (axis, option) in OPTIONS {
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
