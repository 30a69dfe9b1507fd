//! Repeats of one configuration together: means of their figures, and the latency of all their operations.

use carmine_metrics::Histogram;
use carmine_study::archive::{Config, LatencyNs, PointResult};
use carmine_study::repeats::limiter;
use carmine_study::support::clean;

use super::{Measured, RunData};
use crate::lists::{distinct, grouped};

/// A configuration in one run, with the figures of its repeats.
#[derive(Clone, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) run: usize,
    pub(crate) config: &'a Config,
    pub(crate) points: Vec<&'a Measured>,
    /// Repeats that the figures are of: the clean ones, or all if none is.
    pub(crate) used: Vec<&'a Measured>,
    /// The result of the first of these.
    pub(crate) first: &'a PointResult,
    /// Words of all its repeats, each once.
    pub(crate) words: Vec<String>,
    /// At least one repeat is clean.
    pub(crate) is_clean: bool,
    /// `read` or `write`: the one that has most operations.
    pub(crate) direction: &'static str,
    /// Its latency; `None` for repeats that can't be put together, because they have no histogram.
    pub(crate) latency: Option<LatencyNs>,
}

/// Configurations of the plan with at least one result, in the order of running.
pub(crate) fn settings(runs: &[RunData]) -> Vec<Setting<'_>> {
    let planned = runs.iter().flat_map(|run| &run.points).filter(|point| point.is_planned());
    let settings = grouped(planned.map(|point| ((point.run, point.point.config.asked()), point)));
    settings.into_iter().filter_map(|(_, points)| Setting::from_points(points)).collect()
}

impl<'a> Setting<'a> {
    /// Points of one configuration; `None` if none has a result.
    pub(crate) fn from_points(points: Vec<&'a Measured>) -> Option<Setting<'a>> {
        let first = points.iter().copied().find(|point| point.result.is_some())?;
        let is_clean = points.iter().any(|point| point.is_clean());
        let used: Vec<&Measured> =
            points.iter().copied().filter(|p| p.is_clean() || !is_clean && p.result.is_some()).collect();
        let results: Vec<&PointResult> = used.iter().filter_map(|p| p.result.as_ref()).collect();
        let words = distinct(points.iter().flat_map(|p| p.words.iter().cloned()));
        let (direction, latency) = latency(&results);
        let (run, config, first) = (first.run, &first.point.config, results[0]);
        Some(Setting { run, config, points, used, first, words, is_clean, direction, latency })
    }

    /// The setting with the most IOPS, and a clean one before a marked one; the first of equals.
    pub(crate) fn best<'b>(settings: &[&'b Setting<'a>]) -> &'b Setting<'a> {
        let rank = |setting: &Setting<'_>| (setting.is_clean, setting.iops());
        let better = |a: &'b Setting<'a>, b: &&'b Setting<'a>| if rank(b) > rank(a) { *b } else { a };
        settings[1..].iter().fold(settings[0], better)
    }

    /// The results of the repeats that are used.
    pub(crate) fn results(&self) -> impl Iterator<Item = &'a PointResult> {
        self.used.iter().filter_map(|point| point.result.as_ref())
    }

    /// Mean over the repeats that are used; `None` if one of them does not have it.
    pub(crate) fn mean(&self, figure: impl Fn(&PointResult) -> Option<f64>) -> Option<f64> {
        mean(self.results().map(figure))
    }

    pub(crate) fn iops(&self) -> f64 {
        self.mean(|r| Some(r.iops())).unwrap_or(0.0)
    }

    pub(crate) fn bw_bytes(&self) -> f64 {
        self.mean(|r| Some(r.bw_bytes())).unwrap_or(0.0)
    }

    /// The mean latency, nanoseconds.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        self.latency.as_ref().map(|latency| latency.mean).filter(|ns| *ns > 0.0)
    }

    /// A percentile of the latency, nanoseconds.
    pub(crate) fn latency_ns(&self, percent: f64) -> Option<f64> {
        self.latency.as_ref()?.at(percent)
    }

    /// CPU time for each operation in microseconds: reactors at work, the kernel for them (system time of their threads),
    /// reactors looking for work, RocksDB (aliens that feed it, and its own threads), other aliens, OSDs that give no
    /// clocks, after the window, and the kernel elsewhere. Together they are that of the machine without the generator.
    pub(crate) fn cpu_us(&self) -> [Option<f64>; 8] {
        let mut each: Vec<_> = self.used.iter().map(|point| cpu_us(point)).collect();
        // If some repeats have samples, only these show the kernel's part.
        if each.iter().any(|parts| parts[1].is_some()) {
            each.retain(|parts| parts[1].is_some());
        }
        std::array::from_fn(|part| mean(each.iter().map(|parts| parts[part])))
    }

    /// The limiter of the repeats that are used, and the figure that decided it: all of both where the repeats disagree.
    pub(crate) fn limiter(&self) -> Option<(String, String)> {
        limiter(self.results())
    }

    /// The repeats that an answer may be made of.
    ///
    /// # Errors
    /// Why they are too few.
    pub(crate) fn supported(&self) -> Result<Vec<&'a Measured>, String> {
        clean(&self.points, |point| point.spoilt_by())
    }
}

