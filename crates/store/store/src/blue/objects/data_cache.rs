//! [`DataCache`]: blocks that were read, within a budget of bytes; those used longest ago go first.

use std::num::NonZeroUsize;

use carmine_reactor::Bytes;
use foldhash::fast::FixedState;
use lru::LruCache;

use crate::BLOCK_BYTES;

/// What one block counts for: its content, and its place in the cache's list and table.
pub(crate) const COST_BYTES: usize = BLOCK_BYTES as usize + 128;

/// Contents of blocks by their number on the device. A block's content does not change while it is allocated, so a
/// block need only be forgotten when it is freed.
pub(crate) struct DataCache {
    blocks: LruCache<u64, Bytes, FixedState>,
}

impl DataCache {
    /// `None` if not even one block fits.
    pub(crate) fn new(budget_bytes: usize) -> Option<DataCache> {
        let blocks = NonZeroUsize::new(budget_bytes / COST_BYTES)?;
        Some(DataCache { blocks: LruCache::with_hasher(blocks, FixedState::default()) })
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * COST_BYTES
    }

    pub(crate) fn get(&mut self, block: u64) -> Option<Bytes> {
        self.blocks.get(&block).cloned()
    }

    /// Keeps a copy: what was read may be a small part of a large buffer, which is wanted back.
    pub(crate) fn put(&mut self, block: u64, content: &[u8]) {
        self.blocks.put(block, Bytes::from(content.to_vec()));
    }

    /// A block was freed.
    pub(crate) fn forget(&mut self, block: u64) {
        self.blocks.pop(&block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let content = |n: u8| vec![n; BLOCK_BYTES as usize];
        let mut cache = DataCache::new(3 * COST_BYTES + 1).unwrap();
        (1..=3).for_each(|n| cache.put(n, &content(n as u8)));
        assert_eq!(cache.bytes(), 3 * COST_BYTES);
        assert_eq!(cache.get(1).as_deref(), Some(content(1).as_slice()));
        cache.put(4, &content(4));
        assert!(cache.get(2).is_none());
        cache.forget(1);
        assert!(cache.get(1).is_none());
        assert_eq!(cache.bytes(), 2 * COST_BYTES);
        assert!(DataCache::new(COST_BYTES - 1).is_none());
    }
}
