//! Compares a PG's log, which reaches the key-value store in runs, with one stored entry by entry.

use carmine_pgtypes::Transaction;
use carmine_types::{Eversion, PgId, SpgId};
use proptest::prelude::*;

use crate::blue::meta::codec::tests::entry;
use crate::blue::meta::index::sorted;
use crate::blue::meta::{codec, keys, lookups};
use crate::blue::objects::apply::{Trimmed, encode_pg};
use crate::kv::KvBatch;
use crate::{Kv, MemKv};

/// What is done to the logs of two PGs.
#[derive(Clone, Debug)]
enum LogAct {
    Append(usize, u8),
    /// All but this many entries are dropped, from the front or from the back.
    Trim(usize, u8),
    Rewind(usize, u8),
    Forget(usize),
    /// Everything so far is applied.
    Apply,
}

fn log_act() -> impl Strategy<Value = LogAct> {
    prop_oneof![
        6 => (0usize..2, 1u8..200).prop_map(|(pg, count)| LogAct::Append(pg, count)),
        2 => (0usize..2, any::<u8>()).prop_map(|(pg, keep)| LogAct::Trim(pg, keep)),
        1 => (0usize..2, any::<u8>()).prop_map(|(pg, keep)| LogAct::Rewind(pg, keep)),
        1 => (0usize..2).prop_map(LogAct::Forget),
        3 => Just(LogAct::Apply),
    ]
}

/// The versions in a PG's log.
fn log_versions(kv: &MemKv, pg: SpgId) -> Vec<u64> {
    let tail_key = keys::pg(keys::PG_TAIL, pg);
    let tail =
        kv.get(&tail_key).unwrap().map_or(Eversion::ZERO, |v| codec::decode_tail(&tail_key, &v).unwrap());
    let ((start, end), mut runs) = (keys::log_range(pg), Vec::new());
    let mut each = |key: &[u8], value: &[u8]| {
        runs.push((key.to_vec(), value.to_vec()));
        true
    };
    kv.scan(&start, &end, &mut each).unwrap();
    let entries = runs.iter().flat_map(|(key, value)| codec::decode_log(key, value).unwrap());
    entries.filter(|entry| entry.version > tail).map(|entry| entry.version.version).collect()
}

proptest! {
    #[test]
    fn a_log_in_runs_has_the_entries_that_it_would_have_one_by_one(acts in prop::collection::vec(log_act(), 0..30)) {
        let pgs = [0, 1].map(|ps| SpgId { pgid: PgId { pool: 1, ps }, shard: -1 });
        let (kv, mut trimmed) = (MemKv::new(), Trimmed::default());
        let (mut logs, mut last, mut batch) = ([Vec::new(), Vec::new()], 0, KvBatch::default());
        for act in acts.iter().chain([&LogAct::Apply]) {
            let (LogAct::Append(at, _) | LogAct::Trim(at, _) | LogAct::Rewind(at, _) | LogAct::Forget(at)) = act else {
                let batches = vec![std::mem::take(&mut batch)];
                kv.commit(&[sorted(&lookups::expand(&kv, batches).unwrap())], true).unwrap();
                for (pg, log) in pgs.iter().zip(&logs) {
                    prop_assert_eq!(&log_versions(&kv, *pg), log);
                }
                continue;
            };
            let (mut txn, log) = (Transaction::new(pgs[*at], 0), &mut logs[*at]);
            let version = |number: &u64| Eversion::new(1, *number);
            match act {
                LogAct::Append(_, count) => {
                    let added = last + 1..=last + u64::from(*count);
                    last = *added.end();
                    txn.log.extend(added.clone().map(|number| entry(version(&number))));
                    log.extend(added);
                }
                LogAct::Trim(_, keep) => {
                    let gone = log.len().saturating_sub((*keep).into());
                    txn.log_trim_to = log.drain(..gone).next_back().as_ref().map(version);
                }
                LogAct::Rewind(_, keep) => {
                    log.truncate((*keep).into());
                    txn.log_rewind_to = Some(log.last().map_or(Eversion::ZERO, version));
                }
                _ => {
                    log.clear();
                    txn.forget_pg = true;
                }
            }
            encode_pg(&mut batch, &txn, &mut trimmed);
        }
    }
}
