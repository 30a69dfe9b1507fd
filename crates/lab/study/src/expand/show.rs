//! The points of a plan on a machine, in words: a summary of one screen, then every point with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carmine_topology::{CpuList, Grid, OsdRow};
use carmine_types::counted;

use super::{Dropped, Expansion};
use crate::answer::NoAnswer;
use crate::archive::PointKind;
use crate::lists::{grouped, tally};
use crate::plan::{AxisValue, Plan};

/// More reasons, confounds or values than a screen has room for.
const LINES_MAX: usize = 8;
const VALUES_MAX: usize = 12;

/// A time for people.
pub fn show_duration(time: Duration) -> String {
    let s = time.as_secs_f64().round() as u64;
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", (s + 30) / 60),
        _ => format!("{:.1} h", s as f64 / 3600.0),
    }
}

/// One screen: points, arms, time, space, what is left out and why, and unwanted differences between arms.
pub fn summary(plan: &Plan, expansion: &Expansion) -> String {
    let mut text = format!("{}: {}\n", plan.name, plan.about);
    let mut put = |word: &str, what: String| text += &format!("{word:<11} {what}\n");
    if let Some(number) = plan.study {
        put("study", format!("{number}: {}", plan.question));
    }
    if let Some(comparison) = &expansion.comparison {
        put("compares", format!("{}, side by side", comparison.arms.join(", ")));
    } else if let Some(axis) = &plan.compare {
        put("compares", format!("nothing: one value of {axis} is left"));
    }
    for (axis, values) in values(expansion).into_iter().filter(|(_, values)| values.len() > 1) {
        let (shown, all) = (values.len().min(VALUES_MAX), values.len());
        let more = if shown < all { format!(" … ({all} values)") } else { String::new() };
        put("varies", format!("{axis}: {}{more}", values[..shown].join(" ")));
    }
    if let Some(NoAnswer { whole, why }) = &expansion.no_answer {
        let word = if *whole { "no answer" } else { "open" };
        capped(why, |line| put(word, line));
    }
    plan.thinned.iter().for_each(|thinned| put("quick", thinned.clone()));
    let again = expansion.points.iter().filter(|p| p.point.kind == PointKind::Again).count();
    let all = counted(expansion.points.len(), "point");
    let repeats = counted(plan.repeats as usize, "repeat");
    put("points", format!("{all} ({repeats}; the first point {again} x again, for the drift)"));
    put("takes", expansion.takes());
    let mut clients: Vec<CpuList> = expansion.points.iter().map(|p| p.grid.client_cpus()).collect();
    clients.dedup();
    let clients = match clients.as_slice() {
        [none] if none.is_empty() => "none: the load runs inside the OSDs".to_owned(),
        [same] => format!("on {} in all points", cpus(same)),
        _ => {
            "on different CPUs, as the points below show; set client_cpus to give all points the same".into()
        }
    };
    put("clients", clients);
    capped(&reasons(&expansion.dropped), |line| put("left out", line));
    let confounds: Vec<String> = expansion.confounds.iter().map(ToString::to_string).collect();
    capped(&confounds, |line| put("arms", line));
    if expansion.comparison.is_some() && confounds.is_empty() {
        put("arms", "differ in nothing but what is compared".to_owned());
    }
    text
}

