//! Axes: a range with ticks at round numbers, linear or logarithmic.

use super::Range;

/// Steps between ticks, of each power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 2.5, 5.0];
/// A logarithmic scale of more powers of ten has ticks at these alone.
const DECADES_MAX: f64 = 3.0;

/// A range of values on an axis, from the first of its ticks to the last.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) ticks: Vec<f64>,
    log: bool,
}

impl Scale {
    /// A scale with about `ticks` ticks that holds a range. Ranges that are empty or not finite become 0 to 1; only those
    /// above 0 can be logarithmic.
    pub(crate) fn new((low, high): Range, log: bool, ticks: usize) -> Scale {
        let log = log && low > 0.0 && low < high && high.is_finite();
        Scale { ticks: if log { logarithmic(low, high) } else { linear(low, high, ticks) }, log }
    }

    /// Just the range.
    pub(crate) fn exact((low, high): Range) -> Scale {
        Scale { ticks: vec![low, high], log: false }
    }

    /// The place of a value in a drawing whose low end is at `from` and whose high end is at `to`; values outside are put
    /// at the end.
    pub(crate) fn place(&self, value: f64, from: f64, to: f64) -> f64 {
        let at = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let ends = self.ticks.first().zip(self.ticks.last());
        let part = ends.map_or(0.0, |(low, high)| (at(value) - at(*low)) / (at(*high) - at(*low)));
        from + (to - from) * if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }
}

fn linear(low: f64, high: f64, ticks: usize) -> Vec<f64> {
    let (low, high) = match (low.is_finite() && high.is_finite(), low < high) {
        (true, true) => (low, high),
        (true, false) if low != 0.0 => (low.min(0.0), low.max(0.0)),
        _ => (0.0, 1.0),
    };
    // The smallest round step that gives no more ticks.
    let least = (high - low) / ticks.max(2) as f64;
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let step = STEPS.iter().map(|s| s * power).find(|s| *s >= least * 0.9999).unwrap_or(power * 10.0);
    let first = (low / step + 1e-9).floor();
    let last = (high / step - 1e-9).ceil().max(first + 1.0);
    (first as i64..=last as i64).map(|n| n as f64 * step).collect()
}

fn logarithmic(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if (high / low).log10() > DECADES_MAX { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all: Vec<f64> = powers.flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e))).collect();
    let first = all.iter().rposition(|t| *t <= low * 1.0001).unwrap_or(0);
    let last = all.iter().position(|t| *t >= high * 0.9999).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1).min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_the_range() {
        let linear = |low, high| Scale::new((low, high), false, 5);
        assert_eq!(linear(0.0, 183_000.0).ticks, [0.0, 50_000.0, 100_000.0, 150_000.0, 200_000.0]);
        assert_eq!(linear(0.0, 1.0).ticks, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(-3.0, 4.0).place(-4.0, 0.0, 8.0), 0.0);
        assert_eq!(linear(-3.0, 4.0).place(f64::INFINITY, 0.0, 8.0), 8.0);
        let log = |low, high| Scale::new((low, high), true, 6);
        assert_eq!(log(0.15, 9.0).ticks, [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(log(0.15, 30_000.0).ticks, [0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn absurd_ranges_still_make_a_scale() {
        for range in [(0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (9.0, 1.0), (-2.0, -2.0)]
        {
            for scale in [Scale::new(range, false, 5), Scale::new(range, true, 5)] {
                assert!(scale.ticks.len() >= 2 && scale.ticks.is_sorted(), "{range:?}: {scale:?}");
                assert!((0.0..=100.0).contains(&scale.place(f64::NAN, 0.0, 100.0)));
            }
        }
    }
}
