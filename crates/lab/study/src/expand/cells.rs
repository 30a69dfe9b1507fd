//! Decides which configurations fit the machine, which of a comparison are worth comparing, and in which order they run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use carmine_topology::{CpuList, Grid};

use super::configs::{Tried, computed_of};
use super::confounds::CLIENT_AXIS;
use super::points::layout_name;
use super::{Dropped, Machine};
use crate::archive::Config;
use crate::commands;
use crate::lists::{distinct, grouped};
use crate::plan::{Order, Plan};

/// A configuration that can run.
#[derive(Clone, Debug)]
pub(super) struct Fitting {
    pub(super) config: Config,
    pub(super) grid: Grid,
}

/// The points of one curve, in the plan's order; one point where the plan has no curve.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// The compared axis with its value.
    pub(super) name: Option<String>,
    pub(super) points: Vec<Fitting>,
}

/// Configurations that differ only in the compared axis and along the curve.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) key: Config,
    pub(super) arms: Vec<Arm>,
}

impl Cell {
    fn points_mut(&mut self) -> impl Iterator<Item = &mut Fitting> {
        self.arms.iter_mut().flat_map(|arm| &mut arm.points)
    }
}

/// Without a comparison no point takes more than half of the clients' CPUs from the others.
const LEAST_CLIENTS: f64 = 0.5;

/// Sorts configurations into cells; what can't run or be compared is dropped with a reason.
pub(super) fn cells(plan: &Plan, machine: &Machine, all: Vec<Tried>) -> (Vec<Cell>, Vec<Dropped>) {
    let mut dropped = Vec::new();
    let mut fitting: Vec<Fitting> = Vec::new();
    for config in all {
        let placed = config.and_then(|config| place(plan, machine, config));
        match placed.and_then(|new| not_identical(machine, new, &fitting)) {
            Ok(new) => fitting.push(new),
            Err(why) => dropped.push(why),
        }
    }
    let within = within(plan);
    let mut cells = sorted(plan, &within, fitting);
    if plan.compare.is_some() {
        // The rest of a study answers other questions.
        if plan.study.is_none() {
            lone(&within, &mut cells, &mut dropped);
        }
        for cell in &mut cells {
            same_clients(plan, machine, cell.points_mut().collect(), 0.0);
        }
    } else {
        same_clients(plan, machine, cells.iter_mut().flat_map(Cell::points_mut).collect(), LEAST_CLIENTS);
    }
    (cells, dropped)
}

/// Gives points that are compared the same CPUs for their clients: the largest number, at least the part `least` of the most that any
/// has, with which each of them fits. If there is none they keep their own, and the summary says so.
fn same_clients(plan: &Plan, machine: &Machine, mut points: Vec<&mut Fitting>, least: f64) {
    let mut lists: Vec<CpuList> = points.iter().map(|point| point.grid.client_cpus()).collect();
    lists.sort_by_key(|list| (Reverse(list.len()), list.to_string()));
    lists.dedup();
    let most = lists.first().map_or(0, CpuList::len) as f64;
    if lists.len() < 2 || plan.has_axis(CLIENT_AXIS) {
        return;
    }
    let with = |list: &CpuList| -> Option<Vec<Fitting>> {
        let moved = |point: &&mut Fitting| {
            let mut config = point.config.clone();
            config.set(CLIENT_AXIS, list.to_string());
            place(plan, machine, config).ok()
        };
        points.iter().map(moved).collect()
    };
    let Some(moved) = lists.iter().filter(|list| list.len() as f64 >= least * most).find_map(with) else {
        return;
    };
    points.iter_mut().zip(moved).for_each(|(point, moved)| **point = moved);
}

fn place(plan: &Plan, machine: &Machine, config: Config) -> Result<Fitting, Dropped> {
    if let Some(why) = commands::refusal(&config) {
        return Err(Dropped { config, word: "can not be done", why });
    }
    match commands::start_options(&config, plan, machine) {
        Ok((grid, _)) => {
            let grid = if commands::is_inside(&config) { grid.without_clients() } else { grid };
            Ok(Fitting { config, grid })
        }
        Err(why) => Err(Dropped { config, word: "does not fit", why }),
    }
}

/// Axes that do nothing but choose CPUs.
const PLACES: [&str; 2] = ["balance", "smt"];

/// Two configurations that put everything on the same CPUs are one: any difference would be chance.
fn not_identical(machine: &Machine, new: Fitting, before: &[Fitting]) -> Result<Fitting, Dropped> {
    let taken = seats(machine, &new.grid);
    let twin = before.iter().find_map(|old| match old.config.differences(&new.config).as_slice() {
        [axis] if PLACES.contains(axis) && seats(machine, &old.grid) == taken => {
            let value = |config: &Config| config.show(axis).unwrap_or_else(|| "none".to_owned());
            Some(((*axis).to_owned(), value(&old.config), value(&new.config)))
        }
        _ => None,
    });
    let Some((axis, old, this)) = twin else { return Ok(new) };
    let why = format!(
        "{axis}={this} gives the same grid as {axis}={old} but for the OSDs' numbers; leave {this} out, or take other numbers \
         of OSDs and reactors"
    );
    Err(Dropped { config: new.config, word: "identical", why })
}

