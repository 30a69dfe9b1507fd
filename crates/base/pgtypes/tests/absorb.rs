//! What a merged copy says of itself, and the answers in its log.

use std::sync::Arc;

use carmine_pgtypes::*;
use carmine_types::{Epoch, Eversion, LogOp, ObjectId, PgId, ReqId, SNAP_HEAD, SpgId, UTime};
use proptest::prelude::*;

const POOL: i64 = 2;
const MERGED: Epoch = Epoch(40);
/// PG 7 of 8 becomes a part of PG 3.
const SOURCE: u32 = 7;
const TARGET: u32 = 3;

fn pg(ps: u32) -> SpgId {
    PgId::new(POOL, ps).into()
}

fn entry(ps: u32, version: u64) -> LogEntry {
    let name = version.to_string().into_bytes().into();
    LogEntry {
        version: Eversion::new(9, version),
        prior: Eversion::new(1, 1),
        reqid: ReqId { client: ps.into(), inc: 0, tid: version },
        oid: Arc::new(ObjectId { snap: SNAP_HEAD, name, ..ObjectId::cursor(POOL, ps) }),
        op: LogOp::Modify,
        user_version: version,
        result: -5,
        mtime: UTime { sec: 5, nsec: 6 },
        clones: [1].into(),
        returned: Some(Arc::new(Returned([(1, [2].into())].into()))),
    }
}

/// A copy whose log has the entries after `tail` up to `last`.
fn copy(ps: u32, tail: u64, last: u64) -> PgState {
    let info = PgInfo {
        pg: pg(ps),
        pg_num: 8,
        last_update: Eversion::new(9, last),
        log_tail: Eversion::new(9, tail),
        last_epoch_started: Epoch(30 + ps),
        made: Epoch(ps),
        ..PgInfo::default()
    };
    PgState { info, log: (tail + 1..=last).map(|version| entry(ps, version)).collect() }
}

fn versions(source: u64, target: u64) -> Option<(Eversion, Eversion)> {
    Some((Eversion::new(9, source), Eversion::new(9, target)))
}

fn merge(versions: Option<(Eversion, Eversion)>) -> Merge {
    Merge { pg_num: 7, epoch: MERGED, versions }
}

proptest! {
    #[test]
    fn a_complete_copy_has_the_answers_of_both_wherever_its_logs_begin(
        (source, target) in (0..30u64, 0..30u64),
        tails in prop::array::uniform4(0..30u64),
    ) {
        let merged = [0, 2].map(|at| {
            let [of_source, of_target] = [tails[at].min(source), tails[at + 1].min(target)];
            let parts = (copy(SOURCE, of_source, source), copy(TARGET, of_target, target));
            PgState::absorb(Some(parts.1), pg(TARGET), &[parts.0], &merge(versions(source, target)))
        });
        for (at, state) in [0, 2].into_iter().zip(&merged) {
            let info = &state.info;
            prop_assert!(!info.incomplete && info.bits() == Some(2) && info.split == MERGED);
            prop_assert_eq!(info.last_epoch_started, Epoch(30 + TARGET));
            let mut last = info.log_tail;
            for entry in &state.log {
                prop_assert_eq!(entry.version, Eversion { version: last.version + 1, ..last });
                prop_assert!(entry.op == LogOp::Error && pg_contains(pg(TARGET), 2, &entry.oid));
                last = entry.version;
            }
            prop_assert_eq!(last, info.last_update);
            prop_assert!(info.log_tail.version >= source.max(target), "entries are newer than the objects");
            for (ps, tail, newest) in [(SOURCE, tails[at], source), (TARGET, tails[at + 1], target)] {
                for version in tail.min(newest) + 1..=newest {
                    let old = entry(ps, version);
                    let found = state.log.iter().filter(|entry| entry.reqid == old.reqid).collect::<Vec<_>>();
                    let answer = LogEntry {
                        op: LogOp::Error,
                        version: found[0].version,
                        prior: old.version,
                        clones: Box::default(),
                        ..old
                    };
                    prop_assert_eq!(found, [&answer]);
                    prop_assert_eq!(answer.given_version(), Eversion::new(9, version));
                }
            }
        }
        let common = merged[0].log.len().min(merged[1].log.len());
        let newest = merged.each_ref().map(|state| state.log.iter().rev().take(common).collect::<Vec<_>>());
        prop_assert_eq!(merged[0].info.last_update, merged[1].info.last_update);
        for (one, other) in newest[0].iter().zip(&newest[1]) {
            prop_assert!(one.version == other.version);
            prop_assert!(one.reqid == other.reqid || one.is_stub() || other.is_stub());
        }
    }
}

