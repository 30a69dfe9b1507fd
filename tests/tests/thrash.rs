//! `carmine thrash` and `carmine sim`: short forms of the long runs. About 80 s.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes

use std::time::Duration;

use carmine_tests::tools::FOUR_BLUE;
use carmine_tests::{Background, Testbed, carmine_bin, kill_nine, run, succeed};
use serde_json::Value;

#[test]
fn a_thrashed_testbed_loses_nothing() {
    let bed = Testbed::up_alone(&[FOUR_BLUE, &["--osd-size", "512M"]].concat());
    let said = bed.ok("thrash", &["--runtime", "15s", "--seed", "3", "--json"]);
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["problems"], Value::Array(Vec::new()), "{said}");
    assert!(report["faults"].as_array().is_some_and(|faults| faults.len() > 5), "{said}");
    assert!(
        report["blocks_checked"].as_u64() > Some(1000) && report["pgs_scrubbed"].as_u64() >= Some(16),
        "{said}"
    );
    assert!(report["pauses"].as_array().is_some_and(|rows| !rows.is_empty()), "{said}");
    assert!(bed.ok("status", &[]).contains("running"));
}

#[test]
fn a_testbed_survives_cut_connections_failing_files_and_full_drives() {
    let bed = Testbed::up_alone(&[FOUR_BLUE, &["--osd-size", "512M"]].concat());
    let out = bed.run("thrash", &["--runtime", "15s", "--seed", "4", "--faults", "cut,file,full", "--json"]);
    // Only root may cut connections of others, and not on every kernel.
    let refused = String::from_utf8_lossy(&out.stderr).contains("--faults cut: connections cannot be cut");
    let out = match refused {
        true => bed.run("thrash", &["--runtime", "15s", "--seed", "4", "--faults", "file,full", "--json"]),
        false => out,
    };
    let said = succeed(out, "carmine thrash");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["problems"], Value::Array(Vec::new()), "{said}");
    assert!(report["blocks_checked"].as_u64() > Some(1000) && report["pgs_scrubbed"] == 32, "{said}");
    let told: Vec<&str> =
        report["faults"].as_array().into_iter().flatten().filter_map(|told| told["what"].as_str()).collect();
    let were_made = |words: &str| told.iter().any(|what| what.contains(words));
    assert!(were_made("the files of osd.") && were_made("the drives have room"), "{said}");
    assert!(refused || were_made(" connections of osd."), "{said}");
    assert!(!were_made("kill"), "{said}");
    assert!(bed.ok("status", &[]).contains("running"));
}

#[test]
fn a_kind_of_fault_that_is_impossible_is_refused() {
    let bed = Testbed::up(&["--osds", "2", "--store", "cyan", "--pgs", "8", "--overprovisioned"]);
    let refused = |kinds: &str| {
        let out = bed.run("thrash", &["--runtime", "1s", "--faults", kinds]);
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(refused("kill,file").contains("--faults file: store cyan has no files"));
    assert!(refused("kil").contains("`kil` is no fault; take kill, stop,"));
}

#[test]
fn a_thrash_sees_an_osd_that_ends_by_itself_and_starts_it_again() {
    let bed = Testbed::up(&[FOUR_BLUE, &["--osd-size", "512M"]].concat());
    let thrash = Background::start(&bed, "thrash", &["--runtime", "60s", "--seed", "1"]);
    std::thread::sleep(Duration::from_secs(3));
    // Not by the thrash: it must not take it for its own deed.
    let kill = |osd: u32| bed.pid(&format!("osd.{osd}")).is_some_and(|pid| kill_nine(&[pid]) == 1);
    assert!((0..4).any(kill));
    let out = thrash.wait(Duration::from_secs(400));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!out.status.success() && said.contains("ended by itself"), "{said}");
    assert!(bed.ok("status", &[]).contains("running"), "it is healed");
}

#[test]
fn a_thrash_refuses_a_testbed_that_is_not_clean() {
    let bed = Testbed::up(&[FOUR_BLUE, &["--osd-size", "512M"]].concat());
    assert_eq!(kill_nine(&[bed.pid("osd.2").expect("a record")]), 1);
    let out = bed.run("thrash", &["--runtime", "5s"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("osd.2 is dead"), "{said}");
}

#[test]
fn seeds_run_from_the_command_line() {
    let sim = |args: &[&str]| run(&carmine_bin(), &[&["sim"], args].concat(), Duration::from_secs(400));
    let said = succeed(sim(&["--seeds", "0..4", "--json"]), "carmine sim");
    let sum: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&sum["seeds"], &sum["failed"]), (&4.into(), &0.into()), "{said}");
    let one = succeed(sim(&["--seed", "2"]), "carmine sim --seed 2");
    assert!(one.contains("seed 2 passed") && one.contains("everything is healed"), "{one}");
    assert_eq!(sim(&["--seeds", "4..4"]).status.code(), Some(2));
}
