//! What one more of something adds.

use serde::Serialize;

use crate::describe::mean;
use crate::distribution::t_quantile;
use crate::{ALPHA, Interval};

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

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSlope {
    #[error("{x} values of x and {y} of y are no points")]
    Unpaired { x: usize, y: usize },
    #[error("a slope takes points at two values of x at least")]
    OneX,
    #[error("point {point} is no finite number")]
    NotFinite { point: usize },
}

/// Least squares with the interval of the slope by Student's t on n − 2 degrees of freedom (any textbook; N. Draper,
/// H. Smith, "Applied Regression Analysis", 1998, chapter 1). Several points may have the same x: repeats.
///
/// # Errors
/// Unequal lengths, a value that is not finite, or fewer than two distinct x.
pub fn slope(x: &[f64], y: &[f64]) -> Result<Slope, NoSlope> {
    if x.len() != y.len() {
        return Err(NoSlope::Unpaired { x: x.len(), y: y.len() });
    }
    if let Some(point) = x.iter().zip(y).position(|(x, y)| !x.is_finite() || !y.is_finite()) {
        return Err(NoSlope::NotFinite { point });
    }
    let (middle_x, middle_y) = (mean(x), mean(y));
    let squares_x: f64 = x.iter().map(|x| (x - middle_x).powi(2)).sum();
    let squares_y: f64 = y.iter().map(|y| (y - middle_y).powi(2)).sum();
    if squares_x <= 0.0 {
        return Err(NoSlope::OneX);
    }
    let products: f64 = x.iter().zip(y).map(|(x, y)| (x - middle_x) * (y - middle_y)).sum();
    let slope = products / squares_x;
    let intercept = middle_y - slope * middle_x;
    let residuals: f64 = x.iter().zip(y).map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
    let interval = (x.len() > 2).then(|| {
        let degrees = (x.len() - 2) as f64;
        let reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * (residuals / degrees / squares_x).sqrt();
        (slope - reach, slope + reach)
    });
    let r2 = if squares_y > 0.0 { (1.0 - residuals / squares_y).clamp(0.0, 1.0) } else { 1.0 };
    Ok(Slope { points: x.len(), slope, interval, intercept, r2 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// scipy 1.17.1: `stats.linregress(x, y)`, interval by `slope ± t.ppf(0.975, 4) * stderr`.
    #[test]
    fn known_sample() {
        let s = slope(&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0], &[10.2, 19.8, 31.0, 39.1, 61.5, 78.9]).unwrap();
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-6, "{got} against {want}");
        near(s.slope, 9.923529411764706);
        near(s.intercept, 0.3892156862745111);
        near(s.r2, 0.998476277963129);
        near(s.interval.unwrap().0, 9.385372087439377);
        near(s.interval.unwrap().1, 10.461686736090035);
    }

    #[test]
    fn little_or_nothing() {
        let two = slope(&[1.0, 3.0], &[5.0, 9.0]).unwrap();
        assert_eq!((two.slope, two.intercept, two.interval), (2.0, 3.0, None));
        assert_eq!(slope(&[2.0, 2.0], &[5.0, 9.0]), Err(NoSlope::OneX));
        assert_eq!(slope(&[], &[]), Err(NoSlope::OneX));
        assert_eq!(slope(&[1.0], &[]), Err(NoSlope::Unpaired { x: 1, y: 0 }));
        assert_eq!(slope(&[1.0, 2.0], &[1.0, f64::NAN]), Err(NoSlope::NotFinite { point: 1 }));
    }

    proptest! {
        #[test]
        fn a_line_is_found_again(a in -1e3f64..1e3, b in -1e3f64..1e3, n in 3usize..20) {
            let x: Vec<f64> = (1..=n).map(|n| n as f64).collect();
            let y: Vec<f64> = x.iter().map(|x| a + b * x).collect();
            let s = slope(&x, &y).unwrap();
            prop_assert!((s.slope - b).abs() < 1e-6 && (s.intercept - a).abs() < 1e-5);
            let (low, high) = s.interval.unwrap();
            prop_assert!(low <= s.slope && s.slope <= high);
        }
    }
}