/// The mean of figures that are all known.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    Some(carmine_stats::mean(&values)).filter(|mean| !values.is_empty() && mean.is_finite())
}

/// One point's parts. Unknown is not zero: parts that no OSD reports are left out.
fn cpu_us(point: &Measured) -> [Option<f64>; 8] {
    let Some(result) = &point.result else { return Default::default() };
    let carmine = &result.carmine;
    let ops = result.iops() * carmine.window_seconds;
    let of = |seconds: f64| Some(seconds * 1e6 / ops).filter(|us| us.is_finite() && *us >= 0.0);
    let busy = result.osd_seconds(|c| c.busy);
    let threads = point.samples.iter().flat_map(|samples| &samples.threads);
    let system = threads.filter(|t| t.kind == "reactor").map(|t| t.system_s).reduce(|a, b| a + b);
    let kernel = busy.zip(system).map(|(busy, system)| system.min(busy));
    let rocksdb = result.osd_seconds(|c| Some(c.rocksdb_feeder? + c.rocksdb_flush? + c.rocksdb_compaction?));
    let aliens = result.osd_seconds(|c| c.alien).map(|all| (all - rocksdb.unwrap_or(0.0)).max(0.0));
    let elsewhere = carmine.machine_cpu_us_per_op.zip(carmine.osd_cpu_us_per_op);
    [
        busy.map(|busy| busy - kernel.unwrap_or(0.0)).and_then(of),
        kernel.and_then(of),
        busy.and(result.osd_seconds(|c| c.spin)).and_then(of),
        busy.and(rocksdb).and_then(of),
        busy.and(aliens).and_then(of),
        result.osd_seconds(|c| Some(c.kernel_total)).filter(|_| busy.is_none()).and_then(of),
        carmine.drain.and_then(|drain| of(drain.cpu_ns as f64 / 1e9)),
        elsewhere.map(|(machine, osds)| (machine - osds).max(0.0)),
    ]
}

/// Percentiles that are shown.
const PERCENTILES: [f64; 4] = [50.0, 95.0, 99.0, 99.9];

/// The direction that has most operations, and its latency as if all results were one: percentiles of several come from
/// their merged histograms.
fn latency(results: &[&PointResult]) -> (&'static str, Option<LatencyNs>) {
    let of = |r: &PointResult, reads| if reads { r.read().cloned() } else { r.write().cloned() };
    let iops = |reads| results.iter().filter_map(|r| of(r, reads)).map(|d| d.iops).sum::<f64>();
    let reads = iops(true) >= iops(false);
    let histograms = results.iter().map(|r| &r.carmine.latency_histogram);
    let histograms = histograms.map(|h| if reads { h.read.as_ref() } else { h.write.as_ref() });
    let histograms: Option<Vec<_>> = histograms.collect();
    let mut all = Histogram::new();
    histograms.into_iter().flatten().for_each(|histogram| all.merge_sparse(histogram));
    let latency = match results {
        _ if !all.is_empty() => {
            let percentile = PERCENTILES.map(|p| (format!("{p:.6}"), all.percentile(p) as f64)).into();
            Some(LatencyNs { mean: all.mean(), stddev: all.stddev(), percentile, ..LatencyNs::default() })
        }
        [alone] => of(alone, reads).map(|direction| direction.clat_ns),
        _ => None,
    };
    (if reads { "read" } else { "write" }, latency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_study::archive::{Direction, Job};

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
        let p99_ns = |results: &[&PointResult]| latency(results).1.unwrap().at(99.0).unwrap();
        let p99 = p99_ns(&[&fast, &slow]);
        assert!((p99 / 1e6 - 1.0).abs() < 0.001, "15 of 2000 operations are below 1 %: {p99}");
        assert!((p99_ns(&[&slow]) / 50e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn without_histograms_repeats_have_no_percentiles() {
        let one = result(&[(1_000_000, 1000)], false);
        assert!(latency(&[&one]).1.unwrap().at(99.0).is_some());
        assert_eq!(latency(&[&one, &one]).1, None);
    }
}
