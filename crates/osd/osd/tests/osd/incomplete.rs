//! Copies that are being made, and members without room.

use std::time::Duration;

use carmine_client::{Pool, RouteMode};
use carmine_types::{PgId, errno};

use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, members};

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

/// The OSD that is being given a copy is asked to lead before it has all of it: it does not, however far the copy is, and
/// also after a restart.
#[test]
fn an_incomplete_copy_never_leads() {
    for (millis, is_done) in [(1, false), (2, false), (60, true)] {
        for restart in [false, true] {
            let cluster = Cluster::start(millis, Disks::Blue, 2, 1, &[1, 1, 1, 1]);
            members(&cluster, 1, &[0, 1]);
            cluster.client(RouteMode::Direct, |_, pool| async move { fill(&pool).await });
            cluster.mon.change(|inc| {
                inc.new_pg_temp.insert(PgId::new(POOL_ID, 0), vec![0, 2]);
            });
            cluster.pass(Duration::from_millis(millis));
            kill(&cluster, 0);
            if restart {
                kill(&cluster, 2);
                cluster.start_osd(2, 2);
            }
            members(&cluster, 1, &[2, 3]);
            cluster.pass(Duration::from_secs(3));
            let states = cluster.states(2);
            let expected = if is_done { "active+clean" } else { "incomplete" };
            assert!(states.iter().all(|(state, _)| state == expected), "{millis} ms: {states:?}");
            if is_done {
                cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool).await });
            }
            cluster.start_osd(0, 1);
            cluster.wait_up(4);
            members(&cluster, 1, &[0, 2]);
            cluster.client(RouteMode::Direct, |_, pool| async move { check(&pool).await });
            cluster.check_equal(&[0, 2]);
        }
    }
}

/// osd.1 has copies of both PGs and fills up first. Writes without room are errors; as soon as objects are removed all is as
/// before, without a restart.
#[test]
fn a_full_replica_is_in_service_again_when_objects_go() {
    let cluster = Cluster::start(9, Disks::Blue, 2, 2, &[1, 1, 1]);
    cluster.mon.change(|inc| {
        inc.new_pg_temp.insert(PgId::new(POOL_ID, 0), vec![0, 1]);
        inc.new_pg_temp.insert(PgId::new(POOL_ID, 1), vec![2, 1]);
    });
    cluster.pass(Duration::from_millis(100));
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
    let contents = cluster.ask(&[0, 1, 2], "pg_contents");
    for (pg, leader) in [("1.0", 0), ("1.1", 2)] {
        assert_eq!(contents[leader]["pgs"][pg], contents[1]["pgs"][pg], "{pg}");
    }
    assert!(cluster.counter(&[1], "activations") > 0, "a full member led");
}
