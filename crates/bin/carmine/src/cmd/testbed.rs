//! `carmine status`, `restart`, `down`, `destroy`, `plan` and `admin`: a testbed that exists, or would.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use carmine_testbed::TestbedError::Usage;
use carmine_testbed::neighbour::be_busy;
use carmine_testbed::output::{note, print};
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{
    Bed, Daemon, FolderPlan, Layout, Plan, Ruin, Status, Stopped, Testbed, Wish, ask_osd, load_plan, status,
};
use carmine_topology::{CpuList, Strategy, Topology};
use carmine_types::{OsdId, counted};
use clap::Args;

use super::print_as;
use crate::progress;

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Numbers of the OSDs [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    osd: Vec<u32>,
    /// Seconds until every PG must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

#[derive(Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    spec: SpecArgs,
    /// Print the specification that results, for --spec
    #[arg(long, conflicts_with = "json")]
    print_spec: bool,
    /// Plan for another machine: a file with the output of its `lscpu -p`, or sockets x cores x threads such as 2x28x2
    #[arg(long, value_name = "FILE|SHAPE")]
    topology: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
    /// Specification of the testbed, in TOML or JSON as `plan --print-spec` writes it; options override it
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    spec: Option<PathBuf>,
    #[command(flatten)]
    wish: Wish,
}

impl SpecArgs {
    /// The settings that are asked for.
    pub(crate) fn wish(self) -> anyhow::Result<Wish> {
        let file = self.spec.as_deref().map(Wish::from_file).transpose()?;
        Ok(self.wish.or(file.unwrap_or_default()))
    }
}

#[derive(Args)]
pub(crate) struct NeighbourArgs {
    /// CPUs that are kept busy
    #[arg(long, value_name = "LIST")]
    cpus: CpuList,
}

/// Opens what a folder must hold: a testbed or a peer.
pub(super) fn open<P: FolderPlan>(dir: &Path) -> anyhow::Result<Bed<P>> {
    let layout = Layout::new(dir)?;
    let why = format!("there is no {} in {}", P::WHAT, layout.dir().display());
    Bed::<P>::open(layout)?.ok_or_else(|| Usage(why).into())
}

/// Stops the processes; a testbed that is stopped already is fine.
pub(crate) fn down(args: &DirArgs) -> anyhow::Result<ExitCode> {
    if let Some(ruin) = Ruin::open(Layout::new(&args.dir)?)? {
        print(&stopped_lines(&ruin.stop()?))?;
        note(&format!("note: {}; its data is as it was, but it cannot be started again", ruin.why()));
        return Ok(ExitCode::SUCCESS);
    }
    stop::<Plan>(&args.dir)
}

pub(super) fn stop<P: FolderPlan>(dir: &Path) -> anyhow::Result<ExitCode> {
    print(&stopped_lines(&open::<P>(dir)?.stop()?))?;
    Ok(ExitCode::SUCCESS)
}

/// How each daemon ended, a line each.
fn stopped_lines(report: &[(Daemon, Stopped)]) -> String {
    let line = |(daemon, how): &(Daemon, Stopped)| {
        let how = match how {
            Stopped::NotRunning => "was not running",
            Stopped::Clean => "stopped",
            Stopped::Killed => "did not stop in time and was killed",
        };
        format!("{daemon} {how}\n")
    };
    report.iter().map(line).collect()
}

/// Stops the processes and removes all that the testbed made.
pub(crate) fn destroy(args: &DirArgs) -> anyhow::Result<ExitCode> {
    match Ruin::open(Layout::new(&args.dir)?)? {
        Some(ruin) => {
            let layout = ruin.layout().clone();
            ruin.destroy()?;
            say_removed::<Plan>(&layout)
        }
        None => destroy_bed::<Plan>(&args.dir),
    }
}

pub(super) fn destroy_bed<P: FolderPlan>(dir: &Path) -> anyhow::Result<ExitCode> {
    let bed = open::<P>(dir)?;
    let layout = bed.layout().clone();
    bed.destroy()?;
    say_removed::<P>(&layout)
}

