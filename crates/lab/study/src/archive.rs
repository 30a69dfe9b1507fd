//! The archive of a run: the shapes of ARCHIVE.md as types. `files` reads and writes them; readers never panic, and writers leave
//! a file whole or absent.

mod files;
mod result;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use carmine_load::baseline::{Baseline, DeviceBaseline, MessengerBaseline};
pub use carmine_load::samples::{CoresUsed, CpuSamples, Instrument, NvmeSamples, Samples, ThreadSamples};
pub use files::{ArchiveError, Run, RunWriter, dat_table, write_whole};
pub(crate) use files::{read_json, write_json};
pub use result::{
    CarmineResult, CpuSeconds, Direction, Job, LatencyHistograms, LatencyNs, OsdResult, PerCore, PointResult,
};

/// Number of the archive's format; another one is refused.
pub const RUN_FORMAT: u32 = 1;

/// How the program that ran it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub git_hash: String,
    #[serde(default)]
    pub profile: String,
    #[serde(default)]
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
    #[serde(default)]
    pub drift: Option<f64>,
    /// Parts of the plan that this machine could not run, with the reason.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Number of the study that it is, and the question that it answers.
    #[serde(default)]
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
    #[serde(default)]
    pub arm: Option<String>,
    /// Equal for the points of one response-latency curve.
    #[serde(default)]
    pub curve: Option<String>,
    /// Which repetition it is, from 0.
    #[serde(default)]
    pub repeat: u32,
    /// Index of the pair of a comparison: points of different arms with the same pair were run side by side.
    #[serde(default)]
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
        resized().or_else(|| self.get(axis).map(as_text))
    }

    /// The workload's name with the bytes of its operations, where the configuration gives both.
    pub(crate) fn workload_with_size(&self) -> Option<String> {
        let workload = crate::plan::workload(self.text("workload")?)?;
        self.number("bs_bytes").map(|bytes| workload.name_with(bytes))
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
        let mut axes: Vec<&str> = self
            .0
            .keys()
            .chain(other.0.keys())
            .map(String::as_str)
            .filter(|a| self.get(a) != other.get(a))
            .collect();
        axes.sort_unstable();
        axes.dedup();
        axes
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
    #[serde(default)]
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

/// Text without quotes, anything else as JSON.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value as part of a file name: letters, digits, `.` and `-`; anything else becomes `-`.
pub fn stem_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
}

/// Axes that every stem shows, in its head; the workload's name has `bs_bytes` in it.
const HEAD: [&str; 7] = ["store", "osds", "reactors", "balance", "pool_size", "workload", "iodepth"];

/// The stem of a point: head, then `_{axis}{value}` of the other axes that vary in this plan, then the repeat.
pub fn stem(config: &Config, varying: &[String], repeat: u32, again: bool) -> String {
    let value =
        |axis: &str, default: &str| stem_word(&config.show(axis).unwrap_or_else(|| default.to_owned()));
    let mut text = format!(
        "{}_{}osd_{}reactor_{}_size{}_{}_qd{}",
        value("store", "blue"),
        value("osds", "1"),
        value("reactors", "1"),
        value("balance", "default"),
        value("pool_size", "1"),
        value("workload", "none"),
        value("iodepth", "1"),
    );
    let in_head =
        |axis: &str| HEAD.contains(&axis) || axis == "bs_bytes" && config.workload_with_size().is_some();
    for axis in varying.iter().filter(|axis| !in_head(axis)) {
        if let Some(value) = config.show(axis) {
            text.push_str(&format!("_{}{}", stem_word(axis).replace('.', "-"), stem_word(&value)));
        }
    }
    text.push_str(&format!("_r{repeat}"));
    if again {
        text.push_str("_again");
    }
    text
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
        assert_eq!(stem(&config(), &varying, 0, false), "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_r0");
    }

    #[test]
    fn other_axes_that_vary_follow() {
        let text = stem(&config(), &["poll".to_owned()], 1, true);
        assert_eq!(text, "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_polladaptive-10_r1_again");
        assert!(is_stem(&text));
    }

    #[test]
    fn the_workload_is_named_by_what_runs() {
        let mut config = config();
        config.set("bs_bytes", 65536);
        assert_eq!(config.show("workload").as_deref(), Some("randwrite64k"));
        let text = stem(&config, &["bs_bytes".to_owned()], 0, false);
        assert_eq!(text, "blue_3osd_2reactor_osd_size3_randwrite64k_qd16_r0");
        // Its value stays the plan's.
        assert_eq!(config.text("workload"), Some("randwrite4k"));
        config.set("workload", "of another version");
        assert_eq!(config.show("workload").as_deref(), Some("of another version"));
        assert!(stem(&config, &["bs_bytes".to_owned()], 0, false).contains("_bs-bytes65536_"));
    }

    #[test]
    fn a_stem_stays_in_its_folder() {
        for bad in ["", "../a", "a/b", ".hidden", "a b", "ü"] {
            assert!(!is_stem(bad), "{bad}");
        }
    }
}
