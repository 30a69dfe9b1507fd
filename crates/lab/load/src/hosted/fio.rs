//! fio's engines `rados` and `rbd`.

use std::collections::BTreeMap;

use carmine_metrics::Histogram;
use serde_json::Value;

use super::{ClusterAccess, HostedFigures, Tool};
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

/// Name of a volume of a load: its rbd image, from 0.
pub fn image(spec: &LoadSpec, volume: u32) -> String {
    let name = format!("carmine-{}", show_bytes(spec.volume_bytes()));
    if volume == 0 { name } else { format!("{name}-{volume}") }
}

/// Arguments of `rbd` that make a volume's image: without journals, object maps and caches, as in Ceph's own studies.
pub fn create_image(spec: &LoadSpec, place: &ClusterAccess, volume: u32) -> Vec<String> {
    let size = show_bytes(spec.volume_bytes() >> 20 << 20).to_uppercase();
    let size = if size.ends_with(|c: char| c.is_ascii_digit()) { format!("{size}B") } else { size };
    let image = format!("{}/{}", place.pool, image(spec, volume));
    ["create", "--size", &size, "--image-feature", "layering", &image].map(str::to_owned).to_vec()
}

/// Name of the last object that the prefill of `fio-rados` writes.
pub fn last_object(spec: &LoadSpec) -> String {
    format!("{}{}", object_prefix(spec), spec.objects().saturating_sub(1))
}

/// Name of the first one.
pub fn first_object(spec: &LoadSpec) -> String {
    format!("{}0", object_prefix(spec))
}

/// fio makes one object of each of its files. The names do not depend on the job, so that reads find what was written.
fn object_prefix(spec: &LoadSpec) -> String {
    format!("fio.{}.", show_bytes(spec.object_size_bytes))
}

/// Jobs of one of the generator's processes by the volume that they load. Both are dealt in turn.
fn sections(spec: &LoadSpec, process: u32) -> BTreeMap<u32, u32> {
    let mut sections = BTreeMap::new();
    for job in (0..spec.numjobs).filter(|job| job % spec.processes.max(1) == process) {
        *sections.entry(job % spec.volumes.max(1)).or_default() += 1;
    }
    sections
}

/// Arguments of one process of the load itself: a section for each volume that it loads. Its result goes to `output`.
pub fn arguments(
    tool: Tool,
    spec: &LoadSpec,
    place: &ClusterAccess,
    output: &str,
    process: u32,
) -> Vec<String> {
    let mut args = results(output);
    for (volume, jobs) in sections(spec, process) {
        args.extend(common(tool, spec, place, volume));
        args.extend(section(tool, spec, jobs, process));
    }
    args
}

fn section(tool: Tool, spec: &LoadSpec, jobs: u32, process: u32) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut put = |name: &str, value: String| args.push(format!("--{name}={value}"));
    put("rw", spec.rw.to_string());
    put("bs", spec.bs_bytes.to_string());
    put("iodepth", spec.iodepth.to_string());
    put("numjobs", jobs.to_string());
    match spec.io_bytes {
        Some(bytes) => put("io_size", per_job(bytes, spec).to_string()),
        None => {
            put("runtime", format!("{}ms", spec.runtime_ms));
            put("time_based", "1".into());
        }
    }
    if spec.ramp_ms > 0 {
        put("ramp_time", format!("{}ms", spec.ramp_ms));
    }
    put("rwmixread", spec.rwmixread.to_string());
    // fio counts the jobs of a process from 1: another process needs other numbers.
    put("randseed", spec.seed.wrapping_add(u64::from(process)).to_string());
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
    args.extend(["--thread", "--group_reporting"].map(str::to_owned));
    args
}

/// A job's share of all bytes, in whole blocks, and one block at least.
fn per_job(bytes: u64, spec: &LoadSpec) -> u64 {
    let bs = spec.bs_bytes.max(1);
    (bytes / u64::from(spec.numjobs.max(1)) / bs * bs).max(bs)
}

/// Arguments that write every block of the load once.
pub fn prefill_arguments(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, output: &str) -> Vec<String> {
    let mut args = results(output);
    for volume in 0..spec.volumes.max(1) {
        args.extend(common(tool, spec, place, volume));
        args.push("--rw=write".into());
        args.push(format!("--bs={}", spec.object_size_bytes.min(4 << 20)));
        args.push(format!("--iodepth={PREFILL_DEPTH}"));
        args.push("--thread".into());
    }
    args
}

/// Where the result goes, of all sections together.
fn results(output: &str) -> Vec<String> {
    vec!["--output-format=json+".into(), format!("--output={output}")]
}

/// What begins a section: the place of its data.
fn common(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, volume: u32) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut put = |name: &str, value: &str| args.push(format!("--{name}={value}"));
    put("name", JOB);
    // fio knows an engine's own options only after its name.
    if tool == Tool::FioRbd {
        put("ioengine", "rbd");
        put("rbdname", &image(spec, volume));
    } else {
        put("ioengine", "rados");
        put("conf", &place.conf);
        put("touch_objects", "0");
        put("nrfiles", &spec.objects().to_string());
        put("filename_format", &format!("{}$filenum", object_prefix(spec)));
    }
    put("clientname", "admin");
    put("pool", &place.pool);
    put("size", &spec.volume_bytes().to_string());
    put("invalidate", "0");
    put("random_generator", "tausworthe64");
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

    fn place() -> ClusterAccess {
        ClusterAccess { conf: "/d/ceph.conf".into(), pool: "bench".into() }
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
        let args = arguments(Tool::FioRados, &spec, &place(), "o.json", 0);
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
        let args = arguments(Tool::FioRbd, &spec, &place(), "o.json", 0);
        assert!(
            args.contains(&"--rbdname=carmine-64m".to_owned()) && !args.iter().any(|a| a.contains("nrfiles"))
        );
    }

    #[test]
    fn jobs_are_dealt_to_processes_and_volumes() {
        let spec = LoadSpec {
            numjobs: 4,
            processes: 2,
            volumes: 4,
            io_bytes: Some(1 << 20),
            size_bytes: 64 << 20,
            ..LoadSpec::default()
        };
        let args = arguments(Tool::FioRbd, &spec, &place(), "o.json", 1);
        let of = |name: &str| args.iter().filter_map(|a| a.strip_prefix(name)).collect::<Vec<_>>();
        assert_eq!(of("--rbdname="), ["carmine-16m-1", "carmine-16m-3"]);
        assert_eq!((of("--numjobs="), of("--io_size=")), (vec!["1"; 2], vec!["262144"; 2]));
        assert_eq!((of("--size="), of("--randseed=")), (vec!["16777216"; 2], vec!["2"; 2]));
        assert!(of("--time_based").is_empty() && of("--output=") == ["o.json"]);
        let prefill = prefill_arguments(Tool::FioRbd, &spec, &place(), "o.json");
        assert_eq!(prefill.iter().filter(|a| a.starts_with("--rbdname=")).count(), 4);
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
