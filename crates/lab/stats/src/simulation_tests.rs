//! The proof of the comparison on simulated experiments: how often it raises a false alarm, and how often it finds a real difference.

use crate::testing::{Noise, paired};
use crate::{Comparison, DIFFERENT, NoComparison, Outcome, PAIRS_DEFAULT, holm, judge};

/// Figures of a comparison's report: IOPS, p99 latency, CPU of OSDs and of the machine per operation.
const METRICS: usize = 4;
const EXPERIMENTS: usize = 20_000;
/// Twice the standard error of counting a part of 1 % in that many experiments.
const COUNTING: f64 = 0.0014;
const TOLERANCE: f64 = 0.05;

/// The machine's effects on a measured figure, all as parts of 1.
#[derive(Clone, Copy)]
struct Machine {
    /// Standard deviation of a single run's logarithm.
    noise: f64,
    /// The whole machine gets slower by this much from the first run to the last…
    drift: f64,
    /// … and wanders: standard deviation of each step from one pair to the next.
    wander: f64,
    /// Chance of a run that something disturbs, which costs it 5 to 15 %.
    outliers: f64,
}

/// The noise of CPU time per operation on this project's machine (`tests/tests/compare.rs`): logarithms of pairs have a
/// standard deviation of 0.03 to 0.04, of which a run has its part by √2.
const QUIET: Machine = Machine { noise: 0.02, drift: 0.05, wander: 0.02, outliers: 0.02 };

/// One comparison: `pairs` pairs in the order A B B A, the second arm slower by `slowdown`.
fn experiment(noise: &mut Noise, machine: Machine, pairs: usize, slowdown: f64) -> Vec<Outcome> {
    let mut base = vec![Vec::new(); METRICS];
    let mut new = base.clone();
    let mut level = 0.0;
    for pair in 0..pairs {
        level += machine.wander * noise.normal();
        for turn in 0..2 {
            let is_base = (turn == 0) == pair.is_multiple_of(2);
            let drift = machine.drift * (2 * pair + turn) as f64 / (2 * pairs) as f64;
            let hit = if noise.uniform() < machine.outliers { 0.05 + 0.1 * noise.uniform() } else { 0.0 };
            let arm = if is_base { &mut base } else { &mut new };
            let effect = if is_base { 0.0 } else { (1.0 - slowdown).ln() };
            for figures in arm {
                figures.push(1e5 * (level - drift - hit + effect + machine.noise * noise.normal()).exp());
            }
        }
    }
    outcomes(&base, &new)
}

/// As `carmine compare` does it.
fn outcomes(base: &[Vec<f64>], new: &[Vec<f64>]) -> Vec<Outcome> {
    let comparisons: Vec<Result<Comparison, NoComparison>> =
        base.iter().zip(new).map(|(base, new)| paired(base, new)).collect();
    let p: Vec<f64> = comparisons.iter().map(|c| c.as_ref().map_or(1.0, |c| c.p)).collect();
    comparisons.iter().zip(holm(&p)).map(|(c, p)| judge(c, p, TOLERANCE)).collect()
}

/// Part of the experiments in which the outcomes are as `wanted`.
fn part(seed: u64, machine: Machine, pairs: usize, slowdown: f64, wanted: fn(&[Outcome]) -> bool) -> f64 {
    let mut noise = Noise::new(seed);
    let found =
        (0..EXPERIMENTS).filter(|_| wanted(&experiment(&mut noise, machine, pairs, slowdown))).count();
    found as f64 / EXPERIMENTS as f64
}

fn different(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Different { .. })
}

/// Any figure of a report in which nothing differs.
#[test]
fn equal_arms_are_called_different_in_at_most_1_percent() {
    let wild = Machine { noise: 0.10, drift: 0.3, wander: 0.10, outliers: 0.2 };
    let still = Machine { noise: 0.005, drift: 0.0, wander: 0.0, outliers: 0.0 };
    for (name, machine) in [("quiet", QUIET), ("wild", wild), ("still", still)] {
        for pairs in [5, PAIRS_DEFAULT] {
            let wrong = part(21, machine, pairs, 0.0, |all| all.iter().any(different));
            assert!(wrong <= DIFFERENT + COUNTING, "{name}, {pairs} pairs: {wrong}");
        }
    }
}

/// Every figure of the report, by itself.
#[test]
fn a_slowdown_of_5_percent_is_found_in_at_least_90_percent() {
    let found = part(22, QUIET, PAIRS_DEFAULT, 0.05, |all| different(&all[0]));
    assert!(found >= 0.9, "{PAIRS_DEFAULT} pairs: {found}");
}

#[test]
fn equal_arms_are_called_equal_when_the_noise_allows() {
    let equal = part(23, QUIET, PAIRS_DEFAULT, 0.0, |all| matches!(all[0], Outcome::Equal { .. }));
    assert!(equal >= 0.8, "{PAIRS_DEFAULT} pairs: {equal}");
    // Arms that differ by the whole tolerance must not be called equal.
    let wrong = part(24, QUIET, PAIRS_DEFAULT, 0.05, |all| matches!(all[0], Outcome::Equal { .. }));
    assert!(wrong <= 0.05, "{wrong}");
}

/// Without pairing, the machine's wandering would hide the slowdown.
#[test]
fn pairing_is_what_finds_it() {
    let mut noise = Noise::new(25);
    let mut smallest = |shuffled: bool| {
        let mut found = 0;
        for _ in 0..EXPERIMENTS {
            let level: Vec<f64> = noise.autocorrelated(0.9, PAIRS_DEFAULT).iter().map(|v| 0.1 * v).collect();
            let run = |at: usize, effect: f64, noise: &mut Noise| {
                (level[at] + effect + 0.02 * noise.normal()).exp()
            };
            let base: Vec<f64> = (0..PAIRS_DEFAULT).map(|n| run(n, 0.0, &mut noise)).collect();
            let other = |n: usize| if shuffled { (n + PAIRS_DEFAULT / 2) % PAIRS_DEFAULT } else { n };
            let new: Vec<f64> = (0..PAIRS_DEFAULT).map(|n| run(other(n), 0.95f64.ln(), &mut noise)).collect();
            found += usize::from(paired(&base, &new).is_ok_and(|c| c.p < DIFFERENT));
        }
        found as f64 / EXPERIMENTS as f64
    };
    let (paired, unpaired) = (smallest(false), smallest(true));
    assert!(paired > 0.9 && unpaired < 0.5, "paired {paired}, not paired {unpaired}");
}
