//! Read leases: a primary that is cut off serves nobody once another may, and the other waits for that.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_osd::HeartbeatConfig;
use carmine_types::OsdId;
use carmine_wire::osd_op::OsdOp;

use super::cluster::{Cluster, Disks};
use super::peering::{kill, place};
use super::raw::Raw;

const SECOND: Duration = Duration::from_secs(1);
/// Of the lease of an OSD with Ceph's grace of 20 s.
const LEASE: Duration = Duration::from_secs(16);

fn start(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &[1, 1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move { pool.write("a", 0, vec![1]).await.unwrap() });
    cluster
}

/// Nobody but its clients hears osd.0, nor does it hear anybody else.
fn cut_off(cluster: &Cluster) {
    for other in ["osd.1", "osd.2", "mon"] {
        cluster.sim.cut("osd.0", other);
        cluster.sim.cut(other, "osd.0");
    }
}

fn read(cluster: &Cluster, client: &Raw, tid: u64) -> Option<Vec<u8>> {
    let request = client.request(cluster, "a", OsdOp::read(0, 0));
    client.ask(cluster, request, &[], tid).map(|answer| answer.data)
}

#[test]
fn a_primary_that_is_cut_off_stops_serving_and_goes_on_when_it_is_heard() {
    let cluster = start(41);
    let client = Raw::new(&cluster, 0);
    cluster.pass(Duration::from_secs(100));
    assert_eq!(read(&cluster, &client, 1), Some(vec![1]), "its lease is renewed");
    cut_off(&cluster);
    cluster.pass(Duration::from_secs(5));
    assert_eq!(read(&cluster, &client, 2), Some(vec![1]), "nobody else can serve yet");
    cluster.pass(LEASE);
    assert_eq!(read(&cluster, &client, 3), None);
    assert_eq!(cluster.states(0)[0].0, "active+clean+laggy");
    cluster.sim.mend_network();
    cluster.wait("an answer", || !client.answers(3).is_empty());
    assert_eq!(client.answers(3)[0].data, [1]);
    assert_eq!(cluster.states(0)[0].0, "active+clean");
}

fn wait_active(cluster: &Cluster, osd: u32) {
    while !cluster.states(osd).first().is_some_and(|(state, _)| state.starts_with("active")) {
        cluster.pass(SECOND / 4);
    }
}

/// The time until osd.1 serves that took the place of osd.0.
fn takes_over(cluster: &Cluster) -> Duration {
    let begin_ns = cluster.sim.now_ns();
    place(cluster, 1, &[1, 2]);
    wait_active(cluster, 1);
    Duration::from_nanos(cluster.sim.now_ns() - begin_ns)
}

#[test]
fn the_next_primary_waits_for_the_lease_of_one_that_may_live() {
    let cluster = start(42);
    let client = Raw::new(&cluster, 0);
    cut_off(&cluster);
    cluster.pass(Duration::from_secs(2));
    cluster.mon.down(0);
    place(&cluster, 1, &[1, 2]);
    cluster.pass(SECOND);
    let (state, why) = cluster.states(1).remove(0);
    assert_eq!((state.as_str(), why.contains("osd.0")), ("peering+wait", true), "{why}");
    let took = takes_over(&cluster);
    assert!((LEASE - 8 * SECOND..LEASE).contains(&took), "{took:?}");
    assert_eq!(read(&cluster, &client, 1), None, "by now the old one is silent");
}

#[test]
fn nobody_waits_for_one_that_died_or_left() {
    let cluster = start(43);
    // It is up, and says that it has left.
    assert!(takes_over(&cluster) < SECOND);
    place(&cluster, 1, &[0, 1]);
    wait_active(&cluster, 0);
    kill(&cluster, 0);
    assert!(takes_over(&cluster) < SECOND);
}

/// An OSD that restarts may have promised something a moment before.
#[test]
fn a_promise_outlives_the_process_that_gave_it() {
    let took = takes_over_after_a_restart(&start(44));
    assert!((LEASE - 2 * SECOND..LEASE + SECOND).contains(&took), "{took:?}");
}

/// It is told to watch others for a shorter time from now on: what it promised is as long as it was.
#[test]
fn a_promise_outlives_the_configuration_by_which_it_was_given() {
    let cluster = start(45);
    cluster.heartbeat.set(HeartbeatConfig {
        interval: SECOND,
        grace: 2 * SECOND,
        ..HeartbeatConfig::default()
    });
    let took = takes_over_after_a_restart(&cluster);
    assert!((LEASE - 2 * SECOND..LEASE + SECOND).contains(&took), "{took:?}");
}

/// osd.0, which leads, is cut off; osd.1, which promised it something, restarts and takes its place.
fn takes_over_after_a_restart(cluster: &Cluster) -> Duration {
    cut_off(cluster);
    cluster.pass(SECOND);
    kill(cluster, 1);
    cluster.start_osd(1, 1);
    cluster.mon.down(0);
    let is_up = |osd: u32| cluster.mon.map().is_up(OsdId(osd));
    cluster.wait("the map", || is_up(1) && !is_up(0));
    takes_over(cluster)
}
