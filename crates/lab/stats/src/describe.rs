//! Descriptions of samples, and the distribution that tests need.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{ALPHA, Interval};

/// Mean of samples, and its 95 % interval by Student's t (`None` for a single value). Values that are not finite are
/// left out; `None` if none remains.
pub fn mean_with_interval(samples: &[f64]) -> Option<(f64, Option<Interval>)> {
    let finite: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    let (count, middle) = (finite.len() as f64, mean(&finite));
    let reach = t_quantile(1.0 - ALPHA / 2.0, count - 1.0) * (variance(&finite) / count).sqrt();
    (count > 0.0).then(|| (middle, (count > 1.0).then_some((middle - reach, middle + reach))))
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let above = *sorted.get(half)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], above) } else { above })
}

/// Arithmetic mean; 0 for nothing.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// Variance of the sample (n − 1); 0 below two values.
pub fn variance(samples: &[f64]) -> f64 {
    let middle = mean(samples);
    let squares: f64 = samples.iter().map(|v| (v - middle).powi(2)).sum();
    squares / samples.len().saturating_sub(1).max(1) as f64
}

/// Two-sided p value of Student's t; 1 for a value that is not a number.
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

#[cfg(test)]
mod tests {
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
