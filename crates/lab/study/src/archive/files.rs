//! The files of an archive: a run is opened and read with [`Run`], and written with [`RunWriter`].

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    Baseline, Point, PointEnd, PointResult, PointState, PointsFile, RUN_FORMAT, RunFile, Samples, is_stem,
};

/// A file of an archive that can't be read, understood or written.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The file system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Not the JSON that ARCHIVE.md describes.
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// The folder has no `run.json`.
    #[error("{}: no run is archived here (there is no run.json); name a folder that `carmine sweep --out` made", dir.display())]
    NoRun { dir: PathBuf },
    /// Written by another version.
    #[error("{}: archive format {found}; this carmine reads format {wanted}: take the carmine that wrote it", path.display())]
    Format { path: PathBuf, found: u32, wanted: u32 },
    /// Text that would leave the folder, or is not a file name.
    #[error("{}: `{stem}` is no file name (letters, digits, `.`, `_` and `-` only)", path.display())]
    Stem { path: PathBuf, stem: String },
}

impl ArchiveError {
    /// The file system's error in an attempt to do `what` with a path.
    pub fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> ArchiveError + 'a {
        move |source| ArchiveError::Io { what, path: path.to_path_buf(), source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> ArchiveError + '_ {
        move |source| ArchiveError::Json { path: path.to_path_buf(), source }
    }
}

/// Writes a file beside its name, syncs it and renames it: a reader sees all of it or none.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        readable(file.as_file())?;
        file.persist(path).map_err(|e| e.error)?;
        // The rename itself is durable only when the folder is.
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(ArchiveError::io("write", path))
}

/// Temporary files are their owner's alone; an archive is there to be handed on.
fn readable(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ArchiveError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(ArchiveError::json(path))?;
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// `None` if the file does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ArchiveError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ArchiveError::io("read", path)(e)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(ArchiveError::json(path))
}

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
        matches!(self.state(point), Ok(Some(state)) if state.state == PointEnd::Done)
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

/// The folder of a run that is being written.
#[derive(Clone, Debug)]
pub struct RunWriter {
    dir: PathBuf,
}

impl RunWriter {
    /// Makes the folders of a run.
    pub fn create(dir: impl AsRef<Path>) -> Result<RunWriter, ArchiveError> {
        let dir = dir.as_ref().to_path_buf();
        for folder in ["points", "baselines"] {
            let path = dir.join(folder);
            std::fs::create_dir_all(&path).map_err(ArchiveError::io("create", &path))?;
        }
        Ok(RunWriter { dir })
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes `run.json`.
    pub fn run(&self, run: &RunFile) -> Result<(), ArchiveError> {
        write_json(&self.dir.join("run.json"), run)
    }

    /// Writes the plan as it was given.
    pub fn plan(&self, text: &str) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join("plan.toml"), text.as_bytes())
    }

    /// Writes `points.json`.
    pub fn points(&self, points: &[Point]) -> Result<(), ArchiveError> {
        write_json(&self.dir.join("points.json"), &PointsFile { points: points.to_vec() })
    }

    /// Writes how a point ended: the last of its files, so that a point with a state is whole.
    pub fn state(&self, point: &Point, state: &PointState) -> Result<(), ArchiveError> {
        write_json(&self.point_file(point, "state.json"), state)
    }

    /// Writes `commands.sh`.
    pub fn commands(&self, text: &str) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join("commands.sh"), text.as_bytes())
    }

    /// Writes `points.dat` of the points that are done.
    pub fn dat(&self) -> Result<(), ArchiveError> {
        let table = dat_table(&Run::open(&self.dir)?);
        write_whole(&self.dir.join("points.dat"), table.as_bytes())
    }

    /// Path of `points/STEM.ENDING`.
    pub fn point_file(&self, point: &Point, ending: &str) -> PathBuf {
        self.dir.join("points").join(format!("{}.{ending}", point.stem))
    }

    /// Path of `baselines/STEM.json`.
    pub fn baseline_file(&self, point: &Point) -> PathBuf {
        self.dir.join("baselines").join(format!("{}.json", point.stem))
    }
}

