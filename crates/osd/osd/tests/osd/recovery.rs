//! Copies that lack objects are given them beside clients: by the log and by backfills, within limits; and copies that
//! nobody needs are removed.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_osd::RecoveryOptions;
use carmine_reactor::Payload;
use carmine_wire::Decoder;
use carmine_wire::osd_op::OsdOp;
use carmine_wire::osdmap::consts::{FLAG_NOBACKFILL, FLAG_NORECOVER, FLAGS_DEFAULT};

use super::cluster::{Cluster, Disks, noise};
use super::peering::{kill, place, wait_clean, wait_state};

const SECOND: Duration = Duration::from_secs(1);
const BYTES: usize = 2000;

async fn fill(pool: &Pool, range: std::ops::Range<u64>, round: u64) {
    for n in range {
        pool.write_full(format!("o{n}"), noise(n + 10_000 * round, BYTES)).await.unwrap();
    }
}

/// Writes so much that the log forgets what was before.
pub(super) async fn outrun_the_log(pool: &Pool) {
    for n in 0..3600u32 {
        pool.write("log", 0, n.to_le_bytes().to_vec()).await.unwrap();
    }
}

fn limited(bytes_per_second: u64) -> RecoveryOptions {
    RecoveryOptions { bytes_per_second, retry_interval: SECOND, ..RecoveryOptions::default() }
}

/// A cluster of three with one PG on osd.0, whose OSDs recover so fast at the most.
pub(super) fn cluster(seed: u64, bytes_per_second: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &[1, 1, 1]);
    *cluster.recovery.borrow_mut() = limited(bytes_per_second);
    for osd in 0..3 {
        kill(&cluster, osd);
        cluster.start_osd(osd, 1);
    }
    cluster.wait_up(3);
    place(&cluster, 1, &[0, 1]);
    wait_clean(&cluster, &[0]);
    cluster
}

fn state(cluster: &Cluster) -> String {
    cluster.states(0).remove(0).0
}

/// The members stay while osd.2 gets the copy of osd.1.
fn wait_backfilling(cluster: &Cluster) {
    wait_state(cluster, &[0], "active+remapped+backfilling");
    assert_eq!(cluster.mon.map().pg_temp.values().collect::<Vec<_>>(), [&[0, 1]]);
}

/// A copy of a whole PG is made while clients change all of it, and is interrupted: it goes on where it was, and is equal.
#[test]
fn a_backfill_goes_on_where_it_was() {
    for seed in 0..4 {
        let cluster = cluster(seed, 300_000);
        cluster.client(RouteMode::Direct, |_, pool| async move {
            fill(&pool, 0..700, 0).await;
            outrun_the_log(&pool).await;
        });
        place(&cluster, 1, &[0, 2]);
        wait_backfilling(&cluster);
        let writer = cluster.background(RouteMode::Direct, |_, pool| async move {
            for n in 0..1500u64 {
                let name = format!("o{}", n * 7 % 900);
                match n % 5 {
                    0 => drop(pool.remove(name).await),
                    1 => drop(pool.write_full(name, noise(n, BYTES)).await.unwrap()),
                    // A part: a copy without the rest would be wrong.
                    _ => drop(pool.write(name, n % 1000, noise(n, 50)).await.unwrap()),
                };
            }
        });
        cluster.pass(SECOND * 2 + SECOND / 3 * seed as u32);
        kill(&cluster, 2);
        cluster.pass(SECOND / 10);
        cluster.start_osd(2, 1);
        cluster.wait_up(3);
        cluster.wait("the writer", || writer.is_done());
        wait_clean(&cluster, &[0]);
        cluster.check_equal(&[0, 2]);
        let pushed = cluster.counter(&[0], "objects_pushed");
        assert!(pushed < 2500, "{pushed} objects were pushed");
    }
}

/// Without writes each object is copied once, whatever interrupts the backfill; what is there and equal is not copied at all.
#[test]
fn objects_that_are_equal_are_not_copied_again() {
    let cluster = cluster(7, 300_000);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        fill(&pool, 0..600, 0).await;
        outrun_the_log(&pool).await;
    });
    // It has the PG as it is now.
    kill(&cluster, 1);
    place(&cluster, 1, &[0, 2]);
    for _ in 0..4 {
        cluster.pass(SECOND);
        kill(&cluster, 2);
        cluster.start_osd(2, 1);
        cluster.wait_up(2);
    }
    wait_clean(&cluster, &[0]);
    let pushed = cluster.counter(&[0], "objects_pushed");
    assert!((601..=601 + 4 * 10).contains(&pushed), "{pushed} pushes of 601 objects");
    // osd.1 is away while the log forgets: it has most of it.
    cluster.client(RouteMode::Direct, |_, pool| async move {
        fill(&pool, 0..20, 1).await;
        for n in 20..30 {
            pool.remove(format!("o{n}")).await.unwrap();
        }
        outrun_the_log(&pool).await;
    });
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    place(&cluster, 1, &[0, 1]);
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 1]);
    let again = cluster.counter(&[0], "objects_pushed") - pushed;
    assert_eq!(again, 20 + 10 + 1, "those that differ are copied, and no others");
}

