//! Plan → points in the order in which they run.

mod cells;
mod configs;
mod confounds;
mod machine;
mod points;
mod show;

use std::time::Duration;

use carmine_topology::Grid;

use crate::archive::{Comparison, Config, Point};
use crate::plan::{Plan, PlanError};

pub use confounds::Confound;
pub(crate) use confounds::{aspects, follows_from};
pub use machine::Machine;
pub(crate) use machine::cpu_list;
pub use points::layout_name;
pub(crate) use points::start_key;
pub use show::{dry_run, fitted, show_duration, show_plan, summary};

/// A point with what is known before it runs.
#[derive(Clone, Debug)]
pub struct Planned {
    pub point: Point,
    /// The placement on CPUs; a peer gets those that Carmine would have.
    pub grid: Grid,
    pub estimate: Duration,
}

/// A configuration that is not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    pub config: Config,
    /// `does not fit`, `can not be done`, `identical` or `excluded`.
    pub word: &'static str,
    pub why: String,
}

/// All points of a plan on a machine.
#[derive(Clone, Debug)]
pub struct Expansion {
    pub points: Vec<Planned>,
    pub dropped: Vec<Dropped>,
    pub comparison: Option<Comparison>,
    /// Differences between arms that are not the compared axis.
    pub confounds: Vec<Confound>,
    /// All points and the making of their layouts.
    pub estimate: Duration,
    /// Block files of all layouts, bytes.
    pub disk_bytes: u64,
    /// Memory of the point that needs most of it: its OSDs', and the data that a store in memory holds.
    pub memory_bytes: u64,
}

/// Makes the points of a plan. Fails if an expression has no value, or nothing is left that could be run.
pub fn expand(plan: &Plan, machine: &Machine) -> Result<Expansion, PlanError> {
    let all = configs::configs(plan, machine)?;
    let (cells, dropped) = cells::cells(plan, machine, all);
    if cells.is_empty() {
        let why = match dropped.as_slice() {
            [] => " it has no points".to_owned(),
            all => format!("\n{}", show::reasons(all).join("\n")),
        };
        return Err(plan.error(format!("nothing of the plan can be run on this machine:{why}")));
    }
    let arms = plan.compare.as_ref().map(|axis| (axis, points::arms(axis, &cells)));
    let comparison = arms
        // A study whose arms do not fit beside each other compares nothing.
        .filter(|(_, arms)| arms.len() > 1)
        .map(|(axis, arms)| Comparison { axis: axis.clone(), arms });
    let points = points::points(plan, machine, &cells);
    Ok(Expansion {
        confounds: confounds::confounds(plan, &cells),
        estimate: points::total_time(&points),
        disk_bytes: points::disk_bytes(machine, &points),
        memory_bytes: points.iter().map(|p| points::memory_bytes(&p.point.config)).max().unwrap_or(0),
        points,
        dropped,
        comparison,
    })
}
