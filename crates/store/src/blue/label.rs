//! The label in the first and the last block of the device (FORMAT.md §2).

use std::ops::Range;
use std::path::Path;

use carmine_types::{OsdId, Uuid, crc32c};

use super::codec::BLOCKS_MAX;
use super::extents::SHARD_BLOCKS;
use crate::{BLOCK_BYTES, StoreError};

const MAGIC: &[u8; 16] = b"carmine-blue\r\n\x1a\n";
/// Version of the whole format.
const VERSION: u32 = 2;
/// Bytes before the checksum.
const BODY_BYTES: usize = 16 + 4 + 16 + 4 + 4 + 4 + 8 + 8 + 8 + 4 + 4;

/// The log takes this part of the device, …
const LOG_PART: u64 = 32;
/// … but at least this, …
const LOG_BYTES_MIN: u64 = 256 << 10;
/// … and at most this: it bounds the time of a mount after a crash.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Segments that the log is cut into, if they are neither too small nor too large.
const LOG_SEGMENTS: u64 = 64;
/// Bytes of the smallest segment, …
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// … and of the largest.
const SEGMENT_BYTES_MAX: u64 = 4 << 20;

/// Where the log lies on a device: segments of equal size, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogArea {
    /// First block.
    pub(crate) start: u64,
    pub(crate) segments: u32,
    /// Blocks of a segment.
    pub(crate) segment_blocks: u32,
}

impl LogArea {
    /// The log of a device of `blocks` blocks: before the label at its end.
    pub(crate) fn of(blocks: u64) -> LogArea {
        let bytes = (blocks * BLOCK_BYTES / LOG_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        let segment_blocks = (bytes / LOG_SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) / BLOCK_BYTES;
        let segments = bytes / BLOCK_BYTES / segment_blocks;
        let start = blocks.saturating_sub(1 + segments * segment_blocks);
        LogArea { start, segments: segments as u32, segment_blocks: segment_blocks as u32 }
    }

    /// Its blocks.
    pub(crate) fn blocks(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.segments) * u64::from(self.segment_blocks)
    }

    /// First block of a segment.
    pub(crate) fn segment(&self, index: u32) -> u64 {
        self.start + u64::from(index) * u64::from(self.segment_blocks)
    }
}

/// Who a device belongs to, and its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The cluster.
    pub fsid: Uuid,
    /// Identity of this store: the device's and the key-value store's labels are equal, or they do not belong together.
    pub osd: OsdId,
    /// Bytes of the device in use, labels included.
    pub size_bytes: u64,
    /// Number drawn at mkfs, so that a device of an earlier life of the same OSD is not taken for this one's.
    pub generation: u64,
    pub(crate) log: LogArea,
}

impl Label {
    /// Blocks of the device, labels included.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.size_bytes / BLOCK_BYTES
    }

    /// The label's bytes, without padding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BODY_BYTES + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.fsid.0);
        out.extend_from_slice(&self.osd.0.to_le_bytes());
        out.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&(SHARD_BLOCKS as u32).to_le_bytes());
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.log.start.to_le_bytes());
        out.extend_from_slice(&self.log.segments.to_le_bytes());
        out.extend_from_slice(&self.log.segment_blocks.to_le_bytes());
        let crc = crc32c::raw(crc32c::SEED, &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a label; `place` is for the error.
    pub(crate) fn decode(place: &Path, bytes: &[u8]) -> Result<Label, StoreError> {
        let refuse = |why: &str| Err(StoreError::unusable(place, why));
        let Some((magic, mut rest)) = bytes.split_first_chunk::<16>() else {
            return refuse("it is too short for a label of blue");
        };
        if magic != MAGIC {
            return refuse("it holds no store of type blue (the label's magic is missing)");
        }
        let Some(version) = take::<4>(&mut rest).map(u32::from_le_bytes) else {
            return refuse("the label of blue is cut short");
        };
        if version != VERSION {
            return refuse(&format!(
                "it holds blue in format {version}, and this program knows format {VERSION}"
            ));
        }
        let sum =
            bytes.get(BODY_BYTES..).and_then(|tail| tail.first_chunk()).map(|sum| u32::from_le_bytes(*sum));
        let found = crc32c::raw(crc32c::SEED, bytes.get(..BODY_BYTES).unwrap_or_default());
        if sum != Some(found) {
            return refuse("the label of blue is damaged (wrong checksum)");
        }
        let label = || {
            let fsid = Uuid(take(&mut rest)?);
            let osd = OsdId(u32::from_le_bytes(take(&mut rest)?));
            let block = u32::from_le_bytes(take(&mut rest)?);
            let shard = u32::from_le_bytes(take(&mut rest)?);
            let size_bytes = u64::from_le_bytes(take(&mut rest)?);
            let generation = u64::from_le_bytes(take(&mut rest)?);
            let log = LogArea {
                start: u64::from_le_bytes(take(&mut rest)?),
                segments: u32::from_le_bytes(take(&mut rest)?),
                segment_blocks: u32::from_le_bytes(take(&mut rest)?),
            };
            let blocks = size_bytes / BLOCK_BYTES;
            let known = u64::from(block) == BLOCK_BYTES && shard as usize == SHARD_BLOCKS;
            let possible = size_bytes.is_multiple_of(BLOCK_BYTES) && (2..=BLOCKS_MAX).contains(&blocks);
            let log_fits = log.start > 0
                && log.segments > 0
                && log.segment_blocks > 0
                && log.start < blocks
                && log.blocks().end < blocks;
            (known && possible && log_fits).then_some(Label { fsid, osd, size_bytes, generation, log })
        };
        match { label }() {
            Some(label) => Ok(label),
            None => refuse("the label of blue has a layout that this program does not know"),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> Label {
        Label {
            fsid: Uuid([7; 16]),
            osd: OsdId(3),
            size_bytes: 1 << 30,
            generation: 99,
            log: LogArea::of(1 << 18),
        }
    }

    #[test]
    fn labels_round_trip_and_every_bit_counts() {
        let place = Path::new("/dev/x");
        let good = label().encode();
        let mut block = good.clone();
        block.resize(4096, 0);
        assert_eq!(Label::decode(place, &block).unwrap(), label());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Label::decode(place, &bad).unwrap_err().to_string();
            assert!(error.contains("/dev/x"), "{error}");
        }
        let other = StoreError::to_string(
            &Label::decode(place, &{
                let mut bytes = good.clone();
                bytes[16] = 1;
                bytes
            })
            .unwrap_err(),
        );
        assert!(other.contains("format 1") && other.contains("format 2"), "{other}");
    }

    #[test]
    fn the_log_fits_on_every_device() {
        for bytes in [4 << 20, (4 << 20) + 4096, 8 << 20, 100_000 * 4096, 1 << 30, 1 << 36, 1 << 44] {
            let blocks = bytes / BLOCK_BYTES;
            let log = LogArea::of(blocks);
            assert_eq!(log.blocks().end, blocks - 1, "{log:?}");
            let taken = log.blocks().count() as u64 * BLOCK_BYTES;
            assert!(log.segments >= 16 && taken <= (bytes / 16).min(LOG_BYTES_MAX), "{log:?} of {bytes}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_errors_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut with_magic = MAGIC.to_vec();
            with_magic.extend_from_slice(&bytes);
            prop_assert!(Label::decode(Path::new("x"), &bytes).is_err());
            prop_assert!(Label::decode(Path::new("x"), &with_magic).is_err());
        }
    }
}
