//! `carmine sweep`: a plan of many points, run in a fair order and archived in one folder.

mod begin;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use carmine_bench::bench::require_tool;
use carmine_daemon::signals;
use carmine_load::hosted::Tool;
use carmine_load::parse_millis;
use carmine_load::profile::ProfileMode;
use carmine_study::answer::answer;
use carmine_study::archive::{Chart, Point, PointEnd, PointResult, Run};
use carmine_study::commands::{BoundedCommand, What, is_hosted, is_peer, tool};
use carmine_study::expand::{Expansion, Machine, dry_run, expand, show_plan, summary};
use carmine_study::plan::{Overrides, Plan, SHIPPED, WORKLOADS, axes, shipped};
use carmine_study::run::{End, Ending, Executor, Job, Options, Sweep};
use carmine_study::scaling::{KNEE, Scaling, scaling_of_run};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, note, print};
use carmine_testbed::peer::Programs;
use carmine_testbed::spec::parse_path;
use carmine_testbed::{Wish, end_recorded, run_bounded};
use carmine_topology::{Grid, Topology};
use clap::Args;
use serde_json::{Value, json};
use walkdir::{DirEntry, WalkDir};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::cmd::{code, print_as};
use crate::progress::View;
use begin::RunFolder;

/// 0: every point was measured; 1: some were not, or the sweep was stopped; 2: the plan can't be used.
pub(crate) fn run(args: SweepArgs) -> Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    let args = if args.resume { begin::resumed(args)? } else { args };
    let plan = args.plan()?;
    let machine = machine(args.topology.as_deref(), &args.devs)?;
    let expansion = expand(&plan, &machine).map_err(|e| Usage(e.to_string()))?;
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
    if args.topology.is_some() {
        bail!(Usage("--topology: another machine can only be looked at; add --dry-run or --show".into()));
    }
    check_needs(&expansion)?;
    let place = RunFolder::take(&args, &plan)?;
    begin::check_room(&args, &expansion, &place.layouts)?;
    let ending = go(&args, &plan, &machine, expansion, &place)?;
    finish(&args, &place.dir, ending)
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
        run: Run::create(&place.dir, begin::run_file(args, plan, &expansion, place)?)?,
        points: expansion.points,
    };
    note(&format!("{}archive     {}", summary, place.dir.display()));
    let mut view = View::new(job.points.len());
    let mut show = |event| view.show(event);
    let ending = Sweep::new(job, &mut processes, &mut show).and_then(Sweep::run);
    view.finish();
    ending.context("the sweep could not go on")
}

/// This machine, or the one of `--topology`, as the study's expansion sees it: grids are those that `carmine up` would make.
pub(super) fn machine(topology: Option<&str>, devices: &[PathBuf]) -> Result<Machine> {
    let topology = super::testbed::topology(topology)?;
    let devices = devices.iter().map(|device| device.display().to_string()).collect();
    Ok(Machine { topology, devices, place })
}

fn place(topology: &Topology, up: &[String]) -> Result<Grid, String> {
    let planned =
        Wish::from_words(up.to_vec()).and_then(|wish| carmine_testbed::Plan::new(&wish, topology, ""));
    planned.map(|plan| plan.grid).map_err(|e| e.to_string())
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

    fn line(&self, argv: &[String]) -> Vec<OsString> {
        let mut line: Vec<OsString> = argv.iter().map(OsString::from).collect();
        if let Some(program) = line.first_mut().filter(|word| **word == "carmine") {
            *program = self.program.clone().into_os_string();
        }
        line
    }
}

impl Executor for Processes<'_> {
    fn run(&mut self, step: &BoundedCommand, log: &Path) -> End {
        // Steps that tidy up are not cancelled: they are short, and leave nothing behind.
        let cancel = (!matches!(step.what, What::Stop | What::Destroy)).then_some(self.cancel);
        let ended = run_bounded(&self.line(&step.argv), log, step.limit, cancel, &self.record);
        ended.unwrap_or_else(|e| End::Failed(e.to_string()))
    }

    fn unix_s(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
    }

    fn rest(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.cancel.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.cancel.load(Ordering::Relaxed)
    }
}

