//! A pool that is given fewer PGs while clients write: its PGs are merged, one after the other, and nothing is lost or executed twice.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::OsdId;
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::snaps::{purged, remove_snap, used};
use super::split::{
    OBJECTS, await_writers, check, check_appended, check_clones, check_listed, end_clean, fill,
    fill_with_clones, serves, set_pg_num, start_again, start_writers,
};

/// Changes the pool by the newest map.
fn change_pool(cluster: &Cluster, change: impl Fn(PgPool) -> PgPool + 'static) {
    let before = cluster.mon.map().epoch;
    cluster.mon.changes_with(move |map, inc| {
        let pool = map.pool(POOL_ID).unwrap().clone();
        inc.new_pools.insert(POOL_ID, change(pool));
    });
    cluster.wait("the map", || cluster.mon.map().epoch > before);
}

fn pool(cluster: &Cluster) -> PgPool {
    cluster.mon.map().pool(POOL_ID).unwrap().clone()
}

/// Places the PGs that are to end where those are that they end in, and announces the merge of the last one when all are clean.
fn announce(cluster: &Cluster, osds: &[u32]) {
    change_pool(cluster, |pool| PgPool { pgp_num: pool.pg_num - 1, ..pool });
    let pgs = pool(cluster).pg_num as usize;
    for n in 0.. {
        cluster.pass(Duration::from_millis(200));
        let states: Vec<_> = osds.iter().flat_map(|osd| cluster.states(*osd)).collect();
        if states.len() == pgs && states.iter().all(|(state, _)| state == "active+clean") {
            break;
        }
        assert!(n < 100, "not all of {pgs} PGs are clean where they are placed now: {states:?}");
    }
    change_pool(cluster, |pool| PgPool { pg_num_pending: pool.pg_num - 1, ..pool });
}

/// Merges PGs until there are so many. A merge that the OSDs do not want at the time is announced again.
fn merge_to(cluster: &Cluster, osds: &[u32], pg_num: u32) {
    let mut announced = 0;
    while pool(cluster).pg_num > pg_num {
        let now = pool(cluster).pg_num;
        announce(cluster, osds);
        let is_over = || pool(cluster).pg_num == pool(cluster).pg_num_pending;
        cluster.wait("the merge, or its end", is_over);
        announced += 1;
        assert!(announced < 40, "{now}: {:?}", cluster.mon.merges.borrow().last());
    }
}

fn merged_pgs_have_all_objects(seed: u64, disks: Disks) {
    let cluster = Cluster::start(seed, disks, 2, 6, &[4, 3]);
    cluster.client(RouteMode::Direct, |_, pool| fill(pool));
    for pg_num in [5, 2, 1] {
        merge_to(&cluster, &[0, 1], pg_num);
        cluster.client(RouteMode::Direct, |_, pool| check(pool));
        cluster.wait("all PGs serve", || serves(&cluster, pg_num as usize));
        check_listed(&cluster);
        cluster.check_equal(&[0, 1]);
    }
    set_pg_num(&cluster, 4);
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    merge_to(&cluster, &[0, 1], 3);
    if disks == Disks::Blue {
        start_again(&cluster);
    }
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
    if disks == Disks::Blue {
        end_clean(&cluster);
    }
}

#[test]
fn a_merged_pg_has_the_objects_of_its_parts() {
    merged_pgs_have_all_objects(71, Disks::Blue);
    merged_pgs_have_all_objects(72, Disks::Cyan);
}

#[test]
fn a_write_is_executed_once_while_its_pg_is_merged() {
    for seed in 73..78 {
        let cluster = Cluster::start(seed, Disks::Blue, 2, 6, &[2, 3]);
        let writers = start_writers(&cluster);
        merge_to(&cluster, &[0, 1], 2);
        set_pg_num(&cluster, 4);
        merge_to(&cluster, &[0, 1], 3);
        await_writers(&cluster, &writers);
        check_appended(&cluster);
        cluster.check_equal(&[0, 1]);
    }
}

