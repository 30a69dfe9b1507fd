//! The archive of a run: the shapes of ARCHIVE.md as types. [`Run`] reads and writes them; readers never panic, and writers leave
//! a file whole or absent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use carmine_load::baseline::{Baseline, DeviceBaseline, MessengerBaseline};
pub use carmine_load::report::{CpuSeconds, LatencyHistograms, PerCore, Report as CarmineResult};
pub use carmine_load::window::{CoresUsed, CpuSamples, Instrument, NvmeSamples, Samples, ThreadSamples};
pub use carmine_testbed::{TestbedError as ArchiveError, write_whole};
use carmine_testbed::{read_json, write_json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lists::distinct;

/// Number of the archive's format; another one is refused.
pub const RUN_FORMAT: u32 = 1;

/// How the program that ran it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    pub version: String,
    pub git_hash: String,
    pub profile: String,
    pub allocator: String,
}

/// The comparison that the plan makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The axis whose values are compared.
    pub axis: String,
    /// Names of the arms as in [`super::Point::arm`]; the first is the base.
    pub arms: Vec<String>,
}

/// The main subject of a plan. A report makes all charts that the data allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// IOPS against reactors, cores or OSDs.
    Scaling,
    /// Response-latency curve.
    Curve,
    /// Arms beside each other with intervals.
    Compare,
    /// One bar a point.
    #[default]
    Bars,
}

/// A run: its plan, the program and machine that ran it, and how far it got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// [`RUN_FORMAT`].
    pub format: u32,
    /// Name of the plan.
    pub name: String,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// `None` until all points were run.
    pub finished_unix_s: Option<u64>,
    pub seed: u64,
    pub carmine: Build,
    pub kernel: String,
    /// As in a result.
    pub host: Value,
    /// Findings of `carmine doctor --json`; null if it was not asked.
    pub doctor: Value,
    /// The command line.
    pub command: Vec<String>,
    /// Every point has been run, be it done or failed.
    pub complete: bool,
    /// `smoke` if a window is under 10 s, else empty.
    pub label: String,
    pub comparison: Option<Comparison>,
    pub chart: Chart,
    /// The first point run again, the last time: its IOPS ÷ those of the first time − 1. `None` until both are measured.
    pub drift: Option<f64>,
    /// Parts of the plan that this machine could not run, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Number of the study that it is, and the question that it answers.
    pub study: Option<u8>,
    #[serde(default)]
    pub question: String,
    /// Differences between the arms that are not what is compared; each begins with CONFOUNDED.
    #[serde(default)]
    pub confounds: Vec<String>,
}

/// Why a point is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PointKind {
    /// A point of the plan.
    #[default]
    Point,
    /// The first point once more, from time to time and at the end: how far the machine has drifted. Stays out of statistics.
    Again,
}

/// One point: a configuration, measured once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Place in the order of running, from 0.
    pub index: usize,
    /// Name of its files.
    pub stem: String,
    pub kind: PointKind,
    /// Name of its configuration in a comparison, such as `balance=osd`.
    pub arm: Option<String>,
    /// Equal for the points of one response-latency curve.
    pub curve: Option<String>,
    /// Which repetition it is, from 0.
    #[serde(default)]
    pub repeat: u32,
    /// Index of the pair of a comparison: points of different arms with the same pair were run side by side.
    pub pair: Option<u32>,
    /// Name of the prefilled folder that it uses.
    #[serde(default)]
    pub layout: String,
    pub config: Config,
}

/// All points of a run, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointsFile {
    pub points: Vec<Point>,
}

/// Values of a point's axes, by the names that plans use. An axis that is absent had the default of `carmine up` or `bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub BTreeMap<String, Value>);

impl Config {
    /// The value of an axis.
    pub fn get(&self, axis: &str) -> Option<&Value> {
        self.0.get(axis)
    }

    /// The value as a whole number; `None` if absent or not one.
    pub fn number(&self, axis: &str) -> Option<u64> {
        self.get(axis)?.as_u64()
    }

    /// The value as a number; `None` if absent or not one.
    pub fn float(&self, axis: &str) -> Option<f64> {
        self.get(axis)?.as_f64()
    }

    /// The value if it is text.
    pub fn text(&self, axis: &str) -> Option<&str> {
        self.get(axis)?.as_str()
    }

    /// The value as people write it: text without quotes, numbers as they are. A workload is named by what runs: with `bs_bytes`
    /// of 64K, `randread4k` is `randread64k`.
    pub fn show(&self, axis: &str) -> Option<String> {
        let resized = || self.workload_with_size().filter(|_| axis == "workload");
        resized().or_else(|| match self.get(axis)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
    }

    /// The workload's name with the bytes of its operations, where the configuration gives both.
    pub(crate) fn workload_with_size(&self) -> Option<String> {
        let workload = self.text("workload").filter(|name| crate::plan::workload(name).is_some())?;
        self.number("bs_bytes").map(|bytes| crate::plan::resized(workload, bytes))
    }

    /// Sets the value of an axis.
    pub fn set(&mut self, axis: &str, value: impl Into<Value>) {
        self.0.insert(axis.to_owned(), value.into());
    }

    /// The axes that `keep` names.
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Config {
        Config(self.0.iter().filter(|(axis, _)| keep(axis)).map(|(a, v)| (a.clone(), v.clone())).collect())
    }

    /// Axes on which two configurations differ, in alphabetical order.
    pub fn differences<'a>(&'a self, other: &'a Config) -> Vec<&'a str> {
        let axes: BTreeSet<&str> = self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        axes.into_iter().filter(|axis| self.get(axis) != other.get(axis)).collect()
    }
}

/// How a point ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PointEnd {
    Done,
    Failed,
    /// Left out: the curve was stopped before it.
    Skipped,
}

