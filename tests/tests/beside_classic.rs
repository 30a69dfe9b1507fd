//! Carmine's OSDs and classic ones in one cluster with a real monitor: each kind serves its pools, and a PG that gets both, or that moves
//! from one kind to the other, is served by nobody until it is back. Some 40 s.
#![allow(clippy::disallowed_methods)] // writes files and waits

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carmine_tests::{Testbed, installed, run, succeed};
use serde_json::Value;

/// A busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(150);
/// A client that nobody serves waits for ever.
const UNSERVED: &str = "6";

/// A classic OSD, with its store in a folder.
struct Classic(Child);

impl Drop for Classic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A testbed with two OSDs of Carmine, a pool `bench` on them alone, and two classic OSDs.
struct Both {
    bed: Testbed,
    classic: Vec<Classic>,
}

fn can_run() -> bool {
    let programs = [
        ("ceph-mon", "ceph-mon"),
        ("ceph-mgr", "ceph-mgr"),
        ("ceph-osd", "ceph-osd"),
        ("monmaptool", "ceph-base"),
        ("rados", "ceph-common"),
    ];
    programs.iter().all(|(program, package)| installed(program, package))
}

impl Both {
    fn start() -> Both {
        let two = ["--mon", "ceph", "--osds", "2", "--size", "2", "--pgs", "8", "--osd-size", "1G"];
        let quick = ["--sparse", "--overprovisioned", "--osd-heartbeat-grace", "6"];
        let bed = Testbed::up(&[&two[..], &quick].concat());
        let mut both = Both { bed, classic: Vec::new() };
        both.rule("ours", "carmine");
        both.ceph("osd pool set bench crush_rule ours");
        // The manager's own pool has PGs anywhere.
        for osd in ["2", "3"] {
            let classic = both.start_classic(osd);
            both.classic.push(classic);
        }
        both.wait("all OSDs are up", || (0..4).all(|osd| both.is_up(osd)));
        let class = both.ceph("osd crush get-device-class 2");
        both.rule("theirs", class.trim());
        both
    }

    fn tool(&self, program: &str, words: &[&str]) -> String {
        let conf = self.conf();
        let args = [&["-c", &conf], words].concat();
        succeed(run(Path::new(program), &args, LIMIT), &format!("{program} {words:?}"))
    }

    fn conf(&self) -> String {
        self.bed.dir().join("ceph.conf").to_str().expect("UTF-8").to_owned()
    }

    fn ceph(&self, words: &str) -> String {
        self.tool("ceph", &words.split_whitespace().collect::<Vec<_>>())
    }

