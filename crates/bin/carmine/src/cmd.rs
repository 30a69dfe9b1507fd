//! The command line, and the commands, one module each.

mod compare;
mod doctor;
mod join;
mod model;
mod osd;
mod peer;
mod report;
mod store;
mod study;
mod sweep;
mod testbed;
mod up;
mod version;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use carmine_bench::{baseline, bench, load_hosts, measure, top};
use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_daemon::signals::cancel_flag;
use carmine_load::{verdict, words};
use carmine_sim::command;
use carmine_testbed::{BedKind, DirArgs, json_text, print};
use carmine_types::columns;
use carmine_wire::osdmap::OsdMap;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde::Serialize;

/// Stands below the commands.
const WORDS_HELP: &str = "\
`carmine help words` explains the words of results, `carmine help NOISY` one of them (both with --json);
`carmine help verdicts` shows how it is decided what limited a load.";

/// A prototype of Ceph's OSD data path: shard-per-core reactors, measured in IOPS per core.
#[derive(Parser)]
#[command(name = "carmine", version, max_term_width = 110, after_help = WORDS_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a testbed: create it in an empty folder, start a stopped one, or restart its dead processes
    Up(up::UpArgs),
    /// Add OSDs of this host to a cluster that runs: a Ceph cluster, or a testbed of several hosts
    Join(Box<join::JoinArgs>),
    /// Show the state of a testbed
    Status(testbed::BedArgs),
    /// Restart the OSDs of a testbed, dead ones included
    Restart(testbed::RestartArgs),
    /// Start, stop, kill and restart OSDs of a running testbed, one by one
    Osd(osd::OsdArgs),
    /// Stop a testbed and keep its data
    Down(DirArgs),
    /// Stop a testbed and remove its data
    Destroy(testbed::DestroyArgs),
    /// Load a testbed and measure it
    Bench(bench::BenchArgs),
    /// Wait on a load host for the controllers of others, and make their loads: `bench --load-hosts`
    Load(load_hosts::LoadArgs),
    /// Run any command, and measure the OSDs meanwhile
    Measure(measure::MeasureArgs),
    /// Load a testbed with verified data while its OSDs are killed, stopped, restarted and taken out at random; then check it all
    Thrash(carmine_thrash::ThrashArgs),
    /// Run whole clusters in a simulator, under faults that seeds draw, and check what their clients saw
    Sim(command::SimArgs),
    /// Measure the drive and the messenger without an OSD, for `bench --baseline`
    Baseline(baseline::BaselineArgs),
    /// Work on the object store without an OSD: load it, check it, move its parts
    Store(store::StoreArgs),
    /// Show the studies, and a study's plan as it fits a machine
    Study(study::StudyArgs),
    /// Run a plan: measure many points in a fair order and archive the results
    Sweep(sweep::SweepArgs),
    /// Print results of `bench --json` side by side
    Table(compare::TableArgs),
    /// Compare two runs, or two arms of one, and accept or reject the change
    Compare(compare::CompareArgs),
    /// Predict the IOPS of 1 to 64 reactors from results of one and of two, and say what would prove it wrong
    Model(model::ModelArgs),
    /// Write a report of archived runs: an HTML page with charts, and the tables as text
    Report(report::ReportArgs),
    /// Watch a running testbed: CPUs, operations, latency, queues, second by second
    Top(top::TopArgs),
    /// Find settings of this machine that would spoil a measurement; changes nothing
    Doctor(doctor::DoctorArgs),
    /// Run a real Ceph on loopback, as a baseline to compare with
    Peer(peer::PeerArgs),
    /// Print which thread would run on which CPU; starts nothing
    Plan(testbed::PlanArgs),
    /// Print a Ceph OSDMap file and its PG mappings, as osdmaptool does
    Osdmap(OsdmapArgs),
    /// Show the version and how this program was built
    Version(version::VersionArgs),
    /// Send an OSD an admin command, such as '{"prefix":"status"}', and print its answer
    #[command(hide = true)]
    Admin(testbed::AdminArgs),
    /// Keep CPUs busy until it is ended: the neighbour that `bench` starts on --neighbour-cpus
    #[command(hide = true)]
    Neighbour(testbed::NeighbourArgs),
    /// Delay the packets of an OSD's link until it is ended: the relay that `up` starts with --net-delay-us
    #[command(hide = true)]
    Relay(testbed::RelayArgs),
}

