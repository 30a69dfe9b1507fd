//! A key-value store in memory whose scans and changes a test sees before they happen.

use carmine_store::{Kv, KvBatch, KvError, MemKv};

/// Sees scans and changes, and may refuse changes.
pub trait Watch: Send + Sync {
    /// A scan begins.
    fn before_scan(&self) {}

    /// Sees the batches that are about to be committed (none: a flush), and whether all so far is durable afterwards.
    ///
    /// # Errors
    /// The store's answer; nothing is changed then.
    fn before(&self, batches: &[KvBatch], durable: bool) -> Result<(), KvError>;
}

/// A watched [`MemKv`].
pub struct WatchedKv<W> {
    pub live: MemKv,
    pub watch: W,
}

impl<W: Watch> Kv for WatchedKv<W> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.live.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        self.watch.before_scan();
        self.live.scan(start, end, each)
    }

    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError> {
        self.watch.before(batches, sync)?;
        self.live.commit(batches, sync)
    }

    fn flush(&self) -> Result<(), KvError> {
        self.watch.before(&[], true)?;
        self.live.flush()
    }

    fn place(&self) -> String {
        "a test".to_owned()
    }
}
