//! Repeats of one configuration together: means of their figures, and the latency of all their operations.

use std::collections::BTreeMap;

use carmine_metrics::Histogram;
use carmine_study::archive::{Config, CpuSeconds, Direction, PointResult};

use super::{Measured, RunData};
use crate::lists::distinct;

/// The work that takes CPU time, in the order of a bar; together they are the CPU time of the machine without the generator.
pub(crate) const CPU_PARTS: [&str; 8] = [
    "reactors at work",
    // System time of the reactors' threads.
    "the kernel for reactors",
    "reactors looking for work",
    // Aliens that feed it, and its own threads.
    "RocksDB",
    "other aliens",
    // OSDs that give no clocks.
    "OSDs, not divided",
    "after the window (drain)",
    // The kernel's own threads and interrupts: outside of OSDs, generator and monitor.
    "the kernel elsewhere",
];

/// The part that only samples tell apart.
const KERNEL: usize = 1;

/// A configuration in one run, with the figures of its repeats.
#[derive(Clone, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) run: usize,
    pub(crate) config: &'a Config,
    pub(crate) points: Vec<&'a Measured>,
    /// Repeats that the figures are of: the clean ones, or all if none is.
    used: Vec<&'a Measured>,
    /// Words of all its repeats, each once.
    pub(crate) words: Vec<String>,
    /// At least one repeat is clean.
    pub(crate) is_clean: bool,
    pub(crate) latency: Latency,
}

/// Configurations of the plan with at least one result, in the order of running.
pub(crate) fn settings(runs: &[RunData]) -> Vec<Setting<'_>> {
    let mut groups: BTreeMap<(usize, String), Vec<&Measured>> = BTreeMap::new();
    for point in runs.iter().flat_map(|r| &r.points).filter(|p| p.is_planned()) {
        let key = serde_json::to_string(&point.point.config).unwrap_or_default();
        groups.entry((point.run, key)).or_default().push(point);
    }
    let mut settings: Vec<Setting> = groups.into_values().filter_map(Setting::of).collect();
    settings.sort_by_key(|s| (s.run, s.points.iter().map(|p| p.point.index).min()));
    settings
}

impl<'a> Setting<'a> {
    /// Points of one configuration; `None` if none has a result.
    pub(crate) fn of(points: Vec<&'a Measured>) -> Option<Setting<'a>> {
        let first = points.iter().copied().find(|point| point.result.is_some())?;
        let is_clean = points.iter().any(|point| point.is_clean());
        let used: Vec<&Measured> =
            points.iter().copied().filter(|p| p.is_clean() || !is_clean && p.result.is_some()).collect();
        let results: Vec<&PointResult> = used.iter().filter_map(|p| p.result.as_ref()).collect();
        let words = distinct(points.iter().flat_map(|p| p.words.iter().cloned()));
        let latency = Latency::of(&results);
        Some(Setting { run: first.run, config: &first.point.config, points, used, words, is_clean, latency })
    }

    /// Of two settings the one with more IOPS, and a clean one before a marked one; the first of equals.
    pub(crate) fn better<'b>(first: &'b Setting<'a>, other: &'b Setting<'a>) -> &'b Setting<'a> {
        if (other.is_clean, other.iops()) > (first.is_clean, first.iops()) { other } else { first }
    }

    fn results(&self) -> impl Iterator<Item = &'a PointResult> {
        self.used.iter().filter_map(|point| point.result.as_ref())
    }

    /// Mean over the repeats that are used; `None` if one of them does not have it.
    pub(crate) fn mean(&self, figure: impl Fn(&PointResult) -> Option<f64>) -> Option<f64> {
        mean(self.results().map(figure))
    }

    /// A figure of each repeat that is used and has it.
    pub(crate) fn each(&self, figure: impl Fn(&PointResult) -> Option<f64>) -> Vec<f64> {
        self.results().filter_map(figure).collect()
    }

    /// Repeats that the figures are of.
    pub(crate) fn repeats(&self) -> usize {
        self.used.len()
    }

    pub(crate) fn iops(&self) -> f64 {
        self.mean(|r| Some(r.iops())).unwrap_or(0.0)
    }

    pub(crate) fn bw_bytes(&self) -> f64 {
        self.mean(|r| Some(r.bw_bytes())).unwrap_or(0.0)
    }

    /// CPU time for each operation in microseconds, by [`CPU_PARTS`].
    pub(crate) fn cpu_us(&self) -> [Option<f64>; CPU_PARTS.len()] {
        let mut each: Vec<_> = self.used.iter().map(|point| cpu_us(point)).collect();
        // Where some repeats have samples, these alone tell the kernel's part.
        if each.iter().any(|parts| parts[KERNEL].is_some()) {
            each.retain(|parts| parts[KERNEL].is_some());
        }
        std::array::from_fn(|part| mean(each.iter().map(|parts| parts[part])))
    }

    /// The limiter, and the figure that decided it, both of the first repeat that is used.
    pub(crate) fn limiter(&self) -> Option<(&'a str, &'a str)> {
        let carmine = &self.first()?.carmine;
        Some((carmine.verdict.as_deref()?, carmine.verdict_reason.as_deref().unwrap_or("")))
    }

    /// The first result that is used.
    pub(crate) fn first(&self) -> Option<&'a PointResult> {
        self.results().next()
    }
}

/// The mean of figures that are all known.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Some(mean).filter(|mean| mean.is_finite())
}

