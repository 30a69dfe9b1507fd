//! How many block maps refer to a block, if more than one: clones share blocks.
//!
//! The block maps are the truth, as for the free space: a clean unmount stores the counts, and any other mount counts again. So
//! no crash can separate counts from block maps, and a clone writes no counts. In memory a block that may be shared has one byte,
//! and a region of the device without shared blocks none.
//!
//! The objects that share a block lie in one PG: one shard counts it, and no two change a count at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Blocks whose counters are allocated together: 16 MiB.
const REGION_BLOCKS: u64 = 4096;

/// The counters of a region: how many block maps refer to each block, less one.
struct Region {
    few: Box<[AtomicU8]>,
    /// The parts of the counts that do not fit into a byte.
    more: OnceLock<Box<[AtomicU32]>>,
}

/// The counters of a device.
pub(crate) struct References {
    /// Whether any block is, or was, shared. While none is, nothing else is checked.
    any: AtomicBool,
    regions: Box<[OnceLock<Region>]>,
}

impl Region {
    fn new() -> Region {
        Region { few: (0..REGION_BLOCKS).map(|_| AtomicU8::new(0)).collect(), more: OnceLock::new() }
    }

    fn count(&self, at: usize) -> u64 {
        let few = self.few.get(at).map_or(0, |few| few.load(Ordering::Relaxed));
        let more = self.more.get().and_then(|more| more.get(at));
        u64::from(few) + more.map_or(0, |more| more.load(Ordering::Relaxed).into())
    }

    fn add(&self, at: usize) {
        let Some(few) = self.few.get(at) else { return };
        match few.load(Ordering::Relaxed).checked_add(1) {
            Some(count) => few.store(count, Ordering::Relaxed),
            None => {
                let more = self.more.get_or_init(|| (0..REGION_BLOCKS).map(|_| AtomicU32::new(0)).collect());
                let Some(more) = more.get(at) else { return };
                let count = more.load(Ordering::Relaxed);
                assert!(count < u32::MAX, "a block has more objects than can be counted");
                more.store(count + 1, Ordering::Relaxed);
            }
        }
    }

    /// Sets a count that is zero; false if the value is too large.
    fn set(&self, at: usize, count: u64) -> bool {
        let few = count.min(u8::MAX.into());
        let Ok(rest) = u32::try_from(count - few) else { return false };
        if let Some(place) = self.few.get(at) {
            place.store(few as u8, Ordering::Relaxed);
        }
        if rest > 0 {
            let more = self.more.get_or_init(|| (0..REGION_BLOCKS).map(|_| AtomicU32::new(0)).collect());
            if let Some(place) = more.get(at) {
                place.store(rest, Ordering::Relaxed);
            }
        }
        true
    }

    /// Decrements a count; false if it is zero.
    fn decrement(&self, at: usize) -> bool {
        if let Some(more) = self.more.get().and_then(|more| more.get(at))
            && let Some(count) = more.load(Ordering::Relaxed).checked_sub(1)
        {
            more.store(count, Ordering::Relaxed);
            return true;
        }
        let Some(few) = self.few.get(at) else { return false };
        match few.load(Ordering::Relaxed).checked_sub(1) {
            Some(count) => few.store(count, Ordering::Relaxed),
            None => return false,
        }
        true
    }
}

impl References {
    /// Counters for a device of this many blocks, none of which is shared.
    pub(crate) fn new(blocks: u64) -> References {
        let regions = (0..blocks.div_ceil(REGION_BLOCKS)).map(|_| OnceLock::new()).collect();
        References { any: AtomicBool::new(false), regions }
    }

    fn place(&self, block: u64) -> Option<(&OnceLock<Region>, usize)> {
        let region = self.regions.get((block / REGION_BLOCKS) as usize)?;
        Some((region, (block % REGION_BLOCKS) as usize))
    }

    /// Counts one more block map for these blocks, most of which are neighbours.
    pub(crate) fn add(&self, blocks: impl IntoIterator<Item = u64>) {
        self.any.store(true, Ordering::Relaxed);
        let mut last: Option<(u64, &Region)> = None;
        for block in blocks {
            let number = block / REGION_BLOCKS;
            let region = match last {
                Some((known, region)) if known == number => region,
                _ => {
                    let Some((region, _)) = self.place(block) else { continue };
                    region.get_or_init(Region::new)
                }
            };
            region.add((block % REGION_BLOCKS) as usize);
            last = Some((number, region));
        }
    }

    /// Sets the count of a block; false if there can be no such block or count.
    pub(crate) fn set(&self, block: u64, count: u64) -> bool {
        let Some((region, at)) = self.place(block) else { return false };
        self.any.store(true, Ordering::Relaxed);
        region.get_or_init(Region::new).set(at, count)
    }

    /// Counts one block map less for a block; false if there is only one.
    #[inline]
    pub(crate) fn drop_reference(&self, block: u64) -> bool {
        self.any.load(Ordering::Relaxed) && self.drop_shared(block)
    }

    #[inline(never)]
    fn drop_shared(&self, block: u64) -> bool {
        let place = self.place(block);
        place
            .and_then(|(region, at)| Some((region.get()?, at)))
            .is_some_and(|(region, at)| region.decrement(at))
    }

    /// How many block maps refer to the block, less one.
    pub(crate) fn count(&self, block: u64) -> u64 {
        let place = self.place(block);
        place.and_then(|(region, at)| Some((region.get()?, at))).map_or(0, |(region, at)| region.count(at))
    }

    /// All blocks with a count other than zero, and the count.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let regions = (0u64..).zip(&self.regions).filter_map(|(n, region)| Some((n, region.get()?)));
        let counts = regions.flat_map(|(n, region)| {
            (0..REGION_BLOCKS).map(move |at| (n * REGION_BLOCKS + at, region.count(at as usize)))
        });
        counts.filter(|(_, count)| *count > 0)
    }

    /// Frees the memory of regions without shared blocks.
    pub(crate) fn shrink(&mut self) {
        let mut any = false;
        for region in &mut self.regions {
            let used = |region: &Region| (0..REGION_BLOCKS as usize).any(|at| region.count(at) > 0);
            if region.get().is_some_and(used) {
                any = true;
            } else {
                region.take();
            }
        }
        self.any.store(any, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_are_what_was_added_and_not_taken(changes in prop::collection::vec((0u64..4, any::<bool>(), 1usize..400), 0..30)) {
            let blocks = [0, 5, REGION_BLOCKS, 3 * REGION_BLOCKS - 1];
            let (mut references, mut wanted) = (References::new(3 * REGION_BLOCKS), BTreeMap::<u64, u64>::new());
            for (block, add, times) in changes {
                let block = blocks[block as usize];
                for _ in 0..times {
                    let count = wanted.entry(block).or_default();
                    if add {
                        references.add([block]);
                        *count += 1;
                    } else {
                        prop_assert_eq!(references.drop_reference(block), *count > 0);
                        *count = count.saturating_sub(1);
                    }
                    prop_assert_eq!(references.count(block), *count);
                }
            }
            wanted.retain(|_, count| *count > 0);
            for _ in 0..2 {
                prop_assert_eq!(references.all().collect::<BTreeMap<_, _>>(), wanted.clone());
                references.shrink();
            }
            prop_assert_eq!(references.any.load(Ordering::Relaxed), !wanted.is_empty());
        }
    }

    #[test]
    fn a_block_behind_the_device_has_no_count() {
        let references = References::new(10);
        references.add([REGION_BLOCKS]);
        assert!(!references.drop_reference(REGION_BLOCKS) && references.count(REGION_BLOCKS) == 0);
    }
}
