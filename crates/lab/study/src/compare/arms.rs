//! Arms of archived runs, and of plain result files as `carmine bench --json` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use carmine_testbed::spec::axis_paths;
use carmine_topology::Grid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Arm, Measured, Refusal};
use crate::archive::{Config, Point, PointEnd, PointKind, PointResult, Run};
use crate::expand::aspects;

/// A whole run as one arm: pairs with another run are points of the same repeat.
///
/// # Errors
/// The run is not complete, or nothing of it was measured.
pub fn arm_of_run(run: &Run) -> Result<Arm, Refusal> {
    check_complete(run)?;
    arm(run, name_of(run), |point| Some(point.repeat))
}

/// Two arms of one run: those named, or those that its plan compares. Pairs are what ran side by side.
///
/// # Errors
/// The run is not complete, has no such arms, or nothing of them was measured.
pub fn arms_of_run(run: &Run, names: Option<(&str, &str)>) -> Result<(Arm, Arm), Refusal> {
    check_complete(run)?;
    let known = run.file.comparison.as_ref().map(|c| c.arms.clone()).unwrap_or_default();
    let (base, new) = match (names, known.as_slice()) {
        (Some((base, new)), _) => (base.to_owned(), new.to_owned()),
        (None, [base, new]) => (base.clone(), new.clone()),
        (None, arms) => {
            return Err(Refusal::Failed(format!(
                "{}: its plan compares nothing ({} arms); name a second run, or two arms with --arms A,B",
                name_of(run),
                arms.len()
            )));
        }
    };
    let of = |name: &str| {
        if !run.points.iter().any(|p| p.arm.as_deref() == Some(name)) {
            let arms = known.join(", ");
            return Err(Refusal::Failed(format!(
                "{} has no arm `{name}`; its arms are: {arms}",
                name_of(run)
            )));
        }
        let turn = |p: &Point| (p.arm.as_deref() == Some(name)).then(|| p.pair.unwrap_or(p.repeat));
        let compared = run.file.comparison.as_ref().map(|c| c.axis.clone());
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
    if run.file.complete && missing == 0 {
        return Ok(());
    }
    Err(Refusal::Failed(format!(
        "{}: the run is not complete, {missing} of its {} points were not run; finish it, then compare",
        name_of(run),
        run.points.len()
    )))
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
    measured(arm)
}

/// Refuses an arm without points.
fn measured(arm: Arm) -> Result<Arm, Refusal> {
    if arm.points.is_empty() {
        return Err(Refusal::Failed(format!("{}: none of its points was measured", arm.name)));
    }
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
    arm.facts = facts_of_results(&arm.points);
    measured(arm)
}

fn read(path: &Path) -> Result<PointResult, Refusal> {
    let wrong = |problem: String| {
        Refusal::Failed(format!("{}: {problem}; give results of `carmine bench --json`", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let result: PointResult = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    if result.jobs.is_empty() || result.iops() <= 0.0 {
        return Err(wrong("it has no operations".to_owned()));
    }
    Ok(result)
}

/// Axes whose values a result has under the same name in the object `load`.
const OF_LOAD: &str =
    "rw rwmixread bs_bytes iodepth rate_iops arrivals route size_bytes object_size_bytes runtime_ms";

/// The configuration that a result carries: the testbed's settings, and the load.
fn config_of(result: &PointResult) -> Config {
    let mut config = Config::default();
    let mut put = |axis: &str, object: &Value, path: &str| {
        if let Some(value) = object.pointer(path).filter(|value| !value.is_null()) {
            config.set(axis, value.clone());
        }
    };
    for (axis, path) in axis_paths() {
        put(axis, &result.carmine.plan, &path);
    }
    let load = serde_json::to_value(&result.carmine.load).unwrap_or_default();
    for axis in OF_LOAD.split(' ') {
        put(axis, &load, &format!("/{axis}"));
    }
    put("jobs", &load, "/numjobs");
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
    facts
}

// Which points belong together, and what differs between the arms beside the figures.

/// Names of configurations that an error lists.
const NAMES_MAX: usize = 3;

/// Points of both arms with the same configuration but for what makes them arms.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The part of this group's configuration that other groups do not share, such as `reactors 2`; empty if there
    /// is one group only.
    pub name: String,
    /// (base, new) of the same turn, in order.
    pub pairs: Vec<(&'a Measured, &'a Measured)>,
    /// Points without a partner of the same turn: it failed.
    pub alone: usize,
}

/// Points by turn, and their configuration; the key is that as JSON, which is ordered by axis.
type Keyed<'a> = BTreeMap<String, (Config, BTreeMap<u32, &'a Measured>)>;

/// Groups the points of two arms by configuration, leaving out the axes in `without`, and pairs them by turn.
///
/// # Errors
/// A configuration that only one arm has.
pub fn pair_up<'a>(
    base: (&str, &[&'a Measured]),
    new: (&str, &[&'a Measured]),
    without: &BTreeSet<&str>,
) -> Result<Vec<Group<'a>>, Refusal> {
    let (old, mut young) = (keyed(base.1, without), keyed(new.1, without));
    let configs = || old.values().chain(young.values()).map(|(config, _)| config);
    let axes: BTreeSet<&String> = configs().flat_map(|c| c.0.keys()).collect();
    let varies = |axis: &&&String| configs().map(|c| c.show(axis)).collect::<BTreeSet<_>>().len() > 1;
    let telling: Vec<String> = axes.iter().filter(varies).map(|axis| (*axis).clone()).collect();
    missing(new.0, &telling, &old, &young)?;
    missing(base.0, &telling, &young, &old)?;
    let mut groups = Vec::with_capacity(old.len());
    for (key, (config, old)) in old {
        let young = young.remove(&key).map(|(_, turns)| turns).unwrap_or_default();
        let pairs: Vec<_> =
            old.iter().filter_map(|(turn, base)| young.get(turn).map(|new| (*base, *new))).collect();
        let alone = old.len() + young.len() - 2 * pairs.len();
        groups.push(Group { name: name(&config, &telling), pairs, alone });
    }
    Ok(groups)
}

fn keyed<'a>(points: &[&'a Measured], without: &BTreeSet<&str>) -> Keyed<'a> {
    let mut groups = Keyed::new();
    for point in points {
        let config = point.config.only(|axis| !without.contains(axis));
        let key = serde_json::to_string(&config).unwrap_or_default();
        groups.entry(key).or_insert_with(|| (config, BTreeMap::new())).1.insert(point.turn, point);
    }
    groups
}

/// A configuration's values of the axes that tell it from others. The workload's name says how large its operations are.
fn name(config: &Config, telling: &[String]) -> String {
    let said = |axis: &str| axis == "bs_bytes" && config.workload_with_size().is_some();
    let axes = telling.iter().filter(|axis| !said(axis));
    let shown = axes.filter_map(|axis| config.show(axis).map(|value| format!("{axis} {value}")));
    shown.collect::<Vec<_>>().join(" ")
}

/// Fails if `here` has configurations that `there`, the arm `side`, has not.
fn missing(side: &str, telling: &[String], here: &Keyed<'_>, there: &Keyed<'_>) -> Result<(), Refusal> {
    let lacking = here.iter().filter(|(key, _)| !there.contains_key(*key));
    let found: Vec<String> = lacking.map(|(_, (config, _))| format!("`{}`", name(config, telling))).collect();
    if found.is_empty() {
        return Ok(());
    }
    let named = found.iter().take(NAMES_MAX).map(String::as_str);
    let named: Vec<&str> = named.chain((found.len() > NAMES_MAX).then_some("…")).collect();
    Err(Refusal::Failed(format!(
        "{side} has no counterpart of {} ({} configurations); compare runs of the same plan",
        named.join(", "),
        found.len()
    )))
}

/// A setting that one arm has otherwise than the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub setting: String,
    pub base: String,
    pub new: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} / {}", self.setting, self.base, self.new)
    }
}

