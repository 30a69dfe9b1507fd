//! Drift of a machine over a whole run, found by measuring the first point again from time to time.

/// Repetitions that must agree: one alone may be an outlier.
const IN_A_ROW: usize = 2;

/// Changes of the repetitions against the first time, as parts of 1 (−0.1 is 10 % less). The run can no longer tell
/// differences of `tolerance` from what the machine does: the last two repetitions are both off by more than that, to the
/// same side. Gives their mean change then; `None` while the confidence that was asked for can be reached.
pub fn out_of_reach(changes: &[f64], tolerance: f64) -> Option<f64> {
    let last = changes.last_chunk::<IN_A_ROW>()?;
    let beyond = |side: f64| last.iter().all(|change| change * side > tolerance);
    (beyond(1.0) || beyond(-1.0)).then(|| last.iter().sum::<f64>() / IN_A_ROW as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    #[test]
    fn two_in_a_row_on_the_same_side() {
        assert_eq!(out_of_reach(&[], 0.05), None);
        assert_eq!(out_of_reach(&[-0.5], 0.05), None, "one may be an outlier");
        assert_eq!(out_of_reach(&[0.06, -0.06], 0.05), None, "noise has no side");
        assert_eq!(out_of_reach(&[-0.2, -0.01], 0.05), None, "it came back");
        assert_eq!(out_of_reach(&[0.0, -0.06, -0.08], 0.05), Some(-0.07));
        assert_eq!(out_of_reach(&[0.0, 0.06, 0.08], 0.1), None);
    }

    #[test]
    fn noise_of_two_percent_stops_no_run_of_a_day() {
        let mut noise = Noise::new(7);
        let stops = |noise: &mut Noise| {
            let changes: Vec<f64> = (0..48).map(|_| 0.02 * noise.normal()).collect();
            (1..changes.len()).any(|n| out_of_reach(&changes[..n], 0.05).is_some())
        };
        let stopped = (0..200).filter(|_| stops(&mut noise)).count();
        assert!(stopped <= 4, "{stopped} of 200 runs");
    }
}
