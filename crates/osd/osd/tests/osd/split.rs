//! A pool that is given more PGs while clients write: its PGs are split, and nothing is lost or executed twice.

use std::collections::BTreeSet;
use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_wire::osd_op::OsdOp;
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, Running, noise};
use super::mon::POOL_ID;
use super::snaps::{purged, remove_snap, used};

pub(crate) const OBJECTS: u64 = 60;

pub(crate) fn set_pg_num(cluster: &Cluster, pg_num: u32) {
    let before = cluster.mon.map().epoch;
    cluster.mon.changes_with(move |map, inc| {
        let pool = map.pool(POOL_ID).unwrap().clone();
        inc.new_pools.insert(POOL_ID, PgPool { pg_num, pgp_num: pg_num, pg_num_pending: pg_num, ..pool });
    });
    cluster.wait("the map", || cluster.mon.map().epoch > before);
    cluster.pass(Duration::from_millis(500));
}

pub(crate) async fn fill(pool: Pool) {
    for at in 0..OBJECTS {
        pool.write_full(format!("o{at}"), noise(at, 512)).await.unwrap();
    }
}

pub(crate) async fn check(pool: Pool) {
    for at in 0..OBJECTS {
        let data = pool.read(format!("o{at}"), 0, 1024).await.unwrap();
        assert_eq!(data.to_vec(), noise(at, 512), "o{at}");
    }
}

fn start(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 4, &[2, 2]);
    cluster.client(RouteMode::Direct, |_, pool| fill(pool));
    cluster
}

/// So many PGs serve, on both OSDs together.
pub(crate) fn serves(cluster: &Cluster, pgs: usize) -> bool {
    let states: Vec<_> = (0..2).flat_map(|osd| cluster.states(osd)).collect();
    let active = states.iter().filter(|(state, _)| state.starts_with("active"));
    active.count() == pgs
}

#[test]
fn the_parts_of_a_pg_have_its_objects_and_serve_them() {
    let cluster = start(61);
    for pg_num in [8, 12, 64] {
        set_pg_num(&cluster, pg_num);
        cluster.client(RouteMode::Direct, |_, pool| check(pool));
        cluster.wait("all PGs serve", || serves(&cluster, pg_num as usize));
        check_listed(&cluster);
        cluster.check_equal(&[0, 1]);
    }
    // The OSDs find as many PGs in their stores.
    start_again(&cluster);
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
    end_clean(&cluster);
}

/// A client lists every object once.
pub(crate) fn check_listed(cluster: &Cluster) {
    cluster.client(RouteMode::Direct, |_, pool| async move {
        let listed: BTreeSet<_> = pool.list().await.unwrap().into_iter().map(|listed| listed.name).collect();
        assert_eq!(listed.len() as u64, OBJECTS);
    });
}

/// Kills both OSDs, and starts them with three reactors each.
pub(crate) fn start_again(cluster: &Cluster) {
    for osd in 0..2 {
        cluster.kill(osd);
        cluster.mon.down(osd);
    }
    (0..2).for_each(|osd| cluster.start_osd(osd, 3));
    cluster.wait_up(2);
}

/// Kills the OSDs; their stores are clean.
pub(crate) fn end_clean(cluster: &Cluster) {
    for osd in 0..2 {
        cluster.kill(osd);
        let report = cluster.fsck(osd);
        assert!(report.is_clean(), "{report:?}");
    }
}

const ROUNDS: u8 = 40;

/// Appends one byte after the other to some objects.
async fn append(pool: Pool, writer: u8) {
    for round in 0..ROUNDS {
        for at in 0..16 {
            pool.exec(format!("w{writer}-{at}"), vec![(OsdOp::append(1), vec![round].into())]).await.unwrap();
        }
    }
}

/// Two clients append, one by each way to an OSD's reactors.
pub(crate) fn start_writers(cluster: &Cluster) -> [Running<()>; 2] {
    let routes = [RouteMode::Direct, RouteMode::Single];
    [0, 1].map(|n| cluster.background(routes[n], move |_, pool| append(pool, n as u8)))
}

pub(crate) fn await_writers(cluster: &Cluster, writers: &[Running<()>; 2]) {
    cluster.wait("the writers", || writers.iter().all(|writer| writer.is_done()));
    writers.iter().for_each(|writer| writer.result());
}

