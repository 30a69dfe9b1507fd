//! `carmine status`, `restart`, `down`, `destroy`, `plan` and `admin`: commands for a testbed that exists, or could exist.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use carmine_testbed::neighbour::be_busy;
use carmine_testbed::{
    BedKind, DirArgs, Folder, Layout, OsdStatus, Plan, Status, Testbed, Wish, ask_osd, load, note, print,
    relay, status, usage,
};
use carmine_topology::{CpuList, Strategy, Topology};
use carmine_types::{OsdId, counted};
use clap::Args;

use super::{code, done, peer, print_as};
use crate::progress;

/// A testbed, and how the command answers.
#[derive(Args)]
pub(crate) struct BedArgs {
    #[command(flatten)]
    pub(super) dir: DirArgs,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl BedArgs {
    /// The testbed, for this command alone.
    pub(super) fn open(&self) -> Result<Testbed> {
        Ok(Testbed::open_existing(BedKind::Testbed, Layout::new(&self.dir.dir)?)?)
    }
}

#[derive(Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Numbers of the OSDs [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    osd: Vec<u32>,
    /// Seconds until they must be up; if then all OSDs run, also until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

#[derive(Args)]
pub(crate) struct DestroyArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Remove the files of OSDs that have joined a cluster even if it has them in its map
    #[arg(long)]
    yes_i_really_mean_it: bool,
}

#[derive(Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    bed: BedArgs,
    #[command(flatten)]
    spec: SpecArgs,
    /// Print the resulting specification, for --spec
    #[arg(long, conflicts_with = "json")]
    print_spec: bool,
    /// Plan for another machine: a file with the output of its `lscpu -p` or `lstopo --of xml`, or sockets x cores x threads such as
    /// 2x28x2. Parts follow: :drives=8 and :nics=2 (spread over the NUMA nodes), :nvme0n1@node1, and :eth0@node0/0-7 (with
    /// interrupts on these CPUs only); :l3=8 gives a shape the cores of each L3 cache. Example: 2x64x2:l3=8:drives=8
    #[arg(long, value_name = "FILE|SHAPE")]
    topology: Option<String>,
}

#[derive(Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Number of the OSD
    #[arg(long)]
    osd: u32,
    /// The command, as JSON
    question: String,
}

/// The settings of a testbed: options, and a file behind them.
#[derive(Args)]
pub(crate) struct SpecArgs {
    /// Specification, in TOML or JSON as `plan --print-spec` writes it; options override it
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    spec: Option<PathBuf>,
    #[command(flatten)]
    wish: Wish,
}

impl SpecArgs {
    /// The settings that are asked for.
    pub(crate) fn wish(&self, kind: BedKind) -> Result<Wish> {
        if kind == BedKind::Peer {
            self.wish.refuse_unless_of_peers()?;
        }
        let file = self.spec.as_deref().map(|path| Wish::from_file(path, kind)).transpose()?;
        Ok(self.wish.clone().or(file.unwrap_or_default()))
    }
}

#[derive(Args)]
pub(crate) struct NeighbourArgs {
    /// CPUs that are kept busy
    #[arg(long, value_name = "LIST")]
    cpus: CpuList,
}

#[derive(Args)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// The OSD's number
    #[arg(long, value_name = "N")]
    id: u32,
}

