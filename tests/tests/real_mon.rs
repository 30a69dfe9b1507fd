//! Carmine's OSDs under real `ceph-mon` and `ceph-mgr` of Debian's 16.2.15 (`carmine up --mon ceph`). A real monitor makes a map a second,
//! so that each test takes about half a minute, or a minute with three monitors.
#![allow(clippy::disallowed_methods)] // writes files and waits

use std::path::Path;
use std::time::Duration;

use carmine_tests::hosts::can_make_networks;
use carmine_tests::verified::{check_blocks, let_write, load, state_file};
use carmine_tests::{Background, Testbed, has_real_mon, kill_nine, signal, succeed};
use serde_json::Value;

/// A busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(120);

static BEFORE: [u8; 3 << 20] = [0x5a; 3 << 20];

#[test]
fn clients_write_through_kills_and_the_manager_knows() {
    if !has_real_mon(&[]) {
        return;
    }
    let bed = Testbed::up_real("3", &[]);
    bed.put("bench", "before", &BEFORE);
    assert_all_are_carmine(&bed);
    assert_manager_knows(&bed);
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("a record")]), 1);
    bed.wait_until("osd.1 is down", || !bed.is_up(1));
    bed.put("bench", "meanwhile", b"meanwhile");
    kill_daemon(&bed, "mon");
    // Starts what is dead, and waits until all PGs are active and clean.
    bed.ok("up", &[]);
    bed.assert_has("bench", "meanwhile", b"meanwhile");
    bed.put("bench", "after", b"after");
    bed.wait_until("all OSDs are up", || (0..3).all(|osd| bed.is_up(osd)));
    bed.ok("down", &[]);
    bed.ok("up", &[]);
    bed.assert_has("bench", "before", &BEFORE);
    bed.assert_has("bench", "after", b"after");
    bed.ok("destroy", &[]);
    assert!(!bed.dir().exists(), "all files are gone");
}

fn assert_all_are_carmine(bed: &Testbed) {
    let tree = bed.ceph_json("osd tree");
    let nodes = tree["nodes"].as_array().expect("nodes");
    let osds = nodes.iter().filter(|node| node["type"] == "osd");
    assert!(osds.clone().all(|node| node["device_class"] == "carmine"), "{tree:#}");
    assert_eq!(osds.count(), 3, "{tree:#}");
}

/// PGs, space and health, with `BEFORE` as the only object.
fn assert_manager_knows(bed: &Testbed) {
    bed.wait_until(
        "all PGs are known as active and clean",
        || matches!(bed.clean_pgs(), (clean, all) if clean == all && all >= 16),
    );
    bed.wait_until("the object is counted", || {
        let df = bed.ceph_json("df");
        let pools = df["pools"].as_array().expect("pools");
        let bench = pools.iter().find(|pool| pool["name"] == "bench").expect("the pool");
        let stats = &bench["stats"];
        // Used are all three copies.
        stats["objects"] == 1 && stats["stored"] == BEFORE.len() && stats["bytes_used"] == 3 * BEFORE.len()
    });
    let df = bed.ceph_json("osd df");
    let osds = df["nodes"].as_array().expect("OSDs");
    assert!(
        osds.iter().all(|osd| osd["kb"].as_u64() > Some(500 << 10) && osd["kb_used"].as_u64() > Some(0)),
        "{df:#}"
    );
    bed.wait_until("the cluster is healthy", || bed.ceph_json("health")["status"] == "HEALTH_OK");
}

/// Faults of all kinds, monitors and the manager among their victims; then a deep scrub, which the manager orders. The long form:
/// `carmine thrash --runtime 30m`.
#[test]
fn nothing_is_lost_under_faults() {
    if !has_real_mon(&[]) || !can_make_networks() {
        return;
    }
    let four = ["--mon", "ceph", "--mons", "3", "--namespaces", "--osds", "4", "--size", "3", "--pgs", "16"];
    let more = ["--osd-size", "2G", "--sparse", "--overprovisioned"];
    // They find out soon which of them is dead.
    let grace = ["--osd-heartbeat-grace", "4", "--osd-heartbeat-interval", "1"];
    let bed = Testbed::up(&[&four[..], &more, &grace].concat());
    let said = bed.ok("thrash", &["--runtime", "40s", "--heal-limit", "120"]);
    assert!(said.contains("nothing was lost"), "{said}");
    bed.ok("destroy", &[]);
    assert!(!bed.dir().exists(), "all files are gone");
}

/// Ends one of Ceph's daemons at once.
fn kill_daemon(bed: &Testbed, name: &str) {
    let pid = bed.pid(name).expect("a record");
    signal(&[pid], "-KILL");
    bed.wait_until("it is gone", || !Path::new(&format!("/proc/{pid}")).exists());
}

/// Names of the monitors in the quorum, the leader's first.
fn quorum(bed: &Testbed) -> Vec<String> {
    let status = bed.ceph_json("quorum_status");
    let names = status["quorum_names"].as_array().expect("names").iter();
    let mut names: Vec<String> = names.map(|name| name.as_str().expect("a name").to_owned()).collect();
    names.sort_by_key(|name| status["quorum_leader_name"] != name.as_str());
    names
}

/// The record of a monitor in the testbed's folder.
fn record(mon: &str) -> String {
    if mon == "a" { "mon".to_owned() } else { format!("mon.{mon}") }
}