fn say_removed<P: FolderPlan>(layout: &Layout) -> anyhow::Result<ExitCode> {
    let left = if layout.dir().exists() { " (the folder stays: it has other files)" } else { "" };
    print(&format!("removed the {} in {}{left}\n", P::WHAT, layout.dir().display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts OSDs of a running testbed again.
pub(crate) fn restart(args: &RestartArgs) -> anyhow::Result<ExitCode> {
    let mut testbed: Testbed = open(&args.dir.dir)?;
    let osds: Vec<OsdId> = match args.osd.as_slice() {
        [] => (0..testbed.plan().osds()).map(OsdId).collect(),
        some => some.iter().copied().map(OsdId).collect(),
    };
    progress::shown(args.timeout, |start| Ok(testbed.restart(&osds, start)?))?;
    let names: Vec<String> = osds.iter().map(ToString::to_string).collect();
    print(&format!("restarted {}; all PGs are active and clean\n", names.join(" ")))?;
    Ok(ExitCode::SUCCESS)
}

/// The CPU grid, without starting anything.
pub(crate) fn plan(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let topology = topology(args.topology.as_deref())?;
    let wish = args.spec.wish()?;
    // With an existing testbed it shows the grid of the next `up`; else that of a new one.
    let stored = if args.topology.is_none() { load_plan(&Layout::new(&args.dir.dir)?)? } else { None };
    let plan = match stored {
        Some(plan) => plan.revise(&wish, &topology)?,
        None => Plan::new(&wish, &topology, "")?,
    };
    let text = || if args.print_spec { plan.spec.to_toml() } else { plan.render() };
    print_as(args.json, &plan, text)?;
    Ok(ExitCode::SUCCESS)
}

/// This machine, or the one of `--topology`.
pub(super) fn topology(asked: Option<&str>) -> anyhow::Result<Topology> {
    match asked {
        Some(text) => Ok(Topology::from_arg(text).map_err(|e| Usage(format!("--topology {text}: {e}")))?),
        None => Ok(Topology::detect()?),
    }
}

/// Sends an admin command to one OSD, for tests and debugging.
pub(crate) fn admin(args: &AdminArgs) -> anyhow::Result<ExitCode> {
    let answer = ask_osd(&Layout::new(&args.dir.dir)?, OsdId(args.osd), &args.question)?;
    print(&format!("{answer}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Is the neighbour of a testbed, until it is ended.
pub(crate) fn neighbour(args: &NeighbourArgs) -> anyhow::Result<ExitCode> {
    be_busy(&args.cpus)?;
    Ok(ExitCode::SUCCESS)
}

/// 0 for a testbed that runs as it should or is stopped; 1 for one with a problem.
pub(crate) fn show(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status = status(&Layout::new(&args.dir.dir)?)?;
    print_as(args.json, &status, || render(&status))?;
    Ok(if status.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(status: &Status) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}: {}", status.dir, status.state);
    if let (Some(addr), Some(pid)) = (&status.mon_addr, status.mon_pid) {
        let epoch = status.epoch.map_or_else(|| "?".into(), |e| e.to_string());
        let _ = writeln!(out, "mon      pid {pid}, {addr}, map epoch {epoch}");
    }
    for osd in &status.osds {
        let pid = osd.pid.map_or_else(|| "not running".into(), |pid| format!("pid {pid}"));
        let _ = write!(out, "osd.{:<4} {pid}, {}", osd.id, if osd.up { "up" } else { "down" });
        if let Some(reactors) = osd.reactors {
            let _ = write!(out, ", {}", counted(reactors as usize, "reactor"));
        }
        if let Some(pgs) = osd.pgs {
            let _ = write!(out, ", primary of {} ({} active)", counted(pgs.total as usize, "PG"), pgs.active);
        }
        if let (Some(fullness), Some(space)) = (osd.fullness, osd.space) {
            let (used, total) = (space.used_bytes >> 20, space.total_bytes >> 20);
            let _ = write!(out, ", {fullness} ({used} of {total} MiB used)");
        }
        if let Some(http) = &osd.http {
            let _ = write!(out, ", http://{http}/metrics");
        }
        out.push('\n');
    }
    if let (Some(total), Some(pgs)) = (status.pgs_total, status.pgs) {
        let _ = writeln!(out, "PGs      {total}: {} active, {} clean", pgs.active, pgs.clean);
    }
    let plan = &status.plan;
    let pool = &plan.pool;
    let _ = writeln!(
        out,
        "plan     {} x {}, {}, pool {} size {} min_size {} PGs {}",
        counted(plan.osds() as usize, "OSD"),
        counted(plan.cpu.reactors, "reactor"),
        plan.store,
        pool.name,
        pool.size,
        pool.min_size,
        pool.pg_num
    );
    if plan.cpu.strategy == Strategy::None {
        let cpus = plan.grid.allocated_cpus();
        let _ = writeln!(out, "balance  none: reactors are not pinned, they may run on CPUs {cpus}");
    }
    for (who, cpus) in [("system", &plan.grid.system), ("neighbour", &plan.grid.neighbour)] {
        if !cpus.is_empty() {
            let _ = writeln!(out, "{who:<8} CPUs {cpus}");
        }
    }
    if plan.osd_wrap != "none" {
        let _ = writeln!(out, "wrapper  {}", plan.osd_wrap);
    }
    for drive in &plan.preconditioned {
        let _ = writeln!(out, "precondition {drive}");
    }
    for problem in &status.problems {
        let _ = writeln!(out, "problem  {problem}");
    }
    out
}
