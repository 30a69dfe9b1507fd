//! When requests are meant to start, whatever the answers do. Latency of open-loop load counts from there, so a stall
//! is charged to every request that it delayed.

use crate::rng::Rng;
use crate::spec::{Arrivals, LoadSpec};

/// Intended starts of one job, in nanoseconds after the load began.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    gap_ns: f64,
    next_ns: f64,
    rng: Rng,
}

impl Schedule {
    /// `None` for closed-loop load. Jobs share the rate; fixed arrivals of different jobs are interleaved.
    pub fn new(spec: &LoadSpec, job: u32) -> Option<Schedule> {
        let rate = spec.rate_iops?;
        let jobs = f64::from(spec.numjobs.max(1));
        let gap_ns = 1e9 * jobs / rate;
        let mut schedule = Schedule {
            arrivals: spec.arrivals,
            gap_ns,
            next_ns: 0.0,
            rng: Rng::new(spec.seed, !u64::from(job)),
        };
        schedule.next_ns = match spec.arrivals {
            Arrivals::Fixed => gap_ns * f64::from(job) / jobs,
            Arrivals::Poisson => schedule.gap(),
        };
        Some(schedule)
    }

    /// The next intended start.
    pub fn next_ns(&mut self) -> u64 {
        let start = self.next_ns;
        self.next_ns += self.gap();
        start as u64
    }

    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Fixed => self.gap_ns,
            Arrivals::Poisson => -self.rng.unit().ln() * self.gap_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
