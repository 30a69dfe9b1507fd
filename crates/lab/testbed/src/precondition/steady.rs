//! When rates are steady. The definition is SNIA's (Solid State Storage Performance Test Specification, "Steady State"):
//! over a window of five rounds the rates differ by at most 20 % of their mean, and the line fitted to them by least
//! squares rises or falls by at most 10 % of it. fio's `steadystate=iops` and `iops_slope` test the same two things.

/// Rounds that are looked at.
pub(super) const WINDOW: usize = 5;
/// Largest less smallest rate, as a part of the mean.
const RANGE_MAX: f64 = 0.20;
/// Rise or fall of the fitted line over the window, as a part of the mean.
const RISE_MAX: f64 = 0.10;

/// True if the last [`WINDOW`] rates are steady.
pub(super) fn is_steady(rates: &[f64]) -> bool {
    let Some(first) = rates.len().checked_sub(WINDOW) else { return false };
    let window = &rates[first..];
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    if mean <= 0.0 {
        return false;
    }
    let most = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    let rise = slope(window) * (WINDOW - 1) as f64;
    most - least <= RANGE_MAX * mean && rise.abs() <= RISE_MAX * mean
}

/// Slope of the least-squares line through the rates at 0, 1, 2, …
fn slope(rates: &[f64]) -> f64 {
    let n = rates.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = rates.iter().sum::<f64>() / n;
    let points = || rates.iter().enumerate().map(|(x, y)| (x as f64 - middle, y - mean));
    let covariance: f64 = points().map(|(x, y)| x * y).sum();
    let spread: f64 = points().map(|(x, _)| x * x).sum();
    covariance / spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_rates_are_steady_and_others_are_not() {
        for (rates, steady) in [
            (&[100.0, 100.0, 100.0, 100.0, 100.0][..], true),
            (&[900.0, 500.0, 101.0, 99.0, 102.0, 100.0, 98.0], true),
            // Too few rounds.
            (&[100.0, 100.0, 100.0, 100.0], false),
            // A range of 21 %.
            (&[100.0, 123.0, 100.0, 123.0, 100.0], false),
            // A fall of 11 % in a range of less than 20 %.
            (&[106.0, 103.0, 100.0, 97.5, 94.5], false),
            // A fall of 8 %.
            (&[104.0, 102.0, 100.0, 98.0, 96.0], true),
            (&[0.0, 0.0, 0.0, 0.0, 0.0], false),
        ] {
            assert_eq!(is_steady(rates), steady, "{rates:?}");
        }
    }

    #[test]
    fn the_slope_is_that_of_the_line() {
        assert!((slope(&[1.0, 3.0, 5.0, 7.0, 9.0]) - 2.0).abs() < 1e-12);
        assert!(slope(&[4.0, 4.0, 4.0, 4.0, 4.0]).abs() < 1e-12);
    }
}