/// State of a point that was run. A point without this file has not been run to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointState {
    pub state: PointEnd,
    /// The command that failed and the end of its output; or why the point was skipped.
    pub error: Option<String>,
    /// Seconds since 1970 when its first command started.
    pub started_unix_s: u64,
    /// Length of all its commands, seconds.
    pub seconds: f64,
    /// How often it was tried, also by sweeps that were stopped.
    #[serde(default)]
    pub attempts: u32,
    /// Condition of the testbed at its start: what its store went through before (text or object), null if not known.
    #[serde(default)]
    pub condition: Value,
}

/// Latency as fio gives it, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyNs {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub stddev: f64,
    /// Percent with six decimals, such as `99.000000` → nanoseconds.
    pub percentile: BTreeMap<String, f64>,
}

impl LatencyNs {
    /// A percentile such as 99.9, nanoseconds.
    pub fn at(&self, percent: f64) -> Option<f64> {
        self.percentile.get(&format!("{percent:.6}")).copied()
    }
}

/// Reads or writes of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Direction {
    pub iops: f64,
    pub bw_bytes: f64,
    pub clat_ns: LatencyNs,
}

/// One entry of fio's `jobs[]`; there is one for all jobs together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    pub read: Direction,
    pub write: Direction,
}

/// A result file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PointResult {
    pub jobs: Vec<Job>,
    pub carmine: CarmineResult,
}

impl PointResult {
    /// Reads of all jobs; `None` if there were none.
    pub fn read(&self) -> Option<&Direction> {
        self.jobs.first().map(|job| &job.read).filter(|d| d.iops > 0.0)
    }

    /// Writes of all jobs; `None` if there were none.
    pub fn write(&self) -> Option<&Direction> {
        self.jobs.first().map(|job| &job.write).filter(|d| d.iops > 0.0)
    }

    /// Client operations per second, both directions.
    pub fn iops(&self) -> f64 {
        self.directions().map(|d| d.iops).sum()
    }

    /// Client bytes per second, both directions.
    pub fn bw_bytes(&self) -> f64 {
        self.directions().map(|d| d.bw_bytes).sum()
    }

    /// Latency of the direction that has most operations.
    pub fn latency(&self) -> Option<&LatencyNs> {
        self.directions().max_by(|a, b| a.iops.total_cmp(&b.iops)).map(|d| &d.clat_ns)
    }

    /// The words with which its marks begin, each once.
    pub fn mark_words(&self) -> Vec<&str> {
        distinct(self.carmine.marks.iter().filter_map(|mark| Some(mark.split_once(':')?.0)))
    }

    /// True if a mark begins with this word.
    pub fn has_mark(&self, word: &str) -> bool {
        self.carmine.marks.iter().any(|mark| mark.starts_with(word))
    }

    fn directions(&self) -> impl Iterator<Item = &Direction> {
        [self.read(), self.write()].into_iter().flatten()
    }
}

/// A value as part of a file name: letters, digits, `.` and `-`; anything else becomes `-`.
pub(crate) fn stem_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
}

/// Axes that every stem shows, in its head, each with what is before its value and behind it, and its default. The workload's
/// name has `bs_bytes` in it.
const HEAD: [(&str, &str, &str, &str); 7] = [
    ("store", "", "", "blue"),
    ("osds", "_", "osd", "1"),
    ("reactors", "_", "reactor", "1"),
    ("balance", "_", "", "default"),
    ("pool_size", "_size", "", "1"),
    ("workload", "_", "", "none"),
    ("iodepth", "_qd", "", "1"),
];

/// The stem of a point: head, then `_{axis}{value}` of the other axes that vary in this plan, then the repeat.
pub(crate) fn stem(config: &Config, varying: &[String], repeat: u32) -> String {
    let value = |axis: &str| config.show(axis).map(|value| stem_word(&value));
    let head = HEAD.iter().map(|(axis, before, behind, default)| {
        format!("{before}{}{behind}", value(axis).unwrap_or_else(|| (*default).to_owned()))
    });
    let in_head = |axis: &str| {
        HEAD.iter().any(|head| head.0 == axis) || axis == "bs_bytes" && config.workload_with_size().is_some()
    };
    let others = varying.iter().filter(|axis| !in_head(axis));
    let others =
        others.filter_map(|axis| Some(format!("_{}{}", stem_word(axis).replace('.', "-"), value(axis)?)));
    head.chain(others).chain([format!("_r{repeat}")]).collect()
}

