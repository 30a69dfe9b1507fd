//! `points/STEM.samples.json`. What a machine does not have is absent, not zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One CPU over time, parts of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSamples {
    pub cpu: u32,
    pub user: Vec<Option<f64>>,
    pub system: Vec<Option<f64>>,
    pub irq: Vec<Option<f64>>,
    pub softirq: Vec<Option<f64>>,
    pub steal: Vec<Option<f64>>,
    pub idle: Vec<Option<f64>>,
}

/// One thread of an OSD over the whole window.
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
    /// Ready but without a CPU.
    pub wait_s: f64,
    pub migrations: Option<u64>,
}

/// Cores used in windows of 10 ms: how bursty the OSDs are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoresUsed {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// What sampling itself costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instrument {
    /// CPU of the sampler, cores.
    pub cores: Option<f64>,
}

/// Samples of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Samples {
    pub interval_ms: u64,
    /// Milliseconds since the window's start, one per sample.
    pub t_ms: Vec<f64>,
    /// Name with its unit → one value per sample, `None` where not known.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
    pub cpus: Vec<CpuSamples>,
    pub threads: Vec<ThreadSamples>,
    pub cores_used_10ms: Option<CoresUsed>,
    pub instrument: Option<Instrument>,
}
