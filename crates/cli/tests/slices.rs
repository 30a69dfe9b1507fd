//! OSDs on devices, and several on one file or device, with the real binary and RocksDB. The one on a device needs root and a loop device:
//! `CARMINE_LOOP_TEST=1`.
#![cfg(feature = "rocks")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

mod bed;

use std::process::Command;

use bed::{Bed, text};

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
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use") || said.contains("do not belong together"), "{said}");
    assert!(bed.processes().is_empty());
    std::fs::write(&plan, good).unwrap();
    bed.ok(&["up"]);
    bed.ok(&["destroy"]);
    assert!(!bed.dir().exists());
}

/// A loop device; gone when dropped.
struct Loop(String);

impl Loop {
    fn new(bed: &Bed, bytes: u64) -> Loop {
        let file = bed.root.path().join("backing");
        std::fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let out = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        Loop(text(&out.stdout).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn two_osds_on_one_device() {
    if std::env::var_os("CARMINE_LOOP_TEST").is_none() {
        println!("SKIPPED: needs root and a loop device; set CARMINE_LOOP_TEST=1");
        return;
    }
    let bed = bed();
    let device = Loop::new(&bed, 200 << 20);
    let said = bed.ok(&[UP, &["--devs", &device.0]].concat());
    assert!(said.contains(&format!("osd.1: {}, 100M from 100M", device.0)), "{said}");
    data_survives(&bed);
    // Another testbed, and a file system, are refused while any OSD runs.
    let other = self::bed();
    other.fails(&[UP, &["--devs", &device.0, "--force-wipe"]].concat(), 1, "in use");
    bed.ok(&["destroy"]);
    other.fails(&[UP, &["--devs", &device.0]].concat(), 1, "not blank");
    other.fails(&["up", "--osds", "8", "--osds-per-device", "8", "--devs", &device.0], 2, "25 MiB");
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
    if std::env::var_os("CARMINE_LOOP_TEST").is_none() {
        println!("SKIPPED: needs root and a loop device; set CARMINE_LOOP_TEST=1");
        return;
    }
    let other = self::bed();
    let device = Loop::new(&other, 100 << 20);
    let named = [&small[..], &["--devs", &device.0]].concat();
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
