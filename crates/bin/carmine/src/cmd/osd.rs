//! `carmine osd`: the OSDs of a running testbed, one by one.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use carmine_testbed::Daemon;
use carmine_types::OsdId;
use clap::{Args, Subcommand};
use serde_json::json;

use super::print_as;
use super::testbed::BedArgs;
use crate::progress;

#[derive(Args)]
pub(crate) struct OsdArgs {
    #[command(subcommand)]
    command: OsdCommand,
}

#[derive(Subcommand)]
enum OsdCommand {
    /// Start OSDs that are not running (and the monitor, if nothing runs), and wait until they are up
    Start(StartArgs),
    /// Stop OSDs; the others keep running
    Stop(SomeArgs),
    /// End OSDs at once, as a crash would
    Kill(SomeArgs),
    /// Stop OSDs and start them again, also with another number of reactors
    Restart(StartArgs),
    /// Add an OSD with a new store, and wait until it is up; PGs then move to it
    Add(AddArgs),
    /// Take an OSD out, wait until others have its data, stop it and forget it; also one that does not start any more
    Remove(RemoveArgs),
}

/// Which OSDs.
#[derive(Args)]
struct SomeArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Numbers of the OSDs
    #[arg(required = true, value_name = "N")]
    osds: Vec<u32>,
}

impl SomeArgs {
    fn osds(&self) -> Vec<OsdId> {
        self.osds.iter().copied().map(OsdId).collect()
    }
}

#[derive(Args)]
struct StartArgs {
    #[command(flatten)]
    some: SomeArgs,
    /// Reactors of these OSDs until the next `up`, on CPUs that nobody else has [default: as many as before]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    reactors: Option<u16>,
    /// Start them even if they have ended themselves because they cannot read their metadata: they serve what they can read
    #[arg(long)]
    accept_damage: bool,
    /// Seconds until they must be up; if then all OSDs run, also until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

#[derive(Args)]
struct AddArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Its drive, if the OSDs have drives [default for a number that was removed: the drive it had]
    #[arg(long, value_name = "DEVICE")]
    dev: Option<PathBuf>,
    /// Overwrite what the device holds
    #[arg(long)]
    force_wipe: bool,
    /// Seconds until it must be up
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

#[derive(Args)]
struct RemoveArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Number of the OSD
    #[arg(value_name = "N")]
    osd: u32,
    /// Seconds until others must have its data
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    timeout: u64,
}

/// A line, or an object, for each OSD.
fn show_results(is_json: bool, results: Vec<(Daemon, String)>) -> Result<ExitCode> {
    let objects = results.iter().map(|(osd, result)| json!({"osd": osd.to_string(), "result": result}));
    let lines = || results.iter().map(|(osd, result)| format!("{osd} {result}\n")).collect();
    print_as(is_json, &objects.collect::<Vec<_>>(), lines)
}

fn add(args: &AddArgs) -> Result<ExitCode> {
    let mut testbed = args.bed.open()?;
    let device = args.dev.clone();
    let osd = progress::shown(args.timeout, |start| Ok(testbed.add_osd(device, args.force_wipe, start)?))?;
    show_results(args.bed.json, vec![(Daemon::Osd(osd), "is up".to_owned())])
}

fn remove(args: &RemoveArgs) -> Result<ExitCode> {
    let (mut testbed, osd) = (args.bed.open()?, OsdId(args.osd));
    progress::shown(args.timeout, |start| Ok(testbed.remove_osd(osd, start)?))?;
    show_results(args.bed.json, vec![(Daemon::Osd(osd), "is removed".to_owned())])
}

fn stop(args: &SomeArgs, kill: bool) -> Result<ExitCode> {
    let ended = args.bed.open()?.stop_osds(&args.osds(), kill)?;
    show_results(args.bed.json, ended.iter().map(|(daemon, how)| (*daemon, how.to_string())).collect())
}

fn start(args: &StartArgs, again: bool) -> Result<ExitCode> {
    let (mut testbed, osds) = (args.some.bed.open()?, args.some.osds());
    if args.accept_damage {
        testbed.accept_damage(&osds)?;
    }
    let started =
        progress::shown(args.timeout, |start| Ok(testbed.start_osds(&osds, again, args.reactors, start)?))?;
    let result = |osd| if started.is_lost(osd) { "does not run" } else { "is up" };
    let results = osds.into_iter().map(|osd| (Daemon::Osd(osd), result(osd).to_owned()));
    show_results(args.some.bed.json, results.collect())?;
    testbed.require_whole(&started)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(args: &OsdArgs) -> Result<ExitCode> {
    match &args.command {
        OsdCommand::Start(args) => start(args, false),
        OsdCommand::Stop(args) => stop(args, false),
        OsdCommand::Kill(args) => stop(args, true),
        OsdCommand::Restart(args) => start(args, true),
        OsdCommand::Add(args) => add(args),
        OsdCommand::Remove(args) => remove(args),
    }
}
