use std::collections::BTreeMap;

use carmine_pgtypes::Returned;
use carmine_types::{Epoch, LogOp, ObjectId, PgId, UTime};
use proptest::prelude::*;

use super::*;

/// A change of a log: a client's write, or a repair's entry, of an object; the oldest or the newest entries go.
#[derive(Clone, Debug)]
enum Act {
    Push { client: u64, object: u8, outputs: usize },
    Trim(u64),
    Rewind(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..12u64, 0..4u8, 0..3usize).prop_map(|(client, object, outputs)| Act::Push { client, object, outputs }),
        1 => (0..6u64).prop_map(Act::Trim),
        1 => (0..4u64).prop_map(Act::Rewind),
    ];
    proptest::collection::vec(act, 0..200)
}

fn entry(number: u64, client: u64, object: u8, prior: Eversion) -> LogEntry {
    LogEntry {
        version: Eversion::new(1, number),
        prior,
        // Client 0 stands for none; the others send again what they sent before.
        reqid: ReqId { client, inc: 0, tid: client },
        oid: ObjectId::head(1, b"", b"", &[object]).into(),
        op: LogOp::Modify,
        user_version: number,
        result: 0,
        mtime: UTime::default(),
        clones: Box::default(),
        returned: None,
    }
}

fn with_outputs(entry: LogEntry, outputs: usize, bytes: usize) -> LogEntry {
    let returned = Returned(vec![(1, vec![7; bytes].into()); outputs].into());
    LogEntry { returned: (outputs > 0).then(|| returned.into()), ..entry }
}

/// The log counts the memory of outputs, and it is what its entries hold.
fn output_bytes(log: &PgLog) -> usize {
    let held = || log.after(Eversion::ZERO).filter_map(|entry| entry.returned.as_ref());
    assert_eq!(log.outputs.numbers.len(), held().count());
    let bytes = held().map(|returned| returned.memory_bytes()).sum();
    assert_eq!(log.outputs.bytes, bytes);
    bytes
}

proptest! {
    #[test]
    fn a_request_is_found_as_long_as_its_entry_is_there(start in prop_oneof![Just(0), Just(u32::MAX - 20)], acts in acts()) {
        let mut log = PgLog::new(SpgId::default());
        log.first = start;
        let mut model: VecDeque<LogEntry> = VecDeque::new();
        let mut newest: BTreeMap<ReqId, Eversion> = BTreeMap::new();
        for act in acts {
            let last = log.info().last_update.version;
            match act {
                Act::Push { client, object, outputs } => {
                    let prior = model.iter().rev().find(|e| *e.oid.name == [object]);
                    let entry = entry(last + 1, client, object, prior.map_or(Eversion::default(), |e| e.version));
                    let entry = with_outputs(entry, outputs, 9);
                    newest.insert(entry.reqid, entry.version);
                    model.push_back(entry.clone());
                    log.push(entry);
                }
                Act::Trim(count) => {
                    let to = Eversion::new(1, log.info().log_tail.version + count.min(model.len() as u64));
                    log.trim(to);
                    model.retain(|e| e.version > to);
                }
                Act::Rewind(count) => {
                    let to = Eversion::new(1, last - count.min(model.len() as u64));
                    log.rewind(to);
                    model.retain(|e| e.version <= to);
                }
            }
            prop_assert!(log.after(Eversion::default()).eq(model.iter()));
            output_bytes(&log);
            for (reqid, version) in &newest {
                // An older entry of the same request may be forgotten with a newer one.
                let there = *reqid != ReqId::default() && model.iter().any(|e| e.version == *version && e.reqid == *reqid);
                prop_assert_eq!(log.find(reqid).map(|d| d.version), there.then_some(*version));
            }
        }
    }
}

const LIMITS: LogLimits = LogLimits::new(8, 4);

/// A log with entries 1.. of other objects and clients.
fn log(entries: u64) -> PgLog {
    let mut log = PgLog::new(SpgId::default());
    (1..=entries).for_each(|n| log.push(entry(n, n, n as u8, Eversion::default())));
    log
}

