//! Runs and points as charts and tables need them: the points that have a result, the marks that spoil them, how far the machine
//! drifted, the axes that vary, and how their values are written.

mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use carmine_study::archive::{
    ArchiveError, Config, Point, PointEnd, PointKind, PointResult, Run, RunFile, Samples,
};
use carmine_study::drift::Drift;
use carmine_study::scaling::follows;
use carmine_study::support::spoilt_by;
use carmine_types::counted;
use serde_json::Value;

use crate::lists::distinct;
use crate::units::{bytes, grouped, percent, short};

pub(crate) use setting::{Setting, settings};

/// A point and its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Number of the run in the report.
    pub(crate) run: usize,
    pub(crate) point: Point,
    /// `done`, `failed`, `not run` (the run was stopped before) or `unreadable`.
    pub(crate) state: &'static str,
    /// The error of a point that failed or can't be read.
    pub(crate) why: String,
    pub(crate) result: Option<PointResult>,
    /// Series that have no values are left out, and values over time, which are large, are not kept.
    pub(crate) samples: Option<Samples>,
    /// Why its samples can't be read.
    pub(crate) samples_error: Option<String>,
    /// Length of its commands, seconds.
    pub(crate) seconds: f64,
    /// The history of the store before it.
    pub(crate) condition: String,
    /// Words such as SHARED, in the order of their importance.
    pub(crate) words: Vec<String>,
}

impl Measured {
    /// It was measured, and nothing speaks against its figures.
    pub(crate) fn is_clean(&self) -> bool {
        self.result.is_some() && self.spoilt_by().is_empty()
    }

    /// The marks that spoil it, or `failed`.
    pub(crate) fn spoilt_by(&self) -> Vec<&'static str> {
        let known = spoilt_by(&self.point.config, self.result.as_ref());
        let is_smoke = self.words.iter().any(|word| word == "SMOKE") && !known.contains(&"SMOKE");
        known.into_iter().chain(is_smoke.then_some("SMOKE")).collect()
    }

    /// It is part of the plan, not a repetition of the first point.
    pub(crate) fn is_planned(&self) -> bool {
        self.point.kind == PointKind::Point
    }
}

/// A run as reports see it.
#[derive(Clone, Debug)]
pub(crate) struct RunData {
    /// Short and distinct from the other runs' names; empty of the only run.
    pub(crate) label: String,
    pub(crate) run: Run,
    pub(crate) points: Vec<Measured>,
    /// Sentences about what is missing or can't be read.
    pub(crate) missing: Vec<String>,
}

impl RunData {
    pub(crate) fn file(&self) -> &RunFile {
        &self.run.file
    }
}

