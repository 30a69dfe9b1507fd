//! `carmine bench` and `carmine baseline` of a point.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::step::{Step, What};
use crate::archive::Config;
use crate::plan::{Workload, workload};

/// Bytes of an object (as `carmine bench` makes them).
const OBJECT_BYTES: u64 = 4 << 20;
/// Open loop: so many may be in flight before arrivals wait.
const OPEN_LOOP_IODEPTH: u64 = 256;
/// Connecting and draining.
const AROUND_S: f64 = 60.0;
/// A prefill that is slower than this hangs.
const SLOW_BYTES_PER_S: f64 = 10e6;
/// What `carmine bench` loads unless told otherwise.
const SIZE_BYTES: u64 = 1 << 30;
/// Limit of a baseline.
const BASELINE_S: f64 = 60.0;

/// Where a point's files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFiles {
    pub json: PathBuf,
    pub samples: PathBuf,
    /// A baseline that was measured.
    pub baseline: Option<PathBuf>,
}

/// The workload of a configuration; one whose name is not known is the first.
fn workload_of(config: &Config) -> Workload {
    config.text("workload").and_then(workload).unwrap_or(crate::plan::WORKLOADS[0])
}

/// Bytes of an operation.
pub(super) fn bs_bytes(config: &Config) -> u64 {
    config.number("bs_bytes").unwrap_or_else(|| workload_of(config).bs_bytes)
}

/// fio's word for the workload.
pub(super) fn rw(config: &Config) -> String {
    workload_of(config).rw.to_string()
}

/// Bytes that the load spreads over.
pub(crate) fn size_bytes(config: &Config) -> u64 {
    let objects = config.number("objects").map(|objects| objects * OBJECT_BYTES);
    config.number("size_bytes").or(objects).unwrap_or(SIZE_BYTES)
}

/// Length of the window, seconds.
pub(crate) fn seconds(config: &Config) -> f64 {
    config.float("seconds").unwrap_or(10.0)
}

/// The words of fio that both bench and baseline take.
fn shape(config: &Config) -> Vec<String> {
    let workload = workload_of(config);
    let rate = config.float("rate_iops");
    let depth = config.number("iodepth").unwrap_or(1);
    let depth = if rate.is_some() { depth.max(OPEN_LOOP_IODEPTH) } else { depth };
    let mut words =
        vec![("--rw", rw(config)), ("--bs", bs_bytes(config).to_string()), ("--iodepth", depth.to_string())];
    words.push(("--numjobs", config.show("jobs").unwrap_or_else(|| "1".to_owned())));
    if workload.rw == carmine_load::Rw::RandRw {
        words.push(("--rwmixread", workload.rwmixread.to_string()));
    }
    words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// `--client`, where it is not our own.
pub(super) fn client(config: &Config) -> Vec<String> {
    match config.text("client").filter(|client| *client != "own") {
        Some(client) => vec!["--client".to_owned(), client.to_owned()],
        None => Vec::new(),
    }
}

/// The load of a point. `seed` is the same for the arms of a pair: they get the same operations.
pub fn load_step(layout: &Path, config: &Config, ramp: Duration, seed: u64, files: &LoadFiles) -> Step {
    let mut argv =
        vec!["carmine".to_owned(), "bench".to_owned(), "--dir".to_owned(), layout.display().to_string()];
    argv.extend(shape(config));
    let mut put = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    put("--runtime", format!("{}ms", (seconds(config) * 1e3).round() as u64));
    put("--ramp", format!("{}ms", ramp.as_millis()));
    put("--size", size_bytes(config).to_string());
    put("--seed", seed.to_string());
    for (axis, option) in [("route", "--route"), ("cache", "--cache")] {
        if let Some(word) = config.show(axis) {
            put(option, word);
        }
    }
    if let Some(rate) = config.float("rate_iops") {
        put("--rate", format!("{rate:.2}"));
        put("--arrivals", config.show("arrivals").unwrap_or_else(|| "poisson".to_owned()));
    }
    put("--json", files.json.display().to_string());
    put("--samples", files.samples.display().to_string());
    if let Some(baseline) = &files.baseline {
        put("--baseline", baseline.display().to_string());
    }
    argv.extend(client(config));
    let prefill_s = size_bytes(config) as f64 * config.float("pool_size").unwrap_or(1.0) / SLOW_BYTES_PER_S;
    Step::new(What::Load, argv, seconds(config) + ramp.as_secs_f64() + AROUND_S + prefill_s)
}

/// Both baselines of a point's load, beside its running OSDs.
pub fn baseline_step(layout: &Path, config: &Config, json: &Path) -> Step {
    let mut argv =
        vec!["carmine".to_owned(), "baseline".to_owned(), "--dir".to_owned(), layout.display().to_string()];
    argv.extend(shape(config));
    argv.extend(["--json".to_owned(), json.display().to_string()]);
    Step::new(What::Baseline, argv, BASELINE_S)
}