#[test]
fn the_log_is_trimmed_in_batches_and_keeps_what_is_not_committed() {
    let point = |entries, committed| log(entries).trim_point(LIMITS, committed).map(|to| to.version);
    assert_eq!([point(7, 7), point(11, 11), point(12, 12), point(20, 20)], [None, None, Some(4), Some(12)]);
    assert_eq!([point(12, 4), point(12, 3), point(12, 0)], [Some(4), None, None]);
    assert_eq!([point(30, 7), point(30, 3)], [Some(7), None], "no one by one");
    let mut short = log(12);
    short.trim(Eversion::new(1, 4));
    assert_eq!(short.trim_point(LIMITS, 12), None);
    assert_eq!(short.info().log_tail.version, 4);
    let versions = [4, 5, 12].map(|number| short.version_of(number));
    assert_eq!(versions, [4, 5, 12].map(|number| Eversion::new(1, number)), "and its tail");
}

#[test]
fn a_log_is_a_run_of_versions() {
    let entries = |versions: &[(u32, u64)]| -> Vec<LogEntry> {
        let of = |(epoch, number): &(u32, u64)| LogEntry {
            version: Eversion::new(*epoch, *number),
            ..entry(*number, *number, 1, Eversion::default())
        };
        versions.iter().map(of).collect()
    };
    let tail = Eversion::new(1, 4);
    let is_log = |versions: &[(u32, u64)], end| is_run(tail, &entries(versions), end);
    assert!(is_log(&[], tail) && is_log(&[(1, 5), (3, 6)], Eversion::new(3, 6)));
    for wrong in
        [&[(1, 6)][..], &[(1, 4)], &[(0, 5)], &[(1, 5), (1, 7)], &[(2, 5), (1, 6)], &[(1, 5), (1, 5)]]
    {
        let end = wrong.last().map_or(tail, |(epoch, number)| Eversion::new(*epoch, *number));
        assert!(!is_log(wrong, end), "{wrong:?}");
    }
    assert!(!is_log(&[(1, 5)], Eversion::new(1, 6)), "it ends elsewhere");
    let info = PgInfo { log_tail: tail, last_update: Eversion::new(1, 6), ..PgInfo::default() };
    let mut log = PgLog::new(SpgId::default());
    assert!(!log.load(PgState { info: info.clone(), log: entries(&[(1, 6)]) }));
    assert!(log.load(PgState { info, log: entries(&[(1, 5), (1, 6)]) }));
}

#[test]
fn another_log_is_taken_over() {
    let newer = |from: u64, to: u64| -> Vec<LogEntry> {
        let of = |n| LogEntry { version: Eversion::new(2, n), ..entry(n, 100 + n, 1, Eversion::default()) };
        (from..=to).map(of).collect()
    };
    let info = |tail: Eversion, last| PgInfo {
        log_tail: tail,
        last_update: Eversion::new(2, last),
        ..PgInfo::default()
    };
    let mut ours = log(10);
    assert_eq!(ours.end_of(Eversion::new(1, 6)).version, 6);
    ours.replace(Eversion::new(1, 6), newer(7, 9), info(Eversion::new(1, 4), 9));
    let numbers = |log: &PgLog| log.after(Eversion::ZERO).map(|e| e.version.version).collect::<Vec<_>>();
    assert_eq!(numbers(&ours), [5, 6, 7, 8, 9], "the tail is the other log's");
    assert!(ours.find(&ReqId { client: 8, inc: 0, tid: 8 }).is_none(), "its entry was undone");
    ours.replace(Eversion::ZERO, newer(31, 33), info(Eversion::new(1, 30), 33));
    assert_eq!((numbers(&ours), ours.info().log_tail), (vec![31, 32, 33], Eversion::new(1, 30)));
    ours.replace(
        Eversion::ZERO,
        Vec::new(),
        PgInfo { last_update: Eversion::new(2, 50), ..info(Eversion::new(2, 50), 50) },
    );
    assert_eq!((numbers(&ours), ours.end_of(Eversion::ZERO)), (vec![], Eversion::new(2, 50)));
}

