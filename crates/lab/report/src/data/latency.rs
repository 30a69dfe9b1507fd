//! Latency of a point or of its repeats together.

use carmine_metrics::Histogram;
use carmine_study::archive::PointResult;

/// Latencies in nanoseconds of the direction that has most operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    /// `read` or `write`.
    pub(crate) direction: &'static str,
    pub(crate) mean_ns: Option<f64>,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p95_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    pub(crate) p999_ns: Option<f64>,
    pub(crate) max_ns: Option<f64>,
    pub(crate) stddev_ns: Option<f64>,
    /// Repeats whose percentiles can't be put together, for they have no histogram.
    pub(crate) unmerged: bool,
}

impl Latency {
    /// Of one result, or of several as if they were one: percentiles of several come from their merged histograms.
    pub(crate) fn of(results: &[&PointResult]) -> Latency {
        let iops = |pick: fn(&PointResult) -> f64| results.iter().map(|r| pick(r)).sum::<f64>();
        let reads = iops(|r| r.read().map_or(0.0, |d| d.iops)) >= iops(|r| r.write().map_or(0.0, |d| d.iops));
        let direction = if reads { "read" } else { "write" };
        match (merged(results, reads), results) {
            (Some(histogram), _) => Latency::of_histogram(&histogram, direction),
            (None, [result]) => Latency::of_result(result, reads, direction),
            (None, _) => Latency { direction, unmerged: !results.is_empty(), ..Latency::default() },
        }
    }

    fn of_histogram(histogram: &Histogram, direction: &'static str) -> Latency {
        let at = |percent| Some(histogram.percentile(percent) as f64);
        Latency {
            mean_ns: Some(histogram.mean()),
            max_ns: Some(histogram.max() as f64),
            stddev_ns: Some(histogram.stddev()),
            ..Latency::of_percentiles(at, direction)
        }
    }

    fn of_result(result: &PointResult, reads: bool, direction: &'static str) -> Latency {
        let Some(found) = (if reads { result.read() } else { result.write() }) else {
            return Latency { direction, ..Latency::default() };
        };
        let clat = &found.clat_ns;
        let known = |value: f64| (value > 0.0).then_some(value);
        Latency {
            mean_ns: known(clat.mean),
            max_ns: known(clat.max),
            stddev_ns: known(clat.stddev),
            ..Latency::of_percentiles(|percent| clat.at(percent), direction)
        }
    }

    fn of_percentiles(at: impl Fn(f64) -> Option<f64>, direction: &'static str) -> Latency {
        let (p50_ns, p95_ns, p99_ns, p999_ns) = (at(50.0), at(95.0), at(99.0), at(99.9));
        Latency { direction, p50_ns, p95_ns, p99_ns, p999_ns, ..Latency::default() }
    }
}

/// All histograms as one; `None` if a result has none.
fn merged(results: &[&PointResult], reads: bool) -> Option<Histogram> {
    let mut all = Histogram::new();
    for result in results {
        let of = &result.carmine.latency_histogram;
        all.merge_sparse(if reads { of.read.as_ref() } else { of.write.as_ref() }?);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_study::archive::{Direction, Job};

    fn result(latencies: &[(u64, u64)], with_histogram: bool) -> PointResult {
        let mut histogram = Histogram::new();
        latencies.iter().for_each(|(ns, n)| histogram.record_n(*ns, *n));
        let read = Direction { iops: 100.0, ..Direction::default() };
        let mut result = PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() };
        result.jobs[0].read.clat_ns.percentile.insert("99.000000".into(), histogram.percentile(99.0) as f64);
        result.carmine.latency_histogram.read = with_histogram.then(|| histogram.to_sparse());
        result
    }

    /// One repeat has all the slow operations: the mean of the two 99th percentiles (25.5 ms) is nobody's latency.
    #[test]
    fn percentiles_of_repeats_are_those_of_all_operations() {
        let (fast, slow) =
            (result(&[(1_000_000, 1000)], true), result(&[(1_000_000, 985), (50_000_000, 15)], true));
        let p99 = Latency::of(&[&fast, &slow]).p99_ns.unwrap();
        assert!((p99 / 1e6 - 1.0).abs() < 0.001, "15 of 2000 operations are below 1 %: {p99}");
        assert!((Latency::of(&[&slow]).p99_ns.unwrap() / 50e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn without_histograms_repeats_have_no_percentiles() {
        let one = result(&[(1_000_000, 1000)], false);
        assert!(Latency::of(&[&one]).p99_ns.is_some());
        let both = Latency::of(&[&one, &one]);
        assert!(both.p99_ns.is_none() && both.unmerged);
        assert!(!Latency::of(&[]).unmerged);
    }
}
