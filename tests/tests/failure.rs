//! How it is found out that an OSD died or hangs, and that one is only busy.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::process::Command;
use std::time::{Duration, Instant};

use carmine_tests::tools::THREE_CYAN;
use carmine_tests::{Testbed, kill_nine};

/// The monitor's log.
fn log(bed: &Testbed) -> String {
    std::fs::read_to_string(bed.dir().join("mon.log")).expect("the monitor has a log")
}

/// Waits until the monitor has logged this since `from`; the time that it took.
fn wait_for(bed: &Testbed, from: usize, what: &str, limit: Duration) -> Duration {
    let began = Instant::now();
    while !log(bed)[from..].contains(what) {
        assert!(began.elapsed() < limit, "no {what:?} within {limit:?}: {}", &log(bed)[from..]);
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}

fn signal(bed: &Testbed, daemon: &str, name: &str) {
    let pid = bed.pid(daemon).expect("a record").to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
}

#[test]
fn a_killed_osd_is_down_within_a_second() {
    let bed = Testbed::up(THREE_CYAN);
    std::thread::sleep(Duration::from_secs(1));
    let from = log(&bed).len();
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("a record")]), 1);
    let took = wait_for(&bed, from, ": Down { osd: OsdId(1)", Duration::from_secs(5));
    println!("down after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(log(&bed)[from..].contains("says that osd.1 is gone"));
}

#[test]
fn an_osd_that_ends_says_goodbye() {
    let bed = Testbed::up(THREE_CYAN);
    let from = log(&bed).len();
    signal(&bed, "osd.1", "-TERM");
    wait_for(&bed, from, ": Down { osd: OsdId(1)", Duration::from_secs(5));
    assert!(log(&bed)[from..].contains("osd.1 says goodbye"), "{}", &log(&bed)[from..]);
}

#[test]
fn a_stopped_osd_is_down_after_the_grace_and_up_again_when_it_goes_on() {
    let timing = ["--osd-heartbeat-grace", "4", "--osd-heartbeat-interval", "1"];
    let bed = Testbed::up(&[THREE_CYAN, &timing].concat());
    std::thread::sleep(Duration::from_secs(1));
    let from = log(&bed).len();
    signal(&bed, "osd.1", "-STOP");
    let took = wait_for(&bed, from, ": Down { osd: OsdId(1)", Duration::from_secs(20));
    println!("down after {took:?}");
    assert!((2.0..6.0).contains(&took.as_secs_f64()), "{took:?}");
    signal(&bed, "osd.1", "-CONT");
    wait_for(&bed, from, ": Boot { osd: OsdId(1)", Duration::from_secs(10));
    // It blames nobody for the time in which it did not run.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!log(&bed)[from..].contains("osd.1 says"), "{}", &log(&bed)[from..]);
}

/// A minute of as much load as three OSDs on shared CPUs take, with a grace of a fifth of Ceph's.
#[test]
fn a_busy_osd_is_not_called_down() {
    let timing = ["--osd-heartbeat-grace", "4", "--osd-heartbeat-interval", "1"];
    let bed = Testbed::up_alone(&[THREE_CYAN, &timing].concat());
    let from = log(&bed).len();
    let load = ["--rw", "randwrite", "--iodepth", "64", "--bs", "4k", "--size", "64m", "--runtime", "60"];
    bed.ok("bench", &load);
    let said = &log(&bed)[from..];
    for word in ["has not answered", "is gone", "Down {", "MarkDown {"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
}
