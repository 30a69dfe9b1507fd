//! fio's engines `rados` and `rbd`.

use carmine_metrics::Histogram;
use serde_json::Value;

use super::{HostedFigures, Place, Tool};
use crate::result::{DirStats, JobResult, SAMPLE_NS};
use crate::spec::{Arrivals, LoadSpec, show_bytes};

/// fio's name of its job; the file that it writes when a job begins is named after it.
const JOB: &str = "carmine";
/// Whole objects in flight while they are written first.
const PREFILL_DEPTH: u32 = 8;

/// Samples that are believed: a day.
const RATES_MAX: usize = 172_800;

/// The file that appears in fio's working folder when a job's first request is about to be sent: connections are made,
/// the image is open.
pub fn begin_file() -> String {
    format!("{JOB}.prerun.txt")
}

/// The file that fio writes its rates to, in its working folder.
pub fn rates_file() -> String {
    format!("{JOB}_iops.log")
}

/// Name of the rbd image for a load of this size.
pub fn image(spec: &LoadSpec) -> String {
    format!("carmine-{}", show_bytes(spec.size_bytes))
}

/// Name of the last object that the prefill of `fio-rados` writes.
pub fn last_object(spec: &LoadSpec) -> String {
    format!("{}{}", object_prefix(spec), spec.objects().saturating_sub(1))
}

/// fio makes one object of each of its files. The names do not depend on the job, so that reads find what was written.
fn object_prefix(spec: &LoadSpec) -> String {
    format!("fio.{}.", show_bytes(spec.object_size_bytes))
}

/// Arguments of the load itself. Its result goes to `output`.
pub fn arguments(tool: Tool, spec: &LoadSpec, place: &Place, output: &str) -> Vec<String> {
    let mut args = common(tool, spec, place, output);
    let mut put = |name: &str, value: String| args.push(format!("--{name}={value}"));
    put("rw", spec.rw.to_string());
    put("bs", spec.bs_bytes.to_string());
    put("iodepth", spec.iodepth.to_string());
    put("numjobs", spec.numjobs.to_string());
    put("runtime", format!("{}ms", spec.runtime_ms));
    if spec.ramp_ms > 0 {
        put("ramp_time", format!("{}ms", spec.ramp_ms));
    }
    put("rwmixread", spec.rwmixread.to_string());
    put("randseed", spec.seed.to_string());
    put("exec_prerun", "true".into());
    put("write_iops_log", JOB.into());
    put("per_job_logs", "0".into());
    put("log_avg_msec", (SAMPLE_NS / 1_000_000).to_string());
    if let Some(rate) = spec.rate_iops {
        // fio's rate is per job and direction, in whole operations.
        put("rate_iops", format!("{:.0}", (rate / f64::from(spec.numjobs)).max(1.0)));
        let poisson = spec.arrivals == Arrivals::Poisson;
        put("rate_process", if poisson { "poisson" } else { "linear" }.into());
    }
    if tool == Tool::FioRados {
        put("file_service_type", if spec.rw.is_random() { "random" } else { "sequential" }.into());
    }
    args.extend(["--time_based", "--thread", "--group_reporting"].map(str::to_owned));
    args
}

/// Arguments that write every block of the load once.
pub fn prefill_arguments(tool: Tool, spec: &LoadSpec, place: &Place, output: &str) -> Vec<String> {
    let mut args = common(tool, spec, place, output);
    args.push("--rw=write".into());
    args.push(format!("--bs={}", spec.object_size_bytes.min(4 << 20)));
    args.push(format!("--iodepth={PREFILL_DEPTH}"));
    args.push("--thread".into());
    args
}

fn common(tool: Tool, spec: &LoadSpec, place: &Place, output: &str) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut put = |name: &str, value: &str| args.push(format!("--{name}={value}"));
    put("name", JOB);
    // fio knows an engine's own options only after its name.
    if tool == Tool::FioRbd {
        put("ioengine", "rbd");
        put("rbdname", &image(spec));
    } else {
        put("ioengine", "rados");
        put("conf", &place.conf);
        put("touch_objects", "0");
        put("nrfiles", &spec.objects().to_string());
        put("filename_format", &format!("{}$filenum", object_prefix(spec)));
    }
    put("clientname", "admin");
    put("pool", &place.pool);
    put("size", &(spec.objects() * spec.object_size_bytes).to_string());
    put("invalidate", "0");
    put("random_generator", "tausworthe64");
    put("output-format", "json+");
    put("output", output);
    args
}

/// Reads fio's `json+`, before which lines of text may stand.
///
/// # Errors
/// It is something else.
pub fn parse(text: &str) -> Result<HostedFigures, String> {
    let begin = text.find('{').ok_or("fio printed no JSON")?;
    let mut stream =
        serde_json::Deserializer::from_str(text.get(begin..).unwrap_or_default()).into_iter::<Value>();
    let Some(Ok(mut value)) = stream.next() else {
        return Err("fio printed JSON that ends too early".into());
    };
    let version = value["fio version"].as_str().ok_or("this is no result of fio")?.to_owned();
    let job = value["jobs"].get(0).ok_or("fio's result has no jobs")?;
    let direction = |name: &str| job.get(name).map(dir_stats).unwrap_or_default();
    let (read, write) = (direction("read"), direction("write"));
    let seconds = ["read", "write"]
        .iter()
        .filter(|name| job[*name]["total_ios"].as_u64().unwrap_or(0) > 0)
        .filter_map(|name| job[*name]["runtime"].as_f64())
        .fold(0.0, f64::max)
        / 1e3;
    let error = job["error"].as_i64().unwrap_or(0);
    let result = JobResult {
        read,
        write,
        errors: u64::from(error != 0),
        first_error: (error != 0).then(|| format!("fio says error {error}")),
        ..JobResult::default()
    };
    if let Some(jobs) = value["jobs"].as_array_mut() {
        jobs.iter_mut().for_each(drop_bins);
    }
    Ok(HostedFigures { version, seconds, result, jobs: Some(value["jobs"].take()), latency: None })
}

