//! OSDs watch each other.

use std::time::Duration;

use carmine_reactor::Shard;
use carmine_types::OsdId;
use carmine_wire::EntityAddr;
use carmine_wire::osd_msg::Failure;

use super::cluster::{Cluster, Disks};

const GONE: u8 = Failure::FAILED | Failure::IMMEDIATE;

/// The OSDs that reported this of an OSD.
fn reporters(cluster: &Cluster, osd: u32, flags: u8) -> Vec<u32> {
    let failures = cluster.mon.failures.borrow();
    let said = failures.iter().filter(|(_, failure)| (failure.osd, failure.flags) == (OsdId(osd), flags));
    let mut reporters: Vec<u32> = said.map(|(reporter, _)| reporter.0).collect();
    reporters.sort_unstable();
    reporters
}

#[test]
fn a_killed_osd_is_reported_by_all_others_at_once() {
    let cluster = Cluster::start(31, Disks::Cyan, 3, 8, &[1, 2, 1]);
    let map = cluster.mon.map();
    let addrs = [&map.client_addrs[2], &map.hb_back_addrs[2], &map.hb_front_addrs[2]];
    let ports = addrs.map(|addrs| addrs.msgr2().unwrap().sock.unwrap().port());
    assert!(ports[0] != ports[1] && ports[1] != ports[2], "each has a port of its own: {ports:?}");
    // They do not speak of each other while all is well.
    cluster.pass(Duration::from_secs(60));
    assert!(cluster.mon.failures.borrow().is_empty());
    let killed_ns = cluster.sim.now_ns();
    cluster.kill(2);
    cluster.wait("both to say so", || reporters(&cluster, 2, GONE) == [0, 1]);
    let took = Duration::from_nanos(cluster.sim.now_ns() - killed_ns);
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!(cluster.mon.failures.borrow()[0].1.addrs, map.client_addrs[2]);
    // The monitor has no ears for it: they say it once.
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.mon.failures.borrow().len(), 2);
    // It comes back at another address.
    cluster.start_osd(2, 1);
    cluster.wait("it to be up", || cluster.mon.map().client_addrs[2] != map.client_addrs[2]);
    cluster.pass(Duration::from_secs(60));
    assert_eq!(cluster.mon.failures.borrow().len(), 2);
}

#[test]
fn a_silent_osd_is_reported_after_the_grace() {
    let cluster = Cluster::start(32, Disks::Cyan, 3, 8, &[1, 1, 1]);
    cluster.kill(2);
    cluster.mon.down(2);
    cluster.pass(Duration::from_secs(1));
    cluster.mon.failures.borrow_mut().clear();
    // In its place comes a process that lets everybody in and says nothing.
    let addr = |port: u16| EntityAddr::msgr2(format!("10.0.0.3:{port}").parse().unwrap(), 77);
    cluster.sim.node("mute", 1, move |shard: Shard| async move {
        let (front, back) = (shard.listen(addr(7001).sock.unwrap()), shard.listen(addr(7002).sock.unwrap()));
        let (_front, _back) = (front.await.unwrap(), back.await.unwrap());
        std::future::pending::<()>().await;
    });
    let begin_ns = cluster.sim.now_ns();
    cluster.mon.change(move |inc| {
        inc.new_up_client.insert(OsdId(2), addr(7000).into());
        inc.new_hb_back_up.insert(OsdId(2), addr(7001).into());
        inc.new_hb_front_up.insert(OsdId(2), addr(7002).into());
    });
    cluster.wait("both to say so", || reporters(&cluster, 2, Failure::FAILED) == [0, 1]);
    let took = Duration::from_nanos(cluster.sim.now_ns() - begin_ns);
    assert!((20..=21).contains(&took.as_secs()), "{took:?}");
    assert!(cluster.mon.failures.borrow().iter().all(|(_, failure)| failure.failed_for_s == 20));
}
