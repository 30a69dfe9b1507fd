//! fio's JSON shape (`fio --output-format=json --group_reporting`), so that tools that read fio's results read ours.

use carmine_metrics::Histogram;
use serde_json::{Value, json};

use crate::result::{DirStats, JobResult};
use crate::spec::{LoadSpec, show_bytes};

/// fio's default percentiles.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// `jobs[]`: one entry for all jobs together, as fio gives with group reporting.
pub(crate) fn jobs(spec: &LoadSpec, result: &JobResult, window_seconds: f64) -> Value {
    json!([{
        "jobname": spec.rw.to_string(),
        "groupid": 0,
        "error": i32::from(result.errors > 0),
        "elapsed": (window_seconds + spec.ramp_ms as f64 / 1e3).ceil() as u64,
        "job options": options(spec),
        "read": direction(&result.read, window_seconds),
        "write": direction(&result.write, window_seconds),
    }])
}

/// fio gives its options as strings.
fn options(spec: &LoadSpec) -> Value {
    let mut options = json!({
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
    if let Some(rate) = spec.rate_iops {
        options["rate_iops"] = rate.to_string().into();
        options["rate_process"] = spec.arrivals.of_fio().into();
    }
    options
}

/// A `read` or `write` object.
fn direction(stats: &DirStats, window_seconds: f64) -> Value {
    let per_second = |n: f64| if window_seconds > 0.0 { n / window_seconds } else { 0.0 };
    let bw_bytes = per_second(stats.bytes as f64);
    let rates = stats.iops_samples(window_seconds);
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
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
        "iops_min": rates.iter().copied().reduce(f64::min).unwrap_or(0.0),
        "iops_max": rates.iter().copied().reduce(f64::max).unwrap_or(0.0),
        "iops_mean": mean,
        "iops_stddev": (squares / (count - 1.0).max(1.0)).sqrt(),
        "iops_samples": rates.len(),
    })
}

fn summary(h: &Histogram) -> Value {
    json!({ "min": h.min(), "max": h.max(), "mean": h.mean(), "stddev": h.stddev(), "N": h.count() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_fios_keys_and_units() {
        let mut result = JobResult::default();
        (0..2000u64).for_each(|n| result.read.record(4096, 1000 * (n + 1), n * 500_000));
        let jobs = jobs(&LoadSpec::default(), &result, 1.0);
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
        assert_eq!((&read["iops_min"], &read["iops_stddev"]), (&json!(2000.0), &json!(0.0)));
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
        assert_eq!((&value["iops_min"], &value["iops_samples"]), (&json!(0.0), &json!(4)));
    }
}
