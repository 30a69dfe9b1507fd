//! PGs that are made, move to other OSDs, and lose their copies.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_types::{Epoch, OsdId, UTime, errno};
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};
use super::peering::{kill, place, wait_clean, wait_state};
use super::recovery::outrun_the_log;

const SECOND: Duration = Duration::from_secs(1);
const OBJECTS: u64 = 50;
const NEW: &str = "this copy is new, and nobody that was asked knows who served clients before";

async fn fill(pool: &Pool) {
    for n in 0..OBJECTS {
        pool.write_full(format!("o{n}"), noise(n, 5000)).await.unwrap();
    }
}

async fn check(pool: &Pool) {
    for n in 0..OBJECTS {
        assert!(pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec() == noise(n, 5000), "o{n}");
    }
}

/// Four PGs on osd.0 and osd.1 of four OSDs.
fn start(seed: u64, is_log_long_enough: bool) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 4, &[2, 1, 1, 2]);
    place(&cluster, 4, &[0, 1]);
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        fill(&pool).await;
        if !is_log_long_enough {
            outrun_the_log(&pool).await;
        }
    });
    wait_clean(&cluster, &[0]);
    // Nobody else has a copy any more, however empty.
    cluster.pass(SECOND * 15);
    cluster
}

/// A primary cannot tell a PG that was never active from one whose copies are elsewhere: it waits for the monitor's word.
#[test]
fn a_pg_is_new_only_if_the_monitor_says_so() {
    let cluster = Cluster::start(1, Disks::Blue, 2, 4, &[2, 1]);
    wait_clean(&cluster, &[0, 1]);
    cluster.mon.withholds_creates.set(true);
    cluster.mon.change(|inc| {
        inc.new_pools.insert(2, PgPool::replicated(2, 1, 8, 0, Epoch(1), UTime::ZERO));
        inc.new_pool_names.insert(2, "second".into());
        inc.new_pool_max = 2;
    });
    let writing = cluster.background(RouteMode::Direct, |client, _| async move {
        while client.pool("second").is_err() {
            client.shard().sleep(SECOND / 100).await;
        }
        client.pool("second").unwrap().write_full("a", b"here".to_vec()).await.unwrap();
    });
    cluster.pass(SECOND * 15);
    assert!(!writing.is_done());
    let states = || [0, 1].into_iter().flat_map(|osd| cluster.states(osd)).collect::<Vec<_>>();
    let waiting = states().into_iter().filter(|(state, why)| state == "peering" && why == NEW);
    assert_eq!((waiting.count(), states().len()), (8, 12), "{:?}", states());
    cluster.mon.withholds_creates.set(false);
    cluster.mon.change(|_| {});
    cluster.wait("the write", || writing.is_done());
    wait_clean(&cluster, &[0, 1]);
}

/// All OSDs of a PG are replaced at once: those that have the data serve until the others have it, and then have it no more.
#[test]
fn a_pg_moves_to_other_osds_while_it_serves() {
    for (seed, is_log_long_enough) in [(2, true), (3, false)] {
        let cluster = start(seed, is_log_long_enough);
        let writer = cluster.background(RouteMode::Direct, |_, pool| async move {
            for n in 0..400u64 {
                pool.write_full(format!("w{}", n % 30), noise(n, 300)).await.unwrap();
            }
        });
        place(&cluster, 4, &[2, 3]);
        cluster.wait("the writer", || writer.is_done());
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool).await });
        wait_clean(&cluster, &[2]);
        assert_eq!(cluster.states(2).len(), 4);
        assert!(cluster.mon.map().pg_temp.is_empty());
        cluster.check_equal(&[2, 3]);
        cluster.pass(SECOND * 15);
        for osd in [0, 1] {
            let contents = cluster.ask(&[osd], "pg_contents").remove(0);
            assert!(!contents.to_string().contains("o1"), "osd.{osd} still has {contents}");
        }
        // Nothing of the old ones is needed.
        (0..2).for_each(|osd| kill(&cluster, osd));
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool).await });
    }
}

