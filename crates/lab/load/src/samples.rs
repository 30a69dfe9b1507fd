//! Parts of the file of `carmine bench --samples`: what writes it and what reads it have them in common.

use std::collections::BTreeMap;

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
    /// `reactor`, `alien`, `rocksdb` (its own threads) or `other`.
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

/// Fields of an NVMe drive's SMART log that are known, by name: `critical_warning` (bits), `temperature_c`,
/// `available_spare_percent`, `percentage_used`, `data_units_read` and `data_units_written` (of 512,000 bytes),
/// `host_read_commands`, `host_write_commands`, `media_errors`, `unsafe_shutdowns`.
pub type SmartLog = BTreeMap<String, i64>;

/// The SMART log of an NVMe drive at both ends of a window. Without `missing` all three are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvmeSamples {
    /// Its name below `/dev`.
    pub drive: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub start: SmartLog,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub end: SmartLog,
    /// `end` less `start`, without `critical_warning`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub difference: SmartLog,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}
