//! Paired comparison of two arms.

use std::fmt;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{ALPHA, DIFFERENT, Interval};

/// Below this many pairs nothing is decided.
pub const PAIRS_MIN: usize = 5;

/// Pairs of a comparison, unless told otherwise: what it takes to find a slowdown of 5 % in nine of ten reports of four figures
/// at the noise of this project's machine (the simulated experiments hold it to that).
pub const PAIRS_DEFAULT: usize = 14;

/// Chance with which the smallest detectable difference is found.
const POWER: f64 = 0.8;

/// How `new` stands to `base`, of pairs that were measured next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub pairs: usize,
    /// Geometric mean of `new ÷ base`: 0.95 means 5 % less.
    pub ratio: f64,
    /// Of the ratio, 95 %.
    pub interval: Interval,
    /// Two-sided: the chance of a ratio at least this far from 1 if the arms are the same.
    pub p: f64,
    /// Smallest difference (part of 1) that this many pairs with this noise find with a power of 0.8.
    pub detectable: f64,
    /// Mean of the pairs' logarithms.
    pub log_mean: f64,
    /// Standard deviation of the pairs' logarithms: about the relative noise of one pair.
    pub log_stddev: f64,
}

/// Why there is no comparison.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoComparison {
    #[error("{pairs} pairs are too few: it takes at least {PAIRS_MIN}")]
    TooFewPairs { pairs: usize },
    #[error("{base} values of one arm and {new} of the other are no pairs")]
    Unpaired { base: usize, new: usize },
    #[error("pair {pair} has the values {base} and {new}: only positive ones have a ratio")]
    NoRatio { pair: usize, base: f64, new: f64 },
}

impl Comparison {
    /// The whole interval lies within ± `tolerance` (part of 1). The band is [1 ÷ (1 + tolerance), 1 + tolerance]: it reads the
    /// same if the arms change places. This is the two one-sided tests procedure at 2.5 % (D. Schuirmann, "A comparison of the
    /// two one-sided tests procedure and the power approach", J. Pharmacokinetics and Biopharmaceutics 15, 1987).
    pub(crate) fn within(&self, tolerance: f64) -> bool {
        let limit = 1.0 + tolerance.max(0.0);
        self.interval.0 >= 1.0 / limit && self.interval.1 <= limit
    }
}

/// Compares pairs: Student's t on the logarithms of `new ÷ base`. Pairing cancels what both halves of a pair share (drift
/// of the machine), logarithms make the noise of rates and latencies symmetric, and the mean of the logarithms is the
/// logarithm of the geometric mean of the ratios (A. Georges, D. Buytaert, L. Eeckhout, "Statistically rigorous Java
/// performance evaluation", OOPSLA 2007, for the interval; Student, "The probable error of a mean", 1908).
///
/// # Errors
/// Fewer than [`PAIRS_MIN`] pairs, unequal lengths, or a value that is not positive and finite.
pub fn paired_log_ratios(base: &[f64], new: &[f64]) -> Result<Comparison, NoComparison> {
    if base.len() != new.len() {
        return Err(NoComparison::Unpaired { base: base.len(), new: new.len() });
    }
    let mut logs = Vec::with_capacity(base.len());
    for (pair, (base, new)) in base.iter().zip(new).enumerate() {
        let usable = |v: f64| v.is_finite() && v > 0.0;
        if !usable(*base) || !usable(*new) {
            return Err(NoComparison::NoRatio { pair, base: *base, new: *new });
        }
        logs.push(new.ln() - base.ln());
    }
    if logs.len() < PAIRS_MIN {
        return Err(NoComparison::TooFewPairs { pairs: logs.len() });
    }
    Ok(of_logs(&logs))
}

fn of_logs(logs: &[f64]) -> Comparison {
    let pairs = logs.len();
    let (log_mean, log_stddev) = (mean(logs), variance(logs).sqrt());
    let (error, degrees) = (log_stddev / (pairs as f64).sqrt(), (pairs - 1) as f64);
    let reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * error;
    // A mean without error is infinitely far from 0, or is 0.
    let t = if log_mean == 0.0 { 0.0 } else { log_mean / error };
    Comparison {
        pairs,
        ratio: log_mean.exp(),
        interval: ((log_mean - reach).exp(), (log_mean + reach).exp()),
        p: t_two_sided(t, degrees),
        detectable: detectable(log_stddev, pairs),
        log_mean,
        log_stddev,
    }
}

