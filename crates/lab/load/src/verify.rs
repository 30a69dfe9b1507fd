//! Blocks that identify themselves. Layout of the first 64 bytes, little-endian; the rest of the block is pseudo-random:
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

use crate::ledger::Writes;
use crate::pattern::{BlockAddr, rng};

/// Bytes of the header: the smallest block that can be verified.
pub(crate) const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"CRMBLOCK";
const CRC_AT: usize = 44;

/// Fills `block` (at least [`HEADER_BYTES`]) with write number `sequence` to its place.
pub(crate) fn seal(block: &mut [u8], seed: u64, place: &BlockAddr, sequence: u32) {
    let stream = u64::from(place.object) << 40 ^ place.offset ^ u64::from(sequence) << 20;
    rng(seed, stream).fill(block);
    block[..HEADER_BYTES].fill(0);
    block[..8].copy_from_slice(&MAGIC);
    for (at, field) in [(8, seed), (16, place.object.into()), (24, place.offset), (32, sequence.into())] {
        block[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let length = block.len() as u32;
    block[40..44].copy_from_slice(&length.to_le_bytes());
    let crc = content_crc(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the block that was read at a place: a whole block of ours, whose sequence number is between the last write that
/// was acknowledged and the last that was issued. A block that never had a write acknowledged may hold anything but a
/// damaged block.
///
/// # Errors
/// It is another block, which the text describes.
pub(crate) fn check(
    block: &[u8],
    want_bytes: usize,
    seed: u64,
    place: &BlockAddr,
    writes: Writes,
) -> Result<(), String> {
    let Writes { acked, issued, .. } = writes;
    let foreign = |text: String| if acked == 0 { Ok(()) } else { Err(text) };
    let Some(header) = block.first_chunk::<HEADER_BYTES>().filter(|_| block.len() == want_bytes) else {
        return foreign(format!("{} bytes of {want_bytes}", block.len()));
    };
    if header[0..8] != MAGIC {
        return foreign(match block.iter().all(|b| *b == 0) {
            true => format!("all zeros, but write {acked} was acknowledged"),
            false => "no verify header (was it written without --verify?)".to_owned(),
        });
    }
    let u64_at = |at: usize| header[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let (length, found_crc) = (u64_at(40) as u32, (u64_at(40) >> 32) as u32);
    if length as usize != want_bytes {
        return foreign(format!("a block of {length} bytes is there: data of a load with another --bs"));
    }
    let want_crc = content_crc(block);
    if found_crc != want_crc {
        return Err(format!(
            "checksum is {found_crc:#010x}, the content has {want_crc:#010x}: torn or corrupt"
        ));
    }
    let (of_seed, object, offset, found) = (u64_at(8), u64_at(16), u64_at(24), u64_at(32));
    if (of_seed, object, offset) != (seed, u64::from(place.object), place.offset) {
        return foreign(format!(
            "block of object {object} offset {offset} seed {of_seed}: data of another place"
        ));
    }
    if found < u64::from(acked) {
        return Err(format!("write {found} is there, but write {acked} was acknowledged: a lost write"));
    }
    if found > u64::from(issued) {
        return Err(format!("write {found} is there, but only {issued} were issued"));
    }
    Ok(())
}

/// CRC of the block as if its CRC field were zero.
fn content_crc(block: &[u8]) -> u32 {
    let (head, tail) = (&block[..CRC_AT], &block[CRC_AT + 4..]);
    crc32c::raw(crc32c::raw(crc32c::raw(0, head), &[0; 4]), tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: u64 = 9;
    const PLACE: BlockAddr = BlockAddr { slot: 0, object: 3, offset: 8192 };

    fn check(block: &[u8], want_bytes: usize, acked: u32, issued: u32) -> Result<(), String> {
        super::check(block, want_bytes, SEED, &PLACE, Writes { acked, issued, writing: false })
    }

    fn sealed(sequence: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        seal(&mut block, SEED, &PLACE, sequence);
        block
    }

    #[test]
    fn window_of_sequence_numbers() {
        let block = sealed(5);
        assert_eq!(check(&block, 4096, 5, 5), Ok(()));
        assert_eq!(check(&block, 4096, 3, 8), Ok(()));
        assert!(check(&block, 4096, 6, 8).unwrap_err().contains("a lost write"));
        assert!(check(&block, 4096, 1, 4).unwrap_err().contains("only 4 were issued"));
    }

    #[test]
    fn what_was_never_acknowledged_may_be_missing() {
        for (block, text) in [
            (&[][..], "0 bytes of 4096"),
            (&[0; 4096], "all zeros, but write 1"),
            (&[7; 4096], "no verify header"),
        ] {
            assert_eq!(check(block, 4096, 0, 3), Ok(()));
            assert!(check(block, 4096, 1, 3).unwrap_err().contains(text));
        }
    }

    #[test]
    fn other_places_are_recognised() {
        let (object, offset) = (BlockAddr { object: 4, ..PLACE }, BlockAddr { offset: 0, ..PLACE });
        for (seed, place) in [(8, PLACE), (SEED, object), (SEED, offset)] {
            let mut block = vec![0; 512];
            seal(&mut block, seed, &place, 1);
            assert!(check(&block, 512, 1, 9).unwrap_err().contains("data of another place"));
            assert_eq!(check(&block, 512, 0, 9), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(sequence in 1u32..1000, len in 64usize..2000, at: prop::sample::Index, bit in 0u8..8) {
            let mut block = vec![0; len];
            seal(&mut block, SEED, &PLACE, sequence);
            prop_assert_eq!(check(&block, len, sequence, sequence), Ok(()));
            block[at.index(len)] ^= 1 << bit;
            prop_assert!(check(&block, len, sequence, sequence).is_err(), "bit {bit}");
        }

        #[test]
        fn torn_blocks_are_found(cut in 64usize..4095) {
            let (old, new) = (sealed(1), sealed(2));
            let torn = [&new[..cut], &old[cut..]].concat();
            let same = torn == new || torn == old;
            prop_assert_eq!(check(&torn, 4096, 1, 2).is_ok(), same);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), want in 0usize..200) {
            let _ = check(&bytes, want, 1, 2);
        }
    }
}
