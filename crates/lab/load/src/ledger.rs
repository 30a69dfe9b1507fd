//! The state of every block: the last write that was issued and the last that was acknowledged. It survives in a
//! file, so that a later run can check what a whole system's crash left.
//!
//! The file: magic `CRMVRFY1`, length of the JSON header (u32), JSON header, then per block of the whole load
//! (object-major) the acknowledged and then the issued numbers (u32 each), and last the CRC32C of all before. Numbers are
//! little-endian.

use carmine_types::crc32c;
use serde::{Deserialize, Serialize};

use crate::pattern::{BlockAddr, Geometry, rng};
use crate::spec::LoadSpec;

const MAGIC: [u8; 8] = *b"CRMVRFY1";
/// Blocks in a file, at most: 2 GiB of state.
const BLOCKS_MAX: u64 = 1 << 28;
/// Writes that may have been issued to a block after the last snapshot of a run that was killed.
const UNCLEAN_SLACK: u32 = 1 << 20;

/// The writes of a block, by their numbers from 1; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    /// The last that was acknowledged.
    pub(crate) acked: u32,
    /// The last that was issued.
    pub(crate) issued: u32,
    /// One is in flight.
    pub(crate) writing: bool,
}

/// The writes of one job's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger(Vec<Writes>);

impl Ledger {
    /// Nothing is known of any block.
    pub(crate) fn new(blocks: u64) -> Ledger {
        Ledger(vec![Writes::default(); blocks as usize])
    }

    /// The writes of a block; none of one that the ledger does not have, for a load that is not verified has an empty one.
    pub(crate) fn of(&self, block: u64) -> Writes {
        self.0.get(block as usize).copied().unwrap_or_default()
    }

    /// Keeps a block for a write that will be issued soon.
    pub(crate) fn reserve(&mut self, block: u64) {
        self.0[block as usize].writing = true;
    }

    /// Starts a write; returns its number.
    pub(crate) fn issue(&mut self, block: u64) -> u32 {
        let writes = &mut self.0[block as usize];
        (writes.writing, writes.issued) = (true, writes.issued.saturating_add(1));
        writes.issued
    }

    /// Ends write number `sequence`. One that failed may still be applied later, so it stays issued.
    pub(crate) fn finish(&mut self, block: u64, sequence: u32, acknowledged: bool) {
        let writes = &mut self.0[block as usize];
        writes.writing = false;
        if acknowledged {
            writes.acked = sequence.max(writes.acked);
        }
    }

    /// Some write of some block was acknowledged.
    pub(crate) fn knows_any(&self) -> bool {
        self.0.iter().any(|writes| writes.acked > 0)
    }
}

/// The writes of the whole load's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyState {
    header: Header,
    blocks: Vec<Writes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    bs_bytes: u64,
    object_size_bytes: u64,
    objects: u64,
    seed: u64,
    generation: u64,
    /// Written at the end of a run; otherwise writes may have been issued that are not in here.
    clean: bool,
}

impl VerifyState {
    pub fn new(spec: &LoadSpec) -> VerifyState {
        let header = Header {
            bs_bytes: spec.bs_bytes,
            object_size_bytes: spec.object_size_bytes,
            objects: spec.objects(),
            seed: spec.seed,
            generation: spec.generation,
            clean: false,
        };
        let blocks = vec![Writes::default(); (spec.objects() * spec.blocks_per_object()) as usize];
        VerifyState { header, blocks }
    }

    /// The part of the state that `geometry`'s job has.
    pub(crate) fn ledger(&self, geometry: &Geometry) -> Ledger {
        let objects = geometry.objects.iter().map(|object| &self.blocks[range(*object, geometry)]);
        Ledger(objects.flatten().copied().collect())
    }

    /// Takes over what a job knows.
    pub(crate) fn absorb(&mut self, geometry: &Geometry, ledger: &Ledger) {
        let objects = ledger.0.chunks(geometry.blocks_per_object as usize);
        for (object, writes) in geometry.objects.iter().zip(objects) {
            let known = self.blocks[range(*object, geometry)].iter_mut().zip(writes);
            known.for_each(|(to, from)| *to = Writes { writing: false, ..*from });
        }
    }

