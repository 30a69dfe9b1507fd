//! An OSD on a real block device, with the real binary and RocksDB: named by a relative path, discarding, grown below its store,
//! cut, read-only. Where no loop device can be made the reason is printed. About 5 s.
#![cfg(feature = "rocks")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

mod bed;

use std::os::unix::fs::symlink;
use std::process::Command;

use bed::{Bed, text};
use carmine_testkit::LoopDevice;

const MIB: u64 = 1 << 20;
const UP: &[&str] = &["up", "--osds", "1", "--pgs", "16", "--overprovisioned"];
/// Every block is written many times: each time the one before it is freed.
const LOAD: &[&str] = &["--size", "16m", "--object-size", "256k", "--iodepth", "16", "--ramp", "0"];

/// A folder on a disk.
fn bed() -> Bed {
    Bed { root: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
}

/// `carmine store VERB` of the one OSD.
fn store(bed: &Bed, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carmine"));
    let out =
        command.arg("store").args(words).arg("--dir").arg(bed.dir()).args(["--osd", "0"]).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

/// The blocks that the state file knows are read back, and right.
fn check(bed: &Bed, state: &str) {
    let said = bed
        .ok(&[&["bench", "--rw", "randread", "--verify-only", "--verify-state", state][..], LOAD].concat());
    assert!(said.contains(" 0 wrong"), "{said}");
}

#[test]
fn a_device_is_written_discarded_and_expanded() {
    let bed = bed();
    let Some(device) = LoopDevice::new(bed.root.path(), 128 * MIB, 4096) else { return };
    // As people name drives: by a link, and from where they are.
    symlink(device.path(), bed.root.path().join("by-id")).unwrap();
    let up = [UP, &["--devs", "by-id", "--discard", "--zero"]].concat();
    let out = bed.command(&up).current_dir(bed.root.path()).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let state = bed.root.path().join("state").display().to_string();
    let mkfs_bytes = device.kept_bytes().unwrap();
    assert!(mkfs_bytes >= 128 * MIB, "all of it was written through");
    bed.ok(&[
        &["bench", "--rw", "randwrite", "--verify-state", &state, "--verify", "--runtime", "2"][..],
        LOAD,
    ]
    .concat());
    bed.ok(&["down"]);
    let kept_bytes = device.kept_bytes().unwrap();
    assert!(
        kept_bytes + 2 * MIB < mkfs_bytes,
        "{kept_bytes} of {mkfs_bytes} bytes are kept: nothing was discarded"
    );
    bed.ok(&["up"]);
    check(&bed, &state);
    bed.ok(&["down"]);

    device.resize(192 * MIB).unwrap();
    let said = store(&bed, &["expand"]);
    assert!(said.contains("block from: 134217728\nblock to: 201326592\n"), "{said}");
    assert!(store(&bed, &["df"]).contains(device.name()));
    bed.ok(&["up"]);
    check(&bed, &state);
    bed.ok(&["down"]);
    assert!(store(&bed, &["fsck", "--deep"]).contains("fsck success"));

    device.resize(128 * MIB).unwrap();
    let out = bed.run(&["up"]);
    assert!(
        !out.status.success() && text(&out.stderr).contains("its label says 201326592: was it cut?"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_device_is_made_new_without_writing_all_of_it() {
    let bed = bed();
    let Some(device) = LoopDevice::new(bed.root.path(), 128 * MIB, 4096) else { return };
    std::fs::write(device.path(), vec![0xa5; 128 << 20]).unwrap();
    assert!(device.kept_bytes().unwrap() >= 128 * MIB);
    let up = [UP, &["--devs", device.name(), "--force-wipe"]].concat();
    let said = bed.ok(&up);
    assert!(device.kept_bytes().unwrap() < 32 * MIB, "all of it was written, or nothing forgotten: {said}");
    bed.ok(&[
        "bench",
        "--rw",
        "randwrite",
        "--runtime",
        "1",
        "--ramp",
        "0",
        "--size",
        "16m",
        "--iodepth",
        "16",
    ]);
    bed.ok(&["down"]);
    assert!(store(&bed, &["fsck", "--deep"]).contains("fsck success"));
    bed.fails(&["up", "--zero"], 2, "--zero on: this testbed was made with off");
}

#[test]
fn a_device_that_cannot_be_written_is_named() {
    let bed = bed();
    let Some(device) = LoopDevice::new(bed.root.path(), 64 * MIB, 512) else { return };
    let up = [UP, &["--devs", device.name()]].concat();
    if !Command::new("blockdev")
        .args(["--setro", device.name()])
        .status()
        .is_ok_and(|status| status.success())
    {
        return carmine_testkit::skip("blockdev cannot make a device read-only: apt-get install util-linux");
    }
    bed.fails(&up, 1, "is read-only");
    assert!(Command::new("blockdev").args(["--setrw", device.name()]).status().unwrap().success());
    bed.ok(&up);
}
