//! `carmine store` on the stores of a real testbed: labels, space, checks, repairs, dumps, a database and a log that move; and
//! a damaged block on a real file, which a stock client never sees. About 40 s.
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
    assert!(String::from_utf8_lossy(&refused.stderr).contains("osd.0 is running"));
    bed.ok("down", &[]);

    let label = store_json(&bed, "show-label", &[]);
    assert_eq!(label["label"], label["copy"]);
    assert_eq!((label["label"]["osd"].as_u64(), label["label"]["size"].as_u64()), (Some(0), Some(256 << 20)));
    let df = store_json(&bed, "df", &[]);
    let [used, of_db] = ["used", "metadata"].map(|key| df["block"][key].as_u64().expect("a number"));
    // What the database takes is a part of the OSD's size, and lies elsewhere.
    assert!(of_db > 0, "{df}");
    let used = used - of_db;
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
    if let Some(metadata) = metadata(&bed) {
        assert_eq!(metadata["bluefs_db_path"].as_str().map(Path::new), Some(second.as_path()), "{metadata}");
        for part in ["bluestore_bdev", "bluefs_wal", "bluefs_db"] {
            let drive = metadata[format!("{part}_devices")].as_str();
            assert!(drive.is_some_and(|drive| !drive.is_empty()), "{part}: {metadata}");
        }
        let known =
            ["flush_mode", "flush_mode_forced", "bluefs_dedicated_wal"].map(|key| metadata[key].as_str());
        assert_eq!(known, [Some("flush"), Some("0"), Some("0")], "{metadata}");
    }
    bed.ok("down", &[]);
    assert_eq!(store_json(&bed, "fsck", &["--deep"])["error_count"], 0);
    bed.ok("destroy", &[]);
    assert!(!second.exists(), "the database goes with its testbed");
}

#[test]
fn a_log_has_a_place_of_its_own_and_gets_another_one() {
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let root = elsewhere.path().canonicalize().expect("a folder");
    let (first, second) = (root.join("first"), root.join("second"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let bed = up("1", &["--wal-dev", &text(&first)]);
    let open_ones = || open_files(bed.pid("osd.0").expect("it runs"));
    assert!(open_ones().contains(&text(&first)), "{:?}", open_ones());
    fill(&bed);
    bed.ok("down", &[]);
    let label = store_json(&bed, "show-label", &[]);
    assert_eq!((label["wal"].as_str(), label["dedicated_wal"].as_bool()), (first.to_str(), Some(true)));
    // Without it there is no store.
    let hidden = root.join("hidden");
    fs::rename(&first, &hidden).expect("a file");
    let said = store(&bed, "fsck", &[]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("its log lies on a device of its own") && said.contains(&text(&first)), "{said}");
    fs::rename(&hidden, &first).expect("a file");

    // A place where something is; then another.
    fs::write(&hidden, b"precious").expect("a file");
    let refused = store(&bed, "migrate-wal", &["--to", &text(&hidden)]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("not empty"));
    assert_eq!(fs::read(&hidden).expect("a file"), b"precious");
    let refused = store(&bed, "new-wal", &["--dev", &text(&second)]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("take migrate-wal"));
    let moved = store_json(&bed, "migrate-wal", &["--to", &text(&second)]);
    assert_eq!((moved["from"].as_str(), moved["to"].as_str()), (first.to_str(), second.to_str()));
    assert!(!first.exists(), "the old file is removed");
    bed.ok("up", &["--overprovisioned"]);
    fill(&bed);
    assert!(open_ones().contains(&text(&second)), "{:?}", open_ones());
    if let Some(metadata) = metadata(&bed) {
        let told = ["bluefs_dedicated_wal", "bluefs_wal_path"].map(|key| metadata[key].as_str());
        assert_eq!(told, [Some("1"), second.to_str()], "{metadata}");
    }
    bed.ok("down", &[]);
    assert_eq!(store_json(&bed, "fsck", &["--deep"])["error_count"], 0);

    // Beside the data, and away again; both grow.
    let moved = store_json(&bed, "migrate-wal", &[]);
    assert_eq!(moved["from"].as_str(), second.to_str());
    assert!(
        !second.exists() && moved["to"].as_str().is_some_and(|to| to.ends_with("osd.0/block")),
        "{moved}"
    );
    store_json(&bed, "new-wal", &["--dev", &text(&second), "--size", "16M"]);
    let df = store_json(&bed, "df", &[]);
    assert_eq!((df["wal"]["path"].as_str(), df["wal"]["dedicated"].as_bool()), (second.to_str(), Some(true)));
    let grow = |path: &Path, bytes: u64| {
        fs::OpenOptions::new().write(true).open(path).expect("a file").set_len(bytes).expect("it grows");
    };
    grow(&bed.dir().join("osd.0/block"), 300 << 20);
    grow(&second, 32 << 20);
    let expanded = store_json(&bed, "expand", &[]);
    assert_eq!(
        (expanded["block"]["to"].as_u64(), expanded["wal"]["to"].as_u64()),
        (Some(300 << 20), Some(32 << 20))
    );
    assert!(store_json(&bed, "df", &[])["block"]["total"].as_u64() > Some(280 << 20));
    bed.ok("up", &["--overprovisioned"]);
    fill(&bed);
    bed.ok("down", &[]);
    assert_eq!(store_json(&bed, "fsck", &["--deep"])["error_count"], 0);
    bed.ok("destroy", &[]);
    assert!(!second.exists(), "the log goes with its testbed");
}

#[test]
fn fsck_repairs_labels() {
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let wal = elsewhere.path().join("wal");
    let bed = up("1", &["--wal-dev", wal.to_str().expect("UTF-8")]);
    fill(&bed);
    bed.ok("down", &[]);
    let block = bed.dir().join("osd.0/block");
    let last = (256 << 20) - 4096;
    for (path, at, words) in
        [(&block, 30, "label in block 0"), (&block, last + 30, "copy of the label"), (&wal, 30, "the log")]
    {
        flip_in(path, at);
        let shown = store(&bed, "show-label", &[]);
        assert_eq!(shown.status.code(), Some(i32::from(path == &block)), "a damaged label is told");
        let repaired = store_json(&bed, "fsck", &["--repair", "--deep"]);
        assert_eq!(repaired["error_count"], 0);
        assert!(repaired["repaired"].to_string().contains(words), "{repaired}");
        assert_eq!(store(&bed, "show-label", &[]).status.code(), Some(0));
        assert_eq!(store_json(&bed, "fsck", &["--repair"])["repaired"].as_array().map(Vec::len), Some(0));
    }
    // Both: there is nothing to repair it from.
    flip_in(&block, 30);
    flip_in(&block, last + 30);
    let refused = store(&bed, "fsck", &["--repair"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("damaged"));
}

/// The answer of `ceph osd metadata 0`; `None` without that tool.
fn metadata(bed: &Testbed) -> Option<Value> {
    if !installed("ceph", "ceph-common") {
        return None;
    }
    let conf = bed.dir().join("ceph.conf");
    let args = ["-c", conf.to_str().expect("UTF-8"), "osd", "metadata", "0"];
    let said =
        succeed(carmine_tests::run(Path::new("ceph"), &args, std::time::Duration::from_secs(30)), "metadata");
    Some(serde_json::from_str(&said).expect("JSON"))
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
    flip_in(&bed.dir().join(format!("osd.{osd}/block")), at);
}

fn flip_in(path: &Path, at: u64) {
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
