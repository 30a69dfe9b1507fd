//! The tools that Ceph's users measure with, started by `carmine bench` and `carmine sweep`, against Carmine's own OSDs.
//! About 45 s.
#![allow(clippy::disallowed_methods)] // reads files, clocks and /proc, and waits

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carmine_tests::{Background, Testbed, carmine_bin, installed, run, skip, succeed};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(300);
const HOSTED: [&str; 3] = ["fio-rados", "fio-rbd", "rados-bench"];

fn can_run() -> bool {
    let tools = [("fio", "fio"), ("rados", "ceph-common"), ("rbd", "ceph-common")];
    tools.into_iter().all(|(program, package)| installed(program, package))
}

/// One OSD on CPU 0, and CPU 1 for clients.
fn testbed() -> Testbed {
    let store = ["--osds", "1", "--size", "1", "--reactors", "1", "--store", "cyan"];
    Testbed::up(&[&store[..], &["--cpus", "0", "--client-cpus", "1"]].concat())
}

/// The words of a load of three seconds on 32 MiB: a tool beside another test may be looked at late.
fn load<'a>(client: &'a str, rw: &'a str) -> Vec<&'a str> {
    let common = ["--bs", "4k", "--iodepth", "8", "--size", "32m", "--runtime", "3", "--ramp", "0"];
    [&["--client", client, "--rw", rw], &common[..]].concat()
}

