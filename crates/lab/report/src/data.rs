//! Runs and points as charts and tables need them: which points have a result, which marks spoil them, and how far the
//! machine drifted.

mod axes;
mod setting;

use std::collections::BTreeSet;
use std::path::Path;

use carmine_study::archive::{
    ArchiveError, NvmeSamples, Point, PointEnd, PointKind, PointResult, Run, RunFile, Samples, ThreadSamples,
};
use carmine_types::counted;
use serde_json::Value;

use crate::lists::distinct;

pub(crate) use axes::{Axes, LOAD_AXES, PANEL_AXES, SIZE_AXES, axis_value};
pub(crate) use setting::{CPU_PARTS, Setting, settings};

/// Marks that keep a point out of slopes.
const SPOILS: [&str; 4] = ["SHARED", "NOISY", "UNSTEADY", "SMOKE"];

/// How a point ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    Done,
    /// With its error.
    Failed(String),
    /// The run was stopped before.
    NotRun,
    /// Its files can't be read: why.
    Unreadable(String),
}

/// A point and its result.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Number of the run in the report.
    pub(crate) run: usize,
    pub(crate) point: Point,
    pub(crate) ended: Ended,
    pub(crate) result: Option<PointResult>,
    /// `None` without samples; or why they can't be read.
    pub(crate) samples: Result<Option<Sampled>, String>,
    /// Length of its commands, seconds.
    pub(crate) seconds: f64,
    /// The history of the store before it.
    pub(crate) condition: String,
    /// Words such as SHARED, in the order of their importance.
    pub(crate) words: Vec<String>,
}

/// What is kept of a point's samples: the whole of them is large.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampled {
    /// Series that have values.
    pub(crate) series: BTreeSet<String>,
    pub(crate) threads: Vec<ThreadSamples>,
    pub(crate) nvme: Vec<NvmeSamples>,
}

impl From<Samples> for Sampled {
    fn from(samples: Samples) -> Sampled {
        let known = samples.series.into_iter().filter(|(_, values)| values.iter().any(Option::is_some));
        let (threads, nvme) = (samples.threads, samples.nvme);
        Sampled { series: known.map(|(name, _)| name).collect(), threads, nvme }
    }
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
    /// Short and distinct from the other runs' names.
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

/// Reads a run. A point whose files are bad or missing is listed; only a folder that is no run is an error.
/// `progress` gets how many of all its points have been read.
pub(crate) fn load(
    dir: &Path,
    number: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<RunData, ArchiveError> {
    let run = Run::open(dir)?;
    let smoke = run.file.label == "smoke";
    let mut points = Vec::with_capacity(run.points.len());
    for point in &run.points {
        points.push(measured(&run, point, number, smoke));
        progress(points.len(), run.points.len());
    }
    let missing = missing(&run, &points);
    Ok(RunData { label: label(dir, &run.file.name), run, points, missing })
}

fn label(dir: &Path, name: &str) -> String {
    let folder = dir.canonicalize().ok();
    let folder = folder.as_deref().unwrap_or(dir).file_name();
    folder.map_or_else(|| name.to_owned(), |f| f.to_string_lossy().into_owned())
}

fn measured(run: &Run, point: &Point, number: usize, smoke: bool) -> Measured {
    let mut found = Measured {
        run: number,
        point: point.clone(),
        ended: Ended::NotRun,
        result: None,
        samples: Ok(None),
        seconds: 0.0,
        condition: String::new(),
        words: Vec::new(),
    };
    if let Err(error) = found.read(run, smoke) {
        found.ended = Ended::Unreadable(error.to_string());
    }
    found
}

impl Measured {
    /// Reads how the point ended, and its result.
    fn read(&mut self, run: &Run, smoke: bool) -> Result<(), ArchiveError> {
        let Some(state) = run.state(&self.point)? else { return Ok(()) };
        self.seconds = state.seconds;
        self.condition = text_of(&state.condition);
        if state.state == PointEnd::Failed {
            self.ended = Ended::Failed(state.error.unwrap_or_else(|| "it did not say why".into()));
            return Ok(());
        }
        self.result = run.result(&self.point)?;
        self.ended = match &self.result {
            Some(_) => Ended::Done,
            None => {
                let file = run.point_file(&self.point, "json");
                Ended::Unreadable(format!("{} is missing", file.display()))
            }
        };
        let samples = run.samples(&self.point).map_err(|error| error.to_string());
        self.samples = samples.map(|samples| samples.map(Sampled::from));
        self.words = self.result.as_ref().map(|result| words(result, smoke)).unwrap_or_default();
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
    let first = |mark: &String| {
        let word = mark.split([':', ' ']).next().filter(is_word);
        word.map(str::to_owned)
    };
    let mut words: Vec<String> = Vec::new();
    words.extend(carmine.shared.then(|| "SHARED".to_owned()));
    words.extend(carmine.marks.iter().filter_map(first));
    words.extend(smoke.then(|| "SMOKE".to_owned()));
    words.extend(carmine.above_baseline.then(|| "ABOVE".to_owned()));
    words.extend((carmine.errors > 0).then(|| "ERRORS".to_owned()));
    distinct(words)
}

fn missing(run: &Run, points: &[Measured]) -> Vec<String> {
    let mut missing = Vec::new();
    let all = counted(points.len(), "point");
    let count = |ended: fn(&Ended) -> bool| points.iter().filter(|p| ended(&p.ended)).count();
    let not_run = count(|e| matches!(e, Ended::NotRun));
    if points.is_empty() {
        missing.push("points.json is missing or lists no point: there is nothing to draw".to_owned());
    } else if not_run > 0 {
        missing.push(format!("the sweep was stopped: {not_run} of {all} did not run"));
    } else if !run.file.complete {
        missing.push("run.json says that the sweep did not come to its end".to_owned());
    }
    let failed = count(|e| matches!(e, Ended::Failed(_)));
    if failed > 0 {
        missing.push(format!("{failed} of {all} failed; the table of points says why"));
    }
    missing.extend(points.iter().filter_map(|point| match &point.ended {
        Ended::Unreadable(why) => Some(format!("point {} can't be read: {why}", point.point.stem)),
        _ => None,
    }));
    missing
}

/// The first point of the plan, and the time when it was run again that differs most from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drift {
    pub(crate) stem: String,
    pub(crate) first_iops: f64,
    pub(crate) again_iops: f64,
    /// How often it was run again.
    pub(crate) times: usize,
}

impl Drift {
    /// Part of 1, negative if it has become slower.
    pub(crate) fn part(&self) -> f64 {
        self.again_iops / self.first_iops - 1.0
    }
}

/// `None` if the first point was not run again, or failed.
pub(crate) fn drift(run: &RunData) -> Option<Drift> {
    let iops = |m: &Measured| m.result.as_ref().map(|r| r.iops()).filter(|iops| *iops > 0.0);
    let again: Vec<&Measured> = run.points.iter().filter(|m| !m.is_planned()).collect();
    let same = |m: &&Measured| m.is_planned() && m.point.config == again[0].point.config;
    let first = run.points.iter().filter(|m| !again.is_empty() && same(m)).min_by_key(|m| m.point.index)?;
    let first_iops = iops(first)?;
    let all: Vec<f64> = again.into_iter().filter_map(iops).collect();
    let apart = |iops: &f64| (iops / first_iops - 1.0).abs();
    let again_iops = all.iter().copied().max_by(|a, b| apart(a).total_cmp(&apart(b)))?;
    Some(Drift { stem: first.point.stem.clone(), first_iops, again_iops, times: all.len() })
}
