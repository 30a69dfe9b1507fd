//! One reading of all OSDs: the counters that the view is made of.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::sample::proc::Ticks;

/// All OSDs, in order, and all CPUs of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The answer of each, or why it gave none.
    pub(super) osds: Vec<Result<OsdSample, String>>,
    pub(super) cpus: BTreeMap<u32, Ticks>,
}

/// The metrics of one OSD at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OsdSample {
    /// The OSD's clock.
    pub(super) taken_at_ns: u64,
    /// By name: the value of each shard, in their order.
    numbers: BTreeMap<String, Vec<f64>>,
    distributions: BTreeMap<String, Distribution>,
}

/// A distribution of times over all shards.
#[derive(Clone, Debug, Default, PartialEq)]
struct Distribution {
    /// Upper bounds in ns, and the number of values up to each.
    buckets: Vec<(u64, u64)>,
    sum: f64,
    count: f64,
}

impl OsdSample {
    /// Reads an answer of `/metrics.json`; metrics that are strange are left out.
    pub(super) fn parse(answer: &Value) -> Option<OsdSample> {
        let mut sample = OsdSample { taken_at_ns: answer["taken_at_ns"].as_u64()?, ..OsdSample::default() };
        for metric in answer["metrics"].as_array()? {
            let Some(name) = metric["name"].as_str() else { continue };
            for series in metric["values"].as_array().into_iter().flatten() {
                let value = &series["value"];
                match value.as_f64() {
                    Some(number) => sample.numbers.entry(name.to_owned()).or_default().push(number),
                    None if value.is_object() => {
                        sample.distributions.entry(name.to_owned()).or_default().add(value);
                    }
                    None => {}
                }
            }
        }
        Some(sample)
    }

    /// The value of one shard; 0 if there is none.
    pub(super) fn of_shard(&self, name: &str, shard: usize) -> f64 {
        self.numbers.get(name).and_then(|values| values.get(shard)).copied().unwrap_or(0.0)
    }

    /// The sum over all shards.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.numbers.get(name).map_or(0.0, |values| values.iter().sum())
    }

    /// The values of a distribution that came since `before`; `None` if none did.
    fn since(&self, before: &OsdSample, name: &str) -> Option<Distribution> {
        let (now, none) = (self.distributions.get(name)?, Distribution::default());
        let old = before.distributions.get(name).unwrap_or(&none);
        let old_counts = old.buckets.iter().map(|(_, count)| *count).chain(std::iter::repeat(0));
        let buckets = now.buckets.iter().zip(old_counts);
        let since = Distribution {
            buckets: buckets.map(|((le, count), old)| (*le, count.saturating_sub(old))).collect(),
            sum: now.sum - old.sum,
            count: now.count - old.count,
        };
        (since.count > 0.0).then_some(since)
    }

    /// The mean of the values since `before`.
    pub(super) fn mean_since(&self, before: &OsdSample, name: &str) -> Option<f64> {
        self.since(before, name).map(|new| new.sum / new.count)
    }

    /// The value that `percent` % of those since `before` do not exceed, interpolated within its bucket.
    pub(super) fn percentile_since(&self, before: &OsdSample, name: &str, percent: f64) -> Option<f64> {
        let new = self.since(before, name)?;
        let rank = new.count * percent / 100.0;
        let (mut low, mut below) = (0.0, 0.0);
        for (le, upto) in new.buckets {
            let (high, upto) = (le as f64, upto as f64);
            if upto >= rank && upto > below {
                return Some(low + (high - low) * (rank - below) / (upto - below));
            }
            (low, below) = (high, upto);
        }
        // Above the last bound: at least that.
        Some(low)
    }
}

impl Distribution {
    /// Adds those of one shard.
    fn add(&mut self, value: &Value) {
        for (at, bucket) in value["buckets"].as_array().into_iter().flatten().enumerate() {
            let (Some(le), Some(count)) = (bucket["le"].as_u64(), bucket["count"].as_u64()) else { return };
            match self.buckets.get_mut(at) {
                Some((_, sum)) => *sum += count,
                None => self.buckets.push((le, count)),
            }
        }
        self.sum += value["sum"].as_f64().unwrap_or(0.0);
        self.count += value["count"].as_f64().unwrap_or(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(count: u64) -> OsdSample {
        let latency = json!({ "sum": count * 40_000, "count": count, "buckets": [
            { "le": 30_000, "count": 0 }, { "le": 50_000, "count": count }, { "le": 70_000, "count": count } ]});
        let answer = json!({ "taken_at_ns": 5, "metrics": [
            { "name": "ops", "values": [{ "shard": "0", "value": count }, { "shard": "1", "value": 1 }] },
            { "name": "latency", "values": [{ "shard": "0", "value": latency }] },
            { "name": "odd", "values": [{ "value": "x" }, 3] },
        ]});
        OsdSample::parse(&answer).unwrap()
    }

    #[test]
    fn numbers_by_shard() {
        let s = sample(7);
        assert_eq!(
            (s.of_shard("ops", 0), s.of_shard("ops", 1), s.sum("ops"), s.sum("none")),
            (7.0, 1.0, 8.0, 0.0)
        );
        assert_eq!(OsdSample::parse(&json!({ "error": 1 })), None);
    }

    #[test]
    fn latency_is_that_of_the_time_between() {
        let (before, now) = (sample(100), sample(300));
        assert_eq!(now.mean_since(&before, "latency"), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 50.0), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 100.0), Some(50_000.0));
        assert_eq!(
            (now.mean_since(&now, "latency"), now.percentile_since(&now, "latency", 99.0)),
            (None, None)
        );
    }
}