/// Smallest difference (part of 1) that `pairs` pairs find with [`POWER`], if the pairs' logarithms have the standard
/// deviation `log_stddev`: the sum of the two t quantiles times the standard error (J. Cohen, "Statistical Power
/// Analysis for the Behavioral Sciences", 1988, in its usual approximation without the noncentral t; the test compares).
fn detectable(log_stddev: f64, pairs: usize) -> f64 {
    if log_stddev == 0.0 {
        return 0.0;
    }
    let degrees = pairs.saturating_sub(1) as f64;
    let quantiles = t_quantile(1.0 - DIFFERENT / 2.0, degrees) + t_quantile(POWER, degrees);
    (quantiles * log_stddev / (pairs as f64).sqrt()).exp_m1()
}

// Samples described, and the distribution that tests need.

/// Mean of samples, and its 95 % interval by Student's t (`None` for a single value). What is no finite number is left out;
/// `None` if nothing remains.
pub fn mean_with_interval(samples: &[f64]) -> Option<(f64, Option<Interval>)> {
    let finite: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    let (count, middle) = (finite.len() as f64, mean(&finite));
    let reach = t_quantile(1.0 - ALPHA / 2.0, count - 1.0) * (variance(&finite) / count).sqrt();
    (count > 0.0).then(|| (middle, (count > 1.0).then_some((middle - reach, middle + reach))))
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let above = *sorted.get(half)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], above) } else { above })
}

/// Arithmetic mean; 0 for nothing.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// Variance of the sample (n − 1); 0 below two values.
pub(crate) fn variance(samples: &[f64]) -> f64 {
    let middle = mean(samples);
    let squares: f64 = samples.iter().map(|v| (v - middle).powi(2)).sum();
    squares / samples.len().saturating_sub(1).max(1) as f64
}

/// Two-sided p value of Student's t; 1 for what is no number.
pub(crate) fn t_two_sided(t: f64, degrees: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, degrees) {
        Ok(student) if !t.is_nan() => (2.0 * student.cdf(-t.abs())).min(1.0),
        _ => 1.0,
    }
}

/// The value that Student's t stays below with probability `p`; infinite where there is none.
pub(crate) fn t_quantile(p: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |student| student.inverse_cdf(p))
}

// The answers of comparisons: whether the arms differ, and whether a change may be accepted.

/// More pairs than anyone measures.
const PAIRS_MAX: f64 = 1e4;

/// The three answers of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The arms differ. `within` the tolerance the difference is real but smaller than what matters.
    Different { within: bool },
    /// The arms are the same within ± `tolerance` (part of 1).
    Equal { tolerance: f64 },
    /// Neither could be shown.
    Undecided { reason: String },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Different { .. } => f.write_str("different"),
            Outcome::Equal { tolerance } => write!(f, "equal within ±{} %", percent(*tolerance)),
            Outcome::Undecided { .. } => f.write_str("undecided"),
        }
    }
}

/// A part of 1 as percent with at most two digits.
fn percent(part: f64) -> f64 {
    (part * 1e4).round() / 100.0
}

/// Says whether the arms differ: different if `adjusted_p` (of [`crate::holm`] over the whole report, or the comparison's
/// own p if it stands alone) is below `DIFFERENT`; else equal if the whole 95 % interval lies within ± `tolerance` (part
/// of 1); else undecided.
pub fn judge(comparison: &Result<Comparison, NoComparison>, adjusted_p: f64, tolerance: f64) -> Outcome {
    match comparison {
        Err(error) => Outcome::Undecided { reason: error.to_string() },
        Ok(c) if adjusted_p < DIFFERENT => Outcome::Different { within: c.within(tolerance) },
        Ok(c) if c.within(tolerance) => Outcome::Equal { tolerance },
        Ok(c) => Outcome::Undecided {
            reason: format!(
                "{} pairs with this noise show differences of {} % and more",
                c.pairs,
                percent(c.detectable)
            ),
        },
    }
}

