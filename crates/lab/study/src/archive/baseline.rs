//! `baselines/STEM.json`: what the raw device and the raw messenger do with the same load.

use serde::{Deserialize, Serialize};

/// The raw device: the reactor reads and writes it without an OSD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceBaseline {
    pub iops: f64,
    pub bw_bytes: f64,
    pub mean_ns: f64,
    pub p99_ns: f64,
    pub bs_bytes: u64,
    pub iodepth: u32,
    /// `read`, `write`, `randread`, `randwrite` or `randrw`.
    pub rw: String,
    pub flush_mode: String,
    /// Which file or device.
    pub drive: String,
}

/// The raw messenger: echo of messages of the same size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessengerBaseline {
    pub iops: f64,
    pub bw_bytes: f64,
    pub mean_ns: f64,
    pub p99_ns: f64,
    pub bs_bytes: u64,
    pub iodepth: u32,
}

/// Both; a part is absent where there is nothing to measure (a memory store has no device).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    pub device: Option<DeviceBaseline>,
    pub messenger: Option<MessengerBaseline>,
}
