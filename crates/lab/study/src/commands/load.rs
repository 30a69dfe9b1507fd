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
/// Recording a profile, and reading the stacks of busy OSDs.
const PROFILE_S: f64 = 180.0;
/// A prefill that is slower than this hangs.
const SLOW_BYTES_PER_S: f64 = 10e6;
/// What `carmine bench` loads unless told otherwise.
const SIZE_BYTES: u64 = 1 << 30;
/// Longest window of each of the two baselines.
const BASELINE_WINDOW_S: f64 = 5.0;

/// Where a point's files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFiles {
    pub json: PathBuf,
    pub samples: PathBuf,
    /// A baseline that was measured.
    pub baseline: Option<PathBuf>,
}

/// The workload of a configuration; one whose name is not known is the first.
pub(super) fn shape_of(config: &Config) -> Workload {
    config.text("workload").and_then(workload).unwrap_or(crate::plan::WORKLOADS[0])
}

/// Bytes of an operation.
pub(super) fn bs_bytes(config: &Config) -> u64 {
    config.number("bs_bytes").unwrap_or_else(|| shape_of(config).bs_bytes)
}

/// fio's word for the workload.
pub(super) fn rw(config: &Config) -> String {
    shape_of(config).rw.to_string()
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
    let workload = shape_of(config);
    let mut words = vec![("--rw", rw(config)), ("--bs", bs_bytes(config).to_string())];
    if workload.rw == carmine_load::Rw::RandRw {
        words.push(("--rwmixread", workload.rwmixread.to_string()));
    }
    words.push(("--size", size_bytes(config).to_string()));
    words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// Operations in flight of each job; with a rate, so many may be.
pub(super) fn iodepth(config: &Config) -> u64 {
    let depth = config.number("iodepth").unwrap_or(1);
    if config.float("rate_iops").is_some() { depth.max(OPEN_LOOP_IODEPTH) } else { depth }
}

pub(super) fn jobs(config: &Config) -> u64 {
    config.number("jobs").unwrap_or(1)
}

/// `--client`, where it is not our own.
pub(super) fn client(config: &Config) -> Vec<String> {
    match config.text("client").filter(|client| *client != "own") {
        Some(client) => vec!["--client".to_owned(), client.to_owned()],
        None => Vec::new(),
    }
}

/// `--volumes`, and a job for each: what the images are written by.
pub(super) fn volumes(config: &Config) -> Vec<String> {
    match config.show("volumes") {
        Some(n) => ["--volumes", &n, "--numjobs", &n].map(str::to_owned).to_vec(),
        None => Vec::new(),
    }
}

/// The flamegraph that is wanted.
fn profile(config: &Config) -> Option<&str> {
    config.text("profile").filter(|mode| *mode != "none")
}

/// A ramp would warm what is to be cold.
pub(super) fn ramp_of(config: &Config, ramp: Duration) -> Duration {
    if config.text("cache") == Some("cold") { Duration::ZERO } else { ramp }
}

/// The load of a point. `seed` is the same for the arms of a pair: they get the same operations.
pub fn load_step(layout: &Path, config: &Config, ramp: Duration, seed: u64, files: &LoadFiles) -> Step {
    let mut argv =
        vec!["carmine".to_owned(), "bench".to_owned(), "--dir".to_owned(), layout.display().to_string()];
    argv.extend(shape(config));
    let mut put = |option: &str, value: String| argv.extend([option.to_owned(), value]);
    put("--iodepth", iodepth(config).to_string());
    put("--numjobs", jobs(config).to_string());
    put("--runtime", milliseconds(seconds(config)));
    let ramp = ramp_of(config, ramp);
    put("--ramp", format!("{}ms", ramp.as_millis()));
    put("--seed", seed.to_string());
    for (axis, option) in
        [("volumes", "--volumes"), ("processes", "--processes"), ("route", "--route"), ("cache", "--cache")]
    {
        if let Some(word) = config.show(axis) {
            put(option, word);
        }
    }
    if let Some(rate) = config.float("rate_iops") {
        put("--rate", format!("{rate:.2}"));
        put("--arrivals", config.show("arrivals").unwrap_or_else(|| "poisson".to_owned()));
    }
    if let Some(mode) = profile(config) {
        put("--profile", mode.to_owned());
    }
    put("--json", files.json.display().to_string());
    put("--samples", files.samples.display().to_string());
    if let Some(baseline) = &files.baseline {
        put("--baseline", baseline.display().to_string());
    }
    argv.extend(client(config));
    let prefill_s = size_bytes(config) as f64 * config.float("pool_size").unwrap_or(1.0) / SLOW_BYTES_PER_S;
    let profile_s = if profile(config).is_some() { PROFILE_S } else { 0.0 };
    Step::new(What::Load, argv, seconds(config) + ramp.as_secs_f64() + AROUND_S + prefill_s + profile_s)
}

fn milliseconds(seconds: f64) -> String {
    format!("{}ms", (seconds * 1e3).round() as u64)
}

/// Both baselines of a point's load, beside its idle OSDs.
pub fn baseline_step(layout: &Path, config: &Config, json: &Path) -> Step {
    let mut argv = ["carmine", "baseline", "--dir"].map(str::to_owned).to_vec();
    argv.push(layout.display().to_string());
    argv.extend(shape(config));
    let window_s = seconds(config).min(BASELINE_WINDOW_S);
    for (option, value) in [
        ("--iodepth", (iodepth(config) * jobs(config)).to_string()),
        ("--runtime", milliseconds(window_s)),
        ("--json", json.display().to_string()),
    ] {
        argv.extend([option.to_owned(), value]);
    }
    let scratch_s = size_bytes(config) as f64 / SLOW_BYTES_PER_S;
    Step::new(What::Baseline, argv, AROUND_S + 2.0 * window_s + scratch_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::shell_line;

    fn config() -> Config {
        let mut config = Config::default();
        for (axis, value) in [("iodepth", 16_u64), ("jobs", 2), ("size_bytes", 1 << 20)] {
            config.set(axis, value);
        }
        config.set("workload", "randrw4k");
        config.set("seconds", 30.0);
        config
    }

    fn load(config: &Config) -> String {
        let files = LoadFiles { json: "j".into(), samples: "s".into(), baseline: Some("b".into()) };
        shell_line(&load_step(Path::new("/l"), config, Duration::from_secs(2), 7, &files).argv)
    }

    #[test]
    fn a_closed_loop() {
        assert_eq!(
            load(&config()),
            "carmine bench --dir /l --rw randrw --bs 4096 --rwmixread 50 --size 1048576 --iodepth 16 --numjobs 2 \
             --runtime 30000ms --ramp 2000ms --seed 7 --json j --samples s --baseline b"
        );
    }

    #[test]
    fn an_open_loop_may_have_many_in_flight() {
        let mut config = config();
        config.set("rate_iops", 1234.5);
        config.set("client", "fio-rados");
        let line = load(&config);
        assert!(
            line.contains("--iodepth 256") && line.contains("--rate 1234.50 --arrivals poisson"),
            "{line}"
        );
        assert!(line.ends_with("--client fio-rados"), "{line}");
    }

    #[test]
    fn a_profile_takes_its_time() {
        let mut config = config();
        config.set("profile", "none");
        assert!(!load(&config).contains("--profile"));
        config.set("profile", "offcpu");
        assert!(load(&config).contains(" --profile offcpu "), "{}", load(&config));
    }

    #[test]
    fn the_baseline_has_the_depth_of_all_jobs_and_is_short() {
        let line = shell_line(&baseline_step(Path::new("/l"), &config(), Path::new("b")).argv);
        assert_eq!(
            line,
            "carmine baseline --dir /l --rw randrw --bs 4096 --rwmixread 50 --size 1048576 --iodepth 32 --runtime \
             5000ms --json b"
        );
    }
}
