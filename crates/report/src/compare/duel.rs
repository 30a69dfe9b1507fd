//! Who is compared with whom.

use std::collections::{BTreeMap, BTreeSet};

use carmine_study::archive::Config;

use crate::data::{Measured, PANEL_AXES, RunData};
use crate::figures::View;

/// Points of both arms that belong together.
type Pairs<'a> = Vec<(&'a Measured, &'a Measured)>;

/// Two arms with the same load.
pub(super) struct Duel<'a> {
    pub(super) base: String,
    pub(super) new: String,
    /// Workload: what is never mixed in a chart.
    pub(super) panel: String,
    /// What else both have in common, of what varies in the report.
    pub(super) name: String,
    pub(super) pairs: Pairs<'a>,
    /// Axes on which they differ.
    pub(super) differ: BTreeSet<String>,
}

impl<'a> Duel<'a> {
    fn of(
        view: &View<'a>,
        names: (&str, &str),
        pairs: Pairs<'a>,
        differ: &BTreeSet<String>,
    ) -> Option<Duel<'a>> {
        let first = pairs.first()?.0;
        let config = &first.point.config;
        let without: Vec<&str> = differ.iter().map(String::as_str).chain(PANEL_AXES).collect();
        Some(Duel {
            base: names.0.to_owned(),
            new: names.1.to_owned(),
            panel: view.panel_title(config, first.result.as_ref()),
            name: view.axes.name(config, &without),
            pairs,
            differ: differ.clone(),
        })
    }

    /// Words such as SHARED that any of its points has.
    pub(super) fn words(&self) -> String {
        let words: BTreeSet<&str> =
            self.pairs.iter().flat_map(|(a, b)| a.words.iter().chain(&b.words)).map(String::as_str).collect();
        words.into_iter().collect::<Vec<_>>().join(" ")
    }
}

fn in_order<'a>(duels: impl Iterator<Item = Duel<'a>>) -> Vec<Duel<'a>> {
    let mut duels: Vec<Duel> = duels.collect();
    duels.sort_by_key(|d| d.pairs.iter().map(|(old, _)| old.point.index).min());
    duels
}

/// Who is compared with whom, in the order of running.
pub(super) fn duels<'a>(view: &View<'a>) -> Vec<Duel<'a>> {
    if view.runs.len() > 1 {
        let Some((base, others)) = view.runs.split_first() else { return Vec::new() };
        return others.iter().flat_map(|new| between_runs(view, base, new)).collect();
    }
    view.runs.iter().flat_map(|run| between_arms(view, run)).collect()
}

fn between_runs<'a>(view: &View<'a>, base: &'a RunData, new: &'a RunData) -> Vec<Duel<'a>> {
    let keyed = |run: &'a RunData| -> BTreeMap<(String, u32), &'a Measured> {
        let key = |m: &Measured| (key_without(&m.point.config, &BTreeSet::new()), m.point.repeat);
        run.points.iter().filter(|m| m.is_planned() && m.result.is_some()).map(|m| (key(m), m)).collect()
    };
    let (left, right) = (keyed(base), keyed(new));
    let mut by_config: BTreeMap<&str, Pairs<'a>> = BTreeMap::new();
    for (key, old) in &left {
        if let Some(found) = right.get(key) {
            by_config.entry(&key.0).or_default().push((old, found));
        }
    }
    let names = (base.label.as_str(), new.label.as_str());
    in_order(by_config.into_values().filter_map(|pairs| Duel::of(view, names, pairs, &BTreeSet::new())))
}

fn between_arms<'a>(view: &View<'a>, run: &'a RunData) -> Vec<Duel<'a>> {
    let Some(comparison) = &run.file().comparison else { return Vec::new() };
    let Some((base, others)) = comparison.arms.split_first() else { return Vec::new() };
    let of_arm = |arm: &str| -> Vec<&'a Measured> {
        run.points
            .iter()
            .filter(|m| m.is_planned() && m.result.is_some() && m.point.arm.as_deref() == Some(arm))
            .collect()
    };
    let left = of_arm(base);
    let mut duels = Vec::new();
    for arm in others {
        let right = of_arm(arm);
        let differ = arm_axes(&left, &right, &comparison.axis);
        let turn =
            |m: &Measured| (key_without(&m.point.config, &differ), m.point.pair.unwrap_or(m.point.repeat));
        let right: BTreeMap<_, &Measured> = right.iter().map(|m| (turn(m), *m)).collect();
        let mut groups: BTreeMap<String, Pairs<'a>> = BTreeMap::new();
        for old in &left {
            let key = turn(old);
            if let Some(new) = right.get(&key) {
                groups.entry(key.0).or_default().push((old, new));
            }
        }
        let of = |pairs| Duel::of(view, (base, arm), pairs, &differ);
        duels.extend(in_order(groups.into_values().filter_map(of)));
    }
    duels
}

/// Axes that have one value in all of an arm and another in the other arm: what makes them arms.
fn arm_axes(left: &[&Measured], right: &[&Measured], named: &str) -> BTreeSet<String> {
    let values = |points: &[&Measured], axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|m| m.point.config.show(axis)).collect()
    };
    let all: BTreeSet<&String> = left.iter().chain(right).flat_map(|m| m.point.config.0.keys()).collect();
    let differs = |axis: &&&String| values(left, axis).is_disjoint(&values(right, axis));
    all.iter().filter(differs).map(|a| (*a).clone()).chain([named.to_owned()]).collect()
}

fn key_without(config: &Config, without: &BTreeSet<String>) -> String {
    let kept: BTreeMap<_, _> = config.0.iter().filter(|(axis, _)| !without.contains(*axis)).collect();
    serde_json::to_string(&kept).unwrap_or_default()
}
