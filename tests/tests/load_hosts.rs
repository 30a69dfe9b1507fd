//! Loads that several hosts make together: `carmine load` twice on loopback, and a controller. About 30 s.
#![allow(clippy::disallowed_methods)] // reads files and waits

use std::time::{Duration, Instant};

use carmine_tests::{Background, Testbed, signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// One of two hosts is ahead by this.
const OFFSET_MS: &str = "5000";

/// `carmine load` on a free port.
struct Host {
    process: Background,
    addr: String,
}

impl Host {
    fn start(bed: &Testbed, words: &[&str]) -> Host {
        let process =
            Background::start(bed, "load", &[&["--listen", "127.0.0.1:0", "--cpus", "1"], words].concat());
        let host = Host { process, addr: String::new() };
        let said = host.until("listens on ");
        let addr = said.split("listens on ").nth(1).and_then(|rest| rest.split_whitespace().next());
        Host { addr: addr.expect("an address").to_owned(), ..host }
    }

    /// Waits until it has said this.
    fn until(&self, what: &str) -> String {
        let begin = Instant::now();
        loop {
            let said = self.process.said();
            if said.contains(what) {
                return said;
            }
            assert!(begin.elapsed() < LIMIT, "no {what:?} in:\n{said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// One OSD in memory on CPU 0, and two hosts on CPU 1, the second with these options.
fn start(second: &[&str]) -> (Testbed, [Host; 2]) {
    let store = ["--osds", "1", "--size", "1", "--reactors", "1", "--store", "cyan"];
    let bed = Testbed::up(&[&store[..], &["--cpus", "0", "--client-cpus", "1"]].concat());
    let hosts = [Host::start(&bed, &[]), Host::start(&bed, second)];
    (bed, hosts)
}

fn words<'a>(hosts: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let load = ["--bs", "4k", "--iodepth", "4", "--numjobs", "4", "--size", "64m", "--object-size", "1m"];
    [&["--load-hosts", hosts], &load[..], more].concat()
}

fn bench(bed: &Testbed, hosts: &[Host; 2], more: &[&str]) -> Value {
    let (json, both) = (bed.file("result.json"), format!("{},{}", hosts[0].addr, hosts[1].addr));
    bed.ok("bench", &[&words(&both, more)[..], &["--json", &json]].concat());
    serde_json::from_slice(&std::fs::read(&json).expect("a result")).expect("JSON")
}

fn sum(rows: &Value, of: &str) -> f64 {
    rows.as_array().into_iter().flatten().filter_map(|row| row[of].as_f64()).sum()
}

/// The remarks on clocks.
fn clocks(carmine: &Value) -> Vec<String> {
    let marks = carmine["marks"].as_array().into_iter().flatten().filter_map(Value::as_str);
    marks.filter(|mark| mark.starts_with("CLOCKS: ")).map(str::to_owned).collect()
}

#[test]
fn two_hosts_make_one_load_and_their_counts_add_up() {
    let (bed, hosts) = start(&["--clock-offset-ms", OFFSET_MS]);
    // A number of operations is that of all hosts, and each operation is in the merged histogram.
    let sized = bench(&bed, &hosts, &["--rw", "randrw", "--verify", "--io-size", "16m"]);
    let (carmine, job) = (&sized["carmine"], &sized["jobs"][0]);
    let rows = &carmine["load_hosts"];
    let each: Vec<_> = (0..2).map(|at| (rows[at]["jobs"].as_u64(), rows[at]["ops"].as_u64())).collect();
    assert_eq!(each, [(Some(2), Some(2048)); 2], "{rows}");
    for count in ["total_ios", "clat_ns/N"] {
        let of =
            |dir: &str| job.pointer(&format!("/{dir}/{count}")).and_then(Value::as_u64).expect("a count");
        assert_eq!(of("read") + of("write"), 4096, "{count}");
    }
    let checked = carmine["verify"]["checked"].as_u64().expect("a count");
    assert!(checked > 1000 && carmine["verify"]["mismatches"] == 0, "{}", carmine["verify"]);

    let timed = bench(&bed, &hosts, &["--rw", "randread", "--runtime", "3", "--ramp", "500ms"]);
    let carmine = &timed["carmine"];
    let (rows, iops) = (&carmine["load_hosts"], carmine["iops"].as_f64().expect("IOPS"));
    assert!(iops > 100.0 && (sum(rows, "iops") - iops).abs() < 1.0, "{rows}");
    assert_eq!(sum(rows, "ops"), timed["jobs"][0]["read"]["total_ios"].as_f64().expect("operations"));
    assert_eq!(sum(rows, "bytes"), sum(rows, "ops") * 4096.0);
    let cores = carmine["client_cores_used"].as_f64().expect("cores");
    assert!(cores > 0.0 && (sum(rows, "client_cores_used") - cores).abs() < 1e-6, "{rows}");
    for (at, offset_ms) in [(0, 0.0), (1, 5000.0)] {
        let clock = &rows[at]["clock"];
        let [offset, error] = ["offset_ns", "error_ns"].map(|key| clock[key].as_f64().expect("ns"));
        assert!((offset - offset_ms * 1e6).abs() <= error + 1e6, "{clock}");
        assert!(rows[at]["client_busy"].as_f64().is_some_and(|part| part > 0.0), "{rows}");
        assert!(rows[at]["window_seconds"].as_f64().is_some_and(|s| s >= 3.0), "{rows}");
        assert_eq!(rows[at]["host"], hosts[at].addr);
    }
    // A clock that is wrong all the time by the same does no harm.
    assert!(!clocks(carmine).iter().any(|mark| mark.contains("changed by")), "{}", carmine["marks"]);
    assert_eq!(carmine["load"]["load_hosts"], 2);
}

#[test]
fn a_clock_that_changes_is_marked() {
    let (bed, hosts) = start(&["--clock-step-ms", "-300"]);
    let result = bench(&bed, &hosts, &["--rw", "randwrite", "--runtime", "2"]);
    let marks = clocks(&result["carmine"]);
    let changed = format!("CLOCKS: the clock of load host {} changed by ", hosts[1].addr);
    assert!(marks.iter().any(|mark| mark.starts_with(&changed)), "{}", result["carmine"]["marks"]);
    let of_first = format!("load host {} changed", hosts[0].addr);
    assert!(!marks.iter().any(|mark| mark.contains(&of_first)), "{marks:?}");
}

/// What `carmine bench` says when it fails with this exit code.
fn refused(bed: &Testbed, hosts: &str, more: &[&str], code: i32) -> String {
    let out = bed.run("bench", &words(hosts, &[&["--runtime", "1"], more].concat()));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    said
}

#[test]
fn hosts_that_cannot_help_are_named() {
    let (bed, hosts) = start(&["--build", "0.0.7 of commit other"]);
    let [good, other] = [&hosts[0].addr, &hosts[1].addr];
    let said = refused(&bed, &format!("{good},{other}"), &[], 1);
    for part in
        [&format!("load host {other}"), "the load host is 0.0.7 of commit other", "the controller is 0."]
    {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    hosts[1].until("refused: the controller is");
    let nobody = "127.0.0.1:1";
    let said = refused(&bed, &format!("{good},{nobody}"), &[], 1);
    assert!(said.contains("load host 127.0.0.1:1: no `carmine load` answers"), "{said}");
    for (list, part) in [
        ("192.0.2.1:7400", "which no other host reaches"),
        ("a:1,b:1,c:1,d:1,e:1", "each of 5 load hosts needs a job"),
        ("a:1,a:1", "twice"),
        ("a", "HOST:PORT"),
    ] {
        let said = refused(&bed, list, &[], 2);
        assert!(said.contains(part), "{list}: {said}");
    }
    // The host that could have helped is free again.
    let json = bed.file("result.json");
    bed.ok("bench", &words(good, &["--runtime", "1", "--json", &json]));
    for (words, part) in [("0.0.0.0:0", "--insecure"), ("192.0.2.1:0", "nobody is authenticated")] {
        let out = bed.run("load", &["--listen", words]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains(part), "{said}");
    }
}

#[test]
fn a_host_that_ends_or_hangs_ends_the_load() {
    let (bed, [first, second]) = start(&[]);
    let both = format!("{},{}", first.addr, second.addr);
    let long = words(&both, &["--rw", "randwrite", "--runtime", "120"]);
    let second_pid = i32::try_from(second.process.pid()).expect("a pid");
    let end = |part: &str, harm: &dyn Fn()| {
        let load = Background::start(&bed, "bench", &long);
        [&first, &second].iter().for_each(|host| drop(host.until("jobs ")));
        // Some time later they are in the window.
        std::thread::sleep(Duration::from_secs(2));
        let begin = Instant::now();
        harm();
        let out = load.wait(LIMIT);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && said.contains(part), "no {part:?} in {said}");
        assert!(said.contains(&format!("load host {}", second.addr)), "{said}");
        assert!(begin.elapsed() < Duration::from_secs(30), "it took {:?}", begin.elapsed());
    };
    end("no answer for 5 s", &|| signal(&[second_pid], "-STOP"));
    signal(&[second_pid], "-CONT");
    second.until("has ended");
    first.until("has ended");
    end("has ended or the connection broke", &|| signal(&[second_pid], "-KILL"));
    // The other one has stopped, and makes the next load.
    bed.ok("bench", &words(&first.addr, &["--runtime", "1"]));
}
