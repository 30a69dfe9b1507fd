//! `carmine store bench` with real files and the real RocksDB, and the check of the published notes that tells where the log
//! of an OSD is: `ceph tell osd.0 bench` with writes of 64 KiB and of 4 KiB. About 20 s.
#![allow(clippy::disallowed_methods)] // starts processes and reads files

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use carmine_tests::tools::ONE_BLUE;
use carmine_tests::{Testbed, carmine_bin, installed, run, succeed};
use serde_json::Value;

/// Operations that a row needs so that its figures mean something.
const OPERATIONS: f64 = 100.0;

/// `carmine store bench ARGS` on a small store in a folder of the build's disk; its output and its JSON. A slow disk has longer windows.
fn bench(args: &[&str]) -> (String, Value) {
    for runtime_s in [0.3, 3.0, 30.0] {
        let (said, result) = bench_for(runtime_s, args);
        let rows = result["rows"].as_array().expect("rows");
        if rows.iter().all(|row| number(row, "iops") * runtime_s >= OPERATIONS) {
            return (said, result);
        }
    }
    panic!("a disk with fewer than {OPERATIONS} operations in 30 s: {args:?}");
}

fn bench_for(runtime_s: f64, args: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let json = folder.path().join("result.json");
    let (dir, file) = (folder.path().to_str().expect("UTF-8"), json.to_str().expect("UTF-8"));
    let mut all = vec!["--dir", dir, "--json", file, "--store-size", "64m", "--size", "8m"];
    let runtime = format!("{}ms", runtime_s * 1e3);
    all.extend(["--runtime", &runtime, "--ramp", "100ms"]);
    all.extend(args);
    let said = succeed(store_bench(&all), &format!("store bench {args:?}"));
    let text = std::fs::read_to_string(&json).expect("a result");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 1, "only the result is left");
    (said, serde_json::from_str(&text).expect("JSON"))
}

fn store_bench(args: &[&str]) -> Output {
    let mut all = vec!["store", "bench"];
    all.extend(args);
    run(&carmine_bin(), &all, Duration::from_secs(300))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
}

#[test]
fn every_load_has_a_row_and_the_result_says_what_the_store_lies_on() {
    let (said, result) = bench(&["--rw", "randwrite,randread", "--bs", "4k", "--iodepth", "1,16"]);
    let rows = result["rows"].as_array().expect("rows");
    let kinds: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| (row["rw"].as_str().expect("rw"), row["iodepth"].as_u64().expect("iodepth")))
        .collect();
    assert_eq!(kinds, [("randwrite", 1), ("randwrite", 16), ("randread", 1), ("randread", 16)]);
    for row in rows {
        for key in ["iops", "mean_us", "p99_us", "process_us", "iops_per_core_used", "enters_per_op"] {
            assert!(number(row, key) > 0.0, "{key}: {row}");
        }
        let writes = row["rw"] == "randwrite";
        for key in ["flushes_per_op", "log_per_byte", "written_per_byte", "device_writes_per_op"] {
            assert_eq!(number(row, key) > 0.0, writes, "{key}: {row}");
        }
    }
    // Data goes to its place once, metadata to the log.
    assert!(number(&rows[1], "written_per_byte") > 1.0 && number(&rows[1], "log_per_byte") < 1.5, "{rows:?}");
    let on = &result["on"];
    assert_eq!(
        (&result["store"], &on["flush_mode"], &on["flush_forced"]),
        (&"blue".into(), &"flush".into(), &false.into())
    );
    assert_eq!((&on["data"], &on["log"]), (&on["log"], &on["data"]), "the log lies with the data");
    assert!(on["db"]["path"].as_str().is_some_and(|path| path.ends_with("/db")), "{on}");
    assert!(on["flush_reason"].as_str().is_some_and(|why| why.contains("is a file")), "{on}");
    // The table has the same.
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert!(lines[0].contains("data and log on ") && lines[0].contains("RocksDB on "), "{said}");
    assert!(lines[0].contains("flush mode flush;"), "{said}");
    assert!(lines[2].contains(&format!("{:.0}", number(&rows[0], "iops"))), "{said}");
}

#[test]
fn a_forced_flush_mode_is_followed_and_said() {
    let load = ["--rw", "randwrite", "--iodepth", "8", "--kv", "memory", "--flush-mode"];
    let flushes = |mode: &str| {
        let (said, result) = bench(&[load.as_slice(), &[mode]].concat());
        assert!(said.contains(&format!("flush mode {mode}, forced")), "{said}");
        assert_eq!(
            (&result["on"]["flush_mode"], &result["on"]["flush_forced"]),
            (&mode.into(), &true.into())
        );
        assert!(result["on"]["db"].is_null() && said.contains("metadata in memory"), "{said}");
        let row = &result["rows"][0];
        (number(row, "flushes_per_op"), number(row, "device_writes_per_op") + number(row, "groups_per_op"))
    };
    assert_eq!(flushes("none").0, 0.0);
    assert!(flushes("flush").0 < 1.0, "many writes share one");
    let (dsync, writes) = flushes("dsync");
    assert!((dsync / writes - 1.0).abs() < 0.1, "each write of data and of the log: {dsync} {writes}");
}