/// The three ends of a comparison that tolerates a little, from good to bad: several figures together have the worst of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is not worse by more than the tolerance: the bad end of the interval lies within it; or it is not shown to be
    /// worse at all, by pairs that would have found a difference of the tolerance's size.
    Accepted,
    /// Too few pairs, or too much noise, to say either.
    Undecided,
    /// It is shown to be worse by more than the tolerance: the good end of the interval lies beyond it.
    Rejected,
}

impl Comparison {
    /// Judges one figure; `adjusted_p` as in [`crate::judge`]. A rejection wants both the corrected p and the interval; the
    /// interval alone, which is not corrected and so finds more, keeps a figure from being accepted.
    pub fn verdict(&self, adjusted_p: f64, more_is_better: bool, tolerance: f64) -> Verdict {
        let (limit, (least, most)) = (tolerance.max(0.0).ln_1p(), self.worse_by(more_is_better));
        let finds_it = least <= 0.0 && self.detectable <= tolerance;
        if adjusted_p < DIFFERENT && least > limit {
            Verdict::Rejected
        } else if most <= limit || finds_it {
            Verdict::Accepted
        } else {
            Verdict::Undecided
        }
    }

    /// Pairs that would probably decide what these could not, at the same noise: the detectable difference shrinks with
    /// the root of their number. It has to shrink to the tolerance; of a figure that is shown to be worse, to its distance from the
    /// tolerance. `None` if that takes more pairs than anyone measures.
    pub fn pairs_to_decide(&self, more_is_better: bool, tolerance: f64) -> Option<usize> {
        let (least, most) = self.worse_by(more_is_better);
        let beyond = f64::midpoint(least, most) - tolerance.max(0.0).ln_1p();
        let wanted = if least > 0.0 { beyond.abs().exp_m1() } else { tolerance };
        let pairs = (self.pairs as f64 * (self.detectable / wanted).powi(2)).ceil();
        (pairs <= PAIRS_MAX).then(|| (pairs as usize).max(self.pairs + 1))
    }

    /// The interval as logarithms of how much worse `new` is: at least, and at most.
    fn worse_by(&self, more_is_better: bool) -> Interval {
        let (low, high) = (self.interval.0.ln(), self.interval.1.ln());
        if more_is_better { (-high, -low) } else { (low, high) }
    }
}

