//! [`Claims`]: checks the blocks that block maps claim, and derives which are free and which are shared.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::blue::device::label::Label;
use crate::blue::device::space::Space;
use crate::blue::meta::extents::{Entry, Extents};

/// Collects the claims of pieces of block maps, in any order.
pub(crate) struct Claims {
    space: Space,
    label: Label,
}

impl Claims {
    pub(crate) fn new(label: &Label) -> Claims {
        Claims { space: Space::for_label(label), label: label.clone() }
    }

    /// Notes that a piece has this block. At most one piece of a block wrote it; all others are marked as copied by a clone.
    ///
    /// # Errors
    /// Why the piece may not have it.
    pub(crate) fn claim(&self, piece: &Extents, block: u64) -> Result<(), &'static str> {
        if !self.label.holds_data(block, 1) {
            return Err("is outside of the data");
        }
        if piece.is_copy() {
            self.space.references().add([block]);
            return Ok(());
        }
        if self.space.mark(block) { Ok(()) } else { Err("another object has too") }
    }

    /// The space, after all pieces have been claimed.
    pub(crate) fn space(self) -> Space {
        let Claims { mut space, .. } = self;
        let copied: Vec<u64> = space.references().all().map(|(block, _)| block).collect();
        for block in copied {
            // The piece that wrote it is gone: one of the copies takes its place.
            if space.mark(block) {
                space.references().drop_reference(block);
            }
        }
        space.references_mut().shrink();
        space
    }
}

/// Checks that all pieces that share a block have the same checksum for it, since they are copies.
#[derive(Default)]
pub(crate) struct SharedSums(HashMap<u64, u32, FixedState>);

impl SharedSums {
    /// Notes an entry of a piece; returns the checksum that another piece has for the block, if it differs.
    pub(crate) fn conflicting_sum(&mut self, space: &Space, entry: Entry) -> Option<u32> {
        if space.references().count(entry.block()) == 0 {
            return None;
        }
        let known = *self.0.entry(entry.block()).or_insert(entry.crc());
        (known != entry.crc()).then_some(known)
    }
}
