//! What differs between the arms beside what was measured.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Arm, Measured, Refusal};

/// A setting that one arm has otherwise than the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub setting: String,
    pub base: String,
    pub new: String,
}

/// What a result says of a setting.
type Setting = fn(&Measured) -> Option<String>;

/// What is said of a setting that stands nowhere.
const UNKNOWN: &str = "not recorded";

/// Axes of which no value is in both arms: these make them arms. (Axes along which each arm was measured have the same
/// values in both.)
pub fn differing_axes<'a>(base: &[&'a Measured], new: &[&'a Measured]) -> BTreeSet<&'a str> {
    let axes: BTreeSet<&str> =
        base.iter().chain(new).flat_map(|m| m.config.0.keys()).map(String::as_str).collect();
    let values = |points: &[&Measured], axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|m| m.config.show(axis)).collect()
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
    let names: BTreeSet<&String> = base.facts.keys().chain(new.facts.keys()).collect();
    let fact = |facts: &BTreeMap<String, String>, name: &str| {
        facts.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned())
    };
    let of_facts = names.into_iter().map(|name| Difference {
        setting: name.clone(),
        base: fact(&base.facts, name),
        new: fact(&new.facts, name),
    });
    of_axes.chain(of_results).chain(of_facts).filter(|d| d.base != d.new).collect()
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
