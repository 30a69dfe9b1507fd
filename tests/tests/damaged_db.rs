//! An OSD of three whose RocksDB has flipped bytes: it ends itself, once; the others serve everything, and it can be replaced. And what
//! an OSD keeps is its user's alone.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and changes files

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use carmine_tests::{Testbed, installed, kill_nine, run, succeed};

const OBJECTS: u32 = 30;

/// Flips a byte in each 4 KiB of the database's tables that are `part` of a value, or everything if there is no part. Not in the
/// index and the footer at a table's end: it can be opened.
fn flip_tables(db: &Path, part: Option<u8>) -> usize {
    let mut flipped = 0;
    for table in std::fs::read_dir(db).expect("the database").flatten().map(|file| file.path()) {
        if table.extension().is_none_or(|extension| extension != "sst") {
            continue;
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&table).expect("a table");
        let len = file.metadata().expect("its length").len();
        for at in (100..len.saturating_sub(len / 4 + 4096)).step_by(4096) {
            let mut page = [0; 4096];
            file.read_exact_at(&mut page, at).expect("a page");
            if part.is_none_or(|part| page.iter().all(|byte| *byte == part)) {
                file.write_all_at(&[page[0] ^ 0x55], at).expect("a byte");
                flipped += 1;
            }
        }
    }
    flipped
}

fn fill(bed: &Testbed) {
    let value = bed.file("value");
    std::fs::write(&value, vec![7; 20_000]).expect("a file");
    for n in 0..OBJECTS {
        bed.rados_ok(&["put", &format!("object-{n}"), &value]);
        bed.rados_ok(&["setomapval", &format!("object-{n}"), "key", "--input-file", &value]);
    }
}

/// Every object is read whole, from wherever it is.
fn read_all(bed: &Testbed) {
    let back = bed.file("back");
    for n in 0..OBJECTS {
        bed.rados_ok(&["get", &format!("object-{n}"), &back]);
        assert_eq!(std::fs::read(&back).expect("an object").len(), 20_000);
        bed.rados_ok(&["getomapval", &format!("object-{n}"), "key", &back]);
        assert_eq!(std::fs::read(&back).expect("a value"), [7; 20_000]);
    }
}

fn up() -> Testbed {
    Testbed::up(&[
        "--osds",
        "3",
        "--size",
        "3",
        "--osd-size",
        "512M",
        "--sparse",
        "--overprovisioned",
        "--reactors",
        "1",
        "--pgs",
        "16",
    ])
}

#[test]
fn an_osd_with_a_damaged_database_gives_way_and_is_replaced() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = up();
    fill(&bed);
    // Its database is in tables after that, and RocksDB merges none of them.
    succeed(bed.osd(&["restart", "1"]), "osd restart");
    assert!(flip_tables(&bed.dir().join("osd.1/db"), Some(7)) > 20);
    // The two others have what it cannot read.
    read_all(&bed);
    let said =
        bed.until(Duration::from_secs(60), "status", &[], |said| said.contains("cannot read its metadata"));
    assert!(said.contains("carmine osd start 1 --accept-damage"), "{said}");
    assert_damage_is_in_health(&bed);
    read_all(&bed);
    // It is not started again, and says why.
    let again = bed.osd(&["start", "1", "--timeout", "20"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && said.contains("cannot read its metadata"), "{said}");
    // Another takes its place.
    succeed(bed.osd(&["add"]), "osd add");
    succeed(bed.osd(&["remove", "1", "--timeout", "90"]), "osd remove");
    let health = bed.ceph_ok(&["health", "detail"]);
    assert!(!health.contains("OSD_DAMAGED"), "{health}");
    bed.until(Duration::from_secs(60), "status", &[], |said| {
        said.contains("16 clean") || said.contains("running")
    });
}

/// Where a mount needs what is damaged, the OSD does not come up, and is not started again either.
#[test]
fn an_osd_that_cannot_mount_its_database_is_started_once() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = up();
    fill(&bed);
    succeed(bed.osd(&["stop", "1"]), "osd stop");
    assert!(flip_tables(&bed.dir().join("osd.1/db"), None) > 0);
    for _ in 0..2 {
        let started = bed.osd(&["start", "1", "--timeout", "20"]);
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(!started.status.success() && said.contains("cannot read its metadata"), "{said}");
        assert_damage_is_in_health(&bed);
        // The next monitor is told by the next start.
        kill_nine(&[bed.pid("mon").expect("a monitor")]);
        bed.run("up", &[]);
        assert_damage_is_in_health(&bed);
    }
    read_all(&bed);
}

fn assert_damage_is_in_health(bed: &Testbed) {
    let health = bed.ceph_ok(&["health", "detail"]);
    assert!(health.starts_with("HEALTH_ERR") && health.contains("OSD_DAMAGED"), "{health}");
}

#[test]
fn what_daemons_keep_is_their_users_alone() {
    let bed = up();
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    for folder in ["mon", "osd.0", "osd.0/db"] {
        assert_eq!(mode(&bed.dir().join(folder)), 0o700, "{folder}");
    }
    for folder in ["mon", "osd.0", "osd.0/db"] {
        for file in std::fs::read_dir(bed.dir().join(folder)).expect("a folder").flatten() {
            if file.metadata().expect("its mode").is_file() {
                assert_eq!(mode(&file.path()), 0o600, "{}", file.path().display());
            }
        }
    }
    assert_eq!(mode(&bed.dir().join("osd.0.log")), 0o600);
    let listed = run(
        Path::new("stat"),
        &["--format=%a", bed.dir().join("osd.0.asok").to_str().expect("UTF-8")],
        Duration::from_secs(5),
    );
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "700");
}
