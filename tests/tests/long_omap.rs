//! Long omap values and long omaps under stock clients, with two copies: each write is answered, and so are those of another client
//! meanwhile. About 20 s.
#![allow(clippy::disallowed_methods)] // reads /proc

use std::path::Path;
use std::time::Duration;

use carmine_tests::{Testbed, run, skip, workspace_root};

/// Debian's: the one for which python3-rados is made.
const PYTHON: &str = "/usr/bin/python3";
const BUDGET_MIB: u64 = 512;
/// A transaction of this size is accepted whatever the budget is, and is in memory beside it.
const TXN_MIB: u64 = 156;

/// The most memory that a process has had.
fn peak_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

#[test]
fn long_omaps_are_replicated_and_keep_nobody_waiting() {
    let has_rados = Path::new(PYTHON).exists()
        && run(Path::new(PYTHON), &["-c", "import rados"], Duration::from_secs(30)).status.success();
    if !has_rados {
        return skip(format_args!("{PYTHON} cannot import rados: apt-get install python3-rados"));
    }
    let script = workspace_root().join("tests/tests/python/long_omap.py");
    let script = script.to_str().expect("UTF-8");
    let budget = format!("{BUDGET_MIB}M");
    let bed = Testbed::up(&[
        "--osds",
        "2",
        "--size",
        "2",
        "--store",
        "blue",
        "--sparse",
        "--pgs",
        "4",
        "--overprovisioned",
        "--osd-size",
        "2G",
        "--osd-memory",
        &budget,
    ]);
    let out = run(Path::new(PYTHON), &[script, &bed.conf(), "bench"], Duration::from_secs(500));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    println!("{said}");
    assert!(out.status.success() && said.ends_with("ok\n"), "{said}{}", String::from_utf8_lossy(&out.stderr));
    for osd in ["osd.0", "osd.1"] {
        let peak_mib = peak_mib(bed.pid(osd).expect("it runs"));
        println!("{osd}: peak resident memory {peak_mib} MiB of {BUDGET_MIB} and {TXN_MIB}");
        assert!(peak_mib <= BUDGET_MIB + TXN_MIB, "{peak_mib} MiB resident of {BUDGET_MIB} and {TXN_MIB}");
    }
}
