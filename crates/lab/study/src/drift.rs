//! How far the machine drifted while a run was measured: the first point, each time that it was run again.

use crate::archive::{Point, PointKind, PointResult};

/// The first point and its repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// IOPS of the first time.
    pub first_iops: f64,
    /// Each repetition ÷ the first time − 1, in the order of running.
    pub changes: Vec<f64>,
}

impl Drift {
    /// The drift over the measured points; `None` if the first point was not measured, or was not run again.
    pub fn from_points<'a>(
        measured: impl Iterator<Item = (&'a Point, &'a PointResult)> + Clone,
    ) -> Option<Drift> {
        let usable = measured.filter(|(_, result)| result.iops() > 0.0);
        let again = || usable.clone().filter(|(point, _)| point.kind == PointKind::Again);
        let config = &again().next()?.0.config;
        let planned = usable.clone().filter(|(p, _)| p.kind == PointKind::Point && p.config == *config);
        let (_, first) = planned.min_by_key(|(point, _)| point.index)?;
        let first_iops = first.iops();
        Some(Drift {
            first_iops,
            changes: again().map(|(_, again)| again.iops() / first_iops - 1.0).collect(),
        })
    }

    /// The change that is farthest from 0.
    pub fn largest(&self) -> f64 {
        let farther = |most: f64, change: &f64| if change.abs() > most.abs() { *change } else { most };
        self.changes.iter().fold(0.0, farther)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Direction, Job};

    fn point(index: usize, kind: PointKind) -> Point {
        Point { index, kind, ..Point::default() }
    }

    fn result(iops: f64) -> PointResult {
        let read = Direction { iops, ..Direction::default() };
        PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() }
    }

    #[test]
    fn the_repetition_that_differs_most_counts() {
        let points = [
            (point(0, PointKind::Point), result(100.0)),
            (point(1, PointKind::Point), result(500.0)),
            (point(2, PointKind::Again), result(91.0)),
            (point(3, PointKind::Again), result(101.0)),
        ];
        let drift =
            |count: usize| Drift::from_points(points[..count].iter().map(|(point, result)| (point, result)));
        assert_eq!(drift(2), None);
        let drift = drift(4).unwrap();
        assert!((drift.largest() + 0.09).abs() < 1e-9 && drift.changes.len() == 2, "{drift:?}");
    }
}
