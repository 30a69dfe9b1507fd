//! Draws blocks so that some are more popular than others.

use std::convert::Infallible;

use fastrand::Rng;
use rand_core::TryRng;
use rand_distr::{Distribution as _, Normal, Zipf};

use crate::distribution::{Distribution, Zone};
use crate::pattern::draw_part;

/// Draws blocks of one job.
#[derive(Clone, Debug)]
pub(crate) struct Popularity {
    blocks: u64,
    law: Law,
    scatter: Scatter,
}

/// How a rank of popularity, from 0, is drawn.
#[derive(Clone, Debug)]
enum Law {
    Even,
    Zipf(Zipf<f64>),
    /// The rank is this power of an even draw.
    Power(f64),
    Normal(Normal<f64>),
    Zones(Vec<Zone>),
}

impl Popularity {
    /// Draws from `blocks` blocks, which must be at least one. `seed` decides which blocks are popular.
    pub(crate) fn new(distribution: &Distribution, blocks: u64, seed: u64) -> Popularity {
        let n = blocks.max(1) as f64;
        // The numbers of a distribution are checked when it is parsed; equal popularity is the only other answer here.
        let law = match distribution {
            Distribution::Random => Law::Even,
            Distribution::Zipf(theta) => Zipf::new(n, *theta).map_or(Law::Even, Law::Zipf),
            // "Self-similar" in Gray et al., Quickly generating billion-record synthetic databases, 1994.
            Distribution::Pareto(h) => Law::Power(h.ln() / (1.0 - h).ln()),
            Distribution::Normal(percent) => {
                Normal::new(n / 2.0, n * percent / 100.0).map_or(Law::Even, Law::Normal)
            }
            Distribution::Zoned(zones) => Law::Zones(zones.clone()),
        };
        Popularity { blocks, law, scatter: Scatter::new(blocks, seed) }
    }

    /// The next block.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.law {
            Law::Even => rng.u64(..self.blocks),
            // A zone is a place.
            Law::Zones(zones) => self.in_zones(zones, rng),
            _ => self.scatter.place(self.rank(rng)),
        }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        let n = self.blocks as f64;
        let rank = match &self.law {
            Law::Zipf(zipf) => zipf.sample(&mut Draws(rng)) - 1.0,
            Law::Power(power) => n * rng.f64().powf(*power),
            Law::Normal(normal) => loop {
                let rank = normal.sample(&mut Draws(rng));
                if (0.0..n).contains(&rank) {
                    break rank;
                }
            },
            Law::Even | Law::Zones(_) => 0.0,
        };
        (rank as u64).min(self.blocks.saturating_sub(1))
    }

    fn in_zones(&self, zones: &[Zone], rng: &mut Rng) -> u64 {
        let at = draw_part(zones.iter().map(|zone| zone.ops_percent), rng);
        let end = |zones: &[Zone]| {
            let percent: u128 = zones.iter().map(|zone| u128::from(zone.blocks_percent)).sum();
            (u128::from(self.blocks) * percent / 100) as u64
        };
        let (from, to) = (end(&zones[..at]), end(&zones[..=at]));
        // A zone of a few blocks may be shorter than one.
        rng.u64(from..to.max(from + 1)).min(self.blocks.saturating_sub(1))
    }
}

/// A permutation of blocks by which neighbours in popularity lie far apart: in different objects, and so in different PGs.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    blocks: u64,
    step: u64,
    offset: u64,
}

impl Scatter {
    fn new(blocks: u64, seed: u64) -> Scatter {
        let blocks = blocks.max(1);
        // Multiples of the golden ratio spread most evenly. A step without a common divisor visits each block once.
        let mut step = ((blocks as f64 * 0.618_033_988_749_895) as u64).max(1);
        while gcd(step, blocks) != 1 {
            step += 1;
        }
        Scatter { blocks, step, offset: Rng::with_seed(seed).u64(..blocks) }
    }

