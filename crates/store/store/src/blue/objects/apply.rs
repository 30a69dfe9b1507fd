//! Applies a transaction's changes to onodes, and derives the changes of metadata. Submission and replay share this code: they
//! differ only in where blocks are placed ([`Placer`]).

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use carmine_pgtypes::{ObjectMeta, PgInfo, Step, Transaction};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Eversion, SpgId, is_mutated};
use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::BLOCK_BYTES;
use crate::blue::device::PIECE_BLOCKS;
use crate::blue::meta::extents::{Entry, Extents, PIECE_BYTES};
use crate::blue::meta::{codec, keys};
use crate::blue::objects::onode::{Onode, OnodeState, Pin, Recent};
use crate::blue::objects::reads::Freed;
use crate::kv::{KvBatch, Lookup};

const BLOCK: usize = BLOCK_BYTES as usize;

/// The known log tails of PGs.
pub(crate) type Trimmed = HashMap<SpgId, Eversion, FixedState>;

/// A placed block: its number, checksum and content, which is empty if it is not needed.
pub(crate) struct Placed {
    pub(crate) block: u64,
    pub(crate) crc: u32,
    pub(crate) content: Bytes,
}

/// The blocks of a write.
pub(crate) type PlacedList = SmallVec<[Placed; 1]>;

/// Objects that a transaction copies.
pub(crate) type Sources = Vec<Rc<Onode>>;

/// Finds places for blocks that are written.
pub(crate) trait Placer {
    /// Places whole blocks of data.
    fn whole(&mut self, data: &Payload, out: &mut PlacedList);

    /// Places a block of which a part is replaced, by zeros if there is no data; `old` is its content, if it was not a hole.
    fn part(&mut self, old: Option<&Bytes>, within: usize, len: usize, data: Option<&Payload>) -> Placed;

    /// Counts one more object for the blocks of a piece.
    fn share(&mut self, extents: &Extents);

    /// Counts one object less for a block; false if no other object has it.
    fn unshare(&mut self, block: u64) -> bool;
}

/// An object that a transaction changes.
pub(crate) struct Touched {
    pub(crate) pin: Pin,
    pub(crate) existed: bool,
    /// Whether its block map changed.
    pub(crate) remapped: bool,
    /// Blocks written.
    pub(crate) blocks: SmallVec<[u64; 2]>,
    /// Whether the onode's memory size changed.
    pub(crate) resized: bool,
}

/// The results of applying steps.
pub(crate) struct Work<P> {
    pub(crate) placer: P,
    pub(crate) freed: Freed,
    /// The transaction's changes, appended to those of the batch.
    pub(crate) changes: KvBatch,
    /// Number of pieces of block maps that had not changed before.
    pub(crate) pieces: usize,
    /// Objects that are cloned.
    pub(crate) sources: Sources,
}

impl Touched {
    pub(crate) fn new(pin: Pin) -> Touched {
        let existed = pin.state.borrow().exists;
        Touched { pin, existed, remapped: false, blocks: SmallVec::new(), resized: false }
    }
}

impl<P: Placer> Work<P> {
    pub(crate) fn new(placer: P, changes: KvBatch) -> Work<P> {
        Work { placer, freed: Freed::new(), changes, pieces: 0, sources: Sources::new() }
    }

