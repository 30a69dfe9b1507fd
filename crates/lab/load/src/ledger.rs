//! What is known of every block: the last write that was issued and the last that was acknowledged. It survives in a
//! file, so that a later run can check what a whole system's crash left.
//!
//! The file: magic `CRMVRFY1`, length of the JSON header (u32), JSON header, then per block of the whole load
//! (object-major) the acknowledged and then the issued numbers (u32 each), and last the CRC32C of all before. Numbers are
//! little-endian.

use carmine_types::crc32c;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pattern::Geometry;
use crate::spec::LoadSpec;

const MAGIC: [u8; 8] = *b"CRMVRFY1";
/// Blocks in a file, at most: 2 GiB of state.
const BLOCKS_MAX: u64 = 1 << 28;
/// Writes that may have been issued to a block after the last snapshot of a run that was killed.
const UNCLEAN_SLACK: u32 = 1 << 20;

/// Sequence numbers of one job's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    acked: Vec<u32>,
    issued: Vec<u32>,
    writing: Vec<bool>,
}

impl Ledger {
    /// Nothing is known of any block.
    pub fn new(blocks: u64) -> Ledger {
        let blocks = usize::try_from(blocks).unwrap_or(0);
        Ledger { acked: vec![0; blocks], issued: vec![0; blocks], writing: vec![false; blocks] }
    }

    /// (last acknowledged, last issued) write of a block; 0 for none.
    pub fn bounds(&self, block: u64) -> (u32, u32) {
        let at = usize::try_from(block).unwrap_or(usize::MAX);
        (self.acked.get(at).copied().unwrap_or(0), self.issued.get(at).copied().unwrap_or(0))
    }

    /// A write to this block is in flight.
    pub fn is_writing(&self, block: u64) -> bool {
        usize::try_from(block).ok().and_then(|at| self.writing.get(at)).copied().unwrap_or(false)
    }

    /// Keeps a block for a write that will be issued soon.
    pub fn reserve(&mut self, block: u64) {
        if let Some(writing) = usize::try_from(block).ok().and_then(|at| self.writing.get_mut(at)) {
            *writing = true;
        }
    }

    /// Starts a write; returns its number.
    pub fn issue(&mut self, block: u64) -> u32 {
        self.reserve(block);
        let Ok(at) = usize::try_from(block) else { return 0 };
        self.issued.get_mut(at).map_or(0, |issued| {
            *issued = issued.saturating_add(1);
            *issued
        })
    }

    /// Ends write number `sequence`. One that failed may still be applied later, so it stays issued.
    pub fn finish(&mut self, block: u64, sequence: u32, acknowledged: bool) {
        let Ok(at) = usize::try_from(block) else { return };
        if let Some(writing) = self.writing.get_mut(at) {
            *writing = false;
        }
        if let Some(acked) = self.acked.get_mut(at).filter(|_| acknowledged) {
            *acked = sequence.max(*acked);
        }
    }

    /// Blocks of which some write was acknowledged.
    pub fn known(&self) -> u64 {
        self.acked.iter().filter(|n| **n > 0).count() as u64
    }
}

/// The sequence numbers of the whole load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyState {
    header: Header,
    acked: Vec<u32>,
    issued: Vec<u32>,
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

/// A state file that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum StateError {
    #[error("verify state: {why}; it is no file of --verify-state, or it is damaged")]
    Damaged { why: String },
    #[error("verify state is for {field} {found}, this load has {want}; give the same {field}")]
    Differs { field: &'static str, found: u64, want: u64 },
}