#[test]
fn a_copy_that_lacks_a_part_or_a_change_is_copied_anew() {
    let (source, target) = (copy(SOURCE, 0, 5), copy(TARGET, 2, 9));
    let is_incomplete = |target: Option<&PgState>, sources: &[&PgState], versions| {
        let sources: Vec<PgState> = sources.iter().map(|source| (*source).clone()).collect();
        let PgState { info, log } = PgState::absorb(target.cloned(), pg(TARGET), &sources, &merge(versions));
        assert_eq!((info.complete_to, info.last_backfill), (Eversion::ZERO, None));
        assert!(info.pg_num == 7 && info.pg == pg(TARGET) && info.log_tail <= info.last_update);
        assert!(!info.incomplete || log.is_empty());
        info.incomplete
    };
    let known = versions(5, 9);
    assert!(!is_incomplete(Some(&target), &[&source], known));
    assert!(is_incomplete(Some(&target), &[], known), "the source is not here");
    assert!(is_incomplete(None, &[&source], known), "the target is not here");
    assert!(is_incomplete(Some(&target), &[&source], versions(6, 9)), "the source lacks a change");
    assert!(is_incomplete(Some(&target), &[&source], versions(5, 8)), "the target has one that was undone");
    assert!(is_incomplete(Some(&target), &[&source], None), "maps are missing");
    let marked =
        |part: &PgState| PgState { info: PgInfo { incomplete: true, ..part.info.clone() }, ..part.clone() };
    assert!(is_incomplete(Some(&marked(&target)), &[&source], known));
    assert!(is_incomplete(Some(&target), &[&marked(&source)], known));
}

#[test]
fn several_merges_at_once_leave_an_incomplete_copy() {
    let sources = [5, 3].map(|ps| copy(ps, 0, 4));
    let merge = Merge { pg_num: 2, ..merge(versions(4, 4)) };
    let merged = PgState::absorb(Some(copy(1, 0, 4)), pg(1), &sources, &merge);
    assert!(merged.info.incomplete && merged.info.bits() == Some(1));
}

#[test]
fn what_a_split_left_in_a_log_is_no_answer() {
    let mut target = copy(TARGET, 0, 3);
    target.log[1] = LogEntry { version: Eversion::new(9, 2), ..entry(SOURCE, 1) };
    let merged = PgState::absorb(Some(target), pg(TARGET), &[copy(SOURCE, 0, 1)], &merge(versions(1, 3)));
    let of_source = merged.log.iter().filter(|entry| entry.reqid.client == u64::from(SOURCE));
    assert_eq!(of_source.count(), 1, "only the source's own log has its request");
}

#[test]
fn an_answer_names_the_version_that_was_given_first_however_often_its_pg_is_merged() {
    let known = versions(2, 3);
    let mut source =
        PgState::absorb(Some(copy(TARGET, 0, 3)), pg(TARGET), &[copy(SOURCE, 0, 2)], &merge(known));
    source.info.pg_num = 4;
    let mut target = copy(1, 0, 4);
    target.info.pg_num = 4;
    let versions = Some((source.info.last_update, target.info.last_update));
    let again = Merge { pg_num: 3, epoch: Epoch(50), versions };
    let merged = PgState::absorb(Some(target), pg(1), &[source], &again);
    let mut given: Vec<_> = merged
        .log
        .iter()
        .filter(|entry| !entry.is_stub())
        .map(|entry| (entry.reqid.client, entry.given_version()))
        .collect();
    given.sort_unstable();
    let all = [(1, 4), (TARGET.into(), 3), (SOURCE.into(), 2)];
    let expected =
        all.map(|(client, last)| (1..=last).map(move |version| (client, Eversion::new(9, version))));
    assert_eq!(given, expected.into_iter().flatten().collect::<Vec<_>>());
}