fn dir_stats(direction: &Value) -> DirStats {
    let number = |name: &str| direction[name].as_u64().unwrap_or(0);
    let mut latency_ns = Histogram::new();
    for (ns, count) in direction["clat_ns"]["bins"].as_object().into_iter().flatten() {
        if let (Ok(ns), Some(count)) = (ns.parse::<u64>(), count.as_u64()) {
            latency_ns.record_n(ns, count);
        }
    }
    DirStats { ops: number("total_ios"), bytes: number("io_bytes"), latency_ns, samples: Vec::new() }
}

/// Puts fio's log of rates (`milliseconds, IOPS, direction, …` of each job and interval) into the samples of a result.
/// Lines of another form are left out.
pub fn add_rates(log: &str, result: &mut JobResult) {
    let interval_ms = SAMPLE_NS / 1_000_000;
    for line in log.lines() {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>().ok());
        let (Some(Some(ms)), Some(Some(iops)), Some(Some(direction))) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let stats = if direction == 0 { &mut result.read } else { &mut result.write };
        // An interval is logged at its end, a little late.
        let Some(at) = (ms / interval_ms).checked_sub(1).and_then(|at| usize::try_from(at).ok()) else {
            continue;
        };
        if at >= RATES_MAX {
            continue;
        }
        if at >= stats.samples.len() {
            stats.samples.resize(at + 1, 0);
        }
        stats.samples[at] += iops * interval_ms / 1000;
    }
}

/// The bins are in the result's own histogram, and by far the longest part of fio's.
fn drop_bins(job: &mut Value) {
    for direction in ["read", "write", "trim"] {
        if let Some(clat) = job[direction]["clat_ns"].as_object_mut() {
            clat.remove("bins");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rw;

    fn place() -> Place {
        Place { conf: "/d/ceph.conf".into(), pool: "bench".into() }
    }

    #[test]
    fn arguments_are_the_plans_words() {
        let spec = LoadSpec {
            rw: Rw::RandWrite,
            iodepth: 16,
            numjobs: 2,
            ramp_ms: 500,
            rate_iops: Some(3001.0),
            size_bytes: 64 << 20,
            ..LoadSpec::default()
        };
        let args = arguments(Tool::FioRados, &spec, &place(), "o.json");
        for arg in [
            "--ioengine=rados",
            "--rw=randwrite",
            "--bs=4096",
            "--iodepth=16",
            "--numjobs=2",
            "--runtime=10000ms",
            "--ramp_time=500ms",
            "--rate_iops=1500",
            "--nrfiles=16",
            "--filename_format=fio.4m.$filenum",
            "--file_service_type=random",
            "--conf=/d/ceph.conf",
        ] {
            assert!(args.iter().any(|a| a == arg), "no {arg} in {args:?}");
        }
        assert_eq!(last_object(&spec), "fio.4m.15");
        let args = arguments(Tool::FioRbd, &spec, &place(), "o.json");
        assert!(
            args.contains(&"--rbdname=carmine-64m".to_owned()) && !args.iter().any(|a| a.contains("nrfiles"))
        );
    }

    const RESULT: &str = r#"carmine : Saving output of prerun in carmine.prerun.txt
{"fio version": "fio-3.33", "jobs": [{"jobname": "carmine", "error": 0,
  "read": {"total_ios": 0, "io_bytes": 0, "runtime": 0},
  "write": {"total_ios": 4, "io_bytes": 16384, "iops": 2.0, "runtime": 2000,
            "clat_ns": {"mean": 1500.0, "N": 4, "bins": {"1000": 3, "3000": 1}}}}]}
trailing"#;

    #[test]
    fn results_become_ours() {
        let figures = parse(RESULT).unwrap();
        let write = &figures.result.write;
        assert_eq!((figures.version.as_str(), figures.seconds), ("fio-3.33", 2.0));
        assert_eq!((write.ops, write.bytes, write.latency_ns.count()), (4, 16384, 4));
        assert!(write.latency_ns.percentile(99.0) >= 2990 && write.latency_ns.percentile(50.0) <= 1010);
        let jobs = figures.jobs(&LoadSpec::default());
        assert_eq!(jobs[0]["write"]["clat_ns"]["mean"], 1500.0);
        assert!(jobs[0]["write"]["clat_ns"].get("bins").is_none());
    }

    #[test]
    fn rates_of_all_jobs_become_samples() {
        let mut result = JobResult::default();
        add_rates(
            "500, 100, 0, 4096, 0\n501, 50, 0, 4096, 0\n1000, 300, 0, 4096, 0\n1002, 8, 1, 4096, 0\n",
            &mut result,
        );
        assert_eq!(
            (result.read.samples.as_slice(), result.write.samples.as_slice()),
            (&[75, 150][..], &[0, 4][..])
        );
        add_rates("\n3, 7, 1\nhello\n18446744073709551615, 1, 0\n500, -1, 0\n", &mut result);
        assert_eq!((result.read.samples.len(), result.write.samples.len()), (2, 2));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in
            ["", "fio: failed", "{", "{}", r#"{"fio version": "x"}"#, r#"{"fio version": 3, "jobs": {}}"#]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(
            parse(r#"{"fio version": "x", "jobs": [{"write": {"clat_ns": {"bins": {"a": 1, "2": -1}}}}]}"#)
                .is_ok()
        );
    }
}
