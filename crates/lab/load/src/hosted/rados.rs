//! `rados bench`. It prints text while it runs, and a summary at its end; latencies have no percentiles.

use super::{ClusterAccess, HostedFigures, Latency};
use crate::result::{DirStats, JobResult};
use crate::spec::{LoadSpec, Rw, show_bytes};

/// A prefill ends by its number of objects; this only bounds it.
const PREFILL_SECONDS: u32 = 3600;

/// Name under which the objects of a load are found again: reads have the block size with which they were written.
pub fn run_name(spec: &LoadSpec, job: u32) -> String {
    let (bs, object, size) =
        (show_bytes(spec.bs_bytes), show_bytes(spec.object_size_bytes), show_bytes(spec.size_bytes));
    format!("carmine-{size}-{object}-{bs}-job{job}of{}", spec.numjobs)
}

fn bench(place: &ClusterAccess, rest: &str) -> Vec<String> {
    let place = ["-c", &place.conf, "-p", &place.pool, "bench"];
    place.into_iter().chain(rest.split(' ')).map(str::to_owned).collect()
}

/// Arguments of one job's load for `millis` (whole seconds, rounded up). Writes make new objects all the time: they end at
/// `most_objects`.
pub fn arguments(
    spec: &LoadSpec,
    place: &ClusterAccess,
    job: u32,
    millis: u64,
    most_objects: Option<u64>,
) -> Vec<String> {
    let (seconds, depth, name) = (millis.div_ceil(1000), spec.iodepth, run_name(spec, job));
    let (bs, object) = (spec.bs_bytes, spec.object_size_bytes);
    let rest = match spec.rw {
        // It has names of its own: data that is read must not be overwritten, and this data is removed with the run.
        Rw::Write | Rw::RandWrite => {
            let most = most_objects.map(|most| format!(" --max-objects {most}")).unwrap_or_default();
            format!("{seconds} write -t {depth} -b {bs} -O {object}{most} --run-name {name}-written")
        }
        Rw::Read => format!("{seconds} seq -t {depth} --no-verify --run-name {name}"),
        Rw::RandRead | Rw::RandRw => format!("{seconds} rand -t {depth} --no-verify --run-name {name}"),
    };
    bench(place, &rest)
}

/// Arguments that write what a job reads.
pub fn prefill_arguments(spec: &LoadSpec, place: &ClusterAccess, job: u32) -> Vec<String> {
    let objects = (spec.objects() / u64::from(spec.numjobs.max(1))).max(1);
    let (bs, object, name) = (spec.bs_bytes, spec.object_size_bytes, run_name(spec, job));
    let rest = format!(
        "{PREFILL_SECONDS} write -t 64 -b {bs} -O {object} --max-objects {objects} --no-cleanup --run-name {name}"
    );
    bench(place, &rest)
}

/// True for the line that `rados bench` prints when its first requests are about to be sent.
pub fn is_begin(line: &str) -> bool {
    line.trim_start().starts_with("sec Cur ops")
}

/// Reads the summary.
///
/// # Errors
/// There is none: the run failed.
pub fn parse(text: &str) -> Result<HostedFigures, String> {
    let find = |name: &str| {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
    };
    let seconds = find("Total time run").ok_or("rados bench printed no summary")?;
    let stats = |ops: &str, size: &str| {
        let [ops, size] = [ops, size].map(|name| find(name).unwrap_or(0.0) as u64);
        DirStats::counted(ops, ops * size)
    };
    let (read, write) = (stats("Total reads made", "Read size"), stats("Total writes made", "Write size"));
    let result = JobResult { read, write, ..JobResult::default() };
    let nanos = |name: &str| find(name).unwrap_or(0.0) * 1e9;
    let latency = Latency {
        min_ns: nanos("Min latency(s)"),
        max_ns: nanos("Max latency(s)"),
        mean_ns: nanos("Average Latency(s)"),
        stddev_ns: nanos("Stddev Latency(s)"),
    };
    Ok(HostedFigures { version: "rados bench".into(), seconds, result, jobs: None, latency: Some(latency) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str = "\
hints = 1
Maintaining 8 concurrent writes of 4096 bytes to objects of size 65536 for up to 2 seconds or 0 objects
  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)
    0       8         8         0         0         0           -           0
Total time run:         2.00795
Total writes made:      468
Write size:             4096
Object size:            65536
Average IOPS:           233
Average Latency(s):     0.0343122
Stddev Latency(s):      0.0180077
Max latency(s):         0.0951313
Min latency(s):         0.00622211
";

    #[test]
    fn summaries_become_results() {
        let figures = parse(WRITE).unwrap();
        assert_eq!((figures.result.write.ops, figures.result.write.bytes), (468, 468 * 4096));
        let latency = figures.latency.unwrap();
        assert!((figures.seconds - 2.00795).abs() < 1e-9 && (latency.mean_ns - 34_312_200.0).abs() < 1.0);
        let read =
            parse("Total time run:       2.0\nTotal reads made:     9756\nRead size:            4096\n")
                .unwrap();
        assert_eq!((read.result.read.ops, read.result.write.ops), (9756, 0));
        for text in ["", "error: no pool", "Total time run: soon\n", "Total time run: -1\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(WRITE.lines().filter(|line| is_begin(line)).count(), 1);
    }

    #[test]
    fn reads_find_what_was_written() {
        let place = ClusterAccess { conf: "c".into(), pool: "p".into() };
        let spec = LoadSpec { rw: Rw::RandRead, iodepth: 4, size_bytes: 64 << 20, ..LoadSpec::default() };
        let read = arguments(&spec, &place, 0, 1500, Some(9)).join(" ");
        assert_eq!(read, "-c c -p p bench 2 rand -t 4 --no-verify --run-name carmine-64m-4m-4k-job0of1");
        let write = prefill_arguments(&spec, &place, 0).join(" ");
        assert!(write.contains(
            "-b 4096 -O 4194304 --max-objects 16 --no-cleanup --run-name carmine-64m-4m-4k-job0of1"
        ));
        let load = arguments(&LoadSpec { rw: Rw::Write, ..spec }, &place, 0, 1000, Some(9)).join(" ");
        assert!(
            load.contains("write")
                && load.ends_with("--max-objects 9 --run-name carmine-64m-4m-4k-job0of1-written"),
            "{load}"
        );
    }
}