#[test]
fn an_osd_that_was_down_gets_what_it_missed() {
    for misses_all in [false, true] {
        let cluster = Cluster::start(79, Disks::Blue, 3, 4, &[2, 2, 1]);
        cluster.client(RouteMode::Direct, |_, pool| fill(pool));
        let leave = || {
            cluster.kill(2);
            cluster.mon.down(2);
            cluster.mon.changes_with(|map, inc| {
                let pool = map.pool(POOL_ID).unwrap().clone();
                inc.new_pools.insert(POOL_ID, PgPool { size: 2, min_size: 1, ..pool });
                inc.new_weight.insert(OsdId(2), 0);
            });
        };
        if misses_all {
            leave();
            merge_to(&cluster, &[0, 1], 1);
        } else {
            merge_to(&cluster, &[0, 1, 2], 3);
            leave();
            cluster.client(RouteMode::Direct, |_, pool| async move {
                pool.write_full("o1", noise(1, 512)).await.unwrap();
            });
            merge_to(&cluster, &[0, 1], 2);
        }
        cluster.mon.changes_with(|_, inc| _ = inc.new_weight.insert(OsdId(2), 0x10000));
        change_pool(&cluster, |pool| PgPool { size: 3, ..pool });
        cluster.start_osd(2, 2);
        cluster.wait_up(3);
        cluster.client(RouteMode::Direct, |_, pool| check(pool));
        cluster.pass(Duration::from_secs(5));
        cluster.check_equal(&[0, 1, 2]);
    }
}

#[test]
fn snapshots_are_trimmed_after_their_pgs_were_merged() {
    let cluster = Cluster::start(81, Disks::Blue, 2, 4, &[2, 2]);
    cluster.client(RouteMode::Direct, |_, pool| fill_with_clones(pool));
    merge_to(&cluster, &[0, 1], 1);
    cluster.client(RouteMode::Direct, |_, pool| check_clones(pool));
    let objects = OBJECTS as i64;
    assert_eq!(used(&cluster), (2 * objects, objects, 2 * objects * 512));
    remove_snap(&cluster, 1);
    assert_eq!((used(&cluster), purged(&cluster, 1)), ((objects, 0, objects * 512), 1));
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
}

#[test]
fn clients_do_not_wait_for_a_merge_that_cannot_be() {
    let cluster = Cluster::start(82, Disks::Blue, 2, 2, &[2, 1]);
    cluster.client(RouteMode::Direct, |_, pool| fill(pool));
    change_pool(&cluster, |pool| PgPool { min_size: 1, pgp_num: 1, ..pool });
    cluster.wait("all PGs serve", || serves(&cluster, 2));
    cluster.kill(1);
    cluster.mon.down(1);
    change_pool(&cluster, |pool| PgPool { pg_num_pending: 1, ..pool });
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    let words = cluster.mon.merges.borrow().iter().map(|word| word.ready).collect::<Vec<_>>();
    assert!(!words.is_empty() && words.iter().all(|ready| !ready), "{words:?}");
    assert_eq!(pool(&cluster).pg_num, 2);
    cluster.start_osd(1, 2);
    cluster.wait_up(2);
    cluster.wait("all PGs are clean", || serves(&cluster, 2));
    cluster.pass(Duration::from_secs(2));
    merge_to(&cluster, &[0, 1], 1);
    cluster.client(RouteMode::Direct, |_, pool| check(pool));
    cluster.check_equal(&[0, 1]);
}

/// PGs move before they are merged, and OSDs that have left them have removed their copies.
#[test]
fn osds_without_copies_merge_nothing() {
    for (seed, disks) in [(83, Disks::Blue), (84, Disks::Cyan)] {
        let cluster = Cluster::start(seed, disks, 2, 8, &[2, 3, 1]);
        cluster.client(RouteMode::Direct, |_, pool| fill(pool));
        for pg_num in [5, 2] {
            merge_to(&cluster, &[0, 1, 2], pg_num);
            cluster.client(RouteMode::Direct, |_, pool| check(pool));
            // Strays are removed meanwhile.
            cluster.pass(Duration::from_secs(20));
        }
        merge_to(&cluster, &[0, 1, 2], 1);
        cluster.client(RouteMode::Direct, |_, pool| check(pool));
    }
}