    /// Blocks of which some write was acknowledged.
    pub fn known(&self) -> u64 {
        self.blocks.iter().filter(|writes| writes.acked > 0).count() as u64
    }

    /// [`LoadSpec::generation`] of the load that wrote the blocks.
    pub fn generation(&self) -> u64 {
        self.header.generation
    }

    pub fn encode(&self, clean: bool) -> Vec<u8> {
        // Numbers and a bool: there is nothing that JSON could refuse.
        let json = serde_json::to_vec(&Header { clean, ..self.header.clone() }).unwrap_or_default();
        let mut bytes = [&MAGIC[..], &(json.len() as u32).to_le_bytes(), &json].concat();
        self.blocks.iter().for_each(|writes| bytes.extend(writes.acked.to_le_bytes()));
        self.blocks.iter().for_each(|writes| bytes.extend(writes.issued.to_le_bytes()));
        bytes.extend(crc32c::raw(0, &bytes).to_le_bytes());
        bytes
    }

    /// Reads a state and checks that it belongs to `spec`'s blocks. After an unclean end more may have been issued than
    /// the file knows: the upper bounds are widened.
    ///
    /// # Errors
    /// It is of another load, or damaged; in words.
    pub fn decode(bytes: &[u8], spec: &LoadSpec) -> Result<VerifyState, String> {
        let damaged = "verify state: it is no file of --verify-state, or it is damaged";
        let (json, numbers) = parts(bytes).ok_or(damaged)?;
        let header: Header = serde_json::from_slice(json).map_err(|e| format!("{damaged}: {e}"))?;
        let same = [
            ("--bs", header.bs_bytes, spec.bs_bytes),
            ("--object-size", header.object_size_bytes, spec.object_size_bytes),
            ("--size in objects", header.objects, spec.objects()),
            ("--seed", header.seed, spec.seed),
        ];
        if let Some((field, found, want)) = same.iter().find(|(_, found, want)| found != want) {
            let why = format!("is for {field} {found}, this load has {want}; give the same {field}");
            return Err(format!("verify state {why}"));
        }
        let blocks = spec.objects() * spec.blocks_per_object();
        if blocks > BLOCKS_MAX || numbers.len() as u64 != blocks * 8 {
            return Err(damaged.to_owned());
        }
        let mut state = VerifyState::new(spec);
        let slack = if header.clean { 0 } else { UNCLEAN_SLACK };
        let (acked, issued) = numbers.as_chunks().0.split_at(blocks as usize);
        for (writes, (acked, issued)) in state.blocks.iter_mut().zip(acked.iter().zip(issued)) {
            writes.acked = u32::from_le_bytes(*acked);
            writes.issued = u32::from_le_bytes(*issued).saturating_add(slack);
        }
        state.header.generation = header.generation;
        Ok(state)
    }
}

/// The JSON header and the numbers of a file whose checksum is right.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (body, crc) = bytes.split_last_chunk()?;
    let (length, rest) = body.strip_prefix(&MAGIC)?.split_first_chunk()?;
    let is_whole = crc32c::raw(0, body) == u32::from_le_bytes(*crc);
    rest.split_at_checked(u32::from_le_bytes(*length) as usize).filter(|_| is_whole)
}

fn range(object: u32, geometry: &Geometry) -> std::ops::Range<usize> {
    let (object, step) = (object as usize, geometry.blocks_per_object as usize);
    object * step..(object + 1) * step
}

// Blocks that say who they are. Layout of the first 64 bytes, little-endian; the rest of the block is pseudo-random:
//
// | offset | bytes | field |
// |---|---|---|
// | 0 | 8 | magic `CRMBLOCK` |
// | 8 | 8 | seed of the load |
// | 16 | 8 | object index |
// | 24 | 8 | offset of the block in its object |
// | 32 | 8 | sequence number of the write to this block, from 1 |
// | 40 | 4 | length of the block |
// | 44 | 4 | CRC32C (Ceph's convention, seed 0) of the block with these four bytes 0 |
// | 48 | 16 | zero |

