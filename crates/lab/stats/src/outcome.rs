//! What a comparison says.

use std::fmt;

use serde::Serialize;

use crate::{Comparison, DIFFERENT, NoComparison};

/// The three answers of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The arms differ. `within` the tolerance the difference is real but smaller than what matters.
    Different { within: bool },
    /// The arms are the same within ± `tolerance` (part of 1).
    Equal { tolerance: f64 },
    /// Neither could be shown.
    Undecided { reason: String },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Different { .. } => f.write_str("different"),
            Outcome::Equal { tolerance } => write!(f, "equal within ±{} %", percent(*tolerance)),
            Outcome::Undecided { .. } => f.write_str("undecided"),
        }
    }
}

/// A part of 1 as percent with at most two digits.
fn percent(part: f64) -> f64 {
    (part * 1e4).round() / 100.0
}

/// Says whether the arms differ: different if `adjusted_p` (of [`crate::holm`] over the whole report, or the comparison's
/// own p if it stands alone) is below [`DIFFERENT`]; else equal if the whole 95 % interval lies within ± `tolerance` (part
/// of 1), which is the two one-sided tests procedure at 2.5 %; else undecided.
pub fn judge(comparison: &Result<Comparison, NoComparison>, adjusted_p: f64, tolerance: f64) -> Outcome {
    match comparison {
        Err(error) => Outcome::Undecided { reason: error.to_string() },
        Ok(c) if adjusted_p < DIFFERENT => Outcome::Different { within: c.within(tolerance) },
        Ok(c) if c.within(tolerance) => Outcome::Equal { tolerance },
        Ok(c) => Outcome::Undecided {
            reason: format!(
                "{} pairs with this noise show differences of {} % and more",
                c.pairs,
                percent(c.detectable)
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired_log_ratios;

    fn arms(ratio: f64, noise: f64) -> Result<Comparison, NoComparison> {
        let base: Vec<f64> = (0..8).map(|n| 1000.0 + f64::from(n)).collect();
        let sign = |n: usize| if n.is_multiple_of(2) { 1.0 } else { -1.0 };
        let new: Vec<f64> =
            base.iter().enumerate().map(|(n, b)| b * ratio * (1.0 + sign(n) * noise)).collect();
        paired_log_ratios(&base, &new)
    }

    fn alone(comparison: &Result<Comparison, NoComparison>, tolerance: f64) -> Outcome {
        judge(comparison, comparison.as_ref().map_or(1.0, |c| c.p), tolerance)
    }

    #[test]
    fn three_answers() {
        assert_eq!(alone(&arms(0.9, 0.01), 0.05), Outcome::Different { within: false });
        assert_eq!(alone(&arms(0.97, 0.01), 0.05), Outcome::Different { within: true });
        assert_eq!(alone(&arms(1.0, 0.01), 0.05), Outcome::Equal { tolerance: 0.05 });
        let undecided = alone(&arms(1.0, 0.2), 0.05);
        assert!(
            matches!(&undecided, Outcome::Undecided { reason } if reason.contains("8 pairs")),
            "{undecided:?}"
        );
        let few = alone(&paired_log_ratios(&[1.0; 3], &[2.0; 3]), 0.05);
        assert!(matches!(&few, Outcome::Undecided { reason } if reason.contains("at least 5")), "{few:?}");
    }

    #[test]
    fn other_figures_of_the_report_make_it_harder() {
        let comparison = arms(0.985, 0.0105);
        let p = comparison.as_ref().unwrap().p;
        assert!(p < DIFFERENT && p * 4.0 > DIFFERENT, "{p}");
        assert!(matches!(judge(&comparison, p, 0.005), Outcome::Different { .. }));
        assert!(matches!(judge(&comparison, p * 4.0, 0.005), Outcome::Undecided { .. }));
    }

    #[test]
    fn texts() {
        assert_eq!(Outcome::Equal { tolerance: 0.05 }.to_string(), "equal within ±5 %");
        let json = serde_json::to_value(Outcome::Different { within: true }).unwrap();
        assert_eq!(json, serde_json::json!({"outcome": "different", "within": true}));
    }
}