#[test]
fn what_is_deferred_goes_into_the_log_and_to_its_place() {
    let load = ["--rw", "randwrite", "--iodepth", "16", "--bs", "4k", "--kv", "memory"];
    let (_, result) = bench(&[load.as_slice(), &["--device-class", "hdd", "--discard"]].concat());
    let on = &result["on"];
    assert_eq!((&on["device_class"], &on["device_class_forced"]), (&"hdd".into(), &true.into()));
    assert_eq!((on["prefer_deferred_bytes"].as_u64(), &on["discard"]), (Some(65_536), &true.into()));
    let row = &result["rows"][0];
    assert!(number(row, "log_per_byte") > 1.0 && number(row, "deferred_per_op") > 0.9, "{row}");
    let groups = number(row, "groups_per_op");
    assert!(groups > 0.0 && groups <= 1.1 && number(row, "log_waits_per_op") <= groups, "{row}");
    let (_, result) = bench(&[load.as_slice(), &["--prefer-deferred-size", "0"]].concat());
    let row = &result["rows"][0];
    assert!(number(row, "log_per_byte") < 1.0 && number(row, "deferred_per_op") == 0.0, "{row}");
}

carmine_testkit::measures!(compactions_have_cpu_beside_their_windows_only);

#[test]
fn compactions_run_beside_every_other_window_only() {
    compactions();
}

fn compactions_have_cpu_beside_their_windows_only() {
    let rows = compactions();
    // On a busy drive a window may have too few writes to feed anything.
    assert!(rows.iter().all(|row| number(row, "feeder_us") > 0.0), "{rows:?}");
    let merging: Vec<f64> = rows.iter().map(|row| number(row, "compaction_us")).collect();
    assert!(merging[1].min(merging[2]) > merging[0].max(merging[3]), "{merging:?}");
}

/// Rows of windows of which two have compactions beside them.
fn compactions() -> Vec<Value> {
    let (said, result) = bench(&["--rw", "randwrite", "--iodepth", "16", "--compaction", "16m"]);
    let rows = result["rows"].as_array().expect("rows");
    let compacting: Vec<bool> = rows.iter().map(|row| row["compacting"] == true).collect();
    assert_eq!(compacting, [false, true, true, false]);
    assert_eq!(said.matches("  compacting").count(), 2, "{said}");
    for row in rows {
        assert!(number(row, "compaction_us") <= number(row, "rocksdb_us"), "{row}");
    }
    rows.clone()
}

#[test]
fn what_cannot_be_asked_for_is_named() {
    for (args, part) in [
        (["--store", "cyan", "--flush-mode", "none"].as_slice(), "the store cyan uses no device"),
        (&["--flush-mode", "never"], "never"),
        (&["--device-class", "tape"], "tape"),
        (&["--discard=perhaps"], "on or off"),
        (&["--dir", "/not/there"], "/not/there"),
        (&["--kv", "memory", "--compaction"], "--kv rocks"),
    ] {
        let refused = store_bench(args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(part), "{args:?}: {said}");
    }
}

/// Names and CPUs of a process's threads.
fn threads(pid: i32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten();
    let thread = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field =
            |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        Some((field("Name:")?, field("Cpus_allowed_list:")?))
    };
    tasks.filter_map(thread).collect()
}

/// RocksDB's threads, which merge and flush tables, have the aliens' CPUs and never a reactor's. About 3 s.
#[test]
fn rocksdb_s_threads_run_where_the_aliens_do() {
    let cpus = ["--cpus", "0", "--alien-cpus", "1", "--client-cpus", "1", "--overprovisioned"];
    let store = ["--osds", "1", "--size", "1", "--reactors", "1", "--osd-size", "256M", "--sparse"];
    let bed = Testbed::up(&[&store[..], &cpus].concat());
    let threads = threads(bed.pid("osd.0").expect("it runs"));
    let on = |prefix: &str| {
        let named = threads.iter().filter(|(name, _)| name.starts_with(prefix));
        let cpus: Vec<&str> = named.map(|(_, cpus)| cpus.as_str()).collect();
        assert!(!cpus.is_empty(), "no {prefix}: {threads:?}");
        cpus
    };
    assert_eq!(on("osd.0-0"), ["0"], "the reactor");
    for prefix in ["osd.0-alien", "rocksdb:high", "rocksdb:low"] {
        assert!(on(prefix).iter().all(|cpus| *cpus == "1"), "{threads:?}");
    }
}

