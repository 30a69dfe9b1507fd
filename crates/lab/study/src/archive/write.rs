//! Writing a run; every file is whole or absent.

use std::path::{Path, PathBuf};

use super::files::write_json;
use super::{ArchiveError, Point, PointState, PointsFile, Run, RunFile, dat_table, write_whole};

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

#[cfg(test)]
mod tests {
    use super::super::{Build, Chart, Config, PointKind, RUN_FORMAT, State};
    use super::*;
    use serde_json::Value;

    fn run_file(format: u32) -> RunFile {
        RunFile {
            format,
            name: "smoke".into(),
            created_unix_s: 1,
            finished_unix_s: None,
            seed: 7,
            carmine: Build::default(),
            kernel: "6".into(),
            host: Value::Null,
            doctor: Value::Null,
            command: vec!["carmine".into()],
            complete: false,
            label: "smoke".into(),
            comparison: None,
            chart: Chart::Scaling,
            drift: None,
            notes: Vec::new(),
        }
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
            state: State::Done,
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
