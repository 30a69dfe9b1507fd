//! Long attributes: whatever one request may bring reaches the other members, at once and when a copy is made again, compared or
//! repaired; the rest is refused, as by a real Ceph 16.2.15.

use carmine_client::{ClientError, Pool, RouteMode};
use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::Payload;
use carmine_types::{Epoch, ObjectId, OsdId, PgId, SpgId, Uuid, errno};
use carmine_wire::Encoder;
use carmine_wire::osd_op::{OsdOp, ops};
use carmine_wire::scrub::OsdScrub;

use super::attrs::{get, set_omap};
use super::cluster::{Cluster, Disks, noise};
use super::mon::POOL_ID;
use super::peering::{kill, place, wait_clean};
use super::scrub::reported;

const MIB: usize = 1 << 20;
const PG: SpgId = SpgId::replicated(PgId::new(POOL_ID, 0));

type Op = (OsdOp, Payload);

/// The kinds of long attributes.
#[derive(Clone, Copy, Debug)]
enum Long {
    Value,
    /// Many values in one request, each of which is short enough.
    Values,
    Header,
    Key,
}

const ALL: [Long; 4] = [Long::Value, Long::Values, Long::Header, Long::Key];

fn header(bytes: Vec<u8>) -> Op {
    (OsdOp::with_payload(ops::OMAP_SET_HEADER, 0), Payload::from(bytes))
}

fn set_raw(key: &[u8], value: &[u8]) -> Op {
    let input = Encoder::collect(|e| {
        e.vec([(key, value)], |e, (key, value)| {
            e.blob(key);
            e.blob(value);
        });
    });
    (OsdOp::with_payload(ops::OMAP_SET_VALS, 0), Payload::from(input))
}

impl Long {
    /// A request that makes an object with it, and with a short key before all others and one behind them.
    fn ops(self) -> Vec<Op> {
        let short = || set_omap(&[(String::new(), b"first".to_vec()), ("zz".into(), b"last".to_vec())]);
        let long = match self {
            Long::Value => vec![set_raw(b"k", &noise(1, 17 * MIB))],
            Long::Values => (0..20).map(|n| set_raw(&[b'k', n], &noise(n.into(), MIB))).collect(),
            Long::Header => vec![header(noise(2, 17 * MIB))],
            Long::Key => vec![set_raw(&noise(3, 17 * MIB), b"v")],
        };
        [vec![(OsdOp::write_full(0), Payload::from(noise(4, 5000))), short()], long].concat()
    }
}

/// Twenty writes of another client, each within a second.
async fn small_writes(pool: Pool) {
    for n in 0..20u64 {
        pool.write_full(format!("small-{n}"), noise(n, 100)).await.expect("a small write");
    }
}

fn one_pg(seed: u64, size: u8) -> Cluster {
    let cluster = Cluster::start(seed, Disks::Blue, size, 1, &vec![1; size.into()]);
    place(&cluster, 1, &all(size));
    cluster
}

fn all(size: u8) -> Vec<i32> {
    (0..size.into()).collect()
}

fn write(cluster: &Cluster, long: Long) {
    let writer = cluster.background(RouteMode::Direct, move |_, pool| async move {
        pool.exec("long", long.ops()).await.expect("the long write");
    });
    cluster.client(RouteMode::Direct, |_, pool| small_writes(pool));
    cluster.wait("the long write", || writer.is_done());
}

#[test]
fn long_attributes_reach_the_replica_and_keep_nobody_waiting() {
    for long in ALL {
        let cluster = one_pg(101, 2);
        write(&cluster, long);
        cluster.check_equal(&[0, 1]);
    }
}

/// A member that was away gets them by the log, an empty one by a backfill.
#[test]
fn long_attributes_are_recovered_and_backfilled() {
    for (n, long) in (0..).zip(ALL) {
        let is_wiped = n % 2 == 0;
        let cluster = one_pg(110 + n, 2);
        kill(&cluster, 1);
        write(&cluster, long);
        if is_wiped {
            cluster.wipe(1);
        }
        cluster.start_osd(1, 1);
        cluster.wait_up(2);
        wait_clean(&cluster, &[0]);
        cluster.check_equal(&[0, 1]);
    }
}

