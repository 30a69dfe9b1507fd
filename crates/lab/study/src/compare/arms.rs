//! Arms of archived runs, and of plain result files as `carmine bench --json` writes them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use carmine_load::origin::Origin;
use carmine_testbed::spec::axis_paths;
use carmine_testbed::{fail_if, failed};
use serde_json::Value;

use super::{Arm, Measured, Refusal};
use crate::archive::{Config, Point, PointEnd, PointKind, PointResult, Run};
use crate::lists::sorted;

/// A whole run as one arm: pairs with another run are points of the same repeat.
///
/// # Errors
/// The run is not complete, or none of its points was measured.
pub fn arm_of_run(run: &Run) -> Result<Arm, Refusal> {
    check_complete(run)?;
    arm(run, name_of(run), |point| Some(point.repeat))
}

/// Two arms of one run: those named, or those that its plan compares. Pairs are what ran side by side.
///
/// # Errors
/// The run is not complete, has no such arms, or none of their points was measured.
pub fn arms_of_run(run: &Run, names: Option<(&str, &str)>) -> Result<(Arm, Arm), Refusal> {
    check_complete(run)?;
    let known = run.file.comparison.as_ref().map(|c| c.arms.clone()).unwrap_or_default();
    let (base, new) = match (names, known.as_slice()) {
        (Some((base, new)), _) => (base.to_owned(), new.to_owned()),
        (None, [base, new]) => (base.clone(), new.clone()),
        (None, arms) => {
            return Err(failed!(
                "{}: its plan compares nothing ({} arms); name a second run, or two arms with --arms A,B",
                name_of(run),
                arms.len()
            ));
        }
    };
    let of = |name: &str| {
        let is_known = run.points.iter().any(|p| p.arm.as_deref() == Some(name));
        let arms = if known.is_empty() {
            "it has none, as its plan compares nothing".to_owned()
        } else {
            format!("its arms are: {}", known.join(", "))
        };
        fail_if!(!is_known, "{} has no arm `{name}`; {arms}", name_of(run));
        let turn = |p: &Point| (p.arm.as_deref() == Some(name)).then(|| p.pair.unwrap_or(p.repeat));
        let compared = run.file.comparison.iter().map(|c| c.axis.clone()).collect();
        Ok(Arm { compared, ..arm(run, name.to_owned(), turn)? })
    };
    Ok((of(&base)?, of(&new)?))
}

fn name_of(run: &Run) -> String {
    run.dir().display().to_string()
}

fn check_complete(run: &Run) -> Result<(), Refusal> {
    let mut missing = 0;
    for point in &run.points {
        missing += usize::from(run.state(point)?.is_none());
    }
    fail_if!(
        !run.file.complete || missing > 0,
        "{}: the run is not complete (not run: {missing} of its {} points); finish it, then compare",
        name_of(run),
        run.points.len()
    );
    Ok(())
}

/// The points that `turn` gives a turn.
fn arm(run: &Run, name: String, turn: impl Fn(&Point) -> Option<u32>) -> Result<Arm, Refusal> {
    let mut arm =
        Arm { name, run: Some(run.dir().to_path_buf()), facts: facts_of_run(run), ..Arm::default() };
    for point in run.points.iter().filter(|p| p.kind == PointKind::Point) {
        let Some(turn) = turn(point) else { continue };
        let state = run.state(point)?;
        let failure = state.filter(|s| s.state == PointEnd::Failed);
        match (failure, run.result(point)?) {
            (None, Some(result)) => arm.points.push(Measured {
                name: point.stem.clone(),
                path: run.point_file(point, "json"),
                config: point.config.clone(),
                turn,
                result,
            }),
            (failure, _) => {
                let why = failure.and_then(|s| s.error).unwrap_or_else(|| "it has no result".to_owned());
                arm.left_out.push(format!("{}: {why}", point.stem));
            }
        }
    }
    arm.facts.extend(facts_of_origins(&arm.points));
    measured(arm)
}

/// Refuses an arm without points.
fn measured(arm: Arm) -> Result<Arm, Refusal> {
    fail_if!(arm.points.is_empty(), "{}: none of its points was measured", arm.name);
    Ok(arm)
}

