//! The answers of comparisons: whether the arms differ, and whether a change may be accepted.

use std::fmt;

use serde::Serialize;

use crate::{Comparison, DIFFERENT, Interval, NoComparison};

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
                "{} measurements of each with this noise show differences of {} % and more",
                c.pairs,
                percent(c.detectable)
            ),
        },
    }
}

/// The three verdicts of a comparison with a tolerance, from good to bad; the verdict of several figures is the worst of theirs.
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
    /// the root of their number. It has to shrink to the tolerance; for a figure that is shown to be worse, to its distance from the
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
/// Statistics 6, 1979). Returned in the order given; a value that is not a number counts as 1.
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
    use crate::testing::paired;
    use proptest::prelude::*;

    fn noisy_arms(ratio: f64, noise: f64) -> Result<Comparison, NoComparison> {
        let base: Vec<f64> = (0..8).map(|n| 1000.0 + f64::from(n)).collect();
        let sign = |n: usize| if n.is_multiple_of(2) { 1.0 } else { -1.0 };
        let new: Vec<f64> =
            base.iter().enumerate().map(|(n, b)| b * ratio * (1.0 + sign(n) * noise)).collect();
        paired(&base, &new)
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
            matches!(&undecided, Outcome::Undecided { reason } if reason.contains("8 measurements of each")),
            "{undecided:?}"
        );
        let few = judged(&paired(&[1.0; 3], &[2.0; 3]), 0.05);
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
        paired(&[1.0; 8], &new).unwrap()
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
        // -4 % and -6 %, each give or take 2 %: these are worse, but it is open whether by more than 5 %.
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
            let c = paired(&vec![1.0; new.len()], &new).unwrap();
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
