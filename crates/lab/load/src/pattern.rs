//! Which block comes next.

use crate::rng::Rng;
use crate::spec::{LoadSpec, Rw};

/// Objects of one job, as indices of the whole load, and how they are cut into blocks. Blocks are numbered 0 to
/// `blocks()` through the job's objects in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub objects: Vec<u32>,
    pub blocks_per_object: u64,
    pub bs_bytes: u64,
}

/// Where a block lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAddr {
    /// Index into [`Geometry::objects`].
    pub slot: usize,
    /// Index of the object in the whole load.
    pub object: u32,
    pub offset: u64,
}

impl Geometry {
    /// The objects that `owns` accepts (by index).
    pub fn new(spec: &LoadSpec, owns: impl Fn(u32) -> bool) -> Geometry {
        let objects = (0..u32::try_from(spec.objects()).unwrap_or(u32::MAX)).filter(|o| owns(*o)).collect();
        Geometry { objects, blocks_per_object: spec.blocks_per_object(), bs_bytes: spec.bs_bytes }
    }

    /// Every `numjobs`-th object, beginning with number `job`.
    pub fn dealt(spec: &LoadSpec, job: u32) -> Geometry {
        Geometry::new(spec, |object| object % spec.numjobs.max(1) == job)
    }

    pub fn blocks(&self) -> u64 {
        self.objects.len() as u64 * self.blocks_per_object
    }

    /// Where block `block` of this job is; `None` beyond the last.
    pub fn locate(&self, block: u64) -> Option<BlockAddr> {
        let slot = usize::try_from(block.checked_div(self.blocks_per_object)?).ok()?;
        let offset = block % self.blocks_per_object * self.bs_bytes;
        self.objects.get(slot).map(|object| BlockAddr { slot, object: *object, offset })
    }
}

/// The sequence of operations of one job.
#[derive(Clone, Debug)]
pub struct Pattern {
    rng: Rng,
    rw: Rw,
    rwmixread: u64,
    blocks: u64,
    next_sequential: u64,
}

impl Pattern {
    pub fn new(spec: &LoadSpec, job: u32, blocks: u64) -> Pattern {
        Pattern {
            rng: Rng::new(spec.seed, u64::from(job)),
            rw: spec.rw,
            rwmixread: u64::from(spec.rwmixread),
            blocks,
            next_sequential: 0,
        }
    }

    /// The next operation: (is a read, block).
    #[inline]
    pub fn next_op(&mut self) -> (bool, u64) {
        let read = match self.rw {
            Rw::RandRw => self.rng.below(100) < self.rwmixread,
            other => other.reads(),
        };
        (read, self.next_block())
    }

    /// Another block for the same operation.
    #[inline]
    pub fn next_block(&mut self) -> u64 {
        if self.rw.is_random() {
            return self.rng.below(self.blocks);
        }
        let block = self.next_sequential;
        self.next_sequential = if block + 1 >= self.blocks { 0 } else { block + 1 };
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(rw: Rw) -> LoadSpec {
        LoadSpec { rw, size_bytes: 64 << 20, ..LoadSpec::default() }
    }

    #[test]
    fn sequential_wraps() {
        let geometry = Geometry::dealt(&spec(Rw::Read), 0);
        let mut pattern = Pattern::new(&spec(Rw::Read), 0, 3);
        let blocks: Vec<_> = (0..5).map(|_| pattern.next_op()).collect();
        assert_eq!(blocks, [(true, 0), (true, 1), (true, 2), (true, 0), (true, 1)]);
        assert_eq!(geometry.locate(1025), Some(BlockAddr { slot: 1, object: 1, offset: 4096 }));
        assert_eq!(geometry.locate(16 * 1024), None);
    }

    #[test]
    fn random_covers_everything_evenly_and_repeats() {
        let draw = |seed| {
            let mut pattern = Pattern::new(&LoadSpec { seed, ..spec(Rw::RandWrite) }, 0, 100);
            (0..50_000).map(|_| pattern.next_op()).collect::<Vec<_>>()
        };
        let mut counts = [0u32; 100];
        for (read, block) in draw(1) {
            assert!(!read);
            counts[block as usize] += 1;
        }
        assert!(counts.iter().all(|n| (380..620).contains(n)), "{counts:?}");
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn mix_is_kept() {
        let mut pattern = Pattern::new(&LoadSpec { rwmixread: 70, ..spec(Rw::RandRw) }, 3, 1000);
        let reads = (0..100_000).filter(|_| pattern.next_op().0).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
    }

    proptest! {
        #[test]
        fn jobs_share_the_objects_without_overlap(jobs in 1u32..9, objects in 9u64..60) {
            let spec = LoadSpec { numjobs: jobs, size_bytes: objects << 22, ..LoadSpec::default() };
            let mut all: Vec<u32> = (0..jobs).flat_map(|job| Geometry::dealt(&spec, job).objects).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..objects as u32).collect::<Vec<_>>());
        }
    }
}
