//! Objects of which no member can give all, while an OSD that is down may: what needs them waits.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::{Epoch, ObjectId, OsdId, PgId, errno};
use serde_json::Value;

use super::cluster::{Cluster, Disks, Running, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place};

const SECOND: Duration = Duration::from_secs(1);
const BYTES: usize = 4 * 4096;
/// The block that goes bad.
const BAD: u64 = 2 * 4096;

fn content() -> Vec<u8> {
    noise(77, BYTES)
}

/// osd.0 and osd.1 have a PG of two objects. osd.1 dies, and then a block of osd.0's copy of the first goes bad.
fn start(seed: u64, osds: usize) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &vec![1; osds]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", content()).await.unwrap();
        pool.write_full("b", content()).await.unwrap();
    });
    kill(&cluster, 1);
    let disk = cluster.disk(0);
    // Both objects have the same content: one of them is first.
    let at = disk.find(&content()[BAD as usize..][..16])[0];
    disk.flip(at + 5, 1);
    cluster
}

type Read = Result<Vec<u8>, i32>;

fn read(cluster: &Cluster, name: &'static str, off: u64, len: u64) -> Running<Read> {
    cluster.background(RouteMode::Direct, move |_, pool| async move {
        pool.read(name, off, len).await.map(|data| data.to_vec()).map_err(|error| error.errno())
    })
}

/// Reads all of both objects: the read of the one that is unfound, which waits.
fn read_both(cluster: &Cluster) -> (Running<Read>, &'static str) {
    let (a, b) = (read(cluster, "a", 0, 0), read(cluster, "b", 0, 0));
    cluster.wait("a read", || a.is_done() || b.is_done());
    cluster.pass(SECOND * 3);
    let (found, unfound) = if a.is_done() { (a, (b, "b")) } else { (b, (a, "a")) };
    assert_eq!(found.result(), Ok(content()));
    assert!(!unfound.0.is_done(), "it waits");
    unfound
}

fn list_unfound(cluster: &Cluster) -> Value {
    cluster.ask(&[0], "list_unfound\", \"pgid\": \"1.0").remove(0)
}

fn state(cluster: &Cluster) -> String {
    cluster.states(0).remove(0).0
}

#[test]
fn a_read_waits_for_an_osd_that_may_have_the_block() {
    let cluster = start(61, 2);
    let (reading, name) = read_both(&cluster);
    assert_eq!(state(&cluster), "active+recovery_unfound+undersized+degraded");
    let list = list_unfound(&cluster);
    assert_eq!((list["num_unfound"].as_u64(), &list["objects"][0]["oid"]["oid"]), (Some(1), &name.into()));
    assert_eq!(list["might_have_unfound"][0]["osd"], "1", "{list}");
    let give_up = r#"{"prefix": "mark_unfound_lost", "pgid": "1.0", "mulcmd": "revert"}"#;
    let refused = cluster.client(RouteMode::Direct, move |client, _| async move {
        client.admin(OsdId(0), give_up).await.unwrap_err().to_string()
    });
    assert!(refused.contains("not marking lost"), "{refused}");
    cluster.start_osd(1, 1);
    cluster.wait("the read", || reading.is_done());
    assert_eq!(reading.result(), Ok(content()));
    assert_eq!(list_unfound(&cluster)["num_unfound"], 0);
    cluster.pass(SECOND);
    cluster.check_equal(&[0, 1]);
}

#[test]
fn a_block_of_which_nobody_has_a_copy_any_more_is_an_error() {
    let cluster = start(62, 2);
    let (reading, _) = read_both(&cluster);
    let epoch = cluster.mon.map().epoch;
    cluster.mon.change(move |inc| _ = inc.new_lost.insert(OsdId(1), Epoch(epoch.0)));
    cluster.wait("the read", || reading.is_done());
    assert_eq!(reading.result(), Err(errno::EIO));
    assert_eq!(state(&cluster), "active+undersized+degraded");
}