    /// Applies a step to an object whose changes are being noted ([`Dirty`](super::dirty::Dirty)).
    pub(crate) fn apply(&mut self, step: &Step, object: &mut Touched, state: &mut OnodeState) {
        state.exists |= step.creates();
        match step {
            Step::Touch => {}
            Step::Write { off, data } => {
                self.write(object, state, *off, data);
                if step.end() > state.meta.size {
                    self.leave_gap(object, state, *off);
                    state.meta.size = step.end();
                }
            }
            Step::Zero { off, len } => {
                let end = off.saturating_add(*len).min(state.meta.size);
                self.zero(object, state, *off, end);
            }
            Step::Truncate { size } => {
                self.zero(object, state, *size, state.meta.size);
                self.leave_gap(object, state, *size);
                if *size < state.meta.size {
                    state.map.truncate(size.div_ceil(PIECE_BYTES) as usize);
                }
                state.meta.size = *size;
            }
            Step::Remove => {
                self.zero(object, state, 0, state.meta.size);
                self.clear_omap(object, state);
                state.map.clear();
                state.meta = ObjectMeta::default();
                object.resized = true;
                state.exists = false;
            }
            Step::CloneFrom { from } => self.clone_from(object, state, from),
            Step::MarkLost { off, len, crc } => {
                let end = off.saturating_add(*len).min(state.meta.size);
                for index in off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
                    self.map(object, state, index, Entry::lost(*crc));
                }
            }
            Step::SetMeta { version, user_version, mtime } => {
                let meta = &mut state.meta;
                (meta.version, meta.user_version, meta.mtime) = (*version, *user_version, *mtime);
            }
            Step::SetXattr { name, value } => {
                state.meta.xattrs.set(name, value.clone());
                object.resized = true;
            }
            Step::RemoveXattr { name } => {
                state.meta.xattrs.remove(name);
                object.resized = true;
            }
            Step::ClearXattrs { prefix } => {
                state.meta.xattrs.clear(prefix);
                object.resized = true;
            }
            Step::SetOmap { .. } | Step::SetOmapHeader { .. } => {
                state.meta.has_omap = true;
                self.change_omap(step, object, state);
            }
            Step::RemoveOmap { .. } | Step::RemoveOmapRange { .. } if state.meta.has_omap => {
                self.change_omap(step, object, state);
            }
            Step::RemoveOmap { .. } | Step::RemoveOmapRange { .. } => {}
            Step::ClearOmap => self.clear_omap(object, state),
        }
    }

    fn change_omap(&mut self, step: &Step, object: &Touched, state: &mut OnodeState) {
        state.omap.change(state.dirty.window, step);
        let (oid, batch) = (&*object.pin.key, &mut self.changes);
        match step {
            Step::SetOmap { entries } => entries.iter().for_each(|(key, value)| {
                batch.put_with(
                    |out| keys::push_omap(out, oid, key),
                    |out, at| codec::push(out, at, |e| e.bytes(value)),
                );
            }),
            Step::SetOmapHeader { header } => batch.put_with(
                |out| out.extend_from_slice(&keys::omap_header(oid)),
                |out, at| codec::push(out, at, |e| e.bytes(header)),
            ),
            Step::RemoveOmap { keys } => keys.iter().for_each(|key| batch.delete(&keys::omap(oid, key))),
            Step::RemoveOmapRange { from, to } if from < to => {
                batch.delete_range(&keys::omap(oid, from), &keys::omap(oid, to));
            }
            _ => {}
        }
    }

    fn clear_omap(&mut self, object: &Touched, state: &mut OnodeState) {
        if std::mem::take(&mut state.meta.has_omap) {
            state.omap.change(state.dirty.window, &Step::ClearOmap);
            let (start, end) = keys::omap_range(&object.pin.key, &[]);
            self.changes.delete_range(&start, &end);
            self.changes.delete(&keys::omap_header(&object.pin.key));
        }
    }

    fn write(&mut self, object: &mut Touched, state: &mut OnodeState, off: u64, data: &Payload) {
        let end = off + data.len() as u64;
        let mut at = off;
        while at < end {
            let (index, within) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
            let skip = (at - off) as usize;
            let whole = ((end - at) / BLOCK_BYTES * BLOCK_BYTES) as usize;
            if within == 0 && whole > 0 {
                let mut placed = PlacedList::new();
                if whole == data.len() {
                    self.placer.whole(data, &mut placed);
                } else {
                    self.placer.whole(&data.slice(skip, whole), &mut placed);
                }
                for (index, placed) in (index..).zip(placed) {
                    self.place(object, state, index, placed);
                }
                at += whole as u64;
            } else {
                let len = (BLOCK - within).min((end - at) as usize);
                self.patch(object, state, index, within, len, Some(&data.slice(skip, len)));
                at += len as u64;
            }
        }
    }

    /// Replaces a part of a block, by zeros if there is no data.
    fn patch(
        &mut self,
        object: &mut Touched,
        state: &mut OnodeState,
        index: u64,
        within: usize,
        len: usize,
        data: Option<&Payload>,
    ) {
        let old = state.entry(index).filter(|old| !old.is_hole());
        let is_part = data.is_none() || is_part(state, index, within, len, old.is_none());
        let old = old.and_then(|old| state.recent.get(&old.block())).map(|recent| &recent.data);
        let placed = self.placer.part(old, within, len, data);
        self.place(object, state, index, placed);
        if is_part {
            state.set_part(index);
        }
    }

    /// The object is about to grow by bytes from `off` on: the gap between its end and `off` is a hole, also within the last
    /// block.
    fn leave_gap(&mut self, object: &mut Touched, state: &mut OnodeState, off: u64) {
        let (size, index) = (state.meta.size, state.meta.size / BLOCK_BYTES);
        if off > size && !size.is_multiple_of(BLOCK_BYTES) && state.set_part(index) {
            object.remapped = true;
            self.pieces += usize::from(state.dirty.note_piece((index / PIECE_BLOCKS as u64) as u32));
        }
    }

    /// Maps a block of the object to its new place.
    fn place(&mut self, object: &mut Touched, state: &mut OnodeState, index: u64, placed: Placed) {
        let Placed { block, crc, content } = placed;
        self.map(object, state, index, Entry::new(block, crc));
        if !content.is_empty() {
            state.recent.insert(block, Recent { data: content, writing: true });
            object.blocks.push(block);
        }
    }

    /// Changes the entry of a block; the old block is freed once this is durable.
    fn map(&mut self, object: &mut Touched, state: &mut OnodeState, index: u64, entry: Entry) {
        let old = state.set_entry(index, entry);
        if old.has_block() && !self.placer.unshare(old.block()) {
            self.freed.push(old.block());
        }
        object.resized |= old.is_hole() != entry.is_hole();
        object.remapped = true;
        self.pieces += usize::from(state.dirty.note_piece((index / PIECE_BLOCKS as u64) as u32));
    }

    /// Makes bytes `from..to` (within the object) zeros.
    fn zero(&mut self, object: &mut Touched, state: &mut OnodeState, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // After the end of the object everything is zero anyway, so the last block can be removed as a whole.
        let to = if to == state.meta.size { to.next_multiple_of(BLOCK_BYTES) } else { to };
        let (first, last) = (from / BLOCK_BYTES, to / BLOCK_BYTES);
        let (head, tail) = ((from % BLOCK_BYTES) as usize, (to % BLOCK_BYTES) as usize);
        if first == last {
            self.zero_part(object, state, first, head, tail - head);
            return;
        }
        if head > 0 {
            self.zero_part(object, state, first, head, BLOCK - head);
        }
        let end = last.min((state.map.len() * PIECE_BLOCKS) as u64);
        for index in from.div_ceil(BLOCK_BYTES)..end {
            if state.entry(index).is_some_and(|entry| !entry.is_hole()) {
                self.map(object, state, index, Entry::default());
            }
        }
        if tail > 0 {
            self.zero_part(object, state, last, 0, tail);
        }
    }

    fn zero_part(
        &mut self,
        object: &mut Touched,
        state: &mut OnodeState,
        index: u64,
        within: usize,
        len: usize,
    ) {
        if state.entry(index).is_some_and(|entry| !entry.is_hole()) {
            self.patch(object, state, index, within, len, None);
        }
    }
}

