//! A key-value store whose commits and flushes stand on the same tape as the disk's, so that it can be had as a power cut
//! leaves it: what was synced or flushed, and of the rest a prefix.

use std::sync::{Mutex, MutexGuard, PoisonError};

use carmine_reactor::sim::{Tape, Unflushed};
use carmine_store::{Kv, KvBatch, KvError, MemKv};

use crate::common::{Watch, WatchedKv};

/// A recorded [`MemKv`].
pub type TapeKv = WatchedKv<KvTape>;

/// The record of a [`TapeKv`].
pub struct KvTape {
    tape: Tape,
    /// Its content when the record began.
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

/// A store that holds this, durably.
pub fn recorded(tape: Tape, base: Vec<KvBatch>) -> TapeKv {
    let live = MemKv::new();
    live.commit(&base, true).unwrap();
    WatchedKv { live, watch: KvTape { tape, base, history: Mutex::default() } }
}

impl KvTape {
    fn history(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Positions on the tape just before and just after something became durable here.
    pub fn boundaries(&self) -> Vec<usize> {
        let history = self.history();
        history.iter().filter(|entry| entry.durable).flat_map(|entry| [entry.at, entry.at + 1]).collect()
    }

    /// The content that a power cut after the first `at` events of the tape leaves.
    pub fn left(&self, at: usize, unflushed: Unflushed) -> Vec<KvBatch> {
        let history = self.history();
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

    /// The same, to mount.
    pub fn left_kv(&self, at: usize, unflushed: Unflushed) -> MemKv {
        let kv = MemKv::new();
        kv.commit(&self.left(at, unflushed), true).unwrap();
        kv
    }
}

impl Watch for KvTape {
    fn before(&self, batches: &[KvBatch], durable: bool) -> Result<(), KvError> {
        self.history().push(Entry { at: self.tape.mark(), batches: batches.to_vec(), durable });
        Ok(())
    }
}
