//! Operations and messages that name a PG other than their object's. Two reactors would own the object: its blocks would be
//! freed twice.

use std::cell::Cell;
use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::Message;
use carmine_osd::messages::{
    Head, PgActivate, PgFetch, PgQuery, PgRead, PgRepair, PgScrub, PushObject, RepOp, ScanCursor,
};
use carmine_pgtypes::{LogEntry, OsdSet, PgInfo, Sealed, Step, Transaction};
use carmine_types::{Epoch, Eversion, LogOp, NO_SHARD, ObjectId, OsdId, PgId, ReqId, SpgId, UTime, errno};
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags};
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place};
use super::raw::{Answer, Raw, push_of, write_of};

const SECOND: Duration = Duration::from_secs(1);

/// Sends requests that a test has changed.
struct Liar<'a> {
    cluster: &'a Cluster,
    raw: Raw,
    tid: Cell<u64>,
}

impl<'a> Liar<'a> {
    fn new(cluster: &'a Cluster) -> Liar<'a> {
        Liar { cluster, raw: Raw::new(cluster, 0), tid: Cell::new(0) }
    }

    fn tid(&self) -> u64 {
        self.tid.set(self.tid.get() + 1);
        self.tid.get()
    }

    /// The result of an operation on an object; `None` if there is no answer within a second.
    fn ask(&self, name: &str, op: OsdOp, change: impl FnOnce(&mut OsdRequest)) -> Option<i32> {
        let mut request = self.raw.request(self.cluster, name, op);
        change(&mut request);
        let data = vec![0xbd; op.payload_len as usize];
        self.raw.ask(self.cluster, request, &data, self.tid()).map(|answer: Answer| answer.result)
    }
}

fn name(n: u64) -> String {
    format!("o{n}")
}

fn write_all(cluster: &Cluster, round: u64) {
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        for n in 0..6 {
            pool.write_full(name(n), noise(round + n, 9000)).await.unwrap();
        }
    });
}

fn check_all(cluster: &Cluster, round: u64) {
    cluster.client(RouteMode::Direct, move |_, pool| async move {
        for n in 0..6 {
            let data = pool.read(name(n), 0, 0).await.unwrap().to_vec();
            assert!(data == noise(round + n, 9000), "{} of round {round}", name(n));
        }
    });
}

/// Whatever PG is named, whatever is asked, also where `pg_num` is no power of two.
#[test]
fn an_object_is_touched_by_its_own_pg_only() {
    for pgs in [8, 12] {
        let cluster = Cluster::start(60, Disks::Blue, 1, pgs, &[2]);
        write_all(&cluster, 0);
        let liar = Liar::new(&cluster);
        let asked = [OsdOp::read(0, 10), OsdOp::write(0, 5000), OsdOp::delete(), OsdOp::watch_op(3, 7, 0)];
        for n in 0..6 {
            let own = liar.raw.request(&cluster, &name(n), OsdOp::stat()).pg.ps;
            for ps in (0..pgs).filter(|ps| *ps != own) {
                for op in asked {
                    let result = liar.ask(&name(n), op, |request| request.pg.ps = ps);
                    assert_eq!(result, Some(errno::ENXIO), "{op:?} of {} in PG {ps}, not {own}", name(n));
                }
            }
        }
        check_all(&cluster, 0);
        write_all(&cluster, 100);
        cluster.pass(SECOND);
        cluster.kill(0);
        let report = cluster.fsck(0);
        assert!(report.is_clean(), "{report:?}");
        cluster.start_osd(0, 2);
        cluster.pass(SECOND);
        check_all(&cluster, 100);
    }
}

