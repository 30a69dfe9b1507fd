//! The files of an archive: a run is made or opened, read and written with [`Run`].

use std::path::{Path, PathBuf};

use carmine_load::report::show;
pub use carmine_testbed::TestbedError as ArchiveError;
use carmine_testbed::{fail_if, failed, read_json, write_json, write_whole};

use super::{Point, PointEnd, PointResult, PointState, PointsFile, RUN_FORMAT, RunFile, Samples, is_stem};

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
        let name = dir.display();
        let file: RunFile = read_json(&dir.join("run.json"))?.ok_or_else(|| {
            failed!(
                "{name}: no run is archived here (there is no run.json); name a folder that `carmine sweep --out` made"
            )
        })?;
        fail_if!(
            file.format != RUN_FORMAT,
            "{name}: archive format {}; this carmine reads format {RUN_FORMAT}: take the carmine that wrote it",
            file.format
        );
        let PointsFile { points } = read_json(&dir.join("points.json"))?.unwrap_or_default();
        if let Some(Point { stem, .. }) = points.iter().find(|point| !is_stem(&point.stem)) {
            return Err(failed!("{name}: `{stem}` is not a file name (letters, digits, `.`, `_` and `-`)"));
        }
        Ok(Run { dir, file, points })
    }

    /// Makes the folders of a run.
    pub fn create(dir: impl AsRef<Path>, file: RunFile) -> Result<Run, ArchiveError> {
        let dir = dir.as_ref().to_path_buf();
        for folder in ["points", "baselines"] {
            fs_err::create_dir_all(dir.join(folder))?;
        }
        Ok(Run { dir, file, points: Vec::new() })
    }

    /// Writes `run.json`.
    pub fn save(&self) -> Result<(), ArchiveError> {
        write_json(&self.dir.join("run.json"), &self.file)
    }

    /// Writes `points.json`.
    pub fn save_points(&self, points: Vec<Point>) -> Result<(), ArchiveError> {
        write_json(&self.dir.join("points.json"), &PointsFile { points })
    }

    /// Writes how a point ended: the last of its files, so that a point with a state is whole.
    pub fn save_state(&self, point: &Point, state: &PointState) -> Result<(), ArchiveError> {
        write_json(&self.point_file(point, "state.json"), state)
    }

    /// Writes a text of the run, such as `plan.toml`.
    pub fn save_text(&self, name: &str, text: &str) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join(name), text.as_bytes())
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

    /// `points/STEM.ENDING`.
    pub fn point_file(&self, point: &Point, ending: &str) -> PathBuf {
        self.dir.join("points").join(format!("{}.{ending}", point.stem))
    }

    /// `baselines/STEM.json`.
    pub fn baseline_file(&self, point: &Point) -> PathBuf {
        self.dir.join("baselines").join(format!("{}.json", point.stem))
    }
}

/// Names of the columns of `points.dat`.
const DAT_HEAD: &str = "# point                                                          iodepth         iops   mb_per_s clat_mean_us   clat_sd_us  clat_p50_us  clat_p99_us  verdict";

/// The text of `points.dat`: a line for each of these points, which were measured.
pub(crate) fn dat_table<'a>(measured: impl IntoIterator<Item = (&'a Point, &'a PointResult)>) -> String {
    let dash = || "-".to_owned();
    let us = |ns: Option<f64>| show(ns.map(|ns| ns / 1e3), 1);
    let line = |(point, result): (&Point, &PointResult)| {
        let latency = result.latency().cloned().unwrap_or_default();
        let (stem, depth) = (&point.stem, point.config.show("iodepth").unwrap_or_else(dash));
        let (iops, mb) = (result.iops(), result.bw_bytes() / 1e6);
        let (mean, sd) = (us(Some(latency.mean)), us(Some(latency.stddev)));
        let (p50, p99) = (us(latency.at(50.0)), us(latency.at(99.0)));
        let verdict = result.carmine.verdict.as_deref().unwrap_or("-");
        format!(
            "{stem:<64} {depth:>7} {iops:>12.0} {mb:>10.2} {mean:>12} {sd:>12} {p50:>12} {p99:>12} {verdict:>8}\n"
        )
    };
    std::iter::once(format!("{DAT_HEAD}\n")).chain(measured.into_iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Config, PointKind};
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
        let writer = Run::create(dir.path().join("run"), run_file(RUN_FORMAT)).unwrap();
        let points = [point(0, "a_r0"), point(1, "a_r1")];
        writer.save().unwrap();
        writer.save_points(points.to_vec()).unwrap();
        writer.save_text("plan.toml", "name = \"smoke\"\n").unwrap();
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
        writer.save_state(&points[0], &state).unwrap();
        let run = Run::open(writer.dir()).unwrap();
        assert_eq!((run.file.seed, run.points.len(), run.plan().as_str()), (7, 2, "name = \"smoke\"\n"));
        assert_eq!(run.state(&run.points[0]).unwrap(), Some(state));
        assert!(run.is_done(&run.points[0]) && !run.is_done(&run.points[1]));
        assert_eq!(run.result(&run.points[0]).unwrap().map(|r| r.iops()), Some(2500.0));
        assert!(run.samples(&run.points[0]).unwrap().is_none());
        let measured = run.measured().unwrap();
        let dat = dat_table(measured.iter().map(|(point, result)| (*point, result)));
        assert!(dat.lines().any(|l| l.starts_with("a_r0") && l.contains("2500")), "{dat}");
        assert!(!dat.contains("a_r1"), "{dat}");
    }

    #[test]
    fn other_formats_strange_names_and_empty_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || Run::open(dir.path()).unwrap_err().to_string();
        assert!(refused().contains("there is no run.json"));
        let writer = Run::create(dir.path(), run_file(99)).unwrap();
        writer.save().unwrap();
        assert!(refused().contains("archive format 99; this carmine reads format 1"));
        Run { file: run_file(RUN_FORMAT), ..writer.clone() }.save().unwrap();
        writer.save_points(vec![point(0, "../../etc/passwd")]).unwrap();
        assert!(refused().contains("`../../etc/passwd` is not a file name"));
    }
}
