//! The files of an archive: a run is opened and read with [`Run`], and written with [`RunWriter`].

use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    Baseline, Point, PointEnd, PointResult, PointState, PointsFile, RUN_FORMAT, RunFile, Samples, is_stem,
};

/// A file of an archive that can't be read, understood or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ArchiveError(String);

impl ArchiveError {
    /// The file system's error in an attempt to do `what` with a path.
    pub fn io<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> ArchiveError + 'a {
        move |source| ArchiveError(format!("cannot {what} {}: {source}", path.display()))
    }
}

/// Writes a file beside its name, syncs it and renames it: a reader sees all of it or none.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // An archive is there to be handed on, while temporary files are their owner's alone.
    let readable = std::fs::Permissions::from_mode(0o644);
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.as_file().set_permissions(readable)?;
        file.persist(path).map_err(|e| e.error)?;
        // The rename itself is durable only when the folder is.
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(ArchiveError::io("write", path))
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ArchiveError> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| ArchiveError::io("write", path)(e.into()))?;
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// `None` if the file does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ArchiveError> {
    let read = || -> std::io::Result<T> { Ok(serde_json::from_slice(&std::fs::read(path)?)?) };
    match read() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(ArchiveError::io("read", path)),
    }
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
        let wrong = |what: String| ArchiveError(format!("{}: {what}", dir.display()));
        let file: RunFile = read_json(&dir.join("run.json"))?.ok_or_else(|| {
            let what = "no run is archived here (there is no run.json); name a folder that `carmine sweep --out` made";
            wrong(what.to_owned())
        })?;
        if file.format != RUN_FORMAT {
            return Err(wrong(format!(
                "archive format {}; this carmine reads format {RUN_FORMAT}: take the carmine that wrote it",
                file.format
            )));
        }
        let PointsFile { points } = read_json(&dir.join("points.json"))?.unwrap_or_default();
        if let Some(Point { stem, .. }) = points.iter().find(|point| !is_stem(&point.stem)) {
            let what = format!("`{stem}` is no file name (letters, digits, `.`, `_` and `-` only)");
            return Err(wrong(what));
        }
        Ok(Run { dir, file, points })
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

    /// The points that were measured, each with its result.
    pub(crate) fn measured(&self) -> Result<Vec<(&Point, PointResult)>, ArchiveError> {
        let done = self.points.iter().filter(|point| self.is_done(point));
        let read = done.map(|point| Ok(self.result(point)?.map(|result| (point, result))));
        read.filter_map(Result::transpose).collect()
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

    /// Writes `points.json`.
    pub fn points(&self, points: &[Point]) -> Result<(), ArchiveError> {
        write_json(&self.dir.join("points.json"), &PointsFile { points: points.to_vec() })
    }

    /// Writes how a point ended: the last of its files, so that a point with a state is whole.
    pub fn state(&self, point: &Point, state: &PointState) -> Result<(), ArchiveError> {
        write_json(&self.point_file(point, "state.json"), state)
    }

    /// Writes a text of the run, such as `plan.toml`.
    pub fn text(&self, name: &str, text: &str) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join(name), text.as_bytes())
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

/// Names of the columns of `points.dat`.
const DAT_HEAD: &str = "# point                                                          iodepth         iops   mb_per_s clat_mean_us   clat_sd_us  clat_p50_us  clat_p99_us  verdict";

/// The text of `points.dat`: a line for each point that was measured, in the order of running.
pub(crate) fn dat_table(run: &Run) -> String {
    let dash = || "-".to_owned();
    let us = |ns: Option<f64>| ns.map_or_else(dash, |ns| format!("{:.1}", ns / 1e3));
    let cells = |point: &Point| {
        let result = run.result(point).ok().flatten().filter(|_| run.is_done(point))?;
        let latency = result.latency().cloned().unwrap_or_default();
        Some([
            point.stem.clone(),
            point.config.show("iodepth").unwrap_or_else(dash),
            format!("{:.0}", result.iops()),
            format!("{:.2}", result.bw_bytes() / 1e6),
            us(Some(latency.mean)),
            us(Some(latency.stddev)),
            us(latency.at(50.0)),
            us(latency.at(99.0)),
            result.carmine.verdict.unwrap_or_else(dash),
        ])
    };
    let line = |[stem, depth, iops, mb, mean, sd, p50, p99, verdict]: [String; 9]| {
        format!(
            "{stem:<64} {depth:>7} {iops:>12} {mb:>10} {mean:>12} {sd:>12} {p50:>12} {p99:>12} {verdict:>8}\n"
        )
    };
    let rows = run.points.iter().filter_map(cells).map(line);
    std::iter::once(format!("{DAT_HEAD}\n")).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Config, PointEnd, PointKind, RUN_FORMAT};
    use super::*;

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
        writer.text("plan.toml", "name = \"smoke\"\n").unwrap();
        let state = PointState {
            state: PointEnd::Done,
            error: None,
            started_unix_s: 5,
            seconds: 1.5,
            attempts: 1,
            condition: serde_json::Value::Null,
        };
        let result = r#"{"jobs":[{"read":{"iops":2500.0,"bw_bytes":10240000,"clat_ns":{"mean":400000.0,"stddev":1000.0}}}]}"#;
        write_whole(&writer.point_file(&points[0], "json"), result.as_bytes()).unwrap();
        writer.state(&points[0], &state).unwrap();
        let run = Run::open(writer.dir()).unwrap();
        assert_eq!((run.file.seed, run.points.len(), run.plan().as_str()), (7, 2, "name = \"smoke\"\n"));
        assert_eq!(run.state(&run.points[0]).unwrap(), Some(state));
        assert!(run.is_done(&run.points[0]) && !run.is_done(&run.points[1]));
        assert_eq!(run.result(&run.points[0]).unwrap().map(|r| r.iops()), Some(2500.0));
        assert!(run.samples(&run.points[0]).unwrap().is_none());
        let dat = dat_table(&run);
        assert!(dat.lines().any(|l| l.starts_with("a_r0") && l.contains("2500")), "{dat}");
        assert!(!dat.contains("a_r1"), "{dat}");
    }

    #[test]
    fn other_formats_strange_names_and_empty_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || Run::open(dir.path()).unwrap_err().to_string();
        assert!(refused().contains("there is no run.json"));
        let writer = RunWriter::create(dir.path()).unwrap();
        writer.run(&run_file(99)).unwrap();
        assert!(refused().contains("archive format 99; this carmine reads format 1"));
        writer.run(&run_file(RUN_FORMAT)).unwrap();
        writer.points(&[point(0, "../../etc/passwd")]).unwrap();
        assert!(refused().contains("`../../etc/passwd` is no file name"));
    }
}
