//! [`Claims`]: the blocks that block maps claim, and whether they may: what is free and what is shared follows from it.

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

    /// A piece has this block. A block has one piece that wrote it, or none any more; all others came by it with a clone, and say
    /// so.
    ///
    /// # Errors
    /// Why it may not have it.
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

    /// The space when all pieces have said what they have.
    pub(crate) fn space(self) -> Space {
        let Claims { mut space, .. } = self;
        let copied: Vec<u64> = space.references().all().map(|(block, _)| block).collect();
        for block in copied {
            // The piece that wrote it is gone: one of the copies stands for it.
            if space.mark(block) {
                space.references().drop_reference(block);
            }
        }
        space.references_mut().shrink();
        space
    }
}

/// All pieces that share a block have the same checksum for it: they came by it as a copy, and nobody wrote to it since.
#[derive(Default)]
pub(crate) struct SharedSums(HashMap<u64, u32, FixedState>);

impl SharedSums {
    /// A piece has this entry. The checksum that another has for the block, if it is another one.
    pub(crate) fn conflicting_sum(&mut self, space: &Space, entry: Entry) -> Option<u32> {
        if space.references().count(entry.block()) == 0 {
            return None;
        }
        let known = *self.0.entry(entry.block()).or_insert(entry.crc());
        (known != entry.crc()).then_some(known)
    }
}