// Options of `carmine sweep`.

/// Options of the sweep.
#[derive(Args, Clone, Debug)]
pub(crate) struct SweepArgs {
    /// A plan file (TOML), or the name of a shipped plan (see --list)
    #[arg(value_name = "PLAN", required_unless_present_any = ["list", "resume"])]
    pub(crate) plan: Option<String>,
    /// List shipped plans, axes and workloads
    #[arg(long)]
    pub(crate) list: bool,
    /// Show a summary (points, time, space, what does not fit and why, what differs between arms), then every point with its
    /// grid; starts nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show the plan's text, the values that its axes have here, and the summary; starts nothing
    #[arg(long)]
    pub(crate) show: bool,
    /// With --dry-run or --show: another machine, a description file or sockets x cores x threads such as 2x28x2
    #[arg(long, value_name = "FILE|SHAPE")]
    pub(crate) topology: Option<String>,
    /// Print JSON instead of text (--list, --dry-run, and the table at the end)
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder of the archive [default: carmine-runs/PLAN-TIME]
    #[arg(long, value_name = "FOLDER", help_heading = "Archive")]
    pub(crate) out: Option<PathBuf>,
    /// Continue the stopped run in --out, with its plan and options; measured points are kept
    #[arg(long, requires = "out", help_heading = "Archive")]
    pub(crate) resume: bool,
    /// Pack the archive into OUT.zip as well
    #[arg(long, help_heading = "Archive")]
    pub(crate) zip: bool,
    /// Folder for the OSDs' data, on the drive to be measured [default: OUT/layouts]
    #[arg(long, value_name = "FOLDER", help_heading = "Storage")]
    pub(crate) layouts: Option<PathBuf>,
    /// Block devices for the OSDs, used in this order; they hold one layout at a time
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
    pub(crate) devs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,

    /// Refuse a sweep that is estimated to take longer, such as 8h
    #[arg(long, value_name = "TIME", value_parser = parse_millis, help_heading = "Plan")]
    pub(crate) deadline: Option<u64>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Measure none (Carmine itself), ceph or ceph-tuned; a list measures them side by side
    #[arg(long, value_name = "PEER,…", value_delimiter = ',', help_heading = "Plan")]
    pub(crate) peer: Vec<String>,
    /// Folder of a Ceph build (with bin/ and lib/), classic or Crimson, to be the peer instead of the installed packages
    #[arg(long, value_name = "FOLDER", help_heading = "Plan")]
    pub(crate) peer_build: Option<PathBuf>,
    /// A flamegraph of each point where perf works, taken before its window: oncpu or offcpu
    #[arg(long, value_name = "MODE", help_heading = "Plan")]
    pub(crate) profile: Option<ProfileMode>,
    /// Load generator: own, fio-rbd, fio-rados, rados-bench
    #[arg(long, value_name = "CLIENT", help_heading = "Plan")]
    pub(crate) client: Option<String>,
}

impl SweepArgs {
    /// The plan that was named, as the other options change it.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let name = self.plan.as_deref().unwrap_or_default();
        let plan = match shipped(name) {
            Some(plan) => plan,
            None if !Path::new(name).exists() && !name.contains(['/', '.']) => {
                let names = SHIPPED.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ");
                let what = format!("{name}: there is no such file or shipped plan; shipped plans: {names}");
                anyhow::bail!(Usage(what));
            }
            None => Plan::read(Path::new(name)),
        };
        let plan = plan.and_then(|plan| plan.with(&self.overrides()));
        Ok(plan.map_err(|e| Usage(e.to_string()))?)
    }

    fn overrides(&self) -> Overrides {
        let build = self.peer_build.as_ref().map(|dir| std::path::absolute(dir).unwrap_or(dir.clone()));
        let one = |name: &str, value: Option<String>| (name.to_owned(), Vec::from_iter(value));
        let before = [("peer".to_owned(), self.peer.clone()), one("client", self.client.clone())];
        let behind = [
            one("peer_build", build.map(|dir| dir.display().to_string())),
            one("profile", self.profile.map(|mode| mode.to_string())),
        ];
        let given = before.into_iter().chain(self.overrides.axes.iter().cloned()).chain(behind);
        let axes = given.filter(|(_, values)| !values.is_empty()).collect();
        Overrides { axes, ..self.overrides.clone() }
    }
}

