//! What can be wrong with a topology or a plan. Every message names the value and what to change.

use thiserror::Error;

use carmine_types::counted;

use crate::{CpuList, Strategy};

/// A topology that could not be read or described.
#[derive(Debug, Error)]
pub enum TopologyError {
    #[error("CPU list `{text}`: {why}; write it as in 0-3,8")]
    CpuList { text: String, why: String },
    #[error("`{text}`: write how many CPUs clients get as in count:4, name them as in 0-3,8, or take rest")]
    ClientCount { text: String },
    #[error(
        "topology shape `{text}`: {why}; write sockets x cores x threads as in 2x28x2, or sockets x L3 groups x cores \
         x threads as in 1x8x8x2"
    )]
    Shape { text: String, why: String },
    #[error("topology file {path}: {why}")]
    File { path: String, why: String },
    #[error(
        "cannot read the machine's topology: {path}: {why}; describe it with --topology FILE or 2x28x2 instead"
    )]
    Sysfs { path: String, why: String },
    #[error("topology {name} has no usable CPU")]
    Empty { name: String },
}

/// A plan that does not fit its topology.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    #[error("{what} is 0: at least 1 is needed")]
    Zero { what: &'static str },
    #[error("{option} {unknown}: no such CPU here; topology {topology} has {have}")]
    Unknown { option: &'static str, unknown: CpuList, topology: String, have: CpuList },
    #[error(
        "{option} {denied}: this process may not run there (allowed: {allowed}); change {option}, or the container's \
         cpuset or taskset that limits it"
    )]
    NotAllowed { option: &'static str, denied: CpuList, allowed: CpuList },
    #[error("{option} is an empty list; give at least one CPU or leave it out")]
    EmptyList { option: &'static str },
    #[error(
        "{first} and {second} both have CPU {both}: make the lists disjoint, or share CPUs with --overprovisioned"
    )]
    Overlap { first: &'static str, second: &'static str, both: CpuList },
    #[error(
        "too few CPUs: {} x {} need {need}, there are {have} ({cpus}){reserved}; lower --osds \
         or --reactors, widen --cpus, or share CPUs with --overprovisioned",
        counted(*osds, "OSD"), counted(*reactors, "reactor")
    )]
    TooFew { osds: usize, reactors: usize, need: usize, have: usize, cpus: CpuList, reserved: String },
    #[error(
        "--confine-cpus {each}: there are {have} CPUs for OSDs ({cpus}); lower it, widen --cpus, or take --confine quota"
    )]
    CpusetTooLarge { each: usize, have: usize, cpus: CpuList },
    #[error(
        "too few CPUs: {} x {} of --confine-cpus need {need}, there are {have} ({cpus}); lower --osds \
         or --confine-cpus, widen --cpus, or share CPUs with --overprovisioned",
        counted(*osds, "OSD"), counted(*each, "CPU")
    )]
    CpusetsTooMany { osds: usize, each: usize, need: usize, have: usize, cpus: CpuList },
    #[error(
        "--reactors {reactors} and --confine-cpus {each}: reactors would share CPUs; lower --reactors, raise \
         --confine-cpus, or allow it with --overprovisioned"
    )]
    CpusetTooSmall { reactors: usize, each: usize },
    #[error(
        "--alien-cpus and --confine cpuset: aliens run on what the reactors leave of their OSD's CPUs; leave one of the \
         two out"
    )]
    AliensConfined,
    #[error(
        "--balance none and --confine cpuset: a cpuset gives each OSD CPUs of its own, to which its reactors are pinned; name \
         the CPUs of all OSDs with --cpus, or take --confine quota"
    )]
    UnpinnedConfined,
    #[error(
        "--balance {strategy}: OSD {osd} needs {need} CPUs on socket {socket}, where {have} of {pool} are left; lower \
         --osds or --reactors, keep fewer for clients (--client-cpus count:N), widen --cpus there, take --balance default, or \
         share CPUs with --overprovisioned"
    )]
    SocketFull { strategy: Strategy, osd: usize, socket: usize, need: usize, have: usize, pool: usize },
    #[error(
        "clients need {}, and {have} are left beside those of others ({others}); give --client-cpus, take CPUs from the others, \
         or share CPUs with --overprovisioned",
        counted(*count, "CPU")
    )]
    NoClientCpu { count: usize, have: usize, others: CpuList },
}