/// One copy of three lost it: a scrub finds that and writes the object anew, the primary's from another's.
#[test]
fn long_attributes_are_compared_and_repaired() {
    for (n, long) in (0..).zip(ALL) {
        let cluster = one_pg(120 + n, 3);
        write(&cluster, long);
        (0..3).for_each(|osd| kill(&cluster, osd));
        let mut txn = Transaction::new(PG, 0);
        let oid = ObjectId::head(POOL_ID, b"", b"", b"long");
        txn.changes.push(ObjectChange::new(oid, [Step::ClearOmap]));
        cluster.change_store(n as u32 % 2, txn);
        (0..3).for_each(|osd| cluster.start_osd(osd, 1));
        cluster.wait_up(3);
        wait_clean(&cluster, &[0]);
        let errors = |repair| {
            let before = reported(&cluster).last;
            let order = OsdScrub { fsid: Uuid([7; 16]), epoch: Epoch(1), pgs: vec![PG], repair, deep: true };
            cluster.mon.orders.borrow_mut().push((OsdId(0), order));
            cluster.wait("a scrub", || reported(&cluster).last != before && !reported(&cluster).scrubbing);
            reported(&cluster).errors
        };
        assert!(errors(false) > 0, "{long:?}: the damage is found");
        assert_eq!(errors(true), 0, "{long:?}: it is repaired");
        cluster.check_equal(&[0, 1, 2]);
        let bytes = cluster.client(RouteMode::Direct, |_, pool| async move {
            let mut bytes = 0;
            for op in
                [OsdOp::with_payload(ops::OMAP_GET_HEADER, 0), OsdOp::with_payload(ops::OMAP_GET_VALS, 0)]
            {
                let from_the_first = Encoder::collect(|e| {
                    e.blob(b"");
                    e.u64(1000);
                    e.blob(b"");
                });
                bytes += get(&pool, "long", (op, Payload::from(from_the_first))).await.unwrap().len();
            }
            bytes
        });
        assert!(
            bytes > if matches!(long, Long::Values) { MIB } else { 17 * MIB },
            "{long:?}: {bytes} bytes are left"
        );
    }
}

/// A real Ceph takes requests of up to 90 MiB (osd_max_write_size), however they are divided, and answers EMSGSIZE to longer ones.
#[test]
fn what_ceph_takes_is_taken_and_the_rest_is_refused_at_once() {
    let cluster = Cluster::start(130, Disks::Cyan, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        let outcome = |done: Result<_, ClientError>| done.map(drop).map_err(|error| error.errno());
        let long = |bytes: usize| set_raw(b"k", &vec![7; bytes]);
        let data = |off: u64, bytes: usize| (OsdOp::write(off, bytes as u32), Payload::from(vec![7; bytes]));
        let refused = Err(errno::EMSGSIZE);
        for (ops, expected) in [
            (vec![long(90 * MIB - 64)], Ok(())),
            (vec![long(90 * MIB)], refused),
            (vec![long(29 * MIB), long(29 * MIB), long(29 * MIB)], Ok(())),
            (vec![long(31 * MIB), long(31 * MIB), long(31 * MIB)], refused),
            (vec![header(vec![1; 89 * MIB])], Ok(())),
            (vec![data(0, 45 * MIB), long(44 * MIB)], Ok(())),
            (vec![data(0, 46 * MIB), data(46 << 20, 46 * MIB)], refused),
        ] {
            assert_eq!(outcome(pool.exec("o", ops).await), expected);
            small_writes(pool.clone()).await;
        }
        // So many keys of no bytes would take gigabytes.
        let keys = Encoder::collect(|e| e.vec(vec![(); 10_000_000], |e, ()| e.u64(0)));
        let many = (OsdOp::with_payload(ops::OMAP_SET_VALS, 0), Payload::from(keys));
        assert_eq!(outcome(pool.exec("o", vec![many]).await), refused);
    });
    cluster.check_equal(&[0, 1]);
}

fn copy(from: &str) -> Op {
    let input = Encoder::collect(|e| {
        e.str(from);
        e.envelope(6, 3, |e| {
            e.i64(POOL_ID);
            e.i32(-1);
            e.blob(b"");
            e.blob(b"");
            e.i64(-1);
        });
    });
    let mut op = OsdOp::with_payload(ops::COPY_FROM, 0);
    op.arg[..8].copy_from_slice(&carmine_types::SNAP_HEAD.to_le_bytes());
    (op, Payload::from(input))
}

/// A copy collects the omap of its source: as much as one message carries. With more it ends, and others are served meanwhile.
#[test]
fn an_omap_is_copied_up_to_the_longest_message() {
    let cluster = Cluster::start(131, Disks::Cyan, 2, 1, &[1, 1]);
    place(&cluster, 1, &[0, 1]);
    let fill = |from: u64, to: u64| {
        cluster.client(RouteMode::Direct, move |_, pool| async move {
            for n in from..to {
                pool.exec("from", vec![set_raw(format!("k{n:03}").as_bytes(), &noise(n, MIB))])
                    .await
                    .unwrap();
            }
        });
    };
    let copied = || {
        let copy = cluster.background(RouteMode::Direct, |_, pool| async move {
            pool.exec("to", vec![copy("from")]).await.map(drop).map_err(|error| error.errno())
        });
        cluster.client(RouteMode::Direct, |_, pool| small_writes(pool));
        cluster.wait("the copy", || copy.is_done());
        copy.result()
    };
    fill(0, 100);
    assert_eq!(copied(), Ok(()));
    fill(100, 160);
    assert_eq!(copied(), Err(errno::EFBIG));
    cluster.check_equal(&[0, 1]);
}
