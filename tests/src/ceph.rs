//! Ceph's own tools on a testbed with a real monitor.

use std::time::{Duration, Instant};

use carmine_testkit::installed;
use serde_json::Value;

use crate::{Testbed, succeed};

/// A real monitor makes a map a second, and a busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(150);

/// Whether these of Debian's programs are here, besides those that a real monitor needs (program and package each). `CARMINE_NO_SKIP` makes
/// it an error if not.
pub fn has_real_mon(more: &[(&str, &str)]) -> bool {
    let programs = [
        ("ceph-mon", "ceph-mon"),
        ("ceph-mgr", "ceph-mgr"),
        ("monmaptool", "ceph-base"),
        ("ceph", "ceph-common"),
    ];
    programs.iter().chain(more).all(|(program, package)| installed(program, package))
}

impl Testbed {
    /// A started testbed with real monitors, so many OSDs and three copies of everything.
    pub fn up_real(osds: &str, more: &[&str]) -> Testbed {
        let real = ["--mon", "ceph", "--osds", osds, "--size", "3", "--pgs", "16"];
        Testbed::up(&[&real[..], &["--osd-size", "1G", "--sparse", "--overprovisioned"], more].concat())
    }

    /// `ceph` with these words, which have no spaces; its output.
    pub fn ceph_words(&self, words: &str) -> String {
        self.ceph_ok(&words.split_whitespace().collect::<Vec<_>>())
    }

    /// The same, as JSON.
    pub fn ceph_json(&self, words: &str) -> Value {
        let text = self.ceph_words(&format!("{words} --format json"));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("ceph {words}: {e}: {text}"))
    }

    /// Writes an object whole, by `rados`.
    pub fn put(&self, pool: &str, object: &str, bytes: &[u8]) {
        let file = self.file("input");
        std::fs::write(&file, bytes).expect("written");
        self.rados_in(pool, &["put", object, &file]);
    }

    /// Fails unless an object has these bytes, by `rados`.
    pub fn assert_has(&self, pool: &str, object: &str, bytes: &[u8]) {
        let file = self.file("output");
        self.rados_in(pool, &["get", object, &file]);
        assert!(std::fs::read(&file).expect("read") == bytes, "{pool}/{object} has other bytes");
    }

    fn rados_in(&self, pool: &str, args: &[&str]) {
        succeed(self.tool("rados", &[&["-p", pool], args].concat()), &format!("rados -p {pool} {args:?}"));
    }

    /// Whether an OSD is up in the monitor's map.
    pub fn is_up(&self, osd: u64) -> bool {
        let dump = self.ceph_json("osd dump");
        dump["osds"].as_array().expect("OSDs").iter().any(|row| row["osd"] == osd && row["up"] == 1)
    }

    /// PGs that the manager shows as active and clean, and all.
    pub fn clean_pgs(&self) -> (u64, u64) {
        let status = self.ceph_json("status");
        let states = status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
        let is_clean = |name: &str| name.starts_with("active+clean");
        let clean = states.iter().filter(|state| state["state_name"].as_str().is_some_and(is_clean));
        let clean = clean.filter_map(|state| state["count"].as_u64()).sum();
        (clean, status["pgmap"]["num_pgs"].as_u64().unwrap_or(0))
    }

    /// Waits until the manager shows all PGs as active and clean by reports that were made after the call.
    pub fn wait_clean(&self) {
        let osds = self.ceph_json("osd ls");
        for osd in
            osds.as_array().expect("OSDs").iter().filter_map(Value::as_u64).filter(|osd| self.is_up(*osd))
        {
            let seq: u64 =
                self.ceph_words(&format!("tell osd.{osd} flush_pg_stats")).trim().parse().expect("a number");
            let known = || self.ceph_words(&format!("osd last-stat-seq {osd}")).trim().parse().unwrap_or(0);
            self.wait_until("the manager has the report", || known() >= seq);
        }
        self.wait_until(
            "all PGs are clean",
            || matches!(self.clean_pgs(), (clean, all) if clean == all && all > 0),
        );
    }

    /// Waits until something is so.
    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}\n{}", self.ceph_words("status"));
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