/// A setting with its value in both arms, if they differ.
pub(crate) fn between(setting: &str, base: String, new: String) -> Option<Difference> {
    (base != new).then(|| Difference { setting: setting.to_owned(), base, new })
}

/// Reads a setting out of a result.
type Setting = fn(&Measured) -> Option<String>;

/// The text for a setting that was not recorded.
const UNKNOWN: &str = "not recorded";

/// Axes of which no value is in both arms: these make them arms. (Axes along which each arm was measured have the same
/// values in both.)
pub fn differing_axes<'a>(base: &[&'a Measured], new: &[&'a Measured]) -> BTreeSet<&'a str> {
    let axes: BTreeSet<&str> =
        base.iter().chain(new).flat_map(|m| m.config.0.keys()).map(String::as_str).collect();
    let values = |points: &[&Measured], axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|m| m.config.get(axis).map(ToString::to_string)).collect()
    };
    axes.into_iter().filter(|axis| values(base, axis).is_disjoint(&values(new, axis))).collect()
}

/// Every setting that differs: axes of the configurations, flush mode and route of the results, builds, kernel, host.
pub(super) fn differences(base: &Arm, new: &Arm, axes: &BTreeSet<&str>) -> Vec<Difference> {
    let mut all = Vec::new();
    for axis in axes {
        let of = |m: &Measured| m.config.show(axis);
        all.extend(between(axis, values(base, of), values(new, of)));
    }
    let known: [(&str, Setting); 4] = [
        ("flush_mode", flush_mode),
        ("route", |m| told(&m.result.carmine.route)),
        ("cache_state", |m| m.result.carmine.cache_state.map(|state| state.to_string())),
        ("in_process", |m| Some(m.result.carmine.in_process.to_string())),
    ];
    for (name, of) in known.into_iter().filter(|(name, _)| !axes.contains(name)) {
        all.extend(between(name, values(base, of), values(new, of)));
    }
    let (old, young) = (placed(base), placed(new));
    for (name, values) in &old {
        all.extend(young.get(name).and_then(|new| between(name, values.join(", "), new.join(", "))));
    }
    let names: BTreeSet<&String> = base.facts.keys().chain(new.facts.keys()).collect();
    for name in names {
        let fact = |arm: &Arm| arm.facts.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned());
        all.extend(between(name, fact(base), fact(new)));
    }
    all
}

