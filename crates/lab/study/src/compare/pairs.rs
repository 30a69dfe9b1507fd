//! Finds the points that belong together, and the differences between the arms beside the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use carmine_testbed::{fail_if, failed};
use carmine_topology::Grid;
use serde::{Deserialize, Serialize};

use super::{Arm, Measured, Refusal};
use crate::archive::Config;
use crate::expand::aspects;
use crate::lists::sorted;

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

/// Points by turn, and their configuration; the key is the configuration as JSON, ordered by axis.
type Keyed<'a> = BTreeMap<String, (Config, BTreeMap<u32, &'a Measured>)>;

/// Groups the points of two arms by configuration, leaving out these axes, and pairs them by turn.
///
/// # Errors
/// A configuration that only one arm has.
pub fn pair_up<'a>(base: &'a Arm, new: &'a Arm, axes: &BTreeSet<&str>) -> Result<Vec<Group<'a>>, Refusal> {
    let (old, mut young) = (keyed(base, axes), keyed(new, axes));
    let configs: Vec<&Config> = old.values().chain(young.values()).map(|(config, _)| config).collect();
    let telling = telling_axes(&configs);
    missing(&new.name, &telling, &old, &young)?;
    missing(&base.name, &telling, &young, &old)?;
    let mut groups = Vec::with_capacity(old.len());
    for (key, (config, old)) in old {
        let young = young.remove(&key).map(|(_, turns)| turns).unwrap_or_default();
        let pairs: Vec<_> =
            old.iter().filter_map(|(turn, base)| young.get(turn).map(|new| (*base, *new))).collect();
        let alone = old.len() + young.len() - 2 * pairs.len();
        groups.push(Group { name: config_name(&config, &telling), pairs, alone });
    }
    Ok(groups)
}

fn keyed<'a>(arm: &'a Arm, without: &BTreeSet<&str>) -> Keyed<'a> {
    let mut groups = Keyed::new();
    for point in &arm.points {
        let config = point.config.only(|axis| !without.contains(axis));
        let key = serde_json::to_string(&config).unwrap_or_default();
        groups.entry(key).or_insert_with(|| (config, BTreeMap::new())).1.insert(point.turn, point);
    }
    groups
}

/// The axes on which configurations differ.
pub(crate) fn telling_axes(configs: &[&Config]) -> Vec<String> {
    let axes: BTreeSet<&String> = configs.iter().flat_map(|config| config.0.keys()).collect();
    let varies = |axis: &&String| configs.iter().map(|c| c.show(axis)).collect::<BTreeSet<_>>().len() > 1;
    axes.into_iter().filter(varies).cloned().collect()
}

/// A configuration's values of the axes that tell it from others. The workload's name says how large its operations are.
pub(crate) fn config_name(config: &Config, telling: &[String]) -> String {
    let said = |axis: &str| axis == "bs_bytes" && config.workload_with_size().is_some();
    let axes = telling.iter().filter(|axis| !said(axis));
    let shown = axes.filter_map(|axis| config.show(axis).map(|value| format!("{axis} {value}")));
    shown.collect::<Vec<_>>().join(" ")
}

/// Fails if `here` has configurations that `there`, the arm `side`, does not have.
fn missing(side: &str, telling: &[String], here: &Keyed<'_>, there: &Keyed<'_>) -> Result<(), Refusal> {
    let lacking = here.iter().filter(|(key, _)| !there.contains_key(*key));
    let found: Vec<String> =
        lacking.map(|(_, (config, _))| format!("`{}`", config_name(config, telling))).collect();
    let named = found.iter().take(NAMES_MAX).map(String::as_str);
    let named: Vec<&str> = named.chain((found.len() > NAMES_MAX).then_some("…")).collect();
    fail_if!(
        !found.is_empty(),
        "{side} has no counterpart of {} ({} configurations); compare runs of the same plan",
        named.join(", "),
        found.len()
    );
    Ok(())
}

/// A setting that differs between the arms.
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

/// Axes with no value in common between the arms: these make them arms. (Axes along which each arm was measured have the same
/// values in both.)
pub fn differing_axes<'a>(base: &'a Arm, new: &'a Arm) -> BTreeSet<&'a str> {
    let points = base.points.iter().chain(&new.points);
    let axes: BTreeSet<&str> = points.flat_map(|m| m.config.0.keys()).map(String::as_str).collect();
    let values = |arm: &Arm, axis: &str| -> BTreeSet<Option<String>> {
        arm.points.iter().map(|m| m.config.get(axis).map(ToString::to_string)).collect()
    };
    axes.into_iter().filter(|axis| values(base, axis).is_disjoint(&values(new, axis))).collect()
}

/// Settings of a load and its testbed that results have beside their configuration.
const OF_RESULTS: [(&str, Setting); 4] = [
    ("flush_mode", flush_mode),
    ("route", |m| non_empty(&m.result.carmine.route)),
    ("cache_state", |m| m.result.carmine.cache_state.clone()),
    ("in_process", |m| Some(m.result.carmine.in_process.to_string())),
];

