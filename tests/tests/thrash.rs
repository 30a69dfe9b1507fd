//! `carmine thrash` and `carmine sim`: short forms of the long runs. About 60 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes

use std::time::Duration;

use carmine_tests::{Background, Testbed, carmine_bin, kill_nine, run, succeed};
use serde_json::Value;

const FOUR_BLUE: &[&str] = &[
    "--osds",
    "4",
    "--size",
    "3",
    "--store",
    "blue",
    "--osd-size",
    "512M",
    "--sparse",
    "--overprovisioned",
    "--pgs",
    "32",
    "--osd-heartbeat-grace",
    "4",
    "--osd-heartbeat-interval",
    "1",
];

#[test]
fn a_thrashed_testbed_loses_nothing() {
    let bed = Testbed::up_alone(FOUR_BLUE);
    let said = bed.ok("thrash", &["--runtime", "20s", "--seed", "3", "--json"]);
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["problems"], Value::Array(Vec::new()), "{said}");
    assert!(report["faults"].as_array().is_some_and(|faults| faults.len() > 5), "{said}");
    assert!(report["blocks_checked"].as_u64() > Some(1000) && report["pgs_scrubbed"] == 32, "{said}");
    assert!(report["pauses"].as_array().is_some_and(|rows| !rows.is_empty()), "{said}");
    assert!(bed.ok("status", &[]).contains("running"));
}

#[test]
fn a_thrash_sees_an_osd_that_ends_by_itself_and_starts_it_again() {
    let bed = Testbed::up(FOUR_BLUE);
    let thrash = Background::start(&bed, "thrash", &["--runtime", "60s", "--seed", "1"]);
    std::thread::sleep(Duration::from_secs(3));
    // Not by the thrash: it must not take it for its own deed.
    let kill = |osd: u32| bed.pid(&format!("osd.{osd}")).is_some_and(|pid| kill_nine(&[pid]) == 1);
    assert!((0..4).any(kill));
    let out = thrash.wait(Duration::from_secs(90));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!out.status.success() && said.contains("ended by itself"), "{said}");
    assert!(bed.ok("status", &[]).contains("running"), "it is healed");
}

#[test]
fn a_thrash_refuses_a_testbed_that_is_not_clean() {
    let bed = Testbed::up(FOUR_BLUE);
    assert_eq!(kill_nine(&[bed.pid("osd.2").expect("a record")]), 1);
    let out = bed.run("thrash", &["--runtime", "5s"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("osd.2 is dead"), "{said}");
}

#[test]
fn seeds_run_from_the_command_line() {
    let sim = |args: &[&str]| run(&carmine_bin(), &[&["sim"], args].concat(), Duration::from_secs(120));
    let said = succeed(sim(&["--seeds", "0..4", "--json"]), "carmine sim");
    let sum: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&sum["seeds"], &sum["failed"]), (&4.into(), &0.into()), "{said}");
    let one = succeed(sim(&["--seed", "2"]), "carmine sim --seed 2");
    assert!(one.contains("seed 2 passed") && one.contains("everything is healed"), "{one}");
    assert_eq!(sim(&["--seeds", "4..4"]).status.code(), Some(2));
}
