//! Blocks that say who they are. Layout of the first 64 bytes, little-endian; the rest of the block is pseudo-random:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `CRMBLOCK` |
//! | 8 | 8 | seed of the load |
//! | 16 | 8 | object index |
//! | 24 | 8 | offset of the block in its object |
//! | 32 | 8 | sequence number of the write to this block, from 1 |
//! | 40 | 4 | length of the block |
//! | 44 | 4 | CRC32C (Ceph's convention, seed 0) of the block with these four bytes 0 |
//! | 48 | 16 | zero |

use carmine_types::crc32c;
use thiserror::Error;

use crate::rng::Rng;

/// Bytes of the header: the smallest block that can be verified.
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"CRMBLOCK";
const CRC_AT: usize = 44;

/// Who a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    pub seed: u64,
    pub object: u32,
    pub offset: u64,
}

/// A block that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    #[error("{found} bytes of {want}")]
    Short { found: usize, want: usize },
    #[error("all zeros, but write {acked} was acknowledged")]
    Zeros { acked: u32 },
    #[error("no verify header (was it written without --verify?)")]
    NoHeader,
    #[error("a block of {found} bytes is there: data of a load with another --bs")]
    OtherSize { found: u32 },
    #[error("checksum is {found:#010x}, the content has {want:#010x}: torn or corrupt")]
    Checksum { found: u32, want: u32 },
    #[error("block of object {object} offset {offset} seed {seed}: data of another place")]
    Foreign { object: u64, offset: u64, seed: u64 },
    #[error("write {found} is there, but write {acked} was acknowledged: a lost write")]
    Stale { found: u64, acked: u32 },
    #[error("write {found} is there, but only {issued} were issued")]
    Future { found: u64, issued: u32 },
}

