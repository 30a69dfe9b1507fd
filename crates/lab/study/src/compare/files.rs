//! Arms of plain result files, as `carmine bench --json` writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Arm, Measured, Refusal};
use crate::archive::{Config, PointResult};

/// Results in the order in which they are given: the first of a configuration in one arm is paired with the first of the
/// same configuration in the other, and so on.
///
/// # Errors
/// A file that is no result, or no files.
pub fn arm_of_files(name: &str, paths: &[PathBuf]) -> Result<Arm, Refusal> {
    let mut arm = Arm { name: name.to_owned(), ..Arm::default() };
    let mut turns: BTreeMap<String, u32> = BTreeMap::new();
    for path in paths {
        let result = read(path)?;
        let config = config_of(&result);
        let turn = turns.entry(serde_json::to_string(&config).unwrap_or_default()).or_default();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        arm.points.push(Measured { name, config, turn: *turn, result });
        *turn += 1;
    }
    if arm.points.is_empty() {
        return Err(Refusal::Nothing { run: arm.name });
    }
    arm.facts = facts(&arm.points);
    Ok(arm)
}

fn read(path: &Path) -> Result<PointResult, Refusal> {
    let wrong = |problem: String| Refusal::NoResult { path: path.display().to_string(), problem };
    let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let result: PointResult = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    if result.jobs.is_empty() || result.iops() <= 0.0 {
        return Err(wrong("it has no operations".to_owned()));
    }
    Ok(result)
}

/// Axis → where the result has its value, in `carmine`.
const AXES: [(&str, &str); 29] = [
    ("osds", "/plan/cpu/osds"),
    ("reactors", "/plan/cpu/reactors"),
    ("store", "/plan/store"),
    ("pool_size", "/plan/pool/size"),
    ("pgs", "/plan/pool/pg_num"),
    ("balance", "/plan/cpu/strategy"),
    ("cpus", "/plan/cpu/cpus"),
    ("poll", "/plan/poll"),
    ("alien_threads", "/plan/alien_threads"),
    ("osd_memory_bytes", "/plan/osd_memory_bytes"),
    ("flush_mode", "/plan/tuning/flush_mode"),
    ("device_class", "/plan/tuning/device_class"),
    ("prefer_deferred_bytes", "/plan/tuning/prefer_deferred_bytes"),
    ("discard", "/plan/tuning/discard"),
    ("data_cache_bytes", "/plan/tuning/data_cache_bytes"),
    ("readahead_bytes", "/plan/tuning/readahead_bytes"),
    ("osd_wrap", "/plan/osd_wrap"),
    ("osd_env", "/plan/osd_env"),
    ("rw", "/load/rw"),
    ("rwmixread", "/load/rwmixread"),
    ("bs_bytes", "/load/bs_bytes"),
    ("iodepth", "/load/iodepth"),
    ("jobs", "/load/numjobs"),
    ("rate_iops", "/load/rate_iops"),
    ("arrivals", "/load/arrivals"),
    ("route", "/load/route"),
    ("size_bytes", "/load/size_bytes"),
    ("object_size_bytes", "/load/object_size_bytes"),
    ("runtime_ms", "/load/runtime_ms"),
];

/// The configuration that a result carries.
fn config_of(result: &PointResult) -> Config {
    let mut config = Config::default();
    for (axis, pointer) in AXES {
        let (object, rest) = match pointer.strip_prefix("/plan") {
            Some(rest) => (&result.carmine.plan, rest),
            None => (&result.carmine.load, pointer.trim_start_matches("/load")),
        };
        if let Some(value) = object.pointer(rest).filter(|value| !value.is_null()) {
            config.set(axis, value.clone());
        }
    }
    config
}

/// What all results agree on of the machine and the program.
fn facts(points: &[Measured]) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (name, key) in [("carmine version", "carmine"), ("kernel", "kernel"), ("cpu", "cpu")] {
        let values: Vec<&Value> = points.iter().filter_map(|m| m.result.carmine.host.get(key)).collect();
        if let Some(first) = values.first().filter(|first| values.iter().all(|v| v == *first)) {
            facts.insert(name.to_owned(), first.to_string().replace('"', ""));
        }
    }
    facts
}