fn damaged<T>(why: &str) -> Result<T, StateError> {
    Err(StateError::Damaged { why: why.to_owned() })
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
        let blocks = usize::try_from(spec.objects() * spec.blocks_per_object()).unwrap_or(0);
        VerifyState { header, acked: vec![0; blocks], issued: vec![0; blocks] }
    }

    /// The part of the state that `geometry`'s job has.
    pub fn ledger(&self, geometry: &Geometry) -> Ledger {
        let pick = |numbers: &[u32]| {
            let ranges = geometry.objects.iter().map(|object| range(*object, geometry.blocks_per_object));
            ranges.flat_map(|r| numbers.get(r).unwrap_or_default().iter().copied()).collect::<Vec<u32>>()
        };
        let (acked, issued) = (pick(&self.acked), pick(&self.issued));
        Ledger { writing: vec![false; acked.len()], acked, issued }
    }

    /// Takes over what a job knows.
    pub fn absorb(&mut self, geometry: &Geometry, ledger: &Ledger) {
        let step = usize::try_from(geometry.blocks_per_object).unwrap_or(usize::MAX).max(1);
        for (all, job) in [(&mut self.acked, &ledger.acked), (&mut self.issued, &ledger.issued)] {
            for (object, numbers) in geometry.objects.iter().zip(job.chunks(step)) {
                if let Some(part) = all.get_mut(range(*object, geometry.blocks_per_object))
                    && part.len() == numbers.len()
                {
                    part.copy_from_slice(numbers);
                }
            }
        }
    }

    /// Blocks of which some write was acknowledged.
    pub fn known(&self) -> u64 {
        self.acked.iter().filter(|n| **n > 0).count() as u64
    }

    /// [`LoadSpec::generation`] of the load that wrote the blocks.
    pub fn generation(&self) -> u64 {
        self.header.generation
    }

    pub fn encode(&self, clean: bool) -> Vec<u8> {
        let header = Header { clean, ..self.header.clone() };
        // Numbers and a bool: there is nothing that JSON could refuse.
        let json = serde_json::to_vec(&header).unwrap_or_default();
        let mut bytes = Vec::with_capacity(16 + json.len() + 8 * self.acked.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&json);
        self.acked.iter().chain(&self.issued).for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
        let crc = crc32c::raw(0, &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a state and checks that it belongs to `spec`'s blocks. After an unclean end more may have been issued than
    /// the file knows: the upper bounds are widened.
    pub fn decode(bytes: &[u8], spec: &LoadSpec) -> Result<VerifyState, StateError> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return damaged("it is too short") };
        if crc32c::raw(0, body) != u32::from_le_bytes(*crc) {
            return damaged("its checksum is wrong");
        }
        let Some((magic, rest)) = body.split_first_chunk::<8>() else { return damaged("it is too short") };
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return damaged("it is too short") };
        if *magic != MAGIC {
            return damaged("its first bytes are wrong");
        }
        let Some((json, numbers)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else {
            return damaged("its header is cut");
        };
        let header: Header = serde_json::from_slice(json).or_else(|e| damaged(&e.to_string()))?;
        header.same_as(spec)?;
        let blocks = spec.objects() * spec.blocks_per_object();
        if blocks > BLOCKS_MAX || numbers.len() as u64 != blocks * 8 {
            return damaged("its length is wrong");
        }
        let mut words =
            numbers.chunks_exact(4).filter_map(|c| c.first_chunk::<4>()).map(|c| u32::from_le_bytes(*c));
        let acked = words.by_ref().take(blocks as usize).collect();
        let slack = if header.clean { 0 } else { UNCLEAN_SLACK };
        let issued = words.map(|n| n.saturating_add(slack)).collect();
        Ok(VerifyState { header: Header { clean: false, ..header }, acked, issued })
    }
}

impl Header {
    fn same_as(&self, spec: &LoadSpec) -> Result<(), StateError> {
        let fields = [
            ("--bs", self.bs_bytes, spec.bs_bytes),
            ("--object-size", self.object_size_bytes, spec.object_size_bytes),
            ("--size in objects", self.objects, spec.objects()),
            ("--seed", self.seed, spec.seed),
        ];
        match fields.into_iter().find(|(_, found, want)| found != want) {
            Some((field, found, want)) => Err(StateError::Differs { field, found, want }),
            None => Ok(()),
        }
    }
}

fn range(object: u32, blocks_per_object: u64) -> std::ops::Range<usize> {
    let step = usize::try_from(blocks_per_object).unwrap_or(0);
    let start = (object as usize).saturating_mul(step);
    start..start.saturating_add(step)
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
        assert!(ledger.is_writing(2));
        ledger.finish(2, first, true);
        let second = ledger.issue(2);
        ledger.finish(2, second, false);
        assert_eq!((ledger.bounds(2), ledger.known()), ((1, 2), 1));
        assert!(!ledger.is_writing(2));
        assert_eq!((ledger.issue(99), ledger.bounds(99)), (0, (0, 0)));
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
        assert_eq!((all.bounds(4), all.bounds(5)), ((2, 2), (3, 4)));
        let unclean = VerifyState::decode(&state.encode(false), &spec).unwrap();
        assert_eq!(unclean.ledger(&Geometry::dealt(&one, 0)).bounds(4), (2, 2 + UNCLEAN_SLACK));
    }

    #[test]
    fn refuses_what_is_not_its_own() {
        let bytes = VerifyState::new(&spec()).encode(true);
        let other = LoadSpec { seed: 2, ..spec() };
        let error = VerifyState::decode(&bytes, &other).unwrap_err().to_string();
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
