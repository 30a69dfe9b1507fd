//! A PG and its children after a split: which objects each has, and what its info and its log say.

use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_codec::{Decoder, Encoder};
use carmine_pgtypes::*;
use carmine_types::{
    Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, SNAP_HEAD, ScrubStamp, SpgId, UTime,
};
use proptest::prelude::*;

const POOL: i64 = 2;
const SPLIT: Epoch = Epoch(31);

fn pg(ps: u32) -> SpgId {
    PgId::new(POOL, ps).into()
}

/// The seeds of the PGs that have the objects of this one afterwards: itself and its children.
fn parts(ps: u32, old: u32, new: u32) -> Vec<u32> {
    [ps].into_iter().chain(pg_children(ps, old, new)).collect()
}

fn contains(ps: u32, pg_num: u32, oid: &ObjectId) -> bool {
    pg_contains(pg(ps), pg_bits(ps, pg_num), oid)
}

/// A PG of a pool that grows, and the numbers of PGs before and after.
fn growth(most: u32) -> impl Strategy<Value = (u32, u32, u32)> {
    (2..=most)
        .prop_flat_map(|new| (1..new, Just(new)))
        .prop_flat_map(|(old, new)| (0..old, Just(old), Just(new)))
}

fn entry(version: u64, hash: u32) -> LogEntry {
    LogEntry {
        version: Eversion::new(1, version),
        prior: Eversion::new(1, 1),
        reqid: ReqId { client: 7, inc: 0, tid: version },
        oid: ObjectId { snap: SNAP_HEAD, name: (*b"object").into(), ..ObjectId::cursor(POOL, hash) }.into(),
        op: LogOp::Modify,
        user_version: 3,
        result: 4,
        mtime: UTime { sec: 5, nsec: 6 },
        clones: [1].into(),
        returned: Some(Arc::new(Returned([(1, [2].into())].into()))),
    }
}

fn stub_of(entry: LogEntry, ps: u32, pg_num: u32) -> LogEntry {
    entry.stub_unless_in(pg(ps), pg_bits(ps, pg_num), &Arc::new(pg_first_object(pg(ps))))
}

proptest! {
    #[test]
    fn children_are_the_new_seeds_that_fold_to_their_parent((ps, old, new) in growth(300)) {
        let folded = (old..new).filter(|child| PgId::of_hash(POOL, *child, old).ps == ps).collect::<Vec<_>>();
        prop_assert_eq!(pg_children(ps, old, new).collect::<Vec<_>>(), folded.clone());
        prop_assert!(folded.iter().all(|child| pg_parent(*child, old) == ps));
        prop_assert_eq!(pg_parent(ps, old), ps);
        prop_assert_eq!(pg_children(ps, new, old).count() + pg_children(ps, old, old).count(), 0);
    }

    #[test]
    fn the_parts_share_the_objects_of_the_whole((ps, old, new) in growth(64)) {
        let mut ranges = parts(ps, old, new).iter().map(|ps| pg_range(*ps, pg_bits(*ps, new))).collect::<Vec<_>>();
        ranges.sort_unstable();
        let (first, last) = pg_range(ps, pg_bits(ps, old));
        prop_assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (first, last));
        prop_assert!(ranges.windows(2).all(|two| two[0].1 + 1 == two[1].0), "{:?}", ranges);
        prop_assert_eq!(ranges[0].0, pg_first_object(pg(ps)).reversed_hash(), "the parent has the first part");
    }

    #[test]
    fn an_entry_stays_in_the_log_of_one_part_and_is_a_stub_in_the_others((ps, old, new) in growth(64), hash in any::<u32>()) {
        let hash = hash << pg_bits(ps, old) | ps;
        let whole = entry(9, hash);
        let owner = PgId::of_hash(POOL, hash, new).ps;
        let mut kept = 0;
        for part in parts(ps, old, new) {
            let entry = stub_of(whole.clone(), part, new);
            prop_assert_eq!((entry.version, entry.reqid), (whole.version, whole.reqid));
            prop_assert!(contains(part, new, &entry.oid), "a log names objects of its PG");
            prop_assert_eq!(entry.is_stub(), part != owner);
            if part == owner {
                prop_assert_eq!(&entry, &whole);
                kept += 1;
            } else {
                let nothing = (LogOp::Error, Eversion::ZERO, 0, 0, UTime::ZERO, true, None);
                let LogEntry { op, prior, user_version, result, mtime, clones, returned, .. } = entry.clone();
                prop_assert_eq!((op, prior, user_version, result, mtime, clones.is_empty(), returned), nothing);
            }
            prop_assert_eq!(stub_of(entry.clone(), part, new), entry, "again makes no difference");
        }
        prop_assert_eq!(kept, 1);
    }

    /// What a backfill's position says of each object is the same before and after, of each part.
    #[test]
    fn a_backfill_has_passed_the_same_objects((ps, old, new) in growth(64), at in any::<u32>(), hash in any::<u32>()) {
        let in_whole = |hash: u32| hash << pg_bits(ps, old) | ps;
        let at = if at % 5 == 0 { pg_first_object(pg(ps)) } else { ObjectId::clone(&entry(1, in_whole(at)).oid) };
        let whole = PgInfo { incomplete: true, complete_to: Eversion::new(1, 1), last_backfill: Some(at.clone()), ..info(ps, old) };
        for part in parts(ps, old, new) {
            let divided = whole.divide(pg(part), new, SPLIT);
            prop_assert!(divided.last_backfill.iter().all(|at| contains(part, new, at)));
            let bits = pg_bits(part, new);
            let inside = ObjectId::clone(&entry(1, if bits == 32 { part } else { hash << bits | part }).oid);
            for oid in [inside, pg_first_object(pg(part)), at.clone()] {
                if contains(part, new, &oid) {
                    prop_assert_eq!(divided.last_backfill.as_ref().is_none_or(|at| oid < *at), oid < at);
                }
            }
        }
        let done = PgInfo { last_backfill: None, ..whole };
        prop_assert!(parts(ps, old, new).iter().all(|part| done.divide(pg(*part), new, SPLIT).last_backfill.is_none()));
    }

    #[test]
    fn each_unfound_object_is_one_parts((ps, old, new) in growth(64), hashes in proptest::collection::vec(any::<u32>(), 0..20)) {
        let unfound = hashes.iter().map(|hash| ObjectId::clone(&entry(1, hash << pg_bits(ps, old) | ps).oid));
        let whole = PgInfo { unfound: unfound.collect(), ..info(ps, old) };
        let mut all = Vec::new();
        for part in parts(ps, old, new) {
            let divided = whole.divide(pg(part), new, SPLIT);
            prop_assert!(divided.unfound.iter().all(|oid| contains(part, new, oid)));
            all.extend(divided.unfound);
        }
        let mut expected = whole.unfound;
        all.sort();
        expected.sort();
        prop_assert_eq!(all, expected);
    }
}

