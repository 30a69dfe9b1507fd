//! A store's statistics, and the reading of its omap.

use carmine_metrics::{Gauge, Max, Sum, metric_set};
use carmine_reactor::Bytes;

/// A range of an object's omap: the keys from `start` on that begin with `prefix`, as many as `entries_max` and `bytes_max`
/// allow. The first entry is returned however long it is, unless `entries_max` is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmapRange {
    /// The first key wanted, …
    pub start: Vec<u8>,
    /// … or, if set, the last key that is not.
    pub is_after: bool,
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// Most keys in one page.
    pub entries_max: usize,
    /// Bytes of keys and values after which a page ends.
    pub bytes_max: usize,
}

impl OmapRange {
    /// All keys, in pages of this many bytes.
    #[must_use]
    pub fn all(bytes_max: usize) -> OmapRange {
        OmapRange {
            start: Vec::new(),
            is_after: false,
            prefix: Vec::new(),
            entries_max: usize::MAX,
            bytes_max,
        }
    }

    /// The rest of the range after a page.
    #[must_use]
    pub fn after(self, page: &OmapPage) -> OmapRange {
        match page.entries.last() {
            Some((key, _)) => OmapRange { start: key.to_vec(), is_after: true, ..self },
            None => self,
        }
    }

    /// The smallest possible key, inclusive.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        let mut first = self.start.clone();
        if self.is_after {
            first.push(0); // the smallest key above it
        }
        first.max(self.prefix.clone())
    }
}

/// A page of an object's omap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Keys and values, in order.
    pub entries: Vec<(Box<[u8]>, Bytes)>,
    /// Whether the range has more.
    pub more: bool,
    bytes: usize,
}

impl OmapPage {
    /// Appends the next entry of the range, if the page has room for it.
    pub fn push(&mut self, range: &OmapRange, key: &[u8], value: impl Into<Bytes>) -> bool {
        let is_first = self.entries.is_empty();
        if self.entries.len() >= range.entries_max || (self.bytes >= range.bytes_max && !is_first) {
            self.more = true;
            return false;
        }
        let value = value.into();
        self.bytes += key.len() + value.len();
        self.entries.push((key.into(), value));
        true
    }
}

/// Space of a store, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Room for data.
    pub total: u64,
    /// Used by data and metadata.
    pub used: u64,
    /// Used by metadata.
    pub metadata: u64,
    /// Left for new writes (less what is kept back so that deleting always works).
    pub free: u64,
}

metric_set! {
    /// Counters of one shard's store since it was opened.
    #[derive(Copy, PartialEq, Eq)]
    pub struct StoreStats: "store" {
        /// Transactions submitted.
        txns: Sum,
        /// Transactions not durable yet.
        txns_in_flight: Gauge,
        /// Reads of objects.
        reads: Sum,
        /// Writes to the device.
        device_writes: Sum,
        /// Bytes written to the device.
        device_write_bytes: Sum,
        /// Reads from the device.
        device_reads: Sum,
        /// Bytes read from the device.
        device_read_bytes: Sum,
        /// Flushes of the device (`fdatasync`).
        flushes: Sum,
        /// Groups written to the log.
        groups: Sum,
        /// Bytes written to the log.
        log_bytes: Sum,
        /// Blocks written to the log only to record what is durable.
        log_marks: Sum,
        /// Times that a group waited for room in the log.
        log_waits: Sum,
        /// Times that the key-value store had to write its tables out so that the log could be trimmed (of the whole process).
        log_trims: Max,
        /// Transactions whose data went into the log first.
        deferred_txns: Sum,
        /// Writes of such data to its place; they are in `device_writes`, too.
        deferred_writes: Sum,
        /// Transactions too large for the log, committed straight to the key-value store.
        around_log: Sum,
        /// Transactions held back because the key-value store lagged behind.
        held_back: Sum,
        /// Discards of freed space.
        discards: Sum,
        /// Bytes discarded.
        discard_bytes: Sum,
        /// Batches committed to the key-value store (of the whole process).
        kv_commits: Max,
        /// Bytes of keys and values in those batches (of the whole process).
        kv_bytes: Max,
        /// Wall time of those commits (of the whole process).
        kv_commit_ns: Max => "store_kv_commit_ms",
        /// CPU time of the alien threads that feed the key-value store and make it write its tables out (of the whole process).
        /// The time of the key-value store's own threads is not included.
        feeder_cpu_ns: Max => _,
        /// Objects found in the cache.
        cache_hits: Sum,
        /// Objects that had to be loaded.
        cache_misses: Sum,
        /// Estimated size of the cache.
        cache_bytes: Gauge,
        /// Blocks found in the cache of data.
        data_cache_hits: Sum,
        /// Size of the cache of data.
        data_cache_bytes: Gauge,
        /// Blocks read ahead of a reader.
        readahead_blocks: Sum,
        /// Blocks that a reader found read ahead.
        readahead_hits: Sum,
        /// Bytes copied to reach the alignment that the device needs, or to merge into a block.
        bytes_copied: Sum => "store_copied_bytes",
        /// Times that a block's checksum was wrong.
        corrupt_blocks: Sum,
        /// Times that the device could not read a block.
        unreadable_blocks: Sum,
        /// Blocks restored from another copy.
        healed_blocks: Sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_at_least_one_entry_unless_none_are_wanted() {
        let fill = |entries_max, bytes_max| {
            let range = OmapRange { entries_max, ..OmapRange::all(bytes_max) };
            let mut page = OmapPage::default();
            let taken = (b'a'..=b'e').filter(|key| page.push(&range, &[*key], vec![0; 9])).count();
            assert_eq!(taken, page.entries.len());
            (taken, page.more)
        };
        assert_eq!(fill(usize::MAX, usize::MAX), (5, false));
        assert_eq!(fill(3, usize::MAX), (3, true));
        assert_eq!(fill(usize::MAX, 11), (2, true));
        assert_eq!(fill(usize::MAX, 0), (1, true));
        assert_eq!(fill(0, usize::MAX), (0, true));
    }
}
