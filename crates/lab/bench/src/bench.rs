//! `carmine bench`: loads a testbed or a peer, measures it, and keeps the result with the files beside it.

mod args;
mod controller;
mod hosted;
mod jobfile;
mod recovering;
mod room;
mod setup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use carmine_load::hosted::{HostedFigures, Tool};
use carmine_load::hosts::LoadHost;
use carmine_load::profile::{Profile, ProfileMode};
use carmine_load::report::{self, LatencyHistograms, Recovery, Report};
use carmine_load::samples::Samples;
use carmine_load::verdict::MoreLoad;
use carmine_load::window::{DrainWindow, Window};
use carmine_load::{JobResult, LoadSpec, SAMPLE_NS};
use carmine_testbed::neighbour::Neighbour;
use carmine_testbed::relay::{self, RelayReport};
use carmine_testbed::{note, peer, print, refuse, write_json, write_whole};
use carmine_topology::Grid;
use carmine_types::{OsdId, counted};
use serde_json::{Value, json};

pub use args::BenchArgs;
pub use hosted::require_tool;
use setup::Setup;

use crate::profile::Recording;
use crate::sample::{origin_here, unix_now};
use crate::{Doctor, GitHash};

/// The outcome of a load.
struct Outcome {
    /// The load as it was made.
    spec: LoadSpec,
    result: JobResult,
    /// The window, or why there is none.
    measured: Result<Window>,
    /// Blocks that the verify state knows.
    known_blocks: u64,
    seen: Seen,
    /// The figures of a stock tool, and `carmine.client` of the result; `None`: our own generator.
    told: Option<(HostedFigures, Value)>,
}

/// Observations beside the figures.
#[derive(Default)]
struct Seen {
    marks: Vec<String>,
    /// The OSDs' background work between the prefill and the ramp.
    settled: Option<DrainWindow>,
    samples: Option<Samples>,
    /// The OSD that was taken out, and the seconds until all PGs were clean, if they were within the window.
    recovered: Option<(OsdId, Option<f64>)>,
    /// The recording of `perf`, or why there is none; `None` if nobody asked.
    profiled: Option<Result<Recording, String>>,
    /// The hosts whose generators made the load; none if this one did.
    load_hosts: Vec<LoadHost>,
}

