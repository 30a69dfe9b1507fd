//! Comparison of two arms: of pairs, or of repeats that make none.

use serde::Serialize;

use crate::describe::{mean, t_quantile, t_two_sided, variance};
use crate::{ALPHA, DIFFERENT, Interval};

/// Below this many pairs nothing is decided.
pub const PAIRS_MIN: usize = 5;

/// Pairs of a comparison by default: the number that finds a slowdown of 5 % in nine of ten reports of four figures
/// at the noise of this project's machine (the simulated experiments hold it to that).
pub const PAIRS_DEFAULT: usize = 14;

/// Chance with which the smallest detectable difference is found.
const POWER: f64 = 0.8;

/// How `new` compares with `base`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Pairs that were measured next to each other; of repeats that make none, those of the arm that has fewer.
    pub pairs: usize,
    /// Geometric mean of `new ÷ base`: 0.95 means 5 % less.
    pub ratio: f64,
    /// Of the ratio, 95 %.
    pub interval: Interval,
    /// Two-sided: the chance of a ratio at least this far from 1 if the arms are the same.
    pub p: f64,
    /// Smallest difference (part of 1) that this many pairs with this noise find with a power of 0.8.
    pub detectable: f64,
    /// Logarithm of the ratio.
    pub log_mean: f64,
    /// Standard deviation of the pairs' logarithms, or of the repeats': about the relative noise of one.
    pub log_stddev: f64,
}

/// Why there is no comparison.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoComparison {
    #[error("{pairs} pairs are too few: at least {PAIRS_MIN} are needed")]
    TooFewPairs { pairs: usize },
    #[error("{repeats} repeats are too few: at least 2 are needed")]
    TooFewRepeats { repeats: usize },
    #[error("a repeat has the value {value}: only positive ones have a ratio")]
    NoLog { value: f64 },
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

/// Compares pairs (base, new): Student's t on the logarithms of `new ÷ base`. Pairing cancels what both halves of a pair share (drift
/// of the machine), logarithms make the noise of rates and latencies symmetric, and the mean of the logarithms is the
/// logarithm of the geometric mean of the ratios (A. Georges, D. Buytaert, L. Eeckhout, "Statistically rigorous Java
/// performance evaluation", OOPSLA 2007, for the interval; Student, "The probable error of a mean", 1908).
///
/// # Errors
/// Fewer than [`PAIRS_MIN`] pairs, or a value that is not positive and finite.
pub fn paired_log_ratios(pairs: &[(f64, f64)]) -> Result<Comparison, NoComparison> {
    let log = |(pair, &(base, new)): (usize, &(f64, f64))| match has_log(base) && has_log(new) {
        true => Ok(new.ln() - base.ln()),
        false => Err(NoComparison::NoRatio { pair, base, new }),
    };
    let logs = pairs.iter().enumerate().map(log).collect::<Result<Vec<f64>, _>>()?;
    let pairs = logs.len();
    if pairs < PAIRS_MIN {
        return Err(NoComparison::TooFewPairs { pairs });
    }
    let log_stddev = variance(&logs).sqrt();
    Ok(of_means(pairs, mean(&logs), log_stddev, log_stddev / (pairs as f64).sqrt(), pairs - 1))
}

/// Compares repeats that make no pairs, as they were measured minutes apart: Student's t for two samples of equal variance, on
/// logarithms (Student, 1908; R. Fisher, "Applications of Student's distribution", Metron 5, 1925).
///
/// # Errors
/// Fewer than two values of an arm, or a value that is not positive and finite.
pub fn repeats_log_ratio(base: &[f64], new: &[f64]) -> Result<Comparison, NoComparison> {
    let fewer = base.len().min(new.len());
    if fewer < 2 {
        return Err(NoComparison::TooFewRepeats { repeats: fewer });
    }
    if let Some(value) = base.iter().chain(new).find(|value| !has_log(**value)) {
        return Err(NoComparison::NoLog { value: *value });
    }
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let (old, young) = (logs(base), logs(new));
    let squares = |logs: &[f64]| variance(logs) * (logs.len() - 1) as f64;
    let degrees = old.len() + young.len() - 2;
    let log_stddev = ((squares(&old) + squares(&young)) / degrees as f64).sqrt();
    let error = log_stddev * (1.0 / old.len() as f64 + 1.0 / young.len() as f64).sqrt();
    Ok(of_means(fewer, mean(&young) - mean(&old), log_stddev, error, degrees))
}