/// A counter of an OSD's store, which its live metrics have as well.
fn counter(bed: &Testbed, name: &str) -> u64 {
    let said = bed.ok("admin", &["--osd", "0", r#"{"prefix": "dump_metrics"}"#]);
    let metrics: Value = serde_json::from_str(&said).expect("JSON");
    let live = metrics["metrics"].as_array().expect("metrics");
    assert!(live.iter().any(|metric| metric.get(format!("store_{name}")).is_some()), "{name}: {said}");
    let shards = metrics["shards"].as_array().expect("shards");
    shards.iter().map(|shard| shard["store"][name].as_u64().expect("a counter")).sum()
}

/// Bytes of `tell osd.0 bench`.
const COUNT: u64 = 8 << 20;

fn tell_bench(bed: &Testbed, write_bytes: u64) {
    if installed("ceph", "ceph-common") {
        let conf = bed.dir().join("ceph.conf");
        let (count, size) = (COUNT.to_string(), write_bytes.to_string());
        let args = ["-c", conf.to_str().expect("UTF-8"), "tell", "osd.0", "bench", &count, &size];
        succeed(run(Path::new("ceph"), &args, Duration::from_secs(240)), "tell osd.0 bench");
    } else {
        let question = format!(r#"{{"prefix": "bench", "count": {COUNT}, "size": {write_bytes}}}"#);
        bed.ok("admin", &["--osd", "0", &question]);
    }
}

/// Bytes that went into the log for each byte of `tell osd.0 bench`.
fn logged(bed: &Testbed, write_bytes: u64) -> f64 {
    let before = counter(bed, "log_bytes");
    tell_bench(bed, write_bytes);
    (counter(bed, "log_bytes") - before) as f64 / COUNT as f64
}

/// The part of an OSD's transactions whose data went into the log: on flash those that came one after another.
fn deferred_part(bed: &Testbed) -> f64 {
    counter(bed, "deferred_txns") as f64 / counter(bed, "txns") as f64
}

/// As with BlueStore: on a drive that rotates, 4 KiB writes (below `prefer_deferred_size`) are in the log before they are
/// acknowledged and 64 KiB writes are not, so the first ones tell how fast the log's drive is and the others how fast the
/// data's. On flash the data of neither is in the log, but for what comes one after another.
#[test]
fn the_size_of_writes_tells_where_the_log_is() {
    let bed = Testbed::up(&[
        "--osds",
        "1",
        "--osd-size",
        "256M",
        "--sparse",
        "--overprovisioned",
        "--pgs",
        "32",
        "--device-class",
        "hdd",
    ]);
    let (small, large) = (logged(&bed, 4 << 10), logged(&bed, 64 << 10));
    println!("hdd: {small:.3} bytes into the log for each byte of 4 KiB writes, {large:.3} of 64 KiB");
    assert!(small > 1.0 && large < 0.2, "{small} {large}");
    bed.ok("down", &[]);
    bed.ok("up", &["--overprovisioned", "--device-class", "ssd"]);
    let (small, large) = (logged(&bed, 4 << 10), logged(&bed, 64 << 10));
    println!("ssd: {small:.3} bytes into the log for each byte of 4 KiB writes, {large:.3} of 64 KiB");
    assert!(deferred_part(&bed) < 0.1);
    assert!(large < 0.2, "{large}");
}

/// Bytes of a file in 4 KiB blocks that `tell osd.0 bench` changes, for each byte of it.
fn changed(bed: &Testbed, write_bytes: u64, file: &Path) -> f64 {
    let before = std::fs::read(file).expect("a file");
    tell_bench(bed, write_bytes);
    let after = std::fs::read(file).expect("a file");
    assert_eq!(before.len(), after.len());
    let blocks =
        before.chunks(4096).zip(after.chunks(4096)).filter(|(before, after)| before != after).count();
    (blocks * 4096) as f64 / COUNT as f64
}

/// The same, seen from the outside: the bytes of the log's own device change, and with 4 KiB writes of a drive that rotates all
/// data is among them.
#[test]
fn the_size_of_writes_tells_of_a_log_of_its_own_too() {
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let wal = elsewhere.path().join("wal");
    let options = ["--device-class", "hdd", "--wal-dev", wal.to_str().expect("UTF-8")];
    let bed = Testbed::up(&[ONE_BLUE, &options].concat());
    let (small, large) = (changed(&bed, 4 << 10, &wal), changed(&bed, 64 << 10, &wal));
    println!(
        "hdd: {small:.3} bytes of the log's device change for each byte of 4 KiB writes, {large:.3} of 64 KiB"
    );
    assert!(small > 1.0 && large > 0.0 && large < 0.2, "{small} {large}");
    for name in ["log_bytes", "log_marks", "log_waits", "log_trims", "deferred_txns", "deferred_writes"] {
        println!("{name}: {}", counter(&bed, name));
    }
    bed.ok("down", &[]);
    bed.ok("up", &["--overprovisioned", "--device-class", "ssd"]);
    let (small, large) = (changed(&bed, 4 << 10, &wal), changed(&bed, 64 << 10, &wal));
    println!(
        "ssd: {small:.3} bytes of the log's device change for each byte of 4 KiB writes, {large:.3} of 64 KiB"
    );
    assert!(small > 0.0 && large > 0.0 && large < 0.2, "{small} {large}");
    assert!(deferred_part(&bed) < 0.1);
}
