//! The figures on pools that the monitor is told.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::PgId;

use super::cluster::{Cluster, Disks};
use super::mon::POOL_ID;

/// Objects and bytes by the newest statistics of all OSDs.
fn used(cluster: &Cluster) -> (u64, u64) {
    // Counting and the next report.
    cluster.pass(Duration::from_secs(5));
    let stats = cluster.mon.stats.borrow();
    let pools = stats.values().flat_map(|stats| &stats.pools).filter(|pool| pool.pool == POOL_ID);
    pools.fold((0, 0), |(objects, bytes), pool| (objects + pool.objects, bytes + pool.bytes))
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
        cluster.mon.change(move |inc| {
            (0..4)
                .for_each(|ps| drop(inc.new_pg_temp.insert(PgId::new(POOL_ID, ps), vec![first, 1 - first])));
        });
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
