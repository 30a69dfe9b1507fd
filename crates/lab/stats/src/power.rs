//! What a number of pairs can find.

use crate::DIFFERENT;
use crate::distribution::t_quantile;

/// Chance with which the smallest detectable difference is found.
pub const POWER: f64 = 0.8;

/// Pairs of a comparison, unless told otherwise: what it takes to find a slowdown of 5 % in nine of ten reports of four figures
/// at the noise of this project's machine (the simulated experiments hold it to that).
pub const PAIRS_DEFAULT: usize = 14;

/// More pairs than anyone measures: the search ends there.
pub(crate) const PAIRS_MAX: usize = 10_000;

/// Smallest difference (part of 1) that `pairs` pairs find with `power`, if the pairs' logarithms have the standard
/// deviation `log_stddev`: the sum of the two t quantiles times the standard error (J. Cohen, "Statistical Power
/// Analysis for the Behavioral Sciences", 1988, in its usual approximation without the noncentral t; the test compares).
pub(crate) fn detectable(log_stddev: f64, pairs: usize, alpha: f64, power: f64) -> f64 {
    if log_stddev == 0.0 {
        return 0.0;
    }
    let degrees = pairs.saturating_sub(1) as f64;
    let quantiles = t_quantile(1.0 - alpha / 2.0, degrees) + t_quantile(power, degrees);
    (quantiles * log_stddev / (pairs as f64).sqrt()).exp_m1()
}

/// Pairs needed to find a difference of `effect` (part of 1: 0.05 is 5 %) with `power`, in a report of `metrics` figures
/// (the first step of Holm's method is the strictest), when the logarithms of single pairs have the standard deviation
/// `log_stddev` (about the relative noise of a pair). At least [`crate::PAIRS_MIN`].
pub fn pairs_needed(log_stddev: f64, effect: f64, power: f64, metrics: usize) -> usize {
    let alpha = DIFFERENT / metrics.max(1) as f64;
    (crate::PAIRS_MIN..PAIRS_MAX)
        .find(|pairs| detectable(log_stddev, *pairs, alpha, power) <= effect)
        .unwrap_or(PAIRS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the noncentral t of scipy 1.17.1: the effect at which `stats.nct.sf(t.ppf(0.975, n - 1), n - 1, nc)` is 0.8,
    /// for a standard deviation of 0.03.
    #[test]
    fn close_to_the_noncentral_t() {
        for (pairs, want) in [(5, 0.0517547), (8, 0.0352895), (10, 0.0303310), (20, 0.0200109)] {
            let got = detectable(0.03, pairs, 0.05, POWER);
            assert!((got / want - 1.0).abs() < 0.02, "{pairs} pairs: {got} against {want}");
        }
        assert_eq!(detectable(0.0, 5, DIFFERENT, POWER), 0.0);
    }

    #[test]
    fn more_noise_and_more_figures_need_more_pairs() {
        let one = pairs_needed(0.03, 0.05, 0.9, 1);
        assert!(pairs_needed(0.06, 0.05, 0.9, 1) > one && pairs_needed(0.03, 0.05, 0.9, 4) > one, "{one}");
        assert_eq!(pairs_needed(0.001, 0.05, 0.9, 1), crate::PAIRS_MIN);
        assert_eq!(pairs_needed(0.5, 1e-9, 0.9, 1), PAIRS_MAX);
    }
}
