//! `points/STEM.samples.json`. What a machine does not have is absent, not zero.

use std::collections::BTreeMap;

pub use carmine_load::samples::{CoresUsed, CpuSamples, NvmeSamples, ThreadSamples};
use serde::{Deserialize, Serialize};

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
    /// NVMe drives under the OSDs.
    pub nvme: Vec<NvmeSamples>,
}
