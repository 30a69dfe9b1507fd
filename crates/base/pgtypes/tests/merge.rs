//! Which transactions may merge PGs: the target gets exactly the objects of the sources, and the transaction removes the rest of them.

use std::sync::Arc;

use carmine_pgtypes::{
    LogEntry, ObjectChange, PgInfo, Step, Transaction, merged_away, pg_bits, pg_children, pg_contains,
    pg_first_object,
};
use carmine_types::{Eversion, LogOp, ObjectId, PgId, ReqId, SpgId, UTime};

fn pg(ps: u32) -> SpgId {
    PgId::new(1, ps).into()
}

/// The merge of PGs 5, 9 and 13 of 16 into PG 1, in a pool that shrinks to 4, with an entry and a change of an object that was 13's.
fn merge() -> Transaction {
    let merge: Vec<SpgId> = pg_children(1, 4, 16).map(pg).collect();
    let oid = Arc::new(ObjectId { name: (*b"name").into(), ..ObjectId::cursor(1, 0x5d) });
    let mut changes = merged_away(&merge);
    changes.push(ObjectChange::new(Arc::clone(&oid), [Step::Touch]));
    let entry = LogEntry {
        version: Eversion::new(9, 40),
        prior: Eversion::ZERO,
        reqid: ReqId::default(),
        oid,
        op: LogOp::Modify,
        user_version: 1,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    };
    let info = PgInfo { pg: pg(1), pg_num: 4, log_tail: Eversion::new(9, 39), ..PgInfo::default() };
    Transaction {
        changes,
        info: Some(info.into()),
        log: [entry].into_iter().collect(),
        log_rewind_to: Some(Eversion::ZERO),
        merge,
        ..Transaction::new(pg(1), pg_bits(1, 4))
    }
}

fn panics(change: impl FnOnce(&mut Transaction)) -> bool {
    let mut txn = merge();
    change(&mut txn);
    std::panic::catch_unwind(|| txn.assert_within_pg()).is_err()
}

#[test]
fn a_merge_gives_all_objects_of_its_sources_to_its_pg() {
    let txn = merge();
    txn.assert_within_pg();
    assert_eq!(txn.merge, [pg(5), pg(9), pg(13)]);
    let of_source = |hash: &u32| txn.merge.iter().any(|source| hash & 15 == source.pgid.ps);
    let mut hashes = (0..4096).filter(of_source);
    assert!(hashes.all(|hash| pg_contains(txn.pg, txn.bits, &ObjectId::cursor(1, hash))));
}

#[test]
fn only_pgs_that_cease_to_exist_are_merged_and_only_into_what_becomes_of_them() {
    assert!(!panics(|_| {}));
    let strangers = [pg(1), pg(2), pg(6), pg(3), SpgId { shard: 1, ..pg(5) }, PgId::new(2, 5).into()];
    for stranger in strangers {
        let with = |txn: &mut Transaction| {
            txn.merge.push(stranger);
            txn.changes = merged_away(&txn.merge);
        };
        assert!(panics(with), "{stranger}");
    }
    assert!(panics(|txn| txn.merge.push(pg(5))), "one source twice");
    // PG 5 of 8 still exists.
    assert!(panics(|txn| {
        txn.info.as_mut().unwrap().pg_num = 8;
        txn.bits = pg_bits(1, 8);
    }));
    // The transaction changes an object of another PG.
    let other = ObjectChange::new(ObjectId::cursor(1, 2), [Step::Touch]);
    assert!(panics(|txn| txn.changes.push(other)));
}

#[test]
fn nothing_is_left_of_what_is_merged() {
    for source in [5, 9, 13] {
        let first = pg_first_object(pg(source));
        assert!(panics(|txn| txn.changes.retain(|change| *change.oid != first)), "{source}");
        let again = ObjectChange::new(first, [Step::Touch]);
        assert!(panics(|txn| txn.changes.push(again)), "{source} comes back");
    }
    assert!(panics(|txn| txn.info = None), "the target stays as small as it was");
    assert!(panics(|txn| txn.info.as_mut().unwrap().pg = pg(2)));
    assert!(panics(|txn| txn.info.as_mut().unwrap().pg_num = 0));
    assert!(panics(|txn| txn.bits = pg_bits(1, 16)), "its bits are the old ones");
    assert!(panics(|txn| txn.forget_pg = true));
    let child = PgInfo { pg: pg(5), pg_num: 4, ..PgInfo::default() };
    assert!(panics(|txn| txn.split.push(child)));
}
