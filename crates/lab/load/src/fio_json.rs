//! fio's JSON of a load: the keys of `fio --output-format=json` (fio 3.33), each with the value that fio would give for jobs with
//! group reporting. Left out is what is not known: the depths at which requests were submitted and completed (`iodepth_*`,
//! `latency_depth|target|percentile|window`) and page faults.

use std::time::{Duration, UNIX_EPOCH};

use carmine_metrics::{Histogram, SparseHistogram};
use carmine_stats::{mean, variance};
use serde_json::{Map, Value, json};

use crate::distribution::Distribution;
use crate::result::{DirStats, JobResult};
use crate::spec::{LoadSpec, show_bytes};
use crate::window::GeneratorWindow;

/// fio's default percentiles.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// Upper bounds of fio's ranges of latencies, in the unit of their key; each begins where the one before ends.
const NS_AND_US: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// `jobs[]`: one entry for all jobs together, as fio gives with group reporting. `job_runtime` is the sum of the jobs' times, as in fio, and
/// `usr_cpu` and `sys_cpu` are percentages of that sum.
pub(crate) fn jobs(
    spec: &LoadSpec,
    result: &JobResult,
    window_seconds: f64,
    generator: &GeneratorWindow,
) -> Value {
    let runtime_ms = window_seconds * 1e3 * f64::from(spec.numjobs.max(1));
    let percent = |ns: u64| if runtime_ms > 0.0 { ns as f64 / 1e4 / runtime_ms } else { 0.0 };
    let mut job = json!({
        "jobname": spec.rw.to_string(),
        "groupid": 0,
        "error": i32::from(result.errors > 0),
        "eta": 0,
        "elapsed": (window_seconds + spec.ramp_ms as f64 / 1e3).ceil() as u64,
        "job options": options(spec),
        "read": direction(&result.read, window_seconds),
        "write": direction(&result.write, window_seconds),
        "trim": direction(&DirStats::default(), window_seconds),
        // A write is durable when it is answered: nobody syncs.
        "sync": { "total_ios": 0, "lat_ns": summary(&Histogram::new()) },
        "job_runtime": runtime_ms.round() as u64,
        "usr_cpu": percent(generator.user_ns),
        "sys_cpu": percent(generator.system_ns),
        "ctx": generator.switches,
    });
    let mut latencies = result.read.latency_ns.clone();
    latencies.merge(&result.write.latency_ns);
    if let (Value::Object(job), Value::Object(parts)) = (&mut job, parts(&latencies.to_sparse())) {
        job.extend(parts);
    }
    json!([job])
}

/// The load's options; fio gives them as strings. They are the same for all jobs.
pub(crate) fn options(spec: &LoadSpec) -> Value {
    if let Some(jobfile) = &spec.jobfile {
        return json!({ "jobfile": jobfile });
    }
    let mut options = json!({
        "ioengine": "carmine",
        "rw": spec.rw,
        "rwmixread": spec.rwmixread.to_string(),
        "bs": show_bytes(spec.bs_bytes),
        "iodepth": spec.iodepth.to_string(),
        "numjobs": spec.numjobs.to_string(),
        "runtime": (spec.runtime_ms as f64 / 1e3).to_string(),
        "ramp_time": (spec.ramp_ms as f64 / 1e3).to_string(),
        "size": show_bytes(spec.size_bytes),
        "object_size": show_bytes(spec.object_size_bytes),
        "randseed": spec.seed.to_string(),
        "verify": if spec.verify { "crc32c" } else { "0" },
        "route": spec.route,
        "group_reporting": "1",
    });
    if let Some(split) = &spec.bssplit {
        options["bssplit"] = split.to_string().into();
    }
    if spec.random_distribution != Distribution::Random {
        options["random_distribution"] = spec.random_distribution.to_string().into();
    }
    if let Some(rate) = spec.rate_iops {
        options["rate_iops"] = rate.to_string().into();
        options["rate_process"] = spec.arrivals.of_fio().into();
    }
    options
}

/// Least, greatest, mean and standard deviation of rates; zeros if there are none.
fn spread(rates: &[f64]) -> [f64; 4] {
    let least = rates.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let greatest = rates.iter().copied().reduce(f64::max).unwrap_or(0.0);
    [least, greatest, mean(rates), variance(rates).sqrt()]
}

