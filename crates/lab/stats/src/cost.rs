//! The cost of an operation as reactors are added. The law is a line: each added reactor makes every operation dearer by the same
//! amount, because it shares what cannot be split (caches, memory, the log). So `cost(n) = one * (1 + growth * (n - 1))`, and `n`
//! reactors do `n / cost(n)` operations in a unit of time: with growth, never more than `1 / (one * growth)` (G. Amdahl, "Validity of the
//! single processor approach", AFIPS 1967, for the shape; N. Gunther, "Guerrilla Capacity Planning", 2007, for its use).

use serde::Serialize;

use crate::comparison::{NoComparison, repeats_log_ratio};
use crate::describe::{mean, t_quantile};
use crate::{ALPHA, Interval};

/// The line through repeats at one reactor and at two. The noise is taken as relative and equal at both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostLaw {
    /// Reactor time of an operation at one reactor and at two, in the unit of the samples: geometric means.
    pub one: f64,
    pub two: f64,
    /// The part of `one` by which each added reactor raises the cost. Below 0 it is noise, or a gain that the law does not have.
    pub growth: f64,
    /// Of the growth, 95 %.
    pub growth_interval: Interval,
    /// Standard deviation of the repeats' logarithms, pooled.
    pub log_stddev: f64,
    #[serde(skip)]
    repeats: (f64, f64),
}

impl CostLaw {
    /// Fits repeats at one reactor and at two: reactor time of an operation, at least two values of each.
    ///
    /// # Errors
    /// Fewer than two values, or one that is not positive and finite.
    pub fn fit(one: &[f64], two: &[f64]) -> Result<CostLaw, NoComparison> {
        let step = repeats_log_ratio(one, two)?;
        let logs: Vec<f64> = one.iter().map(|cost| cost.ln()).collect();
        let first = mean(&logs).exp();
        Ok(CostLaw {
            one: first,
            two: first * step.ratio,
            growth: step.ratio - 1.0,
            growth_interval: (step.interval.0 - 1.0, step.interval.1 - 1.0),
            log_stddev: step.log_stddev,
            repeats: (one.len() as f64, two.len() as f64),
        })
    }

    /// Reactor time of an operation at this many reactors. It never falls below that at one: a fall in the samples counts as noise.
    #[must_use]
    pub fn cost(&self, reactors: u32) -> f64 {
        self.one * (1.0 + self.growth.max(0.0) * (f64::from(reactors) - 1.0))
    }

    /// Operations of this many reactors in a unit of time, and the interval into which the mean of `repeats` measurements falls
    /// with 95 %: the noise of both fitted means, carried along the line, and that of the new mean, by Student's t.
    #[must_use]
    pub fn rate(&self, reactors: u32, repeats: usize) -> (f64, Interval) {
        let (n, cost, fresh) = (f64::from(reactors), self.cost(reactors), 1.0 / repeats.max(1) as f64);
        let degrees = self.repeats.0 + self.repeats.1 - 2.0;
        let noise = t_quantile(1.0 - ALPHA / 2.0, degrees) * self.log_stddev;
        // The line is `(2 - n) * one + (n - 1) * two`.
        let ends = [((n - 2.0) * self.one, self.repeats.0), ((n - 1.0) * self.two, self.repeats.1)];
        let variance: f64 = ends.iter().map(|(part, repeats)| part * part / repeats).sum();
        let reach = noise * (variance + cost * cost * fresh).sqrt();
        let least = self.one * (-noise * (1.0 / self.repeats.0 + fresh).sqrt()).exp();
        (n / cost, (n / (cost + reach), n / (cost - reach).max(least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;
    use proptest::prelude::*;

    /// `count` repeats of a cost with this relative noise.
    fn repeats(noise: &mut Noise, cost: f64, stddev: f64, count: usize) -> Vec<f64> {
        (0..count).map(|_| cost * (stddev * noise.normal()).exp()).collect()
    }

    proptest! {
        #[test]
        fn a_law_without_noise_is_found_again(one in 0.1f64..1e4, growth in 0.0f64..0.5, n in 1u32..=64) {
            let law = CostLaw::fit(&[one; 3], &[one * (1.0 + growth); 3]).unwrap();
            let want = f64::from(n) / (one * (1.0 + growth * f64::from(n - 1)));
            let (rate, (low, high)) = law.rate(n, 3);
            for got in [rate, low, high] {
                prop_assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
            }
        }

        #[test]
        fn the_interval_is_finite_and_holds_the_estimate(
            one in proptest::collection::vec(0.1f64..10.0, 2..6), two in proptest::collection::vec(0.1f64..10.0, 2..6), n in 1u32..=64,
        ) {
            let (rate, (low, high)) = CostLaw::fit(&one, &two).unwrap().rate(n, 3);
            prop_assert!(0.0 < low && low <= rate && rate <= high && high.is_finite(), "{low} {rate} {high}");
        }
    }

    /// Of a thousand experiments of three repeats each, a new mean of three lies in the interval as often as it says.
    #[test]
    fn the_interval_holds_new_measurements_at_its_rate() {
        let mut noise = Noise::new(5);
        for (growth, most) in [(0.05, 0.975), (0.0, 1.0)] {
            for n in [1, 2, 4, 16, 64] {
                let truth = 1.0 + growth * f64::from(n - 1);
                let held = (0..1000).filter(|_| {
                    let one = repeats(&mut noise, 1.0, 0.01, 3);
                    let law = CostLaw::fit(&one, &repeats(&mut noise, 1.0 + growth, 0.01, 3)).unwrap();
                    let new = f64::from(n) / mean(&repeats(&mut noise, truth, 0.01, 3));
                    let (_, (low, high)) = law.rate(n, 3);
                    (low..=high).contains(&new)
                });
                let part = held.count() as f64 / 1e3;
                assert!((0.93..=most).contains(&part), "growth {growth}, {n} reactors: {part}");
            }
        }
    }

    #[test]
    fn more_noise_and_more_reactors_widen_it() {
        let width = |spread: f64, n: u32| {
            let one = [1.0 - spread, 1.0, 1.0 + spread];
            let (rate, (low, high)) = CostLaw::fit(&one, &one.map(|cost| 1.1 * cost)).unwrap().rate(n, 3);
            (high - low) / rate
        };
        assert!(width(0.01, 4) < width(0.03, 4) && width(0.01, 4) < width(0.01, 32));
    }

    #[test]
    fn a_cost_that_falls_is_noise_and_too_few_repeats_are_an_error() {
        let law = CostLaw::fit(&[1.0, 1.02, 0.98], &[0.99, 1.0, 0.97]).unwrap();
        assert!(law.growth < 0.0 && law.cost(64) == law.one, "{law:?}");
        assert_eq!(CostLaw::fit(&[1.0], &[1.0; 3]), Err(NoComparison::TooFewRepeats { repeats: 1 }));
        assert!(CostLaw::fit(&[1.0, 0.0], &[1.0; 3]).is_err());
    }
}