fn bench(bed: &Testbed, words: &[&str]) -> Value {
    let json = bed.file("result.json");
    bed.ok("bench", &[words, &["--json", &json]].concat());
    read(Path::new(&json))
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// Whatever a command does, the OSDs' own counters tell its cost.
#[test]
fn any_command_is_measured() {
    if !can_run() {
        return;
    }
    let bed = testbed();
    let measure = |command: &[&str]| {
        let json = bed.file("measured.json");
        let out = bed.run("measure", &[&["--json", &json, "--"], command].concat());
        (out.status.code(), json)
    };
    let words = ["-p", "bench", "bench", "1", "write", "-b", "4096", "-t", "4", "--no-cleanup"];
    let (code, json) = measure(&[&["rados"], &words[..]].concat());
    let measured = read(Path::new(&json));
    assert_eq!((code, measured["exit_code"].as_i64()), (Some(0), Some(0)), "{measured}");
    assert!(measured["ops"].as_u64().is_some_and(|ops| ops > 100), "{measured}");
    assert!(measured["osd_cpu_us_per_op"].as_f64().is_some_and(|us| us > 1.0), "{measured}");
    assert!(measured["osds"][0]["cpu_seconds"]["busy"].as_f64().is_some_and(|s| s > 0.0), "{measured}");
    assert_eq!(measure(&["sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(measure(&["carmine-no-such-program"]).0, Some(127));
}

/// Names of an object's fields.
fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// Checks the fields that the results of all clients have, the OSDs' own counters among them.
fn check(result: &Value, own: &Value, client: &str, way: &str) {
    let (carmine, job) = (&result["carmine"], &result["jobs"][0][way]);
    for (own, found) in [(&own["carmine"], carmine), (&own["jobs"][0][way], job)] {
        let (own, found) = (names(own), names(found));
        assert!(own.is_subset(&found), "{client}: no {:?}", own.difference(&found));
    }
    assert!(job["total_ios"].as_u64().is_some_and(|ios| ios > 100), "{client}: {job}");
    assert!(carmine["iops"].as_f64().is_some_and(|iops| iops > 0.0), "{client}: {carmine}");
    assert!(carmine["client_cores_used"].as_f64().is_some_and(|cores| cores > 0.0), "{client}");
    let counters = &carmine["metrics"][0]["difference"]["shards"][0]["osd"]["ops"];
    assert!(counters.as_u64().is_some_and(|ops| ops > 100), "{client}: {}", carmine["metrics"]);
}

#[test]
fn every_client_loads_our_osds_from_the_same_words() {
    if !can_run() {
        return;
    }
    let bed = testbed();
    let conf = std::fs::read_to_string(bed.conf()).expect("ceph.conf");
    assert!(conf.contains("[client]\nrbd cache = false\n"), "{conf}");
    for (rw, way) in [("randwrite", "write"), ("randread", "read")] {
        let own = bench(&bed, &load("carmine", rw));
        for client in HOSTED {
            check(&bench(&bed, &load(client, rw)), &own, client, way);
        }
    }
}

/// Parts of fio's result that ours leaves out, since they are not known (docs/measuring.md).
const LEFT_OUT: [&str; 9] = [
    "/majf",
    "/minf",
    "/iodepth_level",
    "/iodepth_submit",
    "/iodepth_complete",
    "/latency_depth",
    "/latency_target",
    "/latency_percentile",
    "/latency_window",
];

/// Every key of an object and of those in it, with the type of its value. Options are the user's words.
fn keys(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(object) => {
            let inner = object.iter().filter(|(name, _)| !name.ends_with("options"));
            return inner.for_each(|(name, value)| keys(value, &format!("{path}/{name}"), all));
        }
        Value::Array(list) => return list.iter().for_each(|value| keys(value, path, all)),
        Value::Number(number) if number.is_f64() => "real number",
        Value::Number(_) => "whole number",
        Value::String(_) => "text",
        _ => "other",
    };
    all.insert(format!("{path}: {kind}"));
}

/// `bench --json` has each key of the installed fio's JSON, with a value of the same type.
#[test]
fn a_result_has_fios_keys() {
    if !installed("fio", "fio") {
        return;
    }
    let bed = testbed();
    let ours =
        bench(&bed, &["--rw", "randrw", "--iodepth", "8", "--size", "32m", "--runtime", "2", "--ramp", "0"]);
    let file = bed.file("fio.json");
    let load = ["--name=t", "--ioengine=null", "--size=1g", "--rw=randrw", "--runtime=2", "--time_based"];
    let output =
        [format!("--output={file}"), "--output-format=json".to_owned(), "--rate_iops=5000".to_owned()];
    let words: Vec<&str> = load.into_iter().chain(output.iter().map(String::as_str)).collect();
    succeed(run(Path::new("fio"), &words, LIMIT), "fio");
    let of = |value: &Value| {
        let mut all = BTreeSet::new();
        keys(value, "", &mut all);
        all
    };
    let left_out = |key: &&String| LEFT_OUT.iter().any(|part| key.starts_with(&format!("/jobs{part}")));
    let (ours, theirs) = (of(&ours), of(&read(Path::new(&file))));
    let missing: Vec<&String> = theirs.difference(&ours).filter(|key| !left_out(key)).collect();
    assert!(missing.is_empty() && theirs.len() > 100, "{missing:#?} of {theirs:#?}");
}

carmine_testkit::measures!(loads_of_hosted_clients_have_flamegraphs_where_perf_works);

/// Where `perf` does not work the results say why.
fn loads_of_hosted_clients_have_flamegraphs_where_perf_works() {
    if !can_run() {
        return;
    }
    let bed = testbed();
    for client in ["fio-rbd", "rados-bench"] {
        let result = bench(&bed, &[&load(client, "randread")[..], &["--stages"]].concat());
        let profile = &result["carmine"]["profile"];
        assert_eq!(profile["mode"], "oncpu", "{profile}");
        if let Some(why) = profile["missing"].as_str() {
            skip(why);
            continue;
        }
        assert!(profile["stacks"].as_u64().is_some_and(|stacks| stacks > 0), "{profile}");
        let stages = &result["carmine"]["stages"];
        let ns = |of: &serde_json::Value| of["cpu_ns"].as_f64();
        let attributed: f64 = stages["stages"].as_array().expect("stages").iter().filter_map(ns).sum();
        let unattributed = stages["unattributed_ns"].as_f64().expect("a profile");
        assert!(attributed > 0.0 && unattributed < 0.05 * (attributed + unattributed), "{client}: {stages}");
        let svg = std::fs::read_to_string(bed.file("result.oncpu.svg")).expect("a flamegraph");
        assert!(svg.contains("<svg") && svg.contains("carmine_reactor::"), "{client}: {svg:.500}");
    }
}

/// Processes of fio and rados that a process has started and that make a load; others look at objects before that.
fn loading(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>());
    let loads = |pid: &u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = line.split('\0').next().unwrap_or_default();
        (program.ends_with("/fio") && line.contains("--rw="))
            || (program.ends_with("/rados") && line.contains("--run-name"))
    };
    children.filter(loads).collect()
}

/// CPUs on which each thread of these processes may run.
fn cpus_of(pids: &[u32]) -> BTreeSet<String> {
    let tasks =
        pids.iter().flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten());
    let status = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let lists = status.filter_map(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    });
    lists.collect()
}

