//! How a run scales: what each further reactor, CPU or OSD adds, where adding stops paying off, and what bounded it there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use carmine_stats::{Growth, Knee, Slope, growth};
use serde::Serialize;

use crate::archive::{ArchiveError, Chart, Config, Point, PointKind, PointResult, Run};
use crate::compare;
use crate::drift::Drift;
use crate::lists::grouped;
use crate::plan::TOLERANCE;
use crate::repeats::limiter;
use crate::support::{change, clean, mean_iops, spoilt_by};

/// The knee in a sentence; `carmine_stats::knee` has the whole of it.
pub const KNEE: &str =
    "the last size before the first step that gains less than half of what each unit gave at the start";

/// Axes of the load: of points that differ only in these, the best at each size counts.
const LOAD_AXES: [&str; 5] = ["iodepth", "jobs", "rate_iops", "arrivals", "client_cpus"];
const SIZE_AXES: [&str; 3] = ["osds", "reactors", "cpus"];

/// One line of a scaling chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// The part of the configuration that tells this line from the others; empty if there is only one line.
    pub name: String,
    /// The unit of the sizes.
    pub along: Along,
    /// Sizes whose points support a figure.
    pub sizes: Vec<f64>,
    /// Why it has no slope and no knee; `None` if it has.
    pub no_answer: Option<String>,
    /// IOPS that one more unit adds, from the points up to the knee: beyond it something else is the limit.
    pub slope: Option<Slope>,
    /// As `carmine-stats` defines it.
    pub knee: Option<Knee>,
    /// Limiter of the first size beyond the knee, or without a knee of the largest; and the figure that decided it.
    pub bound: Option<(String, String)>,
    /// Points that are failed or spoilt by a mark, and those with too few clean repeats beside them.
    pub left_out: usize,
}

type Measured<'a> = (&'a Config, Option<&'a PointResult>);

/// Every line of a run that is about scaling. Other runs have none, nor do runs that vary nothing that can be counted.
///
/// # Errors
/// A file of the archive that can't be read.
pub fn scaling_of_run(run: &Run) -> Result<Vec<Scaling>, ArchiveError> {
    if run.file.chart != Chart::Scaling {
        return Ok(Vec::new());
    }
    let measured = run.measured()?;
    let drift = Drift::from_points(measured.iter().map(|(point, result)| (*point, result)))
        .map(|drift| drift.largest());
    let planned = run.points.iter().filter(|p| p.kind == PointKind::Point);
    let with_result = |point: &Point| measured.iter().find(|(p, _)| p.index == point.index).map(|(_, r)| r);
    let points: Vec<Measured<'_>> = planned.map(|point| (&point.config, with_result(point))).collect();
    Ok(scaling(&points, drift))
}

