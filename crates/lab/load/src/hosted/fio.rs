//! fio's engines `rados` and `rbd`; and fio's JSON shape (`fio --output-format=json --group_reporting`), so that tools that read
//! fio's results read ours.

use std::collections::BTreeMap;

use serde_json::Value;

use super::jobfile::JOBS_FILE;
use super::{ClusterAccess, HostedFigures, Tool};
use crate::distribution::Distribution;
use crate::result::{DirStats, JobResult, SAMPLE_NS};
use crate::spec::{Arrivals, LoadSpec, show_bytes};

/// fio's name of its job; the files that it writes are named after it.
pub(super) const JOB: &str = "carmine";
/// Whole objects in flight while they are written first.
const PREFILL_DEPTH: u32 = 8;

/// The file that appears in fio's working folder when a job's first request is about to be sent: connections are made,
/// the image is open.
pub const BEGIN_FILE: &str = "carmine.prerun.txt";

/// True for the name of a file that fio writes its rates to, in its working folder: one for each job of a job file, else one for all.
pub fn is_rates_file(name: &str) -> bool {
    name.strip_prefix(JOB).is_some_and(|rest| rest.starts_with("_iops.") && rest.ends_with("log"))
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

/// Name of an object that `fio-rados` loads: fio makes one for each of its files. It does not depend on the job, so that reads
/// find what was written.
pub fn object(spec: &LoadSpec, number: impl std::fmt::Display) -> String {
    format!("fio.{}.{number}", show_bytes(spec.object_size_bytes))
}

/// Jobs of one of the generator's processes by the volume that they load. Both are dealt in turn.
fn sections(spec: &LoadSpec, process: u32) -> BTreeMap<u32, u32> {
    let mut sections = BTreeMap::new();
    for job in (0..spec.numjobs).filter(|job| job % spec.processes.max(1) == process) {
        *sections.entry(job % spec.volumes.max(1)).or_default() += 1;
    }
    sections
}

/// Arguments of one process of the load itself: a section for each volume that it loads. Its result goes to the file `to`.
pub fn arguments(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, to: &str, process: u32) -> Vec<String> {
    let mut args = results(to);
    for (volume, jobs) in sections(spec, process) {
        args.extend(section(tool, spec, place, volume));
        args.extend(load(tool, spec, jobs, process));
    }
    args
}

/// Arguments that write every block of the load once.
pub fn prefill_arguments(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, output: &str) -> Vec<String> {
    let mut args = results(output);
    for volume in 0..spec.volumes.max(1) {
        args.extend(section(tool, spec, place, volume));
        let bs = spec.object_size_bytes.min(4 << 20);
        args.extend(options(&format!("rw=write\nbs={bs}\niodepth={PREFILL_DEPTH}\nthread")));
    }
    args
}

/// Options from the lines of a job file.
fn options(lines: &str) -> Vec<String> {
    lines.lines().map(|option| format!("--{option}")).collect()
}

/// Where the result goes, of all sections together.
fn results(output: &str) -> Vec<String> {
    options(&format!("output-format=json+\noutput={output}"))
}

/// Lines of a section that say where its data is. fio knows an engine's own options only after its name.
pub(super) fn engine(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, volume: u32) -> String {
    let ClusterAccess { conf, pool } = place;
    let (objects, names) = (spec.objects(), object(spec, "$filenum"));
    let engine = match tool {
        Tool::FioRbd => format!("rbd\nrbdname={}", image(spec, volume)),
        _ => format!("rados\nconf={conf}\ntouch_objects=0\nnrfiles={objects}\nfilename_format={names}"),
    };
    format!("ioengine={engine}\nclientname=admin\npool={pool}")
}

/// The beginning of a section.
fn section(tool: Tool, spec: &LoadSpec, place: &ClusterAccess, volume: u32) -> Vec<String> {
    let (engine, size) = (engine(tool, spec, place, volume), spec.volume_bytes());
    options(&format!("name={JOB}\n{engine}\nsize={size}\ninvalidate=0\nrandom_generator=tausworthe64"))
}

/// Arguments that run a job file, which is in the working folder. The result goes to the file `to`.
pub fn jobfile_arguments(to: &str) -> Vec<String> {
    results(to).into_iter().chain([JOBS_FILE.to_owned()]).collect()
}

/// The rest of a section: its load.
fn load(tool: Tool, spec: &LoadSpec, jobs: u32, process: u32) -> Vec<String> {
    let LoadSpec { rw, bs_bytes, iodepth, runtime_ms, ramp_ms, rwmixread, random_distribution, .. } = spec;
    let lengths = spec.bssplit.as_ref().map(|split| format!("bssplit={split}"));
    let lengths = lengths.unwrap_or_else(|| format!("bs={bs_bytes}"));
    let mut text = format!("rw={rw}\n{lengths}\niodepth={iodepth}\nnumjobs={jobs}\n");
    if *random_distribution != Distribution::Random {
        text += &format!("random_distribution={random_distribution}\n");
    }
    text += &match spec.io_bytes {
        Some(bytes) => format!("io_size={}\n", per_job(bytes, spec)),
        None => format!("runtime={runtime_ms}ms\ntime_based=1\n"),
    };
    if *ramp_ms > 0 {
        text += &format!("ramp_time={ramp_ms}ms\n");
    }
    // fio counts the jobs of a process from 1: another process needs other numbers.
    let seed = spec.seed.wrapping_add(u64::from(process));
    text += &format!(
        "rwmixread={rwmixread}\nrandseed={seed}\nexec_prerun=true\nwrite_iops_log={JOB}\nper_job_logs=0\n\
         log_avg_msec={RATES_MS}\n"
    );
    if let Some(rate) = spec.rate_iops {
        text += &format!("rate_iops={}\nrate_process={}\n", rate_of_job(rate, spec), spec.arrivals.of_fio());
    }
    if tool == Tool::FioRados {
        text += &format!("{}\n", service_order(rw.is_random()));
    }
    options(&(text + "thread\ngroup_reporting"))
}

/// The order in which a job goes through its files.
pub(super) fn service_order(is_random: bool) -> String {
    format!("file_service_type={}", if is_random { "random" } else { "sequential" })
}

/// fio's rate is per job and direction, in whole operations. Those that are evenly spaced it counts in bytes, in the shortest length.
fn rate_of_job(rate: f64, spec: &LoadSpec) -> String {
    let each = rate / f64::from(spec.numjobs);
    let Some(split) = spec.bssplit.as_ref().filter(|_| spec.arrivals == Arrivals::Fixed) else {
        return format!("{:.0}", each.max(1.0));
    };
    let [read, write] = [true, false].map(|read| (each * split.mean_in_shortest(read)).max(1.0));
    format!("{read:.0},{write:.0}")
}

/// A job's share of all bytes, in whole blocks, and one block at least.
fn per_job(bytes: u64, spec: &LoadSpec) -> u64 {
    let bs = spec.bs_bytes.max(1);
    (bytes / u64::from(spec.numjobs.max(1)) / bs * bs).max(spec.longest_bytes())
}

/// Reads fio's `json+`, before which lines of text may stand.
///
/// # Errors
/// It is something else.
pub fn parse(text: &str) -> Result<HostedFigures, String> {
    let (_, json) = text.split_at(text.find('{').ok_or("fio printed no JSON")?);
    let mut stream = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let Some(Ok(mut value)) = stream.next() else {
        return Err("fio printed JSON that ends too early".into());
    };
    let version = value["fio version"].as_str().ok_or("this is not a result of fio")?.to_owned();
    let jobs =
        value["jobs"].as_array_mut().filter(|jobs| !jobs.is_empty()).ok_or("fio's result has no jobs")?;
    // Groups of jobs run one after the other, and the jobs of a group side by side.
    let mut groups: BTreeMap<u64, f64> = BTreeMap::new();
    let mut results = Vec::new();
    for job in jobs {
        let (result, seconds) = entry(job);
        let group = groups.entry(job["groupid"].as_u64().unwrap_or(0)).or_default();
        *group = group.max(seconds);
        results.push(result);
    }
    let (result, jobs) = (JobResult::merged(&results), Some(value["jobs"].take()));
    Ok(HostedFigures { version, seconds: groups.values().sum(), result, jobs, latency: None })
}

/// One entry of fio's `jobs[]` and its time in seconds.
fn entry(job: &mut Value) -> (JobResult, f64) {
    let [(read, read_s), (write, write_s), _] = ["read", "write", "trim"].map(|name| direction(job, name));
    let error = job["error"].as_i64().unwrap_or(0);
    let first_error = (error != 0).then(|| format!("fio says error {error}"));
    let result =
        JobResult { read, write, errors: u64::from(error != 0), first_error, ..JobResult::default() };
    (result, read_s.max(write_s))
}

/// Figures of a direction, and its time in seconds. Takes the bins out of fio's result, of which they are by far the longest part.
fn direction(job: &mut Value, name: &str) -> (DirStats, f64) {
    let Some(direction) = job.get_mut(name) else { return Default::default() };
    let clat = direction.get_mut("clat_ns").and_then(Value::as_object_mut);
    let bins = clat.and_then(|clat| clat.remove("bins"));
    let number = |name: &str| direction.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut stats = DirStats::counted(number("total_ios"), number("io_bytes"));
    for (ns, count) in bins.iter().filter_map(Value::as_object).flatten() {
        if let (Ok(ns), Some(count)) = (ns.parse(), count.as_u64()) {
            stats.latency_ns.record_n(ns, count);
        }
    }
    let seconds = if stats.ops > 0 { number("runtime") as f64 / 1e3 } else { 0.0 };
    (stats, seconds)
}

/// Milliseconds between two lines of fio's log of rates, unless a job file says otherwise.
pub const RATES_MS: u64 = SAMPLE_NS / 1_000_000;

/// Puts fio's log of rates (`milliseconds, IOPS, direction, …` of each job and interval of `interval_ms`) into the samples of a
/// result. Lines of another form are left out.
pub fn add_rates(log: &str, interval_ms: u64, result: &mut JobResult) {
    let step_ms = interval_ms.clamp(1, RATES_MS);
    for line in log.lines() {
        let fields: Vec<u64> = line.split(',').map_while(|field| field.trim().parse().ok()).collect();
        let [ms, iops, direction, ..] = fields[..] else { continue };
        let stats = if direction == 0 { &mut result.read } else { &mut result.write };
        // An interval is logged at its end, a little late. A long one has several samples, a short one is a part of one.
        let Some(interval) = (ms / interval_ms.max(1)).checked_sub(1) else { continue };
        for step in 0..interval_ms / step_ms {
            stats.add(
                (interval * interval_ms + step * step_ms) / RATES_MS,
                iops.saturating_mul(step_ms) / 1000,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rw;
    use crate::window::GeneratorWindow;

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
        assert_eq!(object(&spec, 15), "fio.4m.15");
        let args = arguments(Tool::FioRbd, &spec, &place(), "o.json", 0);
        assert!(
            args.contains(&"--rbdname=carmine-64m".to_owned()) && !args.iter().any(|a| a.contains("nrfiles"))
        );
    }

    #[test]
    fn popularity_and_lengths_are_fios_own() {
        let spec = LoadSpec {
            rw: Rw::RandRw,
            random_distribution: Distribution::Zipf(1.2),
            bssplit: "4k/60:64k/40,8k/100".parse().ok(),
            ..LoadSpec::default()
        };
        let args = arguments(Tool::FioRbd, &spec.clone().in_units(), &place(), "o.json", 0);
        for arg in ["--random_distribution=zipf:1.2", "--bssplit=4k/60:64k/40,8k/100"] {
            assert!(args.iter().any(|a| a == arg), "no {arg} in {args:?}");
        }
        assert!(!args.iter().any(|a| a.starts_with("--bs=")), "{args:?}");
        let rated =
            |arrivals| LoadSpec { rate_iops: Some(200.0), numjobs: 2, arrivals, ..spec.clone() }.in_units();
        let even = arguments(Tool::FioRbd, &rated(Arrivals::Fixed), &place(), "o.json", 0);
        assert!(even.contains(&"--rate_iops=700,100".to_owned()), "28 KiB are 7 times 4 KiB: {even:?}");
        let poisson = arguments(Tool::FioRbd, &rated(Arrivals::Poisson), &place(), "o.json", 0);
        assert!(poisson.contains(&"--rate_iops=100".to_owned()), "{poisson:?}");
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
        let jobs = figures.jobs(&LoadSpec::default(), &GeneratorWindow::default());
        assert_eq!(jobs[0]["write"]["clat_ns"]["mean"], 1500.0);
        assert!(jobs[0]["write"]["clat_ns"].get("bins").is_none());
    }

    #[test]
    fn rates_of_all_jobs_become_samples() {
        let mut result = JobResult::default();
        add_rates(
            "500, 100, 0, 4096, 0\n501, 50, 0, 4096, 0\n1000, 300, 0, 4096, 0\n1002, 8, 1, 4096, 0\n",
            RATES_MS,
            &mut result,
        );
        assert_eq!(
            (result.read.samples.as_slice(), result.write.samples.as_slice()),
            (&[75, 150][..], &[0, 4][..])
        );
        add_rates("\n3, 7, 1\nhello\n18446744073709551615, 1, 0\n500, -1, 0\n", RATES_MS, &mut result);
        assert_eq!((result.read.samples.len(), result.write.samples.len()), (2, 2));
    }

    #[test]
    fn rates_of_other_intervals_have_the_same_sum() {
        let samples = |log: &str, interval_ms| {
            let mut result = JobResult::default();
            add_rates(log, interval_ms, &mut result);
            result.read.samples
        };
        assert_eq!(samples("1000, 40, 0, 0\n2001, 60, 0, 0\n", 1000), [20, 20, 30, 30]);
        let short: String = (1..=10).map(|n| format!("{}, 50, 0, 0\n", n * 100)).collect();
        assert_eq!(samples(&short, 100), [25, 25]);
    }

    #[test]
    fn groups_of_a_job_file_run_one_after_the_other() {
        let job = |group: u32, ops: u64, ms: u64| {
            format!(
                r#"{{"groupid": {group}, "error": 0, "read": {{"total_ios": {ops}, "io_bytes": {}, "runtime": {ms},
                   "clat_ns": {{"bins": {{"1000": {ops}}}}}}}}}"#,
                ops * 4096
            )
        };
        let jobs = [job(0, 10, 2000), job(0, 20, 1500), job(1, 5, 1000)].join(",");
        let figures = parse(&format!(r#"{{"fio version": "fio-3.33", "jobs": [{jobs}]}}"#)).unwrap();
        let read = &figures.result.read;
        assert_eq!((figures.seconds, read.ops, read.latency_ns.count()), (3.0, 35, 35));
        let one = figures.jobs(&LoadSpec::default(), &GeneratorWindow::default());
        assert_eq!((one.as_array().unwrap().len(), &one[0]["read"]["total_ios"]), (1, &35.into()));
        assert_eq!(figures.jobs.unwrap().as_array().unwrap().len(), 3);
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
