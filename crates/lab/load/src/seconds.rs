//! Latencies of each second of a window, for time series.

use carmine_metrics::{Histogram, SparseHistogram};
use serde::{Deserialize, Serialize};

const SECOND_NS: u64 = 1_000_000_000;
/// Seconds that are kept: two hours. Each takes some kilobytes.
const SECONDS_MAX: usize = 7_200;

/// One histogram of nanoseconds for each second; only the one that is being filled takes much memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seconds {
    done: Vec<SparseHistogram>,
    #[serde(skip)]
    current: Histogram,
}

impl Seconds {
    /// Counts a latency of an operation that completed `at_ns` after the window's start. Times do not go back.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, at_ns: u64) {
        let second = usize::try_from(at_ns / SECOND_NS).unwrap_or(usize::MAX);
        if second >= SECONDS_MAX {
            return;
        }
        while self.done.len() < second {
            self.close();
        }
        self.current.record(latency_ns);
    }

    /// Ends the second that is being filled.
    pub fn close(&mut self) {
        self.done.push(self.current.to_sparse());
        self.current.clear();
    }

    /// Adds another job's seconds.
    pub fn merge(&mut self, other: &Seconds) {
        let longer = self.done.len().max(other.done.len());
        self.done.resize(longer, SparseHistogram::default());
        for (mine, others) in self.done.iter_mut().zip(&other.done) {
            let mut both = Histogram::from(&*mine);
            both.merge_sparse(others);
            *mine = both.to_sparse();
        }
    }

    /// A percentile in nanoseconds for each second; `None` for a second in which nothing completed.
    pub fn percentiles(&self, percent: f64) -> Vec<Option<f64>> {
        let value =
            |h: &SparseHistogram| (h.count > 0).then(|| Histogram::from(h).percentile(percent) as f64);
        self.done.iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_merge_and_empty_ones_have_no_percentile() {
        let mut one = Seconds::default();
        (0..100).for_each(|n| one.record(1_000, n));
        one.record(9_000, 2 * SECOND_NS);
        one.close();
        let mut two = Seconds::default();
        (0..300).for_each(|n| two.record(5_000, n));
        two.close();
        two.merge(&one);
        let p50 = two.percentiles(50.0);
        assert_eq!((p50.len(), p50[1]), (3, None));
        assert!((p50[0].unwrap() / 5_000.0 - 1.0).abs() < 0.01 && p50[2] == Some(9_000.0), "{p50:?}");
        two.record(1, u64::MAX);
        assert_eq!(two.percentiles(50.0).len(), 3);
        let back: Seconds = serde_json::from_value(serde_json::to_value(&two).unwrap()).unwrap();
        assert_eq!(back.percentiles(99.0), two.percentiles(99.0));
    }
}
