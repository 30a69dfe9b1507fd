//! Compares the logs of the parts of split PGs, which lookups make when they reach the key-value store, with those that their parents
//! had; and nothing is left of PGs that are merged.

use carmine_pgtypes::{LogEntry, PgInfo, Transaction, pg_bits, pg_children, pg_first_object, pg_parent};
use carmine_types::{Epoch, Eversion, ObjectId, PgId, SpgId};
use proptest::prelude::*;

use crate::blue::meta::codec::tests::entry;
use crate::blue::meta::index::sorted;
use crate::blue::meta::lookups::expand;
use crate::blue::meta::{codec, keys};
use crate::blue::objects::apply::{Trimmed, encode_pg};
use crate::kv::KvBatch;
use crate::{Kv, MemKv, StoreError};

#[derive(Clone, Debug)]
enum LogAct {
    /// An entry of one of the PGs there are, of an object with this hash.
    Push(usize, u32),
    /// Drops so many of its oldest entries.
    Trim(usize, u64),
    /// Drops so many of its newest ones.
    Rewind(usize, u64),
    /// Its part of the pool grows to twice, or four times, as many PGs.
    Split(usize, bool),
    /// The number of PGs in its part of the pool falls to a half or a quarter. The merged PG's new log has this many entries.
    Merge(usize, bool, u64),
    Next,
    Apply,
}

fn log_act() -> impl Strategy<Value = LogAct> {
    let pg = || any::<usize>();
    prop_oneof![
        8 => (pg(), any::<u32>()).prop_map(|(pg, hash)| LogAct::Push(pg, hash)),
        1 => (pg(), 1..4u64).prop_map(|(pg, count)| LogAct::Trim(pg, count)),
        1 => (pg(), 1..4u64).prop_map(|(pg, count)| LogAct::Rewind(pg, count)),
        2 => (pg(), any::<bool>()).prop_map(|(pg, by_four)| LogAct::Split(pg, by_four)),
        2 => (pg(), any::<bool>(), 0..3u64).prop_map(|(pg, by_four, count)| LogAct::Merge(pg, by_four, count)),
        1 => Just(LogAct::Next),
        1 => Just(LogAct::Apply),
    ]
}

fn id(ps: u32) -> SpgId {
    PgId::new(1, ps).into()
}

fn log_entry(version: u64, hash: u32) -> LogEntry {
    let oid = ObjectId { name: (*b"object").into(), ..ObjectId::cursor(1, hash) };
    LogEntry { oid: oid.into(), ..entry(Eversion::new(1, version)) }
}

/// A PG's log as it is loaded: all but what `T` says is trimmed.
fn stored_log(kv: &MemKv, pg: SpgId) -> Vec<LogEntry> {
    let key = keys::pg(keys::PG_TAIL, pg);
    let tail = kv.get(&key).unwrap().map(|value| codec::decode_tail(&key, &value).unwrap());
    let (start, end) = keys::log_range(pg);
    let mut log = Vec::new();
    kv.scan(&start, &end, &mut |key, value| {
        log.extend(codec::decode_log(key, value).unwrap());
        true
    })
    .unwrap();
    log.retain(|entry: &LogEntry| Some(entry.version) > tail);
    log
}

