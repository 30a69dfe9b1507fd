//! What a store tells of itself, and how its omap is read.

use carmine_reactor::Bytes;

/// Which omap keys of an object are wanted: those from `start` on that begin with `prefix`, as many as `entries_max` and
/// `bytes_max` allow. The first one is given however long it is, unless `entries_max` is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmapRange {
    /// The first key wanted, …
    pub start: Vec<u8>,
    /// … or the last one that is not.
    pub is_after: bool,
    /// What the keys begin with.
    pub prefix: Vec<u8>,
    /// Most keys in one page.
    pub entries_max: usize,
    /// Bytes of keys and values after which a page ends.
    pub bytes_max: usize,
}

impl OmapRange {
    /// All keys, in pages of so many bytes.
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

    /// The range behind a page of it.
    #[must_use]
    pub fn after(self, page: &OmapPage) -> OmapRange {
        match page.entries.last() {
            Some((key, _)) => OmapRange { start: key.to_vec(), is_after: true, ..self },
            None => self,
        }
    }

    /// The smallest key that may be wanted, inclusive.
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
    /// There are more in the range.
    pub more: bool,
    bytes: usize,
}

impl OmapPage {
    /// Takes the next entry of the range, if the page has room for it.
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
    /// Taken.
    pub used: u64,
    /// Left for new writes (less what is kept back so that deleting always works).
    pub free: u64,
}

/// Counters of one shard's store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Transactions submitted.
    pub txns: u64,
    /// Transactions not durable yet.
    pub txns_in_flight: u64,
    /// Reads of objects.
    pub reads: u64,
    /// Writes to the device, and their bytes.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Reads from the device, and their bytes.
    pub device_reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Flushes of the device (`fdatasync`).
    pub flushes: u64,
    /// Groups written to the log.
    pub groups: u64,
    /// Bytes of those.
    pub log_bytes: u64,
    /// Blocks written to the log only to say what is durable.
    pub log_marks: u64,
    /// Times that a group waited for room in the log.
    pub log_waits: u64,
    /// Times that the key-value store was told to write its tables out, so that the log could be trimmed (the same for all
    /// shards).
    pub log_trims: u64,
    /// Transactions whose data went into the log first.
    pub deferred_txns: u64,
    /// Writes of such data to its place; they are in `device_writes` too.
    pub deferred_writes: u64,
    /// Transactions too large for the log, committed straight to the key-value store.
    pub around_log: u64,
    /// Transactions that were held back because the key-value store was behind.
    pub held_back: u64,
    /// Discards of freed space.
    pub discards: u64,
    /// Bytes of those.
    pub discard_bytes: u64,
    /// Batches that the key-value store was fed by the feeder of the process (the same for all shards).
    pub kv_commits: u64,
    /// Bytes of keys and values in those batches.
    pub kv_bytes: u64,
    /// Nanoseconds in the key-value store's commit (wall time; the same for all shards).
    pub kv_commit_ns: u64,
    /// CPU time of the alien threads that fed the key-value store and told it to write its tables out (the same for all
    /// shards). What the key-value store's own threads use is not in it.
    pub feeder_cpu_ns: u64,
    /// Objects found in the cache.
    pub cache_hits: u64,
    /// Objects that had to be loaded.
    pub cache_misses: u64,
    /// Estimated bytes of the cache.
    pub cache_bytes: u64,
    /// Blocks found in the cache of data.
    pub data_cache_hits: u64,
    /// Bytes of the cache of data.
    pub data_cache_bytes: u64,
    /// Blocks read ahead.
    pub readahead_blocks: u64,
    /// Blocks that a read found read ahead.
    pub readahead_hits: u64,
    /// Bytes copied to reach the alignment that the device needs, or to merge into a block.
    pub bytes_copied: u64,
    /// Times that a block's checksum was wrong.
    pub corrupt_blocks: u64,
    /// Times that the device did not give a block.
    pub unreadable_blocks: u64,
    /// Blocks that were given their content back from another copy.
    pub healed_blocks: u64,
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
