//! [`NumberedKv`]: the key-value store with a number in every commit, so that a store that has lost some is noticed.
// Its calls are made on alien threads, never on a reactor.
#![allow(clippy::disallowed_types)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{codec, keys};
use crate::kv::{Kv, KvBatch, KvError};

/// Commits of one epoch of the log. Every batch carries its number ([`keys::COMMITS`]); the log says now and then which
/// of them is durable, and a mount that finds an older one refuses.
pub(crate) struct NumberedKv {
    kv: Arc<dyn Kv>,
    epoch: u64,
    /// Number of the last commit. Held while one is made, so that the numbers come in order.
    last: Mutex<u64>,
    durable: AtomicU64,
}

impl NumberedKv {
    pub(crate) fn new(kv: Arc<dyn Kv>, epoch: u64) -> NumberedKv {
        NumberedKv { kv, epoch, last: Mutex::new(0), durable: AtomicU64::new(0) }
    }

    /// The number of a commit that is durable, as are all before it.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn place(&self) -> String {
        self.kv.place()
    }

    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.kv.free_bytes()
    }

    /// On an alien thread: [`Kv::commit`].
    pub(crate) fn commit(&self, mut batch: KvBatch, sync: bool) -> Result<(), KvError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        batch.put_with(
            |out| out.extend_from_slice(keys::COMMITS),
            |out, at| codec::push_position(out, at, self.epoch, *last),
        );
        self.kv.commit(&[batch], sync)?;
        if sync {
            self.durable.fetch_max(*last, Ordering::AcqRel);
        }
        Ok(())
    }

    /// On an alien thread: [`Kv::flush`].
    pub(crate) fn flush(&self) -> Result<(), KvError> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.kv.flush()?;
        self.durable.fetch_max(last, Ordering::AcqRel);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemKv;

    #[test]
    fn numbers_are_in_the_batches_and_durable_when_they_are() {
        let mem = Arc::new(MemKv::new());
        let kv = NumberedKv::new(Arc::clone(&mem) as Arc<dyn Kv>, 9);
        let number = || {
            let value = mem.get(keys::COMMITS).unwrap().unwrap();
            codec::decode_position(keys::COMMITS, &value).unwrap()
        };
        kv.commit(KvBatch::default(), false).unwrap();
        kv.commit(KvBatch::default(), false).unwrap();
        assert_eq!((number(), kv.durable()), ((9, 2), 0));
        kv.flush().unwrap();
        assert_eq!(kv.durable(), 2);
        kv.commit(KvBatch::default(), true).unwrap();
        assert_eq!((number(), kv.durable()), ((9, 3), 3));
    }
}