/// osd.1 dies, misses a new version of 200 objects, and comes back.
fn osd_1_falls_behind(cluster: &Cluster, reactors: u16) {
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 0..200, 0).await });
    kill(cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 0..200, 1).await });
    cluster.start_osd(1, reactors);
    cluster.wait_up(3);
    cluster.pass(SECOND / 10);
}

/// A write to an object that a member lacks does not wait for the objects before it; reads wait for nothing.
#[test]
fn an_object_that_is_written_to_is_recovered_first() {
    let cluster = cluster(11, 20_000);
    osd_1_falls_behind(&cluster, 1);
    let before = cluster.sim.now_ns();
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in (0..200).rev().step_by(20) {
            assert!(pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec() == noise(n + 10_000, BYTES));
            pool.write(format!("o{n}"), 0, noise(n, 10)).await.unwrap();
        }
    });
    let took = Duration::from_nanos(cluster.sim.now_ns() - before);
    assert!(took < SECOND, "ten writes took {took:?}");
    assert_eq!(state(&cluster), "active+recovering+degraded", "the rest takes its time");
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 1]);
}

/// Writes wait for the one long object that is being pushed: ten at once would share the bytes that may be under way, and each be
/// held for ten times as long.
#[test]
fn one_long_object_at_a_time_is_held() {
    const LONG: u64 = 10;
    let cluster = cluster(15, 0);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..LONG {
            pool.write_full(format!("o{n}"), noise(n, 2 << 20)).await.unwrap();
        }
        outrun_the_log(&pool).await;
    });
    cluster.disk(2).slower(SECOND / 10);
    place(&cluster, 1, &[0, 2]);
    while cluster.counter(&[0], "objects_pushed") == 0 {
        cluster.pass(SECOND / 20);
    }
    let write = |n: u64| {
        cluster.background(RouteMode::Direct, move |_, pool| async move {
            pool.write(format!("o{n}"), 100, noise(n, 50)).await.unwrap();
        })
    };
    let writers: Vec<_> = (0..LONG).map(write).collect();
    let done = || writers.iter().filter(|writer| writer.is_done()).count();
    cluster.pass(SECOND / 2);
    assert!(done() + 2 >= writers.len(), "{} of {LONG} are done", done());
    assert_eq!(state(&cluster), "active+remapped+backfilling", "the rest takes its time");
    cluster.wait("the writers", || done() == writers.len());
    cluster.disk(2).slower(Duration::ZERO);
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 2]);
}

/// A target that is too full stops the backfill before its disk is full, and its PG serves on in the same interval.
#[test]
fn a_backfill_waits_for_an_osd_that_is_too_full() {
    let cluster = cluster(13, 0);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        fill(&pool, 0..600, 0).await;
        outrun_the_log(&pool).await;
    });
    cluster.mon.change(|inc| inc.new_backfillfull_ratio = 0.0001);
    place(&cluster, 1, &[0, 2]);
    cluster.pass(SECOND * 3);
    assert_eq!(state(&cluster), "active+remapped+backfill_toofull");
    let activations = cluster.counter(&[0], "activations");
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 0..100, 1).await });
    cluster.pass(SECOND * 20);
    assert_eq!(cluster.counter(&[0], "activations"), activations, "it does not peer again and again");
    cluster.mon.change(|inc| inc.new_backfillfull_ratio = 0.9);
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 2]);
}

#[test]
fn flags_of_the_map_stop_recoveries() {
    let cluster = cluster(17, 0);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 0..50, 0).await });
    cluster.mon.change(|inc| inc.new_flags = (FLAGS_DEFAULT | FLAG_NORECOVER) as i32);
    kill(&cluster, 1);
    cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool, 0..50, 1).await });
    cluster.start_osd(1, 1);
    cluster.wait_up(3);
    cluster.pass(SECOND * 3);
    assert_eq!(state(&cluster), "active+degraded");
    cluster.mon.change(|inc| inc.new_flags = (FLAGS_DEFAULT | FLAG_NOBACKFILL) as i32);
    wait_clean(&cluster, &[0]);
    cluster.client(RouteMode::Direct, |_, pool| async move { outrun_the_log(&pool).await });
    place(&cluster, 1, &[0, 2]);
    cluster.pass(SECOND * 3);
    assert_eq!(state(&cluster), "active+remapped");
    cluster.mon.change(|inc| inc.new_flags = FLAGS_DEFAULT as i32);
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 2]);
}

