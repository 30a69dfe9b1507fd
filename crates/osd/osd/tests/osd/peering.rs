//! Copies that are not equal when an interval begins.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_types::OsdId;

use super::cluster::{Cluster, Disks, noise};

const SECOND: Duration = Duration::from_secs(1);

async fn fill(pool: &Pool, count: u64, round: u64) {
    for n in 0..count {
        let len = 1 + (n * 7919 % 20_000) as usize;
        pool.write_full(format!("o{n}"), noise(n + 1000 * round, len)).await.unwrap();
    }
}

async fn check(pool: &Pool, count: u64, round: u64) {
    for n in 0..count {
        let len = 1 + (n * 7919 % 20_000) as usize;
        let data = pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec();
        assert!(data == noise(n + 1000 * round, len), "o{n} is not what was written in round {round}");
    }
}

pub(crate) fn kill(cluster: &Cluster, osd: u32) {
    cluster.kill(osd);
    cluster.mon.down(osd);
    cluster.wait("the map", || !cluster.mon.map().is_up(OsdId(osd)));
}

/// CRUSH names these OSDs for every PG, the primary first.
pub(crate) fn place(cluster: &Cluster, pgs: u32, osds: &[i32]) {
    cluster.mon.place(0..pgs, osds);
    cluster.pass(SECOND / 10);
}

/// The PGs that these OSDs lead are where they should be and whole; there are some.
pub(crate) fn wait_clean(cluster: &Cluster, osds: &[u32]) {
    wait_state(cluster, osds, "active+clean");
}

/// The PGs that these OSDs lead come to be in this state; there are some.
pub(crate) fn wait_state(cluster: &Cluster, osds: &[u32], wanted: &str) {
    let states = || osds.iter().flat_map(|osd| cluster.states(*osd)).collect::<Vec<_>>();
    for _ in 0..500 {
        let now = states();
        if !now.is_empty() && now.iter().all(|(state, _)| state == wanted) {
            return;
        }
        cluster.pass(SECOND / 5);
    }
    panic!("not {wanted}: {:?}", states());
}

/// Data survives the death of everybody, and reactors may be more or fewer afterwards.
#[test]
fn everything_is_there_after_a_restart_with_other_reactors() {
    let cluster = Cluster::start(1, Disks::Blue, 3, 8, &[2, 2, 2]);
    cluster.client(RouteMode::Single, |_, pool| async move { fill(&pool, 60, 0).await });
    for reactors in [1, 3] {
        (0..3).for_each(|osd| kill(&cluster, osd));
        (0..3).for_each(|osd| cluster.start_osd(osd, reactors));
        cluster.pass(SECOND);
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 60, 0).await });
        cluster.check_equal(&[0, 1, 2]);
    }
    assert_eq!(cluster.counter(&[0, 1, 2], "objects_pushed"), 0, "equal copies need no repair");
}

/// The answer to `ceph pg 1.0 query`.
fn query(cluster: &Cluster, osd: u32) -> serde_json::Value {
    cluster.ask(&[osd], "query\", \"pgid\": \"1.0").remove(0)
}

/// An OSD that comes back knows which OSDs may have served its PGs before it went, and while it was away.
#[test]
fn past_intervals_survive_a_restart_and_are_shown() {
    let cluster = Cluster::start(33, Disks::Blue, 2, 1, &[1, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 5, 0).await });
    let primary = (0..2).find(|osd| !cluster.states(*osd).is_empty()).unwrap();
    let clean = query(&cluster, primary)["info"]["history"].clone();
    assert_eq!(clean["last_epoch_clean"], clean["same_interval_since"], "all copies are whole");
    cluster.mon.min_size(2);
    kill(&cluster, 1 - primary);
    let look = || {
        let answer = query(&cluster, primary);
        let (history, state) = (&answer["info"]["history"], &answer["recovery_state"][0]);
        assert_eq!(history["last_epoch_clean"], clean["last_epoch_clean"]);
        assert!(history["same_interval_since"].as_u64() > clean["same_interval_since"].as_u64());
        let past = state["past_intervals"][0]["intervals"].as_array().unwrap().clone();
        let first = clean["same_interval_since"].as_u64().unwrap().to_string();
        let acting = format!("{primary},{}", 1 - primary);
        assert!(past.iter().any(|run| run["first"] == first && run["acting"] == acting), "{past:?}");
        assert_eq!(state["peering_blocked_by"].as_array().map(Vec::len), Some(0), "{state}");
    };
    cluster.pass(SECOND);
    look();
    cluster.kill(primary);
    cluster.start_osd(primary, 1);
    cluster.pass(SECOND);
    look();
    cluster.mon.min_size(1);
    wait_state(&cluster, &[primary], "active+undersized+degraded");
    // The other one learns by the maps that it was not there then, and must not serve what it has.
    kill(&cluster, primary);
    for _ in 0..2 {
        cluster.start_osd(1 - primary, 1);
        cluster.wait_up(1);
        cluster.pass(SECOND);
        let state = query(&cluster, 1 - primary)["recovery_state"][0].clone();
        assert_eq!(state["peering_blocked_by"][0]["osd"], primary, "{state}");
        kill(&cluster, 1 - primary);
    }
}

