//! The label in the first and the last block of the device (FORMAT.md §2).

use std::path::Path;

use carmine_types::{OsdId, Uuid, crc32c};

use super::codec::BLOCKS_MAX;
use super::extents::SHARD_BLOCKS;
use crate::{BLOCK_BYTES, StoreError};

const MAGIC: &[u8; 16] = b"carmine-blue\r\n\x1a\n";
/// Version of the whole format.
const VERSION: u32 = 1;
/// Bytes before the checksum.
const BODY_BYTES: usize = 16 + 4 + 16 + 4 + 4 + 4 + 8 + 8;

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
            let blocks = size_bytes / BLOCK_BYTES;
            let known = u64::from(block) == BLOCK_BYTES && shard as usize == SHARD_BLOCKS;
            let possible = size_bytes.is_multiple_of(BLOCK_BYTES) && (2..=BLOCKS_MAX).contains(&blocks);
            (known && possible).then_some(Label { fsid, osd, size_bytes, generation })
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
        Label { fsid: Uuid([7; 16]), osd: OsdId(3), size_bytes: 1 << 30, generation: 99 }
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
        let newer = StoreError::to_string(
            &Label::decode(place, &{
                let mut bytes = good.clone();
                bytes[16] = 2;
                bytes
            })
            .unwrap_err(),
        );
        assert!(newer.contains("format 2"), "{newer}");
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