/// Adjusts p values so that the chance of even one false "different" in the whole set stays below the level: Holm's
/// step-down method (S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
/// Statistics 6, 1979). Returned in the order given; what is no number counts as 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let value = |at: usize| if p[at].is_nan() { 1.0 } else { p[at] };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(value(at) * (p.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: [f64; 6] = [100.0, 102.0, 98.0, 101.0, 99.0, 103.0];
    const NEW: [f64; 6] = [95.0, 98.0, 92.0, 97.0, 95.0, 96.0];

    /// scipy 1.17.1: `stats.ttest_rel(np.log(new), np.log(base))`, its `confidence_interval(0.95)` exponentiated.
    #[test]
    fn known_sample() {
        let c = paired_log_ratios(&BASE, &NEW).unwrap();
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
        near(c.ratio, 0.950197769743758);
        near(c.interval.0, 0.9372680249467622);
        near(c.interval.1, 0.9633058821966066);
        near(c.p, 0.00020943511602958224);
        assert!(c.within(0.10) && !c.within(0.05));
    }

    #[test]
    fn too_little_is_an_error_that_says_what() {
        let four = paired_log_ratios(&BASE[..4], &NEW[..4]).unwrap_err();
        assert_eq!(four.to_string(), "4 pairs are too few: it takes at least 5");
        assert_eq!(paired_log_ratios(&BASE, &NEW[..5]), Err(NoComparison::Unpaired { base: 6, new: 5 }));
        let mut zero = NEW;
        zero[2] = 0.0;
        assert_eq!(
            paired_log_ratios(&BASE, &zero),
            Err(NoComparison::NoRatio { pair: 2, base: 98.0, new: 0.0 })
        );
    }

    #[test]
    fn without_noise_any_difference_counts() {
        let same = paired_log_ratios(&BASE, &BASE).unwrap();
        assert_eq!((same.ratio, same.interval, same.p, same.detectable), (1.0, (1.0, 1.0), 1.0, 0.0));
        assert!(same.within(0.0));
        let double = paired_log_ratios(&[1.0; 5], &[2.0; 5]).unwrap();
        assert!(double.p < 1e-9 && !double.within(0.5));
    }

    /// By the noncentral t of scipy 1.17.1: the effect at which `stats.nct.sf(t.ppf(0.995, n - 1), n - 1, nc)` is 0.8,
    /// for a standard deviation of 0.03. The approximation is 6 % low for 5 pairs, 1 % for 20.
    #[test]
    fn close_to_the_noncentral_t() {
        for (pairs, want) in [(5, 0.0820628), (8, 0.0490415), (10, 0.0407701), (20, 0.0254724)] {
            let got = detectable(0.03, pairs);
            assert!((got / want - 1.0).abs() < 0.06, "{pairs} pairs: {got} against {want}");
        }
        assert_eq!(detectable(0.0, 5), 0.0);
    }

    proptest! {
        #[test]
        fn arms_may_change_places(pairs in proptest::collection::vec((0.1f64..1e6, 0.1f64..1e6), 5..40)) {
            let (base, new): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let (there, back) = (paired_log_ratios(&base, &new).unwrap(), paired_log_ratios(&new, &base).unwrap());
            prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
            prop_assert!((there.interval.0 * back.interval.1 - 1.0).abs() < 1e-9);
            prop_assert!((there.p - back.p).abs() < 1e-9);
            prop_assert!(there.interval.0 <= there.ratio && there.ratio <= there.interval.1);
            // The interval leaves out 1 exactly when p is below the level.
            let outside = there.interval.0 > 1.0 || there.interval.1 < 1.0;
            prop_assert!(outside == (there.p < ALPHA) || (there.p - ALPHA).abs() < 1e-6);
        }

        #[test]
        fn scale_does_not_matter(pairs in proptest::collection::vec((1.0f64..1e3, 1.0f64..1e3), 5..20), k in 0.01f64..100.0) {
            let (base, new): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let times = |v: &[f64]| v.iter().map(|x| x * k).collect::<Vec<_>>();
            let (a, b) = (paired_log_ratios(&base, &new).unwrap(),
                          paired_log_ratios(&times(&base), &times(&new)).unwrap());
            prop_assert!((a.ratio / b.ratio - 1.0).abs() < 1e-9 && (a.p - b.p).abs() < 1e-6);
        }
    }
}

#[cfg(test)]
mod describe_tests {
    use super::*;

    #[test]
    fn known_sample() {
        // Python's statistics.stdev([3, 1, 4, 1, 5, 9, 2, 6]) = 2.748376143938713
        let sample = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        assert!((variance(&sample).sqrt() - 2.748376143938713).abs() < 1e-12);
        assert_eq!((mean(&sample), median(&sample)), (3.875, Some(3.5)));
        // t.ppf(0.975, 7) = 2.3646242510102993, times stddev / sqrt(8).
        let (middle, interval) = mean_with_interval(&[&sample[..], &[f64::NAN]].concat()).unwrap();
        let (low, high) = interval.unwrap();
        assert!(
            (high - 3.875 - 2.297_699_956_f64).abs() < 1e-4 && (low + high - 2.0 * middle).abs() < 1e-9,
            "{low} {high}"
        );
    }

    #[test]
    fn little_or_nothing() {
        assert_eq!((mean_with_interval(&[f64::NAN]), mean_with_interval(&[7.0])), (None, Some((7.0, None))));
        assert_eq!((variance(&[7.0]), mean(&[])), (0.0, 0.0));
        assert_eq!((median(&[2.0, 1.0, 9.0]), median(&[])), (Some(2.0), None));
    }

