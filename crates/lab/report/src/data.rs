//! Runs and points as charts and tables need them: which points have a result, which marks spoil them, and how far the
//! machine drifted.

mod axes;
mod setting;

use std::path::PathBuf;

use carmine_study::archive::{ArchiveError, Point, PointEnd, PointKind, PointResult, Run, RunFile, Samples};
use carmine_types::counted;
use serde_json::Value;

use crate::lists::distinct;
use crate::units::{grouped, percent};

pub(crate) use axes::{Axes, LOAD_AXES, PANEL_AXES, SIZE_AXES, axis_value};
pub(crate) use setting::{Setting, settings};

/// Marks that keep a point out of slopes.
const SPOILS: [&str; 4] = ["SHARED", "NOISY", "UNSTEADY", "SMOKE"];

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
    /// Was measured, and nothing speaks against its figures.
    pub(crate) fn is_clean(&self) -> bool {
        self.result.is_some() && !self.words.iter().any(|w| SPOILS.contains(&w.as_str()))
    }

    /// Is part of the plan, and not the first point run again.
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

/// Reads runs. A point whose files are bad or missing is listed; only a folder that is no run is an error.
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
            let why = state.error.unwrap_or_else(|| "it did not say why".into());
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

/// The first point of the plan, against the time when it was run again that differs most from it, in words; `None` if it
/// was not run again, or failed.
pub(crate) fn drift(run: &RunData) -> Option<String> {
    let iops = |m: &Measured| m.result.as_ref().map(|r| r.iops()).filter(|iops| *iops > 0.0);
    let again: Vec<&Measured> = run.points.iter().filter(|m| !m.is_planned()).collect();
    let config = &again.first()?.point.config;
    let first = run.points.iter().filter(|m| m.is_planned() && m.point.config == *config);
    let first = iops(first.min_by_key(|m| m.point.index)?)?;
    let all: Vec<f64> = again.into_iter().filter_map(iops).collect();
    let apart = |iops: &f64| (iops / first - 1.0).abs();
    let most = all.iter().copied().max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    let (times, at) = match all.len() {
        1 => (String::new(), ""),
        n => (format!(" {}", counted(n, "time")), " where it differed most"),
    };
    let warn =
        if apart(&most) > DRIFT_WARN { ": differences of that size between points mean nothing" } else { "" };
    let (most_iops, first_iops, part) = (grouped(most, 0), grouped(first, 0), percent(most / first));
    Some(format!(
        "the first point, run again{times}, gave {most_iops} instead of {first_iops} IOPS{at} ({part}){warn}"
    ))
}
