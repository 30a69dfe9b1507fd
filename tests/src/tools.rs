//! The stock tools of ceph-common and fio, run against a testbed.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Background, Testbed, run, succeed};

/// One OSD with two reactors that keeps everything in memory.
pub const ONE_CYAN: &[&str] =
    &["--osds", "1", "--size", "1", "--reactors", "2", "--store", "cyan", "--pgs", "32", "--overprovisioned"];
/// One OSD on a file.
pub const ONE_BLUE: &[&str] = &[
    "--osds",
    "1",
    "--size",
    "1",
    "--store",
    "blue",
    "--osd-size",
    "1G",
    "--sparse",
    "--pgs",
    "32",
    "--overprovisioned",
];
/// Three OSDs with two reactors each in memory, and three copies of everything.
pub const THREE_CYAN: &[&str] =
    &["--osds", "3", "--size", "3", "--reactors", "2", "--store", "cyan", "--overprovisioned"];
/// Four OSDs on sparse files, of a size that is still to be said, and three copies of everything; who is silent is soon found out.
pub const FOUR_BLUE: &[&str] = &[
    "--osds",
    "4",
    "--size",
    "3",
    "--store",
    "blue",
    "--sparse",
    "--overprovisioned",
    "--pgs",
    "32",
    "--osd-heartbeat-grace",
    "4",
    "--osd-heartbeat-interval",
    "1",
];
/// Three OSDs with two reactors each, on files, and three copies of everything.
pub const THREE_BLUE: &[&str] = &[
    "--osds",
    "3",
    "--size",
    "3",
    "--reactors",
    "2",
    "--store",
    "blue",
    "--osd-size",
    "1G",
    "--sparse",
    "--pgs",
    "32",
    "--overprovisioned",
];

/// Every command has to end within this, also those that are refused: a tool by itself would wait for ever.
const LIMIT: Duration = Duration::from_secs(300);
/// "At once", on a machine that does other things too: the tools need up to two seconds to start.
const AT_ONCE: Duration = Duration::from_secs(60);

impl Testbed {
    /// Path of the `ceph.conf` that the tools are given.
    pub fn conf(&self) -> String {
        self.dir().join("ceph.conf").to_str().expect("UTF-8").to_owned()
    }

    /// A file of the test's own, which goes with the testbed.
    pub fn file(&self, name: &str) -> String {
        let folder = self.dir().parent().expect("a parent").to_path_buf();
        folder.join(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn tool(&self, program: &str, args: &[&str]) -> Output {
        let conf = self.conf();
        let all: Vec<&str> = ["-c", &conf].into_iter().chain(args.iter().copied()).collect();
        run(Path::new(program), &all, LIMIT)
    }

    /// Runs `ceph`.
    pub fn ceph(&self, args: &[&str]) -> Output {
        self.tool("ceph", args)
    }

    /// The same, which must succeed.
    pub fn ceph_ok(&self, args: &[&str]) -> String {
        succeed(self.ceph(args), &format!("ceph {args:?}"))
    }

    /// Runs `rados` on the pool `bench`.
    pub fn rados(&self, args: &[&str]) -> Output {
        self.tool("rados", &[&["-p", "bench"], args].concat())
    }

    /// The same, which must succeed.
    pub fn rados_ok(&self, args: &[&str]) -> String {
        succeed(self.rados(args), &format!("rados {args:?}"))
    }

    /// Runs `rbd` on the pool `bench`.
    pub fn rbd(&self, args: &[&str]) -> Output {
        // Options of the cluster or of a named pool take no `-p`.
        let pool: &[&str] =
            if matches!(args, ["config", "global" | "pool", ..]) { &[] } else { &["-p", "bench"] };
        self.tool("rbd", &[pool, args].concat())
    }

    /// The same, which must succeed.
    pub fn rbd_ok(&self, args: &[&str]) -> String {
        succeed(self.rbd(args), &format!("rbd {args:?}"))
    }

    /// Runs fio, which takes the cluster's address from the environment; what it did, from its JSON.
    pub fn fio(&self, args: &[&str]) -> FioRun {
        let words = self.fio_words(args);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        FioRun::from_output(run(Path::new("env"), &words, LIMIT), args)
    }

    fn fio_words(&self, args: &[&str]) -> Vec<String> {
        let conf = format!("CEPH_CONF={}", self.conf());
        // Jobs as threads end with the process that is killed. fio would leave a file about each verified job where the test runs.
        let fixed = [conf.as_str(), "fio", "--output-format=json", "--thread", "--verify_state_save=0"];
        fixed.iter().chain(args).map(ToString::to_string).collect()
    }
}

impl Background {
    /// Starts `rados` on the pool `bench`.
    pub fn rados(bed: &Testbed, args: &[&str]) -> Background {
        let conf = bed.conf();
        let all: Vec<&str> = ["-c", &conf, "-p", "bench"].into_iter().chain(args.iter().copied()).collect();
        Background::spawn(bed, Path::new("rados"), &all)
    }

    /// Starts fio as [`Testbed::fio`] does.
    pub fn fio(bed: &Testbed, args: &[&str]) -> Background {
        let words = bed.fio_words(args);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Background::spawn(bed, Path::new("env"), &words)
    }
}

/// The result of a run of fio.
#[derive(Debug)]
pub struct FioRun {
    /// It ended well, and no job saw an error.
    pub is_good: bool,
    /// All that it printed.
    pub said: String,
    jobs: Vec<Value>,
}

impl FioRun {
    /// From the output of fio with `--output-format=json`.
    pub fn from_output(output: Output, args: &[&str]) -> FioRun {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = format!("fio {args:?}: {}\n{out}\n{err}", output.status);
        // Warnings may stand before the object.
        let json = out
            .find('{')
            .and_then(|at| serde_json::Deserializer::from_str(&out[at..]).into_iter::<Value>().next()?.ok());
        let jobs = json.and_then(|json| json["jobs"].as_array().cloned()).unwrap_or_default();
        let is_good = output.status.success() && !jobs.is_empty() && jobs.iter().all(|job| job["error"] == 0);
        FioRun { is_good, said, jobs }
    }

    /// Requests that a job of this name did: reads, writes, trims.
    pub fn ios(&self, job: &str) -> [u64; 3] {
        let found = self.jobs.iter().find(|found| found["jobname"] == job);
        let found = found.unwrap_or_else(|| panic!("no job {job}: {}", self.said));
        ["read", "write", "trim"].map(|way| found[way]["total_ios"].as_u64().expect("total_ios"))
    }
}

/// Runs a command that must be refused at once; returns its error output.
pub fn refused(what: &str, work: impl FnOnce() -> Output) -> String {
    let begin = Instant::now();
    let output = work();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{what} was done: {}", String::from_utf8_lossy(&output.stdout));
    assert!(begin.elapsed() < AT_ONCE, "{what}: a refusal took {:?}", begin.elapsed());
    said
}
