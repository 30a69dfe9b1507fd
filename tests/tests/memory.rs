//! An OSD's memory stays inside its budget (`--osd-memory`), whatever is written and read: more objects than its cache holds,
//! a log that is full all the time, large writes. About 30 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads /proc

use carmine_tests::Testbed;
use carmine_tests::tools::ONE_BLUE;
use serde_json::Value;

const BUDGET_MIB: u64 = 256;

/// The most that a process ever had resident, MiB.
fn peak_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the OSD lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// Sum over the shards of something that an OSD counts of its store.
fn store(bed: &Testbed, name: &str) -> u64 {
    let said = bed.ok("admin", &["--osd", "0", r#"{"prefix": "dump_metrics"}"#]);
    let metrics: Value = serde_json::from_str(&said).expect("JSON");
    let shards = metrics["shards"].as_array().expect("shards");
    shards.iter().map(|shard| shard["store"][name].as_u64().expect("a number")).sum()
}

#[test]
fn an_osd_stays_inside_its_memory() {
    let budget = format!("{BUDGET_MIB}M");
    let options = ["--osd-memory", &budget, "--device-class", "hdd"];
    let bed = Testbed::up(&[ONE_BLUE, &options].concat());
    let load = |rw: &str, bs: &str, object: &str, depth: &str| {
        let args = ["--rw", rw, "--bs", bs, "--object-size", object, "--iodepth", depth, "--size", "200m"];
        bed.ok("bench", &[args.as_slice(), &["--runtime", "1"]].concat());
        println!(
            "{rw} of {bs} in objects of {object}, depth {depth}: at most {} MiB of {BUDGET_MIB}; onodes {} MiB",
            peak_mib(bed.pid("osd.0").expect("it runs")),
            store(&bed, "cache_bytes") >> 20
        );
    };
    load("randwrite", "4k", "4k", "128");
    load("randwrite", "1m", "4m", "32");
    assert!(store(&bed, "cache_misses") > 0 && store(&bed, "log_trims") > 0, "it had to let something go");
    let peak = peak_mib(bed.pid("osd.0").expect("it runs"));
    assert!(peak <= BUDGET_MIB, "{peak} MiB resident of {BUDGET_MIB}");
}
