//! [`Onode`]: what a shard holds in memory of one object.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use carmine_pgtypes::ObjectMeta;
use carmine_reactor::Bytes;
use carmine_types::ObjectId;

use crate::blue::device::PIECE_BLOCKS;
use crate::blue::meta::extents::{Entry, Extents, PIECE_BYTES};
use crate::blue::meta::keys;
use crate::blue::objects::dirty::Dirty;
use crate::blue::objects::omap::OmapOverlay;

/// A cached object. Shared by the cache, the transactions in flight and the reads that use it.
pub(crate) struct Onode {
    pub(crate) oid: ObjectId,
    /// The part of its keys that names it.
    pub(crate) key: Box<[u8]>,
    /// Number of users that keep it in the cache: transactions that are not durable, loads, preparations.
    pins: Cell<u32>,
    /// Number of preparations not submitted yet: block contents stay while there is one.
    prepared: Cell<u32>,
    /// Used since the clock's hand last passed.
    pub(crate) referenced: Cell<bool>,
    pub(crate) state: RefCell<OnodeState>,
    pub(crate) stream: Stream,
}

/// The projected state: all submitted transactions are applied, durable or not.
#[derive(Default)]
pub(crate) struct OnodeState {
    pub(crate) exists: bool,
    pub(crate) meta: ObjectMeta,
    /// Pieces of the block map: `None` is not loaded; after the end of the list are holes.
    pub(crate) map: Vec<Option<Extents>>,
    /// Contents of blocks that are not on the device yet, or that a preparation read.
    pub(crate) recent: BTreeMap<u64, Recent>,
    /// Changes of the omap that the index lacks.
    pub(crate) omap: OmapOverlay,
    /// The changes that the index must still get.
    pub(crate) dirty: Dirty,
    /// Copies of this object made while writes of it were in flight.
    pub(crate) heirs: Vec<Rc<Onode>>,
}

/// Content of a block.
pub(crate) struct Recent {
    pub(crate) data: Bytes,
    /// Whether its write is in flight.
    pub(crate) writing: bool,
}

impl Onode {
    pub(crate) fn new(oid: ObjectId, state: OnodeState) -> Rc<Onode> {
        let key = keys::oid_bytes(&oid);
        Rc::new(Onode {
            oid,
            key,
            pins: Cell::new(0),
            prepared: Cell::new(0),
            referenced: Cell::new(true),
            state: RefCell::new(state),
            stream: Stream::default(),
        })
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.get() > 0
    }

    /// Estimated bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        // The struct with the object id, the key, the slots of the cache and of its table.
        const FIXED: usize = size_of::<Onode>() + 64;
        let state = self.state.borrow();
        let map: usize = state.map.iter().flatten().map(Extents::heap_bytes).sum();
        FIXED
            + self.oid.heap_bytes()
            + self.key.len()
            + map
            + state.meta.xattrs.bytes()
            + state.map.capacity() * size_of::<Option<Extents>>()
    }

    /// Notes that the write of a block is done.
    pub(crate) fn note_written(&self, block: u64) {
        let mut state = self.state.borrow_mut();
        if self.prepared.get() == 0 {
            state.recent.remove(&block);
        } else if let Some(recent) = state.recent.get_mut(&block) {
            recent.writing = false;
        }
        if !state.heirs.is_empty() {
            drop(state);
            self.notify_heirs(block);
        }
    }

    /// Whether a preparation needs its contents in memory.
    pub(crate) fn is_prepared(&self) -> bool {
        self.prepared.get() > 0
    }
}

/// Keeps an onode in the cache.
pub(crate) struct Pin(Rc<Onode>);

impl Pin {
    pub(crate) fn new(onode: &Rc<Onode>) -> Pin {
        onode.pins.set(onode.pins.get() + 1);
        Pin(Rc::clone(onode))
    }
}

impl std::ops::Deref for Pin {
    type Target = Rc<Onode>;
    fn deref(&self) -> &Rc<Onode> {
        &self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.set(self.0.pins.get() - 1);
    }
}

/// Keeps an onode in the cache, and the contents of its blocks that a write will need.
pub(crate) struct PreparedPin(Pin);

impl PreparedPin {
    pub(crate) fn new(pin: Pin) -> PreparedPin {
        pin.prepared.set(pin.prepared.get() + 1);
        PreparedPin(pin)
    }
}

impl std::ops::Deref for PreparedPin {
    type Target = Rc<Onode>;
    fn deref(&self) -> &Rc<Onode> {
        &self.0
    }
}

impl Drop for PreparedPin {
    fn drop(&mut self) {
        self.0.prepared.set(self.0.prepared.get() - 1);
        if self.0.prepared.get() == 0 {
            self.0.state.borrow_mut().recent.retain(|_, recent| recent.writing);
        }
    }
}