// The end of a sweep: its table, report and archive; and `--list`, and JSON beside every table.

/// Folders and files that are of this machine only.
const LOCAL: [&str; 3] = ["layouts", "sweep.lock", "running.json"];

/// The table, the report, the archive's place.
fn finish(args: &SweepArgs, dir: &Path, ending: Ending) -> Result<ExitCode> {
    let run = Run::open(dir)?;
    print(&if args.json { summary_json(&run)? } else { table(&run) })?;
    let resume = format!("carmine sweep --resume --out {}", dir.display());
    let stopped = match ending {
        Ending::Complete => None,
        Ending::Stopped => Some(format!("stopped; go on with: {resume}")),
        Ending::Drifted(change) => Some(format!(
            "stopped: the machine has drifted. The first point, run again twice, gave {:+.1} % IOPS, more than the \
             tolerance of the plan: what is left would not tell such differences from drift. Find out what has changed \
             (carmine doctor), and start anew; or go on all the same with: {resume} --ignore-drift",
            change * 100.0
        )),
    };
    if let Some(why) = stopped {
        note(&why);
        return Ok(code(false));
    }
    if !args.json {
        let answer = answer(&run)?;
        let told = if answer.is_empty() { &run.file.confounds } else { &answer };
        told.iter().try_for_each(|line| print(&format!("{line}\n")))?;
        if run.file.chart == Chart::Scaling {
            print(&scaling(&scaling_of_run(&run)?))?;
        }
    }
    match crate::cmd::study::write(&[dir.to_path_buf()], None) {
        Ok(written) => note(&format!("report: {}", written.html.display())),
        Err(e) => note(&format!("warning: no report could be made of it: {e}")),
    }
    if args.zip {
        note(&format!("packed in {}", pack(dir)?.display()));
    }
    note(&format!("archived in {}", dir.display()));
    let is_fine = |point| matches!(run.state(point), Ok(Some(state)) if state.state != PointEnd::Failed);
    Ok(code(run.points.iter().all(is_fine)))
}

