//! What a hosted tool measured, in the shapes of our own results.

use serde_json::{Value, json};

use crate::fio;
use crate::result::{DirStats, JobResult};
use crate::spec::LoadSpec;

/// Latencies of a tool that keeps no histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    pub min_ns: f64,
    pub max_ns: f64,
    pub mean_ns: f64,
    pub stddev_ns: f64,
}

/// Everything that a tool told about its window.
#[derive(Clone, Debug, Default)]
pub struct HostedFigures {
    /// Its version, as in fio's results.
    pub version: String,
    /// Length of its window.
    pub seconds: f64,
    /// Operations, bytes, and latencies where it keeps a histogram.
    pub result: JobResult,
    /// fio's own `jobs[]`.
    pub jobs: Option<Value>,
    /// For a tool without a histogram.
    pub latency: Option<Latency>,
}

impl HostedFigures {
    /// Figures of several processes that ran at the same time.
    pub fn merged(all: &[HostedFigures]) -> HostedFigures {
        let [one] = all else {
            return HostedFigures {
                version: all.first().map(|f| f.version.clone()).unwrap_or_default(),
                seconds: all.iter().map(|f| f.seconds).fold(0.0, f64::max),
                result: JobResult::merged(all.iter().map(|f| &f.result)),
                jobs: None,
                latency: merged_latency(all),
            };
        };
        one.clone()
    }

    /// `jobs[]` in fio's shape. `spec` is the load that was asked for.
    pub fn jobs(&self, spec: &LoadSpec) -> Value {
        if let Some(jobs) = &self.jobs {
            return jobs.clone();
        }
        let mut jobs = fio::jobs(spec, &self.result, self.seconds);
        let Some(latency) = self.latency else { return jobs };
        for (name, stats) in [("read", &self.result.read), ("write", &self.result.write)] {
            if stats.ops > 0 {
                put_latency(&mut jobs[0][name], latency, stats.ops);
            }
        }
        jobs
    }
}

/// Percentiles are left out: absent, not zero.
fn put_latency(direction: &mut Value, latency: Latency, ops: u64) {
    for name in ["clat_ns", "lat_ns"] {
        direction[name] = json!({
            "min": latency.min_ns.round() as u64,
            "max": latency.max_ns.round() as u64,
            "mean": latency.mean_ns,
            "stddev": latency.stddev_ns,
            "N": ops,
        });
    }
}

/// Each process counts by its operations; the spread between the processes' means is small beside their own.
fn merged_latency(all: &[HostedFigures]) -> Option<Latency> {
    let known: Vec<(f64, Latency)> =
        all.iter().filter_map(|f| Some((f.result.ops() as f64, f.latency?))).collect();
    let ops: f64 = known.iter().map(|(ops, _)| ops).sum();
    if ops <= 0.0 {
        return None;
    }
    let weighted = |value: fn(&Latency) -> f64| known.iter().map(|(n, l)| n * value(l)).sum::<f64>() / ops;
    Some(Latency {
        min_ns: known.iter().map(|(_, l)| l.min_ns).fold(f64::INFINITY, f64::min),
        max_ns: known.iter().map(|(_, l)| l.max_ns).fold(0.0, f64::max),
        mean_ns: weighted(|l| l.mean_ns),
        stddev_ns: weighted(|l| l.stddev_ns.powi(2)).sqrt(),
    })
}

/// Operations and bytes of one direction without a histogram.
pub(super) fn counted(ops: u64, bytes: u64) -> DirStats {
    DirStats { ops, bytes, ..DirStats::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ops: u64, mean_ns: f64) -> HostedFigures {
        let latency = Latency { min_ns: mean_ns / 2.0, max_ns: mean_ns * 3.0, mean_ns, stddev_ns: 10.0 };
        HostedFigures {
            version: "v".into(),
            seconds: 2.0,
            result: JobResult { read: counted(ops, ops * 4096), ..JobResult::default() },
            jobs: None,
            latency: Some(latency),
        }
    }

    #[test]
    fn processes_are_merged_by_their_operations() {
        let all = HostedFigures::merged(&[one(100, 1000.0), one(300, 2000.0)]);
        let latency = all.latency.unwrap();
        assert_eq!((all.result.ops(), all.result.read.bytes, all.seconds), (400, 400 * 4096, 2.0));
        assert_eq!((latency.mean_ns, latency.min_ns, latency.max_ns), (1750.0, 500.0, 6000.0));
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let jobs = one(100, 1000.0).jobs(&LoadSpec::default());
        let read = &jobs[0]["read"];
        assert_eq!((&read["clat_ns"]["mean"], &read["iops"]), (&json!(1000.0), &json!(50.0)));
        assert!(read["clat_ns"].get("percentile").is_none());
        assert_eq!(jobs[0]["write"]["total_ios"], 0);
    }
}
