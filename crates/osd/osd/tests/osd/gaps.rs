//! Maps that the monitor does not have any more when an OSD asks for them.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_wire::osd_op::OsdOp;

use super::cluster::{Cluster, Disks};
use super::mon::POOL_ID;
use super::peering::{kill, place, wait_clean};
use super::raw::Raw;

/// osd.0 was away while osd.1 served alone, and then osd.1 died. No map that is left tells of that, only the current one says that
/// osd.1 may have led meanwhile: osd.0 must not serve what it has, which is old.
#[test]
fn an_osd_that_missed_maps_does_not_serve_old_data() {
    let cluster = Cluster::start(61, Disks::Blue, 2, 1, &[1, 1, 1]);
    place(&cluster, 1, &[0, 1]);
    let write = |data: u8| {
        cluster.client(RouteMode::Direct, move |_, pool| async move {
            pool.write("a", 0, vec![data]).await.unwrap();
        });
    };
    write(1);
    kill(&cluster, 0);
    write(2);
    kill(&cluster, 1);
    // Osd.2 was up all the time, and never had the PG.
    cluster.mon.forgets_maps.set(true);
    cluster.start_osd(0, 1);
    cluster.wait_up(2);
    cluster.pass(Duration::from_secs(2));
    let (state, why) = cluster.states(0).remove(0);
    assert_eq!(
        (state.as_str(), why.contains("osd.1"), why.contains("osd.2")),
        ("down", true, false),
        "{why}"
    );
    let client = Raw::new(&cluster, 0);
    let request = client.request(&cluster, "a", OsdOp::read(0, 0));
    assert_eq!(client.ask(&cluster, request, &[], 1).map(|answer| answer.data), None);
    client.kill(&cluster);
    let blocked = cluster.client(RouteMode::Direct, |client, _| async move {
        let query = format!("{{\"prefix\": \"pg\", \"pgid\": \"{POOL_ID}.0\", \"cmd\": \"query\"}}");
        client.admin(carmine_types::OsdId(0), &query).await.unwrap()
    });
    let blocked: serde_json::Value = serde_json::from_str(&blocked).unwrap();
    let by = &blocked["recovery_state"][0]["peering_blocked_by"];
    assert_eq!((by[0]["osd"].as_u64(), by.as_array().unwrap().len()), (Some(1), 1), "{blocked}");
    // The one that served is back. It missed maps as well, after it died, in which nobody can have led.
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    let read =
        cluster.client(RouteMode::Direct, |_, pool| async move { pool.read("a", 0, 1).await.unwrap() });
    assert_eq!(read.to_vec(), [2]);
}

/// Both were away, and nobody can have led meanwhile.
#[test]
fn members_that_missed_maps_go_on_when_all_that_may_have_led_are_there() {
    let cluster = Cluster::start(62, Disks::Blue, 2, 1, &[1, 1]);
    cluster.mon.forgets_maps.set(true);
    cluster.client(RouteMode::Direct, |_, pool| async move { pool.write("a", 0, vec![1]).await.unwrap() });
    (0..2).for_each(|osd| kill(&cluster, osd));
    (0..10).for_each(|_| cluster.mon.change(|_| {}));
    (0..2).for_each(|osd| cluster.start_osd(osd, 1));
    let read =
        cluster.client(RouteMode::Direct, |_, pool| async move { pool.read("a", 0, 1).await.unwrap() });
    assert_eq!(read.to_vec(), [1]);
}

/// Maps that it missed while it ran: an interval begins, and its replica, which saw them, tells what happened.
#[test]
fn a_primary_that_missed_maps_while_it_ran_goes_on() {
    let cluster = Cluster::start(63, Disks::Blue, 2, 4, &[2, 2]);
    cluster.mon.forgets_maps.set(true);
    cluster.client(RouteMode::Direct, |_, pool| async move { pool.write("a", 0, vec![1]).await.unwrap() });
    let before = cluster.states(0).len();
    cluster.mon.deaf.borrow_mut().push(0);
    (0..5).for_each(|_| cluster.mon.change(|_| {}));
    cluster.pass(Duration::from_millis(200));
    cluster.mon.hear();
    wait_clean(&cluster, &[0]);
    assert_eq!(cluster.states(0).len(), before);
    cluster.client(RouteMode::Direct, |_, pool| async move { pool.write("a", 0, vec![2]).await.unwrap() });
    cluster.check_equal(&[0, 1]);
}
