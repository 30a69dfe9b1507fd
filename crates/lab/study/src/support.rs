//! Decides whether results support an answer: no mark may spoil them, repeats must be enough, and a change must be larger than the
//! drift of the machine. Every sentence that answers a question, on the terminal and in reports, is made of what passes here.

use std::fmt;

use carmine_stats::{Interval, Outcome, judge, mean, repeats_log_ratio};
use carmine_types::counted;

use crate::archive::{Config, PointResult};
use crate::lists::tally;
use crate::run::WINDOW_MIN;

/// Clean repeats of a point that an answer takes.
pub const REPEATS_MIN: usize = 3;

/// A point of which other work spoilt repeats is measured this many times more at most.
pub const SPARE_REPEATS: usize = 2;

/// Marks that spoil a figure.
pub const SPOILS: [&str; 7] = ["SMOKE", "SHARED", "NOISY", "FOREIGN", "CLOCKS", "UNSTEADY", "DIED"];

/// Those that come from other work: the next repeat may have none.
const PASSING: [&str; 3] = ["NOISY", "FOREIGN", "UNSTEADY"];

/// The word for a point without a result.
const FAILED: &str = "failed";

/// The marks that spoil a point, each once, or `failed`; none of a clean point. A short window is SMOKE, whatever marks it has.
pub fn spoilt_by(config: &Config, result: Option<&PointResult>) -> Vec<&'static str> {
    let Some(result) = result.filter(|result| result.iops() > 0.0) else { return vec![FAILED] };
    let is_short = config.float("seconds").is_some_and(|seconds| seconds < WINDOW_MIN.as_secs_f64());
    let spoils = |word: &&str| {
        result.has_mark(word) || *word == "SHARED" && result.carmine.shared || *word == "SMOKE" && is_short
    };
    SPOILS.into_iter().filter(spoils).collect()
}

/// The repeats that nothing spoils, if they are enough for an answer. `spoilt_by` names what spoils a repeat.
///
/// # Errors
/// How many are clean, and what spoils the others.
pub fn clean<T: Copy>(repeats: &[T], spoilt_by: impl Fn(&T) -> Vec<&'static str>) -> Result<Vec<T>, String> {
    let spoilt: Vec<Vec<&str>> = repeats.iter().map(spoilt_by).collect();
    let clean = repeats.iter().zip(&spoilt).filter(|(_, words)| words.is_empty()).map(|(repeat, _)| *repeat);
    let clean: Vec<T> = clean.collect();
    if clean.len() >= REPEATS_MIN {
        return Ok(clean);
    }
    let words = tally(spoilt.into_iter().flatten());
    let words: Vec<String> = words.into_iter().map(|(word, times)| format!("{word} {times}")).collect();
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    let all = counted(repeats.len(), "repeat");
    Err(format!("{} of {all} clean{words}, and it takes {REPEATS_MIN}", clean.len()))
}

/// True if a point has no answer because other work spoilt repeats, and up to `more` further ones may give it one. `spoilt_by` has
/// the marks that spoil each repeat.
pub fn may_be_saved(spoilt_by: &[Vec<&str>], more: usize) -> bool {
    let clean = spoilt_by.iter().filter(|words| words.is_empty()).count();
    let is_short = clean < REPEATS_MIN && clean + more >= REPEATS_MIN;
    is_short
        && spoilt_by.len() >= REPEATS_MIN
        && spoilt_by.iter().flatten().all(|word| PASSING.contains(word))
}

/// The IOPS of some repeats on average.
pub(crate) fn mean_iops(results: &[&PointResult]) -> f64 {
    mean(&results.iter().map(|result| result.iops()).collect::<Vec<_>>())
}

/// How far the machine drifted over repeats in the order of time: from the first to the last, a part of 1.
pub(crate) fn drift_over(repeats: &[&PointResult]) -> f64 {
    let ends = repeats.last().zip(repeats.first());
    ends.map_or(0.0, |(last, first)| (last.iops() / first.iops() - 1.0).abs())
}

/// A difference between two points that their repeats and the machine's drift support.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Geometric mean of the second by that of the first.
    pub ratio: f64,
    /// Of the ratio, 95 %.
    pub interval: Interval,
    /// They are the same within the tolerance: they do not differ, or by less. Else they differ.
    pub is_within: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval;
        write!(f, "{} (95 %: {} to {})", percent(self.ratio), percent(low), percent(high))
    }
}

/// A ratio as the difference to 1.
pub fn percent(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}

/// How the clean repeats of a point differ from those of another. `drift` is that of the machine; it and `tolerance` are parts of 1.
///
/// # Errors
/// Why they neither differ nor are the same: too few repeats, too much noise, or a drift of that size.
pub fn change(base: &[f64], new: &[f64], drift: Option<f64>, tolerance: f64) -> Result<Change, String> {
    let comparison = repeats_log_ratio(base, new);
    let outcome = judge(&comparison, comparison.map_or(1.0, |c| c.p), tolerance);
    let comparison = comparison.map_err(|error| error.to_string())?;
    let is_within = match beyond_drift(outcome, comparison.ratio, drift, tolerance) {
        Outcome::Undecided { reason } => return Err(reason),
        Outcome::Equal { .. } => true,
        Outcome::Different { within } => within,
    };
    Ok(Change { ratio: comparison.ratio, interval: comparison.interval, is_within })
}