/// The properties of the grids of an arm's results, with each value once; none of results without a grid, as of a peer.
fn placed(arm: &Arm) -> BTreeMap<&'static str, Vec<String>> {
    let mut all: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let grids = arm.points.iter().filter_map(|m| Grid::deserialize(&m.result.carmine.grid).ok());
    for (name, value) in grids.flat_map(|grid| aspects(&grid)) {
        let known = all.entry(name).or_default();
        if !known.contains(&value) {
            known.push(value);
            known.sort_unstable();
        }
    }
    all
}

fn flush_mode(measured: &Measured) -> Option<String> {
    told(&measured.result.carmine.flush_mode)
}

fn told(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// All values in an arm, in words.
fn values(arm: &Arm, of: impl Fn(&Measured) -> Option<String>) -> String {
    let all: BTreeSet<String> =
        arm.points.iter().map(|m| of(m).unwrap_or_else(|| UNKNOWN.to_owned())).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

/// Refuses arms that do not promise the same, or are the same without knowing it.
pub(super) fn check(base: &Arm, new: &Arm, axes: &BTreeSet<&str>) -> Result<(), Refusal> {
    let (base_mode, new_mode) = (values(base, flush_mode), values(new, flush_mode));
    if base_mode != new_mode {
        return Err(Refusal::Failed(format!(
            "{} and {} have different flush modes ({base_mode} and {new_mode}): what they promise differs, so their speed is not \
             compared",
            base.name, new.name
        )));
    }
    let places = |arm: &Arm| values(arm, |m| m.result.carmine.grid.get("osds").map(ToString::to_string));
    let placed = axes.iter().eq(["balance"].iter()) && places(base) != UNKNOWN;
    if placed && places(base) == places(new) {
        return Err(Refusal::Failed(format!(
            "{} and {} are identical: on this machine both place everything on the same CPUs, so there is nothing to compare",
            base.name, new.name
        )));
    }
    Ok(())
}
