//! A PG of which a real monitor gives this OSD a part and an OSD of another kind the rest.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::{MonKind, OsdId};
use carmine_wire::FEATURES;
use carmine_wire::osdmap::OsdXinfo;

use super::cluster::{Cluster, Disks, noise};

/// Says soon that osd.1 has these features.
pub(crate) fn set_features(cluster: &Cluster, features: u64) {
    cluster.mon.changes_with(move |map, inc| {
        inc.new_xinfo.insert(OsdId(1), OsdXinfo { features, ..map.osd_xinfo[1] });
    });
    cluster.pass(Duration::from_millis(500));
}

#[test]
fn a_pg_with_both_kinds_of_osds_is_down_and_the_log_of_the_cluster_says_why() {
    let cluster = Cluster::with_mon(70, Disks::Blue, 2, 4, &[2, 2], 256 << 20, MonKind::Ceph);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for at in 0..20 {
            pool.write_full(format!("o{at}"), noise(at, 512)).await.unwrap();
        }
    });
    let own = cluster.mon.map().osd_xinfo[1].features;
    set_features(&cluster, FEATURES);
    let led = cluster.states(0);
    let says_why = |why: &str| why.contains("osd.1 are not Carmine's");
    assert!(!led.is_empty() && led.iter().all(|(state, why)| state == "down" && says_why(why)), "{led:?}");
    let lines = cluster.mon.log.borrow().clone();
    let said: Vec<&String> = lines.iter().filter(|line| line.contains("pool 'data' has PGs with")).collect();
    assert!(said.iter().any(|line| line.contains("osd.0 serves none of these")), "{lines:?}");
    assert_eq!(said.len(), 1, "it says it once: {said:?}");
    let late = cluster.background(RouteMode::Direct, |_, pool| async move {
        for at in 0..20 {
            assert_eq!(pool.read(format!("o{at}"), 0, 512).await.unwrap().to_vec(), noise(at, 512));
        }
    });
    cluster.pass(Duration::from_secs(2));
    assert!(!late.is_done(), "nobody serves");
    set_features(&cluster, own);
    cluster.wait("the reads", || late.is_done());
    late.result();
    cluster.check_equal(&[0, 1]);
}
