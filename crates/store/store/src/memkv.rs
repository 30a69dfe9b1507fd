//! [`MemKv`]: a [`Kv`] in memory, for tests, the simulator and benches without RocksDB.
// Its calls are made on alien threads, never on a reactor, so a lock is fine.
#![allow(clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use crate::kv::{Kv, KvBatch, KvError, KvOp};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An ordered map with a lock. It lives as long as its `Arc`; [`MemKv::crash`] reverts commits made without `sync` since the last
/// flush.
#[derive(Default)]
pub struct MemKv {
    state: RwLock<Maps>,
}

#[derive(Default)]
struct Maps {
    live: Map,
    /// Commits since the last durable one, …
    unsynced: Vec<Vec<KvBatch>>,
    /// … and the map as of that one.
    durable: Map,
}

impl Maps {
    /// Makes the first `count` of the unsynced commits durable.
    fn sync(&mut self, count: usize) {
        for batches in self.unsynced.drain(..count.min(self.unsynced.len())) {
            apply(&mut self.durable, &batches);
        }
    }
}

fn apply(map: &mut Map, batches: &[KvBatch]) {
    for op in batches.iter().flat_map(KvBatch::iter) {
        match op {
            KvOp::Put(key, value) => {
                map.insert(key.to_vec(), value.to_vec());
            }
            KvOp::Delete(key) => {
                map.remove(key);
            }
            KvOp::DeleteRange(start, end) => {
                let mut tail = map.split_off(start);
                if end > start {
                    map.append(&mut tail.split_off(end));
                } else {
                    map.append(&mut tail);
                }
            }
        }
    }
}

impl MemKv {
    /// An empty store.
    #[must_use]
    pub fn new() -> MemKv {
        MemKv::default()
    }

    /// Simulates a power cut: of the commits since the last sync only the first `keep` remain.
    pub fn crash(&self, keep: usize) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.sync(keep);
        state.unsynced.clear();
        state.live = state.durable.clone();
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().unwrap_or_else(PoisonError::into_inner).live.len()
    }

    /// No keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Kv for MemKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner).live.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        if start >= end {
            return Ok(());
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in state.live.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))) {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.unsynced.push(batches.to_vec());
        if sync {
            state.sync(usize::MAX);
        }
        apply(&mut state.live, batches);
        Ok(())
    }

    fn flush(&self) -> Result<(), KvError> {
        self.state.write().unwrap_or_else(PoisonError::into_inner).sync(usize::MAX);
        Ok(())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(f: impl FnOnce(&mut KvBatch)) -> Vec<KvBatch> {
        let mut batch = KvBatch::default();
        f(&mut batch);
        vec![batch]
    }

    fn keys(kv: &MemKv) -> Vec<u8> {
        let mut out = Vec::new();
        kv.scan(b"", b"\xff", &mut |key, _| {
            out.extend_from_slice(key);
            true
        })
        .unwrap();
        out
    }

    #[test]
    fn ranges_are_half_open() {
        let kv = MemKv::new();
        kv.commit(&batch(|b| "abcde".bytes().for_each(|k| b.put(&[k], b"v"))), true).unwrap();
        kv.commit(&batch(|b| b.delete_range(b"b", b"d")), true).unwrap();
        assert_eq!(keys(&kv), b"ade");
        kv.commit(&batch(|b| b.delete_range(b"d", b"a")), true).unwrap();
        assert_eq!(keys(&kv), b"ade");
        kv.commit(&batch(|b| b.delete(b"d")), true).unwrap();
        assert_eq!(keys(&kv), b"ae");
    }

    #[test]
    fn a_crash_keeps_a_prefix_of_what_was_not_synced() {
        let kv = MemKv::new();
        kv.commit(&batch(|b| b.put(b"a", b"1")), true).unwrap();
        for key in [b"b", b"c", b"d"] {
            kv.commit(&batch(|b| b.put(key, b"1")), false).unwrap();
        }
        assert_eq!(keys(&kv), b"abcd");
        kv.crash(2);
        assert_eq!(keys(&kv), b"abc");
        kv.crash(0);
        assert_eq!(keys(&kv), b"abc");
    }
}
