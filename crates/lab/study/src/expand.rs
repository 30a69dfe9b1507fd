//! Plan → points in the order in which they run.

mod cells;
mod configs;
mod machine;
mod points;

use std::fmt::Write as _;
use std::time::Duration;

use carmine_topology::Grid;

use crate::archive::{Comparison, Config, Point};
use crate::plan::{Plan, PlanError};

pub use machine::Machine;
pub(crate) use machine::cpu_list;
pub use points::layout_name;
pub(crate) use points::start_key;

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
    /// All points and the making of their layouts.
    pub estimate: Duration,
    /// Block files of all layouts, bytes.
    pub disk_bytes: u64,
}

/// Makes the points of a plan. Fails if an expression has no value, or nothing is left that could be run.
pub fn expand(plan: &Plan, machine: &Machine) -> Result<Expansion, PlanError> {
    let all = configs::configs(plan, machine)?;
    let (cells, dropped) = cells::cells(plan, machine, all);
    if cells.is_empty() {
        return Err(nothing_left(plan, &dropped));
    }
    let comparison =
        plan.compare.as_ref().map(|axis| Comparison { axis: axis.clone(), arms: points::arms(axis, &cells) });
    let units = cells::units(plan, machine, &cells);
    let points = points::points(plan, &cells, &units);
    let estimate = points::total_time(&points);
    let disk_bytes = points::disk_bytes(machine, &points);
    Ok(Expansion { points, dropped, comparison, estimate, disk_bytes })
}

fn nothing_left(plan: &Plan, dropped: &[Dropped]) -> PlanError {
    let why = match dropped {
        [] => " it has no points".to_owned(),
        all => format!("\n{}", reasons(all).trim_end()),
    };
    plan.error(format!("nothing of the plan can be run on this machine:{why}"))
}

/// A time for people.
pub fn show_duration(time: Duration) -> String {
    let s = time.as_secs_f64().round() as u64;
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", (s + 30) / 60),
        _ => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// Every point with its grid, what is left out and why, and how long it takes.
pub fn dry_run(plan: &Plan, expansion: &Expansion) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", plan.name, plan.about);
    if let Some(comparison) = &expansion.comparison {
        let _ = writeln!(text, "compares {}, side by side: {}", comparison.axis, comparison.arms.join(", "));
    }
    let mut grid: Option<&Grid> = None;
    for planned in &expansion.points {
        if grid.replace(&planned.grid) != Some(&planned.grid) {
            text.push_str(&seats(&planned.grid));
        }
        let pair = planned.point.pair.map_or_else(String::new, |pair| format!(" pair {pair}"));
        let _ = writeln!(text, "{:>5} {}{pair}", planned.point.index, planned.point.stem);
    }
    text.push_str(&reasons(&expansion.dropped));
    let layouts: std::collections::BTreeSet<&str> =
        expansion.points.iter().map(|p| p.point.layout.as_str()).collect();
    let _ = writeln!(
        text,
        "{} points, {} layouts of {} GiB together, about {}",
        expansion.points.len(),
        layouts.len(),
        expansion.disk_bytes.div_ceil(1 << 30),
        show_duration(expansion.estimate)
    );
    text
}

/// The grid on a line per OSD.
fn seats(grid: &Grid) -> String {
    let mut text = String::new();
    for osd in &grid.osds {
        let cpus: Vec<String> = osd.reactor_cpus().iter().map(ToString::to_string).collect();
        let aliens =
            if osd.aliens.own { "its reactors'".to_owned() } else { format!("CPUs {}", osd.aliens.cpus) };
        let device = osd.shared_device.map_or_else(String::new, |n| format!("; shares device {n}"));
        let _ = writeln!(
            text,
            "      osd.{} reactors on CPUs {}; aliens on {aliens}{device}",
            osd.osd,
            cpus.join(" ")
        );
    }
    let shared = if grid.shared { "; SHARED" } else { "" };
    let _ = writeln!(text, "      clients on CPUs {}{shared}", grid.client_cpus());
    text
}

/// Why configurations are not run, a line for each reason.
fn reasons(dropped: &[Dropped]) -> String {
    let line = |(dropped, count): (&Dropped, usize)| format!("{count} x {}: {}\n", dropped.word, dropped.why);
    grouped(dropped).into_iter().map(line).collect()
}

/// Equal reasons once, with how often.
fn grouped(dropped: &[Dropped]) -> Vec<(&Dropped, usize)> {
    let mut groups: Vec<(&Dropped, usize)> = Vec::new();
    for one in dropped {
        match groups.iter_mut().find(|(old, _)| old.word == one.word && old.why == one.why) {
            Some((_, count)) => *count += 1,
            None => groups.push((one, 1)),
        }
    }
    groups
}
