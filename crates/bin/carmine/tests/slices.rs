//! Several OSDs on one file or device, and drives that are written through first, with the real binary and RocksDB.
#![cfg(feature = "rocks")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

mod bed;

use bed::{Bed, text};
use carmine_testkit::LoopDevice;

const UP: &[&str] = &["up", "--osds", "2", "--osds-per-device", "2", "--pgs", "16", "--overprovisioned"];

/// A folder that takes direct I/O.
fn bed() -> Bed {
    Bed { root: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
}

/// Writes through one life of the testbed, and reads it all back in the next.
fn data_survives(bed: &Bed) {
    let state = bed.root.path().join("state");
    let span = ["--size", "16m", "--object-size", "256k", "--verify-state", state.to_str().unwrap()];
    bed.ok(&[&["bench", "--rw", "randwrite", "--iodepth", "16", "--runtime", "1"][..], &span].concat());
    bed.ok(&["down"]);
    bed.ok(&["up"]);
    let said = bed.ok(&[&["bench", "--rw", "randread", "--verify-only"][..], &span].concat());
    assert!(said.contains(" 0 wrong"), "{said}");
}

#[test]
fn two_osds_on_one_file() {
    let bed = bed();
    let said = bed.ok(&[UP, &["--osd-size", "64M", "--sparse"]].concat());
    assert!(said.contains("slice     osd.1: file device.0, 64M from 64M"), "{said}");
    assert!(said.contains("shared device"), "the grid says who shares: {said}");
    let file = bed.dir().join("device.0");
    assert_eq!(file.metadata().unwrap().len(), 128 << 20);
    assert_eq!(bed.dir().join("osd.1/block").canonicalize().unwrap(), file.canonicalize().unwrap());
    data_survives(&bed);
    bed.fails(&["up", "--osds-per-device", "1"], 2, "already runs");
    bed.ok(&["down"]);
    // The plan of one OSD points at the other's slice.
    let plan = bed.dir().join("testbed.json");
    let good = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, good.replacen("\"offset_bytes\": 67108864", "\"offset_bytes\": 0", 1)).unwrap();
    let out = bed.run(&["up"]);
    let said = text(&out.stderr);
    // The OSD whose slice it is may be up.
    assert!(matches!(out.status.code(), Some(1 | 3)), "{said}");
    assert!(said.contains("is in use") || said.contains("do not belong together"), "{said}");
    bed.run(&["down"]);
    std::fs::write(&plan, good).unwrap();
    bed.ok(&["up"]);
    bed.ok(&["destroy"]);
    assert!(!bed.dir().exists());
}

#[test]
fn two_osds_on_one_device() {
    let bed = bed();
    let Some(device) = LoopDevice::new(bed.root.path(), 200 << 20, 512) else { return };
    let said = bed.ok(&[UP, &["--devs", device.name()]].concat());
    assert!(said.contains(&format!("osd.1: {}, 100M from 100M", device.name())), "{said}");
    data_survives(&bed);
    // Another testbed, and a file system, are refused while any OSD runs.
    let other = self::bed();
    other.fails(&[UP, &["--devs", device.name(), "--force-wipe"]].concat(), 1, "in use");
    bed.ok(&["destroy"]);
    other.fails(&[UP, &["--devs", device.name()]].concat(), 1, "not blank");
    other.fails(&["up", "--osds", "8", "--osds-per-device", "8", "--devs", device.name()], 2, "25 MiB");
}

#[test]
fn preconditioning_is_for_drives() {
    let bed = bed();
    let small = ["up", "--pgs", "16", "--overprovisioned", "--precondition"];
    let out = bed.run(&[&small[..], &["--osd-size", "64M", "--sparse"]].concat());
    assert!(out.status.success() && text(&out.stderr).contains("files: n/a"), "{}", text(&out.stderr));
    assert_eq!(bed.status()["plan"]["preconditioned"][0]["outcome"], "na");
    assert!(bed.ok(&["status"]).contains("precondition files: n/a"));
    bed.ok(&["down"]);
    bed.fails(&["up", "--precondition"], 2, "the stores of this testbed exist");
    let other = self::bed();
    let Some(device) = LoopDevice::new(other.root.path(), 100 << 20, 512) else { return };
    let named = [&small[..], &["--devs", device.name()]].concat();
    let out = other.run(&named);
    assert!(out.status.success() && text(&out.stderr).contains("n/a"), "{}", text(&out.stderr));
    other.ok(&["destroy"]);
    let forced = ["--precondition-virtual", "--precondition-round", "100ms", "--precondition-limit", "30"];
    let forced = [&named[..], &forced].concat();
    other.fails(&forced, 1, "not blank");
    other.ok(&[&forced[..], &["--force-wipe"]].concat());
    let drive = &other.status()["plan"]["preconditioned"][0];
    assert!(drive["outcome"] == "steady" || drive["outcome"] == "unsteady", "{drive}");
    assert!(
        drive["rounds_iops"].as_array().unwrap().iter().all(|iops| iops.as_f64().unwrap() > 0.0),
        "{drive}"
    );
    other.ok(&["destroy"]);
}
