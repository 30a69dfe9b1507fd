//! Which block comes next, and when.

use fastrand::Rng;

use crate::spec::{Arrivals, LoadSpec, Rw};

/// A generator of its own for each seed and stream: the same load, on every machine and under `sim`. Not for secrets.
pub(crate) fn rng(seed: u64, stream: u64) -> Rng {
    Rng::with_seed(seed ^ Rng::with_seed(stream).u64(..))
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
    next_sequential: u64,
}

impl Pattern {
    pub(crate) fn new(spec: &LoadSpec, job: u32, blocks: u64) -> Pattern {
        let (rng, rwmixread) = (rng(spec.seed, u64::from(job)), u64::from(spec.rwmixread));
        Pattern { rng, rw: spec.rw, rwmixread, blocks, next_sequential: 0 }
    }

    /// The next operation: (is a read, block).
    #[inline]
    pub(crate) fn next_op(&mut self) -> (bool, u64) {
        let read = match self.rw {
            Rw::RandRw => self.rng.u64(..100) < self.rwmixread,
            other => other.reads(),
        };
        (read, self.next_block())
    }

    /// Another block for the same operation.
    #[inline]
    pub(crate) fn next_block(&mut self) -> u64 {
        if self.rw.is_random() {
            return self.rng.u64(..self.blocks);
        }
        let block = self.next_sequential;
        self.next_sequential = if block + 1 >= self.blocks { 0 } else { block + 1 };
        block
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
        fn jobs_share_the_objects_without_overlap(jobs in 1u32..9, objects in 9u64..60) {
            let spec = LoadSpec { numjobs: jobs, size_bytes: objects << 22, ..LoadSpec::default() };
            let mut all: Vec<u32> = (0..jobs).flat_map(|job| Geometry::dealt(&spec, job).objects).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..objects as u32).collect::<Vec<_>>());
        }
    }
}
