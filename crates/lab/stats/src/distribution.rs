//! The distributions that the tests need.

use statrs::distribution::{ContinuousCDF, StudentsT};

fn student(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees).ok()
}

/// Two-sided p value of Student's t; 1 for what is no number.
pub(crate) fn t_two_sided(t: f64, degrees: f64) -> f64 {
    match student(degrees) {
        Some(student) if !t.is_nan() => (2.0 * student.cdf(-t.abs())).min(1.0),
        _ => 1.0,
    }
}

/// One-sided p value: the chance of a t this large or larger.
pub(crate) fn t_upper(t: f64, degrees: f64) -> f64 {
    match student(degrees) {
        Some(student) if !t.is_nan() => student.cdf(-t),
        _ => 1.0,
    }
}

/// The value that Student's t stays below with probability `p`; infinite where there is none.
pub(crate) fn t_quantile(p: f64, degrees: f64) -> f64 {
    student(degrees).map_or(f64::INFINITY, |student| student.inverse_cdf(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// scipy 1.17.1: `stats.t.ppf(0.975, df)` and `2 * stats.t.sf(t, df)`.
    #[test]
    fn known_values() {
        for (degrees, want) in
            [(4.0, 2.7764451051977934), (9.0, 2.262157162798205), (30.0, 2.0422724563012378)]
        {
            assert!((t_quantile(0.975, degrees) - want).abs() < 1e-6, "{degrees}");
        }
        assert!((t_two_sided(-3.0, 4.0) - 0.03994196807171883).abs() < 1e-9);
        assert!((t_upper(3.0, 4.0) - 0.019970984035859413).abs() < 1e-9);
        assert!((t_upper(-3.0, 4.0) - 0.9800290159641406).abs() < 1e-9);
    }

    #[test]
    fn no_numbers_decide_nothing() {
        assert_eq!(
            (t_two_sided(f64::NAN, 4.0), t_two_sided(1.0, 0.0), t_upper(f64::NAN, 4.0)),
            (1.0, 1.0, 1.0)
        );
        assert_eq!(t_two_sided(f64::INFINITY, 4.0), 0.0);
        assert!(t_quantile(0.975, 0.0).is_infinite());
    }
}
