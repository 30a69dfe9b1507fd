//! A cluster of three hosts, which are network namespaces: the same cluster file on each of them, public and cluster networks apart.
#![allow(clippy::disallowed_methods)] // writes files and waits

use std::process::Output;
use std::time::{Duration, Instant};

use carmine_tests::hosts::{CLUSTER, Hosts, PUBLIC, can_make_networks};
use carmine_tests::{Testbed, installed, succeed, tools};
use serde_json::Value;

/// A busy machine may take long for what takes a second on another.
const LIMIT: Duration = Duration::from_secs(60);
/// Seconds of silence after which an OSD is reported.
const GRACE: &str = "3";
const SIZE: usize = 8 << 20;

/// Hosts `a` (with the monitor and one OSD), `b` (one) and `c` (two), and `client`, which has no OSD and is not on the cluster network.
struct Cluster {
    hosts: Hosts,
    /// A copy of the file that `up` has written on `a`.
    conf: String,
    _bed: Testbed,
}

impl Cluster {
    fn start() -> Cluster {
        let bed = Testbed::new();
        let root = bed.dir().parent().expect("a parent").to_path_buf();
        let hosts = Hosts::new(root.clone(), &["a", "b", "c"], &["client"]);
        let small = ["--osd-size", "1G", "--sparse", "--overprovisioned", "--timeout", "60"];
        let networks = ["--public-network", PUBLIC.1, "--cluster-network", CLUSTER.1];
        let first = ["--host", "a", "--size", "3", "--pgs", "16", "--osd-heartbeat-interval", "1"];
        let first = [&first[..], &["--osd-heartbeat-grace", GRACE], &small, &networks].concat();
        refused(&hosts.carmine("a", "up", &first), "10.91.1.1 and 10.91.2.1, where nothing is encrypted");
        assert!(!hosts.dir("a").exists(), "nothing was made");
        let elsewhere = ["--cluster-network", "192.0.2.0/24", "--insecure"];
        refused(
            &hosts.carmine("a", "up", &elsewhere),
            "--cluster-network 192.0.2.0/24: no network interface",
        );
        let up = hosts.carmine("a", "up", &[&first[..], &["--insecure"]].concat());
        let warned = String::from_utf8_lossy(&up.stderr).matches("nobody is authenticated").count();
        assert_eq!(warned, 1, "it is said once");
        succeed(up, "up");
        let conf = root.join("copied.conf").to_str().expect("UTF-8").to_owned();
        std::fs::copy(hosts.dir("a").join("ceph.conf"), &conf).expect("copied");
        for (host, osds) in [("b", "1"), ("c", "2")] {
            let own = ["--ceph-conf", &conf, "--host", host, "--osds", osds];
            refused(&hosts.carmine(host, "join", &[&own[..], &small].concat()), "--insecure");
            let joined = hosts.carmine(host, "join", &[&own[..], &small, &["--insecure"]].concat());
            succeed(joined, &format!("join of {host}"));
        }
        let cluster = Cluster { hosts, conf, _bed: bed };
        cluster.wait_until("all PGs have three copies", || cluster.clean_pgs() == 16);
        cluster
    }

    fn tool(&self, program: &str, args: &[&str]) -> Output {
        self.hosts.run("client", program, &[&["-c", &self.conf], args].concat())
    }

    fn ceph_json(&self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').chain(["--format", "json"]).collect();
        let text = succeed(self.tool("ceph", &words), &format!("ceph {words:?}"));
        serde_json::from_str(&text).expect("JSON")
    }

    fn rados(&self, args: &[&str]) {
        succeed(self.tool("rados", &[&["-p", "bench"], args].concat()), &format!("rados {args:?}"));
    }

    fn put(&self, object: &str, bytes: &[u8]) {
        let file = format!("{}.input", self.conf);
        std::fs::write(&file, bytes).expect("written");
        self.rados(&["put", object, &file]);
    }

    fn assert_has(&self, object: &str, bytes: &[u8]) {
        let file = format!("{}.output", self.conf);
        self.rados(&["get", object, &file]);
        assert!(std::fs::read(&file).expect("read") == bytes, "{object} has other bytes");
    }

    /// OSDs that are up, by the map.
    fn up(&self) -> Vec<u64> {
        let dump = self.ceph_json("osd dump");
        let osds = dump["osds"].as_array().expect("OSDs");
        osds.iter().filter(|osd| osd["up"] == 1).filter_map(|osd| osd["osd"].as_u64()).collect()
    }

    fn clean_pgs(&self) -> usize {
        let pgs = self.ceph_json("pg dump pgs_brief");
        let pgs = pgs["pg_stats"].as_array().expect("PGs");
        let is_whole = |pg: &&Value| {
            pg["state"] == "active+clean" && pg["acting"].as_array().is_some_and(|acting| acting.len() == 3)
        };
        pgs.iter().filter(is_whole).count()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}: {:#}", self.ceph_json("status"));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Bytes that the hosts with OSDs have sent on a network.
    fn sent_bytes(&self, network: &str) -> usize {
        ["a", "b", "c"].map(|host| self.hosts.sent_bytes(host, network) as usize).iter().sum()
    }
}

/// Fails unless the command was refused, in one line that has this part.
fn refused(out: &Output, part: &str) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains(part) && said.lines().count() == 1, "{said}");
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|at| at.wrapping_mul(0x9e37_79b1).to_le_bytes()).take(len).collect()
}