#[test]
fn hosted_clients_have_the_client_cpus() {
    if !can_run() {
        return;
    }
    let bed = testbed();
    for client in HOSTED {
        let bench = Background::start(&bed, "bench", &load(client, "randwrite"));
        let begin = Instant::now();
        let mut seen = BTreeSet::new();
        while bench.runs() && seen.is_empty() {
            assert!(begin.elapsed() < LIMIT, "{client} does not start");
            seen = cpus_of(&loading(bench.pid()));
        }
        assert_eq!(seen, BTreeSet::from(["1".to_owned()]), "CPUs of {client}");
        assert!(bench.wait(LIMIT).status.success());
    }
}

/// Results of a sweep's points.
fn results(run: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(run.join("points")).expect("points").flatten().map(|entry| entry.path());
    let is_result = |path: &PathBuf| {
        let name = path.display().to_string();
        name.ends_with(".json") && !name.ends_with(".state.json") && !name.ends_with(".samples.json")
    };
    files.filter(is_result).map(|path| read(&path)).collect()
}

/// The words of a command line after `fio`, without where its result went.
fn fio_words(line: &str) -> Vec<&str> {
    let words = line.split(' ').skip_while(|word| !word.ends_with("fio")).skip(1);
    words.filter(|word| !word.starts_with("--output=")).collect()
}

/// Checks that the commands of each point in `commands.sh` are those that were run, ramp and seed included.
fn check_script(run: &Path, results: &[Value]) {
    let script = std::fs::read_to_string(run.join("commands.sh")).expect("commands.sh");
    let by_hand: BTreeSet<Vec<&str>> =
        script.lines().filter(|line| line.contains(".fio0.json")).map(fio_words).collect();
    assert_eq!(by_hand.len(), 4, "one for each point: {script}");
    for result in results {
        let words = result["carmine"]["client"]["command"].as_array().expect("words");
        let ran = words.iter().map(|word| word.as_str().expect("a word")).collect::<Vec<_>>().join(" ");
        assert!(ran.contains("--ramp_time=100ms") && by_hand.contains(&fio_words(&ran)), "{ran}\n{script}");
    }
}

#[test]
fn a_sweep_has_clients_processes_and_volumes_as_axes() {
    if !can_run() {
        return;
    }
    let bed = Testbed::new();
    let (plan, out) = (bed.file("plan.toml"), bed.file("run"));
    let axes = "client = \"fio-rbd\"\nprocesses = [1, 2]\nvolumes = [1, 2]\njobs = 2\nworkload = \"randwrite4k\"\n\
                osd_size_bytes = \"256M\"\nsize_bytes = \"16M\"\npgs = 8\nstore = \"cyan\"\n";
    let text = format!("name = \"volumes\"\nruntime = \"2s\"\nramp = \"100ms\"\n[axes]\n{axes}");
    std::fs::write(&plan, text).expect("a plan");
    let words = ["sweep", &plan, "--overprovisioned", "--out", &out];
    succeed(run(&carmine_bin(), &words, LIMIT), "carmine sweep");
    let out = Path::new(&out);
    let results = results(out);
    // Four points, and the first one again.
    assert_eq!(results.len(), 5);
    for result in &results {
        assert_eq!(result["carmine"]["client"]["tool"], "fio-rbd");
        assert!(result["jobs"][0]["write"]["total_ios"].as_u64().is_some_and(|ios| ios > 10), "{result}");
    }
    check_script(out, &results);
    succeed(run(&carmine_bin(), &["report", out.to_str().expect("UTF-8")], LIMIT), "carmine report");
    let page = std::fs::read_to_string(out.join("report.md")).expect("report.md");
    for wanted in ["fio-rbd", "processes", "volumes"] {
        assert!(page.contains(wanted), "the report has no {wanted}:\n{page}");
    }
}
