//! Where the parts of a frame lie, and how they are protected.

use std::ops::Range;

use carmine_types::crc32c::{self, BLOCK_BYTES};

use super::{CRC_BYTES, EPILOGUE_BYTES, Epilogue, Preamble, SEGMENTS_MAX};
use crate::{DecodeError, Decoder, Result};

/// The layout of a connection's frames. All bytes are given mutably, so that a mode that encrypts can decrypt them
/// in place; lengths are those on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// crc mode: nothing is padded; a checksum is behind segment 0, those of the others are in the epilogue.
    #[default]
    Crc,
}

impl Codec {
    /// Length of all that follows the preamble.
    pub fn body_bytes(self, preamble: &Preamble) -> usize {
        self.segment_range(preamble, SEGMENTS_MAX).start + self.epilogue_bytes(preamble)
    }

    /// Where a segment lies, counted from the end of the preamble. Segment 0 is without its checksum.
    pub fn segment_range(self, preamble: &Preamble, index: usize) -> Range<usize> {
        let before: usize = (1..index).map(|i| self.segment_bytes(preamble, i)).sum();
        let start = if index == 0 { 0 } else { self.head_bytes(preamble) + before };
        start..start + preamble.len(index)
    }

    /// Length of segment 0 with what protects it.
    pub fn head_bytes(self, preamble: &Preamble) -> usize {
        match (self, preamble.len(0)) {
            (Codec::Crc, 0) => 0,
            (Codec::Crc, len) => len + CRC_BYTES,
        }
    }

    /// Length of a segment from 1 on, as it is sent.
    #[inline]
    pub fn segment_bytes(self, preamble: &Preamble, index: usize) -> usize {
        match self {
            Codec::Crc => preamble.len(index),
        }
    }

    /// Length of what ends the frame.
    #[inline]
    pub fn epilogue_bytes(self, preamble: &Preamble) -> usize {
        match self {
            Codec::Crc if preamble.count > 1 => EPILOGUE_BYTES,
            Codec::Crc => 0,
        }
    }

    /// Reads and checks a preamble.
    pub(super) fn preamble(self, bytes: &mut [u8]) -> Result<Preamble> {
        match self {
            Codec::Crc => Preamble::decode(bytes),
        }
    }

    /// Checks segment 0 of `head`, which is it and what protects it, and returns it.
    pub(super) fn head<'a>(self, preamble: &Preamble, head: &'a mut [u8]) -> Result<&'a [u8]> {
        let Codec::Crc = self;
        let mut d = Decoder::new(head, "segment 0");
        let segment = d.bytes(preamble.len(0))?;
        if segment.is_empty() {
            return Ok(segment);
        }
        let found = d.u32()?;
        let computed = crc32c::raw(crc32c::SEED, segment);
        if found != computed {
            return Err(DecodeError::BadCrc { what: "segment 0", found, computed });
        }
        Ok(segment)
    }

    /// Takes the next bytes of a segment from 1 on: `crc` is that of the bytes before them.
    #[inline]
    pub(super) fn piece(self, crc: &mut u32, bytes: &mut [u8]) {
        match self {
            Codec::Crc => *crc = crc32c::raw(*crc, bytes),
        }
    }

    /// The same. If these are two or more whole blocks of data, their checksums are added to `block_crcs`.
    #[inline]
    pub(super) fn data(self, crc: &mut u32, bytes: &mut [u8], block_crcs: &mut Vec<u32>) {
        if bytes.len() < 2 * BLOCK_BYTES || !bytes.len().is_multiple_of(BLOCK_BYTES) {
            return self.piece(crc, bytes);
        }
        self.blocks(crc, bytes, block_crcs);
    }

    /// The checksum of several blocks follows from theirs.
    #[inline(never)]
    fn blocks(self, crc: &mut u32, bytes: &mut [u8], block_crcs: &mut Vec<u32>) {
        let Codec::Crc = self;
        block_crcs.reserve(bytes.len() / BLOCK_BYTES);
        for block in bytes.chunks(BLOCK_BYTES) {
            let one = crc32c::raw(crc32c::SEED, block);
            block_crcs.push(one);
            *crc = crc32c::combine_block(*crc, one);
        }
    }

    /// Checks the end of a frame of several segments against their checksums. True: its sender gave it up, so that
    /// nothing of it counts.
    pub(super) fn end(
        self,
        preamble: &Preamble,
        crcs: [u32; SEGMENTS_MAX - 1],
        end: &mut [u8],
    ) -> Result<bool> {
        let Codec::Crc = self;
        let epilogue = Epilogue::decode(end)?;
        if !epilogue.aborted {
            epilogue.verify(preamble, crcs)?;
        }
        Ok(epilogue.aborted)
    }
}