#[test]
fn three_hosts_serve_on_one_network_and_replicate_on_another() {
    let tools = [("ceph", "ceph-common"), ("rados", "ceph-common"), ("nsenter", "util-linux")];
    if !tools.iter().all(|(program, package)| installed(program, package)) || !can_make_networks() {
        return;
    }
    let cluster = Cluster::start();
    assert_addresses(&cluster);
    let data = noise(SIZE);
    assert_traffic(&cluster, &data);
    cut_and_heal(&cluster, &data);
}

/// The map, the metadata and `status` tell of both networks.
fn assert_addresses(cluster: &Cluster) {
    let dump = cluster.ceph_json("osd dump");
    for (osd, last) in [(0, 1), (1, 2), (2, 3), (3, 3)] {
        let known = &dump["osds"][osd];
        let at = |name: &str| known[name].as_str().expect("an address").to_owned();
        let (public, own) = (format!("{}{last}:", PUBLIC.0), format!("{}{last}:", CLUSTER.0));
        for name in ["public_addr", "heartbeat_front_addr"] {
            assert!(at(name).starts_with(&public), "{name}: {known:#}");
        }
        for name in ["cluster_addr", "heartbeat_back_addr"] {
            assert!(at(name).starts_with(&own), "{name}: {known:#}");
        }
        let metadata = cluster.ceph_json(&format!("osd metadata {osd}"));
        assert!(metadata["back_addr"].as_str().is_some_and(|addr| addr.contains(&own)), "{metadata:#}");
    }
    let status = succeed(cluster.hosts.carmine("c", "status", &["--json"]), "status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let shown = &status["osds"][1]["cluster_addr"];
    assert!(shown.as_str().is_some_and(|addr| addr.starts_with("10.91.2.3:")), "{shown}");
    let tree = cluster.ceph_json("osd tree");
    let nodes = tree["nodes"].as_array().expect("nodes");
    let hosts = nodes.iter().filter(|node| node["type"] == "host");
    let mut names: Vec<&str> = hosts.filter_map(|host| host["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);
    // Such a folder is no whole cluster.
    let bench = cluster.hosts.carmine("a", "bench", &["--rw", "randread", "--runtime", "1"]);
    let said = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.code() == Some(2) && said.contains("are a part of a cluster"), "{said}");
}

/// A write comes to one host on the public network and goes to two others on the cluster network; a read needs only the first.
fn assert_traffic(cluster: &Cluster, data: &[u8]) {
    let sent = || (cluster.sent_bytes("public"), cluster.sent_bytes("cluster"));
    let before = sent();
    cluster.put("object", data);
    let written = sent();
    cluster.assert_has("object", data);
    let read = sent();
    let (public, own) = (written.0 - before.0, written.1 - before.1);
    assert!(
        own >= 2 * SIZE && public < SIZE / 2,
        "write: {own} bytes on the cluster network, {public} on the public"
    );
    let (public, own) = (read.0 - written.0, read.1 - written.1);
    assert!(
        public >= SIZE && own < SIZE / 2,
        "read: {own} bytes on the cluster network, {public} on the public"
    );
}

/// A host that the others do not reach goes down, although the monitor hears it, and stays down; nobody else does. The others serve. When
/// they reach it again it comes back.
fn cut_and_heal(cluster: &Cluster, data: &[u8]) {
    cluster.hosts.set_link("c", "cluster", false);
    cluster.wait_until("the host to be down", || cluster.up() == [0, 1]);
    cluster.put("meanwhile", b"meanwhile");
    cluster.assert_has("object", data);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert_eq!(cluster.up(), [0, 1], "it is still cut off, and the others are not");
        std::thread::sleep(Duration::from_millis(200));
    }
    cluster.hosts.set_link("c", "cluster", true);
    cluster.wait_until("the host to be up", || cluster.up() == [0, 1, 2, 3]);
    cluster.wait_until("all PGs have three copies again", || cluster.clean_pgs() == 16);
    cluster.assert_has("meanwhile", b"meanwhile");
    // A host leaves only when its copies are elsewhere.
    let leaves = cluster.hosts.carmine("c", "destroy", &[]);
    let said = String::from_utf8_lossy(&leaves.stderr);
    assert!(leaves.status.code() == Some(2) && said.contains("osd.2, osd.3"), "{said}");
}

#[test]
fn nobody_joins_a_testbed_of_one_host() {
    let bed = Testbed::up(tools::ONE_CYAN);
    let out = bed.second().run("join", &["--ceph-conf", &bed.conf(), "--host", "b"]);
    refused(&out, "carmine up --host NAME");
}