/// One point's parts. Unknown is not zero: parts that no OSD tells of are left out.
fn cpu_us(point: &Measured) -> [Option<f64>; CPU_PARTS.len()] {
    let Some(result) = &point.result else { return Default::default() };
    let carmine = &result.carmine;
    let ops = result.iops() * carmine.window_seconds;
    let of = |seconds: f64| Some(seconds * 1e6 / ops).filter(|us| us.is_finite() && *us >= 0.0);
    let clocks = |pick: fn(&CpuSeconds) -> Option<f64>| -> Option<f64> {
        carmine.osds.iter().map(|osd| pick(&osd.cpu_seconds)).sum::<Option<f64>>()
    };
    let busy = clocks(|c| c.busy).filter(|_| !carmine.osds.is_empty());
    let threads = point.samples.as_ref().ok().and_then(Option::as_ref).map(|samples| &samples.threads);
    let system = threads
        .filter(|threads| threads.iter().any(|t| t.kind == "reactor"))
        .map(|threads| threads.iter().filter(|t| t.kind == "reactor").map(|t| t.system_s).sum::<f64>());
    let kernel = busy.zip(system).map(|(busy, system)| system.min(busy));
    let rocksdb = clocks(|c| Some(c.rocksdb_feeder? + c.rocksdb_flush? + c.rocksdb_compaction?));
    let aliens = clocks(|c| c.alien).map(|all| (all - rocksdb.unwrap_or(0.0)).max(0.0));
    let undivided = clocks(|c| Some(c.kernel_total)).filter(|_| busy.is_none() && !carmine.osds.is_empty());
    let drain = carmine.drain.map(|drain| drain.cpu_ns as f64 / 1e9);
    let elsewhere = carmine.machine_cpu_us_per_op.zip(carmine.osd_cpu_us_per_op);
    [
        busy.map(|busy| busy - kernel.unwrap_or(0.0)).and_then(of),
        kernel.and_then(of),
        busy.and(clocks(|c| c.spin)).and_then(of),
        busy.and(rocksdb).and_then(of),
        busy.and(aliens).and_then(of),
        undivided.and_then(of),
        drain.and_then(of),
        elsewhere.map(|(machine, osds)| (machine - osds).max(0.0)),
    ]
}

/// Latencies in nanoseconds of the direction that has most operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latency {
    /// `read` or `write`.
    pub(crate) direction: &'static str,
    pub(crate) mean_ns: Option<f64>,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p95_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
    pub(crate) p999_ns: Option<f64>,
    pub(crate) stddev_ns: Option<f64>,
    /// Repeats whose percentiles can't be put together, for they have no histogram.
    pub(crate) unmerged: bool,
}

impl Latency {
    /// Of one result, or of several as if they were one: percentiles of several come from their merged histograms.
    pub(crate) fn of(results: &[&PointResult]) -> Latency {
        let iops = |pick: fn(&PointResult) -> f64| results.iter().map(|r| pick(r)).sum::<f64>();
        let reads = iops(|r| r.read().map_or(0.0, |d| d.iops)) >= iops(|r| r.write().map_or(0.0, |d| d.iops));
        let direction = if reads { "read" } else { "write" };
        let of = |mean_ns, stddev_ns, at: &dyn Fn(f64) -> Option<f64>| {
            let (p50_ns, p95_ns, p99_ns, p999_ns) = (at(50.0), at(95.0), at(99.0), at(99.9));
            Latency { direction, mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, stddev_ns, unmerged: false }
        };
        if let Some(all) = merged(results, reads) {
            return of(Some(all.mean()), Some(all.stddev()), &|percent| Some(all.percentile(percent) as f64));
        }
        let [result] = results else {
            return Latency { unmerged: !results.is_empty(), ..of(None, None, &|_| None) };
        };
        let known = |value: f64| (value > 0.0).then_some(value);
        match if reads { result.read() } else { result.write() } {
            Some(Direction { clat_ns, .. }) => {
                of(known(clat_ns.mean), known(clat_ns.stddev), &|percent| clat_ns.at(percent))
            }
            None => of(None, None, &|_| None),
        }
    }
}

/// All histograms as one; `None` if a result has none.
fn merged(results: &[&PointResult], reads: bool) -> Option<Histogram> {
    let mut all = Histogram::new();
    for result in results {
        let of = &result.carmine.latency_histogram;
        all.merge_sparse(if reads { of.read.as_ref() } else { of.write.as_ref() }?);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_study::archive::Job;

    fn result(latencies: &[(u64, u64)], with_histogram: bool) -> PointResult {
        let mut histogram = Histogram::new();
        latencies.iter().for_each(|(ns, n)| histogram.record_n(*ns, *n));
        let read = Direction { iops: 100.0, ..Direction::default() };
        let mut result = PointResult { jobs: vec![Job { read, ..Job::default() }], ..PointResult::default() };
        result.jobs[0].read.clat_ns.percentile.insert("99.000000".into(), histogram.percentile(99.0) as f64);
        result.carmine.latency_histogram.read = with_histogram.then(|| histogram.to_sparse());
        result
    }

    /// One repeat has all the slow operations: the mean of the two 99th percentiles (25.5 ms) is nobody's latency.
    #[test]
    fn percentiles_of_repeats_are_those_of_all_operations() {
        let (fast, slow) =
            (result(&[(1_000_000, 1000)], true), result(&[(1_000_000, 985), (50_000_000, 15)], true));
        let p99 = Latency::of(&[&fast, &slow]).p99_ns.unwrap();
        assert!((p99 / 1e6 - 1.0).abs() < 0.001, "15 of 2000 operations are below 1 %: {p99}");
        assert!((Latency::of(&[&slow]).p99_ns.unwrap() / 50e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn without_histograms_repeats_have_no_percentiles() {
        let one = result(&[(1_000_000, 1000)], false);
        assert!(Latency::of(&[&one]).p99_ns.is_some());
        let both = Latency::of(&[&one, &one]);
        assert!(both.p99_ns.is_none() && both.unmerged);
        assert!(!Latency::of(&[]).unmerged);
    }
}
