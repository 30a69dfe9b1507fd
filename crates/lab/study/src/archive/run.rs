//! `run.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What a plan is mainly about. All charts that the data allow are made.
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

/// What a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// `smoke` if a window is under 60 s, else empty.
    pub label: String,
    pub comparison: Option<Comparison>,
    pub chart: Chart,
    /// The first point run again at the end: its IOPS ÷ those of the first time − 1. `None` until both are measured.
    #[serde(default)]
    pub drift: Option<f64>,
    /// What the plan has but this machine could not run, and why.
    #[serde(default)]
    pub notes: Vec<String>,
}
