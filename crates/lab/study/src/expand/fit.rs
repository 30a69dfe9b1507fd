//! Which configurations fit the machine, and which of a comparison are worth comparing.

use carmine_topology::Grid;

use super::Dropped;
use super::machine::Machine;
use crate::archive::Config;
use crate::commands;
use crate::plan::Plan;

/// A configuration that can run.
#[derive(Clone, Debug)]
pub(super) struct Fitting {
    pub(super) config: Config,
    pub(super) grid: Grid,
}

/// The points of one curve, in the plan's order; one point where the plan has no curve.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// Value of the compared axis.
    pub(super) value: Option<String>,
    pub(super) points: Vec<Fitting>,
}

/// Configurations that differ only in the compared axis and along the curve.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) key: Config,
    pub(super) arms: Vec<Arm>,
}

/// Sorts configurations into cells; what can't run or be compared is dropped with a reason.
pub(super) fn cells(
    plan: &Plan,
    machine: &Machine,
    all: Vec<Result<Config, Dropped>>,
) -> (Vec<Cell>, Vec<Dropped>) {
    let mut dropped = Vec::new();
    let mut fitting: Vec<Fitting> = Vec::new();
    for config in all {
        let placed = config.and_then(|config| place(plan, machine, config));
        match placed.and_then(|new| not_identical(new, &fitting)) {
            Ok(new) => fitting.push(new),
            Err(why) => dropped.push(why),
        }
    }
    let mut cells = sorted(plan, fitting);
    if plan.compare.is_some() {
        lone(&mut cells, &mut dropped);
    }
    (cells, dropped)
}

fn place(plan: &Plan, machine: &Machine, config: Config) -> Result<Fitting, Dropped> {
    if let Some(why) = commands::refusal(&config) {
        return Err(Dropped { config, word: "can not be done", why });
    }
    match commands::start_options(&config, plan.overprovisioned, machine) {
        Ok((grid, _)) => Ok(Fitting { config, grid }),
        Err(why) => Err(Dropped { config, word: "does not fit", why }),
    }
}

/// Two strategies that give the same grid are one: whatever differed would be chance.
fn not_identical(new: Fitting, before: &[Fitting]) -> Result<Fitting, Dropped> {
    let twin = before.iter().find(|old| {
        old.config.differences(&new.config) == ["balance"] && seats(&old.grid) == seats(&new.grid)
    });
    match twin {
        None => Ok(new),
        Some(twin) => {
            let why = format!(
                "balance = {} gives the same grid as {}: there is nothing to compare",
                new.config.show("balance").unwrap_or_default(),
                twin.config.show("balance").unwrap_or_default()
            );
            Err(Dropped { config: new.config, word: "identical", why })
        }
    }
}

/// CPUs of every OSD's reactors and aliens.
fn seats(grid: &Grid) -> Vec<(Vec<usize>, Vec<usize>)> {
    let sorted = |mut cpus: Vec<usize>| {
        cpus.sort_unstable();
        cpus
    };
    grid.osds.iter().map(|osd| (sorted(osd.reactor_cpus()), sorted(osd.aliens.cpus.to_vec()))).collect()
}

fn sorted(plan: &Plan, fitting: Vec<Fitting>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for new in fitting {
        let value = plan.compare.as_ref().and_then(|axis| new.config.show(axis));
        let mut key = new.config.clone();
        for axis in plan.compare.iter().chain(&plan.curve) {
            key.0.remove(axis);
        }
        let at = cells.iter().position(|cell| cell.key == key).unwrap_or_else(|| {
            cells.push(Cell { key, arms: Vec::new() });
            cells.len() - 1
        });
        let arms = &mut cells[at].arms;
        match arms.iter_mut().find(|arm| arm.value == value) {
            Some(arm) => arm.points.push(new),
            None => arms.push(Arm { value, points: vec![new] }),
        }
    }
    cells
}

/// An arm without a partner proves nothing.
fn lone(cells: &mut Vec<Cell>, dropped: &mut Vec<Dropped>) {
    let (stay, alone): (Vec<Cell>, Vec<Cell>) = cells.drain(..).partition(|cell| cell.arms.len() > 1);
    *cells = stay;
    for point in alone.into_iter().flat_map(|cell| cell.arms).flat_map(|arm| arm.points) {
        let identical = dropped.iter().rev().find(|d| d.word == "identical").map(|d| d.why.clone());
        let (word, why) = match identical {
            Some(why) => ("identical", why),
            None => ("does not fit", "no other arm of the comparison fits beside it".to_owned()),
        };
        dropped.push(Dropped { config: point.config, word, why });
    }
}
