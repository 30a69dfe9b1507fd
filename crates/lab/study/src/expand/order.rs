//! In which order configurations run.

use super::fit::Cell;
use super::layout::layout_name;
use super::machine::Machine;
use crate::plan::{Order, Plan};

/// One start of the OSDs: the points of one curve, or a single point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) cell: usize,
    pub(super) arm: usize,
    pub(super) repeat: u32,
}

/// Rounds: every cell once, its arms one after the other, then every cell again. So repeats lie far apart in time, and what
/// is compared close together. Every other round has the arms in reverse (A B … B A … A B): on a machine that drifts steadily,
/// as while it warms up, the arm that is always second would have all of the drift. Cells begin either way in turn, so that
/// the odd round is nobody's.
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
    let mut seen: Vec<String> = Vec::new();
    for unit in units.iter() {
        let name = layout(unit);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    units.sort_by_key(|unit| seen.iter().position(|name| *name == layout(unit)));
}