/// With one place an OSD recovers one PG at a time, as primary and as replica; the others wait, and all end.
#[test]
fn pgs_wait_for_their_turn() {
    let cluster = Cluster::start(19, Disks::Blue, 2, 8, &[2, 2, 2]);
    *cluster.recovery.borrow_mut() = limited(20_000);
    for osd in 0..3 {
        kill(&cluster, osd);
        cluster.start_osd(osd, 2);
    }
    cluster.wait_up(3);
    place(&cluster, 8, &[0, 1]);
    osd_1_falls_behind(&cluster, 2);
    cluster.pass(SECOND);
    let mut most_waiting = 0;
    for _ in 0..200 {
        let states = cluster.states(0);
        let count = |word: &str| states.iter().filter(|(state, _)| state.contains(word)).count();
        assert!(count("recovering") <= 1, "{states:?}");
        most_waiting = most_waiting.max(count("recovery_wait"));
        if count("clean") == 8 {
            break;
        }
        cluster.pass(SECOND / 2);
    }
    assert!(most_waiting >= 6, "{most_waiting} PGs waited");
    wait_clean(&cluster, &[0]);
    cluster.check_equal(&[0, 1]);
}

/// An OSD that left a PG removes its copy when the PG is clean, also one that did not run when it left; not before.
#[test]
fn copies_that_nobody_needs_are_removed() {
    for is_down in [false, true] {
        let cluster = cluster(23, if is_down { 0 } else { 20_000 });
        cluster.client(RouteMode::Direct, |_, pool| async move {
            fill(&pool, 0..300, 0).await;
            outrun_the_log(&pool).await;
        });
        let objects = |cluster: &Cluster| {
            let contents = cluster.ask(&[1], "pg_contents").remove(0);
            contents["pgs"]["1.0"]["objects"]
                .as_object()
                .or(contents["pgs"]["1.0"].as_object())
                .map_or(0, |o| o.len())
        };
        let all = objects(&cluster);
        assert!(all > 300, "{all}");
        if is_down {
            kill(&cluster, 1);
        }
        place(&cluster, 1, &[0, 2]);
        if is_down {
            wait_clean(&cluster, &[0]);
            cluster.start_osd(1, 2);
            cluster.wait_up(3);
        } else {
            cluster.pass(SECOND * 12);
            assert_ne!(state(&cluster), "active+clean");
            assert_eq!(objects(&cluster), all, "the PG is not clean yet");
            wait_clean(&cluster, &[0]);
        }
        cluster.pass(SECOND * 12);
        let left = objects(&cluster);
        assert!(left < 10, "{left} of {all}");
        assert_eq!(cluster.fsck(1).errors.len(), 0);
        // It is made anew when it is needed again.
        place(&cluster, 1, &[0, 1]);
        wait_clean(&cluster, &[0]);
        cluster.check_equal(&[0, 1]);
    }
}

/// What was never written is a hole in a copy as well, whether it got the object by the log or by a backfill.
#[test]
fn holes_stay_holes_in_copies() {
    let cluster = cluster(16, 0);
    kill(&cluster, 1);
    let extents = || {
        cluster.client(RouteMode::Direct, |_, pool| async move {
            let ask = vec![(OsdOp::mapext(0, 8 << 20), Payload::new())];
            let map = pool.exec("sparse", ask).await.unwrap().take_data(0).to_vec();
            Decoder::new(&map, "extents").get::<Vec<(u64, u64)>>().unwrap()
        })
    };
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write("sparse", 8192, noise(1, 4096)).await.unwrap();
        pool.write("sparse", 3 << 20, noise(2, 8192)).await.unwrap();
        pool.write("sparse", 4 << 20, vec![0; 4096]).await.unwrap();
        pool.truncate("sparse", 5 << 20).await.unwrap();
    });
    let written = [(8192, 4096), (3 << 20, 8192), (4 << 20, 4096)];
    assert_eq!(extents(), written);
    for by_log in [true, false] {
        if !by_log {
            kill(&cluster, 1);
            cluster.client(RouteMode::Direct, |_, pool| async move {
                pool.write("sparse", 8192, noise(3, 4096)).await.unwrap();
                outrun_the_log(&pool).await;
            });
        }
        cluster.start_osd(1, 1);
        cluster.wait_up(3);
        wait_clean(&cluster, &[0]);
        place(&cluster, 1, &[1, 0]);
        assert_eq!(extents(), written, "by the log: {by_log}");
        place(&cluster, 1, &[0, 1]);
        wait_clean(&cluster, &[0]);
    }
}