#[test]
fn writes_go_on_while_the_leader_of_three_is_dead() {
    if !has_real_mon(&[]) {
        return;
    }
    let bed = Testbed::up_real("3", &["--mons", "3"]);
    let before = quorum(&bed);
    assert_eq!(before.len(), 3);
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    let bench = Background::start(&bed, "bench", &load(state, "30"));
    let_write(&bed, Duration::ZERO);
    let leader = record(&before[0]);
    kill_daemon(&bed, &leader);
    let_write(&bed, Duration::ZERO);
    bed.wait_until("two are a quorum", || quorum(&bed).len() == 2);
    let status = String::from_utf8_lossy(&bed.run("status", &[]).stdout).into_owned();
    assert!(status.contains(&format!("{leader} is dead")), "{status}");
    bed.ok("up", &[]);
    assert_eq!(quorum(&bed).len(), 3);
    succeed(bench.wait(LIMIT), "the load");
    check_blocks(&bed, state);
    // They are found without their records, too.
    let others: Vec<i32> =
        ["mon", "mon.b", "mon.c", "mgr"].map(|name| bed.pid(name).expect("a record")).into();
    for name in ["mon.b", "mgr"] {
        std::fs::remove_file(bed.dir().join(format!("run/{name}.json"))).expect("removed");
    }
    bed.ok("destroy", &[]);
    // Some time passes until whoever adopted them takes notice of their end.
    let are_gone = || others.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    bed.wait_until("the processes are gone", are_gone);
}

/// The state of each PG of the testbed's pool, and its acting set.
fn acting(bed: &Testbed) -> Vec<(String, Vec<u64>)> {
    let dump = bed.ceph_json("pg dump pgs_brief");
    let rows = dump["pg_stats"].as_array().or(dump.as_array()).expect("PGs").clone();
    let set =
        |row: &Value| row["acting"].as_array().expect("a set").iter().filter_map(Value::as_u64).collect();
    let of_pool = rows.iter().filter(|row| row["pgid"].as_str().is_some_and(|pg| pg.starts_with("1.")));
    of_pool.map(|row| (row["state"].as_str().unwrap_or_default().to_owned(), set(row))).collect()
}

/// OSDs below a host of the CRUSH map, with their device classes.
fn below(bed: &Testbed, host: &str) -> Vec<(u64, String)> {
    let tree = bed.ceph_json("osd tree");
    let nodes = tree["nodes"].as_array().expect("nodes");
    let of = nodes.iter().find(|node| node["type"] == "host" && node["name"] == host);
    let children = of.and_then(|node| node["children"].as_array()).cloned().unwrap_or_default();
    let class = |id: &Value| {
        nodes.iter().find(|node| node["id"] == *id).expect("it is there")["device_class"].clone()
    };
    let row = |id: &Value| (id.as_u64().expect("an OSD"), class(id).as_str().unwrap_or_default().to_owned());
    let mut all: Vec<_> = children.iter().map(row).collect();
    all.sort();
    all
}

#[test]
fn a_host_joins_a_cluster_and_leaves_it() {
    if !has_real_mon(&[]) {
        return;
    }
    let small = ["--osds", "2", "--osd-size", "1G", "--sparse", "--overprovisioned"];
    let bed = Testbed::up(&[&["--mon", "ceph", "--size", "2", "--pgs", "16"], &small[..]].concat());
    bed.put("bench", "before", b"before");
    let conf = bed.dir().join("ceph.conf");
    let own = ["--ceph-conf", conf.to_str().expect("UTF-8"), "--host", "other", "--timeout", "300"];
    let joined = bed.second();
    let refused = |command: &str, options: &[&str], part: &str| {
        let out = joined.run(command, options);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(part), "{command} {options:?}: {said}");
    };
    refused(
        "join",
        &[&own[..], &["--size", "2"]].concat(),
        "--size: the cluster that these OSDs join decides this",
    );
    joined.ok("join", &[&own[..], &small].concat());
    let carmine = "carmine".to_owned();
    assert_eq!(below(&joined, "other"), [(2, carmine.clone()), (3, carmine)]);
    // Files of a gigabyte weigh nothing beside the OSDs of a testbed.
    bed.ceph_ok(&["osd", "crush", "reweight-subtree", "other", "1"]);
    bed.ceph_ok(&["osd", "pool", "set", "bench", "size", "3"]);
    let is_whole = || {
        let pgs = acting(&joined);
        pgs.len() == 16 && pgs.iter().all(|(state, set)| state == "active+clean" && set.len() == 3)
    };
    bed.wait_until("all PGs have three copies", is_whole);
    joined.put("bench", "both", b"both");
    let said = joined.ok("status", &[]);
    assert!(said.contains("running") && said.contains("osd.2") && !said.contains("osd.0"), "{said}");
    refused("bench", &[], "are a part of a cluster");
    refused("join", &own, "already: `carmine up");
    // It has the numbers 2 and 3, and others have 0 and 1.
    succeed(joined.osd(&["add"]), "osd add");
    assert!(bed.is_up(4));
    joined.ok("down", &[]);
    bed.wait_until("the OSDs are down", || (2..5).all(|osd| !bed.is_up(osd)));
    assert!(bed.is_up(0) && bed.is_up(1));
    joined.ok("up", &["--timeout", "300"]);
    joined.assert_has("bench", "before", b"before");
    joined.assert_has("bench", "both", b"both");
    refused("destroy", &[], "carmine osd remove 2");
    succeed(joined.osd(&["remove", "2"]), "osd remove");
    assert_eq!(below(&bed, "other").iter().map(|(osd, _)| *osd).collect::<Vec<_>>(), [3, 4]);
    bed.assert_has("bench", "both", b"both");
    refused("destroy", &[], "the cluster has osd.3, osd.4");
    joined.ok("destroy", &["--yes-i-really-mean-it"]);
    assert!(!joined.dir().exists(), "all files are gone");
}
