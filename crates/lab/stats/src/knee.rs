//! Where adding stops to pay.
//!
//! **The knee**: the largest x up to which every step still gains at least half ([`GAIN_KEPT`]) of what a unit of x gives
//! at the start. The start is y ÷ x at the smallest x measured: the slope of the ideal line through the origin that
//! scaling charts draw dotted. So with 1 reactor at 100 k IOPS, 2 at 190 k and 3 at 220 k the knee is 2: the step to 3
//! gains 30 k, less than half of 100 k. A curve of which every step gains enough has no knee within what was measured,
//! and that is what the answer says.
//!
//! Why this one: it is a statement about money ("the next core earns less than half of the first"), it needs no curve
//! model, and it does not move when points beyond the knee are added, as the maximum distance from a chord does
//! (V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'Kneedle' in a haystack", ICDCS workshops 2011).

use serde::Serialize;

use crate::ALPHA;
use crate::describe::{mean, variance};
use crate::distribution::t_quantile;

/// Part of the initial gain that a step must keep.
pub const GAIN_KEPT: f64 = 0.5;

/// The knee of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Last x before the first step that gains too little; `None` if no step does.
    pub x: Option<f64>,
    /// Mean y at the knee, or at the largest x if there is none.
    pub y: f64,
    /// Gain per unit of x at the start: y ÷ x at the smallest x.
    pub initial_gain: f64,
    /// Gain per unit of x of the first step that gains too little.
    pub gain_after: Option<f64>,
    /// The knee lies between these x, at 95 % for each step: from the first step that may gain too little to the first
    /// that surely does (`None`: none surely does). Without repeats the noise is not known, and nor is this.
    pub interval: Option<(f64, Option<f64>)>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoKnee {
    #[error("a knee takes points at three values of x at least, and there are {found}")]
    TooFewX { found: usize },
    #[error("point {point} is not positive and finite")]
    NotPositive { point: usize },
}

/// The repeats at one x.
struct Group {
    x: f64,
    mean: f64,
    /// Variance of the repeats' logarithms, times their degrees of freedom.
    log_squares: f64,
    repeats: usize,
}

/// Finds the knee of points (x, y), in any order, several for one x if they were repeated. The noise is taken as relative
/// and equal everywhere: the variance of the repeats' logarithms, pooled.
///
/// # Errors
/// Fewer than three distinct x, or a value that is not positive and finite.
pub fn knee(points: &[(f64, f64)]) -> Result<Knee, NoKnee> {
    let usable = |v: f64| v.is_finite() && v > 0.0;
    if let Some(point) = points.iter().position(|(x, y)| !usable(*x) || !usable(*y)) {
        return Err(NoKnee::NotPositive { point });
    }
    let groups = grouped(points);
    let (Some(first), Some(last)) = (groups.first().filter(|_| groups.len() > 2), groups.last()) else {
        return Err(NoKnee::TooFewX { found: groups.len() });
    };
    let steps: Vec<Rise> = groups.windows(2).map(|pair| Rise::of(first, &pair[0], &pair[1])).collect();
    let broken = steps.iter().position(|s| s.excess < 0.0);
    Ok(Knee {
        x: broken.map(|at| groups[at].x),
        y: broken.map_or(last.mean, |at| groups[at].mean),
        initial_gain: first.mean / first.x,
        gain_after: broken.map(|at| steps[at].gain),
        interval: interval(&groups, &steps, last.x),
    })
}

/// From the first step that may gain too little to the first that surely does.
fn interval(groups: &[Group], steps: &[Rise], last_x: f64) -> Option<(f64, Option<f64>)> {
    let degrees: usize = groups.iter().map(|g| g.repeats - 1).sum();
    if degrees == 0 {
        return None;
    }
    let log_variance = groups.iter().map(|g| g.log_squares).sum::<f64>() / degrees as f64;
    let t = t_quantile(1.0 - ALPHA / 2.0, degrees as f64);
    let reach = |step: &Rise| t * (step.weight * log_variance).sqrt();
    let maybe = steps.iter().position(|s| s.excess - reach(s) < 0.0);
    let surely = steps.iter().position(|s| s.excess + reach(s) < 0.0);
    Some((maybe.map_or(last_x, |at| groups[at].x), surely.map(|at| groups[at].x)))
}

