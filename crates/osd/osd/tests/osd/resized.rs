//! A pool that is given fewer PGs: merges are not built, and nothing is lost by that.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;

const OBJECTS: u64 = 40;

pub(crate) fn set_pg_num(cluster: &Cluster, pg_num: u32) {
    let before = cluster.mon.map().epoch;
    cluster.mon.changes_with(move |map, inc| {
        let pool = map.pool(POOL_ID).unwrap().clone();
        inc.new_pools.insert(POOL_ID, PgPool { pg_num, pgp_num: pg_num, ..pool });
    });
    cluster.wait("the map", || cluster.mon.map().epoch > before);
    cluster.pass(Duration::from_millis(500));
}

fn is_down(cluster: &Cluster) -> bool {
    let states: Vec<_> = [0, 1].into_iter().flat_map(|osd| cluster.states(osd)).collect();
    let says_why = |why: &str| why.contains("made with 4") && why.contains("Set pg_num to 4 again");
    !states.is_empty() && states.iter().all(|(state, why)| state == "down" && says_why(why))
}

#[test]
fn a_pool_with_fewer_pgs_is_down_and_keeps_its_data() {
    for pg_num in [3, 2] {
        let cluster = Cluster::start(51, Disks::Blue, 2, 4, &[2, 2]);
        cluster.client(RouteMode::Direct, |_, pool| async move {
            for at in 0..OBJECTS {
                pool.write_full(format!("o{at}").as_bytes(), noise(at, 512)).await.unwrap();
            }
        });
        set_pg_num(&cluster, pg_num);
        assert!(is_down(&cluster), "{pg_num}: {:?}, {:?}", cluster.states(0), cluster.states(1));
        let late = cluster.background(RouteMode::Direct, |_, pool| async move {
            for at in 0..OBJECTS {
                let data = pool.read(format!("o{at}").as_bytes(), 0, 512).await.unwrap();
                assert_eq!(data.to_vec(), noise(at, 512));
            }
        });
        cluster.pass(Duration::from_secs(2));
        assert!(!late.is_done(), "nobody serves an object in a PG that never had it");
        for osd in 0..2 {
            cluster.kill(osd);
            cluster.mon.down(osd);
        }
        (0..2).for_each(|osd| cluster.start_osd(osd, 2));
        cluster.wait_up(2);
        cluster.pass(Duration::from_secs(1));
        assert!(is_down(&cluster), "after a restart: {:?}, {:?}", cluster.states(0), cluster.states(1));
        set_pg_num(&cluster, 4);
        cluster.wait("the reads", || late.is_done());
        late.result();
        cluster.check_equal(&[0, 1]);
    }
}