impl Expansion {
    /// Points, time and space in a line.
    pub fn takes(&self) -> String {
        let layouts: BTreeSet<&str> = self.points.iter().map(|p| p.point.layout.as_str()).collect();
        format!(
            "about {}, {} on the drive ({}), {} of memory",
            show_duration(self.estimate),
            gib(self.disk_bytes),
            counted(layouts.len(), "layout"),
            gib(self.memory_bytes)
        )
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn capped(lines: &[String], mut put: impl FnMut(String)) {
    lines.iter().take(LINES_MAX).for_each(|line| put(line.clone()));
    if lines.len() > LINES_MAX {
        put(format!("and {} more reasons (--dry-run --json has all)", lines.len() - LINES_MAX));
    }
}

/// The values of all axes among the points, in the order in which numbers and words are sorted.
fn values(expansion: &Expansion) -> BTreeMap<&str, Vec<String>> {
    let mut all: BTreeMap<&str, BTreeSet<(u64, String)>> = BTreeMap::new();
    for config in expansion.points.iter().map(|planned| &planned.point.config) {
        for axis in config.0.keys() {
            let key = config.float(axis).map_or(u64::MAX, f64::to_bits);
            all.entry(axis).or_default().insert((key, config.show(axis).unwrap_or_default()));
        }
    }
    let words = |values: BTreeSet<(u64, String)>| values.into_iter().map(|(_, value)| value).collect();
    all.into_iter().map(|(axis, values)| (axis, words(values))).collect()
}

/// The summary, then every point with its grid: in full where it is first used, and by the number of that point after that.
pub fn dry_run(plan: &Plan, expansion: &Expansion) -> String {
    let mut text = summary(plan, expansion);
    text.push('\n');
    let mut before: Vec<(String, usize)> = Vec::new();
    let mut clients = CpuList::default();
    for planned in &expansion.points {
        let point = &planned.point;
        let pair = point.pair.map_or_else(String::new, |pair| format!(" pair {pair}"));
        let seats = seats(&planned.grid);
        let place = match before.iter().find(|(known, _)| *known == seats) {
            Some((_, index)) => format!(", placed as {index}"),
            None => format!("\n{seats}"),
        };
        text += &format!("{:>5} {}{pair}{}\n", point.index, point.stem, place.trim_end());
        let now = planned.grid.client_cpus();
        if now != clients {
            text += &format!("      clients on {}\n", cpus(&now));
            clients = now;
        }
        before.push((seats, point.index));
    }
    text
}

/// A list with its noun.
fn cpus(list: &CpuList) -> String {
    format!("CPU{} {list}", if list.len() == 1 { "" } else { "s" })
}

/// The OSDs of a grid, a line for those of equal shape.
fn seats(grid: &Grid) -> String {
    let mut text = String::new();
    for (shape, osds) in grouped(grid.osds.iter().map(|osd| (shape(grid, osd), osd))) {
        let numbers: CpuList = osds.iter().map(|osd| osd.osd).collect();
        let list: CpuList = osds.iter().flat_map(|osd| osd.reactor_cpus()).collect();
        let on = if list.is_empty() { String::new() } else { format!(" on {}", cpus(&list)) };
        text += &format!("      osd.{numbers}: {shape}{on}\n");
    }
    if grid.shared {
        text.push_str("      CPUs are SHARED\n");
    }
    text
}

/// The properties that OSDs must share to be shown together.
fn shape(grid: &Grid, osd: &OsdRow) -> String {
    let sockets = |osds: &[&OsdRow]| -> CpuList {
        osds.iter().flat_map(|osd| &osd.reactors).map(|slot| slot.place.socket).collect()
    };
    let everywhere = sockets(&grid.osds.iter().collect::<Vec<_>>());
    let busy = osd.reactors.iter().filter(|slot| slot.smt_busy).count();
    let parts = [
        Some(counted(osd.reactor_count(), "reactor")),
        osd.floating.as_ref().map(|floating| format!("not pinned, on {}", cpus(&floating.cpus))),
        (everywhere.len() > 1).then(|| format!("socket {}", sockets(&[osd]))),
        (busy > 0).then(|| format!("{busy} beside a busy hardware thread")),
        (!osd.aliens.own).then(|| format!("{} for aliens", counted(osd.aliens.cpus.len(), "CPU"))),
        osd.shared_device.map(|_| "device shared".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The reasons why configurations are not run, each once, with its count.
pub(super) fn reasons(dropped: &[Dropped]) -> Vec<String> {
    let groups = tally(dropped.iter().map(|one| (one.word, &one.why)));
    groups.iter().map(|((word, why), times)| format!("{times} x {word}: {why}")).collect()
}

/// The plan's text with the values that its expressions have on this machine behind them.
pub fn fitted(plan: &Plan, expansion: &Expansion) -> String {
    let here = values(expansion);
    let axes = || plan.axes.iter().chain(plan.cases.iter().flatten());
    let line = |line: &str| {
        let given = line.split_once(" = ").map(|(axis, given)| (axis.trim(), given));
        let is_computed = |axis: &str, given: &str| {
            let values = axes().filter(|values| values.name == axis).flat_map(|values| &values.values);
            let mut computed = values.filter(|value| matches!(value, AxisValue::Computed(_)));
            computed.any(|value| given.contains(&format!("\"{value}\"")))
        };
        let known =
            given.filter(|(axis, given)| is_computed(axis, given)).and_then(|(axis, _)| here.get(axis));
        known.map_or_else(|| line.to_owned(), |values| format!("{line}  # here: {}", values.join(", ")))
    };
    plan.text.lines().map(|text| line(text) + "\n").collect()
}

/// `--show`: the plan's text, the values of its axes here, and the summary.
pub fn show_plan(plan: &Plan, expansion: &Expansion) -> String {
    let axes = values(expansion).into_iter();
    let axes: String = axes.map(|(axis, values)| format!("{axis:<18} {}\n", values.join(" "))).collect();
    format!("{}\nAxes here:\n{axes}\n{}", plan.text.trim_end(), summary(plan, expansion))
}
