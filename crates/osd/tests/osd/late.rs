//! Messages of a primary that is dead, or has been called so, and that come late.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::Message;
use carmine_types::{Epoch, Eversion, OsdId, PgId, errno};
use carmine_wire::private::rep::{Head, PgQuery};

use super::cluster::{Cluster, Disks};
use super::mon::POOL_ID;
use super::raw::Raw;

const PG: PgId = PgId { pool: POOL_ID, ps: 0 };

/// The query of a primary that began its interval at this epoch.
fn query(epoch: Epoch) -> Message {
    let head = Head { pg: PG, epoch, interval: epoch };
    Message::of(&PgQuery { head, last_update: Eversion::ZERO, acting: vec![OsdId(0), OsdId(1)] })
}

fn start(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &[1, 1]);
    cluster.mon.change(|inc| drop(inc.new_pg_temp.insert(PG, vec![0, 1])));
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", b"1".to_vec()).await.unwrap() },
    );
    cluster
}

fn ask(cluster: &Cluster, epoch: Epoch) -> i32 {
    let raw = Raw::of_osd(cluster, 0, 1);
    raw.send_message(query(epoch));
    cluster.wait("an answer", || !raw.notifies().is_empty());
    raw.notifies()[0]
}

/// A replica that serves its primary stays with it.
#[test]
fn a_late_query_does_not_take_a_replica_away() {
    let cluster = start(30);
    let before = cluster.mon.map().epoch;
    assert_eq!(ask(&cluster, Epoch(before.0 - 1)), errno::EAGAIN);
    // Had the replica gone back, the primary would have had to begin anew.
    let turns = cluster.counter(&[0], "activations");
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", b"2".to_vec()).await.unwrap() },
    );
    assert_eq!(cluster.counter(&[0], "activations"), turns);
}

/// The primary died and is back, but has not spoken to its replica yet: what its former self says is not believed.
#[test]
fn a_dead_primary_is_not_followed() {
    let cluster = start(31);
    let old = cluster.mon.map().epoch;
    cluster.kill(0);
    cluster.mon.down(0);
    cluster.wait("the map", || !cluster.mon.map().is_up(OsdId(0)));
    cluster.mon.deaf.borrow_mut().push(0);
    cluster.start_osd(0, 1);
    cluster.wait_up(2);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(ask(&cluster, old), errno::EAGAIN);
    cluster.mon.hear();
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", b"2".to_vec()).await.unwrap() },
    );
    cluster.check_equal(&[0, 1]);
}