/// True if the text is a file name that stays in its folder.
fn is_stem(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.len() <= 240 && !text.starts_with('.') && text.chars().all(plain)
}

// The files of an archive: a run is made or opened, read and written with [`Run`].

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
        let wrong = |what: String| ArchiveError::Failed(format!("{}: {what}", dir.display()));
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

    /// Makes the folders of a run.
    pub fn create(dir: impl AsRef<Path>, file: RunFile) -> Result<Run, ArchiveError> {
        let dir = dir.as_ref().to_path_buf();
        for folder in ["points", "baselines"] {
            let path = dir.join(folder);
            std::fs::create_dir_all(&path).map_err(ArchiveError::io("create", &path))?;
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
            result.carmine.verdict.map_or_else(dash, |limiter| limiter.to_string()),
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
    use super::*;

    #[test]
    fn values_are_read_by_kind() {
        let mut config = Config::default();
        config.set("osds", 3);
        config.set("store", "blue");
        config.set("rate_iops", 12.5);
        assert_eq!((config.number("osds"), config.text("store")), (Some(3), Some("blue")));
        assert_eq!((config.float("rate_iops"), config.number("store")), (Some(12.5), None));
        assert_eq!((config.show("store"), config.show("osds")), (Some("blue".into()), Some("3".into())));
    }

    #[test]
    fn differences_name_axes_of_either_side() {
        let (mut a, mut b) = (Config::default(), Config::default());
        a.set("osds", 1);
        b.set("osds", 1);
        a.set("balance", "osd");
        b.set("balance", "socket");
        b.set("pgs", 32);
        assert_eq!(a.differences(&b), ["balance", "pgs"]);
    }

    fn config() -> Config {
        let mut config = Config::default();
        for (axis, value) in [("osds", 3), ("reactors", 2), ("pool_size", 3), ("iodepth", 16)] {
            config.set(axis, value);
        }
        for (axis, value) in
            [("store", "blue"), ("balance", "osd"), ("workload", "randwrite4k"), ("poll", "adaptive:10")]
        {
            config.set(axis, value);
        }
        config
    }

    #[test]
    fn the_stem_of_the_page() {
        let varying = vec!["osds".to_owned(), "iodepth".to_owned()];
        assert_eq!(stem(&config(), &varying, 0), "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_r0");
    }

    #[test]
    fn other_axes_that_vary_follow() {
        let text = stem(&config(), &["poll".to_owned()], 1);
        assert_eq!(text, "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_polladaptive-10_r1");
        assert!(is_stem(&text));
    }

    #[test]
    fn the_workload_is_named_by_what_runs() {
        let mut config = config();
        config.set("bs_bytes", 65536);
        assert_eq!(config.show("workload").as_deref(), Some("randwrite64k"));
        let text = stem(&config, &["bs_bytes".to_owned()], 0);
        assert_eq!(text, "blue_3osd_2reactor_osd_size3_randwrite64k_qd16_r0");
        // Its value stays the plan's.
        assert_eq!(config.text("workload"), Some("randwrite4k"));
        config.set("workload", "of another version");
        assert_eq!(config.show("workload").as_deref(), Some("of another version"));
        assert!(stem(&config, &["bs_bytes".to_owned()], 0).contains("_bs-bytes65536_"));
    }

    #[test]
    fn a_stem_stays_in_its_folder() {
        for bad in ["", "../a", "a/b", ".hidden", "a b", "ü"] {
            assert!(!is_stem(bad), "{bad}");
        }
    }

    #[test]
    fn a_result_of_a_peer_that_knows_little_is_read() {
        let text = r#"{"jobs":[{"read":{"iops":10.0,"bw_bytes":40960,"clat_ns":{"mean":5.0,"percentile":{"99.000000":9}}},
            "write":{"iops":0}}],"carmine":{"shared":true,"iops_per_core":{"used":null},"marks":["SHARED: x"]},"more":1}"#;
        let result: PointResult = serde_json::from_str(text).unwrap();
        assert_eq!((result.iops(), result.bw_bytes()), (10.0, 40960.0));
        assert!(result.write().is_none() && result.carmine.shared);
        assert_eq!(result.latency().and_then(|l| l.at(99.0)), Some(9.0));
        assert_eq!(result.latency().and_then(|l| l.at(50.0)), None);
    }

    #[test]
    fn a_mix_takes_the_latency_of_the_larger_half() {
        let direction = |iops, mean| Direction {
            iops,
            clat_ns: LatencyNs { mean, ..Default::default() },
            ..Default::default()
        };
        let job = Job { read: direction(70.0, 1.0), write: direction(30.0, 2.0) };
        let result = PointResult { jobs: vec![job], ..Default::default() };
        assert_eq!((result.iops(), result.latency().map(|l| l.mean)), (100.0, Some(1.0)));
    }
}

#[cfg(test)]
mod files_tests {
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
        let dat = dat_table(&run);
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
        assert!(refused().contains("`../../etc/passwd` is no file name"));
    }
}
