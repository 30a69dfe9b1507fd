//! Carmine's OSDs and classic ones in one cluster with a real monitor: each kind serves its pools, and a PG that gets both, or that moves
//! from one kind to the other, is served by nobody until it moves back. Some 40 s.
#![allow(clippy::disallowed_methods)] // writes files and waits

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use carmine_tests::{Testbed, has_real_mon, run, succeed};
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

impl Both {
    fn start() -> Both {
        let two = ["--mon", "ceph", "--osds", "2", "--size", "2", "--pgs", "8", "--osd-size", "1G"];
        let quick =
            ["--sparse", "--overprovisioned", "--osd-heartbeat-grace", "6", "--osd-heartbeat-interval", "1"];
        let bed = Testbed::up(&[&two[..], &quick].concat());
        let mut both = Both { bed, classic: Vec::new() };
        both.rule("ours", "carmine");
        both.bed.ceph_words("osd pool set bench crush_rule ours");
        // The manager's own pool has PGs anywhere.
        for osd in ["2", "3"] {
            let classic = both.start_classic(osd);
            both.classic.push(classic);
        }
        both.bed.wait_until("all OSDs are up", || (0..4).all(|osd| both.bed.is_up(osd)));
        let class = both.bed.ceph_words("osd crush get-device-class 2");
        both.rule("theirs", class.trim());
        both
    }

    fn rule(&self, name: &str, class: &str) {
        self.bed.ceph_words(&format!("osd crush rule create-replicated {name} default osd {class}"));
    }

    /// Makes the store of a classic OSD, and starts it.
    fn start_classic(&self, osd: &str) -> Classic {
        let uuid = format!("5b1a9c5e-7c2f-4b0e-9a57-00000000000{osd}");
        let given = self.bed.ceph_words(&format!("osd new {uuid}"));
        assert_eq!(given.trim(), osd, "the next number");
        let (dir, conf) = (self.bed.dir().with_file_name(format!("classic.{osd}")), self.bed.conf());
        std::fs::create_dir(&dir).expect("made");
        let data = dir.to_str().expect("UTF-8");
        let own = ["-i", osd, "-c", &conf, "--osd-data", data, "--osd-objectstore", "bluestore"];
        let size = ["--bluestore-block-create", "true", "--bluestore-block-size", "2147483648"];
        let new = [&own[..], &size, &["--mkfs", "--osd-uuid", &uuid]].concat();
        let fail_fast = ["--osd-heartbeat-grace", "6", "--osd-heartbeat-interval", "1"];
        let log = std::fs::File::create(dir.join("log")).expect("made");
        succeed(run_in(&dir, "ceph-osd", &new), "ceph-osd --mkfs");
        let mut command = Command::new("ceph-osd");
        command.current_dir(&dir).arg("-f").args(own).args(size).args(fail_fast);
        command.stdout(Stdio::null()).stderr(log);
        Classic(command.spawn().expect("ceph-osd starts"))
    }

    fn pool(&self, name: &str, rule: &str) {
        self.bed.ceph_words(&format!("osd pool create {name} 8 8 replicated {rule}"));
        self.bed.ceph_words(&format!("osd pool set {name} size 2"));
        self.bed.ceph_words(&format!("osd pool application enable {name} rados"));
    }

