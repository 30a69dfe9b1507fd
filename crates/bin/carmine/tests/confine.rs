//! OSDs whose CPU is limited, with the real binary. A machine on which nobody can make control groups
//! skips what needs them, and says so.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

mod bed;

use std::fs;
use std::path::{Path, PathBuf};

use bed::{Bed, kill, text};
use serde_json::Value;

const UP: &[&str] = &["up", "--osds", "2", "--store", "cyan", "--pgs", "16", "--overprovisioned"];

/// Folder of the testbed's control groups, if it has any.
fn group(bed: &Bed) -> Option<PathBuf> {
    let record: Value = serde_json::from_slice(&fs::read(bed.dir().join("run/confine.json")).ok()?).unwrap();
    Some(record["dir"].as_str().unwrap().into())
}

fn processes_of(group: &Path) -> Vec<i64> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Starts a testbed with a quota; `None` where no control group can be made, which must be a clear error then.
fn up_with_quota(bed: &Bed, cpus: &str) -> Option<PathBuf> {
    let out = bed.run(&[UP, &["--confine", "quota", "--confine-cpus", cpus]].concat());
    let said = text(&out.stderr);
    if out.status.code() == Some(2) && said.contains("no control group") {
        assert!(said.contains("--confine cpuset") && bed.processes().is_empty());
        carmine_testkit::skip(said);
        return None;
    }
    assert!(out.status.success() && said.contains("confined: quota"), "{said}");
    Some(group(bed).unwrap())
}

carmine_testkit::measures!(a_quota_bites, a_neighbour_uses_its_cpu);

fn a_quota_bites() {
    let bed = Bed::new();
    if up_with_quota(&bed, "0.04").is_none() {
        return;
    }
    let load = ["--rw", "randwrite", "--iodepth", "32", "--size", "64m", "--runtime", "1"];
    let throttled_seconds = bench(&bed, &load)["throttled_seconds"].as_f64().unwrap();
    assert!(throttled_seconds > 0.0, "two OSDs with 4 ms in 100 under load: {throttled_seconds}");
}

/// Carmine's own part of the result of a load.
fn bench(bed: &Bed, load: &[&str]) -> Value {
    let result = bed.root.path().join("result.json");
    bed.ok(&[&["bench"], load, &["--json", result.to_str().unwrap()]].concat());
    let mut result: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    result["carmine"].take()
}

#[test]
fn a_quota_leaves_nothing() {
    let bed = Bed::new();
    let Some(dir) = up_with_quota(&bed, "0.04") else { return };
    for osd in 0..2 {
        let name = format!("osd.{osd}");
        assert_eq!(processes_of(&dir.join(&name)), [bed.pid(&name)]);
    }
    let load = ["--rw", "randwrite", "--iodepth", "32", "--size", "64m", "--runtime", "1"];
    assert!(bench(&bed, &load)["throttled_seconds"].is_f64(), "a figure under a quota");
    bed.ok(&["down"]);
    assert!(!dir.exists() && group(&bed).is_none());
    // The same again, then without: "no limit" is a point of a series.
    bed.ok(&["up"]);
    assert!(dir.exists());
    bed.ok(&["down"]);
    bed.ok(&["up", "--confine-cpus", "none"]);
    assert!(!dir.exists() && bed.status()["plan"]["confine_cpus"] == "none");
}

#[test]
fn groups_of_a_crash_are_removed() {
    let bed = Bed::new();
    let Some(dir) = up_with_quota(&bed, "0.5") else { return };
    for daemon in ["mon", "osd.0", "osd.1"] {
        kill("-9", bed.pid(daemon));
    }
    bed.wait_for("the end", || bed.processes().is_empty());
    assert!(dir.exists());
    bed.ok(&["destroy"]);
    assert!(!dir.exists());
}

