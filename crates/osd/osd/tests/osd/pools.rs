//! Pools that are deleted.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_store::Kv;
use carmine_types::{Epoch, UTime, errno};
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};

const SECOND: Duration = Duration::from_secs(1);

/// Keys in an OSD's metadata.
fn keys(cluster: &Cluster, osd: u32) -> usize {
    // A store that is mounted again gives the key-value store all that is in its log.
    cluster.kill(osd);
    cluster.fsck(osd);
    let mut keys = 0;
    let mut note = |_: &[u8], _: &[u8]| {
        keys += 1;
        true
    };
    cluster.kv(osd).scan(&[], &[0xff], &mut note).unwrap();
    cluster.start_osd(osd, 2);
    cluster.pass(SECOND);
    keys
}

fn make_pool(cluster: &Cluster) {
    cluster.mon.change(|inc| {
        inc.new_pools.insert(2, PgPool::replicated(2, 1, 8, 0, Epoch(1), UTime::ZERO));
        inc.new_pool_names.insert(2, "second".into());
        inc.new_pool_max = 2;
    });
    cluster.pass(SECOND);
    cluster.client(RouteMode::Direct, |client, first| async move {
        let second = client.pool("second").unwrap();
        for n in 0..50 {
            second.write_full(format!("o{n}"), noise(n, 5000)).await.unwrap();
        }
        first.write_full("stays", b"here".to_vec()).await.unwrap();
    });
}

fn delete_pool(cluster: &Cluster) {
    cluster.mon.change(|inc| inc.old_pools.extend([2]));
    cluster.pass(SECOND);
}

/// Nothing of a deleted pool stays on any OSD, also on one that was down when it was deleted; other pools lose nothing.
#[test]
fn the_data_of_a_deleted_pool_is_removed() {
    for down in [None, Some(1)] {
        let cluster = Cluster::start(50, Disks::Blue, 2, 4, &[2, 3]);
        make_pool(&cluster);
        let used = |osd| cluster.ask(&[osd], "status").remove(0)["space"]["used_bytes"].as_u64().unwrap();
        let before: Vec<(usize, u64)> = (0..2).map(|osd| (keys(&cluster, osd), used(osd))).collect();
        if let Some(osd) = down {
            cluster.kill(osd);
            cluster.mon.down(osd);
            cluster.pass(SECOND);
        }
        delete_pool(&cluster);
        if let Some(osd) = down {
            cluster.start_osd(osd, 2);
            cluster.wait_up(2);
            cluster.pass(SECOND);
        }
        for (osd, (keys_before, used_before)) in (0..2).zip(before) {
            let left = keys(&cluster, osd);
            // Two keys an object, a log entry for each, and the PGs' own.
            assert!(left + 150 <= keys_before, "osd.{osd}: {left} of {keys_before} keys left");
            assert!(used(osd) + 50 * 8192 <= used_before, "osd.{osd}: {} of {used_before} bytes", used(osd));
        }
        cluster.wait_up(2);
        let data = cluster
            .client(RouteMode::Direct, |_, pool| async move { pool.read("stays", 0, 0).await.unwrap() });
        assert_eq!(data.to_vec(), b"here");
        cluster.check_equal(&[0, 1]);
    }
}

/// A pool that the first map of an OSD has and the next one deletes is removed by the reactors that own its PGs, and by nobody else
/// beside them, who would free the same blocks.
#[test]
fn a_pool_that_goes_behind_the_first_map_is_removed_once() {
    // The first map comes after some 20 ms.
    for seed in 190..290 {
        let cluster = Cluster::start(seed, Disks::Blue, 2, 4, &[2, 3]);
        make_pool(&cluster);
        cluster.kill(1);
        cluster.start_osd(1, 2);
        cluster.pass(Duration::from_micros(seed * 100));
        delete_pool(&cluster);
        cluster.wait_up(2);
        cluster.pass(SECOND);
        cluster.kill(1);
        let report = cluster.fsck(1);
        assert!(report.is_clean(), "seed {seed}: {report:?}");
    }
}

/// Operations of a pool that is deleted end at once: those that replicas keep waiting, and those that come later by an old map.
#[test]
fn operations_of_a_deleted_pool_are_answered() {
    let cluster = Cluster::start(53, Disks::Blue, 2, 4, &[1, 1]);
    make_pool(&cluster);
    for (from, to) in [("osd.0", "osd.1"), ("osd.1", "osd.0")] {
        cluster.sim.cut(from, to);
    }
    let write = |name: &'static str| {
        cluster.background(RouteMode::Direct, move |client, _| async move {
            let second = client.pool("second").unwrap();
            let shard = client.shard().clone();
            let written = second.write_full(name, noise(1, 5000)).await;
            (shard.now_ns(), written.map(drop).map_err(|error| error.errno()))
        })
    };
    let names = ["o1", "o2", "o3", "o4", "o5", "new"];
    let waiting: Vec<_> = names.into_iter().map(write).collect();
    cluster.pass(SECOND / 10);
    assert!(waiting.iter().all(|write| !write.is_done()), "they wait for the replicas");
    let deleted_ns = cluster.sim.now_ns();
    cluster.mon.change(|inc| inc.old_pools.extend([2]));
    cluster.wait("the answers", || waiting.iter().all(|write| write.is_done()));
    for write in waiting {
        let (at_ns, result) = write.result();
        assert_eq!(result, Err(errno::ENOENT));
        assert!(at_ns < deleted_ns + 500_000_000, "answered {} ms later", (at_ns - deleted_ns) / 1_000_000);
    }
}