/// A `read`, `write` or `trim` object. Rates are sampled every 500 ms, as fio does; bandwidth is in KiB/s.
fn direction(stats: &DirStats, window_seconds: f64) -> Value {
    let window_seconds = if stats.ops > 0 { window_seconds } else { 0.0 };
    let per_second = |n: f64| if window_seconds > 0.0 { n / window_seconds } else { 0.0 };
    let bw_bytes = per_second(stats.bytes as f64);
    let rates = stats.iops_samples(window_seconds);
    let [iops_min, iops_max, iops_mean, iops_stddev] = spread(&rates);
    // Samples count operations; their mean length is that of the whole window.
    let kib = stats.bytes as f64 / 1024.0 / stats.ops.max(1) as f64;
    let [bw_min, bw_max, bw_mean, bw_dev] = [iops_min, iops_max, iops_mean, iops_stddev].map(|n| n * kib);
    let clat = &stats.latency_ns;
    let mut clat_ns = summary(clat);
    if !clat.is_empty() {
        let percentiles = PERCENTILES.map(|p| (format!("{p:.6}"), Value::from(clat.percentile(p))));
        clat_ns["percentile"] = Value::Object(percentiles.into_iter().collect());
    }
    json!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes / 1024,
        "bw_bytes": bw_bytes.round() as u64,
        "bw": (bw_bytes / 1024.0).round() as u64,
        "iops": per_second(stats.ops as f64),
        "runtime": (window_seconds * 1e3).round() as u64,
        "total_ios": stats.ops,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": summary(&Histogram::new()),
        "clat_ns": clat_ns,
        "lat_ns": summary(&stats.latency_ns),
        "bw_min": bw_min.round() as u64,
        "bw_max": bw_max.round() as u64,
        // fio gives the job's share of the group's bandwidth; this entry has all of it.
        "bw_agg": if rates.is_empty() { 0.0 } else { 100.0 },
        "bw_mean": bw_mean,
        "bw_dev": bw_dev,
        "bw_samples": rates.len(),
        "iops_min": iops_min.round() as u64,
        "iops_max": iops_max.round() as u64,
        "iops_mean": iops_mean,
        "iops_stddev": iops_stddev,
        "iops_samples": rates.len(),
    })
}

fn summary(h: &Histogram) -> Value {
    json!({ "min": h.min(), "max": h.max(), "mean": h.mean(), "stddev": h.stddev(), "N": h.count() })
}

/// `latency_ns`, `latency_us` and `latency_ms`: the percentage of all operations in each range of latencies.
fn parts(latencies: &SparseHistogram) -> Value {
    let mut below = 0;
    let mut percent = |bound_ns: u64| {
        let of_all = |count: u64| count as f64 * 100.0 / latencies.count.max(1) as f64;
        let until = latencies
            .buckets
            .iter()
            .take_while(|(ns, _)| *ns <= bound_ns)
            .map(|(_, count)| count)
            .sum::<u64>();
        Value::from(of_all(until - std::mem::replace(&mut below, until)))
    };
    let mut ranges = |bounds: &[u64], unit_ns: u64| -> Map<String, Value> {
        bounds.iter().map(|bound| (bound.to_string(), percent(bound * unit_ns))).collect()
    };
    let (ns, us, mut ms) = (ranges(&NS_AND_US, 1), ranges(&NS_AND_US, 1_000), ranges(&MS, 1_000_000));
    ms.insert(">=2000".to_owned(), percent(u64::MAX));
    json!({ "latency_ns": ns, "latency_us": us, "latency_ms": ms })
}

