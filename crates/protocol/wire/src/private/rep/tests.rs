use carmine_types::{Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, UTime};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::header::Front;

fn head() -> impl Strategy<Value = Head> {
    any::<(i64, u32, u32, u32, u64)>().prop_map(|(pool, ps, epoch, interval, attempt)| Head {
        pg: PgId { pool, ps },
        epoch: Epoch(epoch),
        interval: Epoch(interval),
        attempt,
    })
}

fn eversion() -> impl Strategy<Value = Eversion> {
    any::<(u32, u64)>().prop_map(|(epoch, version)| Eversion { epoch, version })
}

fn utime() -> impl Strategy<Value = UTime> {
    any::<(u32, u32)>().prop_map(|(sec, nsec)| UTime { sec, nsec })
}

/// Objects of pool 0; [`in_pool`] gives them the pool of their message.
fn oid() -> impl Strategy<Value = ObjectId> {
    (any::<(u32, u64)>(), vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..30)).prop_map(
        |((hash, snap), nspace, key, name)| ObjectId {
            pool: 0,
            hash,
            nspace: nspace.into(),
            key: key.into(),
            name: name.into(),
            snap,
        },
    )
}

fn entry() -> impl Strategy<Value = RepEntry> {
    (eversion(), eversion(), any::<(u64, i32, u64)>(), oid(), any::<(u8, u64, i32)>(), utime()).prop_map(
        |(version, prior, (client, inc, tid), oid, (op, user_version, result), mtime)| RepEntry {
            version,
            prior,
            reqid: ReqId { client, inc, tid },
            oid,
            op: [LogOp::Modify, LogOp::Delete, LogOp::Error][usize::from(op % 3)],
            user_version,
            result,
            mtime,
        },
    )
}

fn step() -> impl Strategy<Value = RepTxn> {
    prop_oneof![
        Just(RepTxn::Touch),
        any::<(u64, u64)>().prop_map(|(off, len)| RepTxn::Write { off, len }),
        any::<(u64, u64)>().prop_map(|(off, len)| RepTxn::Zero { off, len }),
        any::<u64>().prop_map(|size| RepTxn::Truncate { size }),
        Just(RepTxn::Remove),
    ]
}

fn in_pool(mut log: Vec<RepEntry>, head: Head) -> Vec<RepEntry> {
    log.iter_mut().for_each(|entry| entry.oid.pool = head.pg.pool);
    log
}

/// Encodes, decodes, compares; then no prefix and no changed byte may panic.
fn check<T: Front + PartialEq + std::fmt::Debug>(value: &T, head: Head, change: (prop::sample::Index, u8)) {
    let front = value.to_front();
    assert_eq!(&T::from_front(&T::header(), &front).unwrap(), value);
    assert_eq!(peek_pg(&front), Some(head.pg));
    assert!(T::from_front(&T::header(), &front[..change.0.index(front.len())]).is_err());
    let mut mutated = front;
    let at = change.0.index(mutated.len());
    mutated[at] ^= change.1;
    let _ = T::from_front(&T::header(), &mutated);
}

type Change = (prop::sample::Index, u8);

proptest! {
    #[test]
    fn rep_op(head in head(), log in vec(entry(), 1), trim_to in eversion(), txn in vec(step(), 0..5), change: Change) {
        let entry = in_pool(log, head).remove(0);
        check(&RepOp { head, entry, trim_to, txn: txn.into() }, head, change);
    }

    #[test]
    fn small_ones(head in head(), version in eversion(), result: i32, reset: bool, needs_bytes: u64, change: Change) {
        check(&RepAck { head, version, result }, head, change);
        check(&PgAck { head, result }, head, change);
        check(&PgRepair { head, reset, needs_bytes }, head, change);
        check(&PgData { head, result }, head, change);
    }

    #[test]
    fn query_and_notify(
        head in head(), versions in (eversion(), eversion()), log in vec(entry(), 0..4), acting in vec(any::<u32>(), 0..4),
        result: i32, started: u32, incomplete: bool, change: Change,
    ) {
        let acting: Vec<OsdId> = acting.into_iter().map(OsdId).collect();
        check(&PgQuery { head, last_update: versions.0, acting }, head, change);
        let (last_update, log_tail) = versions;
        let log = in_pool(log, head);
        let last_epoch_started = Epoch(started);
        check(&PgNotify { head, result, last_update, log_tail, last_epoch_started, incomplete, log }, head, change);
    }

    #[test]
    fn push(
        head in head(), mut oid in oid(), exists: bool, sizes: (u64, u64, u64, u64), version in eversion(), mtime in utime(),
        change: Change,
    ) {
        oid.pool = head.pg.pool;
        let (size, off, lost_bytes, user_version) = sizes;
        check(&PgRead { head, off, len: size as u32, oid: oid.clone() }, head, change);
        check(&PushObject { head, oid, exists, size, off, lost_bytes, version, user_version, mtime }, head, change);
    }

    #[test]
    fn activate(
        head in head(), versions in (eversion(), eversion(), eversion()), started: u32, log in vec(entry(), 0..4),
        acting in vec(any::<u32>(), 0..4), change: Change,
    ) {
        let (keep_to, log_tail, last_update) = versions;
        let (acting, log) = (acting.into_iter().map(OsdId).collect(), in_pool(log, head));
        let last_epoch_started = Epoch(started);
        check(&PgActivate { head, keep_to, log_tail, last_update, last_epoch_started, acting, log }, head, change);
    }

    #[test]
    fn any_bytes(front: Vec<u8>) {
        let _ = RepOp::from_front(&RepOp::header(), &front);
        let _ = PgNotify::from_front(&PgNotify::header(), &front);
        let _ = PgQuery::from_front(&PgQuery::header(), &front);
        let _ = PushObject::from_front(&PushObject::header(), &front);
        let _ = PgRead::from_front(&PgRead::header(), &front);
        let _ = PgData::from_front(&PgData::header(), &front);
        let _ = PgActivate::from_front(&PgActivate::header(), &front);
        let _ = peek_pg(&front);
    }
}

/// A count alone must not cost memory, and kinds are checked.
#[test]
fn lies_are_refused() {
    let head = Head::default();
    let mut front = PgQuery { head, last_update: Eversion::ZERO, acting: vec![] }.to_front();
    let at = front.len() - 4;
    front[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(PgQuery::from_front(&PgQuery::header(), &front).is_err());
    assert!(PgQuery::from_front(&RepAck::header(), &front).is_err());
    assert_eq!(peek_pg(&[0; 27]), None);
}
