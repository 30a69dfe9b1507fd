//! Differences between the arms of a comparison that are not the compared axis: a result could come from them just as well.

use std::fmt;

use carmine_topology::{CpuList, Grid};
use serde::Serialize;

use super::cells::{Arm, Cell, Fitting};
use crate::compare::{Difference, between};
use crate::lists::grouped;
use crate::plan::Plan;

/// Two arms that differ in more than the compared axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confound {
    /// Value of the compared axis in the first arm, and in the other.
    pub base: String,
    pub new: String,
    pub differences: Vec<Difference>,
    /// Pairs of points that differ in the same settings; the values are those of the first.
    pub pairs: usize,
}

impl fmt::Display for Confound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences: Vec<String> = self.differences.iter().map(ToString::to_string).collect();
        let pairs = carmine_types::counted(self.pairs, "pair");
        write!(f, "CONFOUNDED: {} / {}: {} ({pairs} of points)", self.base, self.new, differences.join("; "))
    }
}

/// The parts of a grid that must be equal for two arms to differ in nothing but their axis.
pub(crate) fn aspects(grid: &Grid) -> Vec<(&'static str, String)> {
    let sockets: CpuList = grid.clients.iter().map(|slot| slot.place.socket).collect();
    let mut all = vec![
        (CLIENTS, format!("{} (socket {sockets})", grid.client_cpus())),
        (CLIENTS_SMT, part(grid.clients.iter().map(|slot| slot.smt_busy))),
        (SHARED, if grid.shared { "yes" } else { "no" }.to_owned()),
    ];
    // Reactors that are not pinned have no place.
    let mut reactors = grid.osds.iter().flat_map(|osd| &osd.reactors).map(|slot| slot.smt_busy).peekable();
    if reactors.peek().is_some() {
        all.push((REACTORS_SMT, part(reactors)));
    }
    all.extend(grid.pgs_per_reactor.map(|pgs| (PGS, format!("{pgs:.1}"))));
    all
}

/// The axis of the clients' CPUs.
pub(super) const CLIENT_AXIS: &str = "client_cpus";
const CLIENTS: &str = "client CPUs";
const CLIENTS_SMT: &str = "clients beside a busy hardware thread";
const REACTORS_SMT: &str = "reactors beside a busy hardware thread";
const SHARED: &str = "shared CPUs";
const PGS: &str = "PGs per reactor";

/// All, none, or a percentage.
fn part(busy: impl Iterator<Item = bool>) -> String {
    let busy: Vec<bool> = busy.collect();
    match busy.iter().filter(|busy| **busy).count() * 100 / busy.len().max(1) {
        0 => "none".to_owned(),
        100 => "all".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// True if the aspect differs because the axis does: then it is part of the comparison.
pub(crate) fn follows_from(axis: &str, aspect: &str) -> bool {
    match axis {
        CLIENT_AXIS => aspect == CLIENTS || aspect == CLIENTS_SMT,
        "smt" => aspect == REACTORS_SMT || aspect == CLIENTS_SMT,
        "osds" | "reactors" | "pgs" | "pool_size" | "cpus" => aspect == PGS,
        _ => false,
    }
}

/// The first arm of each cell against each of the others, equal findings once.
pub(super) fn confounds(plan: &Plan, cells: &[Cell]) -> Vec<Confound> {
    let Some(axis) = &plan.compare else { return Vec::new() };
    let name = |arm: &Arm| arm.name.clone().unwrap_or_else(|| format!("{axis}=none"));
    let arms = cells.iter().filter_map(|cell| cell.arms.split_first());
    let against = arms.flat_map(|(base, others)| others.iter().map(move |new| (base, new)));
    let differing = |(base, new): (&Arm, &Arm)| {
        let pairs = base.points.iter().filter_map(|point| Some((point, partner(plan, point, new)?)));
        let of = |(one, other)| differences(axis, plan.curve.as_deref(), one, other);
        let found = pairs.map(of).filter(|found| !found.is_empty());
        let keyed = found.map(|found| {
            let settings: Vec<String> = found.iter().map(|d| d.setting.clone()).collect();
            ((name(base), name(new), settings), found)
        });
        keyed.collect::<Vec<_>>()
    };
    let confound = |((base, new, _), mut found): (_, Vec<Vec<Difference>>)| {
        let pairs = found.len();
        Confound { base, new, differences: found.swap_remove(0), pairs }
    };
    grouped(against.flat_map(differing)).into_iter().map(confound).collect()
}

/// The point of an arm at the same place of the curve.
fn partner<'a>(plan: &Plan, point: &Fitting, arm: &'a Arm) -> Option<&'a Fitting> {
    let along = |other: &Fitting| plan.curve.as_ref().and_then(|axis| other.config.show(axis));
    arm.points.iter().find(|other| along(other) == along(point))
}

fn differences(axis: &str, curve: Option<&str>, one: &Fitting, other: &Fitting) -> Vec<Difference> {
    let show =
        |fitting: &Fitting, name: &str| fitting.config.show(name).unwrap_or_else(|| "default".to_owned());
    // Grids say which CPUs the clients have.
    let own = |name: &&&str| **name != axis && Some(**name) != curve && **name != CLIENT_AXIS;
    let names = one.config.differences(&other.config);
    let of_config = names.iter().filter(own).map(|name| (*name, show(one, name), show(other, name)));
    let (base, new) = (aspects(&one.grid), aspects(&other.grid));
    let of_grid =
        base.into_iter().filter(|(name, _)| !follows_from(axis, name)).filter_map(|(name, value)| {
            new.iter().find(|(other, _)| *other == name).map(|(_, new)| (name, value, new.clone()))
        });
    of_config.chain(of_grid).filter_map(|(name, base, new)| between(name, base, new)).collect()
}