    fn json(&self, words: &str) -> Value {
        let text = self.ceph(&format!("{words} --format json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("ceph {words}: {e}: {text}"))
    }

    fn rule(&self, name: &str, class: &str) {
        self.ceph(&format!("osd crush rule create-replicated {name} default osd {class}"));
    }

    /// Makes the store of a classic OSD, and starts it.
    fn start_classic(&self, osd: &str) -> Classic {
        let given = self.ceph(&format!("osd new {}", uuid(osd)));
        assert_eq!(given.trim(), osd, "the next number");
        let (dir, conf) = (self.bed.dir().with_file_name(format!("classic.{osd}")), self.conf());
        std::fs::create_dir(&dir).expect("made");
        let data = dir.to_str().expect("UTF-8");
        let own = ["-i", osd, "-c", &conf, "--osd-data", data, "--osd-objectstore", "bluestore"];
        let size = ["--bluestore-block-create", "true", "--bluestore-block-size", "2147483648"];
        let new = [&own[..], &size, &["--mkfs", "--osd-uuid", &uuid(osd)]].concat();
        let fail_fast = ["--osd-heartbeat-grace", "6"];
        let log = std::fs::File::create(dir.join("log")).expect("made");
        succeed(run_in(&dir, "ceph-osd", &new), "ceph-osd --mkfs");
        let mut command = Command::new("ceph-osd");
        command.current_dir(&dir).arg("-f").args(own).args(size).args(fail_fast);
        command.stdout(Stdio::null()).stderr(log);
        Classic(command.spawn().expect("ceph-osd starts"))
    }

    fn is_up(&self, osd: u64) -> bool {
        let dump = self.json("osd dump");
        dump["osds"].as_array().expect("OSDs").iter().any(|row| row["osd"] == osd && row["up"] == 1)
    }

    fn pool(&self, name: &str, rule: &str) {
        self.ceph(&format!("osd pool create {name} 8 8 replicated {rule}"));
        self.ceph(&format!("osd pool set {name} size 2"));
        self.ceph(&format!("osd pool application enable {name} rados"));
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(
                begin.elapsed() < LIMIT,
                "{what}: not within {LIMIT:?}\n{}",
                self.ceph("pg dump pgs_brief")
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn put(&self, pool: &str, bytes: &[u8]) {
        let file = self.bed.dir().with_file_name("input");
        std::fs::write(&file, bytes).expect("written");
        self.tool("rados", &["-p", pool, "put", "object", file.to_str().expect("UTF-8")]);
    }

    fn assert_has(&self, pool: &str, bytes: &[u8]) {
        let file = self.bed.dir().with_file_name("output");
        self.tool("rados", &["-p", pool, "get", "object", file.to_str().expect("UTF-8")]);
        assert!(std::fs::read(&file).expect("read") == bytes, "{pool} has other bytes");
    }

    /// Nobody answers, not even that there is no such object.
    fn assert_unserved(&self, pool: &str) {
        let conf = self.conf();
        let out =
            run(Path::new("timeout"), &[UNSERVED, "rados", "-c", &conf, "-p", pool, "stat", "object"], LIMIT);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(124), "{pool}: {said} {}", String::from_utf8_lossy(&out.stdout));
    }

    /// The rule of a pool; returns when the map has it.
    fn set_rule(&self, pool: &str, rule: &str) {
        self.ceph(&format!("osd pool set {pool} crush_rule {rule}"));
    }

    /// The OSDs of the pool's PGs.
    fn acting(&self, pool: &str) -> Vec<Vec<u64>> {
        let pgs = self.json(&format!("pg ls-by-pool {pool}"));
        let pgs = pgs["pg_stats"].as_array().expect("PGs").clone();
        let numbers =
            |pg: &Value| pg["acting"].as_array().expect("OSDs").iter().filter_map(Value::as_u64).collect();
        pgs.iter().map(numbers).collect()
    }
}

fn uuid(osd: &str) -> String {
    format!("5b1a9c5e-7c2f-4b0e-9a57-00000000000{osd}")
}

fn run_in(dir: &Path, program: &str, args: &[&str]) -> std::process::Output {
    let mut all = vec!["-c", "cd \"$0\" && exec \"$@\"", dir.to_str().expect("UTF-8"), program];
    all.extend(args);
    run(Path::new("sh"), &all, LIMIT)
}

#[test]
fn each_kind_serves_its_pools_and_nobody_a_pg_of_both() {
    if !can_run() {
        return;
    }
    let both = Both::start();
    let (ours, theirs) = (vec![0x5a; 3 << 20], vec![0xa5; 2 << 20]);
    both.put("bench", &ours);
    both.pool("classic", "theirs");
    both.put("classic", &theirs);

    both.pool("mixed", "replicated_rule");
    let log = || both.ceph("log last 200 warn");
    both.wait("the cluster's log says why", || {
        log().contains("pool 'mixed' has PGs with OSDs of Carmine and classic")
    });
    let is_ours = |osd: &u64| *osd < 2;
    let is_mixed = |osds: &Vec<u64>| osds.iter().any(is_ours) && !osds.iter().all(is_ours);
    assert!(both.acting("mixed").iter().any(is_mixed), "{:?}", both.acting("mixed"));
    both.set_rule("mixed", "ours");
    both.wait("all of the pool is ours", || both.acting("mixed").iter().all(|osds| osds.iter().all(is_ours)));
    both.put("mixed", &ours);
    both.assert_has("mixed", &ours);

    // To the other kind and back: who has nothing does not say that there is nothing.
    both.set_rule("bench", "theirs");
    both.set_rule("classic", "ours");
    both.assert_unserved("bench");
    both.assert_unserved("classic");
    both.set_rule("bench", "ours");
    both.set_rule("classic", "theirs");
    both.assert_has("bench", &ours);
    both.assert_has("classic", &theirs);
    // Longer than the grace of both kinds' heartbeats has passed.
    assert!((0..4).all(|osd| both.is_up(osd)), "{}", both.ceph("osd tree"));
    let failures = both.ceph("log last 500");
    assert!(!failures.contains("reported failed"), "{failures}");
}