/// Stops the processes; a testbed that is stopped already is fine.
pub(crate) fn down(kind: BedKind, dir: &Path) -> Result<ExitCode> {
    let (folder, damage) = Folder::open(kind, Layout::new(dir)?)?;
    let report = folder.stop()?;
    print(&report.iter().map(|(daemon, how)| format!("{daemon} {how}\n")).collect::<String>())?;
    if let Some(why) = damage {
        note(&format!("note: {why}; its data is as it was, but it cannot be started again"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops the processes and removes all that was made, unless they are OSDs of a cluster that may need them.
pub(crate) fn destroy_testbed(args: &DestroyArgs) -> Result<ExitCode> {
    let (folder, _) = Folder::open(BedKind::Testbed, Layout::new(&args.dir.dir)?)?;
    if !args.yes_i_really_mean_it {
        folder.refuse_joined_osds()?;
    }
    destroyed(BedKind::Testbed, folder)
}

/// Stops the processes of a peer and removes all that was made.
pub(crate) fn destroy_peer(dir: &Path) -> Result<ExitCode> {
    destroyed(BedKind::Peer, Folder::open(BedKind::Peer, Layout::new(dir)?)?.0)
}

fn destroyed(kind: BedKind, folder: Folder) -> Result<ExitCode> {
    let layout = folder.layout().clone();
    folder.destroy()?;
    let left = if layout.dir().exists() { " (the folder stays: it has other files)" } else { "" };
    done(&format!("removed the {kind} in {}{left}\n", layout.dir().display()))
}

/// Starts OSDs of a testbed again.
pub(crate) fn restart(args: &RestartArgs) -> Result<ExitCode> {
    let mut testbed = Testbed::open_existing(BedKind::Testbed, Layout::new(&args.dir.dir)?)?;
    let osds: Vec<OsdId> = match args.osd.as_slice() {
        [] => testbed.plan().osd_ids().collect(),
        some => some.iter().copied().map(OsdId).collect(),
    };
    let started = progress::shown(args.timeout, |start| Ok(testbed.start_osds(&osds, true, None, start)?))?;
    let up = osds.iter().filter(|osd| !started.is_lost(**osd));
    print(&format!("restarted {}\n", up.map(ToString::to_string).collect::<Vec<_>>().join(" ")))?;
    testbed.require_whole(&started)?;
    Ok(ExitCode::SUCCESS)
}

/// The CPU grid, without starting anything.
pub(crate) fn plan(args: PlanArgs) -> Result<ExitCode> {
    let topology = topology(args.topology.as_deref())?;
    let wish = args.spec.wish(BedKind::Testbed)?;
    // For an existing testbed it shows the grid of the next `up`; otherwise that of a new one.
    let stored = match args.topology {
        None => load(BedKind::Testbed, &Layout::new(&args.bed.dir.dir)?)?,
        Some(_) => None,
    };
    let plan = match stored {
        Some(plan) => plan.revise(&wish, &topology)?,
        None => Plan::new(&wish, &topology, "")?,
    };
    let text = || if args.print_spec { plan.spec.to_toml() } else { plan.render() };
    print_as(args.bed.json, &plan, text)
}

/// This machine, or the one of `--topology`.
pub(super) fn topology(asked: Option<&str>) -> Result<Topology> {
    match asked {
        Some(text) => Ok(Topology::from_arg(text).map_err(|e| usage!("--topology {text}: {e}"))?),
        None => Ok(Topology::detect()?),
    }
}

/// Sends an admin command to one OSD, for tests and debugging.
pub(crate) fn admin(args: &AdminArgs) -> Result<ExitCode> {
    let answer = ask_osd(&Layout::new(&args.dir.dir)?, OsdId(args.osd), &args.question)?;
    done(&format!("{answer}\n"))
}

/// Acts as the neighbour of a testbed, until it is ended.
pub(crate) fn neighbour(args: &NeighbourArgs) -> Result<ExitCode> {
    be_busy(&args.cpus)?;
    Ok(ExitCode::SUCCESS)
}

/// Acts as the relay of an OSD, until it is ended.
pub(crate) fn be_relay(args: &RelayArgs) -> Result<ExitCode> {
    relay::run(&Layout::new(&args.dir.dir)?, OsdId(args.id))?;
    Ok(ExitCode::SUCCESS)
}

/// 0 for a testbed that runs as it should or is stopped; 1 for one with a problem.
pub(crate) fn show(kind: BedKind, dir: &Path, json: bool) -> Result<ExitCode> {
    let status = status(kind, &Layout::new(dir)?)?;
    print_as(json, &status, || render(&status))?;
    Ok(code(status.problems.is_empty()))
}

fn render(status: &Status) -> String {
    let mut lines = vec![format!("{}: {}", status.dir, status.state)];
    lines.extend(mon_lines(status));
    if let Some(joined) = &status.plan.joined {
        let mons: Vec<String> = joined.mons.iter().map(ToString::to_string).collect();
        let epoch = status.epoch.map(|epoch| format!(", map epoch {epoch}")).unwrap_or_default();
        lines.push(format!("cluster  {}, monitors at {}{epoch}", status.plan.fsid, mons.join(", ")));
    }
    lines.extend(status.osds.iter().map(osd_line));
    if let (Some(total), Some(pgs)) = (status.pgs_total, status.pgs) {
        let total =
            if status.plan.joined.is_some() { format!("led here {total}") } else { total.to_string() };
        lines.push(format!("PGs      {total}: {} active, {} clean", pgs.active, pgs.clean));
    }
    match &status.about {
        Some(about) => lines.extend(peer::about_lines(about)),
        None => lines.extend(plan_lines(&status.plan)),
    }
    lines.extend(status.problems.iter().map(|problem| format!("problem  {problem}")));
    lines.join("\n") + "\n"
}

/// A line for each monitor that runs. If there are several monitors, a dead one has a line, too.
fn mon_lines(status: &Status) -> impl Iterator<Item = String> {
    let is_alone = status.mons.len() == 1;
    let epoch = status.epoch.map(|epoch| format!(", map epoch {epoch}")).unwrap_or_default();
    status.mons.iter().filter_map(move |mon| {
        let state = mon.state.as_ref().filter(|_| !is_alone).map(|state| format!(", {state}"));
        match (mon.pid, &mon.addr) {
            (Some(pid), Some(addr)) => {
                Some(format!("{:<8} pid {pid}, {addr}{}{epoch}", mon.name, state.unwrap_or_default()))
            }
            _ => (!is_alone && status.state != "stopped").then(|| format!("{:<8} not running", mon.name)),
        }
    })
}

fn osd_line(osd: &OsdStatus) -> String {
    let pid = osd.pid.map_or_else(|| "not running".into(), |pid| format!("pid {pid}"));
    let mut parts = vec![pid, if osd.up { "up" } else { "down" }.to_owned()];
    parts.extend(osd.reactors.map(|reactors| counted(reactors as usize, "reactor")));
    let primary = |total: u64| format!("primary of {}", counted(total as usize, "PG"));
    parts.extend(osd.pgs.map(|pgs| format!("{} ({} active)", primary(pgs.total), pgs.active)));
    parts.extend(osd.io_path.as_ref().map(|path| format!("I/O path {path}")));
    if let (Some(fullness), Some(space)) = (osd.fullness, osd.space) {
        let (used, total) = (space.used_bytes >> 20, space.total_bytes >> 20);
        parts.push(format!("{fullness} ({used} of {total} MiB used)"));
    }
    if !osd.cpus.is_empty() {
        parts.push(format!("CPUs {}", osd.cpus.iter().copied().collect::<CpuList>()));
    }
    if let (Some(addr), Some(cluster)) = (&osd.addr, &osd.cluster_addr) {
        parts.push(format!("{addr} for clients, {cluster} for OSDs"));
    }
    parts.extend(osd.http.as_ref().map(|http| format!("http://{http}/metrics")));
    format!("osd.{:<4} {}", osd.id, parts.join(", "))
}

/// What the links of `--namespaces` do to packets.
fn network_line(plan: &Plan) -> Option<String> {
    let mut parts = vec!["a namespace for each daemon".to_owned()];
    parts.extend((plan.net_mtu_bytes > 0).then(|| format!("MTU {} bytes", plan.net_mtu_bytes)));
    let rate = plan.net_rate_bytes_per_second;
    parts.extend((rate > 0).then(|| format!("{rate} bytes/s to and from each OSD")));
    let delay_us = plan.net_delay_us;
    parts.extend((delay_us > 0).then(|| format!("{delay_us} us delay to and from each OSD, by a relay")));
    plan.namespaces.then(|| format!("network  {}", parts.join(", ")))
}

fn plan_lines(plan: &Plan) -> Vec<String> {
    let (osds, reactors) = (counted(plan.osds() as usize, "OSD"), counted(plan.cpu.reactors, "reactor"));
    let (store, pool) = (plan.store, &plan.pool);
    let (name, size, min_size, pgs) = (&pool.name, pool.size, pool.min_size, pool.pg_num);
    let what = match &plan.joined {
        Some(joined) => format!("at {}", joined.location.join(" ")),
        None => format!("pool {name} size {size} min_size {min_size} PGs {pgs}"),
    };
    let mut lines = vec![format!("plan     {osds} x {reactors}, {store}, {what}")];
    if plan.cpu.strategy == Strategy::None {
        let cpus = plan.grid.allocated_cpus();
        lines.push(format!("balance  none: reactors are not pinned, they may run on CPUs {cpus}"));
    }
    let others = [("system", &plan.grid.system), ("neighbour", &plan.grid.neighbour)];
    let others = others.into_iter().filter(|(_, cpus)| !cpus.is_empty());
    lines.extend(others.map(|(who, cpus)| format!("{who:<8} CPUs {cpus}")));
    lines.extend(network_line(plan));
    if plan.osd_wrap != "none" {
        lines.push(format!("wrapper  {}", plan.osd_wrap));
    }
    lines.extend(plan.preconditioned.iter().map(|drive| format!("precondition {drive}")));
    lines
}
