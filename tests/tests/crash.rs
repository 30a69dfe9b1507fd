//! kill -9 in the middle of a load: what was acknowledged is there, the replicas are equal, and clients go on with those that
//! are left, or wait, and never fail.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::time::Duration;

use carmine_tests::verified::{
    check_blocks, check_replicas, dies_with_its_osds, let_write, load, state_file, write_enough,
};
use carmine_tests::{Background, Testbed, installed, kill_nine, succeed};
use serde_json::Value;

const OSDS: usize = 3;
/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(240);
const THREE_BLUE: &[&str] = &[
    "--osds",
    "3",
    "--size",
    "3",
    "--store",
    "blue",
    "--osd-size",
    "1G",
    "--sparse",
    "--overprovisioned",
    "--pgs",
    "32",
];
fn up_blue(reactors: &str) -> Testbed {
    let mut options = THREE_BLUE.to_vec();
    options.extend(["--reactors", reactors]);
    Testbed::up(&options)
}

/// The load goes on without an error when OSDs die and come back, and says so.
fn goes_on_without_its_osds(bench: Background) {
    let said = succeed(bench.wait(LIMIT), "a load whose OSDs die");
    assert!(said.contains("DIED: osd.1, osd.2 ended under the load"), "{said}");
    let pause = said.lines().find_map(|line| line.strip_prefix("pause")).expect("the longest pause");
    let ms: f64 = pause.split_whitespace().next().and_then(|n| n.parse().ok()).expect("milliseconds");
    // Two of three copies were gone for longer than this.
    assert!(ms > 1000.0, "{pause}");
}

#[test]
fn kill_nine_of_everything_loses_nothing_acknowledged() {
    let bed = up_blue("1");
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    for (cycle, reactors) in ["2", "1", "2"].into_iter().enumerate() {
        let bench = Background::start(&bed, "bench", &load(state, "30"));
        // Not always at the same point of a second, or of a commit.
        let_write(&bed, Duration::from_millis(2000 + 137 * cycle as u64));
        assert_eq!(kill_nine(&bed.pids()), OSDS + 1);
        dies_with_its_osds(bench);
        assert!(bed.ok("status", &[]).contains("stopped"));
        bed.ok("up", &["--reactors", reactors, "--overprovisioned"]);
        check_blocks(&bed, state);
        check_replicas(&bed, OSDS);
    }
}

/// One OSD, killed under the load so many times: each time all that was acknowledged is read back.
fn killed_again_and_again(times: u64) {
    let bed = Testbed::up(&[
        "--osds",
        "1",
        "--store",
        "blue",
        "--osd-size",
        "256M",
        "--sparse",
        "--overprovisioned",
        "--pgs",
        "32",
    ]);
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    let (mut lanes, mut longest) = (1, 0.0_f64);
    for cycle in 0..times {
        let bench = Background::start(&bed, "bench", &load(state, "30"));
        // An OSD that has just started has answered no writes yet: these are the load's.
        bed.until(LIMIT, "admin", &["--osd", "0", r#"{"prefix":"dump_metrics"}"#], |said| {
            written(said) > 500
        });
        std::thread::sleep(Duration::from_millis(cycle * 61 % 700));
        assert_eq!(kill_nine(&bed.pids()), 2, "the OSD and the monitor");
        dies_with_its_osds(bench);
        let reactors = if cycle % 3 == 1 { 2 } else { 1 };
        bed.ok("up", &["--reactors", &reactors.to_string(), "--overprovisioned"]);
        let (replayed, seconds) = replayed(&bed);
        assert_eq!(replayed, lanes, "each reactor had a lane, whatever the number of reactors is now");
        (lanes, longest) = (reactors, longest.max(seconds));
        check_blocks(&bed, state);
    }
    println!("{times} kills; the longest replay took {longest:.3} s");
}

/// Lanes that the last start of osd.0 replayed, and its seconds, as its log tells.
fn replayed(bed: &Testbed) -> (u64, f64) {
    let log = std::fs::read_to_string(bed.dir().join("osd.0.log")).expect("a log");
    let line = log.lines().rfind(|line| line.contains("was replayed: ")).expect("a replay");
    let said = line.split("was replayed: ").nth(1).unwrap_or_default();
    let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [lanes, .., seconds] if said.ends_with(" s") => (*lanes as u64, *seconds),
        _ => panic!("lanes and seconds are missing: {line}"),
    }
}

/// The last line of osd.0's log about free space.
fn free_space(bed: &Testbed) -> String {
    let log = std::fs::read_to_string(bed.dir().join("osd.0.log")).expect("a log");
    log.lines().rfind(|line| line.contains("free space")).expect("a line about free space").to_owned()
}

