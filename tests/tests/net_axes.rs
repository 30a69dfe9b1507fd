//! The links of `--namespaces` as they are asked for: what is measured on them is what `up` was told.
#![allow(clippy::disallowed_methods)] // reads files

use std::path::Path;
use std::time::Duration;

use carmine_tests::hosts::can_make_networks;
use carmine_tests::{Testbed, run, succeed};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The smallest testbed with replication.
const SMALL: [&str; 9] =
    ["--namespaces", "--store", "cyan", "--osds", "2", "--pgs", "16", "--overprovisioned", "--sparse"];

/// Packets and bytes that an OSD has got and sent.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    packets: f64,
    bytes: f64,
}

/// The counters of an OSD's link, as its namespace has them.
fn traffic(bed: &Testbed, osd: u32) -> Traffic {
    let prefix = std::fs::read_to_string(bed.dir().join("run/network")).expect("the names' beginning");
    let namespace = format!("{}-osd.{osd}", prefix.trim());
    let words = ["-n", &namespace, "-s", "-j", "link", "show", "eth0"];
    let text = succeed(run(Path::new("ip"), &words, LIMIT), "ip link show");
    let shown: Value = serde_json::from_str(&text).expect("JSON of ip");
    let sum = |what: &str| {
        let both = ["rx", "tx"].map(|way| shown[0]["stats64"][way][what].as_f64().expect("a counter"));
        both.iter().sum()
    };
    Traffic { packets: sum("packets"), bytes: sum("bytes") }
}

/// Writes blocks of 1 MiB for a second; the mean length of the packets of osd.0 meanwhile.
fn mean_packet_bytes(bed: &Testbed) -> f64 {
    let before = traffic(bed, 0);
    bed.ok("bench", &["--rw", "write", "--bs", "1m", "--size", "64m", "--iodepth", "4", "--runtime", "1"]);
    let after = traffic(bed, 0);
    (after.bytes - before.bytes) / (after.packets - before.packets)
}

#[test]
fn packets_are_as_long_as_the_mtu_says() {
    if !can_make_networks() {
        return;
    }
    let bed = Testbed::up(&SMALL);
    let whole = mean_packet_bytes(&bed);
    assert!(whole > 9100.0, "without an MTU many segments go in one piece: {whole}");
    for (mtu, least) in [("1500", 800.0), ("9000", 3000.0)] {
        bed.ok("down", &[]);
        bed.ok("up", &["--net-mtu", mtu]);
        let mean = mean_packet_bytes(&bed);
        // A frame is 14 bytes longer than its packet.
        let most = mtu.parse::<f64>().expect("a number") + 14.0;
        assert!((least..=most).contains(&mean), "an MTU of {mtu}: {mean}");
    }
    bed.ok("down", &[]);
    bed.ok("up", &["--net-mtu", "0"]);
    let again = mean_packet_bytes(&bed);
    assert!(again > 9100.0, "the MTU is given up: {again}");
}

/// The result of writing blocks of this size.
fn measured(bed: &Testbed, block: &str, depth: &str) -> Value {
    let file = bed.dir().join("result.json");
    let path = file.to_str().expect("UTF-8");
    let load = ["--rw", "write", "--bs", block, "--iodepth", depth];
    bed.ok("bench", &[&load[..], &["--size", "64m", "--runtime", "3", "--json", path]].concat());
    let text = std::fs::read_to_string(&file).expect("a result");
    std::fs::remove_file(&file).expect("the folder has nothing else of ours");
    serde_json::from_str(&text).expect("JSON")
}

/// Bytes that a load writes in a second.
fn written_per_s(bed: &Testbed) -> f64 {
    measured(bed, "256k", "32")["jobs"][0]["write"]["bw_bytes"].as_f64().expect("bytes a second")
}

#[test]
fn a_link_carries_what_its_rate_allows() {
    const RATE: f64 = (20 << 20) as f64;
    if !can_make_networks() {
        return;
    }
    let bed = Testbed::up(&[&SMALL[..], &["--net-rate", "20m"]].concat());
    // With two copies each OSD gets every byte once: from a client, or from the primary.
    let limited = written_per_s(&bed);
    assert!((0.3 * RATE..=1.05 * RATE).contains(&limited), "{limited} of {RATE}");
    bed.ok("down", &[]);
    bed.ok("up", &["--net-rate", "0"]);
    let free = written_per_s(&bed);
    assert!(free > 1.2 * RATE, "without a limit: {free}");
}

#[test]
fn a_delay_is_paid_by_each_message() {
    const DELAY_MS: f64 = 2.0;
    if !can_make_networks() {
        return;
    }
    // The result, and the mean latency of a write.
    let write = |bed: &Testbed| {
        let result = measured(bed, "4k", "1");
        let mean_ns = result["jobs"][0]["write"]["clat_ns"]["mean"].as_f64().expect("a mean");
        (result, mean_ns / 1e6)
    };
    let bed = Testbed::up(&[&SMALL[..], &["--net-delay-us", "2000"]].concat());
    let relays = relay_pids(&bed);
    assert_eq!(relays.len(), 2, "one for each OSD");
    let status = bed.ok("status", &[]);
    let network = "network  a namespace for each daemon, 2000 us delay to and from each OSD, by a relay";
    assert!(status.contains(network), "{status}");
    let (result, mean_ms) = write(&bed);
    // To the primary and back is two links; to the replica and back are four: its own, and the primary's.
    assert!((6.0 * DELAY_MS..200.0 * DELAY_MS).contains(&mean_ms), "{mean_ms} ms");
    for relay in result["carmine"]["relay"].as_array().expect("relays") {
        let median_us = relay["median_us"].as_u64().expect("a median");
        // A busy machine is late.
        assert!((2000..100_000).contains(&median_us), "{relay}");
        assert!(relay["asked_us"] == 2000 && relay["dropped"] == 0, "{relay}");
        assert!(relay["frames"].as_u64() > Some(100) && relay["cpu_seconds"].as_f64() > Some(0.0), "{relay}");
    }
    bed.ok("down", &[]);
    // A process that has ended, but has not been waited for, has no command line any more.
    let runs = |pid: &u64| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(!relays.iter().any(runs), "they have ended");
    bed.ok("up", &["--net-delay-us", "0"]);
    let (result, mean_ms) = write(&bed);
    assert!(mean_ms < 6.0 * DELAY_MS, "without a delay: {mean_ms} ms");
    assert!(result["carmine"].get("relay").is_none());
    bed.ok("destroy", &[]);
    assert!(!bed.dir().exists(), "all files are gone");
}

fn relay_pids(bed: &Testbed) -> Vec<u64> {
    let record = |osd| std::fs::read_to_string(bed.dir().join(format!("run/relay.{osd}.json"))).ok();
    let records = (0..2).filter_map(record);
    records
        .map(|text| serde_json::from_str::<Value>(&text).expect("JSON")["pid"].as_u64().expect("a pid"))
        .collect()
}
