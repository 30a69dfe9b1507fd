//! `carmine bench`: loads a testbed and measures it.

mod args;
mod bed;
mod controller;
mod fio_words;
mod hosted;
mod keep;
mod room;
mod setup;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use carmine_load::hosted::Tool;
use carmine_load::report::{self, Report};
use carmine_load::verdict::MoreLoad;
use carmine_load::window::Window;
use carmine_load::{JobResult, LoadSpec};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::neighbour::Neighbour;
use carmine_testbed::output::{note, print};
use carmine_topology::Grid;
use carmine_types::counted;
use serde_json::{Value, json};

pub use args::BenchArgs;
use bed::Bed;
use controller::Seen;
use setup::Setup;

use crate::Doctor;
use crate::archive::write_json;

/// A load that was made and measured.
struct Loaded {
    bed: Bed,
    neighbour: Option<Neighbour>,
    spec: LoadSpec,
    result: JobResult,
    report: Report,
    seen: Seen,
}

/// Loads a testbed or a peer and prints, and keeps, what was measured. `cancel` ends it early.
///
/// The exit code is 0 if it measured and every block was right, 1 after errors or wrong blocks.
///
/// # Errors
/// The load cannot be made as asked, or gave no measurement.
pub fn run(args: BenchArgs, cancel: &AtomicBool, doctor: Doctor) -> anyhow::Result<ExitCode> {
    for (option, path) in [("--json", &args.json), ("--samples", &args.samples)] {
        if let Some(path) = path {
            check_writable(option, path)?;
        }
    }
    if args.client != Tool::Carmine {
        return hosted::run(&args, cancel, doctor);
    }
    let setup = Setup::prepare(args, doctor)?;
    let args = &setup.args;
    print(&setup.bed.grid_of(args.in_process).render())?;
    let neighbour = neighbour(&setup.bed.plan.grid)?;
    let outcome = controller::run(&setup, cancel)?;
    if let (Some(path), Some(_)) = (&args.verify_state, &setup.state) {
        let blocks = counted(outcome.known_blocks as usize, "block");
        note(&format!("verify state of {blocks} in {}", path.display()));
    }
    let measured = outcome.measured.map_err(|error| error.context(failure(&outcome.result)))?;
    let mut context = setup.context(&outcome.seen);
    if args.confirm {
        context.setting.more_load = Some(more_load(&setup, cancel, outcome.result.ops(), &measured)?);
    }
    let report = report::report(&outcome.spec, &outcome.result, &measured, context);
    let (spec, result, seen, bed) = (outcome.spec, outcome.result, outcome.seen, setup.bed.clone());
    let good = result.errors == 0 && result.abandoned == 0 && result.verify.mismatches == 0;
    conclude(args, Loaded { bed, neighbour, spec, result, report, seen }, None, |_| ())?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the result, with `below` under the table, and writes its files; `add` adds to the JSON.
fn conclude(
    args: &BenchArgs,
    loaded: Loaded,
    below: Option<String>,
    add: impl FnOnce(&mut Value),
) -> anyhow::Result<()> {
    let Loaded { bed, neighbour, spec, result, mut report, seen } = loaded;
    if let Some((mode, recorded)) = args.profile.zip(seen.profiled) {
        report.profile = Some(keep::profile(mode, recorded, args.json.as_deref(), &spec.summary()));
    }
    print(&report::table(&result, &report))?;
    print(&below.unwrap_or_default())?;
    if let (Some(path), Some(samples)) = (&args.samples, seen.samples) {
        keep::samples(path, samples, &result, report.window_seconds)?;
    }
    if let Some(path) = &args.json {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut value = report::result_json(&spec, &result, &report, now_s);
        value["carmine"]["peer"] = bed.about_json()?;
        value["carmine"]["neighbour"] = json!(neighbour.as_ref().map(Neighbour::report));
        add(&mut value);
        write_json(path, &value)?;
    }
    Ok(())
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
    Ok(MoreLoad { what, iops, ratio, own_cpus: own_cpus || setup.args.in_process })
}

/// Says how a load went that ended without a measurement.
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
        let (path, parent) = (path.display(), parent.display());
        bail!(Usage(format!("{option} {path}: there is no folder {parent}")));
    }
    Ok(())
}
