//! Reading a run.

use std::path::{Path, PathBuf};

use super::files::read_json;
use super::stem::is_stem;
use super::{
    ArchiveError, Baseline, Point, PointResult, PointState, PointsFile, RUN_FORMAT, RunFile, Samples, State,
};

/// A run that lies on disk, finished or not.
#[derive(Clone, Debug)]
pub struct Run {
    dir: PathBuf,
    pub file: RunFile,
    /// In the order of running.
    pub points: Vec<Point>,
}

impl Run {
    /// Opens the folder of a run. Fails if it has no `run.json`, one of another format, or names that leave the folder.
    pub fn open(dir: impl AsRef<Path>) -> Result<Run, ArchiveError> {
        let dir = dir.as_ref().to_path_buf();
        let path = dir.join("run.json");
        let file: RunFile = read_json(&path)?.ok_or_else(|| ArchiveError::NoRun { dir: dir.clone() })?;
        if file.format != RUN_FORMAT {
            return Err(ArchiveError::Format { path, found: file.format, wanted: RUN_FORMAT });
        }
        let path = dir.join("points.json");
        let points: PointsFile = read_json(&path)?.unwrap_or_default();
        match points.points.iter().find(|point| !is_stem(&point.stem)) {
            Some(point) => Err(ArchiveError::Stem { path, stem: point.stem.clone() }),
            None => Ok(Run { dir, file, points: points.points }),
        }
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The plan as given, empty if it is not there.
    pub fn plan(&self) -> String {
        std::fs::read_to_string(self.dir.join("plan.toml")).unwrap_or_default()
    }

    /// The result of a point, `None` if it has none.
    pub fn result(&self, point: &Point) -> Result<Option<PointResult>, ArchiveError> {
        read_json(&self.point_file(point, "json"))
    }

    /// The result as it lies there, with all that reports do not use.
    pub fn result_value(&self, point: &Point) -> Result<Option<serde_json::Value>, ArchiveError> {
        read_json(&self.point_file(point, "json"))
    }

    /// Samples of a point's window, `None` if there are none.
    pub fn samples(&self, point: &Point) -> Result<Option<Samples>, ArchiveError> {
        read_json(&self.point_file(point, "samples.json"))
    }

    /// How a point ended, `None` if it was not run to its end.
    pub fn state(&self, point: &Point) -> Result<Option<PointState>, ArchiveError> {
        read_json(&self.point_file(point, "state.json"))
    }

    /// True if the point was measured.
    pub fn is_done(&self, point: &Point) -> bool {
        matches!(self.state(point), Ok(Some(state)) if state.state == State::Done)
    }

    /// Output of the commands of a point that failed, empty if none was kept.
    pub fn log(&self, point: &Point) -> String {
        let bytes = std::fs::read(self.point_file(point, "log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The baseline beside a point, `None` if it was not measured.
    pub fn baseline(&self, point: &Point) -> Result<Option<Baseline>, ArchiveError> {
        read_json(&self.dir.join("baselines").join(format!("{}.json", point.stem)))
    }

    /// `points/STEM.ENDING`.
    pub fn point_file(&self, point: &Point, ending: &str) -> PathBuf {
        self.dir.join("points").join(format!("{}.{ending}", point.stem))
    }
}