#[test]
fn a_clean_stop_leaves_nothing_to_scan() {
    let options = ["--osds", "1", "--reactors", "2", "--store", "blue", "--osd-size", "256M", "--sparse"];
    let bed = Testbed::up(&[&options[..], &["--overprovisioned", "--pgs", "32"]].concat());
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    write_enough(&bed, state);
    for is_clean in [true, false, true] {
        if is_clean {
            bed.ok("down", &[]);
        } else {
            assert_eq!(kill_nine(&bed.pids()), 2, "the OSD and the monitor");
        }
        bed.ok("up", &["--overprovisioned"]);
        let said = free_space(&bed);
        assert_eq!(said.contains("a clean unmount left"), is_clean, "{said}");
        check_blocks(&bed, state);
    }
}

/// Writes that an OSD has answered since it started.
fn written(dump: &str) -> u64 {
    let metrics: Value = serde_json::from_str(dump).unwrap_or_default();
    let shards = metrics["shards"].as_array().cloned().unwrap_or_default();
    shards.iter().filter_map(|shard| shard["osd"]["write_ops"].as_u64()).sum()
}

/// About 40 s.
#[test]
fn kill_nine_ten_times_loses_nothing_acknowledged() {
    killed_again_and_again(10);
}

/// `scripts/test -p carmine-tests --test crash -- --ignored a_hundred`: about 6 minutes.
#[test]
#[ignore = "minutes"]
fn kill_nine_a_hundred_times_loses_nothing_acknowledged() {
    killed_again_and_again(100);
}

/// As before, but the client dies too, and more blows fall while the OSDs start and make their copies equal.
#[test]
fn kill_nine_while_starting_loses_nothing_either() {
    let bed = up_blue("2");
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    let bench = Background::start(&bed, "bench", &load(state, "30"));
    let_write(&bed, Duration::from_millis(2000));
    bench.kill();
    assert_eq!(kill_nine(&bed.pids()), OSDS + 1);
    for round in 0..12_u64 {
        let up = Background::start(
            &bed,
            "up",
            &["--reactors", if round % 2 == 0 { "1" } else { "2" }, "--overprovisioned"],
        );
        std::thread::sleep(Duration::from_millis(60 + 45 * round));
        // The controller first: it would tidy up after daemons that die.
        up.kill();
        kill_nine(&bed.pids_and_starting());
    }
    bed.ok("up", &["--reactors", "1", "--overprovisioned"]);
    check_blocks(&bed, state);
    check_replicas(&bed, OSDS);
}

#[test]
fn clients_go_on_without_an_osd_and_wait_below_min_size() {
    let bed = up_blue("1");
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    let bench = Background::start(&bed, "bench", &load(state, "40"));
    let_write(&bed, Duration::ZERO);
    let rados = installed("rados", "ceph-common");
    let writes = |seconds| ["bench", seconds, "write", "-b", "4096", "-t", "8", "--no-cleanup"];
    let stock = rados.then(|| Background::rados(&bed, &writes("4")));
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(kill_nine(&[bed.pid("osd.1").expect("osd.1 has a record")]), 1);
    let named = |said: &str| {
        said.contains("osd.1    not running, down") && said.contains("32 of 32 PGs have fewer copies")
    };
    let said = bed.until(Duration::from_secs(20), "status", &[], named);
    assert!(said.contains("degraded") && said.contains("osd.1 is dead"), "{said}");
    let refused = bed.run("up", &["--overprovisioned", "--reactors", "2"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("carmine down"));
    if let Some(stock) = stock {
        let said = succeed(stock.wait(LIMIT), "rados bench over the OSD's death");
        assert!(said.contains("Total writes made"), "{said}");
    }
    // One copy of three is less than min_size 2.
    assert_eq!(kill_nine(&[bed.pid("osd.2").expect("osd.2 has a record")]), 1);
    bed.until(Duration::from_secs(20), "status", &[], |said| said.contains("ops of the others wait"));
    let stock = rados.then(|| Background::rados(&bed, &writes("2")));
    std::thread::sleep(Duration::from_secs(4));
    assert!(stock.as_ref().is_none_or(Background::runs), "the stock client's operations must wait, not fail");
    // The writes go on as soon as two OSDs are up, and each OSD is given the writes that it missed.
    bed.ok("restart", &["--osd", "1,2"]);
    if let Some(stock) = stock {
        succeed(stock.wait(LIMIT), "rados bench over two deaths");
    }
    goes_on_without_its_osds(bench);
    check_blocks(&bed, state);
    check_replicas(&bed, OSDS);
    // `down` and `up` mend it, too.
    bed.ok("down", &[]);
    bed.ok("up", &["--overprovisioned"]);
    check_blocks(&bed, state);
    check_replicas(&bed, OSDS);
}

#[test]
fn blocks_written_with_one_reactor_are_read_with_two_and_back() {
    let bed = up_blue("1");
    let state = state_file(&bed);
    let state = state.to_str().expect("UTF-8");
    for reactors in ["2", "1", "2"] {
        write_enough(&bed, state);
        bed.ok("down", &[]);
        bed.ok("up", &["--reactors", reactors, "--overprovisioned"]);
        check_blocks(&bed, state);
        check_replicas(&bed, OSDS);
    }
}
