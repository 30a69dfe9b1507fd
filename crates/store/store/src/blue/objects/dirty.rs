//! [`Dirty`]: the parts of an object that changed since its keys were encoded. A transaction only notes them; an object that is
//! written a thousand times is encoded once, when the index is fed.

use smallvec::SmallVec;

use crate::blue::meta::{codec, keys};
use crate::blue::objects::onode::Onode;
use crate::kv::KvBatch;

/// Changes of an object that its keys do not have yet.
#[derive(Default)]
pub(crate) struct Dirty {
    /// The window that the changes belong to, from 1; 0: nothing changed.
    pub(crate) window: u64,
    /// Whether the object existed before.
    existed: bool,
    /// Pieces of the block map that changed, in order.
    pieces: SmallVec<[u32; 4]>,
}

impl Dirty {
    /// Notes that the object is about to change; `exists` says whether it exists now.
    pub(crate) fn begin(&mut self, window: u64, exists: bool) {
        *self = Dirty { window, existed: exists, pieces: SmallVec::new() };
    }

    /// Notes a changed piece of the block map; true if it had not changed before.
    pub(crate) fn note_piece(&mut self, piece: u32) -> bool {
        match self.pieces.binary_search(&piece) {
            Ok(_) => false,
            Err(at) => {
                self.pieces.insert(at, piece);
                true
            }
        }
    }
}

impl Onode {
    /// Appends the changed keys with their present values, with at most `pieces_max` pieces of the block map; false if there are
    /// more.
    pub(crate) fn encode(&self, batch: &mut KvBatch, pieces_max: usize) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if !state.exists && !state.dirty.existed {
            state.dirty = Dirty::default(); // the index never hears of it
            return true;
        }
        let count = state.dirty.pieces.len().min(pieces_max);
        for piece in state.dirty.pieces.drain(..count) {
            match state.map.get(piece as usize) {
                Some(Some(extents)) if !extents.is_empty() => batch.put_with(
                    |out| keys::push_extents(out, &self.key, piece),
                    |out, at| codec::push_extents(out, at, extents),
                ),
                _ => batch.delete(&keys::extents(&self.key, piece)),
            }
        }
        if !state.dirty.pieces.is_empty() {
            return false;
        }
        if state.exists {
            batch.put_with(
                |out| keys::push_onode(out, &self.key),
                |out, at| codec::push(out, at, |e| e.put(&state.meta)),
            );
        } else {
            batch.delete(&keys::onode(&self.key));
        }
        state.dirty = Dirty::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::ObjectId;

    use super::*;
    use crate::blue::meta::extents::Entry;
    use crate::blue::objects::onode::OnodeState;

    fn onode() -> std::rc::Rc<Onode> {
        Onode::new(ObjectId::head(1, b"", b"", b"o"), OnodeState::default())
    }

    fn change(onode: &Onode, window: u64, change: impl FnOnce(&mut OnodeState)) {
        let mut state = onode.state.borrow_mut();
        if state.dirty.window == 0 {
            let exists = state.exists;
            state.dirty.begin(window, exists);
        }
        change(&mut state);
    }

    #[test]
    fn many_changes_are_one_value_of_each_key() {
        let onode = onode();
        for n in 1..=100 {
            change(&onode, 7, |state| {
                state.exists = true;
                state.set_entry(n % 70, Entry::new(n, 1));
                assert_eq!(state.dirty.note_piece((n % 70 / 64) as u32), n == 1 || n == 64);
            });
        }
        let mut batch = KvBatch::default();
        assert!(!onode.encode(&mut batch, 1));
        assert!(onode.encode(&mut batch, 1));
        assert_eq!((batch.len(), onode.state.borrow().dirty.window), (3, 0));
    }

    #[test]
    fn what_came_and_went_in_between_is_no_change() {
        let (onode, mut batch) = (onode(), KvBatch::default());
        change(&onode, 1, |state| state.exists = true);
        change(&onode, 1, |state| {
            state.exists = false;
            state.dirty.note_piece(0);
        });
        assert!(onode.encode(&mut batch, usize::MAX) && batch.is_empty());
        onode.state.borrow_mut().exists = true;
        change(&onode, 2, |state| state.exists = false);
        assert!(onode.encode(&mut batch, usize::MAX));
        assert_eq!(batch.len(), 1, "it is removed");
    }
}
