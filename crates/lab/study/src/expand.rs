//! Plan → points in the order in which they run.

mod cells;
mod configs;
mod confounds;
mod points;
mod show;

use std::collections::BTreeSet;
use std::time::Duration;

use carmine_testbed::{TestbedError, refuse};
use carmine_topology::{Grid, Topology};
use serde::{Serialize, Serializer};

use crate::answer::{NoAnswer, no_answer};
use crate::archive::{Comparison, Config, Point};
use crate::commands::files_bytes;
use crate::plan::Plan;

pub use confounds::Confound;
pub(crate) use confounds::{aspects, follows_from};
pub use points::layout_name;
pub(crate) use points::start_key;
pub use show::{dry_run, fitted, show_duration, show_plan, summary};

/// The machine that a plan is to run on, or another machine for which the plan is only shown.
#[derive(Clone, Debug)]
pub struct Machine {
    pub topology: Topology,
    /// Devices that were named for the OSDs; none: files in each layout's folder. Named devices are made anew for each
    /// layout, so that layouts can't lie beside each other.
    pub devices: Vec<String>,
}

impl Machine {
    /// Drives that OSDs can have: the named ones, or those of a machine that is only described. `None`: files in one folder, or
    /// nothing is known.
    pub(crate) fn drives(&self) -> Option<usize> {
        let described = if self.topology.live { 0 } else { self.topology.drives().count() };
        let known = if self.devices.is_empty() { described } else { self.devices.len() };
        (known > 0).then_some(known)
    }
}

/// A point with what is known before it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    pub point: Point,
    /// The placement on CPUs; a peer gets those that Carmine would have.
    pub grid: Grid,
    #[serde(rename = "estimate_s", serialize_with = "seconds")]
    pub estimate: Duration,
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

/// A configuration that is not run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dropped {
    pub config: Config,
    /// `does not fit`, `can not be done`, `identical` or `excluded`.
    #[serde(rename = "reason")]
    pub word: &'static str,
    pub why: String,
}

/// All points of a plan on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Expansion {
    pub points: Vec<Planned>,
    pub dropped: Vec<Dropped>,
    pub comparison: Option<Comparison>,
    /// Differences between arms that are not the compared axis.
    pub confounds: Vec<Confound>,
    /// The part of a study's question that stays open.
    pub no_answer: Option<NoAnswer>,
    /// All points and the making of their layouts.
    #[serde(rename = "estimate_s", serialize_with = "seconds")]
    pub estimate: Duration,
    /// Block files of all layouts, bytes.
    pub disk_bytes: u64,
    /// Memory of the point that needs most: that of its OSDs, and the data that a store in memory holds.
    pub memory_bytes: u64,
}

/// Makes the points of a plan.
///
/// # Errors
/// An expression has no value, or nothing is left that could be run.
pub fn expand(plan: &Plan, machine: &Machine) -> Result<Expansion, TestbedError> {
    let all = configs::configs(plan, machine)?;
    let (cells, dropped) = cells::cells(plan, machine, all);
    let why = match dropped.as_slice() {
        [] => " it has no points".to_owned(),
        all => format!("\n{}", show::reasons(all).join("\n")),
    };
    refuse!(cells.is_empty(), "{}: no part of the plan can be run on this machine:{why}", plan.name);
    // A study whose arms do not fit beside each other compares nothing.
    let arms = Some(points::arms(&cells)).filter(|arms| arms.len() > 1);
    let comparison = plan.compare.clone().zip(arms).map(|(axis, arms)| Comparison { axis, arms });
    let points = points::points(plan, machine, &cells);
    let mut seen = BTreeSet::new();
    let layouts = points.iter().filter(|planned| seen.insert(&planned.point.layout));
    let layouts: Vec<&Config> = layouts.map(|planned| &planned.point.config).collect();
    let on_files = machine.devices.is_empty();
    Ok(Expansion {
        confounds: confounds::confounds(plan, &cells),
        no_answer: no_answer(plan, &points, machine),
        estimate: points
            .iter()
            .map(|p| p.estimate)
            .chain(layouts.iter().map(|c| points::layout_time(c)))
            .sum(),
        disk_bytes: layouts.iter().filter(|_| on_files).map(|config| files_bytes(config)).sum(),
        memory_bytes: points.iter().map(|p| points::memory_bytes(&p.point.config)).max().unwrap_or(0),
        points,
        dropped,
        comparison,
    })
}
