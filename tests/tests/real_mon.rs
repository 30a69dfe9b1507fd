//! Carmine's OSDs under a real `ceph-mon` and `ceph-mgr` of Debian's 16.2.15 (`carmine up --mon ceph`). A real monitor makes a map a second,
//! so that each test takes about half a minute, and two minutes all.
#![allow(clippy::disallowed_methods)] // writes files and waits

use std::path::Path;
use std::time::Duration;

use carmine_tests::{Testbed, installed, kill_nine, run, signal, succeed};
use serde_json::Value;

/// A busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(120);

const THREE: &[&str] = &[
    "--mon",
    "ceph",
    "--osds",
    "3",
    "--size",
    "3",
    "--pgs",
    "16",
    "--osd-size",
    "1G",
    "--sparse",
    "--overprovisioned",
];

fn can_run() -> bool {
    let programs = [
        ("ceph-mon", "ceph-mon"),
        ("ceph-mgr", "ceph-mgr"),
        ("monmaptool", "ceph-base"),
        ("ceph", "ceph-common"),
    ];
    programs.iter().all(|(program, package)| installed(program, package))
}

/// A stock tool with the testbed's configuration; its output.
fn tool(bed: &Testbed, program: &str, words: &[&str]) -> String {
    let conf = bed.dir().join("ceph.conf");
    let args = [&["-c", conf.to_str().expect("UTF-8")], words].concat();
    succeed(run(Path::new(program), &args, LIMIT), &format!("{program} {words:?}"))
}

fn ceph(bed: &Testbed, words: &str) -> Value {
    let words: Vec<&str> = words.split_whitespace().chain(["--format", "json"]).collect();
    let text = tool(bed, "ceph", &words);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("ceph {words:?}: {e}: {text}"))
}

fn put(bed: &Testbed, name: &str, bytes: &[u8]) {
    let file = bed.dir().with_file_name("input");
    std::fs::write(&file, bytes).expect("written");
    tool(bed, "rados", &["-p", "bench", "put", name, file.to_str().expect("UTF-8")]);
}

fn assert_has(bed: &Testbed, name: &str, bytes: &[u8]) {
    let file = bed.dir().with_file_name("output");
    tool(bed, "rados", &["-p", "bench", "get", name, file.to_str().expect("UTF-8")]);
    assert!(std::fs::read(&file).expect("read") == bytes, "{name} has other bytes");
}

/// Whether an OSD is up in the monitor's map.
fn is_up(bed: &Testbed, osd: u64) -> bool {
    let dump = ceph(bed, "osd dump");
    let osds = dump["osds"].as_array().expect("OSDs");
    osds.iter().any(|row| row["osd"] == osd && row["up"] == 1)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn clients_write_through_a_kill_and_restarts() {
    if !can_run() {
        return;
    }
    let bed = Testbed::up(THREE);
    let (before, meanwhile) = (vec![0x5a; 3 << 20], vec![0xa5; 1 << 20]);
    put(&bed, "before", &before);
    let tree = ceph(&bed, "osd tree");
    let nodes = tree["nodes"].as_array().expect("nodes");
    let osds = nodes.iter().filter(|node| node["type"] == "osd");
    assert!(osds.clone().all(|node| node["device_class"] == "carmine"), "{tree:#}");
    assert_eq!(osds.count(), 3, "{tree:#}");
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("a record")]), 1);
    wait_until("osd.1 is down", || !is_up(&bed, 1));
    put(&bed, "meanwhile", &meanwhile);
    // Starts what is dead, and waits until all PGs are active and clean.
    bed.ok("up", &[]);
    assert!(is_up(&bed, 1));
    bed.ok("down", &[]);
    bed.ok("up", &[]);
    assert_has(&bed, "before", &before);
    assert_has(&bed, "meanwhile", &meanwhile);
    bed.ok("destroy", &[]);
    assert!(!bed.dir().exists(), "all files are gone");
}

/// PGs that the manager shows as active and clean, and all.
fn pgs(bed: &Testbed) -> (u64, u64) {
    let status = ceph(bed, "status");
    let states = status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
    let clean = states.iter().filter(|state| state["state_name"] == "active+clean");
    let clean = clean.filter_map(|state| state["count"].as_u64()).sum();
    (clean, status["pgmap"]["num_pgs"].as_u64().unwrap_or(0))
}

#[test]
fn the_manager_knows_pgs_space_and_health() {
    if !can_run() {
        return;
    }
    let bed = Testbed::up(THREE);
    put(&bed, "object", &vec![0x5a; 3 << 20]);
    wait_until(
        "all PGs are known as active and clean",
        || matches!(pgs(&bed), (clean, all) if clean == all && all >= 16),
    );
    wait_until("the object is counted", || {
        let df = ceph(&bed, "df");
        let pools = df["pools"].as_array().expect("pools");
        let bench = pools.iter().find(|pool| pool["name"] == "bench").expect("the pool");
        let stats = &bench["stats"];
        // Used are all three copies.
        stats["objects"] == 1 && stats["stored"] == 3 << 20 && stats["bytes_used"] == 9 << 20
    });
    let df = ceph(&bed, "osd df");
    let osds = df["nodes"].as_array().expect("OSDs");
    assert!(
        osds.iter().all(|osd| osd["kb"].as_u64() > Some(500 << 10) && osd["kb_used"].as_u64() > Some(0)),
        "{df:#}"
    );
    wait_until("the cluster is healthy", || ceph(&bed, "health")["status"] == "HEALTH_OK");
}

/// Kills, stops and cuts under a real monitor; then a deep scrub, which the manager orders.
#[test]
fn nothing_is_lost_under_faults() {
    if !can_run() {
        return;
    }
    let grace = ["--osd-heartbeat-grace", "4", "--osd-heartbeat-interval", "1"];
    let four = ["--mon", "ceph", "--osds", "4", "--size", "3", "--pgs", "16", "--osd-size", "2G", "--sparse"];
    let bed = Testbed::up(&[&four[..], &["--overprovisioned"], &grace].concat());
    let said = bed.ok("thrash", &["--runtime", "20s"]);
    assert!(said.contains("nothing was lost"), "{said}");
}

#[test]
fn the_monitor_may_die() {
    if !can_run() {
        return;
    }
    let bed = Testbed::up(THREE);
    put(&bed, "before", b"before");
    let mon = bed.pid("mon").expect("a record");
    signal(&[mon], "-KILL");
    wait_until("the monitor is gone", || !Path::new(&format!("/proc/{mon}")).exists());
    bed.ok("up", &[]);
    assert_has(&bed, "before", b"before");
    put(&bed, "after", b"after");
    wait_until("all OSDs are up", || (0..3).all(|osd| is_up(&bed, osd)));
}
