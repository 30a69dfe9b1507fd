//! Plan → points in the order in which they run.

mod configs;
mod estimate;
mod fit;
mod layout;
mod machine;
mod order;
mod points;
mod show;
mod smt;

use std::time::Duration;

use carmine_topology::Grid;

use crate::archive::{Comparison, Config, Point};
use crate::plan::{Plan, PlanError};

pub use layout::layout_name;
pub(crate) use layout::start_key;
pub use machine::Machine;
pub use show::{dry_run, show_duration};
pub(crate) use smt::cpu_list;

/// A point with what is known before it runs.
#[derive(Clone, Debug)]
pub struct Planned {
    pub point: Point,
    /// Who sits where; a peer has the CPUs that Carmine would have.
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
    /// All points and the making of their layouts.
    pub estimate: Duration,
    /// Block files of all layouts, bytes.
    pub disk_bytes: u64,
}

/// Makes the points of a plan. Fails if an expression has no value, or nothing is left that could be run.
pub fn expand(plan: &Plan, machine: &Machine) -> Result<Expansion, PlanError> {
    let all = configs::configs(plan, machine)?;
    let (cells, dropped) = fit::cells(plan, machine, all);
    if cells.is_empty() {
        return Err(nothing_left(plan, &dropped));
    }
    let comparison =
        plan.compare.as_ref().map(|axis| Comparison { axis: axis.clone(), arms: points::arms(axis, &cells) });
    let units = order::units(plan, machine, &cells);
    let points = points::points(plan, &cells, &units);
    let estimate = estimate::total(&points);
    let disk_bytes = estimate::disk_bytes(machine, &points);
    Ok(Expansion { points, dropped, comparison, estimate, disk_bytes })
}

fn nothing_left(plan: &Plan, dropped: &[Dropped]) -> PlanError {
    let why = match dropped {
        [] => " it has no points".to_owned(),
        all => format!("\n{}", show::reasons(all).trim_end()),
    };
    let what = format!("nothing of the plan can be run on this machine:{why}");
    PlanError { file: plan.name.clone(), line: 0, what }
}
