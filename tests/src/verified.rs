//! Verified load on a testbed whose processes die: every block names the write that made it, and a file knows what was acknowledged.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::{Background, Testbed};

/// A small span: every block is written many times, so a lost write is likely to be seen.
pub const SPAN: &[&str] = &["--size", "16m", "--object-size", "256k", "--bs", "4k"];

/// The file that knows the acknowledged writes of a testbed's loads.
pub fn state_file(bed: &Testbed) -> PathBuf {
    bed.root.path().join("verify-state")
}

/// A verified random write load; its state goes to the state file, which a later load continues.
pub fn load<'a>(state: &'a str, seconds: &'a str) -> Vec<&'a str> {
    let mut args = vec!["--rw", "randwrite", "--iodepth", "32", "--prefill", "never", "--verify"];
    args.extend(["--verify-state", state, "--runtime", seconds]);
    args.extend(SPAN);
    args
}

/// Asks osd.0 what its PGs hold.
const CONTENTS: [&str; 3] = ["--osd", "0", r#"{"prefix":"pg_contents"}"#];

/// Writes that a load must have done before it is disturbed: more than [`read_back`] wants to check, also on a slow drive.
const WRITES: u64 = 400;

/// Runs the load, a second at a time, until it has written enough to check: a busy drive may do 80 writes in a second.
pub fn write_enough(bed: &Testbed, state: &str) {
    let written = || updates(&bed.ok("admin", &CONTENTS));
    let before = written();
    for _ in 0..60 {
        bed.ok("bench", &load(state, "1"));
        if written() >= before + WRITES {
            return;
        }
    }
    panic!("{} writes in 60 s of load", written() - before);
}

/// Waits until a load has written enough to check: before that it waits for the OSDs to be quiet. Then lets it run for a while: the
/// state file is written every now and then.
pub fn let_write(bed: &Testbed, after: Duration) {
    let before = updates(&bed.ok("admin", &CONTENTS));
    bed.until(Duration::from_secs(120), "admin", &CONTENTS, |said| updates(said) >= before + WRITES);
    std::thread::sleep(after);
}

/// The updates of all PGs in an answer to `pg_contents`: each has its count after the epoch, as in `12'345`.
fn updates(contents: &str) -> u64 {
    let contents: Value = serde_json::from_str(contents).unwrap_or_default();
    let count = |pg: &Value| pg["last_update"].as_str()?.split_once('\'')?.1.parse::<u64>().ok();
    contents["pgs"].as_object().into_iter().flat_map(|pgs| pgs.values()).filter_map(count).sum()
}

/// Reads back every block that the state file knows: nothing is wrong, and there was something to check.
pub fn check_blocks(bed: &Testbed, state: &str) {
    if let Err(why) = read_back(bed, state) {
        panic!("{why}");
    }
}

/// The same as a result.
///
/// # Errors
/// Blocks are wrong, or too few were checked to say anything.
pub fn read_back(bed: &Testbed, state: &str) -> Result<(), String> {
    let mut args = vec!["--rw", "randread", "--iodepth", "32", "--verify-only", "--verify-state", state];
    args.extend(SPAN);
    let out = bed.run("bench", &args);
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let line = said.lines().find(|l| l.starts_with("verify")).unwrap_or("no line says what was verified");
    let checked: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    match out.status.success() && checked > 200 && line.contains(" 0 wrong") {
        true => Ok(()),
        false => Err(format!("{line} ({}): {complaint}", out.status)),
    }
}

/// Every PG has the same last update and the same objects (size, version, checksum) on every OSD.
pub fn check_replicas(bed: &Testbed, osds: usize) {
    let contents: Vec<Value> = (0..osds)
        .map(|osd| {
            let text = bed.ok("admin", &["--osd", &osd.to_string(), r#"{"prefix":"pg_contents"}"#]);
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("osd.{osd} answers no JSON ({e}): {text}"))
        })
        .collect();
    let pgs = |osd: usize| contents[osd]["pgs"].as_object().expect("PGs by name");
    let ids: BTreeSet<&String> = (0..osds).flat_map(|osd| pgs(osd).keys()).collect();
    assert!(ids.len() >= 32, "only {} PGs", ids.len());
    let mut objects = 0;
    for id in ids {
        let first = &pgs(0)[id];
        objects += first["objects"].as_object().expect("objects by name").len();
        for osd in 1..osds {
            let other = pgs(osd).get(id).unwrap_or_else(|| panic!("osd.{osd} has no PG {id}"));
            assert_eq!(first, other, "PG {id}: osd.0 (left) and osd.{osd} (right) differ");
        }
    }
    assert!(objects > 16, "only {objects} objects were compared");
}

/// The load sees its OSDs die, says so, and keeps in its file what it was told until then.
pub fn dies_with_its_osds(bench: Background) {
    let out = bench.wait(Duration::from_secs(240));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("died under the load") && said.contains("osd."), "{said}");
}
