//! The allocator: one bitmap of used blocks for all shards, derived from the block maps at mount.
//!
//! Chunks of blocks are leased to shards at run time. Only the leaseholder sets bits in a chunk, any shard clears bits; so an
//! allocation scans words that no other shard fills. The block maps are the truth; a clean unmount stores the bitmap
//! (`meta/checkpoint.rs`).

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use carmine_types::is_mutated;
use smallvec::SmallVec;

use crate::blue::device::label::Label;
use crate::blue::device::references::References;
use crate::{BLOCK_BYTES, StatFs};

/// Blocks of the largest chunk: 16 MiB.
const CHUNK_BLOCKS_MAX: u64 = 4096;
/// Blocks of the smallest chunk: one word of the bitmap.
const CHUNK_BLOCKS_MIN: u64 = 64;
/// Least number of chunks, unless they have the smallest size.
const CHUNKS_MIN: u64 = 64;
/// Blocks kept back so that truncating and zeroing work on a full device: at least, …
const RESERVE_BLOCKS_MIN: u64 = 8;
/// … and at most.
const RESERVE_BLOCKS_MAX: u64 = 4096;
/// Space of removed metadata is reclaimed when this fraction of the store is used …
const RECLAIM_USED: (u64, u64) = (4, 5);
/// … and metadata uses more than this part of the store.
const RECLAIM_METADATA_PART: u64 = 16;
/// No chunk.
const NOBODY: u16 = 0;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) blocks: u64,
}

/// The runs of one allocation, in the order of their use.
pub(crate) type Runs = SmallVec<[Run; 2]>;

/// The bitmap, and the leases of its chunks.
pub(crate) struct Space {
    blocks: u64,
    /// Blocks that never hold data: the labels and the log.
    kept_blocks: u64,
    chunk_blocks: u64,
    reserve_blocks: u64,
    words: Box<[AtomicU64]>,
    /// Leaseholder's shard number + 1, or [`NOBODY`].
    owners: Box<[AtomicU16]>,
    /// Bits set in each chunk.
    chunk_used: Box<[AtomicU32]>,
    /// Bits set in all, less the labels.
    used: AtomicU64,
    /// Blocks counted for metadata: it lies elsewhere, but is part of the store's size.
    metadata: AtomicU64,
    /// Where the next search for a chunk starts.
    hint: AtomicUsize,
    references: References,
}

/// The chunk that a shard has leased.
#[derive(Default)]
pub(crate) struct Lease {
    chunk: Option<usize>,
    /// Next word to scan, counted in the whole bitmap.
    word: usize,
}

impl Space {
    /// The device that a label describes: its log and the two labels hold no data.
    pub(crate) fn for_label(label: &Label) -> Space {
        let mut space = Space::new(label.blocks());
        for block in label.home.blocks() {
            space.mark(block);
            space.kept_blocks += 1;
        }
        space.used.store(0, Ordering::Relaxed);
        space
    }

    /// A device of so many blocks, the first and the last of which hold labels.
    pub(crate) fn new(blocks: u64) -> Space {
        let chunk_blocks =
            (blocks / CHUNKS_MIN).next_power_of_two().clamp(CHUNK_BLOCKS_MIN, CHUNK_BLOCKS_MAX);
        let chunks = blocks.div_ceil(chunk_blocks) as usize;
        let words = chunks * (chunk_blocks / 64) as usize;
        let space = Space {
            blocks,
            kept_blocks: 2,
            chunk_blocks,
            reserve_blocks: (blocks / 128).clamp(RESERVE_BLOCKS_MIN, RESERVE_BLOCKS_MAX),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            owners: (0..chunks).map(|_| AtomicU16::new(NOBODY)).collect(),
            chunk_used: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
            used: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            hint: AtomicUsize::new(0),
            references: References::new(blocks),
        };
        // The labels, and what the last chunk has beyond the device.
        for block in [0].into_iter().chain(blocks.saturating_sub(1)..words as u64 * 64) {
            space.mark(block);
        }
        space.used.store(0, Ordering::Relaxed);
        space
    }

