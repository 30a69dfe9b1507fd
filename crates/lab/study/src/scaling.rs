//! How a run scales: what each further reactor, CPU or OSD adds, where adding stops paying off, and what bounded it there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use carmine_stats::{Growth, Knee, Slope, growth};
use serde::Serialize;

use crate::archive::{ArchiveError, Chart, Config, PointKind, PointResult, Run};
use crate::lists::grouped;

/// The knee in a sentence; `carmine_stats::knee` has the whole of it.
pub const KNEE: &str =
    "the last size before the first step that gains less than half of what each unit gave at the start";

/// Marks of points that stay out of slopes and knees.
pub const SPOILS: [&str; 5] = ["SHARED", "NOISY", "FOREIGN", "UNSTEADY", "DIED"];
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
    /// Sizes that have clean points.
    pub sizes: Vec<f64>,
    /// IOPS that one more unit adds, from the points up to the knee: beyond it something else is the limit.
    pub slope: Option<Slope>,
    /// As `carmine-stats` defines it.
    pub knee: Option<Knee>,
    /// Limiter of the first size beyond the knee, or without a knee of the largest; and the figure that decided it.
    pub bound: Option<(String, String)>,
    /// Points that are failed, SHARED, NOISY or UNSTEADY.
    pub left_out: usize,
    /// Some window was too short: the figures show that it runs.
    pub is_smoke: bool,
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
    let planned = run.points.iter().filter(|p| p.kind == PointKind::Point);
    let read = planned.map(|point| {
        let result = if run.is_done(point) { run.result(point)? } else { None };
        Ok((&point.config, result))
    });
    let read: Vec<(&Config, Option<PointResult>)> = read.collect::<Result<_, ArchiveError>>()?;
    Ok(scaling(&read.iter().map(|(config, result)| (*config, result.as_ref())).collect::<Vec<_>>()))
}

/// The same of configurations and what they gave, `None` if they failed.
fn scaling(points: &[Measured<'_>]) -> Vec<Scaling> {
    let axes = telling_axes(points);
    let mut lines: BTreeMap<String, Vec<Measured<'_>>> = BTreeMap::new();
    for (config, result) in points {
        let words = axes.iter().filter_map(|axis| Some(format!("{axis} {}", config.show(axis)?)));
        lines.entry(words.collect::<Vec<_>>().join(", ")).or_default().push((config, *result));
    }
    let of = |(name, points): (String, Vec<Measured<'_>>)| {
        Some(Scaling { name, ..Scaling::of(Along::of(points.iter().map(|(config, _)| *config))?, &points) })
    };
    lines.into_iter().filter_map(of).collect()
}

/// Axes that vary, except axes of the load and numbers that follow from the size and the step of the plan, as `pgs = 100 * osds` does.
fn telling_axes(points: &[Measured<'_>]) -> Vec<String> {
    let all: BTreeSet<&String> = points.iter().flat_map(|(config, _)| config.0.keys()).collect();
    let values = |axis: &str| -> BTreeSet<Option<String>> {
        points.iter().map(|(config, _)| config.show(axis)).collect()
    };
    let configs: Vec<&Config> = points.iter().map(|(config, _)| *config).collect();
    let step = |axis: &str| if axis == "step" { None } else { Some("step") };
    let follows =
        |axis: &str| follows(axis, &SIZE_AXES.into_iter().chain(step(axis)).collect::<Vec<_>>(), &configs);
    let fixed = |axis: &str| SIZE_AXES.contains(&axis) || LOAD_AXES.contains(&axis);
    all.into_iter().filter(|axis| !fixed(axis) && values(axis).len() > 1 && !follows(axis)).cloned().collect()
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
    /// Slope, knee and bound of one line: configurations with what they gave, `None` if they failed. Those without a size
    /// (no limit) have no place on it.
    pub fn of(along: Along, points: &[(&Config, Option<&PointResult>)]) -> Scaling {
        let sized = || points.iter().filter(|(config, _)| along.value(config).is_some());
        let clean: Vec<(&Config, &PointResult)> = sized()
            .filter_map(|(config, result)| Some((*config, result.filter(|result| is_clean(result))?)))
            .collect();
        let best = best(along, &clean);
        let curve: Vec<(f64, f64)> =
            best.iter().flat_map(|(size, results)| results.iter().map(|r| (*size, r.iops()))).collect();
        let Growth { slope, knee } = growth(&curve);
        let beyond = knee.and_then(|k| k.x).and_then(|knee| best.iter().find(|(size, _)| *size > knee));
        let bound = beyond.or(best.last()).and_then(|(_, results)| {
            let result = &results.first()?.carmine;
            Some((result.verdict.clone()?, result.verdict_reason.clone()))
        });
        Scaling {
            name: String::new(),
            along,
            sizes: best.iter().map(|(size, _)| *size).collect(),
            slope,
            knee,
            bound,
            left_out: sized().count() - clean.len(),
            is_smoke: clean.iter().any(|(_, result)| result.has_mark("SMOKE")),
        }
    }
}

fn is_clean(result: &PointResult) -> bool {
    !result.carmine.shared && !SPOILS.iter().any(|word| result.has_mark(word)) && result.iops() > 0.0
}

/// At each size, in ascending order, the repeats of the load with the most IOPS on average.
fn best<'a>(along: Along, clean: &[(&Config, &'a PointResult)]) -> Vec<(f64, Vec<&'a PointResult>)> {
    let of = |(config, result): &(&Config, &'a PointResult)| {
        let asked = LOAD_AXES.map(|axis| config.show(axis));
        along.value(config).map(|size| ((size, asked), *result))
    };
    let mean =
        |results: &[&PointResult]| results.iter().map(|r| r.iops()).sum::<f64>() / results.len() as f64;
    let mut loads = grouped(clean.iter().filter_map(of));
    // The best load of each size comes first.
    loads.sort_by(|(a, of_a), (b, of_b)| a.0.total_cmp(&b.0).then(mean(of_b).total_cmp(&mean(of_a))));
    loads.dedup_by_key(|((size, _), _)| *size);
    loads.into_iter().map(|((size, _), repeats)| (size, repeats)).collect()
}