/// Facts about builds and machine from the run's own file.
fn facts_of_run(run: &Run) -> BTreeMap<String, String> {
    let build = &run.file.carmine;
    let of_host = |name: &str| run.file.host.get(name).map(|value| value.to_string().replace('"', ""));
    let all = [
        ("carmine version", Some(build.version.clone())),
        ("git hash", Some(build.git_hash.clone())),
        ("build profile", Some(build.profile.clone())),
        ("allocator", Some(build.allocator.clone())),
        ("kernel", Some(run.file.kernel.clone())),
        ("cpu", of_host("cpu")),
        ("cpus of the machine", of_host("cpus")),
        ("memory_bytes", of_host("memory_bytes")),
    ];
    let known = all.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)));
    known.filter(|(_, value)| !value.is_empty()).collect()
}

/// Results in the order in which they are given: the first of a configuration in one arm is paired with the first of the
/// same configuration in the other, and so on.
///
/// # Errors
/// A file that is not a result, or no files.
pub fn arm_of_files(name: &str, paths: &[PathBuf]) -> Result<Arm, Refusal> {
    let mut arm = Arm { name: name.to_owned(), ..Arm::default() };
    let mut turns: BTreeMap<String, u32> = BTreeMap::new();
    for path in paths {
        let result = read(path)?;
        let config = config_of(&result);
        let turn = turns.entry(serde_json::to_string(&config).unwrap_or_default()).or_default();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        arm.points.push(Measured { name, path: path.clone(), config, turn: *turn, result });
        *turn += 1;
    }
    arm.facts = facts_of_results(&arm.points);
    measured(arm)
}

fn read(path: &Path) -> Result<PointResult, Refusal> {
    let wrong = |problem: &dyn Display| {
        failed!("{}: {problem}; give results of `carmine bench --json`", path.display())
    };
    let bytes = std::fs::read(path).map_err(|e| wrong(&e))?;
    let result: PointResult = serde_json::from_slice(&bytes).map_err(|e| wrong(&e))?;
    let is_empty = result.jobs.is_empty() || result.iops() <= 0.0;
    if is_empty { Err(wrong(&"it has no operations")) } else { Ok(result) }
}

/// Axes whose values a result has under the same name in the object `load`. The seed is none: it gives the same load in another
/// order.
const OF_LOAD: &str = "rw rwmixread bs_bytes bssplit random_distribution jobfile iodepth rate_iops arrivals route size_bytes object_size_bytes runtime_ms ramp_ms \
    io_bytes verify volumes processes load_hosts";

/// The configuration that a result carries: the testbed's settings, and the load. A setting that was not given (null) is `none`; one
/// that the build did not have is absent.
fn config_of(result: &PointResult) -> Config {
    let mut config = Config::default();
    let mut put = |axis: &str, object: &Value, path: &str| match object.pointer(path) {
        Some(Value::Null) => config.set(axis, "none"),
        Some(value) => config.set(axis, value.clone()),
        None => {}
    };
    for (axis, path) in axis_paths() {
        put(axis, &result.carmine.plan, &path);
    }
    for axis in OF_LOAD.split(' ') {
        put(axis, &result.carmine.load, &format!("/{axis}"));
    }
    put("jobs", &result.carmine.load, "/numjobs");
    config
}

/// Facts about the machine and the program on which all results agree.
fn facts_of_results(points: &[Measured]) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (name, key) in [("carmine version", "carmine"), ("kernel", "kernel"), ("cpu", "cpu")] {
        let values: Vec<&Value> = points.iter().filter_map(|m| m.result.carmine.host.get(key)).collect();
        if let Some(first) = values.first().filter(|first| values.iter().all(|v| v == *first)) {
            facts.insert(name.to_owned(), first.to_string().replace('"', ""));
        }
    }
    facts.extend(facts_of_origins(points));
    facts
}

/// Builds, machines and drives of results, as far as they have them.
fn facts_of_origins(points: &[Measured]) -> BTreeMap<String, String> {
    let origins = || points.iter().map(|m| &m.result.carmine.origin).filter(|origin| origin.is_known());
    let all = |of: fn(&Origin) -> String| sorted(origins().map(of), " | ");
    let hosts = all(|origin| origin.host.clone());
    let facts = [("git hash", all(Origin::build)), ("host", hosts), ("drives", all(Origin::drive_names))];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