impl OnodeState {
    /// Index of a block's piece of the map, and its index in the piece.
    fn place(index: u64) -> (usize, usize) {
        ((index / PIECE_BLOCKS as u64) as usize, (index % PIECE_BLOCKS as u64) as usize)
    }

    /// The entry of the `index`th block of the object; `None` if its piece of the map is not loaded.
    pub(crate) fn entry(&self, index: u64) -> Option<Entry> {
        let (shard, within) = OnodeState::place(index);
        match self.map.get(shard) {
            Some(piece) => piece.as_ref().map(|extents| extents.get(within)),
            None => Some(Entry::default()),
        }
    }

    /// Whether the content of the `index`th block is in memory, or the block is a hole.
    pub(crate) fn has_content(&self, index: u64) -> bool {
        self.entry(index).is_some_and(|entry| entry.is_hole() || self.recent.contains_key(&entry.block()))
    }

    /// Replaces an entry and returns the old one.
    pub(crate) fn set_entry(&mut self, index: u64, entry: Entry) -> Entry {
        let (shard, within) = OnodeState::place(index);
        if shard >= self.map.len() {
            if entry.is_hole() {
                return entry;
            }
            self.map.resize_with(shard + 1, || Some(Extents::default()));
        }
        match self.map.get_mut(shard) {
            Some(piece) => piece.get_or_insert_default().set(within, entry),
            None => Entry::default(),
        }
    }

    /// Whether the `index`th block was written only in part.
    pub(crate) fn is_part(&self, index: u64) -> bool {
        let (shard, within) = OnodeState::place(index);
        self.map.get(shard).and_then(Option::as_ref).is_some_and(|extents| extents.is_part(within))
    }

    /// Marks the `index`th block as written only in part, until it is replaced; false for a hole.
    pub(crate) fn set_part(&mut self, index: u64) -> bool {
        let (shard, within) = OnodeState::place(index);
        let extents = self.map.get_mut(shard).and_then(Option::as_mut);
        extents.is_some_and(|extents| extents.set_part(within))
    }

    /// Pieces of the map for bytes `range` of the object, up to the end of the list.
    pub(crate) fn pieces(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let end = range.end.div_ceil(PIECE_BYTES).min(self.map.len() as u64) as usize;
        let start = (range.start / PIECE_BYTES).min(end as u64) as usize;
        start..end
    }

    /// Whether all pieces for `range` are loaded.
    pub(crate) fn is_loaded(&self, range: &Range<u64>) -> bool {
        self.map.get(self.pieces(range)).is_none_or(|pieces| pieces.iter().all(Option::is_some))
    }
}

// [`Stream`]: how an object is being read.

/// Number of consecutive reads that make a stream.
const STREAM_READS: u32 = 3;
/// How an object is being read.
#[derive(Default)]
pub(crate) struct Stream {
    /// Where the last read ended, in bytes.
    next: Cell<u64>,
    /// Number of consecutive reads, each starting where the one before ended.
    run: Cell<u32>,
    /// Reads in flight.
    reading: Cell<u32>,
}

/// A read of the object is in flight until this is dropped.
pub(crate) struct Reading<'a>(&'a Stream);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.set(self.0.reading.get() - 1);
    }
}

impl Stream {
    /// Notes a read of these bytes.
    pub(crate) fn note_read(&self, off: u64, end: u64) -> Reading<'_> {
        let goes_on = self.next.replace(end) == off && off < end;
        self.run.set(if goes_on { self.run.get().saturating_add(1) } else { 1 });
        self.reading.set(self.reading.get() + 1);
        Reading(self)
    }

    /// Whether a read from `off` would begin where the last one ended.
    pub(crate) fn continues_at(&self, off: u64) -> bool {
        self.next.get() == off
    }

    /// Resets the stream, because the object changes; true if there was one.
    pub(crate) fn interrupt(&self) -> bool {
        self.run.replace(0) >= STREAM_READS
    }

    /// Whether the last reads were sequential.
    pub(crate) fn is_stream(&self) -> bool {
        self.run.get() >= STREAM_READS
    }

    /// Whether only one read is in flight.
    pub(crate) fn is_alone(&self) -> bool {
        self.reading.get() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_behind_the_map_are_holes_and_unloaded_pieces_are_not() {
        let mut state = OnodeState { map: vec![None], ..OnodeState::default() };
        assert_eq!(state.entry(0), None);
        assert_eq!(state.entry(64), Some(Entry::default()));
        assert!(!state.is_loaded(&(0..1)));
        assert!(state.is_loaded(&(PIECE_BYTES..u64::MAX)));
        assert!(state.is_loaded(&(0..0)));
        state.set_entry(200, Entry::new(5, 6));
        assert_eq!(state.map.len(), 4);
        assert_eq!(state.entry(200), Some(Entry::new(5, 6)));
        assert_eq!(state.pieces(&(0..u64::MAX)), 0..4);
        assert_eq!(state.pieces(&(PIECE_BYTES - 1..PIECE_BYTES + 1)), 0..2);
    }
}
