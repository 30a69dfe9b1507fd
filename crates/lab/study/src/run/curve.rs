//! Points that follow from those before them on the same curve: rates in percent of the capacity, the steps of a search, and the
//! early end of a curve.

use std::time::Duration;

use crate::archive::{Point, PointResult};
use crate::search::Search;

/// stdev/mean of latency at which a curve is stopped.
const SPREAD_MAX: f64 = 0.5;

/// True if two points are on the same curve.
pub(super) fn is_shared(one: &Point, other: &Point) -> bool {
    (&one.curve, one.repeat, &one.arm, one.kind) == (&other.curve, other.repeat, &other.arm, other.kind)
}

/// The rate of a point whose rate is computed, of which `left` are left on its curve, this one included: `Ok(None)` for a closed
/// loop, `Err` if the points it depends on are missing.
pub(super) fn rate(
    point: &Point,
    before: &[&(Point, PointResult)],
    left: usize,
    p99_max: Option<Duration>,
) -> Result<Option<f64>, String> {
    const NO_CAPACITY: &str = "the capacity of its curve was not measured";
    let follows = |axis: &str| point.config.number(axis).filter(|number| *number > 0);
    if let Some(percent) = follows("rate_percent") {
        let is_capacity = |(p, _): &&&(Point, PointResult)| p.config.number("rate_percent") == Some(0);
        let capacity = before.iter().find(is_capacity).map(|(_, r)| r.iops()).filter(|iops| *iops > 0.0);
        return Ok(Some(capacity.ok_or(NO_CAPACITY)? * percent as f64 / 100.0));
    }
    if follows("search_step").is_none() {
        return Ok(None);
    }
    let measured = before.iter().map(|(point, result)| (point, result));
    let search = Search::from_points(measured, p99_max.unwrap_or_default()).ok_or(NO_CAPACITY)?;
    Ok(Some(search.next_rate(left)))
}

/// The reason why the curve ends before `point`, if it does.
pub(super) fn exit(before: &[&(Point, PointResult)], latency_cap: Option<Duration>) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Direction, Job, LatencyNs};

    fn result(iops: f64, mean: f64, stddev: f64) -> PointResult {
        let clat_ns = LatencyNs { mean, stddev, ..LatencyNs::default() };
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
        let capacity = (probe.clone(), result(5000.0, 1.0, 0.1));
        let before = [&capacity];
        assert_eq!(rate(&probe, &[], 2, None), Ok(None));
        assert_eq!(rate(&tenth, &before, 1, None), Ok(Some(500.0)));
        assert!(rate(&tenth, &[], 1, None).unwrap_err().contains("capacity"));
    }

    #[test]
    fn a_curve_ends_at_a_wide_spread_or_a_cap() {
        let exit = |mean, stddev, cap| {
            exit(&[&(point("iodepth", 1), result(1.0, mean, stddev))], cap).unwrap_or_default()
        };
        assert_eq!(exit(100.0, 49.0, None), "");
        assert!(exit(100.0, 50.0, None).contains("0.50"));
        let cap = Some(Duration::from_millis(2));
        assert_eq!(exit(2e6, 0.0, cap), "");
        assert!(exit(2.1e6, 0.0, cap).contains("2 ms"));
    }
}
