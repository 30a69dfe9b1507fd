//! Messages of a primary that is dead, or has been called so, and that come late.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::Message;
use carmine_osd::messages::{Head, PgActivate, PgQuery, PgRepair};
use carmine_pgtypes::{LogEntry, PgInfo, Step};
use carmine_types::{Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, SpgId, UTime, errno};

use super::cluster::{Cluster, Disks};
use super::mon::POOL_ID;
use super::peering::place;
use super::raw::{Raw, push_of, write_of};

const PG: SpgId = SpgId::replicated(PgId { pool: POOL_ID, ps: 0 });

fn head(epoch: Epoch, attempt: u64) -> Head {
    Head { pg: PG, epoch, interval: epoch, attempt }
}

/// The query of a primary.
fn query(head: Head) -> PgQuery {
    PgQuery { head, last_update: Eversion::ZERO, acting: [OsdId(0), OsdId(1)].into() }
}

fn start(seed: u64) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(
        RouteMode::Direct,
        |_, pool| async move { pool.write_full("a", b"1".to_vec()).await.unwrap() },
    );
    cluster
}

fn ask(cluster: &Cluster, epoch: Epoch) -> i32 {
    Raw::of_osd(cluster, 0, 1).query(cluster, &query(head(epoch, 1))).result
}

/// The test speaks for osd.0, which is dead without the map knowing it.
fn speak_for_the_primary(seed: u64) -> (Cluster, Raw, Epoch) {
    let cluster = start(seed);
    cluster.kill(0);
    let (raw, epoch) = (Raw::of_osd(&cluster, 0, 1), cluster.mon.map().epoch);
    (cluster, raw, epoch)
}

fn push(head: Head) -> Message {
    let oid = ObjectId::head(POOL_ID, b"", b"", b"a");
    push_of(head, oid, [Step::Remove, Step::Write { off: 0, data: b"late".to_vec().into() }])
}

fn entry(version: Eversion, name: &[u8]) -> LogEntry {
    LogEntry {
        version,
        prior: Eversion::ZERO,
        reqid: ReqId::default(),
        oid: ObjectId::head(POOL_ID, b"", b"", name).into(),
        op: LogOp::Modify,
        user_version: 1,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    }
}

fn activate(head: Head, keep_to: Eversion, log: Vec<LogEntry>) -> Message {
    let last_update = log.last().map_or(keep_to, |entry| entry.version);
    let (last_epoch_started, acting) = (head.epoch, [OsdId(0), OsdId(1)].into());
    let info = PgInfo { pg: head.pg, last_update, last_epoch_started, acting, ..PgInfo::default() };
    Message::encode(&PgActivate { head, keep_to, lease_ms: 0, info, log })
}

fn repair(head: Head, needs_bytes: u64) -> PgRepair {
    PgRepair { head, complete_to: Eversion::ZERO, last_backfill: None, needs_bytes }
}

/// Within one interval, orders and writes of an attempt that was given up come after the query of the next one.
#[test]
fn nothing_of_an_earlier_attempt_is_taken() {
    let (cluster, raw, epoch) = speak_for_the_primary(32);
    let (old, new) = (head(epoch, 11), head(epoch, 12));
    let found = raw.query(&cluster, &query(new));
    assert_eq!((found.result, found.info.incomplete), (0, false));
    assert_eq!(raw.query(&cluster, &query(old)).result, errno::EAGAIN);
    let repair = |head| Message::encode(&repair(head, 0));
    let nothing_new = |head| activate(head, found.info.last_update, Vec::new());
    let orders: [&dyn Fn(Head) -> Message; 3] = [&repair, &push, &nothing_new];
    for order in orders {
        assert_eq!(raw.order(&cluster, order(old)), errno::EAGAIN);
        assert_eq!(raw.order(&cluster, order(new)), 0);
    }
    let write = |head: Head, n| {
        let version = Eversion::new(epoch.0, found.info.last_update.version + n);
        write_of(head, entry(version, b"b"), Step::Touch)
    };
    assert_eq!(raw.order(&cluster, write(old, 1)), errno::ESTALE);
    assert_eq!(raw.order(&cluster, write(new, 1)), 0);
}

/// A log that could not be written down is not told of.
#[test]
fn a_log_that_the_store_refuses_is_not_taken_over() {
    let (cluster, raw, epoch) = speak_for_the_primary(33);
    let before = raw.query(&cluster, &query(head(epoch, 11)));
    let version = Eversion::new(epoch.0, before.info.last_update.version + 1);
    let too_long = activate(head(epoch, 11), before.info.last_update, vec![entry(version, &[b'x'; 5000])]);
    assert_eq!(raw.order(&cluster, too_long), errno::EINVAL);
    let after = raw.query(&cluster, &query(head(epoch, 12)));
    assert_eq!((after.info.last_update, after.log), (before.info.last_update, before.log));
    // It has no room, either, for a repair that needs more than there is: nothing is changed.
    let huge = repair(head(epoch, 12), 1 << 40);
    assert_eq!(raw.order(&cluster, Message::encode(&huge)), errno::ENOSPC);
    assert!(!raw.query(&cluster, &query(head(epoch, 13))).info.incomplete);
    // A repair that began and did not end is told of, also after a restart.
    let begin = repair(head(epoch, 13), 0);
    assert_eq!(raw.order(&cluster, Message::encode(&begin)), 0);
    assert!(raw.query(&cluster, &query(head(epoch, 14))).info.incomplete);
}

/// A replica that serves its primary stays with it.
#[test]
fn a_late_query_does_not_take_a_replica_away() {
    let cluster = start(30);
    assert_eq!(ask(&cluster, Epoch(1)), errno::EAGAIN);
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