/// The same of configurations and what they gave, `None` if they failed.
fn scaling(points: &[Measured<'_>], drift: Option<f64>) -> Vec<Scaling> {
    let axes = telling_axes(points);
    let mut lines: BTreeMap<String, Vec<Measured<'_>>> = BTreeMap::new();
    for (config, result) in points {
        let words = axes.iter().filter_map(|axis| Some(format!("{axis} {}", config.show(axis)?)));
        lines.entry(words.collect::<Vec<_>>().join(", ")).or_default().push((config, *result));
    }
    let of = |(name, points): (String, Vec<Measured<'_>>)| {
        Some(Scaling {
            name,
            ..Scaling::fit(Along::first_varying(points.iter().map(|(config, _)| *config))?, &points, drift)
        })
    };
    lines.into_iter().filter_map(of).collect()
}

/// Axes that vary, except axes of the load and numbers that follow from the size and the step of the plan, as `pgs = 100 * osds` does.
fn telling_axes(points: &[Measured<'_>]) -> Vec<String> {
    let configs: Vec<&Config> = points.iter().map(|(config, _)| *config).collect();
    let others = |axis: &str| -> Vec<&str> {
        SIZE_AXES.into_iter().chain(["step"]).filter(|other| *other != axis).collect()
    };
    let is_fixed = |axis: &str| SIZE_AXES.contains(&axis) || LOAD_AXES.contains(&axis);
    let mut axes = compare::telling_axes(&configs);
    axes.retain(|axis| !is_fixed(axis) && !follows(axis, &others(axis), &configs));
    axes
}

/// True if the axis is a number that the axes `of` determine in these configurations.
pub fn follows(axis: &str, of: &[&str], configs: &[&Config]) -> bool {
    let mut seen: BTreeMap<Vec<Option<String>>, Option<String>> = BTreeMap::new();
    configs.iter().all(|config| {
        let (of, value) = (of.iter().map(|axis| config.show(axis)).collect(), config.show(axis));
        config.float(axis).is_some() && *seen.entry(of).or_insert_with(|| value.clone()) == value
    })
}

impl Scaling {
    /// Finds slope, knee and bound of one line: configurations with their results, `None` if they failed. Those without a
    /// size (no limit) have no place on it. `drift` is the machine's, a part of 1.
    pub fn fit(along: Along, points: &[Measured<'_>], drift: Option<f64>) -> Scaling {
        let sized: Vec<Measured<'_>> =
            points.iter().copied().filter(|(config, _)| along.value(config).is_some()).collect();
        let loads = loads(along, &sized);
        let used: usize = loads.iter().filter_map(|(_, repeats)| repeats.as_ref().ok()).map(Vec::len).sum();
        let best = best(&loads);
        let iops = |results: &[&PointResult]| results.iter().map(|r| r.iops()).collect::<Vec<f64>>();
        let most = best.iter().skip(1).max_by(|(_, a), (_, b)| mean_iops(a).total_cmp(&mean_iops(b)));
        let gain = match (best.first(), most) {
            (Some((_, first)), Some((_, most))) => change(&iops(first), &iops(most), drift, TOLERANCE),
            _ => Err(too_few_sizes(&loads)),
        };
        let curve = best.iter().flat_map(|(size, results)| results.iter().map(|r| (*size, r.iops())));
        let found = gain.as_ref().map(|_| growth(&curve.collect::<Vec<_>>()));
        let Growth { slope, knee } = found.unwrap_or_default();
        let beyond = knee.and_then(|k| k.x).and_then(|knee| best.iter().find(|(size, _)| *size > knee));
        let bound = beyond.or(best.last()).and_then(|(_, results)| limiter(results.iter().copied()));
        Scaling {
            name: String::new(),
            along,
            sizes: best.iter().map(|(size, _)| *size).collect(),
            no_answer: gain.err(),
            slope,
            knee,
            bound,
            left_out: sized.len() - used,
        }
    }
}

/// Repeats of one load at one size; an error says why they support no figure.
type Load<'a> = (f64, Result<Vec<&'a PointResult>, String>);

/// The loads at all sizes, in ascending order of the sizes.
fn loads<'a>(along: Along, sized: &[Measured<'a>]) -> Vec<Load<'a>> {
    let keyed = sized.iter().filter_map(|(config, result)| {
        let asked = config.asked();
        let asked = LOAD_AXES.map(|axis| asked.show(axis));
        Some(((along.value(config)?, asked), (*config, *result)))
    });
    let mut loads: Vec<Load<'a>> = Vec::new();
    for ((size, _), repeats) in grouped(keyed) {
        let clean = clean(&repeats, |(config, result)| spoilt_by(config, *result));
        loads.push((size, clean.map(|clean| clean.into_iter().filter_map(|(_, result)| result).collect())));
    }
    loads.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    loads
}

/// At each size the load with the most IOPS on average.
fn best<'a>(loads: &[Load<'a>]) -> Vec<(f64, Vec<&'a PointResult>)> {
    let supported = loads.iter().filter_map(|(size, repeats)| Some((*size, repeats.as_ref().ok()?)));
    let sizes = grouped(supported).into_iter();
    let most = sizes.filter_map(|(size, loads)| {
        let best = loads.into_iter().max_by(|a, b| mean_iops(a).total_cmp(&mean_iops(b)))?;
        Some((size, best.clone()))
    });
    most.collect()
}

/// Why a line has fewer than two sizes, with each reason once.
fn too_few_sizes(loads: &[Load<'_>]) -> String {
    let refused =
        loads.iter().filter_map(|(size, repeats)| Some((repeats.as_ref().err()?, size.to_string())));
    let refused: Vec<String> =
        grouped(refused).into_iter().map(|(why, sizes)| format!("{why} (at {})", sizes.join(", "))).collect();
    format!("it takes clean points at two sizes; {}", refused.join("; "))
}

impl fmt::Display for Scaling {
    /// One sentence, as it ends a sweep and stands in a report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        match (self.slope, &self.no_answer) {
            (Some(Slope { slope, interval, .. }), None) => {
                let (low, high) = interval.unwrap_or((slope, slope));
                let unit = self.along.unit();
                write!(
                    f,
                    "{name}each further {unit} adds {slope:.0} IOPS (95 % interval {low:.0} to {high:.0})"
                )?;
                f.write_str(&self.knee_in_words())?;
            }
            (_, why) => {
                let why = why.as_deref().unwrap_or("the points make no line");
                write!(f, "{name}no answer, so no slope: {why}")?;
            }
        }
        if self.left_out > 0 {
            write!(f, "; left out as failed, marked or with too few clean repeats: {}", self.left_out)?;
        }
        Ok(())
    }
}

