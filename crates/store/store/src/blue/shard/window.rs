//! [`Windows`]: the changes of metadata that the key-value store lacks. Meanwhile only the log and the objects in memory have
//! them.
//!
//! A window is a run of a shard's transactions. While it is open, changes are only noted. When it is closed, each of its objects
//! is encoded as it was at that moment, so that the key-value store gets the last value of each key; an object about to change
//! again is encoded before that. A group of the log has transactions of one window only. So when all of a window is durable, the
//! key-value store gets the state after the last of its groups, and nothing later.
//!
//! A window uses only a small part of the log, and so do transactions waiting to be logged: a full log contains whole windows,
//! and can be trimmed.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use carmine_types::is_mutated;

use crate::blue::objects::onode::{Onode, Pin};
use crate::kv::KvBatch;

/// Bytes in memory after which a window is closed.
const WINDOW_BYTES: usize = 8 << 20;
/// A window uses at most this part of the log, divided by the number of shards.
const LOG_PART: u64 = 8;
/// What an object counts for besides its key and xattrs, and what a piece of a block map counts for, bytes.
const OBJECT_BYTES: usize = 256;
const PIECE_BYTES: usize = 800;

/// Transactions that are fed to the key-value store together.
#[derive(Default)]
pub(crate) struct Window {
    number: u64,
    /// Number of the first transaction after it, when it is closed.
    end: u64,
    /// Its last group, when all of it is durable.
    group: Option<u64>,
    /// Set if it has one transaction, which fits into no group.
    around: bool,
    txns: u64,
    /// Blocks that it uses in the log; an upper bound for transactions not yet logged.
    blocks: u64,
    changes: Changes,
}

/// The changes of a window.
#[derive(Default)]
pub(crate) struct Changes {
    /// Changes of omaps and PGs, in order; then the keys of objects.
    pub(crate) batch: KvBatch,
    /// Objects that changed. They cannot be loaded from the key-value store yet, so they stay in the cache.
    pub(crate) objects: Vec<Pin>,
    /// Objects that were created or removed, for listings.
    pub(crate) existence: Vec<Box<[u8]>>,
    /// Bytes in memory.
    pub(crate) bytes: usize,
}

/// The windows of a shard not handed to the feeder yet.
pub(crate) struct Windows {
    /// Oldest first.
    closed: VecDeque<Window>,
    open: Window,
    /// Most blocks of the log that a window uses, unless it has only one transaction.
    blocks_max: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { closed: VecDeque::new(), open: Window { number: 1, ..Window::default() }, blocks_max: 1 }
    }
}

impl Windows {
    /// Windows for a log of `log_blocks` shared by `shards`.
    pub(crate) fn new(log_blocks: u64, shards: u16) -> Windows {
        Windows { blocks_max: (log_blocks / LOG_PART / u64::from(shards)).max(1), ..Windows::default() }
    }

    /// Whether the open window has no room for a transaction with this many blocks of the log.
    pub(crate) fn is_full_for(&self, blocks: u64) -> bool {
        let Window { txns, blocks: taken, changes, around, .. } = &self.open;
        let bytes = changes.bytes.max(changes.batch.expanded_bytes());
        *txns > 0 && (*around || taken + blocks > self.blocks_max || bytes >= WINDOW_BYTES)
    }

    /// Closes the open window before transaction `next`; `group` is the last of the log if nothing is in flight.
    pub(crate) fn close(&mut self, next: u64, group: Option<u64>) {
        if self.open.txns == 0 {
            return;
        }
        let open = Window { number: self.open.number + 1, ..Window::default() };
        let mut closed = std::mem::replace(&mut self.open, open);
        (closed.end, closed.group) = (next, group);
        self.closed.push_back(closed);
    }

    /// Notes that an object is about to change in the open window. If an earlier window has changed it, that window's batch gets
    /// its state first.
    pub(crate) fn touch(&mut self, onode: &Rc<Onode>) {
        let (window, exists) = {
            let state = onode.state.borrow();
            (state.dirty.window, state.exists)
        };
        if window == self.open.number {
            return;
        }
        if let Some(earlier) = self.closed_mut(window)
            && !is_mutated("forget_window")
        {
            onode.encode(&mut earlier.changes.batch, usize::MAX);
        }
        let mut state = onode.state.borrow_mut();
        state.dirty.begin(self.open.number, exists);
        let changes = &mut self.open.changes;
        changes.bytes += OBJECT_BYTES + onode.key.len() + state.meta.xattrs.bytes();
        changes.objects.push(Pin::new(onode));
    }

    /// Takes the batch of the open window, which [`enter`](Windows::enter) returns.
    pub(crate) fn take_batch(&mut self) -> KvBatch {
        std::mem::take(&mut self.open.changes.batch)
    }

    /// Adds a transaction to the open window, with `pieces` of block maps that had not changed in it before.
    pub(crate) fn enter(
        &mut self,
        (batch, more): (KvBatch, usize),
        pieces: usize,
        existence: Vec<Box<[u8]>>,
        (blocks, around): (u64, bool),
    ) {
        let Window { txns, blocks: taken, changes, around: alone, .. } = &mut self.open;
        changes.batch = batch;
        changes.bytes += more + pieces * PIECE_BYTES;
        changes.existence.extend(existence);
        (*txns, *taken, *alone) = (*txns + 1, *taken + blocks, around);
    }

