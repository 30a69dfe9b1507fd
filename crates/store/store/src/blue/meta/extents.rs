//! [`Extents`]: the block map of 64 consecutive blocks of an object.

use carmine_codec::{Decoder, Result};

use crate::blue::device::PIECE_BLOCKS;

/// Bytes of object that one piece covers.
pub(crate) const PIECE_BYTES: u64 = PIECE_BLOCKS as u64 * crate::BLOCK_BYTES;

/// The last block of the largest device: it holds a label, never data.
const LOST_BLOCK: u64 = crate::blue::device::BLOCKS_MAX - 1;

/// Where a block of an object is, and its checksum; or a hole. Twelve bytes, since there are so many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry([u32; 3]);

impl Entry {
    /// Block number 0 (which is the label, never data) is a hole.
    pub(crate) fn new(block: u64, crc: u32) -> Entry {
        if block == 0 { Entry::default() } else { Entry([block as u32, (block >> 32) as u32, crc]) }
    }

    pub(crate) fn block(self) -> u64 {
        let [low, high, _] = self.0;
        u64::from(high) << 32 | u64::from(low)
    }

    /// CRC32C of the block, seed [`carmine_types::crc32c::SEED`].
    pub(crate) fn crc(self) -> u32 {
        let [_, _, crc] = self.0;
        crc
    }

    pub(crate) fn is_hole(self) -> bool {
        self.block() == 0
    }

    /// The entry of a lost block, with its checksum; zero: unknown. No device has a block with its number.
    pub(crate) fn lost(crc: u32) -> Entry {
        Entry::new(LOST_BLOCK, crc)
    }

    pub(crate) fn is_lost(self) -> bool {
        self.block() == LOST_BLOCK
    }

    /// Whether it names a block of the device.
    pub(crate) fn has_block(self) -> bool {
        !self.is_hole() && !self.is_lost()
    }
}

/// Up to [`PIECE_BLOCKS`] entries; missing ones are holes, and the last one is not a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    entries: Vec<Entry>,
    /// Set if it was copied by a clone: other objects may have its blocks, too.
    is_copy: bool,
    /// One bit per block that was written only in part: see [`crate::Store::in_part`].
    parts: u64,
}

impl Extents {
    pub(crate) fn get(&self, index: usize) -> Entry {
        self.entries.get(index).copied().unwrap_or_default()
    }

    /// Replaces an entry (`index` below [`PIECE_BLOCKS`], or nothing happens); returns the old one.
    pub(crate) fn set(&mut self, index: usize, entry: Entry) -> Entry {
        let old = self.get(index);
        if index >= PIECE_BLOCKS {
            return old;
        }
        if index >= self.entries.len() && !entry.is_hole() {
            self.entries.resize(index + 1, Entry::default());
        }
        if let Some(slot) = self.entries.get_mut(index) {
            *slot = entry;
        }
        if self.parts != 0 {
            self.parts &= !(1 << index);
        }
        while self.entries.last().is_some_and(|entry| entry.is_hole()) {
            self.entries.pop();
        }
        old
    }

    /// The same for a clone.
    pub(crate) fn copy(&self) -> Extents {
        Extents { entries: self.entries.clone(), is_copy: true, parts: self.parts }
    }

    /// Whether a block was written only in part.
    pub(crate) fn is_part(&self, index: usize) -> bool {
        index < PIECE_BLOCKS && self.parts & 1 << index != 0
    }

    /// Marks a block as written only in part, until it is replaced; false if it is a hole.
    pub(crate) fn set_part(&mut self, index: usize) -> bool {
        let has_block = !self.get(index).is_hole();
        if has_block {
            self.parts |= 1 << index;
        }
        has_block
    }

    /// One bit per block that was written only in part.
    pub(crate) fn parts(&self) -> u64 {
        self.parts
    }

    /// Sets the bits of blocks written only in part, where the blocks exist.
    pub(crate) fn with_parts(self, parts: u64) -> Extents {
        let known = 1u64.checked_shl(self.entries.len() as u32).map_or(u64::MAX, |end| end - 1);
        Extents { parts: parts & known, ..self }
    }

    /// Whether it was copied by a clone.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries up to the last that is not a hole.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

/// The number of a block as it is stored: five bytes.
pub(crate) fn get_block(d: &mut Decoder<'_>) -> Result<u64> {
    let [a, b, c, d, e] = d.array()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_holes_are_cut() {
        let mut extents = Extents::default();
        assert!(extents.set(63, Entry::new(1 << 39, 7)).is_hole());
        assert_eq!(extents.get(63).block(), 1 << 39);
        extents.set(3, Entry::new(5, 1));
        assert_eq!(extents.set(63, Entry::default()), Entry::new(1 << 39, 7));
        assert_eq!(extents.entries().len(), 4);
        extents.set(3, Entry::new(0, 9));
        assert!(extents.is_empty());
        extents.set(64, Entry::new(5, 1));
        assert!(extents.is_empty());
    }

    #[test]
    fn a_block_is_in_part_until_it_is_replaced() {
        let mut extents = Extents::default();
        assert!(!extents.set_part(3), "it is a hole");
        for index in [3, 63] {
            extents.set(index, Entry::new(5, 1));
            assert!(!extents.is_part(index) && extents.set_part(index) && extents.is_part(index));
        }
        assert!(extents.copy().is_part(3));
        extents.set(3, Entry::new(6, 1));
        extents.set(63, Entry::default());
        assert_eq!(extents.parts(), 0);
        assert_eq!(extents.with_parts(u64::MAX).parts(), 0b1111);
    }
}
