//! `carmine peer`: a real Ceph on loopback, as a baseline.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carmine_testbed::output::{note, print};
use carmine_testbed::peer::{self, About, Peer, PeerPlan, PeerStatus, PeerWish, Programs};
use carmine_testbed::spec::PeerSettings;
use carmine_testbed::{Layout, StartOptions, check_wipe, fresh_uuid};
use carmine_topology::{CpuList, Topology};
use carmine_types::counted;
use clap::{Args, Subcommand};

use super::{code, done, print_as, testbed};
use crate::progress;

/// A real Ceph on loopback, as a baseline to compare with.
#[derive(Args)]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    command: PeerCommand,
}

#[derive(Subcommand)]
enum PeerCommand {
    /// Start a peer: create it in an empty folder, or start a stopped one (also with other CPUs or settings)
    Up(Box<PeerUpArgs>),
    /// Show the state of a peer, its settings, and what it does not support
    Status {
        #[command(flatten)]
        dir: PeerDirArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop a peer and keep its data
    Down(PeerDirArgs),
    /// Stop a peer and remove its data
    Destroy(PeerDirArgs),
}

/// Where a peer lives.
#[derive(Args, Clone, Debug)]
struct PeerDirArgs {
    /// Folder of the peer
    #[arg(long, value_name = "FOLDER", default_value = "carmine-peer")]
    dir: PathBuf,
}

#[derive(Args)]
struct PeerUpArgs {
    #[command(flatten)]
    dir: PeerDirArgs,
    #[command(flatten)]
    settings: PeerSettings,
    #[command(flatten)]
    own: PeerWish,
    /// Overwrite devices that are not blank
    #[arg(long, help_heading = "Storage")]
    force_wipe: bool,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

pub(crate) fn run(args: &PeerArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        PeerCommand::Up(args) => up(args),
        PeerCommand::Status { dir, json } => status(&dir.dir, *json),
        PeerCommand::Down(args) => testbed::stop::<PeerPlan>(&args.dir),
        PeerCommand::Destroy(args) => testbed::destroy_bed::<PeerPlan>(&args.dir),
    }
}

fn up(args: &PeerUpArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let peer = progress::shown(args.timeout, |start| bring_up(layout, args, start))?;
    let (plan, conf) = (peer.plan(), peer.layout().ceph_conf());
    let about = peer::about(plan)?;
    done(&format!(
        "up: {}, {}, size {} with {} PGs active+clean; monitor at {}\n{}stock clients: rados -c {} -p {} ls\n",
        counted(plan.osds() as usize, "OSD"),
        plan.profile(),
        plan.pool.size,
        plan.pool.pg_num,
        peer::monitor(plan),
        render_about(&about),
        conf.display(),
        carmine_testbed::POOL_NAME,
    ))
}

fn bring_up(layout: Layout, args: &PeerUpArgs, start: &mut StartOptions<'_>) -> anyhow::Result<Peer> {
    let (wish, own) = (args.settings.wish()?, &args.own);
    let topology = Topology::detect()?;
    let (mut peer, programs) = match Peer::open(layout.clone())? {
        Some(mut peer) => {
            peer.require_stopped()?;
            check_wipe(args.force_wipe, true, &peer.plan().devices)?;
            let programs = Programs::find(peer.plan().build.as_deref())?;
            let mut plan = peer.plan().revise(wish, own, &topology)?;
            plan.version = programs.version()?;
            announce(&plan)?;
            peer.set_plan(plan)?;
            (peer, programs)
        }
        None => {
            let programs = Programs::find(own.build.as_deref())?;
            let fsid = fresh_uuid()?;
            let plan = PeerPlan::new(wish, own, &topology, &fsid, &programs.version()?, programs.flavour)?;
            check_wipe(args.force_wipe, false, &plan.devices)?;
            announce(&plan)?;
            (Peer::create(layout, plan, &programs, args.force_wipe, start)?, programs)
        }
    };
    peer.start(&programs, start)?;
    Ok(peer)
}

/// Prints who runs where, and what the user should know before it starts.
fn announce(plan: &PeerPlan) -> anyhow::Result<()> {
    print(&plan.grid.render())?;
    let given = plan.cpu.cpus.as_ref().map_or(0, CpuList::len);
    let used = plan.cores_per_osd() * plan.cpu.osds;
    if given > used {
        note(&format!(
            "note: {} of the {given} CPUs stay unused: they cannot be divided evenly",
            given - used
        ));
    }
    Ok(())
}

/// 0 for a peer that runs as it should or is stopped; 1 for one with a problem.
fn status(dir: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let status = peer::status(&Layout::new(dir)?)?;
    print_as(as_json, &status, || render(&status))?;
    Ok(code(matches!(status.state.as_str(), "running" | "stopped")))
}

fn render(status: &PeerStatus) -> String {
    // Writing to a String does not fail.
    let mut out = format!("{}: {}\n", status.dir, status.state);
    let pid = |pid: Option<i32>| pid.map_or_else(|| "not running".into(), |pid| format!("pid {pid}"));
    let _ = writeln!(out, "mon      {}, {}", pid(status.mon_pid), status.mon_addr);
    for osd in &status.osds {
        let cpus: CpuList = osd.cpus.iter().copied().collect();
        let state = if osd.up { "up" } else { "down" };
        let _ = writeln!(out, "osd.{:<4} {}, {state}, CPUs {cpus}", osd.id, pid(osd.pid));
    }
    if let Some(clean) = status.pgs_clean {
        let _ = writeln!(out, "PGs      {}: {clean} active+clean", status.plan.pool.pg_num);
    }
    out.push_str(&render_about(&status.about));
    for (who, list) in [
        ("Carmine", &status.about.contrast.carmine_does_not),
        ("this Ceph", &status.about.contrast.ceph_does_not),
    ] {
        let _ = writeln!(out, "{who} does not:");
        list.iter().for_each(|what| out.push_str(&format!("  - {what}\n")));
    }
    out
}

/// Version, allocator and settings.
fn render_about(about: &About) -> String {
    let mut out = format!("version  {}\n", about.version);
    for (name, value) in &about.build_flags {
        out += &format!("built    {name} {value}\n");
    }
    out += &format!("memory   {} MiB, {}\n", about.osd_memory_bytes >> 20, about.allocator.name);
    if !about.allocator.advice.is_empty() {
        out += &format!("note     {}\n", about.allocator.advice);
    }
    let (silent, shown): (Vec<_>, Vec<_>) =
        about.settings.iter().partition(|(name, _)| name.starts_with("debug_"));
    let shown: Vec<String> = shown.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let silent = if silent.is_empty() { String::new() } else { format!(", {} debug levels", silent.len()) };
    out + &format!("profile  {}: {}{silent}\n", about.profile, shown.join(" "))
}
