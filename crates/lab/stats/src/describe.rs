//! Descriptions of samples.

use serde::Serialize;

use crate::distribution::t_quantile;
use crate::{ALPHA, Interval};

/// What a set of samples looks like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub mean: f64,
    /// Of the sample (n − 1); 0 for a single value.
    pub stddev: f64,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Summary {
    /// 95 % interval of the mean by Student's t; `None` for a single value.
    pub fn interval(&self) -> Option<Interval> {
        let degrees = (self.count > 1).then_some(self.count as f64 - 1.0)?;
        let reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * self.stddev / (self.count as f64).sqrt();
        Some((self.mean - reach, self.mean + reach))
    }

    /// Standard deviation ÷ mean; `None` if the mean is 0.
    pub fn variation(&self) -> Option<f64> {
        (self.mean != 0.0).then(|| self.stddev / self.mean.abs())
    }
}

/// Describes samples; what is no finite number is left out. `None` if nothing remains.
pub fn summary(samples: &[f64]) -> Option<Summary> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let mean = mean(&sorted);
    let stddev = variance(&sorted).sqrt();
    Some(Summary { count: sorted.len(), mean, stddev, min, median: middle(&sorted), max })
}

/// The middle value, or the mean of the two middle ones; `None` if there is no finite number.
pub fn median(samples: &[f64]) -> Option<f64> {
    summary(samples).map(|s| s.median)
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if !sorted.len().is_multiple_of(2) { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Arithmetic mean; 0 for nothing.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// Variance of the sample (n − 1); 0 below two values.
pub(crate) fn variance(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let mean = mean(samples);
    samples.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (samples.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sample() {
        // Python's statistics.stdev([3, 1, 4, 1, 5, 9, 2, 6]) = 2.748376143938713
        let s = summary(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, f64::NAN]).unwrap();
        assert_eq!((s.count, s.mean, s.min, s.median, s.max), (8, 3.875, 1.0, 3.5, 9.0));
        assert!((s.stddev - 2.748376143938713).abs() < 1e-12);
        assert!((s.variation().unwrap() - 2.748376143938713 / 3.875).abs() < 1e-12);
        // t.ppf(0.975, 7) = 2.3646242510102993, times stddev / sqrt(8).
        let (low, high) = s.interval().unwrap();
        assert!(
            (high - 3.875 - 2.297_699_956_f64).abs() < 1e-4 && (low + high - 7.75).abs() < 1e-9,
            "{low} {high}"
        );
    }

    #[test]
    fn little_or_nothing() {
        assert_eq!(summary(&[f64::NAN]), None);
        let one = summary(&[7.0]).unwrap();
        assert_eq!((one.stddev, one.median, one.interval()), (0.0, 7.0, None));
        assert_eq!((median(&[2.0, 1.0, 9.0]), median(&[])), (Some(2.0), None));
        assert_eq!(summary(&[0.0]).unwrap().variation(), None);
    }
}