/// A third OSD gets all but the object, and the object when it is found.
#[test]
fn an_unfound_object_is_not_copied_without_its_block() {
    let cluster = start(63, 3);
    let (reading, _) = read_both(&cluster);
    place(&cluster, 1, &[0, 2]);
    cluster.pass(SECOND * 3);
    let found = |state: &str| state.contains("_unfound") && state.starts_with("active+");
    assert!(found(&state(&cluster)), "{}", state(&cluster));
    let activations = cluster.counter(&[0], "activations");
    cluster.pass(SECOND * 40);
    assert!(found(&state(&cluster)), "{}", state(&cluster));
    assert_eq!(cluster.counter(&[0], "activations"), activations, "it does not peer again and again");
    assert!(!reading.is_done());
    // It is no member, and is asked all the same.
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    cluster.wait("the read", || reading.is_done());
    assert_eq!(reading.result(), Ok(content()));
    cluster.pass(SECOND * 40);
    assert_eq!(state(&cluster), "active+clean");
    place(&cluster, 1, &[2, 0]);
    cluster.check_equal(&[2, 0]);
    let both = ["a", "b"].map(|name| read(&cluster, name, 0, 0));
    cluster.wait("the reads", || both.iter().all(Running::is_done));
    both.iter().for_each(|read| assert_eq!(read.result(), Ok(content())));
}

/// With too few complete copies the PG is copied before it serves: osd.2 gets all but the block. Then the object that is not
/// unfound is written, and a part of the other one; and that is read, all of it, which waits.
fn start_with_copy(seed: u64) -> (Cluster, Running<Read>, &'static str) {
    let cluster = start(seed, 3);
    cluster.mon.min_size(2);
    place(&cluster, 1, &[0, 2]);
    cluster.pass(SECOND * 5);
    assert_eq!(state(&cluster), "active+recovery_unfound+degraded");
    let list = list_unfound(&cluster);
    let (name, other) = if list["objects"][0]["oid"]["oid"] == "a" { ("a", "b") } else { ("b", "a") };
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        pool.write_full(other, noise(5, BYTES)).await.unwrap();
        pool.write(name, 0, noise(6, 4096)).await.unwrap();
    });
    let reading = read(&cluster, name, 0, 0);
    cluster.pass(SECOND * 3);
    assert!(!reading.is_done(), "it waits");
    (cluster, reading, name)
}

/// Reads all of the object that was unfound.
fn check_found(cluster: &Cluster, name: &'static str) {
    let reading = read(cluster, name, 0, 0);
    cluster.wait("the read", || reading.is_done());
    assert!(reading.result() == Ok([&noise(6, 4096), &content()[4096..]].concat()));
}

/// Operations that do not need the block are served, also after a restart; those that do wait.
#[test]
fn a_pg_that_was_copied_before_it_serves_waits_only_for_the_block() {
    let (cluster, reading, name) = start_with_copy(64);
    let activations = cluster.counter(&[0], "activations");
    cluster.pass(SECOND * 40);
    assert_eq!(cluster.counter(&[0], "activations"), activations, "it does not peer again and again");
    for osd in [0, 2] {
        kill(&cluster, osd);
    }
    for osd in [0, 2] {
        cluster.start_osd(osd, 1);
    }
    cluster.wait_up(2);
    cluster.pass(SECOND * 5);
    assert_eq!(state(&cluster), "active+recovery_unfound+degraded", "it is known after a restart");
    assert_eq!(list_unfound(&cluster)["num_unfound"], 1);
    assert!(!reading.is_done(), "it waits");
    // osd.1 is no member, and is asked all the same.
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    cluster.wait("the read", || reading.is_done());
    check_found(&cluster, name);
    cluster.pass(SECOND * 20);
    assert_eq!(
        (state(&cluster).as_str(), &list_unfound(&cluster)["num_unfound"]),
        ("active+clean", &0.into())
    );
    cluster.check_equal(&[0, 2]);
    // The other copy is whole, too.
    cluster.mon.min_size(1);
    kill(&cluster, 0);
    check_found(&cluster, name);
}

