//! `points.json`.

use serde::{Deserialize, Serialize};

use super::Config;

/// Why a point is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PointKind {
    /// A point of the plan.
    #[default]
    Point,
    /// The first point once more, at the end: how far the machine has drifted. Stays out of statistics.
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