/// Packs a run's folder into `FOLDER.zip` beside it, whole or not at all.
fn pack(dir: &Path) -> Result<PathBuf> {
    let name = dir.file_name().context("the run's folder has no name")?;
    let target = dir.with_file_name(format!("{}.zip", name.display()));
    let part = dir.with_file_name(format!(".{}.zip.part", name.display()));
    let file = File::create(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let mut zip = ZipWriter::new(file);
    let is_local = |entry: &DirEntry| LOCAL.iter().any(|local| entry.file_name() == *local);
    let entries = WalkDir::new(dir).sort_by_file_name().into_iter();
    for entry in entries.filter_entry(|entry| entry.depth() == 0 || !is_local(entry)) {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            let inside = Path::new(name).join(entry.path().strip_prefix(dir)?);
            zip.start_file_from_path(inside, SimpleFileOptions::default()).context("cannot add a file")?;
            zip.write_all(&std::fs::read(entry.path())?)?;
        }
    }
    let file = zip.finish().context("cannot finish the zip file")?;
    file.sync_all()?;
    std::fs::rename(&part, &target).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

/// Shipped plans, axes, workloads.
fn list(as_json: bool) -> Result<ExitCode> {
    let plans = SHIPPED.iter().filter_map(|plan| Some((plan.name, shipped(plan.name)?.ok()?.about)));
    let (plans, axes): (Vec<_>, Vec<_>) =
        (plans.collect(), axes().map(|a| (a.name, a.about().to_owned())).collect());
    let objects = |rows: &[(&str, String)]| -> Vec<Value> {
        rows.iter().map(|(name, about)| json!({"name": name, "about": about})).collect()
    };
    let all = json!({"plans": objects(&plans), "axes": objects(&axes), "workloads": WORKLOADS});
    let lines = |rows: &[(&str, String)]| -> String {
        rows.iter().map(|(name, about)| format!("  {name:<18} {about}\n")).collect()
    };
    print_as(as_json, &all, || {
        format!(
            "Plans (a copy of one is in each archive, as plan.toml):\n{}\nAxes of plans:\n{}  peer_opt.NAME      an option of \
             the peer's configuration\n\nWorkloads: {}\n",
            lines(&plans),
            lines(&axes),
            WORKLOADS.join(" ")
        )
    })
}

/// Run, points, states and the figures of the table.
fn summary_json(run: &Run) -> Result<String> {
    let point = |point: &Point| -> Result<Value> {
        let result = run.result(point)?.filter(|_| run.is_done(point));
        let latency = result.as_ref().and_then(|r| r.latency().cloned());
        Ok(json!({
            "stem": point.stem,
            "config": point.config,
            "state": run.state(point)?,
            "iops": result.as_ref().map(|r| r.iops()),
            "bw_bytes": result.as_ref().map(|r| r.bw_bytes()),
            "mean_ns": latency.as_ref().map(|l| l.mean),
            "p99_ns": latency.as_ref().and_then(|l| l.at(99.0)),
            "verdict": result.as_ref().and_then(|r| r.carmine.verdict),
            "marks": result.as_ref().map(|r| &r.carmine.marks),
        }))
    };
    let points: Vec<Value> = run.points.iter().map(point).collect::<Result<_>>()?;
    let (scaling, answer) = (scaling_of_run(run)?, answer(run)?);
    let all =
        json!({"dir": run.dir(), "run": run.file, "points": points, "scaling": scaling, "answer": answer});
    Ok(json_text(&all)?)
}

/// One row a point.
fn table(run: &Run) -> String {
    let header = "point | IOPS | MB/s | mean us | p99 us | IOPS/core | verdict | marks";
    let rows = run.points.iter().map(|point| {
        let state = run.state(point).ok().flatten().map(|state| state.state);
        let result = run.result(point).ok().flatten().filter(|_| state == Some(PointEnd::Done));
        let missing = match state {
            Some(PointEnd::Failed) => "failed",
            Some(PointEnd::Skipped) => "skipped",
            _ => "not run",
        };
        result
            .map_or_else(|| vec![point.stem.clone(), missing.to_owned()], |result| row(&point.stem, &result))
    });
    format!("{}\n", crate::cmd::table(header, 1..6, rows))
}

/// How a scaling run ends: slope, knee and what bound each line, and what the knee is.
fn scaling(lines: &[Scaling]) -> String {
    if lines.is_empty() {
        return "no slope: the points that fit this machine have one number of reactors, CPUs and OSDs\n"
            .into();
    }
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    if lines.iter().any(|line| line.knee.is_some()) {
        text.push_str(&format!("(the knee is {KNEE})\n"));
    }
    text
}

fn row(stem: &str, result: &PointResult) -> Vec<String> {
    let latency = result.latency().cloned().unwrap_or_default();
    let us = |ns: f64| format!("{:.0}", ns / 1e3);
    vec![
        stem.to_owned(),
        format!("{:.0}", result.iops()),
        format!("{:.1}", result.bw_bytes() / 1e6),
        us(latency.mean),
        latency.at(99.0).map_or_else(|| "-".to_owned(), us),
        result.carmine.iops_per_core.used.map_or_else(|| "-".to_owned(), |v| format!("{v:.0}")),
        result.carmine.verdict.map_or_else(|| "-".to_owned(), |limiter| limiter.to_string()),
        result.mark_words().join(" "),
    ]
}
