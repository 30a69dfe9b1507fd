//! `carmine bench --client`: the tools that Ceph's users know load a Carmine testbed or a peer, and are measured as our own
//! generator is.

mod meter;
mod prefill;
mod process;
mod run;

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::profile::length;
use carmine_load::hosted::{HostedFigures, Tool};
use carmine_load::report::{self, CacheState, LatencyHistograms, Report};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::bed::{Bed, Checked, Conditions};
use super::setup::COLD_PROFILE;
use super::{BenchArgs, flame, series, unix_seconds};
use crate::Doctor;
use crate::archive::write_json;
use carmine_testbed::neighbour::Neighbour;
use carmine_testbed::output::print;
use meter::Metered;
use process::ToolPrograms;
use run::{Outcome, Run};

/// Time for `perf` to attach itself to the OSDs, and to write down what it saw.
const PERF_STARTS_MS: u64 = 1_500;

/// 0: measured without errors; 1: errors, or no measurement.
pub(crate) fn run(args: &BenchArgs, cancel: &AtomicBool, doctor: Doctor) -> anyhow::Result<ExitCode> {
    let tool = args.client;
    let mut checked = Checked::new(args)?;
    let (mut spec, marks) = (checked.spec.clone(), std::mem::take(&mut checked.marks));
    let conditions =
        Conditions { cache: args.cache, baseline: checked.baseline.take(), ..Conditions::default() };
    let bed = Bed::open(checked, doctor)?;
    let programs = ToolPrograms::find(tool)?;
    print(&bed.plan.grid.render())?;
    let neighbour = super::neighbour(&bed.plan.grid)?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let profile = args.profile.filter(|_| args.cache != Some(CacheState::Cold));
    if let Some(mode) = profile {
        // It is taken in the ramp, so that what perf costs is in no figure.
        spec.ramp_ms += length(mode).as_millis() as u64 + PERF_STARTS_MS;
    }
    let run = Run { tool, spec, bed, programs, pool: &args.pool, cancel, bar, profile };
    // Where some of the data is there, all of it may be.
    let present = |enough| Ok(if prefill::has_some(&run)? { enough } else { 0 });
    let room = run.bed.check_room(&run.spec, args, present);
    let measured = room.and_then(|()| run.measure(args.samples.is_some()));
    run.bar.finish_and_clear();
    let mut outcome = measured?;
    let mut context = run.bed.context(&run.spec, &conditions);
    context.client_cpus = Some(run.bed.client_cpus().len() as u32);
    context.marks.splice(0..0, marks);
    let mut report = run.report(&outcome, context);
    if let Some(mode) = args.profile {
        let recorded = outcome.profiled.take().unwrap_or_else(|| Err(COLD_PROFILE.to_owned()));
        report.profile = Some(flame::profile(mode, recorded, args.json.as_deref(), &run.spec.summary()));
    }
    show(&outcome.figures, &report)?;
    if let Some(path) = &args.json {
        let mut value = run.result_json(&outcome, &report)?;
        value["carmine"]["neighbour"] = json!(neighbour.as_ref().map(Neighbour::report));
        write_json(path, &value)?;
    }
    let figures = &outcome.figures;
    let good = figures.result.errors == 0 && figures.result.ops() > 0;
    if let (Some(path), Some(samples)) = (&args.samples, outcome.samples) {
        series::write(path, samples, &figures.result, report.window_seconds)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        context.marks.extend(window_mark(figures, metered));
        let mut report = report::report(&self.spec, &figures.result, &metered.window, context);
        if figures.latency.is_some() {
            report.latency_histogram = LatencyHistograms::default();
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
        value["carmine"]["peer"] = self.bed.about_json()?;
        Ok(value)
    }
}
