//! Clones an object by copying its block map, so that both objects have the same blocks. A change of either allocates new blocks,
//! as every change does, since no block is overwritten in place.

use std::rc::Rc;

use carmine_pgtypes::Step;
use carmine_types::ObjectId;

use crate::blue::objects::apply::{Placer, Touched, Work};
use crate::blue::objects::onode::{Onode, OnodeState, Recent};
use crate::kv::Lookup;

impl<P: Placer> Work<P> {
    /// Makes the object a copy of `from`, which is among the sources, with its block map fully loaded.
    pub(crate) fn clone_from(&mut self, object: &mut Touched, state: &mut OnodeState, from: &ObjectId) {
        if *from == object.pin.oid {
            return;
        }
        let source = self.sources.iter().find(|source| source.oid == *from).map(Rc::clone);
        assert!(source.is_some(), "{from} is cloned and was not admitted");
        let Some(source) = source else { return };
        self.apply(&Step::Remove, object, state);
        let found = source.state.borrow();
        if !found.exists {
            return;
        }
        assert!(found.is_loaded(&(0..u64::MAX)), "{from} is cloned with a part of its block map");
        state.exists = true;
        state.meta = found.meta.clone();
        for (piece, extents) in (0u32..).zip(found.map.iter().flatten()) {
            self.placer.share(extents);
            self.pieces += usize::from(!extents.is_empty() && state.dirty.note_piece(piece));
        }
        state.map = found.map.iter().map(|extents| extents.as_ref().map(|extents| extents.copy())).collect();
        if found.meta.has_omap {
            state.omap.copy(state.dirty.window);
            let (from, to) = (source.key.clone(), object.pin.key.clone());
            self.changes.look_up(Lookup::CopyOmap { from, to }, 0);
        }
        let is_prepared = object.pin.is_prepared();
        let at_hand = found.recent.iter().filter(|(_, recent)| recent.writing || is_prepared);
        for (block, Recent { data, writing }) in at_hand {
            state.recent.insert(*block, Recent { data: data.clone(), writing: *writing });
        }
        let is_writing = found.recent.values().any(|recent| recent.writing);
        drop(found);
        if is_writing {
            source.add_heir(&object.pin);
        }
        (object.resized, object.remapped) = (true, true);
    }
}

impl Onode {
    /// Adds a copy of this object that has blocks with writes in flight: it must be notified, too, when they are done.
    fn add_heir(&self, heir: &Rc<Onode>) {
        let mut state = self.state.borrow_mut();
        if !state.heirs.iter().any(|known| Rc::ptr_eq(known, heir)) {
            state.heirs.push(Rc::clone(heir));
        }
    }

    /// Notifies the copies of this object that the write of a block is done.
    pub(crate) fn notify_heirs(&self, block: u64) {
        let heirs = {
            let mut state = self.state.borrow_mut();
            let is_writing = state.recent.values().any(|recent| recent.writing);
            if is_writing { state.heirs.clone() } else { std::mem::take(&mut state.heirs) }
        };
        for heir in heirs {
            // Objects may be copies of each other: each is notified once.
            let waits = heir.state.borrow().recent.get(&block).is_some_and(|recent| recent.writing);
            if waits {
                heir.note_written(block);
            }
        }
    }
}
