//! Keys: who has one gets in, as far as its caps go, and stays in while tickets and services' keys are replaced; under the embedded
//! monitor and under a real one, checked and encrypted. Some 60 s.
#![allow(clippy::disallowed_methods)] // waits

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::Duration;

use carmine_tests::{Background, Testbed, has_real_mon, installed};

const SMALL: [&str; 10] = [
    "--osds",
    "2",
    "--osd-size",
    "512M",
    "--sparse",
    "--overprovisioned",
    "--pgs",
    "8",
    "--auth-ticket-ttl",
    "10",
];

/// What stock clients say of a key that a monitor does not accept: their word for "wrong key" is that of a wrong method.
const BAD_METHOD: &str = "server allowed_methods [2] but i only support [2]";

fn up(more: &[&str]) -> Testbed {
    Testbed::up(&[&SMALL[..], &["--auth", "cephx"], more].concat())
}

/// Makes an entity with these caps, whose key stock tools find.
fn create(bed: &Testbed, name: &str, caps: &[&str]) {
    let keyring = bed.dir().join(format!("ceph.client.{name}.keyring"));
    let entity = format!("client.{name}");
    let file = keyring.to_str().expect("UTF-8");
    bed.ceph_ok(&[&["auth", "get-or-create", &entity], caps, &["-o", file]].concat());
}

fn rados_as(bed: &Testbed, name: &str, args: &[&str]) -> Output {
    bed.rados(&[&["--name", name], args].concat())
}

fn assert_says(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{words}: {said}");
}

/// What holds with each monitor and in each mode.
fn doors_are_kept(bed: &Testbed) {
    bed.put("bench", "o", &vec![7; 300_000]);
    bed.assert_has("bench", "o", &vec![7; 300_000]);
    create(bed, "reader", &["mon", "allow r", "osd", "allow r pool=bench"]);
    create(bed, "nobody", &["mon", "allow r"]);
    let file = bed.file("copy");
    assert!(rados_as(bed, "client.reader", &["get", "o", &file]).status.success());
    assert_says(&rados_as(bed, "client.reader", &["put", "p", &file]), "Operation not permitted");
    assert_says(&rados_as(bed, "client.nobody", &["get", "o", &file]), "Operation not permitted");
    let refused = bed.ceph(&["--name", "client.reader", "osd", "pool", "create", "mine"]);
    assert_says(&refused, "access denied");
    // Somebody with a key of another cluster, and somebody whom nobody knows.
    let wrong = "[client.reader]\n\tkey = AQDl5ANq5ehGHxAA8zI+aJfW0ocDVc4uxNKD7g==\n";
    std::fs::write(bed.dir().join("ceph.client.reader.keyring"), wrong).expect("written");
    assert_says(&rados_as(bed, "client.reader", &["get", "o", &file]), BAD_METHOD);
    std::fs::write(bed.dir().join("ceph.client.ghost.keyring"), wrong.replace("reader", "ghost"))
        .expect("written");
    assert_says(&rados_as(bed, "client.ghost", &["get", "o", &file]), BAD_METHOD);
    let keys = std::fs::read_dir(bed.dir()).expect("a folder").map(|entry| entry.expect("an entry"));
    let keys: Vec<_> = keys.filter(|entry| entry.file_name().to_string_lossy().contains("osd.")).collect();
    let keyrings = keys.iter().filter(|entry| entry.file_name().to_string_lossy().ends_with(".keyring"));
    for keyring in keyrings {
        let mode = keyring.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", keyring.path().display());
    }
}

/// A client goes on for longer than its first tickets are valid, and no OSD leaves the map.
fn tickets_are_renewed(bed: &Testbed) {
    let before = bed.ceph_json("osd dump")["epoch"].as_u64().expect("an epoch");
    let writer = Background::rados(bed, &["bench", "25", "write", "-b", "4096", "-t", "4"]);
    let written = writer.wait(Duration::from_secs(60));
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    for osd in 0..2 {
        let log = std::fs::read_to_string(bed.dir().join(format!("osd.{osd}.log"))).expect("a log");
        assert!(!log.contains("cannot be renewed"), "{log}");
    }
    let dump = bed.ceph_json("osd dump");
    let osds = dump["osds"].as_array().expect("OSDs");
    let since = osds.iter().map(|osd| osd["up_from"].as_u64().expect("an epoch")).max();
    assert!(since <= Some(before), "an OSD was down: {dump}");
    bed.put("bench", "later", &[1; 5000]);
}

#[test]
fn the_embedded_monitor_lets_in_who_has_a_key() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = up(&[]);
    doors_are_kept(&bed);
    tickets_are_renewed(&bed);
    // Everything is known after a restart, an OSD that comes gets a key, and one that goes takes it along.
    bed.ok("down", &[]);
    bed.ok("up", &[]);
    bed.assert_has("bench", "o", &vec![7; 300_000]);
    assert!(bed.osd(&["add"]).status.success());
    assert!(bed.ceph_ok(&["auth", "get-key", "osd.2"]).len() >= 40);
    bed.ok("destroy", &[]);
    assert!(!bed.dir().exists(), "no key is left");
}

#[test]
fn the_embedded_monitor_encrypts() {
    if !installed("rados", "ceph-common") {
        return;
    }
    let bed = up(&["--ms-mode", "secure"]);
    doors_are_kept(&bed);
    // Who wants no encryption is told so.
    let crc = ["--ms_mon_client_mode", "crc", "--ms_client_mode", "crc"];
    let refused = bed.rados(&[&crc[..], &["ls"]].concat());
    assert!(!refused.status.success());
}

#[test]
fn real_monitors_let_in_who_has_a_key() {
    if !has_real_mon(&[]) {
        return;
    }
    let bed = up(&["--mon", "ceph", "--ms-mode", "secure"]);
    doors_are_kept(&bed);
    tickets_are_renewed(&bed);
    bed.wait_until("nothing is to be complained of", || bed.ceph_json("health")["status"] == "HEALTH_OK");
}

#[test]
fn what_cannot_be_is_refused() {
    let bed = Testbed::new();
    let refused = bed.run("up", &["--ms-mode", "secure"]);
    assert_says(&refused, "--ms-mode secure: its keys come with --auth cephx");
    assert_eq!(refused.status.code(), Some(2));
}
