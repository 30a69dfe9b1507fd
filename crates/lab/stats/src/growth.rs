//! What each further unit adds, up to where adding stops to pay.

use crate::{Knee, Slope, knee, slope};

/// Slope and knee of one line of points, as far as there are enough points for each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Of the points up to the knee: beyond it something else is the limit.
    pub slope: Option<Slope>,
    /// See [`knee`].
    pub knee: Option<Knee>,
}

/// Finds the knee of (x, y), then the slope of what lies before it (of all, if there is none).
pub fn growth(points: &[(f64, f64)]) -> Growth {
    let knee = knee(points).ok();
    let limit = knee.and_then(|k| k.x).unwrap_or(f64::INFINITY);
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().filter(|(x, _)| *x <= limit).unzip();
    Growth { slope: slope(&x, &y).ok(), knee }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