fn has_log(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// The comparison whose logarithm has this mean, this standard error, and this many degrees of freedom.
fn of_means(pairs: usize, log_mean: f64, log_stddev: f64, error: f64, degrees: usize) -> Comparison {
    let degrees = degrees as f64;
    let reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * error;
    // A mean without error is infinitely far from 0, or is 0.
    let t = if log_mean == 0.0 { 0.0 } else { log_mean / error };
    Comparison {
        pairs,
        ratio: log_mean.exp(),
        interval: ((log_mean - reach).exp(), (log_mean + reach).exp()),
        p: t_two_sided(t, degrees),
        detectable: detectable(error, degrees),
        log_mean,
        log_stddev,
    }
}

/// Smallest difference (part of 1) that is found with [`POWER`] at this standard error: the sum of the two t quantiles times
/// the error (J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, in its usual approximation without
/// the noncentral t; the test compares).
fn detectable(error: f64, degrees: f64) -> f64 {
    if error == 0.0 {
        return 0.0;
    }
    let quantiles = t_quantile(1.0 - DIFFERENT / 2.0, degrees) + t_quantile(POWER, degrees);
    (quantiles * error).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::paired;
    use proptest::prelude::*;

    const BASE: [f64; 6] = [100.0, 102.0, 98.0, 101.0, 99.0, 103.0];
    const NEW: [f64; 6] = [95.0, 98.0, 92.0, 97.0, 95.0, 96.0];

    /// scipy 1.17.1: `stats.ttest_rel(np.log(new), np.log(base))`, its `confidence_interval(0.95)` exponentiated.
    #[test]
    fn known_sample() {
        let c = paired(&BASE, &NEW).unwrap();
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
        near(c.ratio, 0.950197769743758);
        near(c.interval.0, 0.9372680249467622);
        near(c.interval.1, 0.9633058821966066);
        near(c.p, 0.00020943511602958224);
        assert!(c.within(0.10) && !c.within(0.05));
    }

    /// By hand: the logarithms' standard error is 0.0156075, t is 6.108 with 4 degrees of freedom, and the interval reaches
    /// 2.7764 errors to each side.
    #[test]
    fn repeats_are_compared_without_pairs() {
        let c = repeats_log_ratio(&[100.0, 102.0, 98.0], &[110.0, 112.0, 108.0]).unwrap();
        assert!((c.ratio - 1.100_025).abs() < 1e-5 && c.pairs == 3, "{c:?}");
        assert!((c.interval.0 - 1.053_376).abs() < 1e-5 && (c.interval.1 - 1.148_741).abs() < 1e-5, "{c:?}");
        assert!((c.p - 0.003_636).abs() < 1e-5, "{c:?}");
        // Their order does not matter, and they need not be equally many.
        let other = repeats_log_ratio(&[98.0, 102.0, 100.0], &[112.0, 108.0, 110.0]).unwrap();
        assert!((other.p - c.p).abs() < 1e-9);
        assert!(repeats_log_ratio(&[1.0, 1.1], &[1.0, 1.1, 0.9]).unwrap().p > 0.5);
        assert_eq!(repeats_log_ratio(&[1.0], &[1.0; 3]), Err(NoComparison::TooFewRepeats { repeats: 1 }));
        assert_eq!(repeats_log_ratio(&[1.0, 0.0], &[1.0; 3]), Err(NoComparison::NoLog { value: 0.0 }));
    }

    #[test]
    fn too_little_is_an_error_that_says_what() {
        let four = paired(&BASE[..4], &NEW[..4]).unwrap_err();
        assert_eq!(four.to_string(), "4 pairs are too few: at least 5 are needed");
        let mut zero = NEW;
        zero[2] = 0.0;
        assert_eq!(paired(&BASE, &zero), Err(NoComparison::NoRatio { pair: 2, base: 98.0, new: 0.0 }));
    }

    #[test]
    fn without_noise_any_difference_counts() {
        let same = paired(&BASE, &BASE).unwrap();
        assert_eq!((same.ratio, same.interval, same.p, same.detectable), (1.0, (1.0, 1.0), 1.0, 0.0));
        assert!(same.within(0.0));
        let double = paired(&[1.0; 5], &[2.0; 5]).unwrap();
        assert!(double.p < 1e-9 && !double.within(0.5));
    }

    /// By the noncentral t of scipy 1.17.1: the effect at which `stats.nct.sf(t.ppf(0.995, n - 1), n - 1, nc)` is 0.8,
    /// for a standard deviation of 0.03. The approximation is 6 % low for 5 pairs, 1 % for 20.
    #[test]
    fn close_to_the_noncentral_t() {
        for (pairs, want) in [(5.0, 0.0820628), (8.0, 0.0490415), (10.0, 0.0407701), (20.0, 0.0254724)] {
            let got = detectable(0.03 / f64::sqrt(pairs), pairs - 1.0);
            assert!((got / want - 1.0).abs() < 0.06, "{pairs} pairs: {got} against {want}");
        }
        assert_eq!(detectable(0.0, 4.0), 0.0);
    }

    proptest! {
        #[test]
        fn arms_may_change_places(pairs in proptest::collection::vec((0.1f64..1e6, 0.1f64..1e6), 5..40)) {
            let (base, new): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let (there, back) = (paired(&base, &new).unwrap(), paired(&new, &base).unwrap());
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
            let (a, b) = (paired(&base, &new).unwrap(),
                          paired(&times(&base), &times(&new)).unwrap());
            prop_assert!((a.ratio / b.ratio - 1.0).abs() < 1e-9 && (a.p - b.p).abs() < 1e-6);
        }
    }
}
