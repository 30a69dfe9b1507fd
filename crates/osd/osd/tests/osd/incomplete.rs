//! Copies that are being made, and members without room.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_types::errno;

use super::cluster::{Cluster, Disks, noise};
use super::peering::{kill, wait_clean};
use super::recovery::{self, outrun_the_log};

const SECOND: Duration = Duration::from_secs(1);
const MIB: usize = 1 << 20;

async fn fill(pool: &Pool) {
    for n in 0..12 {
        pool.write_full(format!("o{n}"), noise(n, MIB)).await.unwrap();
    }
}

async fn check(pool: &Pool) {
    for n in 0..12 {
        assert!(pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec() == noise(n, MIB), "o{n}");
    }
}

/// A PG of twelve long objects on osd.0 and osd.1 that moves to osd.0 and osd.2; osd.2 has got so many of them, or all.
fn moving(seed: u64, is_backfill: bool, pushed: Option<u64>) -> Cluster {
    let cluster = recovery::cluster(seed, 20 << 20);
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        fill(&pool).await;
        if is_backfill {
            outrun_the_log(&pool).await;
        }
    });
    cluster.mon.place(0..1, &[0, 2]);
    match pushed {
        Some(count) => {
            while cluster.counter(&[0], "objects_pushed") < count {
                cluster.pass(SECOND / 200);
            }
            assert!(cluster.counter(&[0], "objects_pushed") < 12);
        }
        None => {
            cluster.pass(SECOND);
            wait_clean(&cluster, &[0]);
        }
    }
    cluster
}

/// A member whose copy lacks objects has the log of all writes, and is all that is left of the last interval: it does not lead, however
/// far its copy is, and also after a restart.
#[test]
fn an_incomplete_member_never_leads() {
    for (seed, pushed) in [(1, Some(1)), (2, Some(6)), (3, None)] {
        for restart in [false, true] {
            let cluster = moving(seed, false, pushed);
            // Osd.1, which has all of the rest, does not know of it.
            cluster.client(RouteMode::Direct, |_, pool| async move {
                pool.write_full("late", b"late".to_vec()).await.unwrap();
            });
            kill(&cluster, 0);
            if restart {
                kill(&cluster, 2);
                cluster.start_osd(2, 2);
                cluster.wait_up(2);
            }
            let reading = cluster.background(RouteMode::Direct, |_, pool| async move {
                assert_eq!(pool.read("late", 0, 0).await.unwrap().to_vec(), b"late");
                check(&pool).await;
            });
            cluster.pass(SECOND * 3);
            let (state, why) = cluster.states(2).remove(0);
            match pushed {
                Some(_) => {
                    assert_eq!(
                        (&*state, &*why),
                        ("incomplete", "every copy that has all writes is incomplete")
                    );
                }
                // Osd.1, which may have been found by now, gets a copy again.
                None => assert!(state.starts_with("active+"), "{state}: {why}"),
            }
            assert_eq!(reading.is_done(), pushed.is_none());
            cluster.start_osd(0, 1);
            cluster.wait_up(3);
            cluster.wait("the data", || reading.is_done());
            wait_clean(&cluster, &[0]);
            cluster.check_equal(&[0, 2]);
        }
    }
}

/// An OSD that is backfilled serves nobody when the members die; whichever of them comes back has all.
#[test]
fn a_backfill_target_never_leads() {
    for (seed, pushed, back) in [(4, Some(1), 0), (5, Some(6), 1), (6, None, 0)] {
        let cluster = moving(seed, true, pushed);
        kill(&cluster, 0);
        kill(&cluster, 1);
        let reading = cluster.background(RouteMode::Direct, |_, pool| async move { check(&pool).await });
        cluster.pass(SECOND * 3);
        let (state, why) = cluster.states(2).remove(0);
        if pushed.is_some() {
            assert_eq!((state.as_str(), why.contains("osd.0, osd.1")), ("down", true), "{why}");
            assert!(!reading.is_done());
        }
        cluster.start_osd(back, 1);
        cluster.wait("the data", || reading.is_done());
        cluster.start_osd(1 - back, 1);
        cluster.wait_up(3);
        wait_clean(&cluster, &[0]);
        cluster.check_equal(&[0, 2]);
    }
}

/// osd.1 has copies of both PGs and fills up first. Writes without room are errors; as soon as objects are removed all is as
/// before, without a restart.
#[test]
fn a_full_replica_is_in_service_again_when_objects_go() {
    let cluster = Cluster::start(9, Disks::Blue, 2, 2, &[1, 1, 1]);
    cluster.mon.place(0..1, &[0, 1]);
    cluster.mon.place(1..2, &[2, 1]);
    wait_clean(&cluster, &[0, 2]);
    // More than there is room for, many at once.
    let writers: Vec<_> = (0..8u64)
        .map(|writer| {
            cluster.background(RouteMode::Direct, move |_, pool| async move {
                let mut errors = 0;
                for n in 0..10 {
                    match pool.write_full(format!("w{writer}-{n}"), noise(writer, MIB)).await {
                        Ok(_) => {}
                        Err(error) if error.errno() == errno::ENOSPC => errors += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                errors
            })
        })
        .collect();
    cluster.wait("the writers", || writers.iter().all(|writer| writer.is_done()));
    let errors: u32 = writers.iter().map(|writer| writer.result()).sum();
    assert!((1..80).contains(&errors), "{errors} writes found no room");
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for object in pool.list().await.unwrap() {
            pool.remove(&object.name).await.unwrap();
        }
        fill(&pool).await;
        check(&pool).await;
    });
    wait_clean(&cluster, &[0, 2]);
    let contents = cluster.ask(&[0, 1, 2], "pg_contents");
    for (pg, leader) in [("1.0", 0), ("1.1", 2)] {
        assert_eq!(contents[leader]["pgs"][pg], contents[1]["pgs"][pg], "{pg}");
    }
    assert!(cluster.counter(&[1], "activations") > 0, "a full member led");
}
