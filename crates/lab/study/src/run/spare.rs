//! At the end of a run, points without an answer because other work spoilt repeats are measured again, a few times at most.

use std::collections::BTreeSet;
use std::time::Duration;

use carmine_types::counted;

use super::{Event, Sweep};
use crate::archive::{ArchiveError, Config, Point, PointKind, PointResult};
use crate::expand::{Planned, show_duration};
use crate::lists::grouped;
use crate::support::{may_be_saved, spoilt_by};

impl Sweep<'_> {
    /// Adds one more repeat of each point that lacks one; false if there is none. The results alone decide, so that a run that was
    /// stopped adds the same ones again.
    pub(super) fn add_repeats(&mut self) -> Result<bool, ArchiveError> {
        let plan = self.job.plan;
        // The points of such a curve follow from each other.
        if ["rate_percent", "search_step"].iter().any(|axis| plan.has_axis(axis)) {
            return Ok(false);
        }
        let rounds = self.job.points.iter().map(|planned| planned.point.repeat + 1).max().unwrap_or(0);
        let most = plan.repeats + plan.spare_repeats;
        self.read_results(self.job.points.len())?;
        let lacking = lacking(&self.measured, most.saturating_sub(rounds));
        let added = more(&self.job.points, &self.reachable(), &lacking, rounds);
        if added.is_empty() {
            return Ok(false);
        }
        let time: Duration = added.iter().map(|planned| planned.estimate).sum();
        (self.events)(Event::Note(format!(
            "other work spoilt repeats of {}, which have too few clean ones: measured again, repeat {} of at most {most}, about {}",
            counted(lacking.len(), "setting"),
            rounds + 1,
            show_duration(time)
        )));
        self.job.points.extend(added);
        self.write_points()?;
        Ok(true)
    }

    /// The layouts that need not be made anew: named devices hold that of the last point.
    fn reachable(&self) -> BTreeSet<String> {
        let layouts = self.job.points.iter().rev().map(|planned| planned.point.layout.clone());
        layouts.take(if self.job.machine.devices.is_empty() { usize::MAX } else { 1 }).collect()
    }
}

/// The settings of which up to `more` further repeats may make an answer.
fn lacking(measured: &[(Point, PointResult)], more: u32) -> Vec<Config> {
    let planned = measured.iter().filter(|(point, _)| point.kind == PointKind::Point);
    let settings = grouped(
        planned.map(|(point, result)| (point.config.asked(), spoilt_by(&point.config, Some(result)))),
    );
    let lacks = |(_, spoilt): &(Config, Vec<Vec<&str>>)| may_be_saved(spoilt, more as usize);
    settings.into_iter().filter(lacks).map(|(config, _)| config).collect()
}

/// One more repeat of these settings where it can be measured. Arms of a comparison are measured side by side again.
fn more(points: &[Planned], layouts: &BTreeSet<String>, lacking: &[Config], repeat: u32) -> Vec<Planned> {
    let firsts = || points.iter().filter(|p| p.point.kind == PointKind::Point && p.point.repeat == 0);
    let lacks = |planned: &&Planned| lacking.contains(&planned.point.config.asked());
    let pairs: BTreeSet<u32> = firsts().filter(lacks).filter_map(|planned| planned.point.pair).collect();
    let is_of_pair = |p: &Planned| p.point.pair.is_some_and(|pair| pairs.contains(&pair));
    let chosen = firsts().filter(|planned| lacks(planned) || is_of_pair(planned));
    let chosen = chosen.filter(|planned| layouts.contains(&planned.point.layout));
    let next_pair = 1 + points.iter().filter_map(|planned| planned.point.pair).max().unwrap_or(0);
    let again = |(number, planned): (usize, &Planned)| {
        let first = &planned.point;
        let stem = first.stem.strip_suffix("_r0").unwrap_or(&first.stem);
        let point = Point {
            index: points.len() + number,
            stem: format!("{stem}_r{repeat}"),
            repeat,
            pair: first.pair.map(|pair| next_pair + pair),
            ..first.clone()
        };
        Planned { point, ..planned.clone() }
    };
    chosen.enumerate().map(again).collect()
}