/// The pool of the PG and that of the object.
#[test]
fn an_object_is_touched_by_a_pg_of_its_own_pool_only() {
    let cluster = Cluster::start(61, Disks::Blue, 1, 8, &[2]);
    cluster.mon.change(|inc| {
        inc.new_pools.insert(2, PgPool::replicated(1, 1, 8, 0, Epoch(1), UTime::ZERO));
        inc.new_pool_names.insert(2, "second".into());
        inc.new_pool_max = 2;
    });
    cluster.pass(SECOND);
    let liar = Liar::new(&cluster);
    for op in [OsdOp::write(0, 5), OsdOp::stat()] {
        assert_eq!(liar.ask("a", op, |request| request.pg.pool = 2), Some(errno::ENXIO));
        assert_eq!(liar.ask("a", op, |request| request.locator.pool = 2), Some(errno::ENXIO));
    }
    // A listing has no object; it has a pool.
    let list = |pool| {
        liar.ask("", OsdOp::pgnls(10, 0, 0), |request| {
            request.hash = request.pg.ps;
            request.locator.pool = pool;
        })
    };
    assert_eq!(list(2), Some(errno::ENXIO));
    assert_eq!(list(POOL_ID), Some(errno::EINVAL), "it comes as far as its cursor, which is empty");
    let own = liar.ask("a", OsdOp::write(0, 5), |request| {
        request.pg.pool = 2;
        request.locator.pool = 2;
    });
    assert_eq!(own, Some(0));
}

/// Where the client's map is older than the OSD's it is sent the newer one, and finds the PG by that.
#[test]
fn a_client_with_an_old_map_is_sent_the_new_one() {
    let cluster = Cluster::start(62, Disks::Cyan, 1, 8, &[2]);
    let liar = Liar::new(&cluster);
    let result = liar.ask("a", OsdOp::write(0, 5), |request| {
        request.pg.ps ^= 1;
        request.epoch = Epoch(1);
    });
    assert_eq!((result, liar.raw.maps()), (None, 1));
    assert_eq!(liar.ask("a", OsdOp::stat(), |_| {}), Some(errno::ENOENT));
}

/// It does not wait for its PG to be active.
#[test]
fn an_inactive_pg_refuses_it_at_once() {
    let cluster = Cluster::start(63, Disks::Cyan, 2, 8, &[2, 1]);
    cluster.mon.min_size(2);
    kill(&cluster, 1);
    cluster.pass(SECOND);
    let liar = Liar::new(&cluster);
    assert_eq!(liar.ask("a", OsdOp::write(0, 5), |_| {}), None, "an honest one waits");
    let result = liar.ask("a", OsdOp::write(0, 5), |request| request.pg.ps ^= 1);
    assert_eq!(result, Some(errno::ENXIO));
}

/// It is judged by the map that it was sent with, as soon as that is here.
#[test]
fn one_with_a_newer_map_is_refused_when_the_map_comes() {
    let cluster = Cluster::start(64, Disks::Cyan, 1, 8, &[2]);
    // The OSD's own wishes are in the map.
    cluster.pass(SECOND);
    let liar = Liar::new(&cluster);
    let result = liar.ask("a", OsdOp::write(0, 5), |request| {
        request.pg.ps ^= 1;
        request.epoch.0 += 1;
    });
    assert_eq!(result, None);
    cluster.mon.change(|_| {});
    cluster.wait("an answer", || !liar.raw.answers(1).is_empty());
    assert_eq!(liar.raw.answers(1)[0].result, errno::ENXIO);
}

/// The map splits a PG while operations wait in it. One whose object is in a child now is left to its client, which sends it to the
/// child.
#[test]
fn one_that_waits_is_executed_in_its_own_pg_only_when_that_is_split() {
    let cluster = Cluster::start(65, Disks::Blue, 2, 8, &[2, 1]);
    cluster.mon.min_size(2);
    // Osd.0 leads, so that it is the same PG's when it is active again.
    place(&cluster, 8, &[0, 1]);
    kill(&cluster, 1);
    cluster.pass(SECOND);
    let liar = Liar::new(&cluster);
    let raw = &liar.raw;
    let moves = |name: &String| raw.request(&cluster, name, OsdOp::stat()).hash & 8 != 0;
    let moved = (0..).map(name).find(moves).unwrap();
    let stays = (0..).map(name).find(|name| !moves(name)).unwrap();
    assert_eq!(liar.ask(&moved, OsdOp::write(0, 5), |_| {}), None);
    assert_eq!(liar.ask(&stays, OsdOp::write(0, 5), |_| {}), None);
    let pool = cluster.mon.map().pool(POOL_ID).unwrap().clone();
    cluster.mon.change(move |inc| {
        inc.new_pools.insert(POOL_ID, PgPool { pg_num: 16, pgp_num: 16, pg_num_pending: 16, ..pool });
    });
    cluster.start_osd(1, 1);
    cluster.wait("what stays is executed", || !raw.answers(2).is_empty());
    cluster.pass(2 * SECOND);
    let results = |tid| raw.answers(tid).iter().map(|answer| answer.result).collect::<Vec<_>>();
    assert_eq!((results(1), results(2)), (Vec::new(), vec![0]));
    let is_there = |name: &String| {
        let name = name.clone();
        cluster.client(RouteMode::Direct, move |_, pool| async move { pool.stat(name).await.is_ok() })
    };
    assert_eq!((is_there(&moved), is_there(&stays)), (false, true));
}