/// The table of all points that were measured, in the order of running.
pub fn dat_table(run: &Run) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "# {:<62} {:>7} {:>12} {:>10} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "point",
        "iodepth",
        "iops",
        "mb_per_s",
        "clat_mean_us",
        "clat_sd_us",
        "clat_p50_us",
        "clat_p99_us",
        "verdict"
    );
    for point in &run.points {
        if let (true, Ok(Some(result))) = (run.is_done(point), run.result(point)) {
            text.push_str(&row(point, &result));
        }
    }
    text
}

fn row(point: &Point, result: &PointResult) -> String {
    let latency = result.latency().cloned().unwrap_or_default();
    let us = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
    format!(
        "{:<64} {:>7} {:>12.0} {:>10.2} {:>12} {:>12} {:>12} {:>12} {:>8}\n",
        point.stem,
        point.config.show("iodepth").unwrap_or_else(|| "-".to_owned()),
        result.iops(),
        result.bw_bytes() / 1e6,
        us(Some(latency.mean)),
        us(Some(latency.stddev)),
        us(latency.at(50.0)),
        us(latency.at(99.0)),
        result.carmine.verdict.as_deref().unwrap_or("-"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Config, PointEnd, PointKind, RUN_FORMAT};
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_json(&path, &vec![1, 2]).unwrap();
        write_json(&path, &vec![3]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn absent_is_none_and_damaged_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.json");
        assert_eq!(read_json::<u32>(&path).unwrap(), None);
        std::fs::write(&path, b"{\"a\":").unwrap();
        let error = read_json::<u32>(&path).unwrap_err().to_string();
        assert!(error.contains("b.json"), "{error}");
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = write_whole(Path::new("/nonexistent-folder/x"), b"").unwrap_err().to_string();
        assert!(error.contains("/nonexistent-folder/x"), "{error}");
    }

    fn run_file(format: u32) -> RunFile {
        RunFile { format, name: "smoke".into(), seed: 7, ..RunFile::default() }
    }

    fn point(index: usize, stem: &str) -> Point {
        let mut config = Config::default();
        config.set("workload", "randread4k");
        config.set("iodepth", 4);
        Point { index, stem: stem.into(), kind: PointKind::Point, config, ..Point::default() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let writer = RunWriter::create(dir.path().join("run")).unwrap();
        let points = [point(0, "a_r0"), point(1, "a_r1")];
        writer.run(&run_file(RUN_FORMAT)).unwrap();
        writer.points(&points).unwrap();
        writer.plan("name = \"smoke\"\n").unwrap();
        let state = PointState {
            state: PointEnd::Done,
            error: None,
            started_unix_s: 5,
            seconds: 1.5,
            attempts: 1,
            condition: Value::Null,
        };
        let result = r#"{"jobs":[{"read":{"iops":2500.0,"bw_bytes":10240000,"clat_ns":{"mean":400000.0,"stddev":1000.0}}}]}"#;
        write_whole(&writer.point_file(&points[0], "json"), result.as_bytes()).unwrap();
        writer.state(&points[0], &state).unwrap();
        writer.dat().unwrap();

        let run = Run::open(writer.dir()).unwrap();
        assert_eq!((run.file.seed, run.points.len(), run.plan().as_str()), (7, 2, "name = \"smoke\"\n"));
        assert_eq!(run.state(&run.points[0]).unwrap(), Some(state));
        assert!(run.is_done(&run.points[0]) && !run.is_done(&run.points[1]));
        assert_eq!(run.result(&run.points[0]).unwrap().map(|r| r.iops()), Some(2500.0));
        assert!(run.samples(&run.points[0]).unwrap().is_none());
        let dat = std::fs::read_to_string(writer.dir().join("points.dat")).unwrap();
        assert!(dat.lines().any(|l| l.starts_with("a_r0") && l.contains("2500")), "{dat}");
        assert!(!dat.contains("a_r1"), "{dat}");
    }

    #[test]
    fn other_formats_strange_names_and_empty_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Run::open(dir.path()), Err(ArchiveError::NoRun { .. })));
        let writer = RunWriter::create(dir.path()).unwrap();
        writer.run(&run_file(99)).unwrap();
        assert!(matches!(Run::open(dir.path()), Err(ArchiveError::Format { found: 99, .. })));
        writer.run(&run_file(RUN_FORMAT)).unwrap();
        writer.points(&[point(0, "../../etc/passwd")]).unwrap();
        assert!(matches!(Run::open(dir.path()), Err(ArchiveError::Stem { .. })));
    }
}
