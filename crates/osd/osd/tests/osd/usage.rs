//! The statistics of PGs that the monitor is told.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_types::{Epoch, PgId, UTime, Uuid};
use carmine_wire::pg_stat::{ObjectStatSum, PgStat, state};
use carmine_wire::scrub::OsdScrub;

use super::attrs::set_omap;
use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place};

/// The statistics of all PGs.
fn sum(cluster: &Cluster) -> ObjectStatSum {
    let mut all = ObjectStatSum::default();
    cluster.mon.pg_stats.borrow().values().for_each(|(_, stat)| all.add(&stat.stats.sum));
    all
}

/// Objects and bytes by the newest statistics of all OSDs.
fn used(cluster: &Cluster) -> (i64, i64) {
    // Counting and the next report.
    cluster.pass(Duration::from_secs(5));
    let sum = sum(cluster);
    (sum.num_objects, sum.num_bytes)
}

/// Every object counts once, whatever was done to it, whoever leads, and after a restart.
#[test]
fn objects_and_bytes_are_known_to_the_monitor() {
    let cluster = Cluster::start(40, Disks::Blue, 2, 4, &[2, 1]);
    assert_eq!(used(&cluster), (0, 0));
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..40 {
            pool.write_full(format!("o{n}"), vec![1; 100]).await.unwrap();
        }
        for n in 0..10 {
            pool.remove(format!("o{n}")).await.unwrap();
            assert!(pool.remove(format!("o{n}")).await.unwrap_err().is_not_found());
        }
        pool.truncate("o10", 30).await.unwrap();
        pool.write("o11", 150, vec![2; 50]).await.unwrap();
        pool.zero("o12", 0, 50).await.unwrap();
    });
    let expected = (30, 30 * 100 - 70 + 100);
    assert_eq!(used(&cluster), expected);
    for first in [1, 0] {
        place(&cluster, 4, &[first, 1 - first]);
        assert_eq!(used(&cluster), expected, "osd.{first} leads");
    }
    for osd in 0..2 {
        cluster.kill(osd);
        cluster.mon.down(osd);
    }
    (0..2).for_each(|osd| cluster.start_osd(osd, 2));
    cluster.wait_up(2);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write_full("more", b"x".to_vec()).await.unwrap()
    });
    assert_eq!(used(&cluster), (expected.0 + 1, expected.1 + 1));
}

const SECOND: Duration = Duration::from_secs(1);

async fn write(pool: &Pool, objects: std::ops::Range<u64>) {
    for n in objects {
        pool.write_full(format!("o{n}"), noise(n, 100)).await.unwrap();
    }
}

/// The statistics of the only PG.
fn reported(cluster: &Cluster) -> PgStat {
    cluster
        .mon
        .pg_stats
        .borrow()
        .get(&PgId::new(POOL_ID, 0))
        .map(|(_, stat)| stat.clone())
        .unwrap_or_default()
}

fn words(cluster: &Cluster) -> String {
    state::words(reported(cluster).states())
}

/// What a write of a client, and the map, make of the statistics.
#[test]
fn a_pg_tells_its_state_its_versions_and_what_clients_did() {
    let cluster = Cluster::start(41, Disks::Blue, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        write(&pool, 0..10).await;
        for n in 0..4 {
            pool.read(format!("o{n}"), 0, 0).await.unwrap();
        }
    });
    cluster.pass(SECOND * 5);
    let first = reported(&cluster);
    let sum = first.stats.sum;
    assert_eq!((sum.num_write, sum.num_write_kb, sum.num_read, sum.num_read_kb), (10, 1, 4, 1));
    assert_eq!((sum.num_objects, sum.num_object_copies, sum.num_objects_dirty), (10, 20, 10));
    assert_eq!((words(&cluster).as_str(), first.stats_invalid), ("active+clean", false));
    assert_eq!((first.log_size, first.version.version), (10, 10));
    assert_eq!((first.acting.as_slice(), first.acting_primary), (&[0, 1][..], 0));
    cluster.pass(SECOND * 5);
    let next = reported(&cluster);
    assert!(next.reported_seq > first.reported_seq && next.last_clean > first.last_clean, "{next:?}");
    assert_eq!((next.last_change, next.last_became_active), (first.last_change, first.last_became_active));
    // Another one leads: what clients did is counted anew, objects are not.
    place(&cluster, 1, &[1, 0]);
    cluster.pass(SECOND * 5);
    let other = reported(&cluster);
    assert_eq!((other.acting_primary, other.stats.sum.num_write, other.stats.sum.num_objects), (1, 0, 10));
    assert!(other.reported_epoch > next.reported_epoch && other.mapping_epoch > next.mapping_epoch);
}