/// An object of the PG with this seed, and one of another.
fn objects(ps: u32, pgs: u32) -> [ObjectId; 2] {
    let find = |is_in: bool| {
        let oids = (0..).map(|n| ObjectId::head(POOL_ID, b"", b"", name(n).as_bytes()));
        oids.into_iter().find(|oid| (PgId::of_hash(POOL_ID, oid.hash, pgs).ps == ps) == is_in).unwrap()
    };
    [find(true), find(false)]
}

fn entry(oid: &ObjectId, version: Eversion) -> LogEntry {
    LogEntry {
        version,
        prior: Eversion::ZERO,
        reqid: ReqId { client: 5, inc: 0, tid: version.version },
        oid: oid.clone().into(),
        op: LogOp::Modify,
        user_version: version.version,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    }
}

/// Messages of other OSDs are checked as well: a replica's store would be harmed like a primary's.
#[test]
fn other_osds_are_not_believed_either() {
    let cluster = Cluster::start(66, Disks::Blue, 2, 4, &[1, 2]);
    place(&cluster, 4, &[0, 1]);
    write_all(&cluster, 0);
    // The test speaks in the place of the primary.
    cluster.kill(0);
    let pg = SpgId::from(PgId::new(POOL_ID, 1));
    let [own, other] = objects(pg.pgid.ps, 4);
    let epoch = cluster.mon.map().epoch;
    let head = Head { pg, epoch, interval: epoch, attempt: u64::MAX };
    let raw = Raw::of_osd(&cluster, 0, 1);
    let order = |message: Message| raw.order(&cluster, message);
    let acting = OsdSet::from([OsdId(0), OsdId(1)]);
    let query = PgQuery { head, last_update: Eversion::ZERO, acting: acting.clone() };
    assert_eq!(raw.query(&cluster, &query).result, 0);
    // A repair: objects are pushed, then the log.
    assert_eq!(
        order(Message::encode(&PgRepair {
            head,
            complete_to: Eversion::ZERO,
            last_backfill: None,
            needs_bytes: 0
        })),
        0
    );
    let write_step = |bytes| Step::Write { off: 0, data: noise(9, bytes).into() };
    let push = |oid: &ObjectId, step| order(push_of(head, oid.clone(), [Step::Remove, step]));
    assert_eq!(push(&other, write_step(5000)), errno::EINVAL);
    assert_eq!(push(&other, Step::ClearOmap), errno::EINVAL, "neither is it removed");
    assert_eq!(push(&ObjectId { shard: NO_SHARD + 1, ..own.clone() }, Step::Touch), errno::EINVAL);
    // Another PG's transaction, and one that is no push.
    let mut lie = push_of(Head { pg: PgId::new(POOL_ID, 0).into(), ..head }, other.clone(), [Step::Touch]);
    lie.front[..13].copy_from_slice(&push_of(head, own.clone(), []).front[..13]);
    assert_eq!(order(lie), errno::EINVAL);
    // Nobody is told to split a PG: each OSD does so itself, when the map says it.
    let child = PgInfo { pg: PgId::new(POOL_ID, 5).into(), pg_num: 8, ..PgInfo::default() };
    let split = Sealed::from(Transaction { split: vec![child.clone()], ..Transaction::new(pg, 0) });
    assert_eq!(order(PushObject::pack(&head, &split, split.data()).message()), errno::EINVAL);
    assert_eq!(push(&own, write_step(5000)), 0);
    let activate = |oid: &ObjectId| {
        let version = Eversion::new(epoch.0, 1);
        order(Message::encode(&PgActivate {
            head,
            keep_to: Eversion::ZERO,
            lease_ms: 0,
            info: PgInfo {
                pg,
                last_update: version,
                last_epoch_started: epoch,
                acting: acting.clone(),
                ..PgInfo::default()
            },
            log: vec![entry(oid, version)],
        }))
    };
    assert_eq!(activate(&other), errno::EINVAL);
    assert_eq!(activate(&own), 0);
    // Writes.
    let version = Eversion::new(epoch.0, 2);
    let write = |oid: &ObjectId, bytes: usize| {
        order(write_of(head, entry(oid, version), write_step(4096)).with_data(noise(10, bytes)))
    };
    assert_eq!(write(&other, 4096), errno::EINVAL);
    assert_eq!(write(&own, 8192), errno::EINVAL);
    assert_eq!(write(&own, 100), errno::EINVAL);
    // A write of two objects, and one that changes more than a write may.
    let mut two = Transaction::new(pg, 0);
    two.log.extend([entry(&own, version), entry(&own, version)]);
    let mut info = Transaction::new(pg, 0);
    info.log.push(entry(&own, version));
    info.info = Some(PgInfo { pg, ..PgInfo::default() }.into());
    let mut split = Transaction::new(pg, 0);
    split.log.push(entry(&own, version));
    split.split = vec![child];
    for txn in [two, info, split] {
        let message = RepOp::pack(&head, &Sealed::from(txn), Default::default()).message();
        assert_eq!(order(message), errno::EINVAL);
    }
    assert_eq!(write(&own, 4096), 0);
    // Reads.
    let read = |oid: &ObjectId| order(Message::encode(&PgRead { head, off: 0, len: 4096, oid: oid.clone() }));
    assert_eq!(read(&other), errno::EINVAL);
    assert_eq!(read(&own), 0);
    // A scrub: of the range that is asked for only what lies in the PG is looked at.
    let fetch = |oid: &ObjectId| order(Message::encode(&PgFetch { head, oid: oid.clone(), from: None }));
    assert_eq!(fetch(&other), errno::EINVAL);
    assert_eq!(fetch(&own), 0);
    let scrub = |version| {
        let from = ScanCursor::at(other.clone());
        order(Message::encode(&PgScrub { head, version, deep: true, from, to: None }))
    };
    assert_eq!(scrub(version), 0);
    assert_eq!(scrub(Eversion::new(epoch.0, 3)), errno::EAGAIN, "it has not come that far");
    cluster.pass(SECOND);
    cluster.kill(1);
    let report = cluster.fsck(1);
    assert!(report.is_clean(), "{report:?}");
}