/// Bytes of the header: the smallest block that can be verified.
pub(crate) const HEADER_BYTES: usize = 64;
const BLOCK_MAGIC: [u8; 8] = *b"CRMBLOCK";
const CRC_AT: usize = 44;

/// Fills `block` (at least [`HEADER_BYTES`]) with write number `sequence` to its place.
pub(crate) fn seal(block: &mut [u8], seed: u64, place: &BlockAddr, sequence: u32) {
    let stream = u64::from(place.object) << 40 ^ place.offset ^ u64::from(sequence) << 20;
    rng(seed, stream).fill(block);
    block[..HEADER_BYTES].fill(0);
    block[..8].copy_from_slice(&BLOCK_MAGIC);
    for (at, field) in [(8, seed), (16, place.object.into()), (24, place.offset), (32, sequence.into())] {
        block[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let length = block.len() as u32;
    block[40..44].copy_from_slice(&length.to_le_bytes());
    let crc = content_crc(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the block that was read at a place: a whole block of ours, whose sequence number is between the last write that
/// was acknowledged and the last that was issued. A block of which no write was ever acknowledged may hold anything but a
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
    if header[0..8] != BLOCK_MAGIC {
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

    fn spec() -> LoadSpec {
        LoadSpec { size_bytes: 6 * 16384, object_size_bytes: 16384, numjobs: 2, ..LoadSpec::default() }
    }

    #[test]
    fn unacknowledged_writes_stay_issued() {
        let mut ledger = Ledger::new(4);
        let first = ledger.issue(2);
        assert!(ledger.of(2).writing);
        ledger.finish(2, first, true);
        let second = ledger.issue(2);
        ledger.finish(2, second, false);
        assert_eq!(ledger.of(2), Writes { acked: 1, issued: 2, writing: false });
        assert!(ledger.knows_any() && !Ledger::new(4).knows_any());
        assert_eq!(ledger.of(99), Writes::default());
    }

    #[test]
    fn state_survives_a_file_and_another_number_of_jobs() {
        let spec = spec();
        let mut state = VerifyState::new(&spec);
        for job in 0..2 {
            let geometry = Geometry::dealt(&spec, job);
            let mut ledger = state.ledger(&geometry);
            for block in 0..geometry.blocks() {
                for _ in 0..=block + u64::from(job) {
                    let sequence = ledger.issue(block);
                    ledger.finish(block, sequence, true);
                }
            }
            ledger.issue(1);
            state.absorb(&geometry, &ledger);
        }
        let back = VerifyState::decode(&state.encode(true), &spec).unwrap();
        assert_eq!(back, state);
        assert_eq!(back.known(), 24);
        let one = LoadSpec { numjobs: 1, ..spec.clone() };
        let all = back.ledger(&Geometry::dealt(&one, 0));
        // Object 1 is the first of job 1.
        let bounds = |ledger: &Ledger, block| (ledger.of(block).acked, ledger.of(block).issued);
        assert_eq!((bounds(&all, 4), bounds(&all, 5)), ((2, 2), (3, 4)));
        let unclean = VerifyState::decode(&state.encode(false), &spec).unwrap();
        assert_eq!(bounds(&unclean.ledger(&Geometry::dealt(&one, 0)), 4), (2, 2 + UNCLEAN_SLACK));
    }

    #[test]
    fn refuses_what_is_not_its_own() {
        let bytes = VerifyState::new(&spec()).encode(true);
        let other = LoadSpec { seed: 2, ..spec() };
        let error = VerifyState::decode(&bytes, &other).unwrap_err();
        assert!(error.contains("--seed 1") && error.contains("has 2"), "{error}");
    }

    proptest! {
        #[test]
        fn damage_is_found(at: prop::sample::Index, bit in 0u8..8, cut: prop::sample::Index) {
            let mut bytes = VerifyState::new(&spec()).encode(true);
            prop_assert!(VerifyState::decode(&bytes[..cut.index(bytes.len())], &spec()).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(VerifyState::decode(&bytes, &spec()).is_err());
        }
    }
}

#[cfg(test)]
mod verify_tests {
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
