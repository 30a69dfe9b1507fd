//! The figures that are compared.

use carmine_metrics::Histogram;

use crate::archive::PointResult;

/// One figure of a result.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in tables and JSON; ends in the unit.
    pub name: &'static str,
    pub more_is_better: bool,
    /// Of one result; `None` where it was not measured.
    pub of: fn(&PointResult) -> Option<f64>,
    /// Of several results together.
    pub of_all: fn(&[&PointResult]) -> Option<f64>,
}

/// All figures, in the order of the table.
pub const METRICS: [Metric; 4] = [
    Metric { name: "iops", more_is_better: true, of: iops, of_all: |all| mean(all, iops) },
    Metric { name: "p99_latency_us", more_is_better: false, of: |result| p99_us(&[result]), of_all: p99_us },
    Metric {
        name: "osd_cpu_us_per_op",
        more_is_better: false,
        of: |result| result.carmine.osd_cpu_us_per_op,
        of_all: |all| mean(all, |result| result.carmine.osd_cpu_us_per_op),
    },
    Metric {
        name: "machine_cpu_us_per_op",
        more_is_better: false,
        of: |result| result.carmine.machine_cpu_us_per_op,
        of_all: |all| mean(all, |result| result.carmine.machine_cpu_us_per_op),
    },
];

fn iops(result: &PointResult) -> Option<f64> {
    Some(result.iops())
}

/// Geometric mean, as the ratio is one of geometric means; `None` if there is no positive value.
fn mean(results: &[&PointResult], of: fn(&PointResult) -> Option<f64>) -> Option<f64> {
    let logs: Vec<f64> = results.iter().filter_map(|r| of(r)).filter(|v| *v > 0.0).map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn p99_us(results: &[&PointResult]) -> Option<f64> {
    merged_percentile(results, 99.0).map(|ns| ns / 1e3)
}

/// A percentile (nanoseconds) of all operations of all results: of their histograms merged, never a mean of percentiles.
/// A single result without a histogram (a peer's) gives fio's own figure of its larger direction; several give `None`.
pub fn merged_percentile(results: &[&PointResult], percent: f64) -> Option<f64> {
    let mut merged = Histogram::new();
    for result in results {
        let histograms = &result.carmine.latency_histogram;
        let mut known = [&histograms.read, &histograms.write].into_iter().flatten().peekable();
        if known.peek().is_none() {
            return match results {
                [alone] => alone.latency()?.at(percent).filter(|ns| *ns > 0.0),
                _ => None,
            };
        }
        known.for_each(|histogram| merged.merge_sparse(histogram));
    }
    (!merged.is_empty()).then(|| merged.percentile(percent) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Direction, Job, LatencyNs};

    fn with_histogram(values: &[(u64, u64)]) -> PointResult {
        let mut histogram = Histogram::new();
        values.iter().for_each(|(value, n)| histogram.record_n(*value, *n));
        let mut result = PointResult::default();
        result.carmine.latency_histogram.read = Some(histogram.to_sparse());
        result
    }

    #[test]
    fn percentiles_come_from_merged_histograms() {
        // 99 % of the first are fast; 3 % of both together are slow: the mean of two p99 would be 5.5 us.
        let (one, two) = (with_histogram(&[(1000, 1000)]), with_histogram(&[(1000, 940), (10_000, 60)]));
        let p99 = merged_percentile(&[&one, &two], 99.0).unwrap();
        assert!((p99 / 10_000.0 - 1.0).abs() < 0.01, "{p99}");
        let alone = (METRICS[1].of)(&one).unwrap();
        assert!((alone - 1.0).abs() < 0.01, "{alone}");
    }

    #[test]
    fn without_histograms_only_a_single_result_has_a_percentile() {
        let clat_ns =
            LatencyNs { percentile: [("99.000000".to_owned(), 7000.0)].into(), ..LatencyNs::default() };
        let read = Direction { iops: 5.0, clat_ns, ..Direction::default() };
        let result = PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() };
        assert_eq!(merged_percentile(&[&result], 99.0), Some(7000.0));
        assert_eq!(merged_percentile(&[&result, &result], 99.0), None);
        assert_eq!(merged_percentile(&[&PointResult::default()], 99.0), None);
    }
}
