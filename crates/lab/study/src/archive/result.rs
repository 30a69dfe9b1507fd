//! `points/STEM.json`: what reports use of a result. Everything is optional, for results of a peer know less.

use std::collections::BTreeMap;

use carmine_load::profile::Profile;
pub use carmine_load::report::{CpuSeconds, LatencyHistograms, PerCore};
use carmine_load::window::DrainWindow;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub total_ios: u64,
    pub clat_ns: LatencyNs,
}

/// One entry of fio's `jobs[]`; there is one for all jobs together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    pub read: Direction,
    pub write: Direction,
}

/// One OSD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsdResult {
    pub id: u32,
    pub cpu_seconds: CpuSeconds,
    pub rss_bytes: u64,
    /// Clocks of each reactor, as the result has them.
    pub reactors: Vec<Value>,
}

/// The object `carmine` of a result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CarmineResult {
    pub plan: Value,
    pub grid: Value,
    pub host: Value,
    pub load: Value,
    pub iops: f64,
    /// Client IOPS × replicas of writes.
    pub osd_iops: Option<f64>,
    pub window_seconds: f64,
    pub shared: bool,
    pub in_process: bool,
    pub iops_per_core: PerCore,
    pub osd_cpu_us_per_op: Option<f64>,
    pub machine_cpu_us_per_op: Option<f64>,
    /// Absent where no hardware counts.
    pub cycles_per_op: Option<f64>,
    pub instructions_per_op: Option<f64>,
    pub client_cores_used: Option<f64>,
    pub hops_per_op: Option<f64>,
    pub osds: Vec<OsdResult>,
    pub devices: Vec<Value>,
    pub verdict: Option<String>,
    pub verdict_reason: Option<String>,
    /// The next thing to try.
    pub verdict_next: Option<String>,
    pub errors: u64,
    /// Texts that begin with a word such as SHARED, NOISY, UNSTEADY, IMBALANCED, SMOKE.
    pub marks: Vec<String>,
    /// Percentiles of several runs come from merged ones.
    pub latency_histogram: LatencyHistograms,
    pub baseline: Option<super::Baseline>,
    pub percent_of_device: Option<f64>,
    pub percent_of_messenger: Option<f64>,
    pub above_baseline: bool,
    pub iops_per_drive: Option<f64>,
    pub device_bytes_per_client_byte: Option<f64>,
    pub wire_bytes_per_client_byte: Option<f64>,
    /// `cold`, `onode-warm` or `cached`.
    pub cache_state: Option<String>,
    pub flush_mode: Option<String>,
    /// It was asked for, not what the drives need.
    pub flush_forced: bool,
    pub route: Option<String>,
    pub conditions: Value,
    pub doctor: Value,
    /// Time that a cgroup quota held the OSDs back, seconds.
    pub throttled_seconds: Option<f64>,
    /// Work that the OSDs still did for the load when it had ended.
    pub drain: Option<DrainWindow>,
    /// The flamegraph that was asked for, or why there is none.
    pub profile: Option<Profile>,
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

    fn directions(&self) -> impl Iterator<Item = &Direction> {
        [self.read(), self.write()].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_a_peer_that_knows_little_is_read() {
        let text = r#"{"jobs":[{"read":{"iops":10.0,"bw_bytes":40960,"clat_ns":{"mean":5.0,"percentile":{"99.000000":9}}},
            "write":{"iops":0}}],"carmine":{"shared":true,"iops_per_core":{"used":null},"marks":["SHARED: x"]},"more":1}"#;
        let result: PointResult = serde_json::from_str(text).unwrap();
        assert_eq!((result.iops(), result.bw_bytes()), (10.0, 40960.0));
        assert!(result.write().is_none() && result.carmine.shared);
        assert_eq!(result.latency().and_then(|l| l.at(99.0)), Some(9.0));
        assert_eq!(result.latency().and_then(|l| l.at(50.0)), None);
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