/// A time as C's `ctime` writes it, in UTC: `Sat Nov 28 19:18:55 2026`.
pub(crate) fn ctime(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // humantime ends with the year 9999.
    const LAST_S: u64 = 253_402_300_799;
    let unix_s = unix_s.min(LAST_S);
    let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s)).to_string();
    let (year, day, clock) = (&date[..4], date[8..10].trim_start_matches('0'), &date[11..19]);
    let month =
        MONTHS.iter().zip(1..).find(|(_, n)| date[5..7].parse() == Ok(*n)).map_or("", |(name, _)| name);
    format!("{} {month} {day:>2} {clock} {year}", DAYS[(unix_s / 86_400 % 7) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_ctime_does() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(ctime(1_795_893_535), "Sat Nov 28 19:18:55 2026");
        assert_eq!(ctime(1_798_761_599), "Thu Dec 31 23:59:59 2026");
        assert_eq!(ctime(u64::MAX), "Fri Dec 31 23:59:59 9999");
    }

    #[test]
    fn every_operation_is_in_one_range_of_latencies() {
        let mut latencies = Histogram::new();
        for (ns, count) in [(2, 10), (900, 20), (3_000, 30), (1_999_000_000, 39), (3_000_000_000, 1)] {
            latencies.record_n(ns, count);
        }
        let parts = parts(&latencies.to_sparse());
        let at = |unit: &str, bound: &str| parts[unit][bound].as_f64().unwrap();
        assert_eq!(
            (at("latency_ns", "2"), at("latency_ns", "1000"), at("latency_us", "4")),
            (10.0, 20.0, 30.0)
        );
        assert_eq!((at("latency_ms", "2000"), at("latency_ms", ">=2000")), (39.0, 1.0));
        let all = parts.as_object().unwrap().values().flat_map(|unit| unit.as_object().unwrap().values());
        assert!((all.filter_map(Value::as_f64).sum::<f64>() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn bandwidth_is_in_kib_and_cpu_is_a_part_of_all_jobs_time() {
        let spec = LoadSpec { numjobs: 2, ..LoadSpec::default() };
        let mut result = JobResult::default();
        // 1,000 and 3,000 a second in the two halves of a second.
        (0..500).for_each(|n| result.read.record(8192, 1_000, n * 900_000));
        (0..1500).for_each(|n| result.read.record(8192, 1_000, 500_000_000 + n * 300_000));
        let generator = GeneratorWindow {
            user_ns: 300_000_000,
            system_ns: 100_000_000,
            switches: 77,
            throttled_ns: None,
        };
        let job = &jobs(&spec, &result, 1.0, &generator)[0];
        assert_eq!((&job["job_runtime"], &job["ctx"]), (&json!(2000), &json!(77)));
        assert_eq!((&job["usr_cpu"], &job["sys_cpu"]), (&json!(15.0), &json!(5.0)));
        let read = &job["read"];
        assert_eq!(
            (&read["bw_min"], &read["bw_max"], &read["bw_mean"]),
            (&json!(8000), &json!(24000), &json!(16000.0))
        );
        assert_eq!(
            (&read["bw"], &read["bw_samples"], &read["bw_agg"]),
            (&json!(16000), &json!(2), &json!(100.0))
        );
        assert!((read["bw_dev"].as_f64().unwrap() - 11_313.7).abs() < 0.1, "{read}");
        for idle in ["write", "trim"] {
            assert_eq!((&job[idle]["runtime"], &job[idle]["bw_samples"]), (&json!(0), &json!(0)), "{idle}");
        }
    }

    #[test]
    fn has_fios_keys_and_units() {
        let mut result = JobResult::default();
        (0..2000u64).for_each(|n| result.read.record(4096, 1000 * (n + 1), n * 500_000));
        let jobs = jobs(&LoadSpec::default(), &result, 1.0, &GeneratorWindow::default());
        let read = &jobs[0]["read"];
        assert_eq!(read["iops"], 2000.0);
        assert_eq!((&read["bw_bytes"], &read["total_ios"]), (&json!(8_192_000), &json!(2000)));
        assert_eq!(
            (&read["bw"], &read["runtime"], &read["clat_ns"]["N"]),
            (&json!(8000), &json!(1000), &json!(2000))
        );
        assert_eq!(read["clat_ns"]["min"], 1000);
        assert_eq!(read["clat_ns"]["max"], 2_000_000);
        let p99 = read["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap();
        assert!((p99 / 1_980_000.0 - 1.0).abs() < 0.001, "{p99}");
        assert_eq!((&read["iops_min"], &read["iops_stddev"]), (&json!(2000), &json!(0.0)));
        let write = &jobs[0]["write"];
        assert_eq!((&write["iops"], &write["total_ios"]), (&json!(0.0), &json!(0)));
        assert!(write["clat_ns"].get("percentile").is_none());
        assert_eq!(jobs[0]["job options"]["bs"], "4k");
    }

    #[test]
    fn a_stalled_end_counts_as_zero() {
        let mut stats = DirStats::default();
        stats.record(1, 1, 0);
        let value = direction(&stats, 2.2);
        assert_eq!((&value["iops_min"], &value["iops_samples"]), (&json!(0), &json!(4)));
    }
}
