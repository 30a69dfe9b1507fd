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
    /// Start a testbed: make it if the folder is empty, start it again if it is stopped, or those of its processes that have died
    Up(UpArgs),
    /// Show the state of a testbed
    Status(StatusArgs),
    /// Start OSDs of a running testbed again, such as one that died; those that run are stopped first
    Restart(RestartArgs),
    /// Stop a testbed; its data stays
    Down(DirArgs),
    /// Stop a testbed and remove its data
    Destroy(DirArgs),
    /// Load a testbed and measure it
    Bench(bench::BenchArgs),
    /// Measure the drive and the messenger without an OSD: what `bench --baseline` compares with
    Baseline(baseline::BaselineArgs),
    /// The object store alone, without an OSD
    Store(store::StoreArgs),
    /// Run a plan of many points in a fair order and archive them: the studies as one command
    Sweep(sweep::SweepArgs),
    /// Print results of `bench --json` side by side
    Table(table::TableArgs),
    /// Compare two runs, or two arms of one: accepted, or rejected for a regression
    Compare(compare::CompareArgs),
    /// Write the report of archived runs: one page with charts, and the same tables as text
    Report(report::ReportArgs),
    /// Watch a running testbed: CPUs, operations, latency, queues, second by second
    Top(top::TopArgs),
    /// Look for settings of this machine that would spoil a measurement; nothing is changed
    Doctor(doctor::DoctorArgs),
    /// A real Ceph on loopback, to measure beside
    Peer(peer::PeerArgs),
    /// Print who would sit on which CPU; nothing is started
    Plan(PlanArgs),
    /// Print any Ceph OSDMap file, and the PG mappings, as osdmaptool does
    Osdmap(OsdmapArgs),
    /// Show the version, and how this program was built
    Version(VersionArgs),
    /// Ask an OSD a question of its admin protocol, such as '{"prefix":"status"}', and print the answer
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
    /// The question, as JSON
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
