//! Points with their names, their layouts, and how long they will take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cells::{Cell, Unit, units};
use super::{Machine, Planned};
use crate::archive::{Config, Point, PointKind, stem, stem_word};
use crate::commands::{files_bytes, is_durable, is_peer, size_bytes};
use crate::lists::distinct as each_once;
use crate::plan::{Plan, Role, axis};

/// Names of the arms, in the plan's order.
pub(super) fn arms(cells: &[Cell]) -> Vec<String> {
    each_once(cells.iter().flat_map(|cell| &cell.arms).filter_map(|arm| arm.name.clone()))
}

/// The first point is run again at least this often (in planned time), so that a drift is found while time can still be saved.
const AGAIN_EVERY: Duration = Duration::from_secs(30 * 60);

/// All points in order, and between them and at the end the first one again.
pub(super) fn points(plan: &Plan, machine: &Machine, cells: &[Cell]) -> Vec<Planned> {
    let varying = varying(cells);
    // Points of different arms belong together when cell, repeat and place on the curve are the same.
    let mut pairs: BTreeMap<(usize, u32, Option<String>), u32> = BTreeMap::new();
    let mut all: Vec<Planned> = Vec::new();
    let mut since_first = Duration::ZERO;
    let mut before: Option<Unit> = None;
    for unit in units(plan, machine, cells) {
        let arm = &cells[unit.cell].arms[unit.arm];
        // Arms of a cell stay side by side.
        let is_break =
            before.replace(unit).is_some_and(|old| (old.cell, old.repeat) != (unit.cell, unit.repeat));
        if is_break && since_first >= AGAIN_EVERY && may_be_again(machine, &all) {
            again(&mut all, plan, &varying);
            since_first = Duration::ZERO;
        }
        for (at, fitting) in arm.points.iter().enumerate() {
            let config = &fitting.config;
            let along = plan.curve.as_ref().and_then(|axis| config.show(axis));
            let next = pairs.len() as u32;
            let pair = *pairs.entry((unit.cell, unit.repeat, along)).or_insert(next);
            let point = Point {
                index: all.len(),
                stem: stem(config, &varying, unit.repeat),
                kind: PointKind::Point,
                arm: arm.name.clone(),
                curve: plan.curve.as_ref().map(|axis| curve_name(config, &varying, axis)),
                repeat: unit.repeat,
                pair: plan.compare.as_ref().map(|_| pair),
                layout: layout_name(config),
                config: config.clone(),
            };
            let estimate = point_time(plan, config, at == 0);
            since_first += estimate;
            all.push(Planned { point, grid: fitting.grid.clone(), estimate });
        }
    }
    distinct(&mut all);
    again(&mut all, plan, &varying);
    all
}

/// Named devices hold one layout: that of the first point would have to be made again.
fn may_be_again(machine: &Machine, all: &[Planned]) -> bool {
    let layout = |planned: Option<&Planned>| planned.map(|planned| planned.point.layout.clone());
    machine.devices.is_empty() || layout(all.first()) == layout(all.last())
}

/// Axes that have more than one value among the points.
fn varying(cells: &[Cell]) -> Vec<String> {
    let mut configs = cells.iter().flat_map(|c| &c.arms).flat_map(|a| &a.points).map(|p| &p.config);
    let Some(first) = configs.next() else { return Vec::new() };
    let varying: BTreeSet<&str> = configs.flat_map(|config| first.differences(config)).collect();
    varying.into_iter().map(str::to_owned).collect()
}

/// The axes that vary, without the one that runs along the curve. Repeats of a curve have the same name.
fn curve_name(config: &Config, varying: &[String], along: &str) -> String {
    let others = varying.iter().filter(|name| *name != along);
    let parts: Vec<String> =
        others.filter_map(|name| Some(format!("{name}={}", config.show(name)?))).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
}

/// Two values can look the same in a file name.
fn distinct(all: &mut [Planned]) {
    let mut seen = BTreeSet::new();
    for Planned { point, .. } in all {
        if !seen.insert(point.stem.clone()) {
            point.stem += &format!("_n{}", point.index);
            seen.insert(point.stem.clone());
        }
    }
}

