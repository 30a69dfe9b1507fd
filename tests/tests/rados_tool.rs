//! The unmodified `rados` of Debian's ceph-common 16.2.15 against a testbed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts a process, reads and writes files

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

/// Verbs that change a part of an object, and cp.
fn parts_of_objects(bed: &Testbed) {
    let file = bed.dir().parent().expect("a parent").join("part");
    let file_s = file.to_str().expect("UTF-8");
    std::fs::write(&file, b"0123456789").expect("a file");
    bed.rados_ok(&["create", "part"]);
    bed.rados_ok(&["append", "part", file_s]);
    bed.rados_ok(&["append", "part", file_s]);
    bed.rados_ok(&["truncate", "part", "15"]);
    bed.rados_ok(&["put", "part", file_s, "--offset", "12"]);
    bed.rados_ok(&["setxattr", "part", "colour", "red"]);
    bed.rados_ok(&["setomapval", "part", "key", "value"]);
    bed.rados_ok(&["cp", "part", "copy"]);
    bed.rados_ok(&["get", "copy", file_s]);
    assert_eq!(std::fs::read(&file).expect("a file"), b"0123456789010123456789");
    assert_eq!(bed.rados_ok(&["getxattr", "copy", "colour"]), "red");
    assert_eq!(bed.rados_ok(&["listomapkeys", "copy"]), "key\n");
    bed.rados_ok(&["touch", "copy"]);
    assert!(bed.rados_ok(&["mapext", "copy"]).contains("16"), "22 bytes, in hexadecimal digits");
    assert!(bed.rados_ok(&["listsnaps", "copy"]).contains("head"));
    let begin = Instant::now();
    let refused = bed.rados(&["mksnap", "snap"]);
    assert!(!refused.status.success() && begin.elapsed() < Duration::from_secs(10));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not supported"));
    bed.rados_ok(&["rm", "part", "copy"]);
}

/// xattr, omap and lock verbs.
fn attributes(bed: &Testbed) {
    bed.rados_ok(&["create", "a"]);
    bed.rados_ok(&["setxattr", "a", "one", "1"]);
    bed.rados_ok(&["setxattr", "a", "two", "2"]);
    bed.rados_ok(&["rmxattr", "a", "one"]);
    assert_eq!(bed.rados_ok(&["listxattr", "a"]), "two\n");
    let missing = bed.rados(&["getxattr", "a", "one"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("No data available"));
    for key in ["k1", "k2", "k3"] {
        bed.rados_ok(&["setomapval", "a", key, &format!("value of {key}")]);
    }
    bed.rados_ok(&["rmomapkey", "a", "k2"]);
    assert_eq!(bed.rados_ok(&["listomapkeys", "a"]), "k1\nk3\n");
    assert!(bed.rados_ok(&["listomapvals", "a"]).contains("value of k3"));
    assert!(bed.rados_ok(&["getomapval", "a", "k1"]).contains("value of k1"));
    bed.rados_ok(&["setomapheader", "a", "header"]);
    assert!(bed.rados_ok(&["getomapheader", "a"]).contains("header"));
    bed.rados_ok(&["clearomap", "a"]);
    assert_eq!(bed.rados_ok(&["listomapkeys", "a"]), "");
    bed.rados_ok(&["lock", "get", "a", "mine", "--lock-cookie", "c"]);
    let busy = bed.rados(&["lock", "get", "a", "mine", "--lock-cookie", "d"]);
    assert!(String::from_utf8_lossy(&busy.stderr).contains("Device or resource busy"));
    assert!(bed.rados_ok(&["lock", "list", "a"]).contains("mine"));
    let info = bed.rados_ok(&["lock", "info", "a", "mine"]);
    let holder = info.split('"').find(|word| word.starts_with("client.")).expect("a holder");
    bed.rados_ok(&["lock", "break", "a", "mine", holder, "--lock-cookie", "c"]);
    assert!(bed.rados_ok(&["lock", "info", "a", "mine"]).contains("\"lockers\":[]"));
    bed.rados_ok(&["rm", "a"]);
}

/// A watcher in the background hears a notification, and answers it.
fn watch_and_notify(bed: &Testbed) {
    bed.rados_ok(&["create", "w"]);
    // `rados watch` ends when its input does.
    let conf = bed.dir().join("ceph.conf");
    let mut watcher = std::process::Command::new("rados")
        .args(["-c", conf.to_str().expect("UTF-8"), "-p", "bench", "watch", "w"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("rados starts");
    let begin = Instant::now();
    while !bed.rados_ok(&["listwatchers", "w"]).contains("watcher=") {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody watches");
    }
    let heard = bed.rados_ok(&["notify", "w", "good news"]);
    assert!(heard.contains("reply client."), "{heard}");
    drop(watcher.stdin.take());
    let said = watcher.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&said.stdout).contains("NOTIFY cookie"));
    assert!(!bed.rados_ok(&["listwatchers", "w"]).contains("watcher="));
    bed.rados_ok(&["rm", "w"]);
}

/// A pool in a file and back.
fn export_and_import(bed: &Testbed) {
    let folder = bed.dir().parent().expect("a parent").to_path_buf();
    let (data, file) = (folder.join("data"), folder.join("pool.export"));
    std::fs::write(&data, vec![7u8; 100_000]).expect("a file");
    bed.rados_ok(&["put", "kept", data.to_str().expect("UTF-8")]);
    bed.rados_ok(&["setxattr", "kept", "x", "1"]);
    bed.rados_ok(&["setomapval", "kept", "k", "v"]);
    bed.rados_ok(&["setomapheader", "kept", "head"]);
    bed.rados_ok(&["export", file.to_str().expect("UTF-8")]);
    bed.rados_ok(&["rm", "kept"]);
    bed.rados_ok(&["import", file.to_str().expect("UTF-8")]);
    bed.rados_ok(&["get", "kept", data.to_str().expect("UTF-8")]);
    assert!(std::fs::read(&data).expect("a file") == vec![7u8; 100_000]);
    assert_eq!(bed.rados_ok(&["getxattr", "kept", "x"]), "1");
    assert_eq!(bed.rados_ok(&["listomapkeys", "kept"]), "k\n");
    assert!(bed.rados_ok(&["getomapheader", "kept"]).contains("head"));
    bed.rados_ok(&["rm", "kept"]);
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
        parts_of_objects(&bed);
        attributes(&bed);
        watch_and_notify(&bed);
        export_and_import(&bed);
        bench_verbs(&bed);
    }
}

#[test]
fn rados_against_three_replicated_blue_osds_with_two_reactors() {
    if installed("rados", "ceph-common") {
        let bed = Testbed::up(THREE_BLUE);
        objects_round_trip(&bed);
        parts_of_objects(&bed);
        attributes(&bed);
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
