//! OSDs on two networks: clients come on one, other OSDs on the other.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::OsdId;
use carmine_wire::osdmap::Incremental;
use carmine_wire::{EntityAddr, EntityAddrVec};

use super::cluster::{Cluster, Disks};

fn ip(addrs: &EntityAddrVec) -> String {
    addrs.msgr2().and_then(|addr| addr.sock).expect("an address").ip().to_string()
}

/// Three OSDs, of which each has two reactors and an address on the cluster network.
fn apart(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Cyan, 3, 8, &[2, 2, 2]);
    cluster.apart.set(true);
    for osd in 0..3 {
        cluster.kill(osd);
        cluster.mon.down(osd);
        cluster.start_osd(osd, 2);
    }
    let is_apart = |osd: usize| ip(&cluster.mon.map().cluster_addrs[osd]).starts_with("10.1.0.");
    cluster.wait("all to be on two networks", || (0..3).all(is_apart));
    cluster.wait_up(3);
    cluster
}

#[test]
fn the_map_has_the_addresses_of_both_networks() {
    let cluster = apart(61);
    let map = cluster.mon.map();
    for osd in 0..3 {
        let (public, own) = (format!("10.0.0.{}", osd + 1), format!("10.1.0.{}", osd + 1));
        assert_eq!([&map.client_addrs, &map.hb_front_addrs].map(|all| ip(&all[osd])), [public.as_str(); 2]);
        assert_eq!([&map.cluster_addrs, &map.hb_back_addrs].map(|all| ip(&all[osd])), [own.as_str(); 2]);
    }
}

#[test]
fn writes_are_replicated_on_the_cluster_network_and_reads_do_without() {
    let cluster = apart(62);
    let write = |name: &'static str| {
        cluster.background(RouteMode::Direct, move |_, pool| async move {
            pool.write_full(name, b"data".to_vec()).await.unwrap();
        })
    };
    let before = write("before");
    cluster.wait("a write", || before.is_done());
    // Nobody is there any more for other OSDs, by the map; clients find all of them where they were.
    cluster.mon.change(|inc| {
        for osd in 0..3 {
            let nobody = EntityAddr::msgr2(format!("10.1.0.{}:9", osd + 1).parse().unwrap(), 9);
            inc.new_up_cluster.insert(OsdId(osd), nobody.into());
        }
    });
    cluster.pass(Duration::from_secs(1));
    let during = write("during");
    cluster.pass(Duration::from_secs(5));
    assert!(!during.is_done(), "it went another way");
    let read = cluster.client(RouteMode::Direct, |_, pool| async move { pool.read("before", 0, 4).await });
    assert_eq!(read.unwrap().to_vec(), b"data");
    // They boot again, with the addresses that they have.
    (0..3).for_each(|osd| cluster.mon.down(osd));
    cluster.wait("the write", || during.is_done());
    cluster.check_equal(&[0, 1, 2]);
}

/// From now on, by the map, osd.0 and osd.1 answer pings on the cluster network there.
fn answer_at(cluster: &Cluster, back: [EntityAddrVec; 2], more: impl FnOnce(&mut Incremental) + 'static) {
    cluster.mon.changes_with(move |map, inc| {
        for (at, back) in back.into_iter().enumerate() {
            let osd = OsdId(at as u32);
            // It comes with the other addresses.
            inc.new_up_client.insert(osd, map.client_addrs[at].clone());
            inc.new_hb_front_up.insert(osd, map.hb_front_addrs[at].clone());
            inc.new_hb_back_up.insert(osd, back);
        }
        more(inc);
    });
}

/// An OSD that is cut off from the others still reaches the monitor. It stays down until they answer it.
#[test]
fn an_osd_that_was_marked_down_boots_when_others_answer_it() {
    let cluster = Cluster::start(63, Disks::Cyan, 2, 8, &[1, 1, 1]);
    let is_up = |osd: u32| cluster.mon.map().is_up(OsdId(osd));
    let known = [0, 1].map(|osd| cluster.mon.map().hb_back_addrs[osd].clone());
    let nobody = |osd: u32| EntityAddr::msgr2(format!("10.1.0.{osd}:9").parse().unwrap(), 9).into();
    answer_at(&cluster, [nobody(1), nobody(2)], |inc| inc.mark_down(OsdId(2)));
    cluster.wait("it to be down", || !is_up(2));
    cluster.pass(Duration::from_secs(30));
    assert!(!is_up(2) && is_up(0), "it came back although nobody answers");
    answer_at(&cluster, known, |_| {});
    let healed_ns = cluster.sim.now_ns();
    cluster.wait("it to be up", || is_up(2));
    let took = Duration::from_nanos(cluster.sim.now_ns() - healed_ns);
    assert!(took < Duration::from_secs(5), "{took:?}");
    // Marked down by mistake, it is back at once.
    cluster.mon.down(2);
    cluster.wait("it to be down", || !is_up(2));
    let down_ns = cluster.sim.now_ns();
    cluster.wait("it to be up", || is_up(2));
    let took = Duration::from_nanos(cluster.sim.now_ns() - down_ns);
    assert!(took < Duration::from_millis(100), "{took:?}");
}
