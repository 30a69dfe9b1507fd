//! Drift within a window, and over a whole run.
//!
//! A figure of a window that was still rising or falling says nothing about the steady state: UNSTEADY. Samples of
//! neighbouring seconds resemble each other, which makes plain trend tests raise false alarms; so the samples are averaged to
//! blocks, the slope is Theil and Sen's (median of all pairwise slopes), and the significance is Mann and Kendall's with
//! its variance widened by what the lag-1 autocorrelation of the detrended blocks leaves of their independence.
//!
//! Sources: H. Mann, "Nonparametric tests against trend", Econometrica 13, 1945; P. Sen, JASA 63, 1968; the effective sample
//! size for autocorrelated series: S. Yue, C. Wang, "The Mann-Kendall test modified by effective sample size to detect
//! trend in serially correlated hydrological series", Water Resources Management 18, 2004; the correction of the
//! estimated autocorrelation for short series: M. Kendall, "Note on bias in the estimation of autocorrelation", 1954.

use crate::describe::{mean, median, t_two_sided};

/// Repetitions of a point that must agree: one alone may be an outlier.
const IN_A_ROW: usize = 2;
/// A drift below this part of the median over the window does not matter, however sure it is.
const DRIFT_MIN: f64 = 0.03;
/// Fewer samples say nothing.
const SAMPLES_MIN: usize = 8;
/// Most blocks: more samples are averaged to this number.
const BLOCKS_MAX: usize = 60;
/// Level of the test. Below the 5 % that are promised, as the autocorrelation of a short series is badly known.
const LEVEL: f64 = 0.02;
/// Estimates of the autocorrelation above this leave nothing to test.
const CORRELATION_MAX: f64 = 0.95;

/// Whether a figure drifted within its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Change from the window's start to its end as part of the median: −0.1 is a fall by 10 %.
    pub drift: f64,
    /// Chance of such a trend without drift.
    pub p: f64,
    /// The drift is sure, and larger than 3 %.
    pub unsteady: bool,
}

/// Tests equally spaced samples of a window (IOPS of each second, say) for a drift. False alarms on noise without drift,
/// autocorrelated or not, are at most 5 % (the tests count them). `None` for fewer than 8 finite samples, or a median of 0.
pub fn trend(samples: &[f64]) -> Option<Trend> {
    let finite: Vec<f64> = samples.iter().copied().filter(|v| v.is_finite()).collect();
    let middle = median(&finite).filter(|middle| *middle != 0.0 && finite.len() >= SAMPLES_MIN)?;
    let blocks = blocks(&finite);
    let per_block = theil_sen(&blocks);
    // From the first sample to the last, also where a block has several.
    let drift = per_block * blocks.len() as f64 / middle.abs();
    let p = mann_kendall(&blocks, per_block);
    Some(Trend { drift, p, unsteady: p < LEVEL && drift.abs() > DRIFT_MIN })
}

/// Means of neighbouring samples, equally many (to one) in each block.
fn blocks(samples: &[f64]) -> Vec<f64> {
    let count = samples.len().min(BLOCKS_MAX);
    (0..count).map(|n| mean(&samples[n * samples.len() / count..(n + 1) * samples.len() / count])).collect()
}

/// (later − earlier, distance) of all pairs.
fn pairs(values: &[f64]) -> impl Iterator<Item = (f64, usize)> + '_ {
    (0..values.len()).flat_map(move |a| (a + 1..values.len()).map(move |b| (values[b] - values[a], b - a)))
}

/// Median slope per step.
fn theil_sen(values: &[f64]) -> f64 {
    let slopes: Vec<f64> = pairs(values).map(|(rise, run)| rise / run as f64).collect();
    median(&slopes).unwrap_or(0.0)
}

/// Two-sided p of the trend, with the variance for autocorrelated values.
fn mann_kendall(values: &[f64], slope: f64) -> f64 {
    let n = values.len() as f64;
    let rises: f64 = pairs(values).map(|(rise, _)| if rise == 0.0 { 0.0 } else { rise.signum() }).sum();
    let correlation = correlation(values, slope);
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    let variance = n * (n - 1.0) * (2.0 * n + 5.0) / 18.0 * inflation;
    // One less: the sum goes in steps of two, and the normal distribution does not.
    let z = (rises.abs() - 1.0).max(0.0) / variance.sqrt();
    t_two_sided(z, (n / inflation - 2.0).max(1.0))
}

