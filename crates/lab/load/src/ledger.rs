//! The state of every block: the last write that was issued and the last that was acknowledged. It survives in a
//! file, so that a later run can check what the crash of a whole system left.
//!
//! The file: magic `CRMVRFY1`, length of the JSON header (u32), JSON header, then per block of the whole load
//! (object-major) the acknowledged and then the issued numbers (u32 each), and last the CRC32C of all before. Numbers are
//! little-endian.

use carmine_types::crc32c;
use serde::{Deserialize, Serialize};

use crate::pattern::Geometry;
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

    /// The writes of a block. A block that is not in the ledger has none: a load that is not verified has an empty ledger.
    pub(crate) fn writes(&self, block: u64) -> Writes {
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
        let damaged = "verify state: it is not a file of --verify-state, or it is damaged";
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
        assert!(ledger.writes(2).writing);
        ledger.finish(2, first, true);
        let second = ledger.issue(2);
        ledger.finish(2, second, false);
        assert_eq!(ledger.writes(2), Writes { acked: 1, issued: 2, writing: false });
        assert!(ledger.knows_any() && !Ledger::new(4).knows_any());
        assert_eq!(ledger.writes(99), Writes::default());
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
        let bounds = |ledger: &Ledger, block| (ledger.writes(block).acked, ledger.writes(block).issued);
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