/// Fills `block` (at least [`HEADER_BYTES`]) with write number `sequence` of `id`.
pub fn seal(block: &mut [u8], id: &BlockId, sequence: u32) {
    let stream = u64::from(id.object) << 40 ^ id.offset ^ u64::from(sequence) << 20;
    Rng::new(id.seed, stream).fill(block);
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let mut header = [0u8; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&id.seed.to_le_bytes());
    header[16..24].copy_from_slice(&u64::from(id.object).to_le_bytes());
    header[24..32].copy_from_slice(&id.offset.to_le_bytes());
    header[32..40].copy_from_slice(&u64::from(sequence).to_le_bytes());
    header[40..44].copy_from_slice(&length.to_le_bytes());
    let Some(room) = block.first_chunk_mut::<HEADER_BYTES>() else { return };
    *room = header;
    let crc = content_crc(block);
    if let Some(field) = block.get_mut(CRC_AT..CRC_AT + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Checks what was read of `id`: a whole block of ours, and `acked` ≤ its sequence number ≤ `issued`. Returns the number
/// found. A block of which no write of this load was ever acknowledged (`acked` 0) may hold anything but a damaged block:
/// then 0 for what is not ours.
pub fn check(
    block: &[u8],
    want_bytes: usize,
    id: &BlockId,
    acked: u32,
    issued: u32,
) -> Result<u32, Mismatch> {
    match inspect(block, want_bytes, id, acked) {
        Ok(found) if found < u64::from(acked) => Err(Mismatch::Stale { found, acked }),
        Ok(found) if found > u64::from(issued) => Err(Mismatch::Future { found, issued }),
        // Bounded by `issued` here.
        Ok(found) => Ok(u32::try_from(found).unwrap_or(issued)),
        Err(Mismatch::Checksum { found, want }) => Err(Mismatch::Checksum { found, want }),
        Err(_) if acked == 0 => Ok(0),
        Err(mismatch) => Err(mismatch),
    }
}

fn inspect(block: &[u8], want_bytes: usize, id: &BlockId, acked: u32) -> Result<u64, Mismatch> {
    let header = match block.first_chunk::<HEADER_BYTES>() {
        Some(header) if block.len() == want_bytes => header,
        _ => return Err(Mismatch::Short { found: block.len(), want: want_bytes }),
    };
    if header[0..8] != MAGIC {
        let zeros = block.iter().all(|b| *b == 0);
        return Err(if zeros { Mismatch::Zeros { acked } } else { Mismatch::NoHeader });
    }
    let u64_at = |at: usize| header[at..at + 8].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let u32_at = |at: usize| header[at..at + 4].iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
    if u32_at(40) as usize != want_bytes {
        return Err(Mismatch::OtherSize { found: u32_at(40) });
    }
    let (found, want) = (u32_at(CRC_AT), content_crc(block));
    if found != want {
        return Err(Mismatch::Checksum { found, want });
    }
    let (seed, object, offset) = (u64_at(8), u64_at(16), u64_at(24));
    if (seed, object, offset) != (id.seed, u64::from(id.object), id.offset) {
        return Err(Mismatch::Foreign { object, offset, seed });
    }
    Ok(u64_at(32))
}

/// CRC of the block as if its CRC field were zero.
fn content_crc(block: &[u8]) -> u32 {
    let (head, rest) = block.split_at(CRC_AT.min(block.len()));
    let tail = rest.get(4..).unwrap_or_default();
    crc32c::raw(crc32c::raw(crc32c::raw(0, head), &[0; 4]), tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: BlockId = BlockId { seed: 9, object: 3, offset: 8192 };

    fn sealed(sequence: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        seal(&mut block, &ID, sequence);
        block
    }

    #[test]
    fn window_of_sequence_numbers() {
        let block = sealed(5);
        assert_eq!(check(&block, 4096, &ID, 5, 5), Ok(5));
        assert_eq!(check(&block, 4096, &ID, 3, 8), Ok(5));
        assert_eq!(check(&block, 4096, &ID, 6, 8), Err(Mismatch::Stale { found: 5, acked: 6 }));
        assert_eq!(check(&block, 4096, &ID, 1, 4), Err(Mismatch::Future { found: 5, issued: 4 }));
    }

    #[test]
    fn what_was_never_acknowledged_may_be_missing() {
        assert_eq!(check(&[], 4096, &ID, 0, 3), Ok(0));
        assert_eq!(check(&[0; 4096], 4096, &ID, 0, 3), Ok(0));
        assert_eq!(check(&[7; 4096], 4096, &ID, 0, 0), Ok(0));
        assert_eq!(check(&[], 4096, &ID, 1, 3), Err(Mismatch::Short { found: 0, want: 4096 }));
        assert_eq!(check(&[0; 4096], 4096, &ID, 1, 3), Err(Mismatch::Zeros { acked: 1 }));
        assert_eq!(check(&[7; 4096], 4096, &ID, 1, 3), Err(Mismatch::NoHeader));
    }

    #[test]
    fn other_places_are_recognised() {
        for other in [BlockId { seed: 8, ..ID }, BlockId { object: 4, ..ID }, BlockId { offset: 0, ..ID }] {
            let mut block = vec![0; 512];
            seal(&mut block, &other, 1);
            assert!(matches!(check(&block, 512, &ID, 1, 9), Err(Mismatch::Foreign { .. })));
            assert_eq!(check(&block, 512, &ID, 0, 9), Ok(0));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(sequence in 1u32..1000, len in 64usize..2000, at: prop::sample::Index, bit in 0u8..8) {
            let mut block = vec![0; len];
            seal(&mut block, &ID, sequence);
            prop_assert_eq!(check(&block, len, &ID, sequence, sequence), Ok(sequence));
            block[at.index(len)] ^= 1 << bit;
            prop_assert!(check(&block, len, &ID, sequence, sequence).is_err(), "bit {bit}");
        }

        #[test]
        fn torn_blocks_are_found(cut in 64usize..4095) {
            let (old, new) = (sealed(1), sealed(2));
            let torn = [&new[..cut], &old[cut..]].concat();
            let same = torn == new || torn == old;
            prop_assert_eq!(check(&torn, 4096, &ID, 1, 2).is_ok(), same);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), want in 0usize..200) {
            let _ = check(&bytes, want, &ID, 1, 2);
        }
    }
}