    /// Blocks that can hold data.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.blocks.saturating_sub(self.kept_blocks)
    }

    fn word(&self, block: u64) -> Option<(&AtomicU64, u64)> {
        self.words.get((block / 64) as usize).map(|word| (word, 1 << (block % 64)))
    }

    fn chunk_of(&self, block: u64) -> usize {
        (block / self.chunk_blocks) as usize
    }

    fn count(&self, block: u64, taken: bool) {
        if let Some(used) = self.chunk_used.get(self.chunk_of(block)) {
            if taken {
                used.fetch_add(1, Ordering::Relaxed);
                self.used.fetch_add(1, Ordering::Relaxed);
            } else {
                used.fetch_sub(1, Ordering::Relaxed);
                self.used.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Marks a block as used at mount; `false` if it is used already, or outside of the device.
    pub(crate) fn mark(&self, block: u64) -> bool {
        let Some((word, bit)) = self.word(block) else { return false };
        let fresh = word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        if fresh && !(is_mutated("miscount_blocks") && block.is_multiple_of(5)) {
            self.count(block, true);
        }
        fresh
    }

    /// The bitmap: bit `n` of word `w` is that of block `64 w + n`. Bits after the end of the device are set.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Marks the blocks of a word as used at mount; `None` if they are outside of the device.
    pub(crate) fn mark_word(&self, at: usize, bits: u64) -> Option<()> {
        let fresh = bits & !self.words.get(at)?.fetch_or(bits, Ordering::Relaxed);
        self.chunk_used.get(self.chunk_of(at as u64 * 64))?.fetch_add(fresh.count_ones(), Ordering::Relaxed);
        self.used.fetch_add(fresh.count_ones().into(), Ordering::Relaxed);
        Some(())
    }

    /// Frees a block: from now on any shard may allocate it.
    pub(crate) fn free(&self, block: u64) {
        let Some((word, bit)) = self.word(block) else { return };
        let was_taken = word.fetch_and(!bit, Ordering::AcqRel) & bit != 0;
        assert!(was_taken, "block {block} is freed twice: two objects may get it next");
        self.count(block, false);
    }

    /// The counts of shared blocks.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    pub(crate) fn references_mut(&mut self) -> &mut References {
        &mut self.references
    }

    /// Counts one more object for these blocks.
    pub(crate) fn share(&self, blocks: impl IntoIterator<Item = u64>) {
        self.references.add(blocks.into_iter().inspect(|block| {
            assert!(self.is_taken(*block), "block {block} is shared, and nobody has it");
        }));
    }

    pub(crate) fn is_taken(&self, block: u64) -> bool {
        self.word(block).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Blocks used by data.
    pub(crate) fn used_blocks(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the size of the metadata.
    pub(crate) fn set_metadata_bytes(&self, bytes: u64) {
        self.metadata.store(bytes.div_ceil(BLOCK_BYTES), Ordering::Relaxed);
    }

    /// The size of metadata above which the space of removed metadata is reclaimed: the store is nearly full, and metadata uses a
    /// good part of it.
    pub(crate) fn reclaim_above_bytes(&self) -> u64 {
        let (all, used) = (self.data_blocks(), self.used_blocks());
        let near_full = (all / RECLAIM_USED.1 * RECLAIM_USED.0).saturating_sub(used);
        near_full.max(all / RECLAIM_METADATA_PART) * BLOCK_BYTES
    }

    /// Blocks free for data, less those of metadata, and without `reserve` less those kept back.
    pub(crate) fn free_blocks(&self, reserve: bool) -> u64 {
        let kept = if reserve { 0 } else { self.reserve_blocks + self.metadata.load(Ordering::Relaxed) };
        self.data_blocks().saturating_sub(self.used_blocks()).saturating_sub(kept)
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let (all, metadata) = (self.data_blocks(), self.metadata.load(Ordering::Relaxed));
        StatFs {
            total: all * BLOCK_BYTES,
            used: (self.used_blocks() + metadata).min(all) * BLOCK_BYTES,
            metadata: metadata * BLOCK_BYTES,
            free: self.free_blocks(false) * BLOCK_BYTES,
        }
    }

    /// # Panics
    /// If the counts do not match the bitmap: a block is either free or used.
    pub(crate) fn check(&self) {
        let taken: u64 = self.words().map(|word| u64::from(word.count_ones())).sum();
        let chunks: u64 = self.chunk_used.iter().map(|used| u64::from(used.load(Ordering::Relaxed))).sum();
        let bits = self.words.len() as u64 * 64;
        let outside = bits - self.blocks;
        let (used, free) = (self.used_blocks(), bits - taken);
        assert!(
            free + used + self.kept_blocks + outside == bits && chunks == taken,
            "{free} blocks are free and {used} taken, {} are kept and {outside} lie outside, of {bits}; the chunks have {chunks}",
            self.kept_blocks
        );
    }

    /// Allocates `blocks` blocks for shard number `shard`, from its lease and from new ones; `reserve` allows the blocks kept
    /// back. `None`, and nothing is allocated, if there are too few (in chunks that no other shard holds).
    pub(crate) fn allocate(&self, shard: u16, lease: &mut Lease, blocks: u64, reserve: bool) -> Option<Runs> {
        if blocks > self.free_blocks(reserve) {
            return None;
        }
        let mut runs = Runs::new();
        let mut left = blocks;
        // Each iteration exhausts a chunk; after one round over all of them (and the leased one again) none are left.
        for _ in 0..self.owners.len() + 2 {
            self.take_from_lease(lease, &mut left, &mut runs);
            if left == 0 {
                return Some(runs);
            }
            if !self.lease_next(shard, lease) {
                break;
            }
        }
        for run in runs {
            (run.start..run.start + run.blocks).for_each(|block| self.free(block));
        }
        None
    }

    /// Allocates up to `left` blocks of the leased chunk, from the cursor on.
    fn take_from_lease(&self, lease: &mut Lease, left: &mut u64, runs: &mut Runs) {
        let Some(chunk) = lease.chunk else { return };
        let words_per_chunk = (self.chunk_blocks / 64) as usize;
        let end = (chunk + 1) * words_per_chunk;
        let mut taken = 0;
        while *left > 0 && lease.word < end {
            let Some(word) = self.words.get(lease.word) else { break };
            // Acquire: the shard that cleared a bit is done with the block.
            let mut free = !word.load(Ordering::Acquire);
            if free == 0 {
                lease.word += 1;
                continue;
            }
            let mut mask = 0;
            while free != 0 && *left > 0 {
                let bit = free.trailing_zeros();
                let ones = u64::from((free >> bit).trailing_ones()).min(*left);
                let run = (u64::MAX >> (64 - ones)) << bit;
                mask |= run;
                free &= !run;
                *left -= ones;
                push_run(runs, Run { start: lease.word as u64 * 64 + u64::from(bit), blocks: ones });
            }
            word.fetch_or(mask, Ordering::Relaxed);
            taken += mask.count_ones();
        }
        if let Some(used) = self.chunk_used.get(chunk) {
            used.fetch_add(taken, Ordering::Relaxed);
            self.used.fetch_add(u64::from(taken), Ordering::Relaxed);
        }
    }

    /// Releases the leased chunk and leases another: preferably one that is at least an eighth free, else any with room.
    fn lease_next(&self, shard: u16, lease: &mut Lease) -> bool {
        self.release(lease);
        let chunks = self.owners.len();
        let start = self.hint.load(Ordering::Relaxed);
        let eighth = (self.chunk_blocks / 8) as u32;
        for room in [eighth, 1] {
            for step in 0..chunks {
                let chunk = (start + step) % chunks;
                let (Some(owner), Some(used)) = (self.owners.get(chunk), self.chunk_used.get(chunk)) else {
                    continue;
                };
                if used.load(Ordering::Relaxed) + room <= self.chunk_blocks as u32
                    && owner.compare_exchange(NOBODY, shard + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    self.hint.store((chunk + 1) % chunks, Ordering::Relaxed);
                    *lease = Lease { chunk: Some(chunk), word: chunk * (self.chunk_blocks / 64) as usize };
                    return true;
                }
            }
        }
        false
    }

    /// Releases the leased chunk.
    pub(crate) fn release(&self, lease: &mut Lease) {
        if let Some(owner) = lease.chunk.take().and_then(|chunk| self.owners.get(chunk)) {
            owner.store(NOBODY, Ordering::Release);
        }
    }
}

/// Appends a run, joined to the last one where they touch.
fn push_run(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(last) if last.start + last.blocks == run.start => last.blocks += run.blocks,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod aging;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn blocks(runs: &Runs) -> Vec<u64> {
        runs.iter().flat_map(|run| run.start..run.start + run.blocks).collect()
    }

    #[test]
    fn a_fresh_device_gives_one_run() {
        let space = Space::new(16_384);
        let mut lease = Lease::default();
        let runs = space.allocate(0, &mut lease, 200, false).unwrap();
        assert_eq!(runs.as_slice(), [Run { start: 1, blocks: 200 }]);
        assert_eq!(space.used_blocks(), 200);
        blocks(&runs).into_iter().for_each(|block| space.free(block));
        assert_eq!(space.used_blocks(), 0);
    }

    #[test]
    #[should_panic(expected = "block 5 is freed twice")]
    fn a_block_is_freed_once() {
        let space = Space::new(16_384);
        space.allocate(0, &mut Lease::default(), 200, false).unwrap();
        space.free(5);
        space.free(5);
    }

    #[test]
    fn all_but_the_reserve_can_be_taken_and_no_block_twice() {
        for total in [128u64, 1000, 5000, 16_384] {
            let space = Space::new(total);
            let mut lease = Lease::default();
            let mut seen = BTreeSet::new();
            while let Some(runs) = space.allocate(0, &mut lease, 7, false) {
                for block in blocks(&runs) {
                    assert!(block > 0 && block < total - 1 && seen.insert(block), "block {block} of {total}");
                }
            }
            assert!(space.free_blocks(false) < 7, "{total}");
            // Use up the reserve, down to the last block.
            while let Some(runs) = space.allocate(0, &mut lease, 1, true) {
                assert!(seen.insert(runs[0].start));
            }
            assert_eq!(seen.len() as u64, total - 2);
            assert_eq!(space.used_blocks(), total - 2);
            // Freed blocks can be allocated again, wherever they are.
            for block in [1, total / 2, total - 2] {
                space.free(block);
            }
            let again = space.allocate(0, &mut lease, 3, true).unwrap();
            assert_eq!(
                blocks(&again).into_iter().collect::<BTreeSet<_>>(),
                BTreeSet::from([1, total / 2, total - 2])
            );
        }
    }

    #[test]
    fn a_failed_allocation_takes_nothing() {
        let space = Space::new(1000);
        let (mut lease, mut other) = (Lease::default(), Lease::default());
        // The other shard's lease is out of reach, so not all free blocks can be allocated.
        assert!(space.allocate(1, &mut other, 1, false).is_some());
        let used = space.used_blocks();
        let free = space.free_blocks(true);
        assert!(space.allocate(0, &mut lease, free, true).is_none());
        assert_eq!(space.used_blocks(), used);
        space.release(&mut other);
        assert!(space.allocate(0, &mut lease, free, true).is_some());
    }

    #[test]
    fn shards_in_parallel_never_get_the_same_block() {
        let space = Space::new(20_000);
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let jobs: Vec<_> = (0..4)
                .map(|shard| {
                    let space = &space;
                    scope.spawn(move || {
                        let mut lease = Lease::default();
                        let mut mine = Vec::new();
                        let mut turn = 0u64;
                        while let Some(runs) = space.allocate(shard, &mut lease, 1 + turn % 9, false) {
                            mine.extend(blocks(&runs));
                            turn += 1;
                            if turn.is_multiple_of(3)
                                && turn < 2000
                                && let Some(block) = mine.pop()
                            {
                                space.free(block);
                            }
                        }
                        mine
                    })
                })
                .collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        let all: Vec<u64> = taken.concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(space.used_blocks(), all.len() as u64);
    }
}
