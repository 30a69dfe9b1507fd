//! Points with their names.

use std::collections::{BTreeMap, BTreeSet};

use super::Planned;
use super::estimate;
use super::fit::Cell;
use super::layout::layout_name;
use super::order::Unit;
use crate::archive::{Config, Point, PointKind, stem};
use crate::plan::Plan;

/// Names of the arms, in the plan's order.
pub(super) fn arms(axis: &str, cells: &[Cell]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for value in cells.iter().flat_map(|cell| &cell.arms).filter_map(|arm| arm.value.as_deref()) {
        let name = arm_name(axis, value);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn arm_name(axis: &str, value: &str) -> String {
    format!("{axis}={value}")
}

/// All points in order, the first one once more at the end.
pub(super) fn points(plan: &Plan, cells: &[Cell], units: &[Unit]) -> Vec<Planned> {
    let varying = varying(cells);
    let mut pairs = Pairs::default();
    let mut all: Vec<Planned> = Vec::new();
    for unit in units {
        let arm = &cells[unit.cell].arms[unit.arm];
        for (at, fitting) in arm.points.iter().enumerate() {
            let config = &fitting.config;
            let along = plan.curve.as_ref().and_then(|axis| config.show(axis));
            let point = Point {
                index: all.len(),
                stem: stem(config, &varying, unit.repeat, false),
                kind: PointKind::Point,
                arm: plan.compare.as_ref().zip(arm.value.as_ref()).map(|(axis, value)| arm_name(axis, value)),
                curve: plan.curve.as_ref().map(|axis| curve_name(config, &varying, axis)),
                repeat: unit.repeat,
                pair: plan.compare.as_ref().map(|_| pairs.of(unit, along)),
                layout: layout_name(config),
                config: config.clone(),
            };
            let estimate = estimate::point(plan, config, at == 0);
            all.push(Planned { point, grid: fitting.grid.clone(), estimate });
        }
    }
    distinct(&mut all);
    again(&mut all, plan, &varying);
    all
}

/// Points of different arms belong together when cell, repeat and place on the curve are the same.
#[derive(Default)]
struct Pairs(BTreeMap<(usize, u32, Option<String>), u32>);

impl Pairs {
    fn of(&mut self, unit: &Unit, along: Option<String>) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry((unit.cell, unit.repeat, along)).or_insert(next)
    }
}

/// Axes that have more than one value among the points.
fn varying(cells: &[Cell]) -> Vec<String> {
    let configs: Vec<&Config> =
        cells.iter().flat_map(|c| &c.arms).flat_map(|a| &a.points).map(|p| &p.config).collect();
    let names: BTreeSet<&String> = configs.iter().flat_map(|config| config.0.keys()).collect();
    let varies = |name: &&&String| configs.iter().any(|config| config.get(name) != configs[0].get(name));
    names.iter().filter(varies).map(|name| (*name).clone()).collect()
}

/// What varies, without the axis that runs along the curve. Repeats of a curve have the same name.
fn curve_name(config: &Config, varying: &[String], along: &str) -> String {
    let parts: Vec<String> = varying
        .iter()
        .filter(|name| *name != along)
        .filter_map(|name| Some(format!("{name}={}", config.show(name)?)))
        .collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
}

/// Two values can look the same in a file name.
fn distinct(all: &mut [Planned]) {
    let mut seen = BTreeSet::new();
    for planned in all {
        let point = &mut planned.point;
        if !seen.insert(point.stem.clone()) {
            point.stem = format!("{}_n{}", point.stem, point.index);
            seen.insert(point.stem.clone());
        }
    }
}

fn again(all: &mut Vec<Planned>, plan: &Plan, varying: &[String]) {
    let Some(first) = all.first().cloned() else { return };
    let point = Point {
        index: all.len(),
        stem: stem(&first.point.config, varying, 0, true),
        kind: PointKind::Again,
        arm: None,
        curve: None,
        pair: None,
        ..first.point
    };
    let estimate = estimate::point(plan, &point.config, true);
    all.push(Planned { point, grid: first.grid, estimate });
}
