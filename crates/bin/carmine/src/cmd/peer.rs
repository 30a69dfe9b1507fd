//! `carmine peer`: a real Ceph on loopback, as a baseline.

use std::process::ExitCode;

use anyhow::Result;
use carmine_testbed::peer::{About, PeerWish, Programs, about};
use carmine_testbed::spec::hide_unless_of_peers;
use carmine_testbed::{BedKind, DirArgs, Layout, POOL_NAME, Plan, fresh_uuid};
use carmine_topology::Topology;
use carmine_types::counted;
use clap::{Arg, Args, Subcommand};

use super::done;
use super::testbed::{self, BedArgs, SpecArgs};
use super::up::Up;
use crate::progress;

/// A real Ceph on loopback, as a baseline to compare with.
#[derive(Args)]
#[command(mut_subcommands(|command| command.mut_args(of_peer)))]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    command: PeerCommand,
}

#[derive(Subcommand)]
enum PeerCommand {
    /// Start a peer: create it in an empty folder, or start a stopped one (also with other CPUs or settings)
    Up(Box<PeerUpArgs>),
    /// Show the state of a peer, its settings, and what it does not support
    Status(BedArgs),
    /// Stop a peer and keep its data
    Down(DirArgs),
    /// Stop a peer and remove its data
    Destroy(DirArgs),
}

/// An option of a testbed as a peer has it: its folder is another one.
fn of_peer(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "dir" => arg.default_value("carmine-peer").help("Folder of the peer"),
        _ => hide_unless_of_peers(arg),
    }
}

#[derive(Args)]
struct PeerUpArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    own: PeerWish,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(crate) fn run(args: &PeerArgs) -> Result<ExitCode> {
    match &args.command {
        PeerCommand::Up(args) => up(args),
        PeerCommand::Status(args) => testbed::show(BedKind::Peer, &args.dir.dir, args.json),
        PeerCommand::Down(args) => testbed::down(BedKind::Peer, &args.dir),
        PeerCommand::Destroy(args) => testbed::destroy_peer(&args.dir),
    }
}

fn up(args: &PeerUpArgs) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let (wish, own, topology) = (&args.spec.wish(BedKind::Peer)?, &args.own, Topology::detect()?);
    let plan = |made: Option<&Plan>| match made {
        Some(plan) => {
            let version = Programs::find(plan.peer()?.build.as_deref())?.version()?;
            Ok(plan.revise_peer(wish, own, &topology, version)?)
        }
        None => {
            let programs = Programs::find(own.build.as_deref())?;
            let (fsid, version) = (fresh_uuid()?, programs.version()?);
            Ok(Plan::new_peer(wish, own, &topology, &fsid, version, programs.flavour)?)
        }
    };
    let up = Up { wipe: args.force_wipe, precondition: None, kind: BedKind::Peer, plan: &plan };
    let (bed, started) = progress::shown(args.timeout, |start| up.bring_up(&layout, start))?;
    let (plan, peer, conf) = (bed.plan(), bed.plan().peer()?, bed.layout().ceph_conf());
    done(&format!(
        "up: {}, {}, size {} with {} PGs active+clean; monitor at {}\n{}\nstock clients: rados -c {} -p {POOL_NAME} ls\n",
        counted(plan.osds() as usize, "OSD"),
        peer.profile(),
        plan.pool.size,
        plan.pool.pg_num,
        started.mons[0],
        settings_lines(&about(plan, peer)?).join("\n"),
        conf.display(),
    ))
}

/// The description of a peer, a line each.
pub(super) fn about_lines(about: &About) -> Vec<String> {
    let mut lines = settings_lines(about);
    for (who, what) in [("Carmine", "carmine_does_not"), ("this Ceph", "ceph_does_not")] {
        lines.push(format!("{who} does not:"));
        lines.extend(about.contrast[what].iter().map(|what| format!("  - {what}")));
    }
    lines
}

/// Version, allocator and settings.
fn settings_lines(about: &About) -> Vec<String> {
    let mut lines = vec![format!("version  {}", about.version)];
    lines.extend(about.build_flags.iter().map(|(name, value)| format!("built    {name} {value}")));
    lines.push(format!("memory   {} MiB, {}", about.osd_memory_bytes >> 20, about.allocator.name));
    let advice = Some(&about.allocator.advice).filter(|advice| !advice.is_empty());
    lines.extend(advice.map(|advice| format!("note     {advice}")));
    let (silent, told): (Vec<_>, Vec<_>) =
        about.settings.iter().partition(|(name, _)| name.starts_with("debug_"));
    let told: Vec<String> = told.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let silent = Some(silent.len()).filter(|silent| *silent > 0);
    let silent = silent.map(|silent| format!(", {silent} debug levels")).unwrap_or_default();
    lines.push(format!("profile  {}: {}{silent}", about.profile, told.join(" ")));
    lines
}
