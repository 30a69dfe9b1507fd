//! The expansion as text: `carmine sweep --dry-run`.

use std::fmt::Write as _;
use std::time::Duration;

use carmine_topology::Grid;

use super::{Dropped, Expansion};
use crate::plan::Plan;

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
        let aliens = if osd.aliens.own { "its reactors'".to_owned() } else { osd.aliens.cpus.to_string() };
        let device = osd.shared_device.map_or_else(String::new, |n| format!("; shares device {n}"));
        let _ = writeln!(
            text,
            "      osd.{} reactors on {}; aliens on {aliens}{device}",
            osd.osd,
            cpus.join(" ")
        );
    }
    let shared = if grid.shared { "; SHARED" } else { "" };
    let _ = writeln!(text, "      clients on {}{shared}", grid.client_cpus());
    text
}

/// Why configurations are not run, a line for each reason.
pub(super) fn reasons(dropped: &[Dropped]) -> String {
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
