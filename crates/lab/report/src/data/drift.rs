//! The first point, run again at the end: how far the machine has drifted.

use super::measured::{Measured, RunData};

/// A point and its repetition at the end of the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drift {
    pub(crate) stem: String,
    pub(crate) first_iops: f64,
    pub(crate) again_iops: f64,
}

impl Drift {
    /// Part of 1, negative if it has become slower.
    pub(crate) fn part(&self) -> f64 {
        self.again_iops / self.first_iops - 1.0
    }
}

/// `None` if the first point was not run again, or one of both failed.
pub(crate) fn drift(run: &RunData) -> Option<Drift> {
    let iops = |m: &Measured| m.result.as_ref().map(|r| r.iops()).filter(|iops| *iops > 0.0);
    let again = run.points.iter().find(|m| !m.is_planned())?;
    let same = |m: &&Measured| m.is_planned() && m.point.config == again.point.config;
    let first = run.points.iter().filter(same).min_by_key(|m| m.point.index)?;
    Some(Drift { stem: first.point.stem.clone(), first_iops: iops(first)?, again_iops: iops(again)? })
}
