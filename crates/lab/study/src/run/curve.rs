//! Points that follow from those before them on the same curve: rates in percent of the capacity, the search for a rate
//! under a p99, and the early end of a curve.

use std::time::Duration;

use crate::archive::{Point, PointKind, PointResult, Run};

/// stdev/mean of latency at which a curve is stopped.
const SPREAD_MAX: f64 = 0.5;

/// The points before `point` on its curve, in order, that were measured.
pub(super) fn before<'a>(run: &'a Run, point: &Point) -> Vec<(&'a Point, PointResult)> {
    let same = |other: &&Point| {
        other.index < point.index
            && (&other.curve, other.repeat, &other.arm) == (&point.curve, point.repeat, &point.arm)
            && other.kind == point.kind
    };
    let done = run.points.iter().filter(same).filter(|other| run.is_done(other));
    done.filter_map(|other| Some((other, run.result(other).ok()??))).collect()
}

/// The rate of a point whose rate is computed: `Ok(None)` for a closed loop, `Err` if the points it depends on are missing.
pub(super) fn rate(
    point: &Point,
    before: &[(&Point, PointResult)],
    p99_max: Option<Duration>,
) -> Result<Option<f64>, String> {
    for axis in ["rate_percent", "search_step"] {
        let Some(number) = point.config.number(axis).filter(|number| *number > 0) else { continue };
        let capacity = before.iter().find(|(p, _)| p.config.number(axis) == Some(0)).map(|(_, r)| r.iops());
        let capacity = capacity
            .filter(|iops| *iops > 0.0)
            .ok_or("the capacity of its curve was not measured".to_owned())?;
        if axis == "rate_percent" {
            return Ok(Some(capacity * number as f64 / 100.0));
        }
        let step = |(p, r): &(&Point, PointResult)| {
            Some((p.config.float("rate_iops")?, r.latency().and_then(|l| l.at(99.0))))
        };
        let steps: Vec<(f64, Option<f64>)> = before.iter().filter_map(step).collect();
        return Ok(Some(next_rate(capacity, &steps, p99_max.unwrap_or_default())));
    }
    Ok(None)
}

/// Bisection: the middle between the highest rate that held the p99 and the lowest that did not.
fn next_rate(capacity: f64, steps: &[(f64, Option<f64>)], p99_max: Duration) -> f64 {
    let (mut low, mut high) = (0.0, capacity);
    for (rate, p99_ns) in steps {
        if p99_ns.is_some_and(|p99| p99 <= p99_max.as_nanos() as f64) {
            low = f64::max(low, *rate);
        } else {
            high = f64::min(high, *rate);
        }
    }
    (low + high) / 2.0
}

/// The reason why the curve ends before `point`, if it does.
pub(super) fn exit(before: &[(&Point, PointResult)], latency_cap: Option<Duration>) -> Option<String> {
    before.iter().find_map(|(point, result)| {
        let latency = result.latency()?;
        let spread = if latency.mean > 0.0 { latency.stddev / latency.mean } else { 0.0 };
        if spread >= SPREAD_MAX {
            return Some(format!("early exit: stdev/mean of latency was {spread:.2} at {}", point.stem));
        }
        let cap = latency_cap.filter(|cap| latency.mean > cap.as_nanos() as f64)?;
        Some(format!("early exit: the mean latency passed {} ms at {}", cap.as_millis(), point.stem))
    })
}

/// The first point each time it was run again: its IOPS ÷ those of the first time − 1.
pub(super) fn drift(run: &Run) -> Vec<f64> {
    let iops = |point: &Point| run.result(point).ok()?.filter(|_| run.is_done(point)).map(|r| r.iops());
    let Some(first) = run.points.first().and_then(iops).filter(|iops| *iops > 0.0) else { return Vec::new() };
    let again = run.points.iter().filter(|point| point.kind == PointKind::Again);
    again.filter_map(iops).filter(|iops| *iops > 0.0).map(|iops| iops / first - 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Direction, Job, LatencyNs};

    fn result(iops: f64, mean: f64, stddev: f64, p99: f64) -> PointResult {
        let percentile = [("99.000000".to_owned(), p99)].into();
        let clat_ns = LatencyNs { mean, stddev, percentile, ..LatencyNs::default() };
        let read = Direction { iops, clat_ns, ..Direction::default() };
        PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() }
    }

    fn point(axis: &str, value: u64) -> Point {
        let mut point = Point::default();
        point.config.set(axis, value);
        point
    }

    #[test]
    fn rates_are_percentages_of_the_capacity() {
        let (probe, tenth) = (point("rate_percent", 0), point("rate_percent", 10));
        let before = [(&probe, result(5000.0, 1.0, 0.1, 2.0))];
        assert_eq!(rate(&probe, &[], None), Ok(None));
        assert_eq!(rate(&tenth, &before, None), Ok(Some(500.0)));
        assert!(rate(&tenth, &[], None).unwrap_err().contains("capacity"));
    }

    #[test]
    fn the_search_halves_what_is_left() {
        let target = Duration::from_millis(1);
        assert_eq!(next_rate(1000.0, &[], target), 500.0);
        assert_eq!(next_rate(1000.0, &[(500.0, Some(0.5e6))], target), 750.0);
        assert_eq!(next_rate(1000.0, &[(500.0, Some(0.5e6)), (750.0, Some(9e6))], target), 625.0);
        assert_eq!(next_rate(1000.0, &[(500.0, None)], target), 250.0, "a rate without answers is too high");
    }

    #[test]
    fn the_search_finds_the_rate_of_a_known_system() {
        // An M/M/1-like server of 1000 op/s: p99 = 4.6 / (1000 - rate) seconds.
        let target = Duration::from_millis(23);
        let mut steps: Vec<(f64, Option<f64>)> = Vec::new();
        for _ in 0..8 {
            let rate = next_rate(1000.0, &steps, target);
            steps.push((rate, Some(4.6e9 / (1000.0 - rate))));
        }
        let best =
            steps.iter().filter(|(_, p99)| p99.unwrap() <= 23e6).map(|(rate, _)| *rate).fold(0.0, f64::max);
        assert!((best - 800.0).abs() < 8.0, "{best}");
    }

    #[test]
    fn a_curve_ends_at_a_wide_spread_or_a_cap() {
        let first = point("iodepth", 1);
        assert_eq!(exit(&[(&first, result(1.0, 100.0, 49.0, 0.0))], None), None);
        assert!(exit(&[(&first, result(1.0, 100.0, 50.0, 0.0))], None).unwrap().contains("0.50"));
        let cap = Some(Duration::from_millis(2));
        assert_eq!(exit(&[(&first, result(1.0, 2e6, 0.0, 0.0))], cap), None);
        assert!(exit(&[(&first, result(1.0, 2.1e6, 0.0, 0.0))], cap).unwrap().contains("2 ms"));
    }
}