    /// scipy 1.17.1: `stats.t.ppf(0.975, df)` and `2 * stats.t.sf(t, df)`.
    #[test]
    fn known_values() {
        for (degrees, want) in
            [(4.0, 2.7764451051977934), (9.0, 2.262157162798205), (30.0, 2.0422724563012378)]
        {
            assert!((t_quantile(0.975, degrees) - want).abs() < 1e-6, "{degrees}");
        }
        assert!((t_two_sided(-3.0, 4.0) - 0.03994196807171883).abs() < 1e-9);
    }

    #[test]
    fn no_numbers_decide_nothing() {
        assert_eq!((t_two_sided(f64::NAN, 4.0), t_two_sided(1.0, 0.0)), (1.0, 1.0));
        assert_eq!(t_two_sided(f64::INFINITY, 4.0), 0.0);
        assert!(t_quantile(0.975, 0.0).is_infinite());
    }
}

#[cfg(test)]
mod judgement_tests {
    use super::*;
    use crate::paired_log_ratios;
    use proptest::prelude::*;

    fn noisy_arms(ratio: f64, noise: f64) -> Result<Comparison, NoComparison> {
        let base: Vec<f64> = (0..8).map(|n| 1000.0 + f64::from(n)).collect();
        let sign = |n: usize| if n.is_multiple_of(2) { 1.0 } else { -1.0 };
        let new: Vec<f64> =
            base.iter().enumerate().map(|(n, b)| b * ratio * (1.0 + sign(n) * noise)).collect();
        paired_log_ratios(&base, &new)
    }

    fn judged(comparison: &Result<Comparison, NoComparison>, tolerance: f64) -> Outcome {
        judge(comparison, comparison.as_ref().map_or(1.0, |c| c.p), tolerance)
    }

    #[test]
    fn three_answers() {
        assert_eq!(judged(&noisy_arms(0.9, 0.01), 0.05), Outcome::Different { within: false });
        assert_eq!(judged(&noisy_arms(0.97, 0.01), 0.05), Outcome::Different { within: true });
        assert_eq!(judged(&noisy_arms(1.0, 0.01), 0.05), Outcome::Equal { tolerance: 0.05 });
        let undecided = judged(&noisy_arms(1.0, 0.2), 0.05);
        assert!(
            matches!(&undecided, Outcome::Undecided { reason } if reason.contains("8 pairs")),
            "{undecided:?}"
        );
        let few = judged(&paired_log_ratios(&[1.0; 3], &[2.0; 3]), 0.05);
        assert!(matches!(&few, Outcome::Undecided { reason } if reason.contains("at least 5")), "{few:?}");
    }

    #[test]
    fn other_figures_of_the_report_make_it_harder() {
        let comparison = noisy_arms(0.985, 0.0105);
        let p = comparison.as_ref().unwrap().p;
        assert!(p < DIFFERENT && p * 4.0 > DIFFERENT, "{p}");
        assert!(matches!(judge(&comparison, p, 0.005), Outcome::Different { .. }));
        assert!(matches!(judge(&comparison, p * 4.0, 0.005), Outcome::Undecided { .. }));
    }

    #[test]
    fn texts() {
        assert_eq!(Outcome::Equal { tolerance: 0.05 }.to_string(), "equal within ±5 %");
        let json = serde_json::to_value(Outcome::Different { within: true }).unwrap();
        assert_eq!(json, serde_json::json!({"outcome": "different", "within": true}));
    }

    /// Eight pairs around `ratio`, four of them above it by `noise` and four below.
    fn arms(ratio: f64, noise: f64) -> Comparison {
        let new: Vec<f64> =
            (0..8).map(|n| ratio * if n % 2 == 0 { 1.0 + noise } else { 1.0 - noise }).collect();
        paired_log_ratios(&[1.0; 8], &new).unwrap()
    }

    fn alone(c: &Comparison, tolerance: f64) -> Verdict {
        c.verdict(c.p, true, tolerance)
    }

    #[test]
    fn nothing_is_accepted_without_evidence() {
        let noisy = arms(1.0, 0.2);
        assert!(noisy.detectable > 0.2, "{noisy:?}");
        assert_eq!(alone(&noisy, 0.05), Verdict::Undecided);
        let pairs = noisy.pairs_to_decide(true, 0.05).unwrap();
        assert_eq!(pairs, (8.0 * (noisy.detectable / 0.05).powi(2)).ceil() as usize);
        // Much better is better than the tolerance, whatever the noise.
        assert_eq!(alone(&arms(2.0, 0.2), 0.05), Verdict::Accepted);
    }

