//! What a comparison says.

use carmine_stats::{Comparison, NoComparison, Outcome, holm, judge, paired_log_ratios};
use carmine_study::archive::PointResult;

use super::duel::Duel;
use crate::data::{Latency, Measured};

/// Differences up to this part count as equal.
pub(super) const TOLERANCE: f64 = 0.05;

/// What is compared: name, whether more is better, and the figure.
pub(super) type Metric = (&'static str, bool, fn(&PointResult) -> Option<f64>);

/// What a comparison looks at.
pub(super) const METRICS: [Metric; 3] = [
    ("IOPS", true, |r| Some(r.iops())),
    ("p99 latency", false, |r| Latency::of(&[r]).p99_ns),
    ("machine CPU per op", false, |r| r.carmine.machine_cpu_us_per_op.or(r.carmine.osd_cpu_us_per_op)),
];

/// One metric of a duel.
pub(super) struct Verdict {
    pub(super) duel: usize,
    pub(super) metric: usize,
    pub(super) comparison: Result<Comparison, NoComparison>,
    pub(super) adjusted_p: f64,
    pub(super) outcome: Outcome,
}

/// Every metric of every duel, with Holm's correction over all of them.
pub(super) fn verdicts(duels: &[Duel<'_>]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for (number, duel) in duels.iter().enumerate() {
        for (metric, (_, _, figure)) in METRICS.iter().enumerate() {
            let of = |m: &Measured| m.result.as_ref().and_then(figure).filter(|v| *v > 0.0);
            let both = duel.pairs.iter().filter_map(|(old, new)| of(old).zip(of(new)));
            let (base, new): (Vec<f64>, Vec<f64>) = both.unzip();
            if !base.is_empty() {
                found.push((number, metric, paired_log_ratios(&base, &new)));
            }
        }
    }
    let decidable: Vec<f64> = found.iter().filter_map(|(_, _, c)| c.as_ref().ok().map(|c| c.p)).collect();
    let mut adjusted = holm(&decidable).into_iter();
    let verdict = |(duel, metric, comparison): (usize, usize, Result<Comparison, NoComparison>)| {
        let adjusted_p = if comparison.is_ok() { adjusted.next().unwrap_or(1.0) } else { 1.0 };
        let outcome = judge(&comparison, adjusted_p, TOLERANCE);
        Verdict { duel, metric, comparison, adjusted_p, outcome }
    };
    found.into_iter().map(verdict).collect()
}

/// All loads of one metric and two arms in a sentence.
pub(super) fn sentence(base: &str, new: &str, metric: usize, verdicts: &[&Verdict]) -> String {
    let (name, more_is_better, _) = METRICS[metric];
    let of = |wanted: fn(&Outcome) -> bool| -> Vec<&Comparison> {
        verdicts.iter().filter(|v| wanted(&v.outcome)).filter_map(|v| v.comparison.as_ref().ok()).collect()
    };
    let (better, worse): (Vec<_>, Vec<_>) = of(|o| matches!(o, Outcome::Different { .. }))
        .into_iter()
        .partition(|c| (c.ratio > 1.0) == more_is_better);
    let equal = of(|o| matches!(o, Outcome::Equal { .. })).len();
    let undecided = verdicts.len() - better.len() - worse.len() - equal;
    let mut parts = Vec::new();
    for (word, which) in [("better", better), ("worse", worse)] {
        if !which.is_empty() {
            parts.push(format!("{word} in {} ({})", which.len(), extremes(&which)));
        }
    }
    parts.extend((equal > 0).then(|| format!("equal within ±{:.0} % in {equal}", TOLERANCE * 100.0)));
    parts.extend((undecided > 0).then(|| format!("undecided in {undecided}")));
    let loads = if verdicts.len() == 1 { "1 load".to_owned() } else { format!("{} loads", verdicts.len()) };
    format!("{name}, {new} against {base}, {loads}: {}.", parts.join(", "))
}

/// The smallest and the largest difference.
fn extremes(comparisons: &[&Comparison]) -> String {
    let ratios = comparisons.iter().map(|c| c.ratio);
    let (low, high) = ratios.fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
    if percent(low) == percent(high) {
        percent(low)
    } else {
        format!("{} to {}", percent(low), percent(high))
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}