/// An OSD that is not the primary does not answer reads for it; it sends those clients to the primary that may ask any member,
/// and only those (the others find it by their map).
#[test]
fn balanced_reads_are_sent_to_the_primary() {
    let cluster = Cluster::start(83, Disks::Cyan, 2, 4, &[2, 2]);
    place(&cluster, 4, &[0, 1]);
    write_all(&cluster, 7);
    let replica = Raw::new(&cluster, 1);
    let ask = |op: OsdOp, flags: u32, tid: u64| {
        let mut request = replica.request(&cluster, &name(1), op);
        request.flags = flags;
        let data = vec![1; op.payload_len as usize];
        replica.ask(&cluster, request, &data, tid).map(|answer: Answer| answer.result)
    };
    let read = OsdOp::read(0, 10);
    assert_eq!(ask(read, flags::CLIENT_READ | flags::BALANCE_READS, 1), Some(errno::EAGAIN));
    assert_eq!(ask(read, flags::CLIENT_READ | flags::LOCALIZE_READS, 2), Some(errno::EAGAIN));
    assert_eq!(ask(read, flags::CLIENT_READ, 3), None);
    assert_eq!(ask(OsdOp::write(0, 5), flags::CLIENT_WRITE | flags::BALANCE_READS, 4), None);
    check_all(&cluster, 7);
}
