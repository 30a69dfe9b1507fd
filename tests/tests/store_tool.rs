//! `carmine store` on the stores of a real testbed: labels, space, checks, dumps, and a database that moves; and a damaged
//! block on a real file, which a stock client never sees. About 25 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use carmine_tests::{Testbed, installed, succeed};
use serde_json::Value;

fn up(osds: &str, more: &[&str]) -> Testbed {
    let mut options =
        vec!["--osds", osds, "--osd-size", "256M", "--sparse", "--overprovisioned", "--pgs", "32"];
    options.extend(more);
    Testbed::up(&options)
}

/// `carmine store VERB --dir DIR ARGS`.
fn store(bed: &Testbed, verb: &str, args: &[&str]) -> Output {
    let dir = bed.dir();
    let mut all = vec!["store", verb, "--dir", dir.to_str().expect("UTF-8")];
    all.extend(args);
    carmine_tests::run(&carmine_tests::carmine_bin(), &all, std::time::Duration::from_secs(60))
}

fn store_json(bed: &Testbed, verb: &str, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let said = succeed(store(bed, verb, &all), verb);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("store {verb} prints no JSON ({e}): {said}"))
}

fn fill(bed: &Testbed) {
    let args = [
        "--rw",
        "randwrite",
        "--bs",
        "4k",
        "--iodepth",
        "16",
        "--runtime",
        "1",
        "--size",
        "8m",
        "--object-size",
        "256k",
    ];
    bed.ok("bench", &args);
}

#[test]
fn a_store_is_looked_at_checked_and_moved() {
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (first, second) = (elsewhere.path().join("first"), elsewhere.path().join("second"));
    let bed = up("1", &["--db-dir", first.to_str().expect("UTF-8")]);
    let at_first = fs::read_dir(&first).expect("a folder").count();
    assert_eq!(at_first, 1, "the database of one OSD");
    fill(&bed);
    // Not while it runs.
    let refused = store(&bed, "fsck", &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("osd.0 runs"));
    bed.ok("down", &[]);

    let label = store_json(&bed, "show-label", &[]);
    assert_eq!(label["label"], label["copy"]);
    assert_eq!((label["label"]["osd"].as_u64(), label["label"]["size"].as_u64()), (Some(0), Some(256 << 20)));
    let df = store_json(&bed, "df", &[]);
    let used = df["block"]["used"].as_u64().expect("a number");
    assert!(used >= 8 << 20 && df["db"]["used"].as_u64() > Some(0), "{df}");
    let fsck = store_json(&bed, "fsck", &["--deep"]);
    assert_eq!(fsck["error_count"], 0);
    assert_eq!(fsck["blocks"].as_u64().map(|blocks| blocks * 4096), Some(used), "accounting and scan");
    assert_eq!(fsck["blocks"], fsck["blocks_read"]);
    let dumped = succeed(store(&bed, "dump", &["--json"]), "dump");
    let lines: Vec<Value> = dumped.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        lines.iter().filter(|line| line.get("object").is_some()).count() as u64,
        fsck["objects"].as_u64().unwrap()
    );
    let bytes = lines.iter().filter_map(|line| line["extents"].as_array()).flatten();
    assert_eq!(bytes.map(|extent| extent[2].as_u64().unwrap()).sum::<u64>(), used);

    let moved = store_json(&bed, "migrate-db", &["--to", second.to_str().expect("UTF-8")]);
    assert!(moved["files"].as_u64() > Some(2), "{moved}");
    assert_eq!(fs::read_dir(&first).expect("a folder").count(), 0, "the old place is empty");
    bed.ok("up", &["--overprovisioned"]);
    fill(&bed);
    // The running process has nothing open at the old place, and its database at the new one.
    let open = open_files(bed.pid("osd.0").expect("it runs"));
    assert!(!open.iter().any(|path| Path::new(path).starts_with(&first)), "{open:?}");
    assert!(open.iter().any(|path| Path::new(path).starts_with(&second)), "{open:?}");
    assert_eq!(fs::read_dir(&first).expect("a folder").count(), 0, "the old place stays empty");
    if installed("ceph", "ceph-common") {
        let conf = bed.dir().join("ceph.conf");
        let args = ["-c", conf.to_str().expect("UTF-8"), "osd", "metadata", "0"];
        let said = succeed(
            carmine_tests::run(Path::new("ceph"), &args, std::time::Duration::from_secs(30)),
            "metadata",
        );
        let metadata: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(metadata["bluefs_db_path"].as_str().map(Path::new), Some(second.as_path()), "{said}");
        for part in ["bluestore_bdev", "bluefs_wal", "bluefs_db"] {
            let drive = metadata[format!("{part}_devices")].as_str();
            assert!(drive.is_some_and(|drive| !drive.is_empty()), "{part}: {said}");
        }
        let known =
            ["flush_mode", "flush_mode_forced", "bluefs_dedicated_wal"].map(|key| metadata[key].as_str());
        assert_eq!(known, [Some("flush"), Some("0"), Some("0")], "{said}");
    }
    bed.ok("down", &[]);
    assert_eq!(store_json(&bed, "fsck", &["--deep"])["error_count"], 0);
    bed.ok("destroy", &[]);
    assert!(!second.exists(), "the database goes with its testbed");
}

