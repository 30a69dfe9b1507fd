//! The command line, and the commands, one module each.

mod compare;
mod doctor;
mod peer;
mod store;
mod study;
mod sweep;
mod testbed;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use carmine_bench::{baseline, bench, top};
use carmine_crush::print::{PgColumns, pgs_dump, print_map};
use carmine_daemon::build;
use carmine_daemon::signals::cancel_flag;
use carmine_load::{verdict, words};
use carmine_testbed::BedKind;
use carmine_testbed::output::{json_text, print};
use carmine_testbed::spec::DirArgs;
use carmine_wire::osdmap::OsdMap;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
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
    Up(testbed::UpArgs),
    /// Show the state of a testbed
    Status(testbed::StatusArgs),
    /// Restart OSDs of a running testbed, or start those that died
    Restart(testbed::RestartArgs),
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
    /// Show the studies, and a study's plan as it fits a machine
    Study(study::StudyArgs),
    /// Run a plan: measure many points in a fair order and archive the results
    Sweep(sweep::SweepArgs),
    /// Print results of `bench --json` side by side
    Table(compare::TableArgs),
    /// Compare two runs, or two arms of one, and accept or reject the change
    Compare(compare::CompareArgs),
    /// Write a report of archived runs: an HTML page with charts, and the tables as text
    Report(study::ReportArgs),
    /// Watch a running testbed: CPUs, operations, latency, queues, second by second
    Top(top::TopArgs),
    /// Find settings of this machine that would spoil a measurement; changes nothing
    Doctor(doctor::DoctorArgs),
    /// Run a real Ceph on loopback, as a baseline to compare with
    Peer(peer::PeerArgs),
    /// Print what would run on which CPU; starts nothing
    Plan(testbed::PlanArgs),
    /// Print a Ceph OSDMap file and its PG mappings, as osdmaptool does
    Osdmap(OsdmapArgs),
    /// Show the version and how this program was built
    Version(VersionArgs),
    /// Send an OSD an admin command, such as '{"prefix":"status"}', and print its answer
    #[command(hide = true)]
    Admin(testbed::AdminArgs),
    /// Keep CPUs busy until it is ended: the neighbour that `bench` starts on --neighbour-cpus
    #[command(hide = true)]
    Neighbour(testbed::NeighbourArgs),
}

/// Runs a command; the exit code is its own, errors are printed by the caller.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => testbed::run(args),
        Command::Status(args) => testbed::show(BedKind::Testbed, &args.dir.dir, args.json),
        Command::Restart(args) => testbed::restart(&args),
        Command::Down(args) => testbed::down(BedKind::Testbed, &args.dir),
        Command::Destroy(args) => testbed::destroy(BedKind::Testbed, &args.dir),
        Command::Baseline(args) => baseline::run(&args, &*cancel_flag()?),
        Command::Bench(args) => bench::run(args, &*cancel_flag()?, doctor::findings_of),
        Command::Store(args) => store::run(args),
        Command::Study(args) => study::run(&args),
        Command::Sweep(args) => sweep::run(args),
        Command::Table(args) => compare::table(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => study::report(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Top(args) => top::run(&args, &*cancel_flag()?),
        Command::Plan(args) => testbed::plan(args),
        Command::Osdmap(args) => osdmap(&args),
        Command::Version(args) => version(&args),
        Command::Admin(args) => testbed::admin(&args),
        Command::Neighbour(args) => testbed::neighbour(&args),
    }
}

/// Prints the text of a command that has done its work.
fn done(text: &str) -> anyhow::Result<ExitCode> {
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// 0 if everything is as it should be, else 1.
fn code(is_fine: bool) -> ExitCode {
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a value as JSON, or its text.
fn print_as<T: Serialize>(
    as_json: bool,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<ExitCode> {
    done(&if as_json { json_text(value)? } else { text() })
}

/// A table without lines; the header has `|` between its columns, and the columns `right` are numbers.
fn table(header: &str, right: Range<usize>, rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.split(" | ")).add_rows(rows);
    for column in table.column_iter_mut().take(right.end).skip(right.start) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

// `carmine help words`, `carmine help verdicts` and `carmine help WORD`; all other help is clap's, which knows commands only.

/// The text for these arguments; `None` if they do not ask for a word.
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

// `carmine osdmap`: prints any Ceph OSDMap file.

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

pub(crate) fn osdmap(args: &OsdmapArgs) -> Result<ExitCode> {
    let path = args.file.display();
    let bytes = std::fs::read(&args.file).with_context(|| format!("cannot read {path}"))?;
    let map = OsdMap::decode(&bytes).map_err(|e| anyhow!("{path} is no OSDMap: {e}"))?;
    done(&if args.pgs_dump { pgs_dump(&map, None, PgColumns::Acting) } else { print_map(&map) })
}

// `carmine version`.

#[derive(Args)]
pub(crate) struct VersionArgs {
    /// Compiler, flags, RocksDB, allocator
    #[arg(long, short)]
    verbose: bool,
    /// Folder of a testbed (not used)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn version(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let mut text = format!("carmine {}\n", env!("CARGO_PKG_VERSION"));
    if args.verbose {
        let rows = [
            ("commit", build::commit().into()),
            (
                "profile",
                format!("{} (opt-level {}, debug {})", build::PROFILE, build::OPT_LEVEL, build::DEBUG),
            ),
            ("assertions", if cfg!(debug_assertions) { "on".into() } else { "off".into() }),
            ("rustc", build::RUSTC.into()),
            ("target", build::TARGET.into()),
            ("rustflags", build::RUSTFLAGS.into()),
            ("features", if cfg!(feature = "rocks") { "rocks".into() } else { String::new() }),
            ("allocator", build::ALLOCATOR.into()),
            ("rocksdb", rocksdb()),
        ];
        for (name, value) in rows {
            text.push_str(&format!("{name:<11}{}\n", value.trim()));
        }
    }
    done(&text)
}

/// Version, flags, and what RocksDB itself says of its checksums: it is asked by opening an empty database.
#[cfg(feature = "rocks")]
fn rocksdb() -> String {
    use carmine_kv_rocks::{RocksKv, RocksOptions};
    let ask = || -> anyhow::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        Ok(RocksKv::open(folder.path(), RocksOptions::default())?.crc32_support())
    };
    let crc = match ask() {
        Ok(answer) => answer.unwrap_or_else(|| "not told".into()),
        Err(e) => format!("not known ({e})"),
    };
    format!("{} (-O3 {}), fast CRC32C: {crc}", build::ROCKSDB, build::CXXFLAGS)
}

#[cfg(not(feature = "rocks"))]
fn rocksdb() -> String {
    "not built in: no store `blue`".into()
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