/// Reads runs. A point whose files are bad or missing is listed; only a folder that is not a run is an error.
/// `progress` gets how many of a run's points have been read, and how many it has.
pub(crate) fn load(
    dirs: &[PathBuf],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<RunData>, ArchiveError> {
    let name = |dir: &PathBuf| {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned()
    };
    let names: Vec<String> = dirs.iter().map(name).collect();
    let mut loaded = Vec::with_capacity(dirs.len());
    for (number, (dir, name)) in dirs.iter().zip(&names).enumerate() {
        // Folders of the same name get numbers.
        let label = match (names.len(), names.iter().filter(|other| *other == name).count()) {
            (1, _) => String::new(),
            (_, 1) => name.clone(),
            _ => format!("{name} #{}", number + 1),
        };
        let run = Run::open(dir)?;
        let mut points = Vec::with_capacity(run.points.len());
        for point in &run.points {
            points.push(Measured::read(number, &run, point));
            progress(points.len(), run.points.len());
        }
        loaded.push(RunData { label, missing: missing(&run, &points), run, points });
    }
    Ok(loaded)
}

impl Measured {
    fn read(number: usize, run: &Run, point: &Point) -> Measured {
        let mut found =
            Measured { run: number, point: point.clone(), state: "not run", ..Measured::default() };
        if let Err(error) = found.read_files(run) {
            (found.state, found.why) = ("unreadable", error.to_string());
        }
        found
    }

    /// Reads how the point ended, and its result.
    fn read_files(&mut self, run: &Run) -> Result<(), ArchiveError> {
        let Some(state) = run.state(&self.point)? else { return Ok(()) };
        (self.seconds, self.condition) = (state.seconds, text_of(&state.condition));
        if state.state == PointEnd::Failed {
            let why = state.error.unwrap_or_else(|| "the reason was not recorded".into());
            (self.state, self.why) = ("failed", why);
            return Ok(());
        }
        let Some(result) = run.result(&self.point)? else {
            let why = format!("{} is missing", run.point_file(&self.point, "json").display());
            (self.state, self.why) = ("unreadable", why);
            return Ok(());
        };
        (self.state, self.words) = ("done", words(&result, run.file.label == "smoke"));
        self.result = Some(result);
        match run.samples(&self.point) {
            Ok(samples) => self.samples = samples,
            Err(error) => self.samples_error = Some(error.to_string()),
        }
        if let Some(samples) = &mut self.samples {
            samples.cpus.clear();
            samples.series.retain(|_, values| values.iter().any(Option::is_some));
            samples.series.values_mut().for_each(|values| *values = Vec::new());
        }
        Ok(())
    }
}

/// Text as it is, other values as JSON, null as nothing.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The words that the marks begin with, and those that follow from figures.
pub(crate) fn words(result: &PointResult, smoke: bool) -> Vec<String> {
    let carmine = &result.carmine;
    let is_word = |w: &&str| w.len() > 2 && w.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    let marks = carmine.marks.iter().filter_map(|mark| mark.split([':', ' ']).next().filter(is_word));
    let more = [(smoke, "SMOKE"), (carmine.above_baseline, "ABOVE"), (carmine.errors > 0, "ERRORS")];
    let more = more.into_iter().filter_map(|(is, word)| is.then_some(word));
    let words = carmine.shared.then_some("SHARED").into_iter().chain(marks).chain(more);
    distinct(words.map(str::to_owned))
}

fn missing(run: &Run, points: &[Measured]) -> Vec<String> {
    let mut missing = Vec::new();
    let all = counted(points.len(), "point");
    let count = |state: &str| points.iter().filter(|point| point.state == state).count();
    let (not_run, failed) = (count("not run"), count("failed"));
    if points.is_empty() {
        missing.push("points.json is missing or lists no point: there is nothing to draw".to_owned());
    } else if not_run > 0 {
        missing.push(format!("the sweep was stopped: {not_run} of {all} did not run"));
    } else if !run.file.complete {
        missing.push("run.json says that the sweep did not come to its end".to_owned());
    }
    missing.extend((failed > 0).then(|| format!("{failed} of {all} failed; the table of points says why")));
    let unreadable = points.iter().filter(|point| point.state == "unreadable");
    missing.extend(unreadable.map(|p| format!("point {} can't be read: {}", p.point.stem, p.why)));
    missing
}

/// More drift than this part between the first point and its repetition is worth a warning.
const DRIFT_WARN: f64 = 0.05;

/// The first point and its repetitions; `None` if it was not run again, or failed.
pub(crate) fn drift_of(run: &RunData) -> Option<Drift> {
    Drift::from_points(run.points.iter().filter_map(|m| Some((&m.point, m.result.as_ref()?))))
}

/// The first point of the plan, against the time when it was run again that differs most from it, in words.
pub(crate) fn drift(run: &RunData) -> Option<String> {
    let drift = drift_of(run)?;
    let (first, largest) = (drift.first_iops, drift.largest());
    let (times, at) = match drift.changes.len() {
        1 => (String::new(), ""),
        n => (format!(" {}", counted(n, "time")), " where it differed most"),
    };
    let most = first * (1.0 + largest);
    let warn = if largest.abs() > DRIFT_WARN {
        ": differences of that size between points mean nothing"
    } else {
        ""
    };
    let (most_iops, first_iops, part) = (grouped(most, 0), grouped(first, 0), percent(most / first));
    Some(format!(
        "the first point, run again{times}, gave {most_iops} instead of {first_iops} IOPS{at} ({part}){warn}"
    ))
}

/// Axes along a response-latency curve: the load that is asked for.
pub(crate) const LOAD_AXES: [&str; 5] = ["iodepth", "rate_iops", "jobs", "arrivals", "client_cpus"];
/// Axes of the resources: a scaling chart runs along them.
pub(crate) const SIZE_AXES: [&str; 4] = ["osds", "reactors", "osds_per_device", "cpus"];
/// Axes whose values are never in one chart.
pub(crate) const PANEL_AXES: [&str; 3] = ["workload", "bs_bytes", "client"];

/// Axes that tell points apart, and those that they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axes {
    /// Axes that vary, but for those that follow from workload and size (such as `pgs = 100 * osds`).
    telling: BTreeSet<String>,
    /// Axis and value, the same for all points.
    pub(crate) common: BTreeMap<String, String>,
}

impl Axes {
    /// Axes of the points of the plan.
    pub(crate) fn new(points: &[&Measured]) -> Axes {
        let configs: Vec<&Config> = points.iter().map(|p| &p.point.config).collect();
        let names: BTreeSet<&String> = configs.iter().flat_map(|c| c.0.keys()).collect();
        let mut axes = Axes::default();
        for name in names {
            let values: BTreeSet<Option<String>> = configs.iter().map(|c| c.show(name)).collect();
            if let (1, Some(Some(only))) = (values.len(), values.first()) {
                axes.common.insert(name.clone(), only.clone());
            } else if !is_coupled(name, &configs) {
                axes.telling.insert(name.clone());
            }
        }
        axes
    }

    /// True if points differ in it, and the difference does not follow from the axes in their names.
    pub(crate) fn tells(&self, axis: &str) -> bool {
        self.telling.contains(axis)
    }

