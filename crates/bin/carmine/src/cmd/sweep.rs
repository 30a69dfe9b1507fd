//! `carmine sweep`: a plan of many points, run in a fair order and archived in one folder.

mod args;
mod begin;
mod end;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use carmine_bench::bench::require_tool;
use carmine_bench::sample::unix_now;
use carmine_daemon::signals;
use carmine_load::hosted::Tool;
use carmine_study::archive::Run;
use carmine_study::commands::{BoundedCommand, What, is_hosted, is_peer, tool};
use carmine_study::expand::{Expansion, Machine, dry_run, expand, show_plan, summary};
use carmine_study::plan::Plan;
use carmine_study::run::{End, Ending, Executor, Job, Options, Sweep};
use carmine_testbed::peer::Programs;
use carmine_testbed::{end_recorded, json_text, note, print, refuse, run_bounded};

use crate::progress::View;
pub(crate) use args::SweepArgs;
use begin::RunFolder;

/// 0: every point was measured; 1: some were not, or the sweep was stopped; 2: the plan can't be used.
pub(crate) fn run(args: SweepArgs) -> Result<ExitCode> {
    if args.list {
        return end::list(args.json);
    }
    let args = if args.resume { begin::resumed(args)? } else { args };
    let plan = args.plan()?;
    let machine = machine(args.topology.as_deref(), &args.devs)?;
    let expansion = expand(&plan, &machine)?;
    if args.dry_run || args.show {
        print(&match (args.json, args.show) {
            (true, _) => json_text(&expansion)?,
            (false, true) => show_plan(&plan, &expansion),
            (false, false) => dry_run(&plan, &expansion),
        })?;
        if args.topology.is_none() {
            let place = args.layouts.as_deref().or(args.out.as_deref()).unwrap_or(".".as_ref());
            let short = begin::short(&args, &expansion, place);
            short.iter().for_each(|line| note(&format!("too little {line}")));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let is_other = args.topology.is_some();
    refuse!(is_other, "--topology: no sweep can run on another machine; add --dry-run or --show");
    check_needs(&expansion)?;
    let place = RunFolder::claim(&args, &plan)?;
    begin::check_room(&args, &expansion, &place.layouts)?;
    let ending = go(&args, &plan, &machine, expansion, &place)?;
    end::finish(&args, &place.dir, ending)
}

fn go(
    args: &SweepArgs,
    plan: &Plan,
    machine: &Machine,
    expansion: Expansion,
    place: &RunFolder,
) -> Result<Ending> {
    let cancel = signals::cancel_flag()?;
    let mut processes = Processes::new(&place.dir, &cancel)?;
    let summary = summary(plan, &expansion);
    let job = Job {
        plan,
        machine,
        options: Options { layouts: place.layouts.clone(), ..args.options.clone() },
        run: Run::create(&place.dir, place.run_file(args, plan, &expansion)?)?,
        points: expansion.points,
    };
    note(&format!("{}archive     {}", summary, place.dir.display()));
    let mut view = View::new(job.points.len());
    let mut show = |event| view.show(event);
    let ending = Sweep::new(job, &mut processes, &mut show).and_then(Sweep::run);
    view.finish();
    ending.context("the sweep could not go on")
}

/// This machine, or the one of `--topology`, as the study's expansion sees it.
pub(super) fn machine(topology: Option<&str>, devices: &[PathBuf]) -> Result<Machine> {
    let topology = super::testbed::topology(topology)?;
    let devices = devices.iter().map(|device| device.display().to_string()).collect();
    Ok(Machine { topology, devices })
}

/// Looks for programs that the points need and that are not ours, before anything is started: fails with what to install, or
/// what is wrong with `--peer-build`.
fn check_needs(expansion: &Expansion) -> Result<()> {
    let configs = || expansion.points.iter().map(|planned| &planned.point.config);
    let builds: BTreeSet<Option<&str>> =
        configs().filter(|config| is_peer(config)).map(|config| config.text("peer_build")).collect();
    for build in builds {
        Programs::find(build.map(Path::new))?;
    }
    let hosted = |wanted: &&Tool| configs().any(|config| is_hosted(config) && tool(config) == **wanted);
    Tool::ALL.iter().filter(hosted).copied().try_for_each(require_tool)
}

/// The processes of one sweep.
struct Processes<'a> {
    /// This very binary.
    program: PathBuf,
    /// Names the command that runs, for a sweep that resumes after this one was killed.
    record: PathBuf,
    cancel: &'a AtomicBool,
}

impl<'a> Processes<'a> {
    /// Ends what a killed sweep of the same folder has left running.
    fn new(dir: &Path, cancel: &'a AtomicBool) -> Result<Processes<'a>> {
        let record = dir.join("running.json");
        end_recorded(&record)?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Processes { program, record, cancel })
    }
}

impl Executor for Processes<'_> {
    fn run(&mut self, step: &BoundedCommand, log: &Path) -> End {
        // Steps that tidy up are not cancelled: they are short, and leave nothing behind.
        let cancel = (!matches!(step.what, What::Stop | What::Destroy)).then_some(self.cancel);
        let words = step.argv.iter().skip(1).map(OsString::from);
        let line: Vec<OsString> = std::iter::once(self.program.clone().into()).chain(words).collect();
        let ended = run_bounded(&line, log, step.limit, cancel, &self.record);
        ended.unwrap_or_else(|e| End::Failed(e.to_string()))
    }

    fn unix_s(&self) -> f64 {
        unix_now().as_secs_f64()
    }

    fn rest(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.cancel.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.cancel.load(Ordering::Relaxed)
    }
}
