//! How it is found out that an OSD died or hangs, and that one is only busy.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::time::{Duration, Instant};

use carmine_tests::tools::{FOUR_BLUE, FioRun, THREE_CYAN};
use carmine_tests::{Background, Testbed, carmine_bin, installed, kill_nine, run, succeed};

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
    carmine_tests::signal(&[bed.pid(daemon).expect("a record")], name);
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

/// fio's words for an image whose every block is written once, in about 50 s, and then compared.
const VERIFIED: &[&str] = &[
    "--name=t",
    "--ioengine=rbd",
    "--clientname=admin",
    "--pool=bench",
    "--rbdname=image",
    "--size=48m",
    "--bs=4k",
    "--rw=randwrite",
    "--iodepth=8",
    "--rate_iops=,250",
    "--verify=crc32c",
];

/// `rados bench` and fio on an image, which compares what it wrote, go on without an error whatever becomes of the OSDs.
#[test]
fn stock_clients_go_on_through_kill_stop_restart_out_and_in() {
    if !installed("rbd", "ceph-common") || !installed("fio", "fio") {
        return;
    }
    let bed = Testbed::up(&[FOUR_BLUE, &["--osd-size", "2G"]].concat());
    bed.rbd_ok(&["pool", "init", "bench"]);
    bed.rbd_ok(&["create", "--size", "48M", "image"]);
    let fio = Background::fio(&bed, VERIFIED);
    // Twice as long as the faults below take where nothing else runs.
    let objects = ["bench", "45", "write", "-b", "4096", "-t", "4", "--no-cleanup", "--run-name", "through"];
    let rados = Background::rados(&bed, &objects);
    let began = Instant::now();
    let pause = |seconds| std::thread::sleep(Duration::from_secs(seconds));
    pause(2);
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("a record")]), 1);
    pause(3);
    bed.ok("restart", &["--osd", "1"]);
    pause(2);
    // Longer than the grace: it is called down, and comes back.
    signal(&bed, "osd.2", "-STOP");
    pause(7);
    signal(&bed, "osd.2", "-CONT");
    pause(3);
    let dir = bed.dir();
    let words = ["osd", "restart", "0", "--reactors", "2", "--dir", dir.to_str().expect("UTF-8")];
    succeed(run(&carmine_bin(), &words, Duration::from_secs(60)), "carmine osd restart");
    pause(1);
    bed.ceph_ok(&["osd", "out", "3"]);
    pause(3);
    bed.ceph_ok(&["osd", "in", "3"]);
    let run = [fio.runs(), rados.runs()];
    assert_eq!(run, [true, true], "fio and rados bench are there for all of it: {:?}", began.elapsed());
    let limit = Duration::from_secs(120);
    let compared = FioRun::of(fio.wait(limit), VERIFIED);
    assert!(compared.is_good, "{}", compared.said);
    succeed(rados.wait(limit), "rados bench");
    // It compares what it reads.
    bed.rados_ok(&["bench", "5", "seq", "--run-name", "through"]);
}
