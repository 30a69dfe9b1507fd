//! Comparing two arms: pairs of points with the same configuration, a verdict for each figure, Holm over all of them.

mod arms;
mod pairs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use carmine_load::origin::Origin;
use carmine_metrics::Histogram;
use carmine_stats::{Comparison, Outcome, PAIRS_MIN, Verdict, holm, judge, paired_log_ratios};
use carmine_testbed::fail_if;
use serde::Serialize;

/// The reason why a comparison is refused.
pub use crate::archive::ArchiveError as Refusal;
use crate::archive::{Config, PointResult};
use crate::expand::follows_from;
use crate::lists::grouped;
use crate::plan;
use crate::support::SPOILS;

pub use arms::{arm_of_files, arm_of_run, arms_of_run};
pub use pairs::{Difference, Group, check_axes, check_files, differing_axes, pair_up};
pub(crate) use pairs::{between, config_name, telling_axes};
use pairs::{check, differences};

/// A measured point.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Name of its files.
    pub name: String,
    /// Its result.
    pub path: PathBuf,
    pub config: Config,
    /// Points of both arms with the same configuration and the same turn are a pair.
    pub turn: u32,
    pub result: PointResult,
}

/// One side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Arm {
    pub name: String,
    /// Folder of the run that it was measured in; `None` for plain files, whose run is not known.
    pub run: Option<PathBuf>,
    pub points: Vec<Measured>,
    /// The compared axes: the one that the plan compares, or the ones that the user names.
    pub compared: Vec<String>,
    /// Facts that hold for all of its points but are in no configuration: builds, kernel, host. Name → value.
    pub facts: BTreeMap<String, String>,
    /// Points that were not measured, with the reason.
    pub left_out: Vec<String>,
}

/// One figure of a result.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in tables and JSON; ends in the unit.
    pub name: &'static str,
    /// Its name in charts and sentences.
    pub title: &'static str,
    pub more_is_better: bool,
    /// Of one result, or of several together; `None` where it was not measured.
    pub of: fn(&[&PointResult]) -> Option<f64>,
}

/// All figures, in the order of the table.
pub const METRICS: [Metric; 4] = [
    Metric { name: "iops", title: "IOPS", more_is_better: true, of: |all| mean(all, |r| Some(r.iops())) },
    Metric { name: "p99_latency_us", title: "p99 latency", more_is_better: false, of: p99_us },
    Metric {
        name: "osd_cpu_us_per_op",
        title: "CPU of OSDs per op",
        more_is_better: false,
        of: |all| mean(all, |r| r.carmine.osd_cpu_us_per_op),
    },
    Metric {
        name: "machine_cpu_us_per_op",
        title: "CPU of the machine per op",
        more_is_better: false,
        of: |all| mean(all, |r| r.carmine.machine_cpu_us_per_op),
    },
];

/// Geometric mean, as the ratio is one of geometric means; `None` if there is no positive value.
fn mean(results: &[&PointResult], of: fn(&PointResult) -> Option<f64>) -> Option<f64> {
    if let [alone] = results {
        return of(alone).filter(|value| *value > 0.0);
    }
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

/// One figure of one group of pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The part of the configuration that tells the group from others; empty if there is only one.
    pub config: String,
    pub metric: &'static str,
    pub more_is_better: bool,
    pub pairs: usize,
    /// Of the points of each arm together: geometric means; percentiles of merged histograms.
    pub base: Option<f64>,
    pub new: Option<f64>,
    /// `None` if nothing could be computed; the outcome says why.
    pub comparison: Option<Comparison>,
    /// p after Holm's correction over all rows.
    pub adjusted_p: f64,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub verdict: Verdict,
    /// Of an undecided row: pairs that would probably decide it; `None` if more than anyone measures.
    pub pairs_to_decide: Option<usize>,
}