    /// Bytes of the open window in memory.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.changes.bytes
    }

    /// The first transaction after `number` that must not be in the same group.
    pub(crate) fn end_of(&self, number: u64) -> u64 {
        self.closed.iter().map(|window| window.end).find(|end| *end > number).unwrap_or(u64::MAX)
    }

    /// Notes that the transactions of a range are in a group of `blocks`, instead of the `most` counted for them.
    pub(crate) fn note_logged(&mut self, txns: Range<u64>, blocks: u64, most: u64) {
        let end = self.end_of(txns.start);
        assert!(txns.end <= end, "transactions {txns:?} are one group, and a window ends before {end}");
        if end == u64::MAX {
            self.open.blocks = (self.open.blocks + blocks).saturating_sub(most);
        }
    }

    /// Notes that all transactions before `next` are durable, the last of them in group `seq`. True if that completes a window.
    pub(crate) fn note_durable(&mut self, next: u64, seq: u64) -> bool {
        let window = self.closed.iter_mut().find(|window| window.end == next);
        window.map(|window| window.group = Some(seq)).is_some()
    }

    /// The oldest window's number and last group, if all of it is durable in groups up to `seq`.
    pub(crate) fn feedable(&self, seq: u64) -> Option<(u64, u64)> {
        let window = self.closed.front().filter(|window| !window.around)?;
        Some((window.number, window.group.filter(|group| *group <= seq)?))
    }

    /// The window of a transaction that goes around the log, if all earlier ones were handed to the feeder.
    pub(crate) fn around(&self) -> Option<u64> {
        self.closed.front().filter(|window| window.around).map(|window| window.number)
    }

    /// Encodes objects of a closed window from the `from`th on, about `keys_max` keys. Returns where to continue; `None`: nothing
    /// is left.
    pub(crate) fn encode(&mut self, number: u64, from: usize, keys_max: usize) -> Option<usize> {
        let Changes { batch, objects, .. } = &mut self.closed_mut(number)?.changes;
        let until = batch.len() + keys_max;
        for (at, object) in objects.iter().enumerate().skip(from) {
            if batch.len() >= until {
                return Some(at);
            }
            // Otherwise it has changed since, and was encoded then.
            if object.state.borrow().dirty.window == number
                && !object.encode(batch, until.saturating_sub(batch.len()))
            {
                return Some(at);
            }
        }
        None
    }

    /// Removes the oldest window; returns the number of the first transaction after it, and its changes.
    pub(crate) fn pop(&mut self) -> Option<(u64, Changes)> {
        let window = self.closed.pop_front()?;
        Some((window.end, window.changes))
    }

    fn closed_mut(&mut self, number: u64) -> Option<&mut Window> {
        let index = number.checked_sub(self.closed.front()?.number)?;
        self.closed.get_mut(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::ObjectId;

    use super::*;
    use crate::blue::objects::onode::OnodeState;

    fn onode(name: &[u8]) -> Rc<Onode> {
        Onode::new(ObjectId::head(1, b"", b"", name), OnodeState { exists: true, ..OnodeState::default() })
    }

    fn enter(windows: &mut Windows, onode: &Rc<Onode>, size: u64) {
        windows.touch(onode);
        onode.state.borrow_mut().meta.size = size;
        let batch = windows.take_batch();
        windows.enter((batch, 10), 0, Vec::new(), (2, false));
    }

    #[test]
    fn a_closed_window_has_its_objects_as_they_were_when_it_was_closed() {
        let (a, b, mut windows) = (onode(b"a"), onode(b"b"), Windows::new(160, 1));
        for size in 1..5 {
            enter(&mut windows, &a, size);
            enter(&mut windows, &b, size);
        }
        assert!(!windows.is_full_for(0));
        windows.close(8, None);
        enter(&mut windows, &a, 99);
        assert_eq!((windows.end_of(7), windows.end_of(8)), (8, u64::MAX));
        assert_eq!(
            (windows.feedable(5), windows.note_durable(7, 4), windows.note_durable(8, 5)),
            (None, false, true)
        );
        assert_eq!((windows.feedable(4), windows.feedable(5)), (None, Some((1, 5))));
        assert_eq!(windows.encode(1, 0, 100), None);
        let (end, changes) = windows.pop().unwrap();
        assert_eq!((end, changes.batch.len(), changes.objects.len()), (8, 2, 2));
        assert!(a.is_pinned() && b.state.borrow().dirty.window == 0);
        drop(changes);
        assert!(a.is_pinned() && !b.is_pinned());
    }

    #[test]
    fn a_window_takes_a_part_of_the_log() {
        let (a, mut windows) = (onode(b"a"), Windows::new(160, 2));
        for n in 0..5 {
            assert!(!windows.is_full_for(2), "{n}");
            enter(&mut windows, &a, n);
        }
        assert!(windows.is_full_for(1));
        windows.note_logged(0..5, 1, 10);
        assert!(!windows.is_full_for(9) && windows.is_full_for(10));
        windows.close(5, Some(1));
        assert!(!windows.is_full_for(1000), "one transaction may be larger");
    }

    #[test]
    fn encoding_goes_on_where_it_was_left() {
        let objects: Vec<_> = (0..10u8).map(|n| onode(&[n])).collect();
        let mut windows = Windows::new(1000, 1);
        objects.iter().for_each(|object| enter(&mut windows, object, 1));
        windows.close(10, Some(1));
        let (mut at, mut rounds) = (Some(0), 0);
        while let Some(from) = at {
            (at, rounds) = (windows.encode(1, from, 3), rounds + 1);
        }
        assert_eq!((rounds, windows.pop().unwrap().1.batch.len()), (4, 10));
    }
}