/// The outcome of a comparison on a machine that drifted: a difference that is not larger than the drift is none, and arms are not
/// the same within less than it. All are parts of 1.
pub fn beyond_drift(outcome: Outcome, ratio: f64, drift: Option<f64>, tolerance: f64) -> Outcome {
    let (change, drift) = match (&outcome, known(drift)) {
        (Outcome::Undecided { .. }, _) => return outcome,
        (_, Err(reason)) => return Outcome::Undecided { reason },
        (_, Ok(drift)) => ((ratio - 1.0).abs(), drift),
    };
    match outcome {
        Outcome::Different { .. } if change > drift => outcome,
        Outcome::Different { within: true } | Outcome::Equal { .. } if drift <= tolerance => {
            Outcome::Equal { tolerance }
        }
        _ => Outcome::Undecided {
            reason: format!(
                "the change of {:+.1} % is below the machine's drift of {:.1} %",
                (ratio - 1.0) * 100.0,
                drift * 100.0
            ),
        },
    }
}

/// The size of the machine's drift, a part of 1.
///
/// # Errors
/// It is not known.
pub fn known(drift: Option<f64>) -> Result<f64, String> {
    drift.map(f64::abs).ok_or_else(|| {
        "the machine's drift is not known, as the first point was not measured again".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(marks: &[&str]) -> PointResult {
        let value = json!({"jobs": [{"read": {"iops": 100.0}, "write": {}}], "carmine": {"marks": marks}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_mark_that_spoils_keeps_a_repeat_out() {
        let (good, long) = (result(&["LITTLE: no", "a note"]), Config::default());
        assert_eq!(spoilt_by(&long, Some(&good)), [""; 0]);
        for word in SPOILS {
            assert_eq!(spoilt_by(&long, Some(&result(&[&format!("{word}: why")]))), [word]);
        }
        let short = Config([("seconds".to_owned(), json!(2))].into());
        assert_eq!(spoilt_by(&short, Some(&good)), ["SMOKE"]);
        assert_eq!(spoilt_by(&long, None), ["failed"]);
    }

    #[test]
    fn fewer_than_three_clean_repeats_are_no_answer() {
        let spoilt = |word: &&'static str| if word.is_empty() { vec![] } else { vec![*word] };
        assert_eq!(clean(&["", "", "NOISY", ""], spoilt), Ok(vec!["", "", ""]));
        let wrong = clean(&["", "UNSTEADY", "", "UNSTEADY"], spoilt).unwrap_err();
        assert_eq!(wrong, "2 of 4 repeats clean (UNSTEADY 2), and it takes 3");
        assert_eq!(clean(&[""], spoilt).unwrap_err(), "1 of 1 repeat clean, and it takes 3");
    }

    #[test]
    fn only_what_other_work_spoilt_is_worth_another_repeat() {
        let saved = |words: &[&'static str], more| {
            let each = words.iter().map(|word| if word.is_empty() { vec![] } else { vec![*word] });
            may_be_saved(&each.collect::<Vec<_>>(), more)
        };
        assert!(saved(&["", "NOISY", ""], 1) && saved(&["UNSTEADY", "FOREIGN", ""], 2));
        assert!(!saved(&["UNSTEADY", "FOREIGN", ""], 1), "one more would not be enough");
        assert!(!saved(&["NOISY"; 3], 2) && !saved(&["", "NOISY", ""], 0));
        assert!(!saved(&["", "", "", "NOISY"], 2), "it has its answer");
        assert!(
            !saved(&["SHARED", "", ""], 2) && !saved(&["", "failed", ""], 2),
            "it would be the same again"
        );
        assert!(!saved(&["NOISY"], 2), "the plan asked for one");
    }

    #[test]
    fn a_change_is_larger_than_the_noise_and_the_drift() {
        let base = [100.0, 101.0, 99.0];
        let more = base.map(|iops| iops * 1.08);
        let real = change(&base, &more, Some(0.01), 0.05).unwrap();
        assert!(!real.is_within && real.to_string().starts_with("+8 % (95 %: +6 % to"), "{real}");
        let drifted = change(&base, &more, Some(-0.091), 0.05).unwrap_err();
        assert_eq!(drifted, "the change of +8.0 % is below the machine's drift of 9.1 %");
        assert!(change(&base, &more, None, 0.05).unwrap_err().contains("drift is not known"));
        let noisy = change(&[80.0, 100.0, 120.0], &[90.0, 108.0, 130.0], Some(0.0), 0.05).unwrap_err();
        assert!(noisy.contains("3 measurements of each"), "{noisy}");
    }

    #[test]
    fn points_are_the_same_within_the_tolerance_and_not_within_less_than_the_drift() {
        let (base, same) = ([100.0, 101.0, 99.0], [100.5, 101.5, 99.5]);
        assert!(change(&base, &same, Some(0.01), 0.05).unwrap().is_within);
        assert!(change(&base, &same, Some(0.06), 0.05).unwrap_err().contains("drift of 6.0 %"));
        // Sure, but smaller than the drift, which the tolerance covers.
        let little = change(&[100.0, 100.01, 99.99], &[101.0, 101.01, 100.99], Some(0.02), 0.05).unwrap();
        assert!(little.is_within, "{little:?}");
    }
}