impl Scaling {
    fn knee_in_words(&self) -> String {
        let Some(knee) = self.knee else { return String::new() };
        let (text, place) = match knee.x {
            None => ("; no knee within what was measured".to_owned(), "at the largest size"),
            Some(x) => {
                let within = match knee.interval {
                    Some((low, Some(high))) if low < high => format!(" (between {low} and {high})"),
                    Some((low, None)) => format!(" ({low} or more)"),
                    _ => String::new(),
                };
                let s = if x == 1.0 { "" } else { "s" };
                (format!("; knee at {x} {}{s}{within}", self.along.unit()), "beyond it")
            }
        };
        match &self.bound {
            Some((limiter, reason)) if reason.is_empty() => format!("{text}, bounded {place} by {limiter}"),
            Some((limiter, reason)) => format!("{text}, bounded {place} by {limiter}: {reason}"),
            None => text,
        }
    }
}

/// The unit that is added from one size to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Along {
    /// Reactors of all OSDs together.
    Reactors,
    /// CPUs that each OSD may use.
    Cpus,
    /// OSDs.
    Osds,
}

impl Along {
    /// The first of these that varies; `None` if none does.
    pub fn first_varying<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Option<Along> {
        let varies = |along: &Along| {
            let sizes = configs.clone().filter_map(|config| along.value(config));
            sizes.map(f64::to_bits).collect::<BTreeSet<u64>>().len() > 1
        };
        [Along::Reactors, Along::Cpus, Along::Osds].into_iter().find(varies)
    }

    /// The size of a configuration; `None` if it has none, such as "no limit" of CPUs.
    pub fn value(self, config: &Config) -> Option<f64> {
        match self {
            Along::Reactors => Some(config.float("reactors")? * config.float("osds").unwrap_or(1.0)),
            Along::Cpus => config.float("cpus"),
            Along::Osds => config.float("osds"),
        }
    }

