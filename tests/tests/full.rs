//! A store that fills up, its device or its database's file system: clients see it as Ceph's (health, flags of the pool, writes
//! that wait), removing by force goes on, and when there is room again so does all else. About 35 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use carmine_tests::{Background, Testbed, installed, run, succeed};

fn ceph(bed: &Testbed, args: &[&str]) -> String {
    let conf = bed.dir().join("ceph.conf");
    let mut all = vec!["-c", conf.to_str().expect("UTF-8")];
    all.extend(args);
    succeed(run(Path::new("ceph"), &all, Duration::from_secs(30)), &format!("ceph {args:?}"))
}

/// Bytes that no compression makes fewer.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn until_health(bed: &Testbed, wanted: impl Fn(&str) -> bool) -> String {
    until(bed, &["health", "detail"], wanted)
}

fn until(bed: &Testbed, args: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let begin = Instant::now();
    loop {
        let said = ceph(bed, args);
        if wanted(&said) {
            return said;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "ceph {args:?} still says {said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_full_store_is_seen_and_emptied() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed =
        Testbed::up(&["--osds", "1", "--osd-size", "256M", "--sparse", "--overprovisioned", "--pgs", "32"]);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let file = folder.path().join("4m");
    std::fs::write(&file, vec![7; 4 << 20]).expect("a file");
    let file = file.to_str().expect("UTF-8");
    // To 87 %, then over 95 %: of 256 MiB, 8 are the log.
    let put = |from: u32, to: u32| {
        for n in from..to {
            bed.rados_ok(&["put", &format!("object-{n}"), file]);
        }
    };
    put(0, 54);
    let said = until_health(&bed, |said| said.contains("nearfull"));
    assert!(said.starts_with("HEALTH_WARN") && said.contains("OSD_NEARFULL"), "{said}");
    put(54, 60);
    let said = until_health(&bed, |said| said.contains("OSD_FULL"));
    assert!(
        said.starts_with("HEALTH_ERR") && said.contains("POOL_FULL") && said.contains("osd.0 is full"),
        "{said}"
    );
    // A write waits; reading and removing by force go on.
    let waits = Background::rados(&bed, &["put", "one-more", file]);
    bed.rados_ok(&["get", "object-7", "/dev/null"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(waits.runs(), "a write must wait while the pool is full");
    for n in 0..30 {
        bed.rados_ok(&["rm", "--force-full", &format!("object-{n}")]);
    }
    until_health(&bed, |said| !said.contains("full"));
    succeed(waits.wait(Duration::from_secs(30)), "the write that waited");
    bed.rados_ok(&["stat", "one-more"]);
    bed.ok("down", &[]);
    let dir = bed.dir();
    let fsck = ["store", "fsck", "--deep", "--dir", dir.to_str().expect("UTF-8")];
    succeed(run(&carmine_tests::carmine_bin(), &fsck, Duration::from_secs(60)), "fsck");
}

/// An omap fills an OSD as data does, and its removal empties it.
#[test]
fn an_omap_fills_a_store_and_its_removal_empties_it() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed =
        Testbed::up(&["--osds", "1", "--osd-size", "256M", "--sparse", "--overprovisioned", "--pgs", "8"]);
    let value = bed.file("value");
    std::fs::write(&value, noise(4 << 20)).expect("a file");
    let set = |n: u32| {
        let (object, key) = (format!("object-{}", n % 8), format!("key-{n}"));
        Background::rados(&bed, &["setomapval", &object, &key, "--input-file", &value])
    };
    let is_full = || ceph(&bed, &["health", "detail"]).contains("OSD_FULL");
    // On the drive of the host it is no more than the OSD's size, and once more while all tables are merged.
    let db_bytes = || {
        let files = std::fs::read_dir(bed.dir().join("osd.0/db")).expect("the database").flatten();
        files.map(|file| file.metadata().map_or(0, |file| file.len())).sum::<u64>()
    };
    let begin = Instant::now();
    for n in 0.. {
        let write = set(n);
        while write.runs() && !is_full() {
            assert!(begin.elapsed() < Duration::from_secs(200), "a write of omap waits, and nothing is full");
            std::thread::sleep(Duration::from_millis(20));
        }
        // A write that comes after the pool is full waits, as it should.
        if is_full() {
            write.kill();
            break;
        }
        assert!(n < 100, "{n} MiB of omap times 4 fit");
        let done = write.wait(Duration::from_secs(10));
        // The last one may find no room before the monitor says that the pool is full.
        if String::from_utf8_lossy(&done.stderr).contains("No space left") {
            break;
        }
        succeed(done, "setomapval");
    }
    let said = until_health(&bed, |said| said.contains("OSD_FULL"));
    assert!(said.starts_with("HEALTH_ERR") && said.contains("osd.0 is full"), "{said}");
    assert!(db_bytes() < 512 << 20, "{} bytes", db_bytes());
    let df: serde_json::Value = serde_json::from_str(&ceph(&bed, &["df", "-f", "json"])).expect("JSON");
    let used = df["stats"]["total_used_bytes"].as_u64().expect("bytes");
    assert!(used > 200 << 20, "{df}");
    // Removing by force goes on, and gives the room back.
    for n in 0..8 {
        bed.rados_ok(&["rm", "--force-full", &format!("object-{n}")]);
    }
    until_health(&bed, |said| !said.contains("full"));
    succeed(set(1000).wait(Duration::from_secs(60)), "setomapval");
    bed.ok("down", &[]);
    let dir = bed.dir();
    let fsck = ["store", "fsck", "--deep", "--dir", dir.to_str().expect("UTF-8")];
    succeed(run(&carmine_tests::carmine_bin(), &fsck, Duration::from_secs(60)), "fsck");
}

/// One OSD of a pool with two copies is full before the others: its PGs go on, and after objects were removed everything can
/// be written again, with nobody restarted.
#[test]
fn a_full_replica_needs_no_restart() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = Testbed::up(&[
        "--osds",
        "3",
        "--size",
        "2",
        "--osd-size",
        "192M",
        "--sparse",
        "--overprovisioned",
        "--pgs",
        "32",
    ]);
    // Faster than the monitor can say that the pool is full: some of these writes find no room.
    let _ =
        bed.rados(&["bench", "20", "write", "-b", "1M", "-t", "32", "--no-cleanup", "--run-name", "fill"]);
    let pids = bed.pids();
    let names: Vec<String> = bed.rados_ok(&["ls"]).lines().map(str::to_owned).collect();
    assert!(names.len() > 100, "{} objects", names.len());
    for some in names.chunks(40) {
        let mut rm = vec!["rm", "--force-full"];
        rm.extend(some.iter().map(String::as_str));
        bed.rados_ok(&rm);
    }
    until_health(&bed, |said| !said.contains("full") && !said.contains("PG_AVAILABILITY"));
    until(&bed, &["pg", "stat"], |said| said.contains("32 active+clean"));
    // A fixed number of objects: however fast the disk is, they fit.
    let again =
        ["bench", "20", "write", "-b", "64K", "-t", "4", "--max-objects", "400", "--run-name", "again"];
    bed.rados_ok(&again);
    assert_eq!(bed.pids(), pids, "nobody was restarted");
    bed.ok("down", &[]);
    let dir = bed.dir();
    for osd in ["0", "1", "2"] {
        let fsck = ["store", "fsck", "--deep", "--osd", osd, "--dir", dir.to_str().expect("UTF-8")];
        succeed(run(&carmine_tests::carmine_bin(), &fsck, Duration::from_secs(60)), "fsck");
    }
}

/// Says to the test inside of its own namespace where it has a small file system.
const SMALL: &str = "CARMINE_SMALL_FILE_SYSTEM";

/// Runs a test of this binary again where `folder` is a file system of `mib` MiB in memory. `None`: this system does not let us.
fn with_small_file_system(test: &str, folder: &Path, mib: u32) -> Option<bool> {
    // File systems on loop devices are other tests': what these unmount must not stay mounted in here.
    let leave = "umount -l $(awk '$1 ~ \"^/dev/loop\" { print $2 }' /proc/self/mounts) 2>/dev/null";
    let mount = format!("{leave}; mount -t tmpfs -o size={mib}m tmpfs {} && exec \"$@\"", folder.display());
    let inside = |words: &[&str]| {
        let mut command = Command::new("unshare");
        // Mounts are locked in the namespace of a user that is not root.
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", &mount, "sh"]).args(words).env(SMALL, folder);
        command.status().is_ok_and(|status| status.success())
    };
    if !inside(&["true"]) {
        return None;
    }
    let own = std::env::current_exe().expect("a test has an executable");
    Some(inside(&[own.to_str().expect("UTF-8"), test, "--exact", "--nocapture"]))
}

#[test]
fn a_database_without_room_refuses_writes_and_not_removing() {
    if !installed("rados", "ceph-common") {
        return;
    }
    if let Some(folder) = std::env::var_os(SMALL) {
        return database_without_room(Path::new(&folder));
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let name = "a_database_without_room_refuses_writes_and_not_removing";
    match with_small_file_system(name, folder.path(), 200) {
        Some(good) => assert!(good, "see above"),
        None => println!("not run: no namespace with a mount of its own can be made here (unshare)"),
    }
}

fn database_without_room(folder: &Path) {
    let bed = Testbed::up(&[
        "--osds",
        "1",
        "--osd-size",
        "256M",
        "--sparse",
        "--overprovisioned",
        "--pgs",
        "8",
        "--db-dir",
        folder.to_str().expect("UTF-8"),
    ]);
    let file = bed.dir().join("file");
    std::fs::write(&file, vec![7; 300_000]).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let put = |n: u32| bed.rados_ok(&["put", &format!("object-{n}"), file]);
    (0..10).for_each(|n| drop(put(n)));
    // Somebody else takes the room.
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 150 << 20]).expect("room for it");
    // The store looks when it commits.
    let _ = bed.rados(&["put", "object-10", file]);
    let said = until_health(&bed, |said| said.contains("OSD_FULL"));
    assert!(said.contains("osd.0 is full"), "{said}");
    let waits = Background::rados(&bed, &["put", "one-more", file]);
    bed.rados_ok(&["get", "object-7", "/dev/null"]);
    (0..5).for_each(|n| drop(bed.rados_ok(&["rm", "--force-full", &format!("object-{n}")])));
    assert!(waits.runs(), "a write must wait while the pool is full");
    std::fs::remove_file(&ballast).expect("the ballast");
    until_health(&bed, |said| !said.contains("full"));
    succeed(waits.wait(Duration::from_secs(30)), "the write that waited");
    put(0);
    bed.ok("down", &[]);
    let dir = bed.dir();
    let fsck = ["store", "fsck", "--deep", "--dir", dir.to_str().expect("UTF-8")];
    succeed(run(&carmine_tests::carmine_bin(), &fsck, Duration::from_secs(60)), "fsck");
}
