//! The counts of a job, and the jobs of a load together.

use std::ops::Range;

use carmine_metrics::{Histogram, SparseHistogram};
use serde::{Deserialize, Serialize};

/// Length of a bandwidth and IOPS sample (fio's default).
pub const SAMPLE_NS: u64 = 500_000_000;
/// Samples that are kept: three days.
const SAMPLES_MAX: usize = 518_400;
/// Seconds whose latencies are kept: two hours. Each takes some kilobytes.
const SECONDS_MAX: u64 = 7_200;
const SECOND_NS: u64 = 1_000_000_000;
/// Mismatches that are kept with their details.
const DETAILS_MAX: usize = 10;

/// One direction of a job or a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirStats {
    pub ops: u64,
    pub bytes: u64,
    /// Nanoseconds from the (intended) start to the answer.
    pub latency_ns: Histogram,
    /// Operations that completed in each [`SAMPLE_NS`] of the window.
    pub samples: Vec<u64>,
}

impl DirStats {
    /// Counts one operation that completed `at_ns` after the window's start.
    #[inline]
    pub fn record(&mut self, bytes: u64, latency_ns: u64, at_ns: u64) {
        self.ops += 1;
        self.bytes += bytes;
        self.latency_ns.record(latency_ns);
        self.add(at_ns / SAMPLE_NS, 1);
    }

    /// Operations and bytes without latencies.
    pub(crate) fn counted(ops: u64, bytes: u64) -> DirStats {
        DirStats { ops, bytes, ..DirStats::default() }
    }

    /// Adds operations to a sample; those after three days are not kept.
    #[inline]
    pub(crate) fn add(&mut self, sample: u64, ops: u64) {
        let sample = usize::try_from(sample).unwrap_or(usize::MAX);
        if sample >= self.samples.len() && sample < SAMPLES_MAX {
            self.samples.resize(sample + 1, 0);
        }
        if let Some(count) = self.samples.get_mut(sample) {
            *count += ops;
        }
    }

    /// IOPS in each [`SAMPLE_NS`] that lies wholly in the window, including those at its end in which nothing completed.
    pub fn iops_samples(&self, window_s: f64) -> Vec<f64> {
        // A tool that keeps no samples has operations without them.
        let whole = if self.samples.is_empty() { 0 } else { (window_s * 1e9 / SAMPLE_NS as f64) as usize };
        let ops = (0..whole).map(|at| self.samples.get(at).copied().unwrap_or(0));
        ops.map(|ops| ops as f64 * 1e9 / SAMPLE_NS as f64).collect()
    }

    fn merge(&mut self, other: &DirStats) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latency_ns.merge(&other.latency_ns);
        let longer = self.samples.len().max(other.samples.len());
        self.samples.resize(longer, 0);
        self.samples.iter_mut().zip(&other.samples).for_each(|(mine, others)| *mine += others);
    }
}

/// The findings of verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyCounts {
    pub checked: u64,
    pub mismatches: u64,
    /// The first mismatches, with object and offset.
    pub details: Vec<String>,
}

impl VerifyCounts {
    pub(crate) fn mismatch(&mut self, detail: String) {
        self.mismatches += 1;
        if self.details.len() < DETAILS_MAX {
            self.details.push(detail);
        }
    }
}

/// The generator's own clocks over the window, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientClocks {
    pub wall_ns: u64,
    pub busy_ns: u64,
    /// Ready, but without a CPU.
    pub wait_ns: u64,
}

/// Latencies of each second of a window, for time series: one histogram of nanoseconds for each. Only the one that is being
/// filled takes much memory.
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
        let second = at_ns / SECOND_NS;
        if second < SECONDS_MAX {
            (self.done.len() as u64..second).for_each(|_| self.close());
            self.current.record(latency_ns);
        }
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

    /// A percentile in nanoseconds of a range of seconds; `None` if nothing completed in them.
    pub fn percentile_of(&self, seconds: Range<usize>, percent: f64) -> Option<f64> {
        let mut all = Histogram::default();
        let within = self.done.iter().take(seconds.end).skip(seconds.start);
        within.for_each(|second| all.merge_sparse(second));
        (!all.is_empty()).then(|| all.percentile(percent) as f64)
    }

    /// A percentile in nanoseconds for each second; `None` for a second in which nothing completed.
    pub fn percentiles(&self, percent: f64) -> Vec<Option<f64>> {
        let value = |h| Histogram::from(h).percentile(percent) as f64;
        self.done.iter().map(|h| (h.count > 0).then(|| value(h))).collect()
    }
}