/// The copy that was made without the block leads: it knows the block when it comes, and that it has to wait.
#[test]
fn a_copy_that_lacks_a_block_is_given_it_when_it_leads() {
    let (cluster, reading, name) = start_with_copy(65);
    cluster.mon.min_size(1);
    kill(&cluster, 0);
    cluster.pass(SECOND * 5);
    assert_eq!(cluster.states(2).remove(0).0, "active+recovery_unfound+undersized+degraded");
    assert!(!reading.is_done(), "it waits");
    cluster.start_osd(1, 1);
    cluster.wait_up(2);
    cluster.wait("the read", || reading.is_done());
    check_found(&cluster, name);
}

#[test]
fn an_unfound_block_is_lost_when_nobody_is_left_who_may_have_it() {
    let (cluster, reading, _) = start_with_copy(66);
    let epoch = cluster.mon.map().epoch;
    cluster.mon.change(move |inc| _ = inc.new_lost.insert(OsdId(1), Epoch(epoch.0)));
    cluster.wait("the read", || reading.is_done());
    assert_eq!(reading.result(), Err(errno::EIO));
    cluster.pass(SECOND * 15);
    assert_eq!(state(&cluster), "active+clean");
}

/// A name of an object of this PG, of two.
fn name_in(ps: u32) -> &'static str {
    let is_in = |name: &&str| {
        PgId::of_hash(POOL_ID, ObjectId::head(POOL_ID, b"", b"", name.as_bytes()).hash, 2).ps == ps
    };
    ["a", "b", "c", "d", "e", "f"].into_iter().find(is_in).unwrap()
}

/// A write that waits for an unfound block keeps its object busy, and keeps no other PG of its reactor from being copied: long objects
/// are copied one at a time.
#[test]
fn a_write_that_waits_for_a_block_holds_up_no_other_backfill() {
    let cluster = Cluster::start(67, Disks::Blue, 2, 2, &[1, 1, 1]);
    place(&cluster, 2, &[0, 1]);
    let (bad, good, long) = (name_in(0), name_in(1), noise(78, 3 << 20));
    let data = long.clone();
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        pool.write_full(bad, data).await.unwrap();
        pool.write_full(good, noise(79, 3 << 20)).await.unwrap();
    });
    kill(&cluster, 1);
    let disk = cluster.disk(0);
    disk.flip(disk.find(&long[BAD as usize..][..16])[0] + 5, 1);
    // A part of the block: the rest has to be read.
    let write = |off: u64| {
        cluster.background(RouteMode::Direct, move |_, pool| async move {
            pool.write(bad, off, vec![9; 10]).await.unwrap();
        })
    };
    let writing = write(BAD + 7);
    cluster.pass(SECOND);
    assert!(!writing.is_done(), "it waits");
    place(&cluster, 2, &[0, 2]);
    // The monitor lets osd.2 lead when it has a whole copy.
    let state = |ps: u32| {
        let statuses = cluster.ask(&[0, 2], "status");
        let pgs = statuses.iter().flat_map(|status| status["pg_states"].as_array().unwrap());
        let mut led = pgs.filter(|pg| pg["pg"] == format!("{POOL_ID}.{ps}") && pg["primary"] == true);
        led.next().unwrap()["state"].as_str().unwrap().to_owned()
    };
    cluster.pass(SECOND * 15);
    assert!(state(0).contains("_unfound") && state(1) == "active+clean", "{} and {}", state(0), state(1));
    assert!(!writing.is_done(), "it still waits");
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    cluster.wait("the write", || writing.is_done());
    cluster.pass(SECOND * 40);
    assert_eq!([state(0), state(1)], ["active+clean", "active+clean"]);
    cluster.check_equal(&[0, 2]);
}
