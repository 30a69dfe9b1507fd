//! The command line.

use std::path::PathBuf;

use carmine_testbed::Wish;
use clap::{Args, Parser, Subcommand};

use carmine_bench::{baseline, bench, top};
use carmine_testbed::spec::DirArgs;

use crate::cmd::{compare, doctor, peer, report, store, sweep, table, up};

/// A prototype of Ceph's OSD data path: shard-per-core reactors, measured in IOPS per core.
#[derive(Parser)]
#[command(name = "carmine", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a testbed: create it in an empty folder, start a stopped one, or restart its dead processes
    Up(UpArgs),
    /// Show the state of a testbed
    Status(StatusArgs),
    /// Restart OSDs of a running testbed, or start those that died
    Restart(RestartArgs),
    /// Stop a testbed and keep its data
    Down(DirArgs),
    /// Stop a testbed and remove its data
    Destroy(DirArgs),
    /// Load a testbed and measure it
    Bench(bench::BenchArgs),
    /// Measure the drive and the messenger without an OSD, for `bench --baseline`
    Baseline(baseline::BaselineArgs),
    /// Work on the object store without an OSD: load it, check it, move its parts
    Store(store::StoreArgs),
    /// Run a study: measure many points in a fair order and archive the results
    Sweep(sweep::SweepArgs),
    /// Print results of `bench --json` side by side
    Table(table::TableArgs),
    /// Compare two runs, or two arms of one, and accept or reject the change
    Compare(compare::CompareArgs),
    /// Write a report of archived runs: an HTML page with charts, and the tables as text
    Report(report::ReportArgs),
    /// Watch a running testbed: CPUs, operations, latency, queues, second by second
    Top(top::TopArgs),
    /// Find settings of this machine that would spoil a measurement; changes nothing
    Doctor(doctor::DoctorArgs),
    /// Run a real Ceph on loopback, as a baseline to compare with
    Peer(peer::PeerArgs),
    /// Print what would run on which CPU; starts nothing
    Plan(PlanArgs),
    /// Print a Ceph OSDMap file and its PG mappings, as osdmaptool does
    Osdmap(OsdmapArgs),
    /// Show the version and how this program was built
    Version(VersionArgs),
    /// Send an OSD an admin command, such as '{"prefix":"status"}', and print its answer
    #[command(hide = true)]
    Admin(AdminArgs),
}

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    pub(crate) wish: Wish,
    #[command(flatten)]
    pub(crate) precondition: up::PreconditionArgs,
    /// Seconds until every PG must be active
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[derive(Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Numbers of the OSDs [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub(crate) osd: Vec<u32>,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[derive(Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    #[command(flatten)]
    pub(crate) wish: Wish,
    /// Plan for another machine: a description file, or sockets x cores x threads such as 2x28x2
    #[arg(long, value_name = "FILE|SHAPE")]
    pub(crate) topology: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct OsdmapArgs {
    /// A file with a binary OSDMap
    pub(crate) file: PathBuf,
    /// Print the mapping of every PG
    #[arg(long)]
    pub(crate) pgs_dump: bool,
    /// Folder of a testbed (not used: FILE names the map)
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct VersionArgs {
    /// Compiler, flags, RocksDB, allocator
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Folder of a testbed (not used)
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Number of the OSD
    #[arg(long)]
    pub(crate) osd: u32,
    /// The command, as JSON
    pub(crate) question: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