/// They may also be restarted meanwhile, all of them, and one may never come back.
#[test]
fn a_move_goes_on_after_restarts() {
    for seed in 4..8 {
        let cluster = start(seed, seed % 2 == 0);
        place(&cluster, 4, &[2, 3]);
        cluster.pass(SECOND / 100 * (seed as u32 - 3));
        (0..4).for_each(|osd| kill(&cluster, osd));
        // The new ones are first.
        for osd in [2, 3, 1] {
            cluster.start_osd(osd, 1);
        }
        cluster.wait_up(3);
        wait_clean(&cluster, &[2]);
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool).await });
        cluster.check_equal(&[2, 3]);
    }
}

/// Whoever lost all copies must not answer as if there had never been anything.
#[test]
fn a_pg_whose_copies_are_all_lost_does_not_begin_anew() {
    let cluster = start(8, true);
    (0..2).for_each(|osd| kill(&cluster, osd));
    (0..2).for_each(|osd| cluster.wipe(osd));
    (0..2).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(4);
    let reading = cluster.background(RouteMode::Direct, |_, pool| async move {
        pool.read("o1", 0, 0).await.map(drop).map_err(|error| error.errno() == errno::ENOENT)
    });
    cluster.pass(SECOND * 20);
    assert!(!reading.is_done(), "{:?}", reading.result());
    let states = cluster.states(0);
    assert!(states.len() == 4 && states.iter().all(|(_, why)| why == NEW), "{states:?}");
}

/// A copy that was left over from before knows by the maps that others served after it: without theirs it is not served.
#[test]
fn an_old_copy_is_not_served_when_all_newer_ones_are_lost() {
    let cluster = start(10, true);
    // It is down while the others remove theirs.
    kill(&cluster, 1);
    place(&cluster, 4, &[2, 3]);
    wait_clean(&cluster, &[2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("o1", b"new".to_vec()).await.unwrap();
    });
    cluster.pass(SECOND * 15);
    (2..4).for_each(|osd| kill(&cluster, osd));
    (2..4).for_each(|osd| cluster.wipe(osd));
    (1..4).for_each(|osd| cluster.start_osd(osd, 1));
    cluster.wait_up(4);
    let reading = cluster.background(RouteMode::Direct, |_, pool| async move { check(&pool).await });
    cluster.pass(SECOND * 20);
    let states = cluster.states(2);
    let has_lost = |(state, why): &(String, String)| {
        state == "incomplete"
            && why.starts_with("osd.0, osd.2, osd.3 may have served clients and lost what they had")
    };
    assert!(!reading.is_done() && states.len() == 4 && states.iter().all(has_lost), "{states:?}");
    // They are given up, and with them what was written last. (Osd.0 served alone, and has given its copy away.)
    [0, 2, 3].into_iter().for_each(|osd| kill(&cluster, osd));
    let epoch = cluster.mon.epoch();
    cluster.mon.change(move |inc| {
        inc.new_lost.extend([0, 2, 3].map(|osd| (OsdId(osd), epoch)));
    });
    place(&cluster, 4, &[1, 0]);
    cluster.wait("the data", || reading.is_done());
}

/// One copy is lost, and the other one is down: what is left is nothing.
#[test]
fn a_wiped_member_waits_for_the_other_one() {
    let cluster = start(9, true);
    kill(&cluster, 1);
    wait_state(&cluster, &[0], "active+undersized+degraded");
    kill(&cluster, 0);
    cluster.wipe(1);
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    let reading = cluster.background(RouteMode::Direct, |_, pool| async move { check(&pool).await });
    cluster.pass(SECOND * 20);
    assert!(!reading.is_done());
    assert!(cluster.states(1).iter().all(|(state, _)| !state.contains("active")), "{:?}", cluster.states(1));
    cluster.start_osd(0, 1);
    cluster.wait("the data", || reading.is_done());
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 1]);
}