/// Each append was executed once, and in order.
pub(crate) fn check_appended(cluster: &Cluster) {
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for (writer, at) in (0..2).flat_map(|writer| (0..16).map(move |at| (writer, at))) {
            let bytes = pool.read(format!("w{writer}-{at}"), 0, 1024).await.unwrap();
            assert_eq!(bytes.to_vec(), (0..ROUNDS).collect::<Vec<_>>(), "w{writer}-{at}");
        }
    });
}

#[test]
fn a_write_is_executed_once_while_its_pg_is_split() {
    let cluster = start(62);
    let writers = start_writers(&cluster);
    for pg_num in [8, 16, 32] {
        set_pg_num(&cluster, pg_num);
    }
    await_writers(&cluster, &writers);
    check_appended(&cluster);
    cluster.check_equal(&[0, 1]);
}

/// Gives the pool 8 and then 16 PGs while osd.1 is down, and starts it again.
fn split_while_one_is_down(cluster: &Cluster) {
    cluster.kill(1);
    cluster.mon.down(1);
    for pg_num in [8, 16] {
        set_pg_num(cluster, pg_num);
    }
    cluster.start_osd(1, 1);
    cluster.wait_up(2);
}

#[test]
fn an_osd_that_was_down_splits_its_copies_when_it_is_back() {
    let cluster = start(63);
    split_while_one_is_down(&cluster);
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.wait("all PGs serve", || serves(&cluster, 16));
    cluster.check_equal(&[0, 1]);
}

/// Objects with a clone for snapshot 1.
pub(crate) async fn fill_with_clones(pool: Pool) {
    for at in 0..OBJECTS {
        pool.write_full(format!("o{at}"), noise(at + 1, 512)).await.unwrap();
        pool.with_snaps(1, &[1]).write_full(format!("o{at}"), noise(at, 512)).await.unwrap();
    }
}

pub(crate) async fn check_clones(pool: Pool) {
    for at in 0..OBJECTS {
        let data = pool.at_snap(1).read(format!("o{at}"), 0, 1024).await.unwrap();
        assert_eq!(data.to_vec(), noise(at + 1, 512), "o{at}");
    }
    check(pool).await;
}

#[test]
fn snapshots_are_trimmed_after_their_pgs_were_split() {
    let cluster = Cluster::start(64, Disks::Blue, 2, 4, &[2, 2]);
    cluster.client(RouteMode::Direct, |_, pool| fill_with_clones(pool));
    // One OSD splits what it has in memory, the other what it reads when it starts.
    split_while_one_is_down(&cluster);
    cluster.client(RouteMode::Direct, |_, pool| check_clones(pool));
    cluster.wait("all PGs serve", || serves(&cluster, 16));
    let objects = OBJECTS as i64;
    assert_eq!(used(&cluster), (2 * objects, objects, 2 * objects * 512));
    remove_snap(&cluster, 1);
    assert_eq!((used(&cluster), purged(&cluster, 1)), ((objects, 0, objects * 512), 16));
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
}

/// PGs on each reactor of an OSD.
pub(crate) fn spread(cluster: &Cluster, osd: u32) -> Vec<usize> {
    let status = cluster.ask(&[osd], "status").remove(0);
    let mut counts = vec![0; status["reactors"].as_u64().unwrap() as usize];
    for pg in status["pg_states"].as_array().unwrap() {
        counts[pg["reactor"].as_u64().unwrap() as usize] += 1;
    }
    counts
}

fn parts_are_spread(seed: u64, disks: Disks) {
    let cluster = Cluster::start(seed, disks, 2, 1, &[4, 3]);
    cluster.client(RouteMode::Direct, |_, pool| fill_with_clones(pool));
    let writers = start_writers(&cluster);
    // The second comes while the parts of the first are on their way.
    for pg_num in [3, 8] {
        set_pg_num(&cluster, pg_num);
    }
    await_writers(&cluster, &writers);
    cluster.wait("all PGs serve", || serves(&cluster, 8));
    assert_eq!((spread(&cluster, 0), spread(&cluster, 1)), (vec![2; 4], vec![3, 3, 2]));
    cluster.client(RouteMode::Direct, |_, pool| check_clones(pool));
    remove_snap(&cluster, 1);
    assert_eq!((used(&cluster).1, purged(&cluster, 1)), (0, 8));
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
    if disks == Disks::Blue {
        end_clean(&cluster);
    }
}

#[test]
fn parts_go_to_reactors_with_fewer_pgs() {
    parts_are_spread(65, Disks::Blue);
    parts_are_spread(66, Disks::Cyan);
}