/// CPUs of an OSD's reactors and of its aliens.
type Seat = (Vec<usize>, Vec<usize>);

/// CPUs of the OSDs of every drive, and of the clients. The OSDs' numbers don't matter, unless they say which of the named
/// devices is whose: a device is nearer to some CPUs than to others.
fn seats(machine: &Machine, grid: &Grid) -> (Vec<Vec<Seat>>, Vec<usize>) {
    let sorted = |mut cpus: Vec<usize>| {
        cpus.sort_unstable();
        cpus
    };
    let mut drives: BTreeMap<(bool, usize), Vec<Seat>> = BTreeMap::new();
    for osd in &grid.osds {
        let drive = osd.shared_device.map_or((false, osd.osd), |device| (true, device));
        let seat = (sorted(osd.reactor_cpus()), sorted(osd.aliens.cpus.to_vec()));
        drives.entry(drive).or_default().push(seat);
    }
    let mut drives: Vec<Vec<Seat>> = drives.into_values().collect();
    drives.iter_mut().for_each(|seats| seats.sort_unstable());
    if machine.devices.is_empty() {
        drives.sort_unstable();
    }
    (drives, sorted(grid.client_cpus().to_vec()))
}

/// Axes that tell the points of a cell apart: the compared axis, axes computed from it (these are confounds, then), the curve.
fn within(plan: &Plan) -> BTreeSet<String> {
    let computed = plan.compare.iter().flat_map(|axis| computed_of(plan, axis));
    plan.compare.iter().chain(&plan.curve).cloned().chain(computed).collect()
}

fn sorted(plan: &Plan, within: &BTreeSet<String>, fitting: Vec<Fitting>) -> Vec<Cell> {
    let key = |new: &Fitting| new.config.only(|axis| !within.contains(axis));
    let name = |new: &Fitting| {
        plan.compare.as_ref().and_then(|axis| Some(format!("{axis}={}", new.config.show(axis)?)))
    };
    let arms = |points: Vec<Fitting>| grouped(points.into_iter().map(|new| (name(&new), new)));
    let arm = |(name, points)| Arm { name, points };
    let cells = grouped(fitting.into_iter().map(|new| (key(&new), new))).into_iter();
    cells.map(|(key, points)| Cell { key, arms: arms(points).into_iter().map(arm).collect() }).collect()
}

/// An arm without a partner proves nothing.
fn lone(within: &BTreeSet<String>, cells: &mut Vec<Cell>, dropped: &mut Vec<Dropped>) {
    let (stay, alone): (Vec<Cell>, Vec<Cell>) = cells.drain(..).partition(|cell| cell.arms.len() > 1);
    *cells = stay;
    for Cell { key, arms } in alone {
        let of_cell =
            |d: &&Dropped| d.word == "identical" && d.config.only(|axis| !within.contains(axis)) == key;
        let (word, why) = match dropped.iter().rev().find(of_cell) {
            Some(twin) => (twin.word, twin.why.clone()),
            None => ("does not fit", "no other arm of the comparison fits beside it".to_owned()),
        };
        let points = arms.into_iter().flat_map(|arm| arm.points);
        dropped.extend(points.map(|Fitting { config, .. }| Dropped { config, word, why: why.clone() }));
    }
}

/// One start of the OSDs: the points of one curve, or a single point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) cell: usize,
    pub(super) arm: usize,
    pub(super) repeat: u32,
}

/// Rounds: every cell once, its arms one after the other, then every cell again. So repeats lie far apart in time, and the arms
/// of a comparison close together. Every other round has the arms in reverse (A B … B A … A B): on a machine that drifts steadily,
/// such as while it warms up, an arm that was always second would have all of the drift. Cells begin either way in turn, so that
/// an odd number of rounds favours neither arm.
pub(super) fn units(plan: &Plan, machine: &Machine, cells: &[Cell]) -> Vec<Unit> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut units = Vec::new();
    for repeat in 0..plan.repeats {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        if plan.order == Order::Shuffled {
            random.shuffle(&mut order);
        }
        for cell in order {
            let mut arms: Vec<usize> = (0..cells[cell].arms.len()).collect();
            if (cell + repeat as usize) % 2 == 1 {
                arms.reverse();
            }
            units.extend(arms.into_iter().map(|arm| Unit { cell, arm, repeat }));
        }
    }
    if !machine.devices.is_empty() {
        by_layout(cells, &mut units);
    }
    units
}

/// Named devices hold one layout at a time: all of its points run before the next is made.
fn by_layout(cells: &[Cell], units: &mut [Unit]) {
    let layout = |unit: &Unit| {
        let arm = &cells[unit.cell].arms[unit.arm];
        arm.points.first().map_or_else(String::new, |point| layout_name(&point.config))
    };
    let layouts = distinct(units.iter().map(layout));
    units.sort_by_key(|unit| layouts.iter().position(|name| *name == layout(unit)));
}
