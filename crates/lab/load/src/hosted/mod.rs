//! Loads made by the tools that Ceph's users know: `rados bench` and fio's engines `rados` and `rbd`. This has their
//! command lines for a [`LoadSpec`] and reads what they print; the controller starts them.

pub mod fio;
mod ini;
pub mod jobfile;
pub mod rados;

use serde_json::{Value, json};

use crate::distribution::Distribution;
use crate::fio_json;
use crate::result::JobResult;
use crate::spec::{LoadSpec, Rw, check_all};
use crate::window::GeneratorWindow;

carmine_types::words! {
    /// The tool that makes the load.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Tool: "client" {
        /// This program.
        #[default]
        Carmine = "carmine",
        /// `rados bench`.
        RadosBench = "rados-bench",
        /// fio with `ioengine=rados`.
        FioRados = "fio-rados",
        /// fio with `ioengine=rbd`.
        FioRbd = "fio-rbd",
    }
}

/// Where a tool finds the cluster.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    /// Path of `ceph.conf`.
    pub conf: String,
    /// Pool.
    pub pool: String,
}

/// Checks, before anything is started, that a tool can make a load. Gives the tool's differences as remarks for the result.
///
/// # Errors
/// The tool has no such load.
pub fn check(tool: Tool, spec: &LoadSpec) -> Result<Vec<String>, String> {
    let (is_bench, is_carmine) = (tool == Tool::RadosBench, tool == Tool::Carmine);
    let LoadSpec { rw, volumes, processes, rate_iops, io_bytes, .. } = *spec;
    let (popularity, split) = (&spec.random_distribution, spec.show_bs());
    let is_even = *popularity == Distribution::Random;
    let (is_rbd, is_fio) = (tool == Tool::FioRbd, matches!(tool, Tool::FioRados | Tool::FioRbd));
    let one_process = match tool {
        Tool::RadosBench => "it has a process for each job; raise --numjobs",
        _ => "it is one process with a thread for each job; raise --numjobs, or take fio-rados",
    };
    let (bytes, rate) = (format!("({} bytes)", io_bytes.unwrap_or(0)), rate_iops.unwrap_or(0.0));
    let by_time = "it ends by time only and overwrites nothing; take carmine, fio-rados or fio-rbd";
    let (jobfile, of_fio) =
        (spec.jobfile.as_deref().unwrap_or_default(), "only fio runs it; take --client fio-rbd or fio-rados");
    let checked = check_all([
        (is_fio || spec.jobfile.is_none(), "--jobfile", &jobfile, of_fio),
        (is_carmine || !spec.verifies(), "--verify", &true, "it checks no blocks; take --client carmine"),
        (volumes == 1 || is_rbd, "--volumes", &volumes, "it loads objects, no images; take fio-rbd"),
        (is_fio || processes == 1, "--processes", &processes, one_process),
        (!is_bench || io_bytes.is_none(), "--io-size or --age", &bytes, by_time),
        (!is_bench || rate_iops.is_none(), "--rate", &rate, "it has no rate; take fio-rados"),
        (!is_bench || is_even, "--random-distribution", popularity, "it draws evenly; take fio-rbd"),
        (!is_bench || spec.bssplit.is_none(), "--bssplit", &split, "it has one length; take fio-rados"),
        (!is_bench || rw != Rw::RandRw, "--rw", &rw, "it either reads or writes; take fio-rados"),
    ]);
    checked.map_err(|why| format!("--client {tool}: {why}"))?;
    let order = match rw {
        Rw::Read => Some("rados bench reads in order only once: the window ends when all was read"),
        Rw::RandWrite => {
            Some("rados bench writes each block once, in order, into fresh objects: no random overwrites")
        }
        _ => None,
    };
    let of_bench = ["rados bench gives no percentiles"].into_iter().chain(order).filter(|_| is_bench);
    let by_object =
        "fio-rados draws objects evenly, and blocks by --random-distribution only within each object";
    let marks = of_bench.chain((tool == Tool::FioRados && !is_even).then_some(by_object));
    Ok(marks.map(str::to_owned).collect())
}

/// Latencies of a tool that keeps no histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    pub min_ns: f64,
    pub max_ns: f64,
    pub mean_ns: f64,
    pub stddev_ns: f64,
}

/// Everything that a tool reported about its window.
#[derive(Clone, Debug, Default)]
pub struct HostedFigures {
    /// Its version, as in fio's results.
    pub version: String,
    /// Length of its window.
    pub seconds: f64,
    /// Operations, bytes, and latencies where it keeps a histogram.
    pub result: JobResult,
    /// fio's own `jobs[]`, of one process.
    pub jobs: Option<Value>,
    /// For a tool without a histogram.
    pub latency: Option<Latency>,
}

impl HostedFigures {
    /// Figures of several processes that ran at the same time.
    pub fn merged(all: &[HostedFigures]) -> HostedFigures {
        if let [one] = all {
            return one.clone();
        }
        HostedFigures {
            version: all.first().map(|f| f.version.clone()).unwrap_or_default(),
            seconds: all.iter().map(|f| f.seconds).fold(0.0, f64::max),
            result: JobResult::merged(all.iter().map(|f| &f.result)),
            jobs: None,
            latency: merged_latency(all),
        }
    }

