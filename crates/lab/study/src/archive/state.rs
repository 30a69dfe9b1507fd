//! `points/STEM.state.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a point ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Done,
    Failed,
    /// Left out: the curve was stopped before it.
    Skipped,
}

/// State of a point that was run. A point without this file has not been run to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointState {
    pub state: State,
    /// What failed: the command, and the end of what it said; or why it was skipped.
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
