//! Value histograms with a fixed relative error.

use serde::{Deserialize, Serialize};

/// Values above are counted here: one hour in nanoseconds. Bounds memory (about 270 KB at 3 digits, when full).
const VALUE_MAX: u64 = 3_600_000_000_000;
/// Significant digits: values are kept to 0.1 %.
const DIGITS: u8 = 3;

/// A histogram of values (nanoseconds, if not named otherwise) with 3 significant digits; grows as needed. Count, sum,
/// min, max and standard deviation are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum: u128,
    /// Sum of squares; f64 because squares of hours in nanoseconds do not fit in 128 bits for long.
    squares: f64,
    min: u64,
    max: u64,
}

/// A histogram as data: what goes over a wire or into a file. Merging sparse copies loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseHistogram {
    pub count: u64,
    /// Saturates: JSON readers have no more than 64 bits.
    pub sum: u64,
    pub squares: f64,
    pub min: u64,
    pub max: u64,
    /// (highest value of a bucket, count), ascending; empty buckets are left out.
    pub buckets: Vec<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub fn new() -> Histogram {
        let buckets = match hdrhistogram::Histogram::new(DIGITS) {
            Ok(buckets) => buckets,
            // The only error is a number of digits above 5.
            Err(error) => unreachable!("{error}"),
        };
        Histogram { buckets, sum: 0, squares: 0.0, min: u64::MAX, max: 0 }
    }

    /// Counts one value; values above one hour (in ns) fall into the last bucket, but min, max and sum stay exact.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `n` equal values.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.add_to_bucket(value, n);
        self.sum += u128::from(value) * u128::from(n);
        self.squares += (value as f64) * (value as f64) * n as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    #[inline]
    fn add_to_bucket(&mut self, value: u64, n: u64) {
        // Resizing is on and the value is bounded, so this can only fail by overflow of a platform's usize.
        let _ = self.buckets.record_n(value.min(VALUE_MAX), n);
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Histogram) {
        // The same digits and resizing: nothing to fail.
        let _ = self.buckets.add(&other.buckets);
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds values that another process counted. Bucket counts that contradict `count` are taken as they are.
    pub fn merge_sparse(&mut self, other: &SparseHistogram) {
        for (value, n) in &other.buckets {
            self.add_to_bucket(*value, *n);
        }
        self.sum = self.sum.saturating_add(u128::from(other.sum));
        self.squares += other.squares;
        if other.count > 0 {
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
    }

    pub fn to_sparse(&self) -> SparseHistogram {
        SparseHistogram {
            count: self.count(),
            sum: u64::try_from(self.sum).unwrap_or(u64::MAX),
            squares: self.squares,
            min: self.min(),
            max: self.max,
            buckets: self
                .buckets
                .iter_recorded()
                .map(|v| (v.value_iterated_to(), v.count_at_value()))
                .collect(),
        }
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.reset();
        (self.sum, self.squares, self.min, self.max) = (0, 0.0, u64::MAX, 0);
    }

    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Sum of all values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Smallest value, 0 when empty.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.min }
    }

    /// Largest value, 0 when empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Arithmetic mean, 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    /// Standard deviation of the sample (n − 1, as fio has it), 0 below two values.
    pub fn stddev(&self) -> f64 {
        let n = self.count() as f64;
        if n < 2.0 {
            return 0.0;
        }
        let mean = self.mean();
        ((self.squares - n * mean * mean).max(0.0) / (n - 1.0)).sqrt()
    }

    /// The value that `percent` % of the values do not exceed, to 3 digits and never outside min..=max; 0 when empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.buckets.value_at_quantile(percent.clamp(0.0, 100.0) / 100.0).clamp(self.min(), self.max)
    }
}

impl From<&SparseHistogram> for Histogram {
    fn from(sparse: &SparseHistogram) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.merge_sparse(sparse);
        histogram
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_sparse().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Histogram::from(&SparseHistogram::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_is_all_zero() {
        let h = Histogram::new();
        assert_eq!((h.count(), h.min(), h.max(), h.percentile(99.0)), (0, 0, 0, 0));
        assert_eq!((h.mean(), h.stddev()), (0.0, 0.0));
    }

    #[test]
    fn uniform_percentiles() {
        let mut h = Histogram::new();
        (1..=10_000u64).for_each(|v| h.record(v * 1000));
        for (percent, want) in [(50.0, 5_000_000.0), (99.0, 9_900_000.0), (99.9, 9_990_000.0), (100.0, 1e7)] {
            let got = h.percentile(percent) as f64;
            assert!((got / want - 1.0).abs() < 0.002, "p{percent}: {got} against {want}");
        }
        assert_eq!((h.min(), h.max()), (1000, 10_000_000));
        assert!((h.mean() - 5_000_500.0).abs() < 1e-3);
        assert!((h.stddev() / 2_886_896.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn absurd_values_are_counted() {
        let mut h = Histogram::new();
        h.record(u64::MAX);
        h.record(0);
        assert_eq!((h.count(), h.max(), h.min()), (2, u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn merging_equals_recording_together(
            a in proptest::collection::vec(0u64..5_000_000_000, 0..60),
            b in proptest::collection::vec(0u64..5_000_000_000, 0..60),
        ) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            a.iter().for_each(|v| { left.record(*v); both.record(*v) });
            b.iter().for_each(|v| { right.record(*v); both.record(*v) });
            let json = serde_json::to_string(&right).unwrap();
            let mut via_json = left.clone();
            via_json.merge_sparse(&serde_json::from_str(&json).unwrap());
            left.merge(&right);
            for merged in [&left, &via_json] {
                prop_assert_eq!(&merged.to_sparse().buckets, &both.to_sparse().buckets);
                prop_assert_eq!((merged.min(), merged.max(), merged.sum()), (both.min(), both.max(), both.sum()));
                prop_assert_eq!(merged.percentile(99.0), both.percentile(99.0));
            }
        }

        #[test]
        fn percentiles_are_close_to_the_sorted_values(mut v in proptest::collection::vec(1u64..10_000_000_000, 1..200),
                                                      p in 0.0f64..100.0) {
            let mut h = Histogram::new();
            v.iter().for_each(|v| h.record(*v));
            v.sort_unstable();
            let rank = ((p / 100.0 * v.len() as f64).ceil() as usize).max(1);
            let want = v[rank - 1] as f64;
            prop_assert!((h.percentile(p) as f64 / want - 1.0).abs() <= 0.001, "{} against {want}", h.percentile(p));
        }
    }
}