    /// The word for one of them.
    pub fn unit(self) -> &'static str {
        match self {
            Along::Reactors => "reactor",
            Along::Cpus => "CPU",
            Along::Osds => "OSD",
        }
    }

    /// Its label on the axis of a chart.
    pub fn title(self) -> &'static str {
        match self {
            Along::Reactors => "reactors (all OSDs)",
            Along::Cpus => "CPUs allowed",
            Along::Osds => "OSDs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn point(reactors: u32, more: Value) -> Point {
        let mut config: Config = serde_json::from_value(more).unwrap();
        config.set("reactors", reactors);
        config.set("pgs", 100 * reactors);
        Point { config, ..Point::default() }
    }

    fn result(iops: f64, limiter: &str, mark: Option<&str>) -> PointResult {
        let value = json!({
            "jobs": [{"read": {"iops": iops}, "write": {}}],
            "carmine": {"verdict": limiter, "verdict_reason": "because", "marks": mark.into_iter().collect::<Vec<_>>()},
        });
        serde_json::from_value(value).unwrap()
    }

    type Repeats = (Point, Option<PointResult>);

    fn lines(points: &[Repeats]) -> Vec<Scaling> {
        drifted(points, 0.01)
    }

    fn drifted(points: &[Repeats], drift: f64) -> Vec<Scaling> {
        scaling(&points.iter().map(|(p, r)| (&p.config, r.as_ref())).collect::<Vec<_>>(), Some(drift))
    }

    /// Three repeats of a point that differ a little.
    fn thrice(point: &Point, iops: f64, limiter: &str, mark: Option<&str>) -> Vec<Repeats> {
        let repeat = |factor: f64| (point.clone(), Some(result(iops * factor, limiter, mark)));
        [0.999, 1.0, 1.001].map(repeat).to_vec()
    }

    #[test]
    fn slope_knee_and_what_bound_it() {
        let curve = [(1, 100.0, "OSD"), (2, 200.0, "OSD"), (3, 300.0, "OSD"), (4, 310.0, "DEVICE")];
        let points: Vec<_> =
            curve.iter().flat_map(|(n, iops, why)| thrice(&point(*n, json!({})), *iops, why, None)).collect();
        let lines = lines(&points);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let slope = lines[0].slope.unwrap();
        assert!((slope.slope - 100.0).abs() < 1e-9 && slope.points == 9, "{slope:?}");
        assert_eq!(lines[0].bound, Some(("DEVICE".into(), "because".into())));
        let said = lines[0].to_string();
        assert!(said.starts_with("each further reactor adds 100 IOPS (95 % interval 100 to 100)"), "{said}");
        assert!(said.ends_with("knee at 3 reactors, bounded beyond it by DEVICE: because"), "{said}");
    }

    #[test]
    fn repeats_that_disagree_on_the_bound_are_counted() {
        let mut points = [
            thrice(&point(1, json!({})), 100.0, "OSD", None),
            thrice(&point(2, json!({})), 200.0, "OSD", None),
        ]
        .concat();
        points[4].1 = Some(result(200.0, "CLIENT", None));
        assert_eq!(lines(&points)[0].bound.as_ref().unwrap().0, "OSD 2 of 3, CLIENT 1");
    }

    #[test]
    fn spoilt_failed_and_lone_points_stay_out() {
        let good = |n: u32| thrice(&point(n, json!({})), 100.0 * f64::from(n), "OSD", None);
        let mut points = [good(1), good(2), good(3)].concat();
        for mark in ["SHARED: all", "UNSTEADY: it fell", "NOISY: a build", "SMOKE: 2 s"] {
            points.push((point(4, json!({})), Some(result(1.0, "OSD", Some(mark)))));
        }
        points.push((point(5, json!({})), None));
        points.push((point(6, json!({})), Some(result(900.0, "OSD", None))));
        let lines = lines(&points);
        assert_eq!((lines[0].left_out, lines[0].sizes.as_slice()), (6, [1.0, 2.0, 3.0].as_slice()));
        assert_eq!(lines[0].knee.unwrap().x, None);
        let said = lines[0].to_string();
        assert!(
            said.contains("no knee within what was measured, bounded at the largest size by OSD"),
            "{said}"
        );
        assert!(said.ends_with("marked or with too few clean repeats: 6"), "{said}");
    }

    /// A line of single SMOKE, NOISY points once had a slope.
    #[test]
    fn too_little_and_a_drift_give_no_slope() {
        let points = |mark, repeats: usize| {
            let of = |n: u32| thrice(&point(n, json!({})), 100.0 + 4.0 * f64::from(n), "OSD", mark);
            let few: Vec<Repeats> =
                [1, 2].into_iter().flat_map(|n| of(n).into_iter().take(repeats)).collect();
            few
        };
        let said = |points: &[Repeats], drift| drifted(points, drift)[0].to_string();
        let short = said(&points(Some("SMOKE: 2 s"), 1), 0.01);
        assert!(short.starts_with("no answer, so no slope: it takes clean points at two sizes"), "{short}");
        assert!(short.contains("0 of 1 repeat clean (SMOKE 1), and it takes 3 (at 1, 2)"), "{short}");
        assert!(said(&points(None, 2), 0.01).contains("2 of 2 repeats clean, and it takes 3"));
        assert!(said(&points(None, 3), 0.01).starts_with("each further reactor adds 4 IOPS"));
        let drifted = said(&points(None, 3), 0.091);
        assert!(drifted.starts_with("no answer, so no slope: the change of +3.8 % is below"), "{drifted}");
    }

    #[test]
    fn lines_are_told_apart_and_the_best_load_counts() {
        let mut points = Vec::new();
        for (store, factor) in [("blue", 1.0), ("cyan", 2.0)] {
            for (n, depth) in [(1, 1), (1, 16), (2, 1), (2, 16)] {
                let iops = factor * f64::from(n * depth);
                points.extend(thrice(&point(n, json!({"store": store, "iodepth": depth})), iops, "QD", None));
            }
        }
        let lines = lines(&points);
        assert_eq!(lines.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["store blue", "store cyan"]);
        let slopes: Vec<f64> = lines.iter().map(|line| line.slope.unwrap().slope.round()).collect();
        assert_eq!(slopes, [16.0, 32.0]);
    }

    #[test]
    fn without_two_sizes_there_is_no_scaling() {
        assert!(lines(&[(point(2, json!({})), Some(result(1.0, "OSD", None)))]).is_empty());
    }

    #[test]
    fn a_quota_scales_along_its_cpus_and_no_limit_has_no_place() {
        let mut points = Vec::new();
        for (cpus, iops) in [(json!(1), 100.0), (json!(2), 200.0), (json!("no-limit"), 900.0)] {
            let quota = json!({"cpus": cpus, "confine": "quota"});
            points.extend(thrice(&point(4, quota), iops, "OSD", None));
            let cpuset = json!({"cpus": cpus, "confine": "cpuset"});
            let reactors = cpus.as_u64().unwrap_or(3) as u32;
            points.extend(thrice(&point(reactors, cpuset), iops, "OSD", None));
        }
        let lines = lines(&points);
        let told: Vec<_> = lines.iter().map(|l| (l.along, l.sizes.len(), l.left_out)).collect();
        assert_eq!(told, [(Along::Reactors, 3, 0), (Along::Cpus, 2, 0)], "{lines:?}");
        let said = lines[1].to_string();
        assert!(said.contains("each further CPU adds 100 IOPS"), "{said}");
    }
}