#[test]
fn groups_of_a_failed_start_are_removed() {
    let bed = Bed::new();
    if up_with_quota(&bed, "0.5").is_none() {
        return;
    }
    bed.ok(&["down"]);
    bed.fails(&["up", "--osd-wrap", "sh -c 'exit 3'"], 1, "its wrapper");
    assert!(group(&bed).is_none());
}

/// CPUs that each thread of a process may use.
fn affinity(pid: i64) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    let list =
        |s: String| s.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:").map(|l| l.trim().to_owned()));
    status.filter_map(list).collect()
}

#[test]
fn a_cpuset_holds_every_thread() {
    let bed = Bed::new();
    let out = bed.run(&[UP, &["--confine", "cpuset", "--confine-cpus", "1", "--cpus", "0"]].concat());
    let said = text(&out.stderr);
    assert!(out.status.success() && said.contains("confined: cpuset, 1 CPU per OSD ("), "{said}");
    assert!(text(&out.stdout).contains("confine   cpuset, 1 CPU per OSD"), "{}", text(&out.stdout));
    assert_eq!(said.contains("(cgroup v"), group(&bed).is_some(), "it says which was used: {said}");
    for osd in ["osd.0", "osd.1"] {
        let lists = affinity(bed.pid(osd));
        assert!(lists.len() > 1 && lists.iter().all(|list| list == "0"), "{lists:?}");
    }
    let dir = group(&bed);
    bed.ok(&["down"]);
    assert!(dir.is_none_or(|dir| !dir.exists()));
}

#[test]
fn reactors_that_are_not_pinned_may_run_on_the_whole_slice() {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return carmine_testkit::skip("this needs two CPUs");
    }
    let bed = Bed::new();
    let slices =
        ["--balance", "none", "--reactors", "2", "--cpus", "0-1", "--client-cpus", "0", "--system-cpus", "1"];
    bed.ok(&[UP, &slices].concat());
    let all = |daemon: &str, cpus: &str| {
        let lists = affinity(bed.pid(daemon));
        assert!(lists.len() > 2 && lists.iter().all(|list| list == cpus), "{daemon}: {lists:?}");
    };
    all("osd.0", "0-1");
    all("osd.1", "0-1");
    assert!(affinity(bed.pid("mon")).iter().all(|list| list == "1"));
    assert_eq!(bed.status()["plan"]["grid"]["osds"][0]["floating"]["cpus"], "0-1");
    bed.ok(&["down"]);
    // A smaller slice, and the system beside the clients again.
    bed.ok(&["up", "--cpus", "1"]);
    all("osd.0", "1");
    bed.ok(&["down"]);
    // Pinned again, each reactor has one CPU.
    bed.ok(&["up", "--balance", "default", "--cpus", "0-1"]);
    let lists = affinity(bed.pid("osd.0"));
    assert!(lists.contains(&"0".to_owned()) && lists.contains(&"1".to_owned()), "{lists:?}");
}

#[test]
fn a_neighbour_runs_while_a_point_is_measured() {
    beside_a_neighbour();
}

fn a_neighbour_uses_its_cpu() {
    if let Some(neighbour) = beside_a_neighbour() {
        assert!(neighbour["cpu_seconds"].as_f64().unwrap() > 0.3, "{neighbour}");
    }
}

/// The account of a neighbour after a load of a second.
fn beside_a_neighbour() -> Option<Value> {
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        carmine_testkit::skip("this needs two CPUs");
        return None;
    }
    let bed = Bed::new();
    bed.ok(&[UP, &["--cpus", "0", "--client-cpus", "0", "--neighbour-cpus", "1"]].concat());
    let load = ["--rw", "randread", "--iodepth", "4", "--size", "16m", "--runtime", "1"];
    let neighbour = bench(&bed, &load)["neighbour"].take();
    assert_eq!(neighbour["cpus"], "1");
    assert!(!Path::new(&format!("/proc/{}", neighbour["pid"])).exists(), "it ends with the load");
    Some(neighbour)
}