/// Runs a command; the exit code is its own, errors are printed by the caller.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let git_hash = carmine_bench::GitHash(carmine_daemon::build::GIT_HASH);
    match command {
        Command::Up(args) => up::run(args),
        Command::Join(args) => join::run(&args),
        Command::Status(args) => testbed::show(BedKind::Testbed, &args.dir.dir, args.json),
        Command::Restart(args) => testbed::restart(&args),
        Command::Osd(args) => osd::run(&args),
        Command::Down(args) => testbed::down(BedKind::Testbed, &args.dir),
        Command::Destroy(args) => testbed::destroy_testbed(&args),
        Command::Baseline(args) => baseline::run(&args, &*cancel_flag()?, git_hash),
        Command::Bench(args) => bench::run(args, &*cancel_flag()?, doctor::findings_of, git_hash),
        Command::Load(args) => load_hosts::run(&args, &*cancel_flag()?, git_hash),
        Command::Measure(args) => measure::run(&args, &*cancel_flag()?),
        Command::Thrash(args) => carmine_thrash::run(&args, &*cancel_flag()?),
        Command::Sim(args) => {
            // All of its daemons log to this terminal: only if somebody asks for it.
            if std::env::var_os("CARMINE_LOG").is_some() {
                carmine_daemon::logging::start();
            }
            command::run(&args, &*cancel_flag()?)
        }
        Command::Store(args) => store::run(args),
        Command::Study(args) => study::run(&args),
        Command::Sweep(args) => sweep::run(args),
        Command::Table(args) => compare::table(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Top(args) => top::run(&args, &*cancel_flag()?),
        Command::Plan(args) => testbed::plan(args),
        Command::Osdmap(args) => osdmap(&args),
        Command::Version(args) => version::run(&args),
        Command::Admin(args) => testbed::admin(&args),
        Command::Neighbour(args) => testbed::neighbour(&args),
        Command::Relay(args) => testbed::be_relay(&args),
    }
}

/// Prints the text of a command that has done its work.
fn done(text: &str) -> Result<ExitCode> {
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// 0 if everything is as it should be, else 1.
fn code(is_fine: bool) -> ExitCode {
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a value as JSON, or its text.
fn print_as<T: Serialize>(as_json: bool, value: &T, text: impl FnOnce() -> String) -> Result<ExitCode> {
    done(&if as_json { json_text(value)? } else { text() })
}

/// A table without lines; the header has `|` between its columns, and `numbers` are the columns of numbers.
fn table(header: &str, numbers: Range<usize>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let header = header.split(" | ").map(str::to_owned).collect();
    columns(&[header].into_iter().chain(rows).collect::<Vec<_>>(), |at| numbers.contains(&at))
}

/// The text of `carmine help words`, `carmine help verdicts` or `carmine help WORD`, if the arguments are one of these; all other
/// help is clap's, which knows commands only.
pub(crate) fn of_words(args: &[String]) -> Option<String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (topic, json) = match args[..] {
        ["help", topic] => (topic, false),
        ["help", topic, "--json"] | ["help", "--json", topic] => (topic, true),
        _ => return None,
    };
    let of_topic = |word: &&words::Word| topic == "words" || word.name == topic;
    let found: Vec<words::Word> = words::WORDS.iter().filter(of_topic).copied().collect();
    match topic {
        "verdicts" if !json => Some(verdict::page()),
        _ if found.is_empty() || Cli::command().find_subcommand(topic).is_some() => None,
        _ if json => json_text(&found).ok(),
        "words" => Some(words::PAGE.to_owned()),
        _ => Some(
            found.iter().map(|word| format!("{} ({}): {}\n", word.name, word.kind, word.meaning)).collect(),
        ),
    }
}

#[derive(Args)]
pub(crate) struct OsdmapArgs {
    /// A file with a binary OSDMap
    file: PathBuf,
    /// Print the mapping of every PG
    #[arg(long)]
    pgs_dump: bool,
    /// Folder of a testbed (not used: FILE names the map)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

fn osdmap(args: &OsdmapArgs) -> Result<ExitCode> {
    let path = args.file.display();
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {path}"))?;
    let map = OsdMap::decode(&bytes).map_err(|e| anyhow!("{path} is not an OSDMap: {e}"))?;
    done(&if args.pgs_dump { pgs_dump(&map, None, PgColumns::Acting) } else { print_map(&map) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
