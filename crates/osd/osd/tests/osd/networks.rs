//! OSDs on two networks: clients come on one, other OSDs on the other.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::OsdId;
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
    let known: Vec<_> = cluster.mon.map().cluster_addrs.clone();
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
    cluster.mon.change(move |inc| {
        inc.new_up_cluster = (0..3).map(OsdId).zip(known).collect();
    });
    cluster.wait("the write", || during.is_done());
    cluster.check_equal(&[0, 1, 2]);
}
