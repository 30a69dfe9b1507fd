//! Parts of the file of `carmine bench --samples`: what writes it and what reads it have them in common.

use serde::{Deserialize, Serialize};

/// One CPU over time, in parts of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSamples {
    pub cpu: u32,
    /// With `nice`.
    pub user: Vec<Option<f64>>,
    pub system: Vec<Option<f64>>,
    pub irq: Vec<Option<f64>>,
    pub softirq: Vec<Option<f64>>,
    pub steal: Vec<Option<f64>>,
    /// With `iowait`: the CPU could have run anything.
    pub idle: Vec<Option<f64>>,
}

/// A thread of an OSD over the whole window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadSamples {
    pub osd: u32,
    pub tid: u32,
    pub name: String,
    /// `reactor`, `alien` or `other`.
    pub kind: String,
    pub user_s: f64,
    pub system_s: f64,
    /// Ready, but without a CPU.
    pub wait_s: f64,
    /// Moves to another CPU; `None` where the kernel does not tell.
    pub migrations: Option<u64>,
}

/// Cores that the OSDs used in windows of 10 ms: how bursty they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoresUsed {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}
