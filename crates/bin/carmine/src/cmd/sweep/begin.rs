//! The beginning of a run: its folder, the lock on it, and what is known before the first point.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use carmine_bench::sample::{host_report, memory_bytes, unix_now};
use carmine_daemon::build;
use carmine_study::archive::{Build, RUN_FORMAT, Run, RunFile};
use carmine_study::expand::{Expansion, Planned};
use carmine_study::needs::{Device, Have, shortages};
use carmine_study::plan::Plan;
use carmine_study::run::{Options, WINDOW_MIN};
use carmine_testbed::slice::look_at;
use carmine_testbed::{free_bytes, refuse, usage};
use clap::Parser;
use walkdir::WalkDir;

use super::args::SweepArgs;
use crate::cmd::{Cli, Command, doctor};

/// The folder of a run, held by this process.
pub(crate) struct RunFolder {
    pub(crate) dir: PathBuf,
    pub(crate) layouts: PathBuf,
    /// The record of an earlier sweep of this run.
    before: Option<RunFile>,
    _lock: File,
}

impl RunFolder {
    /// Claims the folder: a new one, or with `--resume` the one of a stopped run.
    pub(crate) fn claim(args: &SweepArgs, plan: &Plan) -> Result<RunFolder> {
        let dir = match &args.out {
            Some(dir) => dir.clone(),
            None => PathBuf::from("carmine-runs").join(format!("{}-{}", plan.name, unix_now().as_secs())),
        };
        let has_run = dir.join("run.json").exists();
        let shown = dir.display();
        let what = "holds a run already; continue it with --resume, or name another folder";
        refuse!(has_run && !args.resume, "--out {shown}: {what}");
        refuse!(args.resume && !has_run, "--resume: {shown} holds no run (there is no run.json)");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
        // One sweep at a time in a folder; the lock goes with the process.
        let path = dir.join("sweep.lock");
        let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        lock.try_lock().map_err(|e| usage!("{}: another sweep runs in this folder ({e})", dir.display()))?;
        let layouts = args.layouts.as_ref().map_or_else(|| Ok(dir.join("layouts")), std::path::absolute)?;
        let before = if args.resume { Some(Run::open(&dir)?.file) } else { None };
        Ok(RunFolder { dir, layouts, before, _lock: lock })
    }

    /// `run.json` at the beginning of this sweep.
    pub(crate) fn run_file(&self, args: &SweepArgs, plan: &Plan, expansion: &Expansion) -> Result<RunFile> {
        if let Some(before) = &self.before {
            same_points(&self.dir, expansion)?;
            return Ok(RunFile { complete: false, finished_unix_s: None, ..before.clone() });
        }
        let host = host_report();
        let mut notes: Vec<String> =
            expansion.dropped.iter().map(|dropped| format!("{}: {}", dropped.word, dropped.why)).collect();
        notes.sort_unstable();
        notes.dedup();
        Ok(RunFile {
            format: RUN_FORMAT,
            name: plan.name.clone(),
            created_unix_s: unix_now().as_secs(),
            seed: plan.seed,
            carmine: Build {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                git_hash: build::GIT_HASH.to_owned(),
                profile: build::PROFILE.to_owned(),
                allocator: build::ALLOCATOR.to_owned(),
            },
            kernel: host["kernel"].as_str().unwrap_or_default().to_owned(),
            host,
            doctor: serde_json::to_value(doctor::findings_of_machine())
                .context("cannot keep the findings")?,
            command: command_line(args),
            label: label(expansion),
            comparison: expansion.comparison.clone(),
            chart: plan.chart,
            notes,
            study: plan.study,
            question: plan.question.clone(),
            search_p99_ms: plan
                .search_p99
                .filter(|_| plan.has_axis("search_step"))
                .map(|p99| p99.as_secs_f64() * 1e3),
            confounds: expansion.confounds.iter().map(ToString::to_string).collect(),
            ..RunFile::default()
        })
    }
}

