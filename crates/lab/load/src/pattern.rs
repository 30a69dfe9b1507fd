//! Which block comes next, and when.

use fastrand::Rng;

use crate::bssplit::BlockSplit;
use crate::popularity::Popularity;
use crate::spec::{Arrivals, LoadSpec, Rw};

/// A generator of its own for each seed and stream: the same load, on every machine and under `sim`. Not for secrets.
pub(crate) fn rng(seed: u64, stream: u64) -> Rng {
    Rng::with_seed(seed ^ Rng::with_seed(stream).u64(..))
}

/// Draws one of several parts, each as often as its percentage says; returns its place.
pub(crate) fn draw_part(percents: impl IntoIterator<Item = u8>, rng: &mut Rng) -> usize {
    let drawn = rng.u8(..100);
    let mut end = 0;
    let is_drawn = |percent: u8| {
        end += percent;
        drawn < end
    };
    percents.into_iter().position(is_drawn).unwrap_or(0)
}

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
pub(crate) struct BlockAddr {
    /// Index into [`Geometry::objects`].
    pub(crate) slot: usize,
    /// Index of the object in the whole load.
    pub(crate) object: u32,
    pub(crate) offset: u64,
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

    pub(crate) fn blocks(&self) -> u64 {
        self.objects.len() as u64 * self.blocks_per_object
    }

    /// Where block `block` of this job is; `None` beyond the last.
    pub(crate) fn locate(&self, block: u64) -> Option<BlockAddr> {
        let slot = usize::try_from(block.checked_div(self.blocks_per_object)?).ok()?;
        let offset = block % self.blocks_per_object * self.bs_bytes;
        self.objects.get(slot).map(|object| BlockAddr { slot, object: *object, offset })
    }
}

/// The sequence of operations of one job.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    rng: Rng,
    rw: Rw,
    rwmixread: u64,
    blocks: u64,
    blocks_per_object: u64,
    popularity: Popularity,
    split: Option<BlockSplit>,
    next_sequential: u64,
}

/// The next operation: blocks of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) read: bool,
    /// The first block.
    pub(crate) block: u64,
    /// Blocks.
    pub(crate) count: u64,
}

impl Piece {
    pub(crate) fn blocks(&self) -> std::ops::Range<u64> {
        self.block..self.block + self.count
    }
}

impl Pattern {
    pub(crate) fn new(spec: &LoadSpec, job: u32, blocks: u64) -> Pattern {
        // Each job has popular blocks of its own.
        let popular = rng(spec.seed, u64::from(job) << 32 | 0x407).u64(..);
        Pattern {
            rng: rng(spec.seed, u64::from(job)),
            rw: spec.rw,
            rwmixread: u64::from(spec.rwmixread),
            blocks,
            blocks_per_object: spec.blocks_per_object().max(1),
            popularity: Popularity::new(&spec.random_distribution, blocks, popular),
            split: spec.bssplit.clone(),
            next_sequential: 0,
        }
    }

    /// The next operation.
    #[inline]
    pub(crate) fn next_op(&mut self) -> Piece {
        let read = match self.rw {
            Rw::RandRw => self.rng.u64(..100) < self.rwmixread,
            other => other.reads(),
        };
        let count =
            self.split.as_ref().map_or(1, |split| split.draw(read, &mut self.rng) / split.unit_bytes());
        Piece { read, block: self.next_block(count), count }
    }

    /// The first of `count` blocks: another place for the same operation.
    #[inline]
    pub(crate) fn next_block(&mut self, count: u64) -> u64 {
        if self.rw.is_random() {
            let block = self.popularity.draw(&mut self.rng);
            return self.fit(block, count);
        }
        let block = self.fit(self.next_sequential, count);
        self.next_sequential = if block + count >= self.blocks { 0 } else { block + count };
        block
    }

    /// The same place, or an earlier one if the operation would not end in its object.
    #[inline]
    fn fit(&self, block: u64, count: u64) -> u64 {
        let in_object = block % self.blocks_per_object;
        block - (in_object + count).saturating_sub(self.blocks_per_object).min(in_object)
    }
}

/// When requests are meant to start, in nanoseconds after the load began, whatever the answers do. Latency of open-loop load
/// counts from there, so a stall is charged to every request that it delayed.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    arrivals: Arrivals,
    gap_ns: f64,
    next_ns: f64,
    rng: Rng,
}

impl Schedule {
    /// `None` for closed-loop load. Jobs share the rate; fixed arrivals of different jobs are interleaved.
    pub(crate) fn new(spec: &LoadSpec, job: u32) -> Option<Schedule> {
        let rate = spec.rate_iops?;
        let jobs = f64::from(spec.numjobs.max(1));
        let (gap_ns, rng) = (1e9 * jobs / rate, rng(spec.seed, !u64::from(job)));
        let mut schedule = Schedule { arrivals: spec.arrivals, gap_ns, next_ns: 0.0, rng };
        schedule.next_ns = match spec.arrivals {
            Arrivals::Fixed => gap_ns * f64::from(job) / jobs,
            Arrivals::Poisson => schedule.gap(),
        };
        Some(schedule)
    }