fn grouped(points: &[(f64, f64)]) -> Vec<Group> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .map(|repeats| {
            let y: Vec<f64> = repeats.iter().map(|p| p.1).collect();
            let logs: Vec<f64> = y.iter().map(|y| y.ln()).collect();
            let log_squares = variance(&logs) * (logs.len() - 1) as f64;
            Group { x: repeats[0].0, mean: mean(&y), log_squares, repeats: y.len() }
        })
        .collect()
}

/// From one x to the next.
struct Rise {
    /// Per unit of x.
    gain: f64,
    /// What it gains beyond the half of the initial gain that it must keep: y2 − y1 − ½ · y0 ÷ x0 · (x2 − x1).
    excess: f64,
    /// Variance of `excess` for a variance of 1 of the logarithms.
    weight: f64,
}

impl Rise {
    fn of(first: &Group, from: &Group, to: &Group) -> Rise {
        let width = to.x - from.x;
        let kept = GAIN_KEPT * width / first.x;
        let variance = |group: &Group, factor: f64| (factor * group.mean).powi(2) / group.repeats as f64;
        // On the first step `from` is `first`: its one mean enters twice.
        let before = if from.x == first.x {
            variance(first, 1.0 + kept)
        } else {
            variance(from, 1.0) + variance(first, kept)
        };
        Rise {
            gain: (to.mean - from.mean) / width,
            excess: to.mean - from.mean - kept * first.mean,
            weight: variance(to, 1.0) + before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_definition() {
        let k = knee(&[(1.0, 100.0), (3.0, 220.0), (2.0, 190.0)]).unwrap();
        assert_eq!(
            (k.x, k.y, k.initial_gain, k.gain_after, k.interval),
            (Some(2.0), 190.0, 100.0, Some(30.0), None)
        );
    }

    #[test]
    fn none_within_what_was_measured() {
        let k = knee(&[(1.0, 10.0), (2.0, 19.0), (4.0, 36.0), (8.0, 70.0)]).unwrap();
        assert_eq!((k.x, k.y, k.gain_after), (None, 70.0, None));
    }

    #[test]
    fn a_step_of_several_units_is_judged_per_unit() {
        // 4 more units gain 160: 40 each, under half of 100.
        let k = knee(&[(1.0, 100.0), (2.0, 200.0), (4.0, 390.0), (8.0, 550.0)]).unwrap();
        assert_eq!((k.x, k.gain_after), (Some(4.0), Some(40.0)));
    }

    #[test]
    fn errors() {
        let two = knee(&[(1.0, 1.0), (2.0, 2.0), (2.0, 2.1)]).unwrap_err();
        assert_eq!(two.to_string(), "a knee takes points at three values of x at least, and there are 2");
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 0.0)]), Err(NoKnee::NotPositive { point: 1 }));
        assert_eq!(knee(&[]), Err(NoKnee::TooFewX { found: 0 }));
    }

    /// 3 repeats with 2 % noise: linear to 4, then flat. The interval must hold the true knee nearly always.
    #[test]
    fn repeats_give_an_interval_that_holds_the_truth() {
        let mut noise = Noise::new(11);
        let held = (0..1000)
            .filter(|_| {
                let point = |x: f64| (x, 100.0 * x.min(4.0) + 10.0 * (x - 4.0).max(0.0));
                let points: Vec<(f64, f64)> = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
                    .into_iter()
                    .flat_map(|x| [point(x); 3])
                    .map(|(x, y)| (x, y * (0.02 * noise.normal()).exp()))
                    .collect();
                let (low, high) = knee(&points).unwrap().interval.unwrap();
                low <= 4.0 && high.is_none_or(|high| high >= 4.0)
            })
            .count();
        assert!(held >= 950, "{held} of 1000");
    }

    proptest! {
        #[test]
        fn units_do_not_matter(y in proptest::collection::vec(1.0f64..1e3, 3..12), k in 0.01f64..1e3) {
            let points: Vec<(f64, f64)> = y.iter().zip(1u32..).map(|(y, x)| (f64::from(x), *y)).collect();
            let scaled: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y * k)).collect();
            let (a, b) = (knee(&points).unwrap(), knee(&scaled).unwrap());
            prop_assert!(a.x == b.x || (a.gain_after.unwrap_or(0.0) / a.initial_gain - GAIN_KEPT).abs() < 1e-9);
        }
    }
}