    /// Nobody answers, not even that there is no such object.
    fn assert_unserved(&self, pool: &str) {
        let conf = self.bed.conf();
        let out =
            run(Path::new("timeout"), &[UNSERVED, "rados", "-c", &conf, "-p", pool, "stat", "object"], LIMIT);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(124), "{pool}: {said} {}", String::from_utf8_lossy(&out.stdout));
    }

    /// The rule of a pool; returns when the map has it.
    fn set_rule(&self, pool: &str, rule: &str) {
        self.bed.ceph_words(&format!("osd pool set {pool} crush_rule {rule}"));
    }

    /// The pool's PGs, as the manager knows them.
    fn pgs(&self, pool: &str) -> Vec<Value> {
        let pgs = self.bed.ceph_json(&format!("pg ls-by-pool {pool}"));
        pgs["pg_stats"].as_array().expect("PGs").clone()
    }

    /// The OSDs of the pool's PGs.
    fn acting(&self, pool: &str) -> Vec<Vec<u64>> {
        let numbers =
            |pg: &Value| pg["acting"].as_array().expect("OSDs").iter().filter_map(Value::as_u64).collect();
        self.pgs(pool).iter().map(numbers).collect()
    }

    /// The states of the pool's PGs.
    fn states(&self, pool: &str) -> Vec<String> {
        let state = |pg: &Value| pg["state"].as_str().expect("a state").to_owned();
        self.pgs(pool).iter().map(state).collect()
    }
}

fn run_in(dir: &Path, program: &str, args: &[&str]) -> std::process::Output {
    let mut all = vec!["-c", "cd \"$0\" && exec \"$@\"", dir.to_str().expect("UTF-8"), program];
    all.extend(args);
    run(Path::new("sh"), &all, LIMIT)
}

#[test]
fn each_kind_serves_its_pools_and_nobody_a_pg_of_both() {
    if !has_real_mon(&[("ceph-osd", "ceph-osd")]) {
        return;
    }
    let both = Both::start();
    let (ours, theirs) = (vec![0x5a; 3 << 20], vec![0xa5; 2 << 20]);
    both.bed.put("bench", "object", &ours);
    both.pool("classic", "theirs");
    both.bed.put("classic", "object", &theirs);
    // The manager's own pool has a rule for all.
    let join = both.bed.second().run("join", &["--ceph-conf", &both.bed.conf(), "--osds", "1"]);
    let said = String::from_utf8_lossy(&join.stderr);
    assert!(join.status.code() == Some(2) && said.contains("serve nobody: device_health_metrics"), "{said}");

    both.pool("mixed", "replicated_rule");
    let log = || both.bed.ceph_words("log last 200 warn");
    both.bed.wait_until("the cluster's log says why", || {
        log().contains("pool 'mixed' has PGs with OSDs of Carmine and classic")
    });
    let is_ours = |osd: &u64| *osd < 2;
    let is_mixed = |osds: &Vec<u64>| osds.iter().any(is_ours) && !osds.iter().all(is_ours);
    both.bed.wait_until("a PG has both kinds", || both.acting("mixed").iter().any(is_mixed));
    both.set_rule("mixed", "ours");
    both.bed.wait_until("all of the pool is ours", || {
        both.acting("mixed").iter().all(|osds| osds.iter().all(is_ours))
    });
    both.bed.put("mixed", "object", &ours);
    both.bed.assert_has("mixed", "object", &ours);

    // To the other kind: who has nothing does not say that there is nothing.
    both.set_rule("bench", "theirs");
    both.set_rule("classic", "ours");
    both.assert_unserved("bench");
    both.assert_unserved("classic");
    both.set_rule("bench", "ours");
    both.bed.assert_has("bench", "object", &ours);
    // By the map Carmine's OSDs, which were up and served, may have served this pool, too: they have to say that they have nothing of it.
    both.set_rule("classic", "theirs");
    both.bed.assert_has("classic", "object", &theirs);
    both.bed.put("classic", "object", &ours);
    both.bed.wait_until("all of the classic pool is clean", || {
        both.states("classic").iter().all(|state| state == "active+clean")
    });
    // Longer than the grace of both kinds' heartbeats has passed.
    assert!((0..4).all(|osd| both.bed.is_up(osd)), "{}", both.bed.ceph_words("osd tree"));
    let failures = both.bed.ceph_words("log last 500");
    assert!(!failures.contains("reported failed"), "{failures}");
    for osd in [2, 3] {
        let log = both.bed.file(&format!("classic.{osd}/log"));
        let said = std::fs::read_to_string(log).expect("a log");
        assert!(!said.contains("unknown message type"), "osd.{osd} gets messages of Carmine's own");
    }
}