    /// `jobs[]` in fio's shape. `spec` is the load that was asked for, `generator` what the tool's processes used.
    pub fn jobs(&self, spec: &LoadSpec, generator: &GeneratorWindow) -> Value {
        let own = || fio_json::jobs(spec, &self.result, self.seconds, generator);
        // The jobs of a job file have an entry each, or one for each group.
        let one = self.jobs.clone().filter(|jobs| jobs.as_array().is_some_and(|jobs| jobs.len() == 1));
        let mut jobs = one.unwrap_or_else(own);
        let Some(latency) = self.latency else { return jobs };
        for (name, stats) in [("read", &self.result.read), ("write", &self.result.write)] {
            for kind in ["clat_ns", "lat_ns"].into_iter().filter(|_| stats.ops > 0) {
                // Percentiles are left out: absent, not zero.
                jobs[0][name][kind] = json!({
                    "min": latency.min_ns.round() as u64,
                    "max": latency.max_ns.round() as u64,
                    "mean": latency.mean_ns,
                    "stddev": latency.stddev_ns,
                    "N": stats.ops,
                });
            }
        }
        jobs
    }
}

/// Each process counts by its operations; the spread between the processes' means is small beside their own.
fn merged_latency(all: &[HostedFigures]) -> Option<Latency> {
    let known: Vec<(f64, Latency)> =
        all.iter().filter_map(|f| Some((f.result.ops() as f64, f.latency?))).collect();
    let ops: f64 = known.iter().map(|(ops, _)| ops).sum();
    if ops <= 0.0 {
        return None;
    }
    let weighted = |value: fn(&Latency) -> f64| known.iter().map(|(n, l)| n * value(l)).sum::<f64>() / ops;
    Some(Latency {
        min_ns: known.iter().map(|(_, l)| l.min_ns).fold(f64::INFINITY, f64::min),
        max_ns: known.iter().map(|(_, l)| l.max_ns).fold(0.0, f64::max),
        mean_ns: weighted(|l| l.mean_ns),
        stddev_ns: weighted(|l| l.stddev_ns.powi(2)).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::DirStats;

    #[test]
    fn words() {
        for tool in Tool::ALL {
            assert_eq!(tool.to_string().parse(), Ok(*tool));
            assert_eq!(serde_json::to_value(tool).unwrap(), tool.word());
        }
        let error = "cosbench".parse::<Tool>().unwrap_err().to_string();
        assert!(error.contains("`cosbench`") && error.contains("fio-rbd"), "{error}");
    }

    #[test]
    fn what_a_tool_cannot_do_is_said_before_the_load() {
        let random = LoadSpec { rw: Rw::RandRw, ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &random).unwrap_err().to_string().contains("--rw randrw"));
        assert_eq!(check(Tool::FioRados, &random), Ok(Vec::new()));
        let rate = LoadSpec { rate_iops: Some(100.0), ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &rate).is_err() && check(Tool::FioRbd, &rate).is_ok());
        let verify = LoadSpec { verify: true, ..LoadSpec::default() };
        assert!(check(Tool::FioRados, &verify).is_err() && check(Tool::Carmine, &verify).is_ok());
        let sized = LoadSpec { io_bytes: Some(1 << 20), ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &sized).unwrap_err().to_string().contains("--age"));
        assert!(check(Tool::FioRados, &sized).is_ok() && check(Tool::FioRbd, &sized).is_ok());
        let dealt = LoadSpec { numjobs: 4, volumes: 2, ..LoadSpec::default() };
        assert!(check(Tool::FioRbd, &dealt).is_ok() && check(Tool::FioRados, &dealt).is_err());
        let dealt = LoadSpec { numjobs: 4, processes: 2, ..LoadSpec::default() };
        assert!(check(Tool::FioRados, &dealt).is_ok());
        for tool in [Tool::Carmine, Tool::RadosBench] {
            assert!(check(tool, &dealt).unwrap_err().to_string().contains("--processes 2"));
        }
        let zipf = LoadSpec { random_distribution: Distribution::Zipf(1.2), ..random.clone() };
        assert!(check(Tool::RadosBench, &zipf).unwrap_err().contains("--random-distribution zipf:1.2"));
        assert!(check(Tool::FioRados, &zipf).unwrap()[0].contains("objects evenly"));
        assert_eq!(check(Tool::FioRbd, &zipf), Ok(Vec::new()));
        let split = LoadSpec { bssplit: "4k/60:64k/40".parse().ok(), ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &split).unwrap_err().contains("--bssplit 4k/60:64k/40"));
        assert!(check(Tool::FioRados, &split).is_ok());
        let write = LoadSpec { rw: Rw::RandWrite, ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &write).unwrap().iter().any(|mark| mark.contains("fresh objects")));
    }

    fn one(ops: u64, mean_ns: f64) -> HostedFigures {
        let latency = Latency { min_ns: mean_ns / 2.0, max_ns: mean_ns * 3.0, mean_ns, stddev_ns: 10.0 };
        HostedFigures {
            version: "v".into(),
            seconds: 2.0,
            result: JobResult { read: DirStats::counted(ops, ops * 4096), ..JobResult::default() },
            jobs: None,
            latency: Some(latency),
        }
    }

    #[test]
    fn processes_are_merged_by_their_operations() {
        let all = HostedFigures::merged(&[one(100, 1000.0), one(300, 2000.0)]);
        let latency = all.latency.unwrap();
        assert_eq!((all.result.ops(), all.result.read.bytes, all.seconds), (400, 400 * 4096, 2.0));
        assert_eq!((latency.mean_ns, latency.min_ns, latency.max_ns), (1750.0, 500.0, 6000.0));
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let jobs = one(100, 1000.0).jobs(&LoadSpec::default(), &GeneratorWindow::default());
        let read = &jobs[0]["read"];
        assert_eq!((&read["clat_ns"]["mean"], &read["iops"]), (&json!(1000.0), &json!(50.0)));
        assert!(read["clat_ns"].get("percentile").is_none());
        assert_eq!(jobs[0]["write"]["total_ios"], 0);
    }
}
