//! [`Kv`]: the ordered key-value store that holds `blue`'s metadata.

use std::sync::Arc;

use carmine_types::{Eversion, SpgId};

/// An ordered map of bytes with atomic, durable batches. All calls may block: they are made on alien threads.
///
/// A commit with `sync`, and [`flush`](Kv::flush), make everything committed before durable too; without them a store may
/// do so at any time, in order. So what survives a crash is always a prefix of the commits.
pub trait Kv: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// If the store cannot be read or its own checksums do not hold.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Calls `each` for the pairs with `start <= key < end`, in order, until it returns `false`.
    ///
    /// # Errors
    /// As [`get`](Kv::get).
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError>;

    /// Applies the batches, in order, as one atomic change; with `sync` it is durable on return.
    ///
    /// # Errors
    /// If it could not be written: its state is then unknown, and the caller must stop writing.
    fn commit(&self, batches: &[KvBatch], sync: bool) -> Result<(), KvError>;

    /// Makes everything committed so far durable. Commits go on meanwhile.
    ///
    /// # Errors
    /// If it could not be written.
    fn flush(&self) -> Result<(), KvError>;

    /// Free bytes, less what is committed and not written out, if the store knows. Below a few dozen MiB `blue` refuses new data.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes used on its drive, including what is committed and not written out yet; 0 if it does not know.
    fn used_bytes(&self) -> u64 {
        0
    }

    /// Begins to reclaim the space of removed keys, by merging, unless that is under way or was just done. Returns at once.
    fn reclaim(&self) {}

    /// Merges everything on its drive, whether needed or not; a store without tables does nothing.
    ///
    /// # Errors
    /// If it could not be read or written.
    fn compact(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// CPU time of the store's own threads, if it has any and knows. Reads files of the kernel.
    fn cpu(&self) -> Option<KvCpu> {
        None
    }

    /// Counters and state as text lines, for people.
    fn stats(&self) -> String {
        String::new()
    }

    /// Where it is, for messages.
    fn place(&self) -> String;
}

/// CPU time of a key-value store's own threads since the process began, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCpu {
    /// Writing out what was in memory only.
    pub flush_ns: u64,
    /// Merging tables.
    pub compaction_ns: u64,
}

/// The key-value store failed: what was done, and its own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {message}")]
pub struct KvError {
    /// The failed operation, and its target.
    pub what: Arc<str>,
    /// The store's words.
    pub message: Arc<str>,
    /// Whether stored data is lost: its checksums do not match, or the drive cannot read it.
    pub is_damage: bool,
}

impl KvError {
    /// An error of an operation, with the store's message.
    pub fn new(what: impl AsRef<str>, message: impl AsRef<str>) -> KvError {
        KvError { what: what.as_ref().into(), message: message.as_ref().into(), is_damage: false }
    }

    /// The same, with `is_damage` set.
    #[must_use]
    pub fn damage(self, is_damage: bool) -> KvError {
        KvError { is_damage, ..self }
    }
}

/// One change in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvOp<'a> {
    /// Sets a key.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key.
    Delete(&'a [u8]),
    /// Removes all keys from the first (inclusive) to the second (exclusive).
    DeleteRange(&'a [u8], &'a [u8]),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Put,
    Delete,
    DeleteRange,
}

/// A list of changes, kept in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct KvBatch {
    bytes: Vec<u8>,
    ops: Vec<(Kind, u32, u32)>,
    /// Rare: each with the number of the batch's changes before it.
    lookups: Vec<(usize, Lookup)>,
    /// Bytes that the lookups come to, where that is known, about.
    lookup_bytes: usize,
}

/// A change that depends on the store's content.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// Copies all omap keys of an object, and its header, to another one that has none. The fields are the parts of keys that
    /// name the objects.
    CopyOmap { from: Box<[u8]>, to: Box<[u8]> },
    /// Cuts a PG's log off after this version, and sets its tail anew.
    RewindLog { pg: SpgId, keep_to: Eversion },
    /// Gives a PG, whose objects share `bits` low bits of their hashes, the log of the PG that it was split off, after `tail`;
    /// entries of other objects as stubs.
    SplitLog { from: SpgId, to: SpgId, bits: u32, tail: Eversion },
}

impl KvBatch {
    /// An empty batch with room for this many bytes of keys and values.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> KvBatch {
        KvBatch { bytes: Vec::with_capacity(bytes), ops: Vec::with_capacity(4), ..KvBatch::default() }
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(Kind::Put, key, value);
    }

    /// Sets a key; the two closures append key and value, so that neither is copied twice. `value` also gets the position of the
    /// key in the buffer.
    pub fn put_with(&mut self, key: impl FnOnce(&mut Vec<u8>), value: impl FnOnce(&mut Vec<u8>, usize)) {
        let start = self.bytes.len();
        key(&mut self.bytes);
        let key_len = self.bytes.len() - start;
        value(&mut self.bytes, start);
        let value_len = self.bytes.len() - start - key_len;
        self.ops.push((Kind::Put, key_len as u32, value_len as u32));
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(Kind::Delete, key, &[]);
    }

    /// Removes all keys from `start` (inclusive) to `end` (exclusive).
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.push(Kind::DeleteRange, start, end);
    }

    /// Adds a change that depends on the content after the changes so far. Key-value stores never see these: they are expanded to
    /// plain changes before, which have about `bytes` of keys and values.
    pub(crate) fn look_up(&mut self, lookup: Lookup, bytes: usize) {
        self.lookups.push((self.ops.len(), lookup));
        self.lookup_bytes = self.lookup_bytes.saturating_add(bytes);
    }

    /// The changes that depend on the content, in order, each with the number of plain changes before it.
    pub(crate) fn lookups(&self) -> &[(usize, Lookup)] {
        &self.lookups
    }

    fn push(&mut self, kind: Kind, first: &[u8], second: &[u8]) {
        self.bytes.extend_from_slice(first);
        self.bytes.extend_from_slice(second);
        self.ops.push((kind, first.len() as u32, second.len() as u32));
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.lookups.is_empty()
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of all keys and values, and those that the lookups come to, about.
    pub(crate) fn expanded_bytes(&self) -> usize {
        self.bytes.len().saturating_add(self.lookup_bytes)
    }

    /// Adds a change of another batch.
    pub(crate) fn push_op(&mut self, op: KvOp<'_>) {
        match op {
            KvOp::Put(key, value) => self.put(key, value),
            KvOp::Delete(key) => self.delete(key),
            KvOp::DeleteRange(start, end) => self.delete_range(start, end),
        }
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = KvOp<'_>> {
        let mut rest = self.bytes.as_slice();
        self.ops.iter().map(move |&(kind, first, second)| {
            let (a, tail) = rest.split_at(first as usize);
            let (b, tail) = tail.split_at(second as usize);
            rest = tail;
            match kind {
                Kind::Put => KvOp::Put(a, b),
                Kind::Delete => KvOp::Delete(a),
                Kind::DeleteRange => KvOp::DeleteRange(a, b),
            }
        })
    }
}
