//! The gain of each further unit, up to the point where adding stops paying off.
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

use crate::describe::{mean, t_quantile, variance};
use crate::{ALPHA, Interval};

/// Part of the initial gain that a step must keep.
const GAIN_KEPT: f64 = 0.5;

/// Slope and knee of one line of points, as far as there are enough points for each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Of the points up to the knee: beyond it something else is the limit.
    pub slope: Option<Slope>,
    pub knee: Option<Knee>,
}

/// A straight line through points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slope {
    pub points: usize,
    /// Units of y per unit of x.
    pub slope: f64,
    /// Of the slope, 95 %; `None` for two points, which leave no residual.
    pub interval: Option<Interval>,
    /// y at x = 0.
    pub intercept: f64,
    /// Part of y's variance that the line explains.
    pub r2: f64,
}

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
    /// that surely does (`None`: none surely does). Without repeats neither the noise nor this is known.
    pub interval: Option<(f64, Option<f64>)>,
}

/// Finds the knee of (x, y), then the slope of what lies before it (of all, if there is none).
pub fn growth(points: &[(f64, f64)]) -> Growth {
    let knee = knee(points);
    let limit = knee.and_then(|k| k.x).unwrap_or(f64::INFINITY);
    let before: Vec<(f64, f64)> = points.iter().copied().filter(|(x, _)| *x <= limit).collect();
    Growth { slope: slope(&before), knee }
}

/// Least squares with the interval of the slope by Student's t on n − 2 degrees of freedom (any textbook; N. Draper,
/// H. Smith, "Applied Regression Analysis", 1998, chapter 1). Several points may have the same x: repeats. `None` for fewer
/// than two distinct x, or a value that is not finite.
fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(*x, *y)).sum::<f64>();
    let count = points.len() as f64;
    let (middle_x, middle_y) = (sum(&|x, _| x) / count, sum(&|_, y| y) / count);
    let squares_x = sum(&|x, _| (x - middle_x).powi(2));
    let squares_y = sum(&|_, y| (y - middle_y).powi(2));
    let slope = sum(&|x, y| (x - middle_x) * (y - middle_y)) / squares_x;
    if !slope.is_finite() {
        return None;
    }
    let intercept = middle_y - slope * middle_x;
    let residuals = sum(&|x, y| (y - intercept - slope * x).powi(2));
    let interval = (points.len() > 2).then(|| {
        let degrees = count - 2.0;
        let reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * (residuals / degrees / squares_x).sqrt();
        (slope - reach, slope + reach)
    });
    let r2 = if squares_y > 0.0 { (1.0 - residuals / squares_y).clamp(0.0, 1.0) } else { 1.0 };
    Some(Slope { points: points.len(), slope, interval, intercept, r2 })
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
/// `None` for fewer than three distinct x, or a value that is not positive and finite.
fn knee(points: &[(f64, f64)]) -> Option<Knee> {
    let usable = |v: f64| v.is_finite() && v > 0.0;
    let groups = grouped(points);
    if groups.len() < 3 || !points.iter().all(|(x, y)| usable(*x) && usable(*y)) {
        return None;
    }
    let (first, last) = (groups.first()?, groups.last()?);
    let steps: Vec<Rise> = groups.windows(2).map(|pair| Rise::between(first, &pair[0], &pair[1])).collect();
    let broken = steps.iter().position(|s| s.excess < 0.0);
    Some(Knee {
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
    /// Its gain beyond the half of the initial gain that it must keep: y2 − y1 − ½ · y0 ÷ x0 · (x2 − x1).
    excess: f64,
    /// Variance of `excess` for a variance of 1 of the logarithms.
    weight: f64,
}

impl Rise {
    fn between(first: &Group, from: &Group, to: &Group) -> Rise {
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
    use crate::testing::Noise;
    use proptest::prelude::*;

    #[test]
    fn the_slope_ends_at_the_knee() {
        let found = growth(&[(1.0, 100.0), (2.0, 200.0), (3.0, 300.0), (4.0, 310.0)]);
        assert_eq!(found.knee.and_then(|k| k.x), Some(3.0));
        let slope = found.slope.unwrap();
        assert!((slope.slope - 100.0).abs() < 1e-9 && slope.points == 3, "{slope:?}");
        // Two sizes have a slope, but no knee.
        let two = growth(&[(1.0, 5.0), (2.0, 7.0)]);
        assert!(two.knee.is_none() && two.slope.is_some_and(|s| (s.slope - 2.0).abs() < 1e-9));
        assert_eq!(growth(&[]), Growth::default());
    }

    /// scipy 1.17.1: `stats.linregress(x, y)`, interval by `slope ± t.ppf(0.975, 4) * stderr`.
    #[test]
    fn known_sample() {
        let points = [(1.0, 10.2), (2.0, 19.8), (3.0, 31.0), (4.0, 39.1), (6.0, 61.5), (8.0, 78.9)];
        let s = slope(&points).unwrap();
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-6, "{got} against {want}");
        near(s.slope, 9.923529411764706);
        near(s.intercept, 0.3892156862745111);
        near(s.r2, 0.998476277963129);
        near(s.interval.unwrap().0, 9.385372087439377);
        near(s.interval.unwrap().1, 10.461686736090035);
    }

    #[test]
    fn little_or_nothing() {
        let two = slope(&[(1.0, 5.0), (3.0, 9.0)]).unwrap();
        assert_eq!((two.slope, two.intercept, two.interval), (2.0, 3.0, None));
        for none in [vec![], vec![(2.0, 5.0), (2.0, 9.0)], vec![(1.0, 1.0), (2.0, f64::NAN)]] {
            assert_eq!(slope(&none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_is_found_again(a in -1e3f64..1e3, b in -1e3f64..1e3, n in 3usize..20) {
            let points: Vec<(f64, f64)> = (1..=n).map(|n| (n as f64, a + b * n as f64)).collect();
            let s = slope(&points).unwrap();
            prop_assert!((s.slope - b).abs() < 1e-6 && (s.intercept - a).abs() < 1e-5);
            let (low, high) = s.interval.unwrap();
            prop_assert!(low <= s.slope && s.slope <= high);
        }
    }

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
    fn a_knee_takes_three_sizes_and_positive_values() {
        for none in
            [vec![(1.0, 1.0), (2.0, 2.0), (2.0, 2.1)], vec![(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)], vec![]]
        {
            assert_eq!(knee(&none), None, "{none:?}");
        }
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
