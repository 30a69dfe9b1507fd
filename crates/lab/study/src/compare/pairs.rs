//! Which points belong together, and what differs between the arms beside the figures.

use std::collections::{BTreeMap, BTreeSet};

use carmine_topology::Grid;
use serde::{Deserialize, Serialize};

use super::{Arm, Measured, Refusal};
use crate::archive::Config;
use crate::expand::aspects;

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

type Turns<'a> = BTreeMap<u32, &'a Measured>;

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
    let names = names(old.values().chain(young.values()).map(|(config, _)| config));
    missing(&names, &old, &young).map_or(Ok(()), |found| Err(mixed(new.0, found)))?;
    missing(&names, &young, &old).map_or(Ok(()), |found| Err(mixed(base.0, found)))?;
    let mut groups = Vec::with_capacity(old.len());
    for (key, (config, old)) in old {
        let young = young.remove(&key).map(|(_, turns)| turns).unwrap_or_default();
        let pairs: Vec<_> =
            old.iter().filter_map(|(turn, base)| young.get(turn).map(|new| (*base, *new))).collect();
        let alone = old.len() + young.len() - 2 * pairs.len();
        groups.push(Group { name: names.of(&config), pairs, alone });
    }
    Ok(groups)
}

/// By configuration and turn. A key is the configuration as JSON, which is ordered by axis.
fn keyed<'a>(points: &[&'a Measured], without: &BTreeSet<&str>) -> BTreeMap<String, (Config, Turns<'a>)> {
    let mut groups: BTreeMap<String, (Config, Turns<'a>)> = BTreeMap::new();
    for point in points {
        let config = point.config.only(|axis| !without.contains(axis));
        let key = serde_json::to_string(&config).unwrap_or_default();
        groups.entry(key).or_insert_with(|| (config, Turns::new())).1.insert(point.turn, point);
    }
    groups
}

/// The axes that tell configurations apart.
struct Names(BTreeSet<String>);

fn names<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Names {
    let axes: BTreeSet<&String> = configs.clone().flat_map(|c| c.0.keys()).collect();
    let varies = |axis: &str| configs.clone().map(|c| c.show(axis)).collect::<BTreeSet<_>>().len() > 1;
    Names(axes.into_iter().filter(|axis| varies(axis)).cloned().collect())
}

impl Names {
    fn of(&self, config: &Config) -> String {
        // The workload's name says how large its operations are.
        let said = |axis: &str| axis == "bs_bytes" && config.workload_with_size().is_some();
        let axes = self.0.iter().filter(|axis| !said(axis));
        let shown = axes.filter_map(|axis| config.show(axis).map(|value| format!("{axis} {value}")));
        shown.collect::<Vec<_>>().join(" ")
    }
}

type Keyed<'a> = BTreeMap<String, (Config, Turns<'a>)>;

/// Names of configurations in `here` that `there` has not.
fn missing(names: &Names, here: &Keyed<'_>, there: &Keyed<'_>) -> Option<Vec<String>> {
    let found: Vec<String> = here
        .iter()
        .filter(|(key, _)| !there.contains_key(*key))
        .map(|(_, (config, _))| names.of(config))
        .collect();
    (!found.is_empty()).then_some(found)
}

fn mixed(side: &str, found: Vec<String>) -> Refusal {
    let named: Vec<String> = found.iter().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
    let more = if found.len() > NAMES_MAX { ", …" } else { "" };
    Refusal::Mixed { side: side.to_owned(), names: named.join(", ") + more, count: found.len() }
}

/// A setting that one arm has otherwise than the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub setting: String,
    pub base: String,
    pub new: String,
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
    let of_axes = axes.iter().map(|axis| Difference {
        setting: (*axis).to_owned(),
        base: values(base, |m| m.config.show(axis)),
        new: values(new, |m| m.config.show(axis)),
    });
    let known: [(&str, Setting); 4] = [
        ("flush_mode", flush_mode),
        ("route", |m| m.result.carmine.route.clone()),
        ("cache_state", |m| m.result.carmine.cache_state.clone()),
        ("in_process", |m| Some(m.result.carmine.in_process.to_string())),
    ];
    let of_results = known.into_iter().filter(|(name, _)| !axes.contains(name)).map(|(name, of)| {
        Difference { setting: name.to_owned(), base: values(base, of), new: values(new, of) }
    });
    let (old, young) = (placed(base), placed(new));
    let of_grids = old.iter().filter_map(|(name, values)| {
        let shown = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(", ");
        Some(Difference { setting: (*name).to_owned(), base: shown(values), new: shown(young.get(name)?) })
    });
    let names: BTreeSet<&String> = base.facts.keys().chain(new.facts.keys()).collect();
    let fact = |facts: &BTreeMap<String, String>, name: &str| {
        facts.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned())
    };
    let of_facts = names.into_iter().map(|name| Difference {
        setting: name.clone(),
        base: fact(&base.facts, name),
        new: fact(&new.facts, name),
    });
    of_axes.chain(of_results).chain(of_grids).chain(of_facts).filter(|d| d.base != d.new).collect()
}

/// The properties of the grids of an arm's results; nothing of results without one, as of a peer.
fn placed(arm: &Arm) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    let grids = arm.points.iter().filter_map(|m| Grid::deserialize(&m.result.carmine.grid).ok());
    for (name, value) in grids.flat_map(|grid| aspects(&grid)) {
        all.entry(name).or_default().insert(value);
    }
    all
}

fn flush_mode(measured: &Measured) -> Option<String> {
    measured.result.carmine.flush_mode.clone()
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
        return Err(Refusal::FlushModes {
            base: base.name.clone(),
            new: new.name.clone(),
            base_mode,
            new_mode,
        });
    }
    let places = |arm: &Arm| values(arm, |m| m.result.carmine.grid.get("osds").map(ToString::to_string));
    let placed = axes.iter().eq(["balance"].iter()) && places(base) != UNKNOWN;
    if placed && places(base) == places(new) {
        return Err(Refusal::Identical { base: base.name.clone(), new: new.name.clone() });
    }
    Ok(())
}
