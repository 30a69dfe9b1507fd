//! Stores that fail: nothing is acknowledged, and all goes on when the OSD is back with a store that works.

use std::time::Duration;

use carmine_client::RouteMode;

use super::cluster::{Cluster, Disks};
use super::peering::place;

const SECOND: Duration = Duration::from_secs(1);

/// osd.0 leads; the store of `victim` fails under a write, and works again when the OSD is started again. Both copies are needed.
fn a_store_fails(victim: u32) {
    let cluster = Cluster::start(20 + u64::from(victim), Disks::Blue, 2, 2, &[1, 1]);
    cluster.mon.min_size(2);
    place(&cluster, 2, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("a", b"old".to_vec()).await.unwrap()
    });
    let append = |name: &'static str| {
        cluster.background(RouteMode::Direct, move |_, pool| async move {
            let ops = vec![(carmine_wire::osd_op::OsdOp::append(3), b"new".to_vec().into())];
            pool.exec(name, ops).await.unwrap();
        })
    };
    cluster.disk(victim).fail_writes(true);
    let mut writers = vec![append("a")];
    cluster.pass(SECOND * 2);
    // These find a store that has stopped, also in a PG in which nothing was in flight.
    writers.extend(["b", "c", "d", "e"].map(append));
    cluster.pass(SECOND);
    let any_done = || writers.iter().any(|writer| writer.is_done());
    assert!(!any_done(), "acknowledged without osd.{victim}");
    let names_the_culprit = |(state, why): &(String, String)| match victim {
        0 => state == "failed" && why.contains("its store failed"),
        _ => state == "peering" && why.contains("osd.1"),
    };
    let states = cluster.states(0);
    assert!(states.iter().any(names_the_culprit), "{states:?}");
    // The process ends, as `carmine-osd` sees to; the map says so; it comes back.
    cluster.kill(victim);
    cluster.mon.down(victim);
    cluster.pass(SECOND);
    assert!(!any_done());
    cluster.disk(victim).fail_writes(false);
    cluster.start_osd(victim, 1);
    cluster.wait("the writers", || writers.iter().all(|writer| writer.is_done()));
    let data = cluster
        .client(RouteMode::Direct, |_, pool| async move { pool.read("a", 0, 0).await.unwrap().to_vec() });
    assert_eq!(data, b"oldnew", "applied once");
    cluster.check_equal(&[0, 1]);
}

#[test]
fn a_replica_whose_store_fails_is_waited_for() {
    a_store_fails(1);
}

#[test]
fn a_primary_whose_store_fails_acknowledges_nothing() {
    a_store_fails(0);
}
