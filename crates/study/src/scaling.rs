//! How a run scales with its reactors: what each adds, where adding stops to pay, and what bound it there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use carmine_stats::{Growth, Knee, Slope, growth};
use serde::Serialize;

use crate::archive::{ArchiveError, Config, Point, PointKind, PointResult, Run};

/// Marks of points that stay out of slopes and knees.
const SPOILS: [&str; 3] = ["SHARED", "NOISY", "UNSTEADY"];
/// How much is asked: of points that differ in these only, the best at each size counts.
const LOAD_AXES: [&str; 4] = ["iodepth", "jobs", "rate_iops", "arrivals"];
const SIZE_AXES: [&str; 2] = ["osds", "reactors"];

/// One line of a scaling chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scaling {
    /// What tells this line's configuration apart from the others'; empty if there is one line only.
    pub name: String,
    /// Numbers of reactors of all OSDs together that have clean points.
    pub sizes: Vec<f64>,
    /// IOPS that one more reactor adds: of the points up to the knee, for beyond it something else is the limit.
    pub slope: Option<Slope>,
    /// As `carmine-stats` defines it.
    pub knee: Option<Knee>,
    /// Limiter of the first size beyond the knee, and the figure that decided it.
    pub bound: Option<(String, String)>,
    /// Points that are failed, SHARED, NOISY or UNSTEADY.
    pub left_out: usize,
}

/// Every line of a run in which the number of reactors varies; none if it does not.
///
/// # Errors
/// A file of the archive that can't be read.
pub fn scaling_of_run(run: &Run) -> Result<Vec<Scaling>, ArchiveError> {
    let mut measured = Vec::new();
    for point in run.points.iter().filter(|p| p.kind == PointKind::Point) {
        let result = if run.is_done(point) { run.result(point)? } else { None };
        measured.push((point, result));
    }
    let points: Vec<(&Point, Option<&PointResult>)> =
        measured.iter().map(|(point, result)| (*point, result.as_ref())).collect();
    Ok(scaling(&points))
}

/// The same of points and what they gave, `None` if they failed.
pub fn scaling(points: &[(&Point, Option<&PointResult>)]) -> Vec<Scaling> {
    let sizes: BTreeSet<u64> = points.iter().map(|(point, _)| reactors(&point.config)).collect();
    if sizes.len() < 2 {
        return Vec::new();
    }
    let axes = telling_axes(points);
    let mut lines: BTreeMap<String, Vec<(&Point, Option<&PointResult>)>> = BTreeMap::new();
    for (point, result) in points {
        let words = axes.iter().filter_map(|axis| Some(format!("{axis} {}", point.config.show(axis)?)));
        lines.entry(words.collect::<Vec<_>>().join(", ")).or_default().push((point, *result));
    }
    lines.into_iter().map(|(name, points)| line(name, &points)).collect()
}

/// Of all OSDs together.
fn reactors(config: &Config) -> u64 {
    config.number("osds").unwrap_or(1).saturating_mul(config.number("reactors").unwrap_or(1))
}

/// Axes that vary and do not follow from the size, as `pgs = 100 * osds` does, and are not how much is asked.
fn telling_axes(points: &[(&Point, Option<&PointResult>)]) -> Vec<String> {
    let all: BTreeSet<&String> = points.iter().flat_map(|(point, _)| point.config.0.keys()).collect();
    let values = |axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|(point, _)| point.config.show(axis)).collect()
    };
    let follows = |axis: &str| {
        let mut of_size: BTreeMap<u64, Option<String>> = BTreeMap::new();
        points.iter().all(|(point, _)| {
            let value = point.config.show(axis);
            *of_size.entry(reactors(&point.config)).or_insert_with(|| value.clone()) == value
        })
    };
    let fixed = |axis: &str| SIZE_AXES.contains(&axis) || LOAD_AXES.contains(&axis);
    all.into_iter().filter(|axis| !fixed(axis) && values(axis).len() > 1 && !follows(axis)).cloned().collect()
}

fn line(name: String, points: &[(&Point, Option<&PointResult>)]) -> Scaling {
    let clean: Vec<(&Point, &PointResult)> = points
        .iter()
        .filter_map(|(point, result)| result.filter(|r| is_clean(r)).map(|r| (*point, r)))
        .collect();
    let best = best(&clean);
    let curve: Vec<(f64, f64)> =
        best.iter().flat_map(|(size, results)| results.iter().map(|r| (*size as f64, r.iops()))).collect();
    let Growth { slope, knee } = growth(&curve);
    let limit = knee.and_then(|k| k.x);
    let beyond = limit.and_then(|limit| best.iter().find(|(size, _)| **size as f64 > limit));
    let bound = beyond.and_then(|(_, results)| limiter(results.first()?));
    Scaling {
        name,
        sizes: best.keys().map(|size| *size as f64).collect(),
        slope,
        knee,
        bound,
        left_out: points.len() - clean.len(),
    }
}

fn is_clean(result: &PointResult) -> bool {
    let spoils = |mark: &String| SPOILS.iter().any(|word| mark.starts_with(word));
    !result.carmine.shared && !result.carmine.marks.iter().any(spoils) && result.iops() > 0.0
}

fn limiter(result: &PointResult) -> Option<(String, String)> {
    let reason = result.carmine.verdict_reason.clone().unwrap_or_default();
    result.carmine.verdict.clone().map(|limiter| (limiter, reason))
}