/// With as many members as the pool's `min_size` a PG serves; with fewer it waits, and says so. What a member missed is copied when
/// it comes back.
#[test]
fn a_pg_goes_on_with_min_size_members() {
    let cluster = Cluster::start(2, Disks::Blue, 2, 8, &[1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 0).await });
    kill(&cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 10, 1).await });
    wait_state(&cluster, &[0], "active+undersized+degraded");
    assert_eq!(cluster.states(0).len(), 8);
    cluster.mon.min_size(2);
    cluster.pass(SECOND);
    let is_peered = |(state, why): &(String, String)| {
        state == "undersized+degraded+peered" && why == "1 of its OSDs are up, and min_size is 2"
    };
    let states = cluster.states(0);
    assert!(states.len() == 8 && states.iter().all(is_peered), "{states:?}");
    let writer = cluster.background(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 1).await });
    cluster.pass(SECOND);
    assert!(!writer.is_done());
    cluster.start_osd(1, 1);
    cluster.wait("the writer", || writer.is_done());
    cluster.client(RouteMode::Single, |_, pool| async move { check(&pool, 20, 1).await });
    wait_clean(&cluster, &[0, 1]);
    cluster.check_equal(&[0, 1]);
}

/// A PG waits for an OSD that served without the others, and says for whom; and serves no old data before it comes back.
#[test]
fn a_pg_waits_for_an_osd_that_served_alone_and_says_so() {
    let cluster = Cluster::start(7, Disks::Blue, 2, 8, &[1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 0).await });
    kill(&cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 1).await });
    kill(&cluster, 0);
    cluster.start_osd(1, 1);
    cluster.wait_up(1);
    cluster.pass(SECOND);
    let states = cluster.states(1);
    assert_eq!(states.len(), 8);
    assert!(states.iter().all(|(state, why)| state == "down" && why.contains("osd.0")), "{states:?}");
    let reader = cluster.background(RouteMode::Direct, |_, pool| async move { check(&pool, 20, 1).await });
    cluster.pass(SECOND * 10);
    assert!(!reader.is_done());
    cluster.start_osd(0, 2);
    cluster.wait("the reader", || reader.is_done());
    wait_clean(&cluster, &[0, 1]);
    cluster.check_equal(&[0, 1]);
}

/// Writes that only one copy has, and nobody was told of, are undone when another has served without it.
#[test]
fn what_only_one_copy_has_is_undone() {
    let cluster = Cluster::start(3, Disks::Blue, 2, 4, &[2, 2]);
    place(&cluster, 4, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 30, 0).await });
    // The map still has it, so osd.0 writes, and waits for its answers.
    cluster.kill(1);
    let writer = cluster.background(RouteMode::Direct, |_, pool| async move {
        let mut writes = Vec::new();
        for n in 0..10 {
            let (pool, name) = (pool.clone(), format!("o{n}"));
            writes.push(Box::pin(async move { pool.write_full(name, b"never acknowledged".to_vec()).await }));
        }
        // All at once: none of them is answered.
        for write in &mut writes {
            std::future::poll_fn(|cx| {
                assert!(write.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        std::future::pending::<()>().await;
    });
    cluster.pass(SECOND);
    cluster.sim.kill(writer.node);
    kill(&cluster, 0);
    kill(&cluster, 1);
    cluster.start_osd(1, 1);
    cluster.wait_up(1);
    wait_state(&cluster, &[1], "active+undersized+degraded");
    // Osd.0, which CRUSH wants as the primary, has the longer log.
    cluster.start_osd(0, 1);
    cluster.wait_up(2);
    wait_clean(&cluster, &[0]);
    cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 30, 0).await });
    cluster.check_equal(&[1, 0]);
    let pushed = cluster.counter(&[0, 1], "objects_pushed");
    assert!((1..=10).contains(&pushed), "{pushed} objects were copied, ten differed");
}