impl fmt::Display for Scaling {
    /// One sentence, as it ends a sweep and stands in a report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        let slope = match self.slope {
            Some(Slope { slope, interval, .. }) => {
                let within = interval.map(|(low, high)| format!("95 % interval {low:.0} to {high:.0}"));
                let within = within.unwrap_or_else(|| "of two points: no interval".to_owned());
                format!("each further {} adds {slope:.0} IOPS ({within})", self.along.unit())
            }
            None => "no slope: it takes clean points at two sizes at least".to_owned(),
        };
        write!(f, "{name}{slope}{}", self.knee_in_words())?;
        if self.left_out > 0 {
            write!(f, "; left out as failed, SHARED, NOISY or UNSTEADY: {}", self.left_out)?;
        }
        f.write_str(if self.is_smoke { "; SMOKE: windows too short to tell" } else { "" })
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
    pub fn of<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Option<Along> {
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
    use crate::archive::Point;
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
        scaling(&points.iter().map(|(p, r)| (&p.config, r.as_ref())).collect::<Vec<_>>())
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
        assert!(said.ends_with("knee at 3 reactors, bounded beyond it by DEVICE: because"), "{said}");
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
        assert!(
            lines[0]
                .to_string()
                .contains("no knee within what was measured, bounded at the largest size by OSD")
        );
        assert!(lines[0].to_string().contains("UNSTEADY: 4"), "{}", lines[0]);
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

    #[test]
    fn a_quota_scales_along_its_cpus_and_no_limit_has_no_place() {
        let mut points = Vec::new();
        for (cpus, iops) in [(json!(1), 100.0), (json!(2), 200.0), (json!("no-limit"), 900.0)] {
            let quota = json!({"cpus": cpus, "confine": "quota"});
            points.push((point(4, quota), Some(result(iops, "OSD", Some("SMOKE: 1 s")))));
            let cpuset = json!({"cpus": cpus, "confine": "cpuset"});
            let reactors = cpus.as_u64().unwrap_or(3) as u32;
            points.push((point(reactors, cpuset), Some(result(iops, "OSD", None))));
        }
        let lines = lines(&points);
        let told: Vec<_> = lines.iter().map(|l| (l.along, l.sizes.len(), l.left_out, l.is_smoke)).collect();
        assert_eq!(told, [(Along::Reactors, 3, 0, false), (Along::Cpus, 2, 0, true)], "{lines:?}");
        let said = lines[1].to_string();
        assert!(
            said.contains("each further CPU adds 100 IOPS") && said.ends_with("too short to tell"),
            "{said}"
        );
    }
}