/// Judges rows by their p after Holm's correction over all of them. A row that could not be computed is not a test: it does not
/// count, and stays undecided.
pub fn correct<'a>(rows: impl Iterator<Item = &'a mut Row>, tolerance: f64) {
    let tests: Vec<(&mut Row, Comparison)> =
        rows.filter_map(|row| row.comparison.map(|comparison| (row, comparison))).collect();
    let adjusted = holm(&tests.iter().map(|(_, comparison)| comparison.p).collect::<Vec<_>>());
    for ((row, comparison), p) in tests.into_iter().zip(adjusted) {
        row.adjusted_p = p;
        row.outcome = judge(&Ok(comparison), p, tolerance);
        row.verdict = comparison.verdict(p, row.more_is_better, tolerance);
        let is_open = row.verdict == Verdict::Undecided;
        row.pairs_to_decide =
            if is_open { comparison.pairs_to_decide(row.more_is_better, tolerance) } else { None };
    }
}

/// A comparison of two arms.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    pub base: String,
    pub new: String,
    /// Builds, machines, drives and times of the results of both, each in a line; empty if they are not known.
    pub base_from: Vec<String>,
    pub new_from: Vec<String>,
    /// Part of 1.
    pub tolerance: f64,
    /// Every setting that differs between the arms.
    pub differences: Vec<Difference>,
    /// Warnings for its readers.
    pub warnings: Vec<String>,
    pub rows: Vec<Row>,
    /// The worst of its rows.
    pub verdict: Verdict,
    /// Pairs that would probably decide all rows that are undecided; `None` if there are none, or it takes more than
    /// anyone measures.
    pub pairs_to_decide: Option<usize>,
}

/// Compares two arms, configuration by configuration and figure by figure: is the new one worse by more than `tolerance`
/// (part of 1)?
///
/// # Errors
/// Arms that can't be compared: different flush modes, identical grids, configurations of one side only, fewer than
/// [`PAIRS_MIN`] pairs everywhere.
pub fn compare(base: &Arm, new: &Arm, tolerance: f64) -> Result<Judgement, Refusal> {
    let axes = differing_axes(base, new);
    check(base, new, &axes)?;
    let groups = pair_up(base, new, &axes)?;
    let most = groups.iter().map(|g| g.pairs.len()).max().unwrap_or(0);
    fail_if!(
        most < PAIRS_MIN,
        "at most {most} pairs are too few to decide anything: measure each arm at least {PAIRS_MIN} times"
    );
    let rows = rows(&groups, tolerance);
    let differences = differences(base, new, &axes);
    let open = rows.iter().filter(|row| row.verdict == Verdict::Undecided);
    // The most pairs that any undecided row needs.
    let pairs: Option<Vec<usize>> = open.map(|row| row.pairs_to_decide).collect();
    Ok(Judgement {
        base: base.name.clone(),
        new: new.name.clone(),
        base_from: origins(base),
        new_from: origins(new),
        tolerance,
        warnings: warnings(base, new, &groups, &differences),
        differences,
        verdict: rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Undecided),
        pairs_to_decide: pairs.and_then(|pairs| pairs.into_iter().max()),
        rows,
    })
}

/// A line for each origin of an arm's results, with the times of its first and last result.
fn origins(arm: &Arm) -> Vec<String> {
    let known =
        arm.points.iter().map(|point| &point.result.carmine.origin).filter(|origin| origin.is_known());
    let origins = grouped(known.map(|origin| (origin.to_string(), origin)));
    let line = |(name, mut all): (String, Vec<&Origin>)| {
        all.sort_by_key(|origin| origin.started_unix_s);
        let last = all.last().map(|last| format!(" to {}", last.started())).filter(|_| all.len() > 1);
        format!("{name}, {}{}", all[0].started(), last.unwrap_or_default())
    };
    origins.into_iter().map(line).collect()
}