/// An info that has something in every field, of a PG that was created with its pool at epoch 18.
fn info(ps: u32, pg_num: u32) -> PgInfo {
    let stamp = |version| ScrubStamp { version: Eversion::new(20, version), time: UTime { sec: 1, nsec: 2 } };
    PgInfo {
        pg: pg(ps),
        pg_num,
        last_update: Eversion::new(21, 35),
        log_tail: Eversion::new(20, 3),
        last_epoch_started: Epoch(19),
        made: Epoch(18),
        history: PgHistory {
            epoch: Epoch(30),
            same_interval_since: Epoch(19),
            last_epoch_clean: Epoch(18),
            past: vec![Interval {
                first: Epoch(18),
                last: Epoch(18),
                acting: OsdSet::new(&[2, 0], Some(OsdId(2))),
            }],
        },
        acting: OsdSet::new(&[1, 0], Some(OsdId(1))),
        promised: Promised { holder: OsdId(1), interval: Epoch(19), length_ms: 16_000 },
        scrubs: Scrubbed {
            count: 2,
            last: stamp(30),
            last_deep: stamp(10),
            errors: 1,
            deep_errors: 1,
            omaps: Omaps { objects: 3, large: 0, size: OmapSize { keys: 4, bytes: 5 } },
        },
        clean_before: UTime { sec: 1, nsec: 1 },
        created: Epoch(18),
        ..PgInfo::default()
    }
}

/// Forgetting an interval, or a promise, would lose writes.
#[test]
fn a_child_is_a_witness_of_what_its_parent_was() {
    let whole = PgInfo { complete_to: Eversion::new(20, 8), incomplete: true, ..info(2, 8) };
    let omaps_unknown = Scrubbed { omaps: Omaps::default(), ..whole.scrubs };
    let parent = PgInfo { pg_num: 16, split: SPLIT, scrubs: omaps_unknown, ..whole.clone() };
    assert_eq!(whole.divide(pg(2), 16, SPLIT), parent);
    assert_eq!(whole.divide(pg(10), 16, SPLIT), PgInfo { pg: pg(10), created: SPLIT, ..parent });
}

#[test]
#[should_panic(expected = "is no part of PG")]
fn only_a_parts_info_can_be_made() {
    let _ = info(2, 8).divide(pg(11), 16, SPLIT);
}

/// Infos of before there were splits are read as they were, and written as they were.
#[test]
fn an_info_of_a_pg_that_was_never_split_is_no_longer_than_before() {
    let bytes = |info: &PgInfo| Encoder::collect(|e| e.put(info));
    let old = PgInfo { created: Epoch(0), ..info(2, 8) };
    let new = PgInfo { created: Epoch(18), split: Epoch(31), ..old.clone() };
    assert_eq!(bytes(&new).len(), bytes(&old).len() + 4 + 4);
    for info in [old, new] {
        assert_eq!(Decoder::all(&bytes(&info), "info", |d| d.get::<PgInfo>()), Ok(info));
    }
}