    #[test]
    fn worse_than_the_tolerance_at_both_ends_at_one_and_at_none() {
        assert_eq!(alone(&arms(0.9, 0.01), 0.05), Verdict::Rejected);
        assert_eq!(alone(&arms(0.98, 0.01), 0.05), Verdict::Accepted);
        // -4 % and -6 %, each give or take 2 %: worse, but by less or by more than 5 %?
        for ratio in [0.96, 0.94] {
            let c = arms(ratio, 0.022);
            assert!(c.p < DIFFERENT && c.detectable < 0.05, "{c:?}");
            assert_eq!(alone(&c, 0.05), Verdict::Undecided, "{c:?}");
            assert!(c.pairs_to_decide(true, 0.05).unwrap() > 2 * c.pairs);
        }
        // A figure of which less is better.
        let slower = arms(1.2, 0.01);
        assert_eq!(
            (slower.verdict(slower.p, false, 0.05), alone(&slower, 0.05)),
            (Verdict::Rejected, Verdict::Accepted)
        );
    }

    #[test]
    fn pairs_that_would_have_found_it_are_evidence() {
        let c = arms(0.976, 0.029);
        assert!(c.interval.0 < 1.0 / 1.05 && c.interval.1 > 1.0 && c.detectable < 0.05, "{c:?}");
        assert_eq!(alone(&c, 0.05), Verdict::Accepted);
    }

    #[test]
    fn other_figures_of_the_report_make_it_undecided_not_accepted() {
        let c = arms(0.9, 0.04);
        assert_eq!(
            (c.verdict(c.p, true, 0.05), c.verdict(0.06, true, 0.05)),
            (Verdict::Rejected, Verdict::Undecided)
        );
        assert!(c.pairs_to_decide(true, 0.05).unwrap() > c.pairs);
    }

    #[test]
    fn some_questions_have_no_answer() {
        let c = arms(1.0, 0.01);
        assert_eq!((alone(&c, 0.0), c.pairs_to_decide(true, 0.0)), (Verdict::Undecided, None));
        assert_eq!(alone(&arms(1.0, 0.0), 0.0), Verdict::Accepted);
    }

    proptest! {
        /// A change that is accepted stays so with a larger tolerance, and a rejected one with a smaller.
        #[test]
        fn a_larger_tolerance_is_never_stricter(
            new in proptest::collection::vec(0.5f64..2.0, 5..20), t in 0.0f64..0.5, more in 0.0f64..0.5, better: bool,
        ) {
            let c = paired_log_ratios(&vec![1.0; new.len()], &new).unwrap();
            let (strict, lax) = (c.verdict(c.p, better, t), c.verdict(c.p, better, t + more));
            prop_assert!(lax <= strict, "{strict:?} at {t}, {lax:?} at {}", t + more);
            // The estimate of what is accepted lies within the tolerance, and of what is rejected beyond it.
            let worse = if better { -c.log_mean } else { c.log_mean };
            prop_assert!(strict != Verdict::Accepted || worse <= t.ln_1p() + 1e-9);
            prop_assert!(strict != Verdict::Rejected || worse > t.ln_1p());
        }
    }

    /// By hand, and as R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")` gives: 0.03 0.06 0.06 0.02.
    #[test]
    fn known_values() {
        let got = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, want) in got.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - want).abs() < 1e-12, "{got} against {want}");
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[f64::NAN, 0.9]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn between_the_value_and_bonferroni(p in proptest::collection::vec(0.0f64..=1.0, 1..20)) {
            let adjusted = holm(&p);
            for (before, after) in p.iter().zip(&adjusted) {
                prop_assert!(before <= after && *after <= (before * p.len() as f64).min(1.0) + 1e-12);
            }
            for (a, b) in (0..p.len()).flat_map(|a| (0..p.len()).map(move |b| (a, b))) {
                prop_assert!(p[a] > p[b] || adjusted[a] <= adjusted[b], "the order changed");
            }
        }
    }
}
