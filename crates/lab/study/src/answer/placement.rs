//! Whether the strategies of placement differ, and whether what was measured was the OSDs at all.

use std::collections::BTreeMap;

use carmine_load::verdict::{LevelCurve, curves, level};
use carmine_stats::{Comparison, NoComparison, Outcome, holm, judge, paired_log_ratios};

use super::study::{Line, best};
use super::{Conclusion, Measured};
use crate::archive::PointResult;
use crate::plan::TOLERANCE;
use crate::support::{beyond_drift, mean_iops, percent};

/// Compares all points of a line, arm against arm, to find the strategies that differ at all: the conclusion, then each comparison.
pub(super) fn strategies(lines: &[Line<'_>], drift: Option<f64>) -> Vec<Conclusion> {
    let mut told: Vec<(String, Result<Comparison, NoComparison>)> = Vec::new();
    for line in lines {
        let Some(((base, old), others)) = line.values.split_first() else { continue };
        for (value, young) in others {
            let partner = |m: &Measured<'_>| {
                let other = young.iter().find(|other| other.point.pair == m.point.pair)?;
                Some((m.result.iops(), other.result.iops()))
            };
            let pairs: Vec<(f64, f64)> = old.iter().filter_map(partner).collect();
            told.push((format!("{}: {value} against {base}", line.name), paired_log_ratios(&pairs)));
        }
    }
    let tests: Vec<f64> = told.iter().filter_map(|(_, c)| Some(c.as_ref().ok()?.p)).collect();
    let mut adjusted = holm(&tests).into_iter();
    let (mut each, mut outcomes) = (Vec::new(), Vec::new());
    for (name, comparison) in &told {
        let p = comparison.as_ref().ok().and_then(|_| adjusted.next()).unwrap_or(1.0);
        let ratio = comparison.as_ref().map_or(1.0, |c| c.ratio);
        let outcome = beyond_drift(judge(comparison, p, TOLERANCE), ratio, drift, TOLERANCE);
        each.push(match (&outcome, comparison) {
            (Outcome::Undecided { reason }, _) => format!("{name}: no answer: {reason}"),
            (_, Err(error)) => format!("{name}: no answer: {error}"),
            (_, Ok(c)) => {
                let (low, high) = (percent(c.interval.0), percent(c.interval.1));
                format!("{name}: {outcome}, IOPS {} ({low} to {high})", percent(c.ratio))
            }
        });
        outcomes.push(outcome);
    }
    let lacking = lines.iter().filter(|line| !line.refused.is_empty()).map(|line| line.reasons());
    let lacking: Vec<String> = lacking.collect();
    let whole = if outcomes.contains(&Outcome::Different { within: false }) {
        Ok("It matters here: some strategies differ by more than the tolerance.".to_owned())
    } else if let Some(why) = lacking.first() {
        Err(why.clone())
    } else if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Undecided { .. })) {
        Err("the pairs do not decide for all strategies; take more --repeats".to_owned())
    } else {
        Ok("It does not matter here: no strategy differs by more than 5 %.".to_owned())
    };
    std::iter::once(whole).chain(each.into_iter().map(Ok)).collect()
}

/// Curves of several stores that level off together were not limited by a store.
pub(super) fn suspicion(lines: &[Line<'_>]) -> Vec<String> {
    let mut arms: BTreeMap<String, Vec<LevelCurve>> = BTreeMap::new();
    for (value, points) in lines.iter().flat_map(|line| &line.values) {
        let Some(first) = points.first() else { continue };
        let show = |axis: &str| first.point.config.show(axis).unwrap_or_default();
        let curve = level_curve(&show("store"), &by_depth(points), &best(points));
        arms.entry(format!("{}, {value}", show("workload"))).or_default().extend(curve);
    }
    let told = arms.into_iter().filter_map(|(name, levels)| Some((name, curves(&levels)?)));
    told.map(|(name, found)| format!("{name}: suspected {}: {} {}", found.limiter, found.reason, found.next))
        .collect()
}

/// IOPS of the points at each depth, the shallowest first.
fn by_depth(points: &[Measured<'_>]) -> Vec<f64> {
    let mut depths: BTreeMap<u64, Vec<Measured<'_>>> = BTreeMap::new();
    for one in points {
        depths.entry(one.point.config.number("iodepth").unwrap_or(0)).or_default().push(*one);
    }
    depths.values().map(|points| mean_iops(&best(points))).collect()
}

/// An arm whose IOPS level off along its depths, and the CPUs that it uses there, in the results `top`.
pub fn level_curve(arm: &str, iops: &[f64], top: &[&PointResult]) -> Option<LevelCurve> {
    let mean = |of: &dyn Fn(&PointResult) -> Option<f64>| {
        Some(carmine_stats::mean(&top.iter().map(|result| of(result)).collect::<Option<Vec<_>>>()?))
    };
    Some(LevelCurve {
        arm: arm.to_owned(),
        iops: level(iops)?,
        osd_cpus_used: mean(&|r| Some(r.iops() / r.carmine.iops_per_core.used?))?,
        osd_cpus: mean(&|r| Some(r.iops() / r.carmine.iops_per_core.allocated?))?,
        client_cpus_used: mean(&|r| r.carmine.client_cores_used)?,
        client_cpus: top.first()?.carmine.grid["clients"].as_array()?.len() as f64,
    })
}
