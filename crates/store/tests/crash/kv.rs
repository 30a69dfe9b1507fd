//! A key-value store whose commits and flushes stand on the same tape as the disk's, so that it can be had as a power cut
//! leaves it: what was synced or flushed, and of the rest a prefix.

use std::sync::{Mutex, PoisonError};

use carmine_reactor::sim::{Tape, Unflushed};
use carmine_store::{Kv, KvBatch, KvError, MemKv};

/// A recorded [`MemKv`].
pub struct TapeKv {
    tape: Tape,
    live: MemKv,
    /// What was in it when the record began.
    base: Vec<KvBatch>,
    history: Mutex<Vec<Entry>>,
}

struct Entry {
    /// On the tape.
    at: usize,
    batches: Vec<KvBatch>,
    /// It, and all before it, is durable.
    durable: bool,
}

impl TapeKv {
    /// A store that holds this, durably.
    pub fn new(tape: Tape, base: Vec<KvBatch>) -> TapeKv {
        let live = MemKv::new();
        live.commit(&base, true).unwrap();
        TapeKv { tape, live, base, history: Mutex::default() }
    }

    fn note(&self, batches: &[KvBatch], durable: bool) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.push(Entry { at: self.tape.mark(), batches: batches.to_vec(), durable });
    }

    /// Positions on the tape just before and just after something became durable here.
    pub fn boundaries(&self) -> Vec<usize> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().filter(|entry| entry.durable).flat_map(|entry| [entry.at, entry.at + 1]).collect()
    }

    /// What a power cut after the first `at` events of the tape leaves.
    pub fn left(&self, at: usize, unflushed: Unflushed) -> Vec<KvBatch> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = history.partition_point(|entry| entry.at < at);
        let durable = history[..seen].iter().rposition(|entry| entry.durable).map_or(0, |last| last + 1);
        let kept = match unflushed {
            Unflushed::Lost => durable,
            Unflushed::Kept => seen,
            Unflushed::Random(seed) => durable + (seed >> 7) as usize % (seen - durable + 1),
        };
        let after = history[..kept].iter().flat_map(|entry| &entry.batches);
        self.base.iter().chain(after).cloned().collect()
    }
}

impl Kv for TapeKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.live.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        self.live.scan(start, end, each)
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        self.note(batches, sync);
        self.live.commit(batches, sync)
    }

    fn flush(&self) -> Result<(), KvError> {
        self.note(&[], true);
        self.live.flush()
    }

    fn place(&self) -> String {
        "a tape".to_owned()
    }
}