/// The only PG of a pool, with these entries: the client and the object of each, and whether it has outputs.
fn undivided(writes: &[(u64, u8, bool)]) -> PgLog {
    let mut log = PgLog::new(PgId::new(1, 0).into());
    log.change_info(|info| info.pg_num = 1);
    for (version, (client, object, outputs)) in (1..).zip(writes) {
        let prior = log.after(Eversion::ZERO).filter(|e| *e.oid.name == [*object]).last().map(|e| e.version);
        let entry = entry(version, *client, *object, prior.unwrap_or_default());
        log.push(with_outputs(entry, usize::from(*outputs), 9));
    }
    log
}

/// The logs of its parts after a split into this number of PGs.
fn parts(log: &PgLog, pg_num: u32) -> Vec<PgLog> {
    let info = |ps| log.info().divide(PgId::new(1, ps).into(), pg_num, Epoch(7));
    (0..pg_num).map(|ps| log.divide(info(ps))).collect()
}

/// What a store would give of this log.
fn stored(log: &PgLog) -> PgState {
    PgState { info: log.info().clone(), log: log.after(Eversion::ZERO).cloned().collect() }
}

fn loaded(state: PgState) -> PgLog {
    let mut log = PgLog::default();
    assert!(log.load(state));
    log
}

fn entries(log: &PgLog) -> Vec<LogEntry> {
    log.after(Eversion::ZERO).cloned().collect()
}

proptest! {
    #[test]
    fn each_request_is_found_in_the_part_that_has_its_object(
        writes in proptest::collection::vec((0..20u64, 0..9u8, any::<bool>()), 0..60), trim in 0..20u64, pg_num in 2..9u32,
    ) {
        let mut whole = undivided(&writes);
        whole.trim(Eversion::new(1, trim.min(writes.len() as u64)));
        let parts = parts(&whole, pg_num);
        for entry in entries(&whole) {
            let owner = PgId::of_hash(1, entry.oid.hash, pg_num).ps;
            for (ps, part) in (0..).zip(&parts) {
                let (stored, found) = (part.find_version(entry.version).unwrap(), part.find(&entry.reqid));
                prop_assert_eq!(stored.is_stub(), ps != owner);
                prop_assert!(ps != owner || *stored == entry);
                // A request's newest entry may be one of another object here, as clients are few.
                let is_own = |e: &&LogEntry| PgId::of_hash(1, e.oid.hash, pg_num).ps == ps && e.reqid == entry.reqid;
                let newest = entries(&whole).iter().rfind(is_own).cloned();
                let newest = newest.filter(|_| entry.reqid != ReqId::default());
                prop_assert_eq!(found, newest.as_ref());
            }
        }
        for part in &parts {
            output_bytes(part);
            prop_assert_eq!((part.len(), part.info().log_tail), (whole.len(), whole.info().log_tail));
            prop_assert_eq!(part.version_of(part.info().last_update.version), whole.info().last_update);
            let names = entries(part).into_iter().filter(LogEntry::is_stub).map(|e| Arc::as_ptr(&e.oid));
            prop_assert!(names.collect::<std::collections::BTreeSet<_>>().len() <= 1, "the name of stubs is held twice");
            // A copy that was split later has the same history.
            prop_assert_eq!(part.common_with(whole.info().log_tail, &entries(&whole)), Some(whole.info().last_update));
            prop_assert_eq!(&entries(&loaded(stored(part))), &entries(part));
        }
        // The store's log of the parent is not written anew: it gets its stubs when it is loaded.
        let state = PgState { info: parts[0].info().clone(), log: entries(&whole) };
        prop_assert_eq!(&entries(&loaded(state)), &entries(&parts[0]));
    }

    #[test]
    fn parts_that_are_split_again_are_those_of_one_split(writes in proptest::collection::vec((0..20u64, 0..9u8, any::<bool>()), 0..40)) {
        let whole = undivided(&writes);
        let (halves, quarters) = (parts(&whole, 2), parts(&whole, 4));
        for ps in 0..4 {
            let half = &halves[ps % 2];
            let quarter = half.divide(half.info().divide(PgId::new(1, ps as u32).into(), 4, Epoch(8)));
            prop_assert_eq!(entries(&quarter), entries(&quarters[ps]));
        }
    }
}

