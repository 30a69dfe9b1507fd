//! `carmine status`, `restart`, `down`, `destroy`, `plan` and `admin`: a testbed that exists, or would.

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

use super::{code, done, print_as};
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
    pub(crate) fn wish(&self) -> anyhow::Result<Wish> {
        let file = self.spec.as_deref().map(Wish::from_file).transpose()?;
        Ok(self.wish.clone().or(file.unwrap_or_default()))
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
    done(&stopped_lines(&open::<P>(dir)?.stop()?))
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
    done(&format!("removed the {} in {}{left}\n", P::WHAT, layout.dir().display()))
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
    done(&format!("restarted {}; all PGs are active and clean\n", names.join(" ")))
}

/// The CPU grid, without starting anything.
pub(crate) fn plan(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let topology = topology(args.topology.as_deref())?;
    let wish = args.spec.wish()?;
    // With an existing testbed it shows the grid of the next `up`; else that of a new one.
    let stored = if args.topology.is_none() { load_plan(&Layout::new(&args.dir.dir)?)? } else { None };
    let plan = match stored {
        Some(plan) => plan.revise(&wish, &topology)?,
        None => Plan::new(&wish, &topology, "")?,
    };
    print_as(args.json, &plan, || if args.print_spec { plan.spec.to_toml() } else { plan.render() })
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
    done(&format!("{}\n", ask_osd(&Layout::new(&args.dir.dir)?, OsdId(args.osd), &args.question)?))
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
    Ok(code(status.problems.is_empty()))
}

/// Lines, each with its subject in the first column.
fn render(status: &Status) -> String {
    let (plan, pool) = (&status.plan, &status.plan.pool);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut put = |subject: &str, text: String| rows.push((subject.to_owned(), text));
    if let (Some(addr), Some(pid)) = (&status.mon_addr, status.mon_pid) {
        let epoch = status.epoch.map_or_else(|| "?".into(), |e| e.to_string());
        put("mon", format!("pid {pid}, {addr}, map epoch {epoch}"));
    }
    for osd in &status.osds {
        let space = osd.fullness.zip(osd.space).map(|(fullness, space)| {
            format!("{fullness} ({} of {} MiB used)", space.used_bytes >> 20, space.total_bytes >> 20)
        });
        let pgs = osd
            .pgs
            .map(|pgs| format!("primary of {} ({} active)", counted(pgs.total as usize, "PG"), pgs.active));
        let parts = [
            Some(osd.pid.map_or_else(|| "not running".into(), |pid| format!("pid {pid}"))),
            Some(if osd.up { "up" } else { "down" }.to_owned()),
            osd.reactors.map(|reactors| counted(reactors as usize, "reactor")),
            pgs,
            space,
            osd.http.as_ref().map(|http| format!("http://{http}/metrics")),
        ];
        put(&format!("osd.{}", osd.id), parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    }
    if let (Some(total), Some(pgs)) = (status.pgs_total, status.pgs) {
        put("PGs", format!("{total}: {} active, {} clean", pgs.active, pgs.clean));
    }
    let (osds, reactors) = (counted(plan.osds() as usize, "OSD"), counted(plan.cpu.reactors, "reactor"));
    let of_pool =
        format!("pool {} size {} min_size {} PGs {}", pool.name, pool.size, pool.min_size, pool.pg_num);
    put("plan", format!("{osds} x {reactors}, {}, {of_pool}", plan.store));
    if plan.cpu.strategy == Strategy::None {
        let cpus = plan.grid.allocated_cpus();
        put("balance", format!("none: reactors are not pinned, they may run on CPUs {cpus}"));
    }
    for (who, cpus) in [("system", &plan.grid.system), ("neighbour", &plan.grid.neighbour)] {
        if !cpus.is_empty() {
            put(who, format!("CPUs {cpus}"));
        }
    }
    if plan.osd_wrap != "none" {
        put("wrapper", plan.osd_wrap.clone());
    }
    plan.preconditioned.iter().for_each(|drive| put("precondition", drive.to_string()));
    status.problems.iter().for_each(|problem| put("problem", problem.to_string()));
    let lines = rows.iter().map(|(subject, text)| format!("{subject:<8} {text}\n"));
    std::iter::once(format!("{}: {}\n", status.dir, status.state)).chain(lines).collect()
}
