//! The file of `carmine bench --samples`.

use std::collections::BTreeMap;

pub use carmine_load::samples::{CoresUsed, CpuSamples, NvmeSamples, ThreadSamples};
use serde::Serialize;

/// What sampling itself cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Instrument {
    /// CPU of the sampler's thread in cores.
    pub cores: f64,
    /// CPUs that it was pinned to; none when every CPU is an OSD's.
    pub cpus: Vec<usize>,
}

/// Samples of a window. Series are equally long; what the machine does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples {
    pub interval_ms: u64,
    /// Milliseconds from the window's start to each sample.
    pub t_ms: Vec<f64>,
    /// Name with its unit → what was so between a sample and the one before.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
    pub cpus: Vec<CpuSamples>,
    pub threads: Vec<ThreadSamples>,
    pub cores_used_10ms: Option<CoresUsed>,
    pub instrument: Instrument,
    /// NVMe drives under the OSDs; none where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvme: Vec<NvmeSamples>,
}

impl Samples {
    /// Adds a series that somebody else counted; cut or filled up to the number of samples.
    pub fn put(&mut self, name: &str, mut values: Vec<Option<f64>>) {
        values.resize(self.t_ms.len(), None);
        self.series.insert(name.to_owned(), values);
    }

    /// Appends one sample: series that begin late have no value before, those that are missing have none now.
    pub(super) fn push(&mut self, t_ms: f64, values: BTreeMap<String, f64>) {
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