/// Whether a block of which a part is written has other, unwritten bytes before the end of the object.
fn is_part(state: &OnodeState, index: u64, within: usize, len: usize, was_hole: bool) -> bool {
    let from = index * BLOCK_BYTES + within as u64;
    match was_hole {
        true => within > 0 || from + (len as u64) < state.meta.size,
        false => from > state.meta.size || state.is_part(index),
    }
}

/// Adds a transaction's changes of its PG's log and info. `trimmed` remembers how far each PG's log was trimmed.
pub(crate) fn encode_pg(batch: &mut KvBatch, txn: &Transaction, trimmed: &mut Trimmed) {
    if let Some(keep_to) = txn.log_rewind_to {
        // The info sets the tail from now on, perhaps to an older version.
        batch.look_up(Lookup::RewindLog { pg: txn.pg, keep_to }, 0);
        trimmed.remove(&txn.pg);
    }
    for entry in &txn.log {
        codec::put_log(batch, txn.pg, entry);
    }
    if let Some(to) = txn.log_trim_to {
        // Begin after the entries trimmed before, so that the store's range deletions do not overlap.
        let from = trimmed.insert(txn.pg, to).unwrap_or(Eversion::ZERO);
        let (start, mut end) = (keys::log(txn.pg, from.min(to)), keys::log(txn.pg, to));
        end.push(0);
        batch.delete_range(&start, &end);
        batch.put_with(
            |out| out.extend_from_slice(&keys::pg(keys::PG_TAIL, txn.pg)),
            |out, at| codec::push(out, at, |e| e.eversion(to)),
        );
    }
    if let Some(info) = &txn.info {
        put_info(batch, txn.pg, info);
    }
    for child in &txn.split {
        let (from, to, tail) = (txn.pg, child.pg, child.log_tail);
        let bits = child.bits().unwrap_or_default();
        batch.look_up(Lookup::SplitLog { from, to, bits, tail }, log_bytes(child));
        put_info(batch, to, child);
        trimmed.remove(&to);
    }
    let merged = txn.merge.iter().filter(|_| !is_mutated("keep_merged"));
    for pg in merged.chain(txn.forget_pg.then_some(&txn.pg)) {
        let (start, end) = keys::log_range(*pg);
        batch.delete_range(&start, &end);
        [keys::PG_INFO, keys::PG_TAIL].iter().for_each(|kind| batch.delete(&keys::pg(*kind, *pg)));
        trimmed.remove(pg);
    }
}

