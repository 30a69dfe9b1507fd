//! Maps that a primary skips and its replicas do not.

use std::time::Duration;

use carmine_client::RouteMode;

use super::cluster::{Cluster, Disks, noise};
use super::peering::wait_clean;

/// osd.2 is called down and up again. Its fellow replica sees both maps and leaves the interval; osd.0 sees only the
/// last, in which nothing has changed for it, or both so late that the others are through with them.
#[test]
fn a_primary_that_skipped_an_interval_agrees_with_its_replicas_again() {
    for forgets_maps in [true, false] {
        skip_an_interval(forgets_maps);
    }
}

fn skip_an_interval(forgets_maps: bool) {
    let cluster = Cluster::start(11, Disks::Cyan, 3, 8, &[1, 1, 1]);
    cluster.mon.forgets_maps.set(forgets_maps);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for at in 0..32_u64 {
            pool.write_full(format!("o{at}").as_bytes(), noise(at, 512)).await.unwrap();
        }
    });
    cluster.mon.deaf.borrow_mut().push(0);
    cluster.mon.down(2);
    cluster.mon.up_again(2);
    cluster.pass(Duration::from_millis(500));
    cluster.mon.hear();
    cluster.pass(Duration::from_millis(500));
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for at in 0..32_u64 {
            pool.write_full(format!("o{at}").as_bytes(), noise(at + 100, 512)).await.unwrap();
        }
    });
    wait_clean(&cluster, &[0, 1, 2]);
    cluster.check_equal(&[0, 1, 2]);
}