/// Lag-1 autocorrelation of the values less their trend, corrected for the series' shortness; 0 if it is negative.
fn correlation(values: &[f64], slope: f64) -> f64 {
    let rest: Vec<f64> = values.iter().enumerate().map(|(at, v)| v - slope * at as f64).collect();
    let middle = mean(&rest);
    let square: f64 = rest.iter().map(|v| (v - middle).powi(2)).sum();
    if square <= 0.0 {
        return 0.0;
    }
    let lagged: f64 = rest.windows(2).map(|w| (w[0] - middle) * (w[1] - middle)).sum();
    let n = values.len() as f64;
    ((n * lagged / square + 1.0) / (n - 4.0)).clamp(0.0, CORRELATION_MAX)
}

/// Changes of the repetitions against the first time, as parts of 1 (−0.1 is 10 % less). The run can no longer tell
/// differences of `tolerance` from the machine's drift if the last two repetitions are both off by more than that, to the
/// same side. Returns their mean change then; `None` while the confidence that was asked for can be reached.
pub fn out_of_reach(changes: &[f64], tolerance: f64) -> Option<f64> {
    let last = changes.last_chunk::<IN_A_ROW>()?;
    let beyond = |side: f64| last.iter().all(|change| change * side > tolerance);
    (beyond(1.0) || beyond(-1.0)).then(|| last.iter().sum::<f64>() / IN_A_ROW as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    const RUNS: usize = 1000;

    /// Part of the windows that are called unsteady.
    fn alarms(seed: u64, samples: usize, phi: f64, deviation: f64, drift: f64) -> f64 {
        let mut noise = Noise::new(seed);
        let found = (0..RUNS).filter(|_| {
            let values = noise.autocorrelated(phi, samples);
            let at = |n: usize| 1.0 + drift * n as f64 / (samples - 1) as f64;
            let window: Vec<f64> =
                values.iter().enumerate().map(|(n, v)| 1e5 * (at(n) + deviation * v)).collect();
            trend(&window).unwrap().unsteady
        });
        found.count() as f64 / RUNS as f64
    }

    #[test]
    fn false_alarms_on_noise_are_rare() {
        for samples in [10, 20, 60, 120] {
            for phi in [0.0, 0.3, 0.6, 0.8] {
                // The more noise, the less the practical size protects: 10 % is the test by itself.
                for deviation in [0.02, 0.10] {
                    let part = alarms(7, samples, phi, deviation, 0.0);
                    assert!(part <= 0.05, "{samples} samples, phi {phi}, noise {deviation}: {part}");
                }
            }
        }
    }

    #[test]
    fn a_drift_is_found() {
        for (samples, phi, want) in [(20, 0.0, 0.9), (60, 0.0, 0.99), (60, 0.6, 0.8), (120, 0.6, 0.9)] {
            let part = alarms(8, samples, phi, 0.02, -0.10);
            assert!(part >= want, "{samples} samples, phi {phi}: {part}");
        }
    }

    #[test]
    fn a_sure_but_small_drift_does_not_matter() {
        let window: Vec<f64> = (0..60).map(|n| 1000.0 + f64::from(n) / 3.0).collect();
        let t = trend(&window).unwrap();
        assert!(t.p < 1e-6 && !t.unsteady && (t.drift - 0.02).abs() < 1e-3, "{t:?}");
    }

    #[test]
    fn known_series() {
        // 20 % up in a straight line: 1000 to 1200 over 21 samples.
        let t = trend(&(0..21).map(|n| 1000.0 + 10.0 * f64::from(n)).collect::<Vec<_>>()).unwrap();
        assert!(t.unsteady && (t.drift - 210.0 / 1100.0).abs() < 1e-9, "{t:?}");
        let flat = trend(&[5.0; 30]).unwrap();
        assert_eq!((flat.drift, flat.p, flat.unsteady), (0.0, 1.0, false));
        // Theil and Sen's line does not follow one outlier.
        let mut spike = vec![100.0; 30];
        spike[29] = 1e6;
        assert!(!trend(&spike).unwrap().unsteady);
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!((trend(&[1.0, f64::NAN, 2.0]), trend(&[0.0; 20])), (None, None));
    }

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