/// The values of an axis, or of another setting of the load, in an arm; `None` of a name that is neither.
fn setting(arm: &Arm, name: &str) -> Option<String> {
    let is_axis = arm.points.iter().any(|m| m.config.get(name).is_some());
    let of_results = || Some(values(arm, OF_RESULTS.iter().find(|(known, _)| *known == name)?.1));
    if is_axis { Some(values(arm, |m| m.config.show(name))) } else { of_results() }
}

/// Settings of the load and the testbed that differ: axes of the configurations, and what results have beside them.
fn load_differences(base: &Arm, new: &Arm, axes: &BTreeSet<&str>) -> Vec<Difference> {
    let others = OF_RESULTS.iter().map(|(name, _)| *name).filter(|name| !axes.contains(name));
    let shown = |arm: &Arm, name: &str| setting(arm, name).unwrap_or_else(|| UNKNOWN.to_owned());
    axes.iter()
        .copied()
        .chain(others)
        .filter_map(|name| between(name, shown(base, name), shown(new, name)))
        .collect()
}

/// Refuses arms whose loads or testbeds differ in more than the axes that are named ([`Arm::compared`]), and named axes that do
/// not differ. A setting that a build did not have yet is not recorded in its results, and no other load.
///
/// # Errors
/// All differences that are not named, or the first name that is none, with the values of both arms.
pub fn check_axes(base: &Arm, new: &Arm) -> Result<(), Refusal> {
    let found = load_differences(base, new, &differing_axes(base, new));
    let same = base.compared.iter().find(|name| found.iter().all(|d| d.setting != **name));
    if let Some(name) = same {
        let (Some(base), Some(new)) = (setting(base, name), setting(new, name)) else {
            let all: Vec<&str> = found.iter().map(|d| d.setting.as_str()).collect();
            let differ = if all.is_empty() {
                "none differs".to_owned()
            } else {
                format!("these differ: {}", all.join(", "))
            };
            return Err(failed!("--axis {name}: the results have no such setting; {differ}"));
        };
        return Err(failed!("--axis {name}: it does not differ: {base} / {new}; leave it out"));
    }
    let are_files = base.run.is_none() && new.run.is_none();
    let is_known = |d: &&Difference| !are_files || (d.base != UNKNOWN && d.new != UNKNOWN);
    let is_other = |d: &&Difference| !base.compared.contains(&d.setting);
    let others: Vec<String> =
        found.iter().filter(is_known).filter(is_other).map(ToString::to_string).collect();
    fail_if!(
        !others.is_empty(),
        "{} and {} are not of the same load on the same testbed: {}; name what is compared with --axis",
        base.name,
        new.name,
        others.join("; ")
    );
    Ok(())
}

/// Refuses arms in which a result stands twice: the same file, or a copy.
///
/// # Errors
/// The names of both, or a file that cannot be read.
pub fn check_files(base: &Arm, new: &Arm) -> Result<(), Refusal> {
    let mut seen: BTreeMap<(usize, u64), &Path> = BTreeMap::new();
    for path in base.points.iter().chain(&new.points).map(|point| point.path.as_path()) {
        let content = std::fs::read(path).map_err(|e| failed!("{}: {e}", path.display()))?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        if let Some(first) = seen.insert((content.len(), hasher.finish()), path) {
            let (first, path) = (first.display(), path.display());
            return Err(failed!("{first} and {path} are one result: give each measurement once"));
        }
    }
    Ok(())
}

/// Every setting that differs: those of load and testbed, placement, builds, kernel, host.
pub(super) fn differences(base: &Arm, new: &Arm, axes: &BTreeSet<&str>) -> Vec<Difference> {
    let mut all = load_differences(base, new, axes);
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
    non_empty(&measured.result.carmine.flush_mode)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// All values in an arm, in words.
fn values(arm: &Arm, of: impl Fn(&Measured) -> Option<String>) -> String {
    sorted(arm.points.iter().map(|m| of(m).unwrap_or_else(|| UNKNOWN.to_owned())), ", ")
}

/// Refuses arms that promise different durability, or that turn out to be identical.
pub(super) fn check(base: &Arm, new: &Arm, axes: &BTreeSet<&str>) -> Result<(), Refusal> {
    let (base_mode, new_mode) = (values(base, flush_mode), values(new, flush_mode));
    fail_if!(
        base_mode != new_mode,
        "{} and {} have different flush modes ({base_mode} and {new_mode}): they promise different durability, so their speed is not \
         compared",
        base.name,
        new.name
    );
    let places = |arm: &Arm| values(arm, |m| m.result.carmine.grid.get("osds").map(ToString::to_string));
    let placed = axes.iter().eq(["balance"].iter()) && places(base) != UNKNOWN;
    fail_if!(
        placed && places(base) == places(new),
        "{} and {} are identical: on this machine both place everything on the same CPUs, so there is nothing to compare",
        base.name,
        new.name
    );
    Ok(())
}