/// The counts of one job in the window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobResult {
    pub job: u32,
    pub read: DirStats,
    pub write: DirStats,
    pub errors: u64,
    pub first_error: Option<String>,
    pub verify: VerifyCounts,
    /// Operations without an answer when the job gave up waiting.
    pub abandoned: u64,
    /// The longest time in the window without an acknowledged operation; for several jobs, that of the job with the longest.
    #[serde(default)]
    pub longest_pause_ns: u64,
    /// How far behind its schedule an open-loop job ended.
    pub behind_ns: u64,
    pub client: ClientClocks,
    /// Both directions second by second, when the load was asked to keep them.
    #[serde(default)]
    pub seconds: Seconds,
}

impl JobResult {
    /// Of a job that could not go on.
    pub(crate) fn failed(job: u32, error: String) -> JobResult {
        JobResult { job, errors: 1, first_error: Some(error), ..JobResult::default() }
    }

    /// Sums of all jobs; `job` is meaningless in it. The client clocks are the busiest job's.
    pub fn merged<'a>(jobs: impl IntoIterator<Item = &'a JobResult>) -> JobResult {
        let mut all = JobResult::default();
        for job in jobs {
            all.read.merge(&job.read);
            all.write.merge(&job.write);
            all.seconds.merge(&job.seconds);
            all.errors += job.errors;
            all.first_error = all.first_error.or_else(|| job.first_error.clone());
            all.verify.checked += job.verify.checked;
            all.verify.mismatches += job.verify.mismatches;
            let room = DETAILS_MAX.saturating_sub(all.verify.details.len());
            all.verify.details.extend(job.verify.details.iter().take(room).cloned());
            all.abandoned += job.abandoned;
            all.longest_pause_ns = all.longest_pause_ns.max(job.longest_pause_ns);
            all.behind_ns = all.behind_ns.max(job.behind_ns);
            let occupied = |clocks: &ClientClocks| clocks.busy_ns + clocks.wait_ns;
            if occupied(&job.client) > occupied(&all.client) {
                all.client = job.client;
            }
        }
        all
    }

    /// IOPS in each whole [`SAMPLE_NS`] of the window, both directions together.
    pub fn iops_samples(&self, window_s: f64) -> Vec<f64> {
        let both = [self.read.iops_samples(window_s), self.write.iops_samples(window_s)];
        let count = both.iter().map(Vec::len).max().unwrap_or(0);
        (0..count).map(|at| both.iter().filter_map(|v| v.get(at)).sum()).collect()
    }

    /// Operations of both directions.
    pub fn ops(&self) -> u64 {
        self.read.ops + self.write.ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_merging() {
        let mut one = JobResult::default();
        one.read.record(4096, 1000, 0);
        one.read.record(4096, 3000, SAMPLE_NS * 2);
        one.verify.mismatch("a".into());
        let mut two = JobResult { errors: 1, first_error: Some("e".into()), ..JobResult::default() };
        two.read.record(4096, 2000, SAMPLE_NS);
        two.write.record(8192, 9000, 1);
        let all = JobResult::merged([&one, &two]);
        assert_eq!(all.read.samples, [1, 1, 1]);
        assert_eq!((all.ops(), all.read.bytes, all.write.bytes, all.errors), (4, 12288, 8192, 1));
        assert_eq!((all.read.latency_ns.max(), all.verify.mismatches), (3000, 1));
        assert_eq!(all.first_error.as_deref(), Some("e"));
        let json = serde_json::to_value(&all).unwrap();
        let back: JobResult = serde_json::from_value(json).unwrap();
        assert_eq!(back.read.latency_ns.to_sparse(), all.read.latency_ns.to_sparse());
    }

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
        assert!((two.percentile_of(0..2, 99.0).unwrap() / 5_000.0 - 1.0).abs() < 0.01);
        assert_eq!((two.percentile_of(2..9, 50.0), two.percentile_of(1..2, 50.0)), (Some(9_000.0), None));
        two.record(1, u64::MAX);
        assert_eq!(two.percentiles(50.0).len(), 3);
        let back: Seconds = serde_json::from_value(serde_json::to_value(&two).unwrap()).unwrap();
        assert_eq!(back.percentiles(99.0), two.percentiles(99.0));
    }
}