    /// The next intended start.
    pub(crate) fn next_ns(&mut self) -> u64 {
        let start = self.next_ns;
        self.next_ns += self.gap();
        start as u64
    }

    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Fixed => self.gap_ns,
            Arrivals::Poisson => -(1.0 - self.rng.f64()).ln() * self.gap_ns,
        }
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
        assert_eq!(blocks, [0, 1, 2, 0, 1].map(|block| Piece { read: true, block, count: 1 }));
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
        for Piece { read, block, .. } in draw(1) {
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
        let reads = (0..100_000).filter(|_| pattern.next_op().read).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
    }

    fn with_split(rw: Rw) -> LoadSpec {
        LoadSpec { bssplit: "4k/60:64k/40".parse().ok(), object_size_bytes: 128 << 10, ..spec(rw) }.in_units()
    }

    #[test]
    fn sequential_operations_of_several_lengths_leave_nothing_out() {
        let mut pattern = Pattern::new(&with_split(Rw::Write), 0, 96);
        let mut next = 0;
        for _ in 0..1000 {
            let piece = pattern.next_op();
            // Only the last of an object begins before the end of the one before it.
            assert!(
                piece.block == next || piece.block < next && piece.blocks().end.is_multiple_of(32),
                "{piece:?} {next}"
            );
            assert!(
                piece.blocks().end > next && piece.block / 32 == (piece.blocks().end - 1) / 32,
                "{piece:?}"
            );
            next = piece.blocks().end % 96;
        }
    }

    #[test]
    fn hot_blocks_are_the_same_for_the_same_seed_only() {
        let hottest = |seed, job| {
            let random_distribution = "zipf:1.2".parse().unwrap();
            let spec = LoadSpec { seed, random_distribution, ..spec(Rw::RandRead) };
            let mut pattern = Pattern::new(&spec, job, 5000);
            let mut counts = vec![0; 5000];
            (0..20_000).for_each(|_| counts[pattern.next_op().block as usize] += 1);
            (0..5000).max_by_key(|block| counts[*block])
        };
        assert_eq!(hottest(1, 0), hottest(1, 0));
        assert!(hottest(1, 0) != hottest(2, 0) && hottest(1, 0) != hottest(1, 1));
    }

    fn starts(arrivals: Arrivals, numjobs: u32, job: u32, n: usize) -> Vec<u64> {
        let spec = LoadSpec { rate_iops: Some(1000.0), arrivals, numjobs, ..LoadSpec::default() };
        let mut schedule = Schedule::new(&spec, job).unwrap();
        (0..n).map(|_| schedule.next_ns()).collect()
    }

    #[test]
    fn closed_loop_has_no_schedule() {
        assert!(Schedule::new(&LoadSpec::default(), 0).is_none());
    }

    #[test]
    fn fixed_is_even_and_interleaved() {
        assert_eq!(starts(Arrivals::Fixed, 1, 0, 3), [0, 1_000_000, 2_000_000]);
        assert_eq!(starts(Arrivals::Fixed, 2, 1, 2), [1_000_000, 3_000_000]);
    }

    #[test]
    fn poisson_has_the_rate_and_exponential_gaps() {
        let n = 100_000;
        let starts = starts(Arrivals::Poisson, 1, 0, n);
        let rate = n as f64 / (starts[n - 1] as f64 / 1e9);
        assert!((rate / 1000.0 - 1.0).abs() < 0.02, "{rate}");
        let gaps: Vec<f64> = starts.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution's standard deviation is its mean, and 1 - 1/e of it is below the mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
        let below = gaps.iter().filter(|g| **g < mean).count() as f64 / gaps.len() as f64;
        assert!((below - 0.632).abs() < 0.01, "{below}");
    }

    proptest! {
        #[test]
        fn operations_lie_within_one_object(seed: u64, zipf: bool) {
            let random_distribution = if zipf { "zipf:0.9" } else { "random" }.parse().unwrap();
            let spec = LoadSpec { seed, random_distribution, ..with_split(Rw::RandRw) };
            let mut pattern = Pattern::new(&spec, 0, 96);
            for _ in 0..200 {
                let piece = pattern.next_op();
                prop_assert!(piece.blocks().end <= 96 && piece.block / 32 == (piece.blocks().end - 1) / 32);
            }
        }

        #[test]
        fn jobs_share_the_objects_without_overlap(jobs in 1u32..9, objects in 9u64..60) {
            let spec = LoadSpec { numjobs: jobs, size_bytes: objects << 22, ..LoadSpec::default() };
            let mut all: Vec<u32> = (0..jobs).flat_map(|job| Geometry::dealt(&spec, job).objects).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..objects as u32).collect::<Vec<_>>());
        }
    }
}