/// A part's log takes new entries, and entries of another copy, as any log does.
#[test]
fn a_part_is_trimmed_rewound_and_replaced_like_any_log() {
    let writes: Vec<_> = (1..=20).map(|n| (n, n as u8, true)).collect();
    let parts = parts(&undivided(&writes), 2);
    let (mut ours, theirs) = (loaded(stored(&parts[1])), &parts[1]);
    ours.rewind(Eversion::new(1, 10));
    ours.trim(Eversion::new(1, 5));
    assert_eq!((ours.len(), ours.info().last_update.version), (5, 10));
    output_bytes(&ours);
    let info = PgInfo { log_tail: Eversion::new(1, 5), ..theirs.info().clone() };
    ours.replace(Eversion::new(1, 10), theirs.after(Eversion::new(1, 10)).cloned().collect(), info);
    assert!(ours.after(Eversion::ZERO).eq(theirs.after(Eversion::new(1, 5))));
    let own = entries(&ours).into_iter().find(|e| !e.is_stub()).expect("an object of the child");
    ours.push(entry(21, 33, own.oid.name[0], own.version));
    assert_eq!(ours.find(&ReqId { client: 33, inc: 0, tid: 33 }).map(|e| e.version.version), Some(21));
    assert_eq!(ours.find(&own.reqid).map(|e| e.version), Some(own.version));
    ours.trim(Eversion::new(1, 21));
    assert!(output_bytes(&ours) == 0 && ours.by_reqid.is_empty());
}

#[test]
#[should_panic(expected = "versions rise by one")]
fn a_gap_in_the_log_is_a_fault() {
    log(3).push(entry(5, 5, 5, Eversion::default()));
}

#[test]
fn outputs_of_the_oldest_are_forgotten_where_they_take_too_much_memory() {
    let mut log = PgLog::new(SpgId::default());
    let most = LOG_RETURNED_BYTES_MAX / Returned(vec![(1, vec![7; 64].into()); 4].into()).memory_bytes();
    for n in 1..=most as u64 + 10 {
        log.push(with_outputs(entry(n, n, 0, Eversion::ZERO), 4, 64));
        assert!(output_bytes(&log) <= LOG_RETURNED_BYTES_MAX);
    }
    let has_outputs = |n: u64| {
        let done = log.find(&entry(n, n, 0, Eversion::ZERO).reqid).expect("the entry stays");
        done.returned.is_some()
    };
    assert!((1..=10).all(|n| !has_outputs(n)) && (11..=most as u64 + 10).all(has_outputs));
    log.trim(Eversion::new(1, 20));
    log.rewind(Eversion::new(1, 30));
    assert_eq!(log.outputs.numbers.len(), 10);
    log.rewind(Eversion::new(1, 20));
    assert_eq!(output_bytes(&log), 0);
}

#[test]
fn entries_of_an_object_share_its_name() {
    let mut log = PgLog::new(SpgId::default());
    log.push(entry(1, 1, 7, Eversion::default()));
    log.push(entry(2, 2, 7, Eversion::new(1, 1)));
    log.push(entry(3, 3, 8, Eversion::new(1, 1)));
    let names: Vec<_> = log.after(Eversion::default()).map(|e| Arc::clone(&e.oid)).collect();
    assert!(Arc::ptr_eq(&names[0], &names[1]), "the name is held twice");
    assert_eq!(*names[2].name, [8], "an entry has its own object's name, whatever it says came before");
}