/// The options of the run that is resumed; options that are given now count only if they do not change the points.
pub(crate) fn resumed(now: SweepArgs) -> Result<SweepArgs> {
    let dir = now.out.clone().unwrap_or_default();
    let run = Run::open(&dir).map_err(|e| usage!("--resume: {e}"))?;
    let Ok(Cli { command: Command::Sweep(then) }) = Cli::try_parse_from(&run.file.command) else {
        bail!("{}: its command line is not one of `carmine sweep`", dir.join("run.json").display());
    };
    // The plan file may have changed since: the archive's copy is what the points were made of.
    let plan = dir.join("plan.toml").display().to_string();
    let is_other = now.plan.is_some() && now.plan != then.plan;
    refuse!(is_other, "--resume goes on with {}; leave the plan out", then.plan.unwrap_or_default());
    Ok(SweepArgs {
        plan: Some(plan),
        out: now.out,
        resume: true,
        zip: now.zip || then.zip,
        json: now.json,
        dry_run: now.dry_run,
        options: Options {
            keep_layouts: now.options.keep_layouts || then.options.keep_layouts,
            ignore_drift: now.options.ignore_drift || then.options.ignore_drift,
            ..then.options
        },
        deadline: now.deadline,
        ..then
    })
}

/// The resources of this machine for the sweep whose layouts are in `layouts` (the folder, or the first one above it that exists).
fn have(args: &SweepArgs, layouts: &Path) -> Have {
    let place = std::path::absolute(layouts).unwrap_or_default();
    let folder = place.ancestors().find(|folder| folder.is_dir());
    // Layouts that a stopped sweep has left are there already.
    let left_bytes = if args.resume { bytes_in(layouts) } else { 0 };
    Have {
        disk_bytes: folder.and_then(|folder| free_bytes(folder).ok()).map(|free| free + left_bytes),
        memory_bytes: memory_bytes("MemAvailable"),
        time: args.deadline.map(Duration::from_millis),
        devices: args.devs.iter().map(|path| device(path)).collect(),
        load_hosts: args.options.load_hosts.len() as u64,
        may_wipe: args.options.force_wipe || args.resume,
    }
}

/// Bytes that the files of a folder take.
fn bytes_in(folder: &Path) -> u64 {
    let facts = WalkDir::new(folder).into_iter().flatten().filter_map(|entry| entry.metadata().ok());
    facts.filter(|facts| !facts.is_dir()).map(|facts| facts.blocks() * 512).sum()
}

fn device(path: &Path) -> Device {
    let (size_bytes, is_blank) = look_at(path).ok().flatten().unzip();
    Device { name: path.display().to_string(), size_bytes, is_blank: is_blank.unwrap_or(false) }
}

/// The reasons why a sweep with these options would not be started here.
pub(crate) fn short(args: &SweepArgs, expansion: &Expansion, layouts: &Path) -> Vec<String> {
    shortages(expansion, &have(args, layouts))
}

/// Refuses a sweep for which space, memory, time or devices are not enough.
pub(crate) fn check_room(args: &SweepArgs, expansion: &Expansion, layouts: &Path) -> Result<()> {
    let short = short(args, expansion, layouts);
    refuse!(!short.is_empty(), "the sweep is not started:\n{}", short.join("\n"));
    Ok(())
}

/// `smoke` if some window is short.
fn label(expansion: &Expansion) -> String {
    let seconds = |planned: &Planned| planned.point.config.float("seconds").unwrap_or_default();
    let is_smoke = expansion.points.iter().any(|planned| seconds(planned) < WINDOW_MIN.as_secs_f64());
    if is_smoke { "smoke".to_owned() } else { String::new() }
}

/// The command line as it was given, but with folders that stay valid from elsewhere.
fn command_line(args: &SweepArgs) -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    for (option, folder) in [("--layouts", &args.layouts), ("--peer-build", &args.peer_build)] {
        if let Some(folder) = folder.as_ref().and_then(|dir| std::path::absolute(dir).ok())
            && let Some(at) = words.iter().position(|word| word == option)
            && let Some(word) = words.get_mut(at + 1)
        {
            *word = folder.display().to_string();
        }
    }
    words
}

/// Points that changed since would be mixed up with those that were run.
fn same_points(dir: &Path, expansion: &Expansion) -> Result<()> {
    let old = Run::open(dir)?;
    let now = expansion.points.iter().map(|planned| &planned.point.stem);
    // After those of the plan stand the ones that were measured again.
    let then = old.points.iter().map(|point| &point.stem).take(expansion.points.len());
    ensure!(
        then.eq(now),
        "{}: its plan gives other points now than when it began (another machine, or another carmine); start a new run",
        dir.display()
    );
    Ok(())
}
