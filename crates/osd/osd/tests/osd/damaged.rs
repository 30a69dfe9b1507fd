//! An OSD that cannot read its metadata: it ends itself when others can serve all that it has, and clients see no error then. While
//! others cannot, it goes on.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_store::{Kv, KvBatch};
use carmine_types::OsdId;

use super::cluster::{Cluster, Disks, noise};
use super::peering::{kill, place, wait_clean};

const PGS: u32 = 4;
const OBJECTS: u64 = 24;
/// The first byte of the keys of PGs' infos, and of onodes.
const INFOS: u8 = b'I';
const ONODES: u8 = b'O';

fn content(object: u64) -> Vec<u8> {
    noise(object + 1, 5000)
}

fn start(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 3, PGS, &[1, 2, 1]);
    place(&cluster, PGS, &[0, 1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for object in 0..OBJECTS {
            pool.write_full(&format!("a{object}"), content(object)).await.unwrap();
        }
    });
    cluster
}

/// Reads everything; an error of any is one of the test.
fn read_all(cluster: &Cluster) {
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for object in 0..OBJECTS {
            let data = pool.read(&format!("a{object}"), 0, 0).await.unwrap().to_vec();
            assert!(data == content(object), "object {object}");
        }
    });
}

/// Flips a bit of each value of this kind.
fn flip(cluster: &Cluster, osd: u32, kind: u8) {
    let (kv, mut batch) = (cluster.kv(osd), KvBatch::default());
    kv.scan(&[kind], &[kind + 1], &mut |key, value| {
        let mut value = value.to_vec();
        value[3] ^= 0x10;
        batch.put(key, &value);
        true
    })
    .unwrap();
    assert!(!batch.is_empty());
    kv.commit(&[batch], true).unwrap();
}

/// Stops an OSD in order, so that all that it knows is in its key-value store, and starts it with damaged metadata.
fn restart_damaged(cluster: &Cluster, osd: u32, kind: u8) {
    // The log is replayed by a mount, and must not mend what is flipped.
    cluster.kill(osd);
    cluster.mon.down(osd);
    cluster.fsck(osd);
    flip(cluster, osd, kind);
    cluster.start_osd(osd, 2);
}

/// The monitor hears of its goodbye, and the map says that it is down.
fn see_off(cluster: &Cluster, osd: u32) {
    cluster.wait("a goodbye", || cluster.mon.gone.borrow().contains(&OsdId(osd)));
    let what = cluster.mon.damage.borrow()[&OsdId(osd)].clone();
    assert!(what.contains("damaged"), "{what}");
    cluster.mon.dead.borrow_mut().insert(osd);
    cluster.mon.down(osd);
}

#[test]
fn an_osd_whose_pgs_cannot_be_read_gives_way_to_the_others() {
    let cluster = start(81);
    restart_damaged(&cluster, 1, INFOS);
    see_off(&cluster, 1);
    read_all(&cluster);
    // Its reactors have stopped, but the simulator keeps its node, with its addresses, until it is killed.
    cluster.kill(1);
    // It is a new one now, which is given its copies.
    cluster.wipe(1);
    cluster.start_osd(1, 2);
    cluster.wait_up(3);
    wait_clean(&cluster, &[0]);
    read_all(&cluster);
    cluster.check_equal(&[0, 1, 2]);
}

#[test]
fn clients_are_not_told_of_metadata_that_others_have() {
    let cluster = start(82);
    restart_damaged(&cluster, 1, ONODES);
    cluster.wait_up(3);
    let reading = cluster.background(RouteMode::Direct, |_, pool| async move {
        for object in 0..OBJECTS {
            let data = pool.read(&format!("a{object}"), 0, 0).await.unwrap().to_vec();
            assert!(data == content(object), "object {object}");
            pool.write(&format!("a{object}"), 0, vec![7; 9]).await.unwrap();
        }
    });
    see_off(&cluster, 1);
    cluster.wait("the client", || reading.is_done());
}

#[test]
fn an_osd_that_others_need_goes_on() {
    let cluster = start(83);
    // Of three copies two have to be there; the fake monitor's pools need one.
    cluster.mon.min_size(2);
    kill(&cluster, 2);
    restart_damaged(&cluster, 1, INFOS);
    cluster.wait_up(2);
    cluster.pass(Duration::from_secs(30));
    assert!(cluster.mon.damage.borrow().contains_key(&OsdId(1)), "it tells of its damage");
    assert!(cluster.mon.gone.borrow().is_empty(), "and goes on");
    cluster.start_osd(2, 1);
    see_off(&cluster, 1);
    read_all(&cluster);
}