/// The split of PG 1 of 4 into 16, with a change of an object of the parent and of each child.
fn split() -> Transaction {
    let mut txn = Transaction::new(pg(1), pg_bits(1, 16));
    txn.info = Some(info(1, 4).divide(pg(1), 16, SPLIT).into());
    txn.split = pg_children(1, 4, 16).map(|child| info(1, 4).divide(pg(child), 16, SPLIT)).collect();
    let first = |ps| Arc::new(pg_first_object(pg(ps)));
    let clone = |child| ObjectChange::new(first(child), [Step::CloneFrom { from: first(1) }]);
    txn.changes = pg_children(1, 4, 16).map(clone).collect();
    txn.changes.push(ObjectChange::new(first(1), [Step::Touch]));
    txn
}

#[test]
fn a_split_changes_the_objects_of_its_parts_only() {
    split().assert_within_pg();
    let panics = |change: &dyn Fn(&mut Transaction)| {
        let mut txn = split();
        change(&mut txn);
        std::panic::catch_unwind(|| txn.assert_within_pg()).is_err()
    };
    assert!(!panics(&|_| {}));
    let touch = |ps| ObjectChange::new(pg_first_object(pg(ps)), [Step::Touch]);
    assert!(panics(&|txn| txn.changes.push(touch(2))), "another PG's object");
    assert!(panics(&|txn| drop(txn.split.pop())), "an object of a child that is not made");
    let from_child = Step::CloneFrom { from: pg_first_object(pg(5)).into() };
    assert!(panics(&|txn| txn.changes.push(ObjectChange::new(pg_first_object(pg(9)), [from_child.clone()]))));
}

#[test]
fn a_split_makes_children_of_its_pg_and_changes_nothing_else_of_it() {
    let panics = |change: &dyn Fn(&mut Transaction)| {
        let mut txn = split();
        change(&mut txn);
        std::panic::catch_unwind(|| txn.assert_within_pg()).is_err()
    };
    assert!(panics(&|txn| txn.info = None), "the parent stays as large as it was");
    assert!(panics(&|txn| txn.bits = pg_bits(1, 4)), "its bits are the old ones");
    assert!(panics(&|txn| txn.forget_pg = true));
    assert!(panics(&|txn| txn.log.push(entry(36, 1))));
    assert!(panics(&|txn| txn.log_trim_to = Some(Eversion::new(1, 1))));
    assert!(panics(&|txn| txn.log_rewind_to = Some(Eversion::new(1, 1))));
    for stranger in [pg(2), pg(1), pg(17), SpgId { shard: 1, ..pg(5) }, PgId::new(POOL + 1, 5).into()] {
        assert!(panics(&|txn| txn.split[0].pg = stranger), "{stranger}");
    }
    assert!(panics(&|txn| txn.split[0].pg_num = 8), "a child of another split");
    assert!(panics(&|txn| txn.split.push(txn.split[0].clone())), "one child twice");
}

/// The objects of Ceph's PGs before and after a split, in Ceph's order.
#[test]
fn objects_go_where_ceph_put_them() {
    let mut before: BTreeMap<u32, Vec<ObjectId>> = BTreeMap::new();
    let mut after = before.clone();
    for line in include_str!("data/split-8-to-16.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| u32::from_str_radix(word, 16).expect("a hexadecimal number");
        let seed = |word: &str| number(word.strip_prefix("2.").expect("pool 2"));
        let (old, new, hash) = (seed(words[0]), seed(words[1]), number(words[2]));
        let snap = if words[3] == "head" { SNAP_HEAD } else { number(words[3]).into() };
        let nspace = words.get(5).unwrap_or(&"");
        let oid = ObjectId { snap, ..ObjectId::head(POOL, nspace.as_bytes(), b"", words[4].as_bytes()) };
        assert_eq!(oid.hash, hash, "{oid}");
        assert!(pg_parent(new, 8) == old && parts(old, 8, 16).contains(&new), "{old:x} {new:x}");
        for part in parts(old, 8, 16) {
            assert_eq!(contains(part, 16, &oid), part == new, "{oid} in {part:x}");
        }
        before.entry(old).or_default().push(oid.clone());
        after.entry(new).or_default().push(oid);
    }
    assert_eq!((before.len(), after.len()), (8, 16));
    for (ps, listed) in before {
        assert!(listed.is_sorted(), "{ps:x}: our order is Ceph's");
        let in_parts: Vec<ObjectId> = parts(ps, 8, 16).iter().flat_map(|part| after[part].clone()).collect();
        assert_eq!(in_parts, listed, "{ps:x}: the parent's objects, then the child's");
    }
}