    /// The block that has this rank.
    fn place(&self, rank: u64) -> u64 {
        let at = u128::from(rank) * u128::from(self.step) + u128::from(self.offset);
        (at % u128::from(self.blocks)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The generator's random numbers as `rand_distr` takes them.
struct Draws<'a>(&'a mut Rng);

impl TryRng for Draws<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.u32(..))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.u64(..))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    const BLOCKS: u64 = 10_000;

    fn popularity(text: &str, blocks: u64) -> Popularity {
        Popularity::new(&text.parse().unwrap(), blocks, 7)
    }

    fn draws(popularity: &Popularity, seed: u64, n: usize) -> Vec<u64> {
        let mut rng = Rng::with_seed(seed);
        (0..n).map(|_| popularity.draw(&mut rng)).collect()
    }

    /// The share of the blocks whose ranks are in this range.
    fn share(text: &str, ranks: std::ops::Range<u64>) -> f64 {
        let popularity = popularity(text, BLOCKS);
        let mut is_hot = vec![false; BLOCKS as usize];
        ranks.for_each(|rank| is_hot[popularity.scatter.place(rank) as usize] = true);
        let drawn = draws(&popularity, 1, 1_000_000);
        drawn.iter().filter(|block| is_hot[**block as usize]).count() as f64 / drawn.len() as f64
    }

    #[test]
    fn the_hottest_percent_gets_the_share_that_theory_says() {
        let hot = 0..BLOCKS / 100;
        for theta in [0.8_f64, 0.99, 1.2] {
            let sum = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
            let theory = sum(BLOCKS / 100) / sum(BLOCKS);
            let share = share(&format!("zipf:{theta}"), hot.clone());
            assert!((share - theory).abs() < 0.005, "zipf {theta}: {share}, in theory {theory}");
        }
        for h in [0.1_f64, 0.2, 0.4] {
            let theory = 0.01_f64.powf((1.0 - h).ln() / h.ln());
            let share = share(&format!("pareto:{h}"), hot.clone());
            assert!((share - theory).abs() < 0.005, "pareto {h}: {share}, in theory {theory}");
        }
        // 80 % go to 20 % of the blocks.
        assert!((share("pareto:0.2", 0..BLOCKS / 5) - 0.8).abs() < 0.005);
        // One deviation on either side of the middle.
        let middle = share("normal:10", BLOCKS * 4 / 10..BLOCKS * 6 / 10);
        assert!((middle - 0.6827).abs() < 0.005, "{middle}");
        let peak = share("normal:10", BLOCKS * 495 / 1000..BLOCKS * 505 / 1000);
        assert!((peak - 0.0399).abs() < 0.002, "{peak}");
    }

    #[test]
    fn zones_are_places() {
        let drawn = draws(&popularity("zoned:60/10:30/20:10/70", BLOCKS), 1, 100_000);
        let part = |range: std::ops::Range<u64>| {
            drawn.iter().filter(|block| range.contains(block)).count() as f64 / drawn.len() as f64
        };
        for (range, theory) in [(0..1000, 0.6), (1000..3000, 0.3), (3000..10_000, 0.1)] {
            assert!((part(range.clone()) - theory).abs() < 0.01, "{theory} of {range:?}");
        }
    }

    #[test]
    fn the_hottest_blocks_lie_in_many_objects() {
        let (objects, each) = (64, 1024);
        let popularity = popularity("zipf:1.2", objects * each);
        let hottest = |n: u64| {
            let objects = (0..n).map(|rank| popularity.scatter.place(rank) / each);
            objects.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert!(hottest(16) >= 15 && hottest(128) == 64, "{} {}", hottest(16), hottest(128));
    }

    #[test]
    fn the_seed_decides_which_blocks_are_hot_and_what_is_drawn() {
        let (one, other) =
            (popularity("zipf:1.2", BLOCKS), Popularity::new(&Distribution::Zipf(1.2), BLOCKS, 8));
        assert_eq!(draws(&one, 1, 1000), draws(&popularity("zipf:1.2", BLOCKS), 1, 1000));
        assert_ne!(draws(&one, 1, 1000), draws(&one, 2, 1000));
        assert_ne!(one.scatter.place(0), other.scatter.place(0));
        // The same load on every machine and with every later build.
        assert_eq!(draws(&one, 1, 4), GOLDEN, "another load than in earlier results");
    }

    const GOLDEN: [u64; 4] = [4620, 7733, 3471, 6629];

    proptest! {
        #[test]
        fn every_block_has_one_rank(blocks in 1u64..5000, seed: u64) {
            let scatter = Scatter::new(blocks, seed);
            let mut all: Vec<u64> = (0..blocks).map(|rank| scatter.place(rank)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..blocks).collect::<Vec<_>>());
        }

        #[test]
        fn every_block_of_few_is_drawn_and_no_other(
            text in prop::sample::select(vec!["random", "zipf:0.5", "zipf:1.5", "pareto:0.3", "normal:40", "zoned:50/20:50/80"]),
            blocks in 1u64..24,
            seed: u64,
        ) {
            let drawn: std::collections::BTreeSet<u64> = draws(&popularity(text, blocks), seed, 20_000).into_iter().collect();
            prop_assert_eq!(drawn, (0..blocks).collect());
        }

        #[test]
        fn blocks_are_in_range(theta in 0.01f64..9.9, blocks in 1u64..u64::MAX >> 12, seed: u64) {
            prop_assume!(theta != 1.0);
            for distribution in [Distribution::Zipf(theta), Distribution::Pareto(theta / 10.0), Distribution::Normal(theta)] {
                let popularity = Popularity::new(&distribution, blocks, seed);
                prop_assert!(draws(&popularity, seed, 50).iter().all(|block| *block < blocks));
            }
        }
    }
}
