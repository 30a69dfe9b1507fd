//! How it is found out that an OSD died or hangs, and that one is only busy.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::time::{Duration, Instant};

use carmine_tests::tools::{FOUR_BLUE, FioRun, THREE_CYAN};
use carmine_tests::{Background, Testbed, carmine_bin, installed, kill_nine, run, succeed};

/// A busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(120);

fn signal(bed: &Testbed, daemon: &str, name: &str) {
    carmine_tests::signal(&[bed.pid(daemon).expect("a record")], name);
}

carmine_testkit::measures!(
    a_killed_osd_is_down_within_a_second,
    a_stopped_osd_is_down_soon_after_the_grace,
    a_busy_osd_is_not_called_down,
);

/// The time in which a killed OSD is down.
fn kill_one(bed: &Testbed) -> Duration {
    std::thread::sleep(Duration::from_secs(1));
    let from = bed.mon_log().len();
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("a record")]), 1);
    let took = bed.wait_for_mon_log(from, ": Down { osd: OsdId(1)", LIMIT);
    println!("down after {took:?}");
    assert!(bed.mon_log()[from..].contains("says that osd.1 is gone"));
    took
}

#[test]
fn a_killed_osd_is_missed_by_its_connections() {
    kill_one(&Testbed::up(THREE_CYAN));
}

fn a_killed_osd_is_down_within_a_second() {
    let took = kill_one(&Testbed::up_alone(THREE_CYAN));
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn an_osd_that_ends_says_goodbye() {
    let bed = Testbed::up(THREE_CYAN);
    let from = bed.mon_log().len();
    signal(&bed, "osd.1", "-TERM");
    bed.wait_for_mon_log(from, ": Down { osd: OsdId(1)", LIMIT);
    assert!(bed.mon_log()[from..].contains("osd.1 says goodbye"), "{}", &bed.mon_log()[from..]);
}

/// A grace of a fifth of Ceph's.
const SHORT_GRACE: [&str; 4] = ["--osd-heartbeat-grace", "4", "--osd-heartbeat-interval", "1"];

/// Stops an OSD until it is down; the time that this took.
fn stop_one(bed: &Testbed) -> Duration {
    std::thread::sleep(Duration::from_secs(1));
    let from = bed.mon_log().len();
    signal(bed, "osd.1", "-STOP");
    let took = bed.wait_for_mon_log(from, ": Down { osd: OsdId(1)", LIMIT);
    println!("down after {took:?}");
    assert!(took > Duration::from_secs(2), "{took:?}");
    signal(bed, "osd.1", "-CONT");
    bed.wait_for_mon_log(from, ": Boot { osd: OsdId(1)", LIMIT);
    // It blames nobody for the time in which it did not run.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!bed.mon_log()[from..].contains("osd.1 says"), "{}", &bed.mon_log()[from..]);
    took
}

#[test]
fn a_stopped_osd_is_down_after_the_grace_and_up_again_when_it_goes_on() {
    stop_one(&Testbed::up(&[THREE_CYAN, &SHORT_GRACE].concat()));
}

fn a_stopped_osd_is_down_soon_after_the_grace() {
    let took = stop_one(&Testbed::up_alone(&[THREE_CYAN, &SHORT_GRACE].concat()));
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// A minute of as much load as three OSDs on shared CPUs take.
fn a_busy_osd_is_not_called_down() {
    let bed = Testbed::up_alone(&[THREE_CYAN, &SHORT_GRACE].concat());
    let from = bed.mon_log().len();
    let load = ["--rw", "randwrite", "--iodepth", "64", "--bs", "4k", "--size", "64m", "--runtime", "60"];
    bed.ok("bench", &load);
    let said = &bed.mon_log()[from..];
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

/// The faults below take this long at most where nothing else runs: the loads take longer.
const FAULTS_LIMIT: Duration = Duration::from_secs(40);

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
    succeed(run(&carmine_bin(), &words, LIMIT), "carmine osd restart");
    pause(1);
    bed.ceph_ok(&["osd", "out", "3"]);
    pause(3);
    bed.ceph_ok(&["osd", "in", "3"]);
    let (run, took) = ([fio.runs(), rados.runs()], began.elapsed());
    // On a busy machine the faults may take longer than the loads.
    assert!(
        run == [true, true] || took > FAULTS_LIMIT,
        "fio and rados bench run through all of it: {run:?} {took:?}"
    );
    let limit = Duration::from_secs(300);
    let compared = FioRun::from_output(fio.wait(limit), VERIFIED);
    assert!(compared.is_good, "{}", compared.said);
    succeed(rados.wait(limit), "rados bench");
    // It compares what it reads.
    bed.rados_ok(&["bench", "5", "seq", "--run-name", "through"]);
}