/// A replica without a store gets everything.
#[test]
fn an_empty_replica_is_filled() {
    let cluster = Cluster::start(4, Disks::Blue, 3, 4, &[1, 1, 1]);
    place(&cluster, 4, &[0, 1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        fill(&pool, 40, 0).await;
        pool.write_full("big", noise(5, 3_000_000)).await.unwrap();
        pool.remove("o3").await.unwrap();
        pool.write_full("o3", noise(3, 1 + 3 * 7919)).await.unwrap();
    });
    kill(&cluster, 2);
    cluster.wipe(2);
    cluster.start_osd(2, 2);
    cluster.wait_up(3);
    wait_clean(&cluster, &[0]);
    assert_eq!(cluster.counter(&[0], "objects_pushed"), 41);
    cluster.check_equal(&[0, 1, 2]);
    // It leads as well as any other.
    place(&cluster, 4, &[2, 0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        assert!(pool.read("big", 0, 0).await.unwrap().to_vec() == noise(5, 3_000_000));
        fill(&pool, 40, 1).await;
        check(&pool, 40, 1).await;
    });
    wait_clean(&cluster, &[2]);
    cluster.check_equal(&[0, 1, 2]);
}

/// A primary that lost its store must not teach the others to forget.
#[test]
fn a_primary_without_its_data_touches_nothing() {
    let cluster = Cluster::start(5, Disks::Blue, 2, 4, &[1, 1]);
    cluster.mon.stubborn.set(true);
    place(&cluster, 4, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 0).await });
    kill(&cluster, 0);
    cluster.wipe(0);
    cluster.start_osd(0, 1);
    cluster.wait_up(2);
    cluster.pass(SECOND);
    let states = cluster.states(0);
    let waits = |(state, why): &(String, String)| {
        state == "peering" && why.starts_with("waits until the monitor lets osd.1")
    };
    assert!(states.len() == 4 && states.iter().all(waits), "{states:?}");
    let reader = cluster.background(RouteMode::Direct, |_, pool| async move { check(&pool, 20, 0).await });
    cluster.pass(SECOND * 8);
    assert!(!reader.is_done());
    // With the other one in the lead all is well.
    cluster.mon.stubborn.set(false);
    cluster.wait("the reader", || reader.is_done());
    wait_clean(&cluster, &[0]);
    assert!(cluster.mon.map().pg_temp.is_empty());
    cluster.check_equal(&[1, 0]);
}

/// A member that was away while more was written than the log keeps, or than its own log meets, starts from nothing: what
/// it has and the others removed is gone.
#[test]
fn a_copy_that_is_too_old_starts_over() {
    let cluster = Cluster::start(6, Disks::Blue, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 20, 0).await });
    kill(&cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 10..20 {
            pool.remove(format!("o{n}")).await.unwrap();
        }
        for n in 0..3600u32 {
            pool.write("log", 0, n.to_le_bytes().to_vec()).await.unwrap();
        }
        fill(&pool, 10, 1).await;
    });
    cluster.start_osd(1, 1);
    cluster.wait_up(2);
    wait_clean(&cluster, &[0]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        check(&pool, 10, 1).await;
        assert_eq!(pool.list().await.unwrap().len(), 11);
    });
    cluster.check_equal(&[0, 1]);
}

/// All die in the middle of a repair, again and again; in the end all copies are equal.
#[test]
fn a_repair_that_is_interrupted_starts_over() {
    for seed in 0..6 {
        let cluster = Cluster::start(seed, Disks::Blue, 2, 4, &[1, 1]);
        place(&cluster, 4, &[0, 1]);
        cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 40, 0).await });
        kill(&cluster, 1);
        cluster.wipe(1);
        for round in 0..4 {
            cluster.start_osd(1, 1 + round % 2);
            cluster.wait_up(2);
            cluster.pass(Duration::from_micros(700 * (u64::from(round) + seed)));
            (0..2).for_each(|osd| kill(&cluster, osd));
            cluster.start_osd(0, 1);
        }
        cluster.start_osd(1, 2);
        cluster.wait_up(2);
        cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool, 40, 0).await });
        wait_clean(&cluster, &[0]);
        cluster.check_equal(&[0, 1]);
    }
}