/// Every figure of every group, without those that neither arm has.
fn rows(groups: &[Group<'_>], tolerance: f64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (group, metric) in groups.iter().flat_map(|group| METRICS.iter().map(move |metric| (group, metric))) {
        let of = |m: &Measured| (metric.of)(&[&m.result]).filter(|value| *value > 0.0);
        let values: Vec<(f64, f64)> =
            group.pairs.iter().filter_map(|(base, new)| of(base).zip(of(new))).collect();
        if values.is_empty() {
            continue;
        }
        let comparison = paired_log_ratios(&values);
        let (base, new): (Vec<_>, Vec<_>) =
            group.pairs.iter().map(|(base, new)| (&base.result, &new.result)).unzip();
        rows.push(Row {
            config: group.name.clone(),
            metric: metric.name,
            more_is_better: metric.more_is_better,
            pairs: comparison.as_ref().map_or(group.pairs.len(), |c| c.pairs),
            base: (metric.of)(&base),
            new: (metric.of)(&new),
            outcome: judge(&comparison, 1.0, tolerance),
            comparison: comparison.ok(),
            adjusted_p: 1.0,
            verdict: Verdict::Undecided,
            pairs_to_decide: Some(PAIRS_MIN),
        });
    }
    correct(rows.iter_mut(), tolerance);
    rows
}

/// Settings that a change of the program changes.
const BUILD: [&str; 2] = ["carmine version", "git hash"];

/// The mark of arms that differ in more than what is compared: the axes that the plan or the user names, else the only axis
/// that differs, else the build.
fn confounded(base: &Arm, new: &Arm, differences: &[Difference]) -> Option<String> {
    let settings = || differences.iter().map(|d| d.setting.as_str());
    let axes: Vec<&str> = settings().filter(|name| plan::axis(name).is_some()).collect();
    let named: Vec<&str> = base.compared.iter().map(String::as_str).collect();
    let subject = match (named.as_slice(), axes.as_slice()) {
        ([_, ..], _) if base.compared == new.compared => named,
        (_, [axis]) => vec![*axis],
        (_, []) if settings().any(|setting| BUILD.contains(&setting)) => BUILD.to_vec(),
        _ => settings().take(1).collect(),
    };
    let is_other =
        |d: &&Difference| !subject.iter().any(|axis| *axis == d.setting || follows_from(axis, &d.setting));
    let others: Vec<String> = differences.iter().filter(is_other).map(ToString::to_string).collect();
    (!others.is_empty()).then(|| {
        format!(
            "CONFOUNDED: the arms differ in more than {}, and a difference may come from any of these: {}",
            subject.join(" and "),
            others.join("; ")
        )
    })
}

fn warnings(base: &Arm, new: &Arm, groups: &[Group<'_>], differences: &[Difference]) -> Vec<String> {
    let mut warnings = Vec::new();
    if base.run.as_ref().zip(new.run.as_ref()).is_some_and(|(base, new)| base != new) {
        warnings.push(
            "the arms are from different runs and were not measured in turn: any change of the machine between them counts as \
             a difference"
                .to_owned(),
        );
    }
    warnings.extend(confounded(base, new, differences));
    let alone: usize = groups.iter().map(|g| g.alone).sum();
    if alone > 0 {
        warnings.push(format!("points left out because they have no partner of the same turn: {alone}"));
    }
    for arm in [base, new] {
        let origins = origins(arm).len();
        warnings.extend(
            (origins > 1)
                .then(|| format!("{} mixes results of {origins} builds, machines or drives", arm.name)),
        );
        warnings.extend(arm.left_out.iter().map(|point| format!("left out: {point}")));
    }
    for word in SPOILS {
        let pairs = groups.iter().flat_map(|g| &g.pairs);
        let count =
            pairs.filter(|(base, new)| base.result.has_mark(word) || new.result.has_mark(word)).count();
        if count > 0 {
            warnings.push(format!("pairs with a point marked {word}: {count}"));
        }
    }
    warnings
}
