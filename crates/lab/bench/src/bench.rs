//! `carmine bench`: loads a testbed and measures it.

mod args;
mod bed;
mod controller;
mod fill;
mod fio_words;
mod flame;
mod generators;
mod hosted;
mod osd_dump;
mod room;
mod series;
mod setup;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::archive::write_json;
use anyhow::Context;
use carmine_load::JobResult;
use carmine_load::hosted::Tool;
use carmine_load::report;
use carmine_load::verdict::MoreLoad;
use carmine_load::window::Window;

pub use args::BenchArgs;
use setup::Setup;

use crate::Doctor;

use carmine_testbed::neighbour::Neighbour;
use carmine_testbed::output::{note, print};
use carmine_topology::Grid;
use carmine_types::counted;
use serde_json::json;

/// Loads a testbed or a peer and prints, and keeps, what was measured. `cancel` ends it early.
///
/// The exit code is 0 if it measured and every block was right, 1 after errors or wrong blocks.
///
/// # Errors
/// The load cannot be made as asked, or gave no measurement.
pub fn run(args: BenchArgs, cancel: &AtomicBool, doctor: Doctor) -> anyhow::Result<ExitCode> {
    let (json, samples) = (args.json.clone(), args.samples.clone());
    for (option, path) in [("--json", &json), ("--samples", &samples)] {
        if let Some(path) = path {
            check_writable(option, path)?;
        }
    }
    if args.client != Tool::Carmine {
        return hosted::run(&args, cancel, doctor);
    }
    let confirm = args.confirm;
    let setup = Setup::prepare(args, doctor)?;
    print(&setup.bed.grid_of(setup.in_process.is_some()).render())?;
    let neighbour = neighbour(&setup.bed.plan.grid)?;
    let outcome = controller::run(&setup, cancel)?;
    if let Some(path) = &setup.state_path {
        let blocks = counted(outcome.known_blocks as usize, "block");
        note(&format!("verify state of {blocks} in {}", path.display()));
    }
    let measured = match outcome.measured {
        Ok(measured) => measured,
        Err(error) => return Err(error.context(failure(&outcome.result))),
    };
    let mut context = setup.context(outcome.marks, outcome.settled);
    if confirm {
        context.setting.more_load = Some(more_load(&setup, cancel, outcome.result.ops(), &measured)?);
    }
    let mut report = report::report(&outcome.spec, &outcome.result, &measured, context);
    if let Some((mode, recorded)) = setup.profile.zip(outcome.profiled) {
        report.profile = Some(flame::profile(mode, recorded, json.as_deref(), &outcome.spec.summary()));
    }
    print(&report::table(&outcome.result, &report))?;
    if let (Some(path), Some(recorded)) = (&samples, outcome.samples) {
        series::write(path, recorded, &outcome.result, report.window_seconds)?;
    }
    if let Some(path) = &json {
        let mut value = report::result_json(&outcome.spec, &outcome.result, &report, unix_seconds());
        value["carmine"]["peer"] = setup.bed.about_json()?;
        value["carmine"]["neighbour"] = json!(neighbour.as_ref().map(Neighbour::report));
        write_json(path, &value)?;
    }
    let result = &outcome.result;
    let good = result.errors == 0 && result.abandoned == 0 && result.verify.mismatches == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts the neighbour of a testbed that has one; it ends when it is dropped.
fn neighbour(grid: &Grid) -> anyhow::Result<Option<Neighbour>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let neighbour = Neighbour::start(&program, &grid.neighbour)?;
    if neighbour.is_some() {
        note(&format!("a neighbour keeps CPUs {} busy", grid.neighbour));
    }
    Ok(neighbour)
}

/// Fails with what to install if a stock tool's programs are missing.
///
/// # Errors
/// A program is missing.
pub fn require_tool(tool: Tool) -> anyhow::Result<()> {
    hosted::require(tool)
}

/// Loads once more, with more load, and tells what that gave.
fn more_load(setup: &Setup, cancel: &AtomicBool, ops: u64, measured: &Window) -> anyhow::Result<MoreLoad> {
    let (more, what) = setup.with_more_load();
    let outcome = controller::run(&more, cancel)?;
    let window = outcome.measured.context("the load that should confirm the limiter")?;
    let rate = |ops: u64, window: &Window| ops as f64 * 1e9 / window.wall_ns.max(1) as f64;
    let (iops, before) = (rate(outcome.result.ops(), &window), rate(ops, measured));
    let own_cpus = setup.bed.client_cpus().len() >= more.spec.numjobs as usize;
    let ratio = if before > 0.0 { iops / before } else { 0.0 };
    Ok(MoreLoad { what, iops, ratio, own_cpus: own_cpus || setup.in_process.is_some() })
}

/// What is known of a load that ended without a measurement.
fn failure(result: &JobResult) -> String {
    match &result.first_error {
        Some(error) => {
            format!("the load failed ({}, first: {error})", counted(result.errors as usize, "error"))
        }
        None => "the load was not measured".to_owned(),
    }
}

/// Finds out before the load, not after it, that the result can't be kept.
fn check_writable(option: &str, path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        anyhow::bail!(carmine_testbed::TestbedError::Usage(format!(
            "{option} {}: there is no folder {}",
            path.display(),
            parent.display()
        )));
    }
    Ok(())
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