    /// A configuration by the axes that vary and are not in `without`; empty if there are none. In brief, axes whose values
    /// are words are shown by the value alone.
    pub(crate) fn name(&self, config: &Config, without: &[&str], brief: bool) -> String {
        let word = |axis: &str| config.text(axis).filter(|_| brief).and_then(|_| config.show(axis));
        let told = self.ordered().filter(|axis| !without.contains(axis));
        let words = told.filter_map(|axis| word(axis).or_else(|| axis_value(config, axis)));
        words.collect::<Vec<_>>().join(" · ")
    }

    /// Sorts axes in the order in which people name them.
    fn ordered(&self) -> impl Iterator<Item = &str> {
        const FIRST: [&str; 6] = ["workload", "bs_bytes", "store", "osds", "reactors", "cpus"];
        let tells = |axis: &&str| self.telling.contains(*axis);
        let rest = self.telling.iter().map(String::as_str);
        let rest = rest.filter(|axis| !FIRST.contains(axis) && !LOAD_AXES.contains(axis));
        FIRST.into_iter().filter(tells).chain(rest).chain(LOAD_AXES.into_iter().filter(tells))
    }
}

/// A number that workload and size axes determine.
fn is_coupled(axis: &str, configs: &[&Config]) -> bool {
    let of: Vec<&str> = SIZE_AXES.into_iter().chain(["workload"]).collect();
    !SIZE_AXES.contains(&axis) && follows(axis, &of, configs)
}

/// An axis' value with its name as people say it: `2 reactors`, `qd 16`, `4K blocks`.
pub(crate) fn axis_value(config: &Config, axis: &str) -> Option<String> {
    let value = config.show(axis)?;
    let number = config.float(axis);
    let count = |noun: &str| format!("{value} {noun}{}", if value == "1" { "" } else { "s" });
    let written = |of: fn(f64) -> String| number.map_or(value.clone(), of);
    Some(match axis {
        "workload" | "store" => value,
        "osds" => count("OSD"),
        "reactors" => count("reactor"),
        "osds_per_device" => format!("{value} per drive"),
        "alien_threads" => count("alien"),
        "jobs" => count("job"),
        "pgs" => count("PG"),
        "iodepth" => format!("qd {value}"),
        "pool_size" => format!("size {value}"),
        "cpus" if number.is_some() => count("CPU"),
        "cpus" => format!("CPUs {value}"),
        "bs_bytes" => format!("{} blocks", written(bytes)),
        "rate_iops" => format!("{} IOPS asked", written(short)),
        _ => match axis.strip_suffix("_bytes") {
            Some(name) => format!("{} {}", name.replace('_', " "), written(bytes)),
            None => format!("{} {value}", axis.replace('_', " ")),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use serde_json::json;

    fn config(value: Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn values_are_said_as_people_say_them() {
        let c = config(
            json!({"reactors": 1, "osds": 3, "bs_bytes": 65536, "osd_memory_bytes": 1 << 30, "balance": "osd"}),
        );
        let say = |axis| axis_value(&c, axis).unwrap();
        assert_eq!([say("reactors"), say("osds"), say("bs_bytes")], ["1 reactor", "3 OSDs", "64K blocks"]);
        assert_eq!([say("osd_memory_bytes"), say("balance")], ["osd memory 1G", "balance osd"]);
        assert_eq!(axis_value(&c, "pgs"), None);
    }

    #[test]
    fn a_workload_is_named_by_what_ran() {
        let point = |bs: u64| config(json!({"workload": "randread4k", "bs_bytes": bs, "store": "blue"}));
        let (small, large) = (point(4096), point(65536));
        assert_eq!(axis_value(&large, "workload").unwrap(), "randread64k");
        assert!(is_coupled("bs_bytes", &[&small, &large]), "the size is not said twice");
    }

    #[test]
    fn every_mark_of_a_point_is_defined() {
        let carmine =
            json!({"above_baseline": true, "errors": 3, "shared": true, "marks": ["LITTLE: no", "DIED"]});
        let result: PointResult = serde_json::from_value(json!({ "carmine": carmine })).unwrap();
        let marks = words(&result, true);
        assert_eq!(marks, ["SHARED", "LITTLE", "DIED", "SMOKE", "ABOVE", "ERRORS"]);
        let undefined: Vec<_> =
            marks.iter().filter(|mark| carmine_load::words::word(mark).is_none()).collect();
        assert_eq!(undefined, [""; 0]);
    }

    #[test]
    fn what_follows_from_the_size_does_not_tell_points_apart() {
        let point =
            |osds: u32, pgs: u32, store: &str| config(json!({"osds": osds, "pgs": pgs, "store": store}));
        let configs =
            [point(1, 100, "blue"), point(3, 300, "blue"), point(1, 100, "cyan"), point(3, 300, "cyan")];
        let refs: Vec<&Config> = configs.iter().collect();
        assert!(is_coupled("pgs", &refs));
        assert!(!is_coupled("store", &refs) && !is_coupled("osds", &refs));
        let more = point(3, 600, "cyan");
        assert!(!is_coupled("pgs", &refs.into_iter().chain([&more]).collect::<Vec<_>>()));
    }
}