/// Loads a testbed or a peer and prints, and keeps, what was measured. `cancel` ends it early.
///
/// The exit code is 0 if it measured and every block was right, 1 after errors or wrong blocks.
///
/// # Errors
/// The load cannot be made as asked, or gave no measurement.
pub fn run(args: BenchArgs, cancel: &AtomicBool, doctor: Doctor, git_hash: GitHash) -> Result<ExitCode> {
    let origin = origin_here(git_hash);
    for (option, path) in [("--json", &args.json), ("--samples", &args.samples)] {
        path.as_deref().map_or(Ok(()), |path| check_writable(option, path))?;
    }
    let setup = Setup::prepare(args, doctor, git_hash)?;
    let args = &setup.args;
    print(&setup.grid().render())?;
    let neighbour = neighbour(&setup.plan.grid)?;
    let relays_before = relay::reports(&setup.layout)?;
    let is_own = args.client == Tool::Carmine;
    let outcome = if is_own { controller::run(&setup, cancel) } else { hosted::run(&setup, cancel) }?;
    if let (Some(path), Some(_)) = (&args.verify_state, &setup.state) {
        let blocks = counted(outcome.known_blocks as usize, "block");
        note(&format!("verify state of {blocks} in {}", path.display()));
    }
    let mut context = setup.context(&outcome.spec, &outcome.seen);
    context.setting.origin = origin.on(&context.setting.stores);
    context.client_seconds = outcome.told.as_ref().map(|(figures, _)| figures.seconds);
    let result = &outcome.result;
    let window = outcome.measured.map_err(|error| error.context(failure(result)))?;
    if args.confirm {
        context.setting.more_load = Some(more_load(&setup, cancel, result.ops(), &window)?);
    }
    let mut report = report::report(&outcome.spec, result, &window, context);
    report.recovery = outcome.seen.recovered.map(|(osd, clean_s)| Recovery::new(osd.0, clean_s, result));
    if let Some((mode, recorded)) = args.profile.zip(outcome.seen.profiled) {
        report.profile = Some(profile(mode, recorded, args.json.as_deref(), &outcome.spec.summary()));
        if mode == ProfileMode::OnCpu {
            report = report.with_stages();
        }
    }
    let relays = relay::since(&relays_before, relay::reports(&setup.layout)?);
    report.marks.extend(relays.iter().map(RelayReport::mark));
    let latency = outcome.told.as_ref().and_then(|(figures, _)| figures.latency).map(|latency| {
        report.latency_histogram = LatencyHistograms::default();
        format!("latency   mean {:.1} us, max {:.1} us\n", latency.mean_ns / 1e3, latency.max_ns / 1e3)
    });
    print(&(report::table(&outcome.spec, result, &report) + &latency.unwrap_or_default()))?;
    if let (Some(path), Some(samples)) = (&args.samples, outcome.seen.samples) {
        let samples = with_load(samples, result, report.window_seconds);
        let text = serde_json::to_string(&samples).context("cannot make the JSON of the samples")?;
        write_whole(path, format!("{text}\n").as_bytes())?;
    }
    if let Some(path) = &args.json {
        let mut value = result_json(&setup, &outcome.spec, result, &report, outcome.told)?;
        value["carmine"]["neighbour"] = json!(neighbour.as_ref().map(Neighbour::report));
        if !relays.is_empty() {
            value["carmine"]["relay"] = json!(relays);
        }
        write_json(path, &value)?;
    }
    let wrong = result.errors + result.abandoned + result.verify.mismatches;
    let good = wrong == 0 && (is_own || result.ops() > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file of `--json`.
fn result_json(
    setup: &Setup,
    spec: &LoadSpec,
    result: &JobResult,
    report: &Report,
    told: Option<(HostedFigures, Value)>,
) -> Result<Value> {
    let mut value = report::result_json(spec, result, report, unix_now().as_millis() as u64);
    let about = setup.plan.peer.as_ref().map(|peer| peer::about(&setup.plan, peer)).transpose()?;
    value["carmine"]["peer"] = serde_json::to_value(about)?;
    if let Some((figures, client)) = told {
        value["jobs"] = figures.jobs(spec, &report.machine.generator);
        value["fio version"] = figures.version.into();
        value["carmine"]["client"] = client;
    }
    Ok(value)
}

/// Starts the neighbour of a testbed that has one; it ends when it is dropped.
fn neighbour(grid: &Grid) -> Result<Option<Neighbour>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let neighbour = Neighbour::start(&program, &grid.neighbour)?;
    if neighbour.is_some() {
        note(&format!("a neighbour keeps CPUs {} busy", grid.neighbour));
    }
    Ok(neighbour)
}

/// Loads once more, with more load, and reports the gain.
fn more_load(setup: &Setup, cancel: &AtomicBool, ops: u64, measured: &Window) -> Result<MoreLoad> {
    let (more, what) = setup.with_more_load();
    let outcome = controller::run(&more, cancel)?;
    let window = outcome.measured.context("the load that should confirm the limiter")?;
    let rate = |ops: u64, window: &Window| ops as f64 * 1e9 / window.wall_ns.max(1) as f64;
    let (iops, before) = (rate(outcome.result.ops(), &window), rate(ops, measured));
    let own_cpus = match outcome.seen.load_hosts.as_slice() {
        [] => setup.client_cpus().len() >= more.spec.numjobs as usize,
        hosts => hosts.iter().all(|host| host.cpus >= host.jobs),
    };
    let ratio = if before > 0.0 { iops / before } else { 0.0 };
    Ok(MoreLoad { what, iops, ratio, own_cpus: own_cpus || setup.args.in_process })
}

/// Explains how a load ended that gave no measurement.
fn failure(result: &JobResult) -> String {
    match &result.first_error {
        Some(error) => {
            format!("the load failed ({}, first: {error})", counted(result.errors as usize, "error"))
        }
        None => "the load was not measured".to_owned(),
    }
}

/// Finds out before the load, not after it, whether the result can be kept.
fn check_writable(option: &str, path: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (path, folder) = (path.display(), parent.display());
    refuse!(!parent.is_dir(), "{option} {path}: there is no folder {folder}");
    Ok(())
}

/// Draws the recording and writes the picture; a picture that cannot be had is a note, not an error. `json`: the result's file.
fn profile(mode: ProfileMode, taken: Result<Recording, String>, json: Option<&Path>, load: &str) -> Profile {
    let path = path(mode, json);
    let drawn = taken.and_then(|recording| {
        note("reading the profile");
        recording.draw(load)
    });
    let written = drawn.and_then(|(picture, profile)| {
        write_whole(&path, &picture).map_err(|e| e.to_string())?;
        let svg = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Profile { svg, ..profile })
    });
    written.unwrap_or_else(|why| {
        note(&format!("no flamegraph: {why}"));
        Profile::missing(mode, why)
    })
}

