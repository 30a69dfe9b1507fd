//! OSDs are taken out one after the other, and die, while their data moves: every object that was acknowledged is there
//! afterwards, with Ceph's own tools. About 60 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::time::Duration;

use carmine_tests::{Testbed, installed, kill_nine};
use serde_json::Value;

const OBJECTS: usize = 80;
const OBJECT_BYTES: usize = 4 << 20;
const FOUR_OSDS: &[&str] =
    &["--osds", "4", "--size", "2", "--osd-size", "2G", "--sparse", "--overprovisioned", "--pgs", "32"];

fn content(object: usize) -> Vec<u8> {
    let word = (object as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..OBJECT_BYTES as u64 / 8).flat_map(|n| word.wrapping_mul(2 * n + 1).to_le_bytes()).collect()
}

/// Does something for each object, four at a time.
fn each_object(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            let work = &work;
            scope.spawn(move || (part..OBJECTS).step_by(4).for_each(work));
        }
    });
}

fn fill(bed: &Testbed) {
    each_object(|object| {
        let file = bed.file(&format!("in-{object}"));
        std::fs::write(&file, content(object)).expect("a file");
        bed.rados_ok(&["put", &format!("object-{object}"), &file]);
        std::fs::remove_file(&file).expect("it is there");
    });
}

fn check(bed: &Testbed) {
    each_object(|object| {
        let file = bed.file(&format!("out-{object}"));
        bed.rados_ok(&["get", &format!("object-{object}"), &file]);
        assert!(std::fs::read(&file).expect("a file") == content(object), "object-{object}");
        std::fs::remove_file(&file).expect("it is there");
    });
}

/// Waits until no PG is pinned any more: the OSDs that CRUSH wants have everything.
fn until_moved(bed: &Testbed) {
    let begin = std::time::Instant::now();
    loop {
        let said = bed.ceph_ok(&["osd", "dump"]);
        let stat = bed.ceph_ok(&["pg", "stat"]);
        if !said.contains("pg_temp") && stat.contains("32 active+clean") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "data still moves: {stat}\n{said}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The second command comes while the first one's copies are being made.
fn out_one_after_the_other(bed: &Testbed, between: impl FnOnce()) {
    std::thread::scope(|scope| {
        scope.spawn(|| bed.ceph_ok(&["osd", "out", "0"]));
        std::thread::sleep(Duration::from_millis(150));
        between();
        bed.ceph_ok(&["osd", "out", "1"]);
    });
}

#[test]
fn two_osds_drained_at_once_lose_nothing() {
    if !installed("ceph", "ceph-common") {
        return;
    }
    let bed = Testbed::up(FOUR_OSDS);
    fill(&bed);
    out_one_after_the_other(&bed, || {});
    until_moved(&bed);
    check(&bed);
    let said = bed.ceph_ok(&["pg", "dump", "pgs_brief"]);
    let acting =
        |line: &str| line.split_whitespace().nth(4).is_some_and(|set| set == "[2,3]" || set == "[3,2]");
    let pgs = said.lines().filter(|line| line.contains("active")).collect::<Vec<_>>();
    assert!(pgs.len() == 32 && pgs.iter().all(|line| acting(line)), "{said}");
}

/// PGs of a pool of size one move to OSDs that have never had a copy of them, and that keep their data in memory.
#[test]
fn the_only_copies_survive_a_drain_in_memory() {
    if !installed("ceph", "ceph-common") {
        return;
    }
    let bed =
        Testbed::up(&["--osds", "4", "--size", "1", "--store", "cyan", "--overprovisioned", "--pgs", "32"]);
    fill(&bed);
    out_one_after_the_other(&bed, || {});
    until_moved(&bed);
    check(&bed);
}

#[test]
fn an_osd_that_dies_while_another_is_drained_loses_nothing() {
    if !installed("ceph", "ceph-common") {
        return;
    }
    let bed = Testbed::up(FOUR_OSDS);
    fill(&bed);
    let from = bed.mon_log().len();
    out_one_after_the_other(&bed, || {
        // The first primary of the new intervals serves: all copies are made within a second.
        bed.wait_for_mon_log(from, ": UpThru", Duration::from_secs(60));
        let pid = bed.pid("osd.1").expect("osd.1 runs");
        assert_eq!(kill_nine(&[pid]), 1);
    });
    until_moved(&bed);
    check(&bed);
}

carmine_testkit::measures!(clients_are_measured_beside_a_recovery);

/// The figures of so short a window mean nothing; there are some, and the OSD is in again.
fn clients_are_measured_beside_a_recovery() {
    let bed = Testbed::up_alone(FOUR_OSDS);
    let result = bed.dir().with_file_name("result.json");
    let window = ["--rw", "randrw", "--bs", "4k", "--size", "32M", "--runtime", "10s"];
    let recovery = ["--osd-out", "3", "--json", result.to_str().expect("UTF-8")];
    let said = bed.ok("bench", &[&window[..], &recovery].concat());
    assert!(said.contains("recovery  osd.3 out: all PGs clean after "), "{said}");
    let told: Value = serde_json::from_slice(&std::fs::read(&result).expect("a result")).expect("JSON");
    let recovery = &told["carmine"]["recovery"];
    assert!(recovery["osd_out"] == 3 && recovery["clean_s"].as_f64() < Some(10.0), "{recovery}");
    assert!(
        recovery["clean_s"].as_f64() > Some(0.0) && recovery["p99_ns"].as_f64() > Some(0.0),
        "{recovery}"
    );
    assert!(bed.ok("status", &[]).contains("running"));
    let out = bed.run("bench", &[&window[..], &["--osd-out", "4"]].concat());
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.code() == Some(2) && error.contains("--osd-out 4: the testbed has OSDs 0 to 3"),
        "{error}"
    );
}
