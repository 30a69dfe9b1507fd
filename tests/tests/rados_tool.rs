//! The unmodified `rados` of Debian's ceph-common 16.2.15 against a testbed.
#![allow(clippy::disallowed_methods)] // reads and writes files

use std::time::{Duration, Instant};

use carmine_tests::{Testbed, installed};

const ONE_CYAN: &[&str] =
    &["--osds", "1", "--size", "1", "--reactors", "1", "--store", "cyan", "--overprovisioned"];
const THREE_BLUE: &[&str] = &[
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
    "--overprovisioned",
];

/// put, get, stat, ls, rm, lspools, df: sizes around block and chunk borders, contents compared.
fn objects_round_trip(bed: &Testbed) {
    let file = bed.dir().parent().expect("a parent").join("payload");
    let back = file.with_extension("back");
    let (file_s, back_s) = (file.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    for size in [0usize, 1, 4095, 4096, 4097, 65_536, 4 << 20, (9 << 20) + 17] {
        let data: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
        std::fs::write(&file, &data).expect("a file");
        let name = format!("object-{size}");
        bed.rados_ok(&["put", &name, file_s]);
        bed.rados_ok(&["get", &name, back_s]);
        assert!(std::fs::read(&back).expect("a file") == data, "{name} came back different");
        let stat = bed.rados_ok(&["stat", &name]);
        assert!(stat.contains(&format!("size {size}")), "{stat}");
    }
    let listed = bed.rados_ok(&["ls"]);
    assert_eq!(listed.lines().count(), 8, "{listed}");
    bed.rados_ok(&["rm", "object-4096"]);
    assert!(!bed.rados_ok(&["ls"]).contains("object-4096\n"));
    let missing = bed.rados(&["get", "object-4096", back_s]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("No such file"));
    assert!(bed.rados_ok(&["lspools"]).lines().any(|pool| pool == "bench"));
    wait_for_objects(bed, 7);
}

/// OBJECTS of the pool `bench` in `rados df`.
fn df_objects(bed: &Testbed) -> String {
    let df = bed.rados_ok(&["df"]);
    let mut lines = df.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let pool = lines.find(|line| line.starts_with("bench ")).expect("the pool");
    // USED is a number and a unit: two words under one heading.
    let at = columns.iter().position(|column| *column == "OBJECTS").expect("a column OBJECTS") + 1;
    pool.split_whitespace().nth(at).expect("a number").to_owned()
}

/// OSDs tell the monitor every two seconds what they hold.
fn wait_for_objects(bed: &Testbed, objects: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = df_objects(bed);
        if shown == objects.to_string() {
            return;
        }
        assert!(Instant::now() < end, "rados df shows {shown} objects, there are {objects}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn bench_verbs(bed: &Testbed) {
    bed.rados_ok(&["bench", "2", "write", "-b", "4096", "-t", "8", "--no-cleanup"]);
    let seq = bed.rados_ok(&["bench", "2", "seq", "-t", "8"]);
    assert!(seq.contains("Average IOPS"), "{seq}");
    let rand = bed.rados_ok(&["bench", "2", "rand", "-t", "8"]);
    assert!(rand.contains("Average IOPS"), "{rand}");
    bed.rados_ok(&["cleanup"]);
    assert!(!bed.rados_ok(&["ls"]).contains("benchmark_data"));
}

#[test]
fn rados_against_one_cyan_osd() {
    if installed("rados", "ceph-common") {
        let bed = Testbed::up(ONE_CYAN);
        objects_round_trip(&bed);
        bench_verbs(&bed);
    }
}

#[test]
fn rados_against_three_replicated_blue_osds_with_two_reactors() {
    if installed("rados", "ceph-common") {
        let bed = Testbed::up(THREE_BLUE);
        objects_round_trip(&bed);
        bench_verbs(&bed);
        // What was written with two reactors is read with one, and the other way round.
        bed.ok("down", &[]);
        bed.ok("up", &["--reactors", "1", "--overprovisioned"]);
        assert_eq!(bed.rados_ok(&["ls"]).lines().count(), 7);
        wait_for_objects(&bed, 7);
        bed.rados_ok(&["put", "later", "/proc/self/status"]);
        bed.ok("down", &[]);
        bed.ok("up", &["--reactors", "2", "--overprovisioned"]);
        assert!(bed.rados_ok(&["stat", "later"]).contains("later"));
    }
}