fn again(all: &mut Vec<Planned>, plan: &Plan, varying: &[String]) {
    let Some(first) = all.first().cloned() else { return };
    let times = all.iter().filter(|planned| planned.point.kind == PointKind::Again).count();
    let number = if times > 0 { (times + 1).to_string() } else { String::new() };
    let stem = stem(&first.point.config, varying, 0);
    let point = Point {
        index: all.len(),
        stem: format!("{stem}_again{number}"),
        kind: PointKind::Again,
        arm: None,
        curve: None,
        pair: None,
        ..first.point
    };
    let estimate = point_time(plan, &point.config, true);
    all.push(Planned { point, grid: first.grid, estimate });
}

/// The folder that a configuration uses: every axis that needs another one is in its name.
pub fn layout_name(config: &Config) -> String {
    let show = |name: &str| stem_word(&config.show(name).unwrap_or_default());
    let mut text = format!("{}_{}osd_size{}", show("store"), show("osds"), show("pool_size"));
    for (name, value) in &config.0 {
        let head = matches!(name.as_str(), "store" | "osds" | "pool_size");
        let word = config.show(name).unwrap_or_default();
        // Settings of a peer make no other folder of Carmine's own.
        let of_peer = name == "peer_build" || name.starts_with("peer_opt.");
        let plain = name == "peer" && value == "none" || of_peer && !is_peer(config);
        if !head && !plain && axis(name).is_some_and(|axis| axis.role == Role::Layout) {
            text.push_str(&format!("_{}{}", stem_word(name), stem_word(&word)));
        }
    }
    text
}

/// The part of a configuration for which the OSDs are started anew: everything but the load and labels.
pub(crate) fn start_key(config: &Config) -> Config {
    config.only(|name| axis(name).is_some_and(|axis| matches!(axis.role, Role::Layout | Role::Start)))
}

/// Bytes per second that a drive takes while layouts are made.
const FILL_BYTES_PER_S: f64 = 300e6;
/// The same of random writes of 64K.
const AGE_BYTES_PER_S: f64 = 100e6;
/// Stop and start of the processes.
const RESTART_S: f64 = 3.0;
/// Connecting, finding the objects, writing the result.
const AROUND_LOAD_S: f64 = 1.5;
/// The memory that `carmine up` gives an OSD by default.
const OSD_MEMORY_BYTES: u64 = 1 << 30;
/// Both baselines, for every new load.
const BASELINE_S: f64 = 6.0;

fn point_time(plan: &Plan, config: &Config, restart: bool) -> Duration {
    let window = config.float("seconds").unwrap_or_default() + plan.ramp.as_secs_f64();
    let start = if restart { RESTART_S + BASELINE_S + plan.pause.as_secs_f64() } else { 0.0 };
    Duration::from_secs_f64(window + AROUND_LOAD_S + start)
}

/// Memory of a point's OSDs; the data of a store in memory comes on top of the memory that an OSD is given.
pub(super) fn memory_bytes(config: &Config) -> u64 {
    let osds = config.number("osds").unwrap_or(1);
    let held = if config.text("store") == Some("cyan") && !is_peer(config) { size_bytes(config) } else { 0 };
    let each = config.number("osd_memory_bytes").unwrap_or(OSD_MEMORY_BYTES)
        + config.number("data_cache_bytes").unwrap_or(0);
    osds * each + held * config.number("pool_size").unwrap_or(1)
}

/// The time in which a layout is made.
pub(super) fn layout_time(config: &Config) -> Duration {
    if !is_durable(config) {
        return Duration::from_secs_f64(RESTART_S);
    }
    let device = files_bytes(config);
    let data = size_bytes(config) * config.number("pool_size").unwrap_or(1);
    let filled = device * config.number("fill").unwrap_or(0) / 100;
    let aged_s = data.max(filled) as f64 * config.float("age").unwrap_or(0.0) / AGE_BYTES_PER_S;
    let filled_s = (device + data + filled) as f64 / FILL_BYTES_PER_S;
    Duration::from_secs_f64(2.0 * RESTART_S + aged_s + filled_s)
}