fn put_info(batch: &mut KvBatch, pg: SpgId, info: &PgInfo) {
    batch.put_with(
        |out| out.extend_from_slice(&keys::pg(keys::PG_INFO, pg)),
        |out, at| codec::push(out, at, |e| e.put(info)),
    );
}

/// Bytes of the log that a child gets, about.
pub(crate) fn log_bytes(child: &PgInfo) -> usize {
    /// Of an entry with a name of usual length, with its key.
    const ENTRY_BYTES: u64 = 160;
    let entries = child.last_update.version.saturating_sub(child.log_tail.version);
    usize::try_from(entries.saturating_mul(ENTRY_BYTES)).unwrap_or(usize::MAX)
}

/// The parts of an object that a step needs in memory, and the space that it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes whose block map must be loaded.
    pub(crate) map: Range<u64>,
    /// Blocks (by index in the object) that keep a part of their content.
    pub(crate) edges: [Option<u64>; 2],
    /// Blocks that it writes, at most.
    pub(crate) blocks: u64,
    /// Frees space on balance, so it may use the reserve.
    pub(crate) reserve: bool,
}

/// The needs of a step, whatever the object's size.
pub(crate) fn needs(step: &Step) -> Needs {
    let partial = |at: u64| (!at.is_multiple_of(BLOCK_BYTES)).then_some(at / BLOCK_BYTES);
    let range = |from: u64, to: u64| {
        let (first, last) = (partial(from), partial(to));
        Needs { map: from..to, edges: [first, last.filter(|_| last != first)], blocks: 0, reserve: false }
    };
    match step {
        Step::Remove | Step::CloneFrom { .. } => Needs { map: 0..u64::MAX, ..Needs::default() },
        Step::Write { off, data, .. } if !data.is_empty() => {
            let end = off.saturating_add(data.len() as u64);
            Needs { blocks: end.div_ceil(BLOCK_BYTES) - off / BLOCK_BYTES, ..range(*off, end) }
        }
        Step::Write { .. } | Step::Zero { len: 0, .. } => Needs::default(),
        Step::Zero { off, len } => {
            let needs = range(*off, off.saturating_add(*len));
            Needs { blocks: needs.edges.iter().flatten().count() as u64, reserve: true, ..needs }
        }
        Step::MarkLost { off, len, .. } => Needs { map: *off..off.saturating_add(*len), ..Needs::default() },
        Step::Truncate { size } => {
            Needs { map: *size..u64::MAX, edges: [partial(*size), None], blocks: 1, reserve: true }
        }
        _ => Needs::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(off: u64, len: usize) -> Needs {
        needs(&Step::Write { off, data: Payload::from(vec![1; len]) })
    }

    #[test]
    fn edges_are_the_blocks_that_are_written_in_part() {
        assert_eq!((write(0, 4096).edges, write(0, 4096).blocks), ([None, None], 1));
        assert_eq!((write(100, 50).edges, write(100, 50).blocks), ([Some(0), None], 1));
        assert_eq!((write(0, 50).edges, write(0, 50).blocks), ([None, Some(0)], 1));
        assert_eq!((write(4095, 2).edges, write(4095, 2).blocks), ([Some(0), Some(1)], 2));
        assert_eq!((write(4096, 8193).edges, write(4096, 8193).blocks), ([None, Some(3)], 3));
        assert_eq!(write(5, 0), Needs::default());
        assert_eq!(needs(&Step::Zero { off: 5, len: 0 }), Needs::default());
        let zero = needs(&Step::Zero { off: 10, len: u64::MAX });
        assert_eq!((zero.edges[0], zero.blocks), (Some(0), 2));
    }
}
