//! `carmine bench --client`: the tools that Ceph's users know load a Carmine testbed or a peer, and are measured as our own
//! generator is.

mod meter;
mod prefill;
mod process;
mod programs;
mod run;
mod target;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::profile::length;
use anyhow::bail;
use carmine_load::hosted::{self, HostedFigures, Tool, limit};
use carmine_load::report::{self, CacheState, LatencyHistograms, Report};
use carmine_load::{LoadSpec, Route};
use carmine_testbed::Layout;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::peer::plan_of;
use super::room::{Room, written_bytes};
use super::setup::{COLD_PROFILE, cache_conditions, load_baseline};
use super::{BenchArgs, fill, flame, series, unix_seconds};
use crate::Doctor;
use crate::archive::write_json;
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::print;
use carmine_types::counted;
use meter::Metered;
use programs::ToolPrograms;
use run::{Outcome, Run};
use target::Target;

/// Time for `perf` to attach itself to the OSDs, and to write down what it saw.
const PERF_STARTS_MS: u64 = 1_500;

/// 0: measured without errors; 1: errors, or no measurement.
pub(crate) fn run(args: &BenchArgs, cancel: &AtomicBool, doctor: Doctor) -> anyhow::Result<ExitCode> {
    let tool = args.client;
    // A stock client has one connection per OSD.
    let mut spec = LoadSpec { route: Route::Single, ..args.spec() };
    cache_conditions(&mut spec, args.cache)?;
    if args.fill.is_some() || args.age.is_some() {
        let (plan, _) = plan_of(&Layout::new(&args.dir.dir)?)?;
        fill::apply(&mut spec, &plan, args.fill, args.age)?;
    }
    spec.check().map_err(|e| Usage(e.to_string()))?;
    let marks = hosted::check(tool, &spec).map_err(|e| Usage(e.to_string()))?;
    for (option, given) in [("--in-process", args.in_process), ("--confirm", args.confirm)] {
        if given {
            bail!(Usage(format!("{option}: only --client carmine can do that, {tool} cannot")));
        }
    }
    let baseline = args.baseline.as_deref().map(load_baseline).transpose()?;
    let target = Target::open(&args.dir.dir, doctor)?;
    let programs = ToolPrograms::find(tool)?;
    print(&target.grid.render())?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let profile = args.profile.filter(|_| args.cache != Some(CacheState::Cold));
    if let Some(mode) = profile {
        // It is taken in the ramp, so that what perf costs is in no figure.
        spec.ramp_ms += length(mode).as_millis() as u64 + PERF_STARTS_MS;
    }
    let run = Run { tool, spec, target, programs, pool: &args.pool, cancel, bar, profile };
    let measured = check_room(&run, args).and_then(|()| run.measure(args.samples.is_some()));
    run.bar.finish_and_clear();
    let mut outcome = measured?;
    let context = report::Context { cache_state: args.cache, baseline, ..run.target.context(marks) };
    let mut report = run.report(&outcome, context);
    if let Some(mode) = args.profile {
        let recorded = outcome.profiled.take().unwrap_or_else(|| Err(COLD_PROFILE.to_owned()));
        report.profile = Some(flame::profile(mode, recorded, args.json.as_deref(), &run.spec.summary()));
    }
    show(&outcome.figures, &report)?;
    if let Some(path) = &args.json {
        write_json(path, &run.result_json(&outcome, &report)?)?;
    }
    let figures = &outcome.figures;
    let good = figures.result.errors == 0 && figures.result.ops() > 0;
    if let (Some(path), Some(samples)) = (&args.samples, outcome.samples) {
        series::write(path, samples, &figures.result, report.window_seconds)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fails if the data of the load does not fit into the OSDs.
fn check_room(run: &Run<'_>, args: &BenchArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.dir.dir)?;
    let (plan, peer) = plan_of(&layout)?;
    let Some(room) = Room::look(&layout, &plan, peer.is_some(), run.pool)? else { return Ok(()) };
    // Where some of it is there, all of it may be.
    room.check(&run.spec, written_bytes(&run.spec, run.tool), |enough| {
        Ok(if prefill::has_some(run)? { enough } else { 0 })
    })
}

/// Fails with what to install if programs of `tool` are missing.
pub(super) fn require(tool: Tool) -> anyhow::Result<()> {
    ToolPrograms::find(tool).map(drop)
}

fn show(figures: &HostedFigures, report: &Report) -> anyhow::Result<()> {
    print(&report::table(&figures.result, report))?;
    let Some(latency) = figures.latency else { return Ok(()) };
    print(&format!("latency   mean {:.1} us, max {:.1} us\n", latency.mean_ns / 1e3, latency.max_ns / 1e3))?;
    Ok(())
}

/// The tool times itself; its window and the kernel's should be the same one.
fn window_mark(figures: &HostedFigures, metered: &Metered) -> Option<String> {
    let wall = metered.window.wall_ns as f64 / 1e9;
    let apart = (figures.seconds / wall - 1.0).abs();
    (apart > 0.02).then(|| {
        format!("NOISY: the tool measured {:.2} s, the kernel's accounting {wall:.2} s", figures.seconds)
    })
}

impl Run<'_> {
    fn report(&self, outcome: &Outcome, mut context: report::Context) -> Report {
        let (figures, metered) = (&outcome.figures, &outcome.metered);
        let cpus = self.target.client_cpus.len();
        if self.spec.numjobs as usize > cpus {
            let (jobs, cpus) = (counted(self.spec.numjobs as usize, "job"), counted(cpus, "client CPU"));
            context.marks.push(format!("{jobs} share {cpus}"));
        }
        context.marks.extend(window_mark(figures, metered));
        context.conditions = json!({"prefill": self.spec.prefill, "ramp_ms": self.spec.ramp_ms});
        let mut report = report::report(&self.spec, &figures.result, &metered.window, context);
        if figures.latency.is_some() {
            report.latency_histogram = LatencyHistograms::default();
        }
        // Ceph's OSDs have no reactors to look at: their CPUs say whether they are the limit.
        if let Some((limiter, reason)) = limit::by_cpus(&report, self.target.allocated_cores) {
            (report.verdict, report.verdict_reason) = (limiter, reason);
        }
        report
    }

    fn result_json(&self, outcome: &Outcome, report: &Report) -> anyhow::Result<Value> {
        let figures = &outcome.figures;
        let mut value = report::result_json(&self.spec, &figures.result, report, unix_seconds());
        value["fio version"] = json!(figures.version);
        value["jobs"] = figures.jobs(&self.spec);
        value["carmine"]["client"] = json!({
            "tool": self.tool,
            "version": self.programs.version,
            "command": outcome.command,
        });
        value["carmine"]["peer"] = self.target.about_json()?;
        Ok(value)
    }
}