/// With one of three down all its copies are degraded; while it is recovered they become fewer.
#[test]
fn degraded_copies_are_counted_and_become_fewer_while_they_are_recovered() {
    let cluster = Cluster::start(42, Disks::Blue, 3, 1, &[1, 1, 1]);
    cluster.recovery.borrow_mut().bytes_per_second = 3_000;
    for osd in 0..3 {
        kill(&cluster, osd);
        cluster.start_osd(osd, 1);
    }
    cluster.wait_up(3);
    place(&cluster, 1, &[0, 1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move { write(&pool, 0..30).await });
    cluster.pass(SECOND * 5);
    let degraded = || reported(&cluster).stats.sum.num_objects_degraded;
    assert_eq!((degraded(), reported(&cluster).stats.sum.num_object_copies), (0, 90));
    kill(&cluster, 2);
    cluster.pass(SECOND * 5);
    assert_eq!((words(&cluster).as_str(), degraded()), ("active+undersized+degraded", 30));
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..20u64 {
            pool.write_full(format!("o{n}"), noise(n + 99, 2_000)).await.unwrap();
        }
    });
    cluster.start_osd(2, 1);
    cluster.wait_up(3);
    let mut seen = vec![20];
    for _ in 0..100 {
        cluster.pass(SECOND / 2);
        if words(&cluster).contains("recovering") {
            seen.push(degraded());
        }
        if words(&cluster) == "active+clean" {
            break;
        }
    }
    assert!(seen.is_sorted_by(|before, now| before >= now), "{seen:?}");
    seen.dedup();
    assert!(seen.len() > 4 && seen[1] <= 20, "{seen:?}");
    let sum = reported(&cluster).stats.sum;
    assert_eq!(
        (words(&cluster).as_str(), sum.num_objects_degraded, sum.num_objects_missing),
        ("active+clean", 0, 0)
    );
    assert_eq!((sum.num_objects_recovered, sum.num_bytes_recovered), (20, 40_000));
}

/// A copy that moves is misplaced, not degraded, and an empty PG has nothing to be degraded.
#[test]
fn an_empty_pg_is_undersized_and_not_degraded() {
    let cluster = Cluster::start(43, Disks::Blue, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    kill(&cluster, 1);
    cluster.pass(SECOND * 5);
    assert_eq!(words(&cluster), "active+undersized");
}

/// The queue never has less than nothing in it, whatever is removed and trimmed.
#[test]
fn removed_snapshots_wait_in_a_queue_that_becomes_empty() {
    let cluster = Cluster::start(44, Disks::Cyan, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..10 {
            pool.with_snaps(2, &[2, 1]).write_full(format!("o{n}"), vec![2; 50]).await.unwrap();
        }
    });
    for round in 0..20u64 {
        cluster
            .mon
            .change(move |inc| drop(inc.new_removed_snaps.insert(POOL_ID, vec![(1 + 10 * round, 10)])));
        if round % 3 == 2 {
            let purged = reported(&cluster).purged_snaps;
            cluster.mon.change(move |inc| drop(inc.new_purged_snaps.insert(POOL_ID, purged)));
        }
        cluster.pass(SECOND / 4);
        assert!(reported(&cluster).snaptrimq_len <= 200, "{:?}", reported(&cluster));
    }
    cluster.pass(SECOND * 5);
    assert_eq!((reported(&cluster).snaptrimq_len, reported(&cluster).is(state::SNAPTRIM)), (0, false));
}

/// A deep scrub counts omaps; all members keep what it found, and the cluster's log names those that are too large.
#[test]
fn large_omaps_are_found_by_a_deep_scrub() {
    let cluster = Cluster::start(45, Disks::Blue, 2, 1, &[1, 1]);
    cluster.scrub.borrow_mut().large_omap_keys = 10;
    cluster.scrub.borrow_mut().large_omap_bytes = 500;
    for osd in 0..2 {
        kill(&cluster, osd);
        cluster.start_osd(osd, 1);
    }
    cluster.wait_up(2);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        let entries = |keys: u64, bytes: usize| -> Vec<(String, Vec<u8>)> {
            (0..keys).map(|key| (format!("key-{key:02}"), noise(key, bytes))).collect()
        };
        pool.exec("at-the-limits", vec![set_omap(&entries(10, 50))]).await.unwrap();
        pool.exec("many", vec![set_omap(&entries(11, 1))]).await.unwrap();
        pool.exec("long", vec![set_omap(&entries(1, 501))]).await.unwrap();
        pool.write_full("none", vec![1; 9]).await.unwrap();
    });
    let scrub = |deep: bool| {
        let before = reported(&cluster).last_scrub;
        let pgs = vec![PgId::new(POOL_ID, 0).into()];
        let order = OsdScrub { fsid: Uuid([7; 16]), epoch: Epoch(1), pgs, repair: false, deep };
        cluster.mon.orders.borrow_mut().push((carmine_types::OsdId(0), order));
        cluster.wait("a scrub", || {
            let now = reported(&cluster);
            now.last_scrub != before && now.last_scrub.time != UTime::ZERO && !now.is(state::SCRUBBING)
        });
    };
    let omaps = || {
        let sum = reported(&cluster).stats.sum;
        (sum.num_objects_omap, sum.num_large_omap_objects, sum.num_omap_keys, sum.num_omap_bytes)
    };
    scrub(false);
    assert_eq!(omaps(), (0, 0, 0, 0), "only a deep one counts them");
    scrub(true);
    let expected = (3, 2, 22, 500 + 11 + 501);
    assert_eq!(omaps(), expected);
    scrub(false);
    assert_eq!(omaps(), expected);
    let mut log = cluster.mon.log.borrow().clone();
    log.sort();
    assert_eq!(log.len(), 2, "{log:?}");
    for (name, sizes) in
        [("many", "Key count: 11 Size (bytes): 11"), ("long", "Key count: 1 Size (bytes): 501")]
    {
        let line = log.iter().find(|line| line.contains(&format!(":::{name}:head PG: 1."))).expect(name);
        assert!(line.starts_with("Large omap object found. Object: 1:") && line.ends_with(sizes), "{line}");
        assert!(line.contains(" (1.0) "), "{line}");
    }
    place(&cluster, 1, &[1, 0]);
    cluster.pass(SECOND * 5);
    assert_eq!((reported(&cluster).acting_primary, omaps()), (1, expected), "the other member knows it");
}