fn open_files(pid: i32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).map(|path| path.display().to_string()).collect()
}

/// Where the first extent of an object of this name lies on an OSD.
fn place(bed: &Testbed, osd: &str, name: &str) -> Option<u64> {
    let dumped = succeed(store(bed, "dump", &["--json", "--osd", osd]), "dump");
    let lines = dumped.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| line["object"].as_str().is_some_and(|object| object.contains(name)));
    found.next()?["extents"][0][1].as_u64()
}

fn flip(bed: &Testbed, osd: &str, at: u64) {
    let path = bed.dir().join(format!("osd.{osd}/block"));
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("a block file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 4], at).expect("a write");
    file.sync_all().expect("a flush");
}

#[test]
fn a_damaged_block_is_never_seen_by_a_stock_client_and_fsck_finds_it() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = up("2", &["--size", "2"]);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&original, &bytes).expect("a file");
    bed.rados_ok(&["put", "precious", original.to_str().expect("UTF-8")]);
    bed.ok("down", &[]);
    // On both OSDs another block: whoever leads the PG meets one.
    for (osd, block) in [("0", 3), ("1", 7)] {
        let at = place(&bed, osd, "precious").expect("the object is there");
        flip(&bed, osd, at + block * 4096 + 99);
        let found = store(&bed, "fsck", &["--deep", "--osd", osd]);
        assert_eq!(found.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&found.stdout).contains("precious"), "fsck names the object");
    }
    bed.ok("up", &["--overprovisioned"]);
    bed.rados_ok(&["get", "precious", copy.to_str().expect("UTF-8")]);
    assert!(fs::read(&copy).expect("a file") == bytes);
    let metrics: u64 = ["0", "1"].iter().map(|osd| healed(&bed, osd)).sum();
    assert_eq!(metrics, 1, "one block is healed");
    bed.ok("down", &[]);
    let codes = ["0", "1"].map(|osd| store(&bed, "fsck", &["--deep", "--osd", osd]).status.code());
    assert!(codes.contains(&Some(0)), "the primary's copy is whole again: {codes:?}");
}

fn healed(bed: &Testbed, osd: &str) -> u64 {
    let said = bed.ok("admin", &["--osd", osd, r#"{"prefix":"dump_metrics"}"#]);
    let metrics: Value = serde_json::from_str(&said).expect("JSON");
    let shards = metrics["shards"].as_array().expect("shards");
    shards.iter().map(|shard| shard["osd"]["blocks_healed"].as_u64().expect("a number")).sum()
}
