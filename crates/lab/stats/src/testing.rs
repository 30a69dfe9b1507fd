//! Random samples for the tests, the same for the same seed.

use crate::{Comparison, NoComparison, paired_log_ratios};

/// Compares the values of one arm with those of the other.
pub(crate) fn paired(base: &[f64], new: &[f64]) -> Result<Comparison, NoComparison> {
    assert_eq!(base.len(), new.len());
    paired_log_ratios(&base.iter().copied().zip(new.iter().copied()).collect::<Vec<_>>())
}

/// A source of noise.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    /// Uniform in 0 (left out) to 1: splitmix64 (G. Steele, D. Lea, C. Flood, OOPSLA 2014).
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal: Box and Muller, 1958.
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `count` values of an AR(1) process with variance 1: each is `phi` times the one before plus something new.
    pub(crate) fn autocorrelated(&mut self, phi: f64, count: usize) -> Vec<f64> {
        let fresh = (1.0 - phi * phi).sqrt();
        let mut value = self.normal();
        (0..count)
            .map(|_| {
                value = phi * value + fresh * self.normal();
                value
            })
            .collect()
    }
}
