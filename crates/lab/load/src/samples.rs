//! The file of `carmine bench --samples`, `points/STEM.samples.json` of an archive.

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
    /// Moves to another CPU; `None` where the kernel does not count them.
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

/// The cost of sampling itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instrument {
    /// CPU of the sampler's thread in cores.
    pub cores: f64,
    /// CPUs that it was pinned to; none if every CPU is an OSD's.
    pub cpus: Vec<usize>,
}

/// Samples of a window. Series are equally long; what the machine does not have is absent, not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Samples {
    pub interval_ms: u64,
    /// Milliseconds from the window's start to each sample.
    pub t_ms: Vec<f64>,
    /// Name with its unit → the value between a sample and the one before, `None` where it is not known.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
    pub cpus: Vec<CpuSamples>,
    pub threads: Vec<ThreadSamples>,
    pub cores_used_10ms: Option<CoresUsed>,
    pub instrument: Instrument,
    /// NVMe drives under the OSDs; empty where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvme: Vec<NvmeSamples>,
}

impl Samples {
    /// Adds a series from another source, cut or filled up to the number of samples.
    pub fn put(&mut self, name: &str, mut values: Vec<Option<f64>>) {
        values.resize(self.t_ms.len(), None);
        self.series.insert(name.to_owned(), values);
    }

    /// Appends one sample. A series that begins now has no values before; one that is missing has none now.
    pub fn push(&mut self, t_ms: f64, values: BTreeMap<String, f64>) {
        let before = self.t_ms.len();
        self.t_ms.push(t_ms);
        for (name, value) in values {
            let series = self.series.entry(name).or_default();
            series.resize(before, None);
            series.push(Some(value));
        }
        self.series.values_mut().for_each(|series| series.resize(before + 1, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_stay_as_long_as_the_time_axis() {
        let mut samples = Samples::default();
        samples.push(1000.0, [("a".to_owned(), 1.0)].into());
        samples.push(2000.0, [("b".to_owned(), 2.0)].into());
        samples.put("c", vec![Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(samples.series["a"], [Some(1.0), None]);
        assert_eq!(samples.series["b"], [None, Some(2.0)]);
        assert_eq!(samples.series["c"], [Some(1.0), Some(2.0)]);
    }
}