/// At each size the repeats of the load with the most IOPS on average.
fn best<'a>(clean: &[(&Point, &'a PointResult)]) -> BTreeMap<u64, Vec<&'a PointResult>> {
    let mut loads: BTreeMap<(u64, Vec<Option<String>>), Vec<&PointResult>> = BTreeMap::new();
    for (point, result) in clean {
        let load = LOAD_AXES.iter().map(|axis| point.config.show(axis)).collect();
        loads.entry((reactors(&point.config), load)).or_default().push(result);
    }
    let mean = |results: &[&PointResult]| {
        results.iter().map(|r| r.iops()).sum::<f64>() / results.len().max(1) as f64
    };
    let mut best: BTreeMap<u64, Vec<&PointResult>> = BTreeMap::new();
    for ((size, _), results) in loads {
        let held = best.entry(size).or_default();
        if mean(&results) > mean(held) {
            *held = results;
        }
    }
    best
}

impl fmt::Display for Scaling {
    /// One sentence, as it ends a sweep.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        match &self.slope {
            Some(Slope { slope, interval: Some((low, high)), .. }) => {
                write!(f, "each further reactor adds {slope:.0} IOPS (95 % interval {low:.0} to {high:.0})")?;
            }
            Some(Slope { slope, .. }) => {
                write!(f, "each further reactor adds {slope:.0} IOPS (of two points: no interval)")?;
            }
            None => f.write_str("no slope: it takes clean points at two sizes at least")?,
        }
        self.write_knee(f)?;
        if self.left_out > 0 {
            write!(f, "; {} points left out (failed, SHARED, NOISY or UNSTEADY)", self.left_out)?;
        }
        Ok(())
    }
}

impl Scaling {
    fn write_knee(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(knee) = &self.knee else { return Ok(()) };
        let Some(x) = knee.x else { return f.write_str("; no knee within what was measured") };
        write!(f, "; knee at {x} reactors")?;
        match knee.interval {
            Some((low, Some(high))) if low < high => write!(f, " (between {low} and {high})")?,
            Some((low, None)) => write!(f, " ({low} or more)")?,
            _ => {}
        }
        match &self.bound {
            Some((limiter, reason)) if reason.is_empty() => write!(f, ", bound beyond it by {limiter}"),
            Some((limiter, reason)) => write!(f, ", bound beyond it by {limiter}: {reason}"),
            None => Ok(()),
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

    fn lines(points: &[(Point, Option<PointResult>)]) -> Vec<Scaling> {
        scaling(&points.iter().map(|(p, r)| (p, r.as_ref())).collect::<Vec<_>>())
    }

    #[test]
    fn slope_knee_and_what_bound_it() {
        let curve = [(1, 100.0, "OSD"), (2, 200.0, "OSD"), (3, 300.0, "OSD"), (4, 310.0, "DEVICE")];
        let points: Vec<_> = curve
            .iter()
            .map(|(n, iops, why)| (point(*n, json!({})), Some(result(*iops, why, None))))
            .collect();
        let lines = lines(&points);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let slope = lines[0].slope.unwrap();
        assert!((slope.slope - 100.0).abs() < 1e-9 && slope.points == 3, "{slope:?}");
        assert_eq!(lines[0].bound, Some(("DEVICE".into(), "because".into())));
        let said = lines[0].to_string();
        assert!(said.starts_with("each further reactor adds 100 IOPS (95 % interval 100 to 100)"), "{said}");
        assert!(said.ends_with("knee at 3 reactors, bound beyond it by DEVICE: because"), "{said}");
    }

    #[test]
    fn spoilt_and_failed_points_stay_out() {
        let good = |n: u32| (point(n, json!({})), Some(result(100.0 * f64::from(n), "OSD", None)));
        let mut points = vec![good(1), good(2), good(3)];
        for mark in ["SHARED: all", "UNSTEADY: it fell", "NOISY: a build"] {
            points.push((point(4, json!({})), Some(result(1.0, "OSD", Some(mark)))));
        }
        points.push((point(5, json!({})), None));
        let lines = lines(&points);
        assert_eq!((lines[0].left_out, lines[0].sizes.as_slice()), (4, [1.0, 2.0, 3.0].as_slice()));
        assert_eq!(lines[0].knee.unwrap().x, None);
        assert!(lines[0].to_string().contains("4 points left out"), "{}", lines[0]);
    }

    #[test]
    fn lines_are_told_apart_and_the_best_load_counts() {
        let mut points = Vec::new();
        for (store, factor) in [("blue", 1.0), ("cyan", 2.0)] {
            for (n, depth) in [(1, 1), (1, 16), (2, 1), (2, 16)] {
                let iops = factor * f64::from(n * depth);
                points.push((
                    point(n, json!({"store": store, "iodepth": depth})),
                    Some(result(iops, "QD", None)),
                ));
            }
        }
        let lines = lines(&points);
        assert_eq!(lines.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["store blue", "store cyan"]);
        assert_eq!((lines[0].slope.unwrap().slope, lines[1].slope.unwrap().slope), (16.0, 32.0));
        assert!(lines[0].to_string().contains("of two points"), "{}", lines[0]);
    }

    #[test]
    fn without_two_sizes_there_is_no_scaling() {
        assert!(lines(&[(point(2, json!({})), Some(result(1.0, "OSD", None)))]).is_empty());
        let marked = |n| (point(n, json!({})), Some(result(1.0, "OSD", Some("SHARED"))));
        assert!(lines(&[marked(1), marked(2)])[0].to_string().starts_with("no slope"));
    }
}
