//! Loads of all kinds on a testbed: job files of fio as people have them, and popular blocks and operations of several lengths in
//! our own generator. About 30 s.
#![allow(clippy::disallowed_methods)] // reads and writes files

use std::path::Path;

use carmine_tests::{Testbed, installed};
use serde_json::Value;

/// As for a local drive: nothing in it knows of a testbed.
const JOBS: &str = "\
; a database
[global]
ioengine=libaio
direct=1
filename=/dev/nvme0n1
bssplit=4k/60:64k/40
random_distribution=zipf:1.2
size=24m
runtime=3
time_based
group_reporting
log_avg_msec=1000

[queries]
rw=randread
iodepth=8
rate_iops=1400
numjobs=2   # two of them

[log]
rw=randwrite
rate_iops=700
write_lat_log=${LOG}
";

fn testbed() -> Testbed {
    let store = ["--osds", "1", "--size", "1", "--reactors", "1", "--store", "cyan", "--pgs", "8"];
    Testbed::up(&[&store[..], &["--cpus", "0", "--client-cpus", "1"]].concat())
}

fn bench(bed: &Testbed, words: &[&str]) -> Value {
    let json = bed.file("result.json");
    bed.ok("bench", &[words, &["--json", &json]].concat());
    let text = std::fs::read(Path::new(&json)).expect("a result");
    serde_json::from_slice(&text).expect("JSON")
}

fn file(bed: &Testbed, text: &str) -> String {
    let path = bed.file("jobs.fio");
    std::fs::write(&path, text).expect("a job file");
    path
}

/// Number of operations of a direction, by the load's own count.
fn ios(job: &Value, way: &str) -> u64 {
    job[way]["total_ios"].as_u64().unwrap_or_default()
}

/// Mean bytes of an operation.
fn mean_bytes(job: &Value, way: &str) -> f64 {
    job[way]["io_bytes"].as_f64().unwrap_or_default() / ios(job, way).max(1) as f64
}

/// The figures that every load has.
fn check(result: &Value) {
    let carmine = &result["carmine"];
    for figure in ["iops", "osd_cpu_us_per_op", "client_cores_used"] {
        assert!(carmine[figure].as_f64().is_some_and(|n| n > 0.0), "{figure}: {carmine}");
    }
    assert!(carmine["verdict"].is_string() && carmine["marks"].is_array(), "{carmine}");
    let answered = &carmine["metrics"][0]["difference"]["shards"][0]["osd"]["ops"];
    let (answered, counted) =
        (answered.as_u64().unwrap_or(0), ios(&result["jobs"][0], "read") + ios(&result["jobs"][0], "write"));
    // The readings are a moment apart from fio's window, and more on a busy machine.
    let apart = answered as f64 / counted as f64;
    assert!(counted > 100 && (0.5..2.0).contains(&apart), "{answered} answered, {counted} counted");
}

fn check_unmodified(bed: &Testbed, client: &str) {
    let path = file(bed, &JOBS.replace("${LOG}", &bed.file(client)));
    let result = bench(bed, &["--client", client, "--jobfile", &path]);
    check(&result);
    let (job, about) = (&result["jobs"][0], &result["carmine"]["client"]);
    let mean = mean_bytes(job, "read");
    // 60 % of 4 KiB and 40 % of 64 KiB.
    assert!((mean / 28672.0 - 1.0).abs() < 0.1, "{client}: {mean}");
    let (reads, writes) = (ios(job, "read"), ios(job, "write"));
    // fio counts in the shortest length: 28 KiB in the mean are seven of it. A busy machine makes fewer.
    assert!((120..=1300).contains(&reads), "{client}: two jobs with 200 a second for 3 s, not {reads}");
    assert!((30..=320).contains(&writes), "{client}: 100 a second for 3 s, not {writes}");
    let logs = std::fs::read_dir(Path::new(&path).parent().expect("a folder")).expect("a folder").flatten();
    let names: Vec<String> = logs.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with(&format!("{client}_lat."))), "no log in {names:?}");
    let given = about["jobfile"]["given"].as_str().expect("text");
    assert!(given.contains("random_distribution=zipf:1.2") && !given.contains("libaio"), "{given}");
    let notes = about["jobfile"]["overridden"].to_string();
    for key in ["[global] ioengine=libaio", "[global] direct=1", "[global] filename=/dev/nvme0n1"] {
        assert!(notes.contains(key), "{client}: no {key} in {notes}");
    }
    assert!(result["carmine"]["load"]["jobfile"].as_str().is_some_and(|id| id.starts_with("jobs.fio ")));
}

#[test]
fn an_unmodified_job_file_runs_and_is_measured() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = testbed();
    check_unmodified(&bed, "fio-rbd");
    check_unmodified(&bed, "fio-rados");
}

#[test]
fn jobs_run_one_after_the_other_and_what_cannot_run_is_refused() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = testbed();
    let text = "[global]\nsize=16m\nbs=16k\n[fill]\nrw=write\n[look]\nstonewall\nrw=randread\nruntime=2\ntime_based\niodepth=4\n";
    let path = file(&bed, text);
    let result = bench(&bed, &["--client", "fio-rbd", "--jobfile", &path]);
    check(&result);
    let jobs = result["carmine"]["client"]["jobs"].as_array().expect("fio's own");
    assert_eq!(jobs.len(), 2);
    assert_eq!((ios(&jobs[0], "write"), ios(&jobs[1], "write")), (1024, 0));
    assert_eq!(
        (ios(&result["jobs"][0], "write"), ios(&result["jobs"][0], "read")),
        (1024, ios(&jobs[1], "read"))
    );
    assert!(
        result["carmine"]["marks"].to_string().contains("2 groups of jobs"),
        "{}",
        result["carmine"]["marks"]
    );
    let result = bench(&bed, &["--client", "fio-rbd", "--jobfile", &path, "--section", "look"]);
    assert!(ios(&result["jobs"][0], "read") > 100 && ios(&result["jobs"][0], "write") == 0);
    for (text, client, part) in [
        ("[a]\nrw=randtrim\n", "fio-rbd", "[a] rw=randtrim"),
        ("[a]\nrw=read\nno_such_key=1\n", "fio-rbd", "no_such_key"),
        ("[a]\nrw=read\noffset=1m\n", "fio-rados", "[a] offset=1m"),
        ("[a]\nrw=read\n", "carmine", "--client fio-rbd or fio-rados"),
    ] {
        let path = file(&bed, text);
        let out = bed.run("bench", &["--client", client, "--jobfile", &path]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(part), "{text}: {said}");
    }
}

#[test]
fn popular_blocks_and_several_lengths_are_verified() {
    let bed = testbed();
    let load =
        ["--rw", "randrw", "--random_distribution", "zipf:0.9", "--bssplit", "4k/60:64k/40", "--size", "32m"];
    let result = bench(&bed, &[&load[..], &["--iodepth", "8", "--runtime", "2", "--verify"]].concat());
    check(&result);
    let (carmine, job) = (&result["carmine"], &result["jobs"][0]);
    assert!((mean_bytes(job, "read") / 28672.0 - 1.0).abs() < 0.1, "{job}");
    assert_eq!(
        (&carmine["load"]["random_distribution"], &carmine["load"]["bssplit"]),
        (&"zipf:0.9".into(), &"4k/60:64k/40".into())
    );
    assert_eq!(
        (&job["job options"]["bssplit"], &job["job options"]["random_distribution"]),
        (&"4k/60:64k/40".into(), &"zipf:0.9".into())
    );
    assert!(carmine["verify"]["checked"].as_u64().is_some_and(|n| n > 100), "{}", carmine["verify"]);
}