proptest! {
    #[test]
    fn a_child_has_the_log_that_its_parent_had_then(acts in prop::collection::vec(log_act(), 0..60)) {
        let (kv, mut batches, mut trimmed) = (MemKv::new(), vec![KvBatch::default()], Trimmed::default());
        let mut model = vec![(PgInfo { pg: id(0), pg_num: 1, ..PgInfo::default() }, Vec::<LogEntry>::new())];
        for act in acts.iter().chain([&LogAct::Apply]) {
            let batch = batches.last_mut().unwrap();
            let count = model.len();
            match act {
                LogAct::Push(at, hash) => {
                    let (info, log) = &mut model[at % count];
                    let version = info.last_update.version + 1;
                    let bits = info.bits().unwrap();
                    let entry = log_entry(version, hash.checked_shl(bits).unwrap_or(0) | info.pg.pgid.ps);
                    info.last_update = entry.version;
                    log.push(entry.clone());
                    let txn = Transaction { log: [entry].into_iter().collect(), ..Transaction::new(info.pg, bits) };
                    encode_pg(batch, &txn, &mut trimmed);
                }
                LogAct::Trim(at, count_of) => {
                    let (info, log) = &mut model[at % count];
                    let to = Eversion::new(1, info.log_tail.version + count_of.min(&(log.len() as u64)));
                    log.retain(|entry| entry.version > to);
                    info.log_tail = to;
                    let txn = Transaction { log_trim_to: Some(to), ..Transaction::new(info.pg, 0) };
                    encode_pg(batch, &txn, &mut trimmed);
                }
                LogAct::Rewind(at, count_of) => {
                    let (info, log) = &mut model[at % count];
                    let to = Eversion::new(1, info.last_update.version - count_of.min(&(log.len() as u64)));
                    log.retain(|entry| entry.version <= to);
                    info.last_update = to;
                    let info = Some(info.clone().into());
                    let txn = Transaction { log_rewind_to: Some(to), info, ..Transaction::new(model[at % count].0.pg, 0) };
                    encode_pg(batch, &txn, &mut trimmed);
                }
                LogAct::Split(at, by_four) => {
                    let (info, log) = model[at % count].clone();
                    let (old, ps) = (info.pg_num, info.pg.pgid.ps);
                    let new = old * if *by_four { 4 } else { 2 };
                    let divide = |ps| info.divide(id(ps), new, Epoch(new));
                    model[at % count].0 = divide(ps);
                    let mut txn = Transaction::new(info.pg, pg_bits(ps, new));
                    txn.info = Some(divide(ps).into());
                    txn.split = pg_children(ps, old, new).map(divide).collect();
                    encode_pg(batch, &txn, &mut trimmed);
                    for child in &txn.split {
                        let first = pg_first_object(child.pg).into();
                        let part = log.iter().map(|entry| entry.clone().stub_unless_in(child.pg, child.bits().unwrap(), &first));
                        model.push((child.clone(), part.collect()));
                    }
                }
                LogAct::Merge(at, by_four, count_of) => {
                    let info = model[at % count].0.clone();
                    let (pg_num, ps) = (info.pg_num / if *by_four { 4 } else { 2 }, info.pg.pgid.ps);
                    if ps < pg_num {
                        let becomes = |ps: u32| pg_parent(ps, pg_num);
                        let is_source = |other: u32| other != ps && becomes(other) == ps;
                        let of = |(info, _): &(PgInfo, Vec<LogEntry>)| info.pg.pgid.ps;
                        let sources = model.iter().map(of).filter(|ps| is_source(*ps)).map(id).collect();
                        let tail = model.iter().map(|(info, _)| info.last_update).max().unwrap();
                        let entries = (1..=*count_of).map(|n| log_entry(tail.version + n, ps));
                        let log: Vec<LogEntry> = entries.collect();
                        let last_update = log.last().map_or(tail, |entry| entry.version);
                        let info = PgInfo { pg_num, log_tail: tail, last_update, ..info };
                        model.retain(|other| !is_source(of(other)));
                        let target = model.iter_mut().find(|other| of(other) == ps).unwrap();
                        *target = (info.clone(), log.clone());
                        let txn = Transaction {
                            log: log.into(),
                            log_rewind_to: Some(Eversion::ZERO),
                            info: Some(info.into()),
                            merge: sources,
                            ..Transaction::new(id(ps), pg_bits(ps, pg_num))
                        };
                        encode_pg(batch, &txn, &mut trimmed);
                    }
                }
                LogAct::Next => batches.push(KvBatch::default()),
                LogAct::Apply => {
                    let batches = std::mem::replace(&mut batches, vec![KvBatch::default()]);
                    kv.commit(&[sorted(&expand(&kv, batches).unwrap())], true).unwrap();
                    for (info, log) in &model {
                        prop_assert_eq!(&stored_log(&kv, info.pg), log, "{}", info.pg);
                    }
                    let is_known = |key: &[u8]| model.iter().any(|(info, _)| Ok(info.pg) == keys::decode_pg(key).map_err(drop));
                    for kind in [keys::PG_INFO, keys::PG_TAIL, keys::PREFIX_PG_LOG] {
                        let (start, end) = keys::kind_range(kind);
                        kv.scan(&start, &end, &mut |key, _| {
                            assert!(is_known(key), "{key:?} outlived its PG");
                            true
                        }).unwrap();
                    }
                }
            }
            if model.len() > 40 {
                break;
            }
        }
    }
}

/// A batch that splits PG 0 of 1 in two.
fn split_of(info: &PgInfo) -> KvBatch {
    let divide = |ps| info.divide(id(ps), 2, Epoch(9));
    let txn =
        Transaction { info: Some(divide(0).into()), split: vec![divide(1)], ..Transaction::new(id(0), 1) };
    let mut batch = KvBatch::default();
    encode_pg(&mut batch, &txn, &mut Trimmed::default());
    batch
}

#[test]
fn a_damaged_part_of_a_log_is_damaged_in_the_child_too() {
    let kv = MemKv::new();
    let mut batch = KvBatch::default();
    (1..=3).for_each(|n| codec::put_log(&mut batch, id(0), &log_entry(n, n as u32)));
    batch.put(&keys::log(id(0), Eversion::new(1, 2)), b"damaged");
    kv.commit(&[batch], true).unwrap();
    let info = PgInfo { pg: id(0), pg_num: 1, last_update: Eversion::new(1, 3), ..PgInfo::default() };
    kv.commit(&expand(&kv, vec![split_of(&info)]).unwrap(), true).unwrap();
    let decoded = [1, 2, 3].map(|n| {
        let key = keys::log(id(1), Eversion::new(1, n));
        codec::decode_log(&key, &kv.get(&key).unwrap().unwrap()).map(|entries| entries[0].is_stub())
    });
    assert!(matches!(decoded, [Ok(false), Err(StoreError::Damaged { .. }), Ok(false)]), "{decoded:?}");
}
