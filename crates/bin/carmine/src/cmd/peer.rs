//! `carmine peer`: a real Ceph on loopback, as a baseline.

mod args;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use carmine_testbed::peer::{About, Peer, PeerPlan, PeerStatus, Programs, status};
use carmine_testbed::{DaemonPrograms, Layout, StartOptions};
use carmine_topology::{CpuList, Topology};

pub(crate) use args::PeerArgs;
use args::{PeerCommand, PeerDirArgs, PeerStatusArgs, PeerUpArgs};

use super::down::stopped_lines;
use crate::progress::Progress;
use carmine_daemon::signals;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, note, print};

pub(crate) fn run(args: &PeerArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        PeerCommand::Up(args) => up(args),
        PeerCommand::Status(args) => show(args),
        PeerCommand::Down(args) => down(args),
        PeerCommand::Destroy(args) => destroy(args),
    }
}

fn up(args: &PeerUpArgs) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let mut start = StartOptions {
        programs: DaemonPrograms::beside_own()?,
        cancel: &cancel,
        events: &mut |event| progress.show(event),
        limit: Duration::from_secs(args.timeout),
    };
    let result = bring_up(layout, args, &mut start);
    progress.finish();
    let peer = result?;
    let (plan, conf) = (peer.plan(), peer.layout().ceph_conf());
    let about = carmine_testbed::peer::about(plan)?;
    print(&format!(
        "up: {} OSDs, {}, size {} with {} PGs active+clean; monitor at {}\n{}stock clients: rados -c {} -p {} ls\n",
        plan.osds(),
        plan.profile(),
        plan.size,
        plan.pgs,
        carmine_testbed::peer::monitor(plan),
        render_about(&about),
        conf.display(),
        carmine_testbed::POOL_NAME,
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn bring_up(layout: Layout, args: &PeerUpArgs, start: &mut StartOptions<'_>) -> anyhow::Result<Peer> {
    let wish = &args.wish;
    let topology = Topology::detect()?;
    let (mut peer, programs) = match Peer::open(layout.clone())? {
        Some(mut peer) => {
            peer.require_stopped()?;
            let programs = Programs::find(peer.plan().build.as_deref())?;
            let mut plan = peer.plan().revise(wish, &topology)?;
            plan.version = programs.version()?;
            announce(&plan)?;
            peer.set_plan(plan)?;
            (peer, programs)
        }
        None => {
            let programs = Programs::find(wish.build.as_deref())?;
            let fsid = carmine_testbed::fresh_uuid()?;
            let plan = PeerPlan::new(wish, &topology, &fsid, &programs.version()?, programs.flavour)?;
            announce(&plan)?;
            (Peer::create(layout, plan, &programs, wish.force_wipe, start)?, programs)
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
fn show(args: &PeerStatusArgs) -> anyhow::Result<ExitCode> {
    let status = status(&Layout::new(&args.dir.dir)?)?;
    if args.json {
        print(&json_text(&status)?)?;
    } else {
        print(&render(&status))?;
    }
    let fine = matches!(status.state.as_str(), "running" | "stopped");
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        let _ = writeln!(out, "PGs      {}: {clean} active+clean", status.plan.pgs);
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
        let _ = writeln!(out, "built    {name} {value}");
    }
    let _ = writeln!(out, "memory   {} MiB, {}", about.osd_memory_bytes >> 20, about.allocator.name);
    if !about.allocator.advice.is_empty() {
        let _ = writeln!(out, "note     {}", about.allocator.advice);
    }
    let shown = |(name, value): (&String, &String)| format!("{name}={value}");
    let silent = about.settings.keys().filter(|name| name.starts_with("debug_")).count();
    let settings: Vec<String> =
        about.settings.iter().filter(|(name, _)| !name.starts_with("debug_")).map(shown).collect();
    let _ = write!(out, "profile  {}: {}", about.profile, settings.join(" "));
    let _ = writeln!(out, "{}", if silent > 0 { format!(", {silent} debug levels") } else { String::new() });
    out
}

fn open(args: &PeerDirArgs) -> anyhow::Result<Peer> {
    let layout = Layout::new(&args.dir)?;
    match Peer::open(layout.clone())? {
        Some(peer) => Ok(peer),
        None => Err(Usage(format!("there is no peer in {}", layout.dir().display())).into()),
    }
}

fn down(args: &PeerDirArgs) -> anyhow::Result<ExitCode> {
    print(&stopped_lines(&open(args)?.stop()?))?;
    Ok(ExitCode::SUCCESS)
}

fn destroy(args: &PeerDirArgs) -> anyhow::Result<ExitCode> {
    let peer = open(args)?;
    let dir = peer.layout().dir().to_path_buf();
    peer.destroy()?;
    let left = if dir.exists() { " (the folder stays: it has other files)" } else { "" };
    print(&format!("removed the peer in {}{left}\n", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
