//! The archive of a run: the shapes of ARCHIVE.md as types. `files` reads and writes them; readers never panic, and writers leave
//! a file whole or absent.

mod files;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use carmine_load::baseline::Baseline;
pub use carmine_load::report::{CpuSeconds, LatencyHistograms, PerCore, Report as CarmineResult};
pub use carmine_load::samples::{CoresUsed, CpuSamples, Instrument, NvmeSamples, Samples, ThreadSamples};
pub use carmine_testbed::write_whole;
pub(crate) use files::dat_table;
pub use files::{ArchiveError, Run};

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
    /// `smoke` if a window is under 10 s, otherwise empty.
    pub label: String,
    pub comparison: Option<Comparison>,
    pub chart: Chart,
    /// The last repetition of the first point: its IOPS ÷ those of the first time − 1. `None` until both are measured.
    pub drift: Option<f64>,
    /// Parts of the plan that this machine could not run, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Number of the study that it is, and the question that it answers.
    pub study: Option<u8>,
    #[serde(default)]
    pub question: String,
    /// Of a plan that searches for the highest rate under it: the p99 in milliseconds.
    #[serde(default)]
    pub search_p99_ms: Option<f64>,
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

    /// The value as people write it: text without quotes, numbers as they are. A workload is named after the load that runs: with `bs_bytes`
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

    /// The configuration as its plan has it: without a rate that is computed when a point runs, which differs between repeats.
    pub fn asked(&self) -> Config {
        let is_computed = ["rate_percent", "search_step"].iter().any(|axis| self.get(axis).is_some());
        self.only(|axis| !is_computed || axis != "rate_iops")
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

carmine_types::words! {
    /// How a point ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PointEnd: "end of a point" {
        Done = "done",
        Failed = "failed",
        /// Not run: the curve ended earlier.
        Skipped = "skipped",
    }
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

    /// CPU seconds of all OSDs by this clock; `None` if an OSD lacks it.
    pub fn osd_seconds(&self, clock: fn(&CpuSeconds) -> Option<f64>) -> Option<f64> {
        let osds = &self.carmine.osds;
        osds.iter().map(|osd| clock(&osd.cpu_seconds)).sum::<Option<f64>>().filter(|_| !osds.is_empty())
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

/// Axes that every stem shows at its head, each with the text before its value and behind it, and its default. The workload's
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
            "write":{"iops":0}}],"carmine":{"shared":true,"iops_per_core":{"used":null},"marks":["SHARED: x"],
            "verdict":"THERMAL","cache_state":"lukewarm","load":{"rw":"zonewrite"}},"more":1}"#;
        let result: PointResult = serde_json::from_str(text).unwrap();
        assert_eq!((result.iops(), result.bw_bytes()), (10.0, 40960.0));
        assert!(result.write().is_none() && result.carmine.shared);
        assert_eq!(result.latency().and_then(|l| l.at(99.0)), Some(9.0));
        assert_eq!(result.latency().and_then(|l| l.at(50.0)), None);
        // Words of another version stay as they are.
        assert_eq!(
            (result.carmine.verdict.as_deref(), &result.carmine.load["rw"]),
            (Some("THERMAL"), &"zonewrite".into())
        );
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