/// `DIR/NAME.MODE.svg` beside `DIR/NAME.json`.
fn path(mode: ProfileMode, json: Option<&Path>) -> PathBuf {
    let name = format!("{mode}.svg");
    json.map_or_else(|| PathBuf::from(&name), |json| json.with_extension(&name))
}

/// The file of `--samples`: what the sampler saw, with what the generator counted in the same seconds. The two windows begin within
/// milliseconds of each other.
fn with_load(mut samples: Samples, result: &JobResult, window_s: f64) -> Samples {
    samples.put("iops", per_second(&result.iops_samples(window_s)));
    for (name, stats) in [("read_iops", &result.read), ("write_iops", &result.write)] {
        if stats.ops > 0 {
            samples.put(name, per_second(&stats.iops_samples(window_s)));
        }
    }
    for (name, percent) in [("p50_ns", 50.0), ("p99_ns", 99.0)] {
        samples.put(name, result.seconds.percentiles(percent));
    }
    samples
}

/// Means of the samples of each whole second.
fn per_second(rates: &[f64]) -> Vec<Option<f64>> {
    let each = (1_000_000_000 / SAMPLE_NS) as usize;
    rates.chunks_exact(each).map(|chunk| Some(chunk.iter().sum::<f64>() / each as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_lies_beside_the_result() {
        let of = |json: Option<&str>| path(ProfileMode::OnCpu, json.map(Path::new)).display().to_string();
        assert_eq!(of(Some("points/a_qd1.6_r0.json")), "points/a_qd1.6_r0.oncpu.svg");
        assert_eq!(of(None), "oncpu.svg");
    }

    #[test]
    fn a_recording_that_failed_is_no_error() {
        let profile = profile(ProfileMode::OffCpu, Err("perf is not installed".into()), None, "randread");
        assert_eq!((profile.svg, profile.missing.as_deref()), (None, Some("perf is not installed")));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut samples = Samples { interval_ms: 1000, t_ms: vec![1000.0, 2000.0], ..Samples::default() };
        samples.put("osd_cores", vec![Some(0.5), None]);
        let mut result = JobResult::default();
        (0..2_000u64).for_each(|n| {
            result.read.record(4096, 5_000, n * 1_000_000);
            result.seconds.record(5_000, n * 1_000_000);
        });
        result.seconds.close();
        let samples = with_load(samples, &result, 2.4);
        let read: Samples = serde_json::from_value(serde_json::to_value(&samples).unwrap()).unwrap();
        assert_eq!(read.series["iops"], [Some(1000.0), Some(1000.0)]);
        assert_eq!((read.series["osd_cores"][1], read.interval_ms), (None, 1000));
        assert!(read.series["p99_ns"][1].is_some_and(|ns| (ns / 5_000.0 - 1.0).abs() < 0.01));
        assert!(!read.series.contains_key("write_iops"));
        assert_eq!(read.instrument, samples.instrument);
    }
}
