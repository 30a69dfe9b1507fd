//! Power cuts: a random load is recorded, and every store that a cut at any moment could have left is opened and examined.
//!
//! A failure names its seed: `CRASH_SEED=n cargo test -p carmine-store --test crash long -- --ignored` goes through all
//! images of that one.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, unreachable_pub)]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod flips;
mod kv;
mod merge;
mod moves;
mod seen;
mod split;
mod work;

use carmine_reactor::sim::{Tape, Unflushed};

use check::check;
use kv::KvTape;
use seen::Seen;
use work::{Histories, Life, Start, live};

/// Bits from a counter.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// Cuts between moments at which something became durable, besides as many as there are of those: a store that makes
/// nothing durable must be found out too.
const BETWEEN: u64 = 4;

/// When the power goes, and what it does: at every moment at which something became durable, and as often in between.
fn cuts(tape: &Tape, kv: &KvTape, from: usize, seed: u64) -> Vec<(usize, Unflushed)> {
    let fate = |n: u64| match n % 8 {
        0 => Unflushed::Lost,
        1 => Unflushed::Kept,
        _ => Unflushed::Random(mix(n)),
    };
    let mut boundaries = tape.boundaries();
    boundaries.extend(kv.boundaries());
    boundaries.retain(|at| *at >= from);
    boundaries.sort_unstable();
    boundaries.dedup();
    let room = (tape.len() - from) as u64 + 1;
    let between = (0..boundaries.len() as u64 + BETWEEN).map(|n| from + (mix(seed ^ n) % room) as usize);
    let at: Vec<usize> = boundaries.iter().copied().chain(between).collect();
    at.into_iter().zip(0u64..).map(|(at, n)| (at, fate(mix(seed) ^ mix(n)))).collect()
}

/// Where the life's load begins: when the ballast is acknowledged.
fn begins(life: &Life) -> usize {
    life.histories.last().and_then(|ballast| ballast.acknowledged.last()).copied().unwrap_or(0)
}

/// Records one load and goes through its power cuts, some of which are lived on from, with a cut again: at every moment of
/// the replay, and at some later ones.
///
/// # Errors
/// The first fault, with all that is needed to reproduce it.
fn examine(seed: u64, count: u64, every: usize, seen: &mut Seen) -> Result<usize, String> {
    let life = live(seed, Start { life: None, histories: Histories::new() }, count);
    seen.life(&life);
    let mut images = 0;
    let cuts = cuts(&life.tape, &life.kv.watch, begins(&life), seed);
    for (n, &(at, unflushed)) in cuts.iter().enumerate().skip(seed as usize % every).step_by(every) {
        let told =
            |error| format!("CRASH_SEED={seed}, cut {n} of {} at {at}, {unflushed:?}: {error}", cuts.len());
        let left = check(&life, at, unflushed).map_err(told)?;
        seen.cut(&life, at, unflushed, &left);
        images += 1;
        if n % 16 == 0 {
            let start = Start { life: Some((&life, at, unflushed)), histories: left.prefixes };
            let again = live(mix(seed ^ at as u64), start, 4);
            seen.life(&again);
            let cuts = self::cuts(&again.tape, &again.kv.watch, 0, seed).into_iter().enumerate();
            for (m, (at, unflushed)) in cuts.filter(|(m, (at, _))| m % 3 == 0 || *at < again.mounted_at) {
                let told = |error| told(format!("second cut {m} at {at}, {unflushed:?}: {error}"));
                let left = check(&again, at, unflushed).map_err(told)?;
                seen.cut(&again, at, unflushed, &left);
                images += 1;
            }
        }
    }
    Ok(images)
}

/// Goes through seeds until so many images are examined.
fn until(images_wanted: usize, count: u64, every: usize) -> Seen {
    let only = std::env::var("CRASH_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let (mut images, mut seeds, mut seen) = (0, 0, Seen::default());
    for seed in only.map_or(0..u64::MAX, |seed| seed..seed + 1) {
        match examine(seed, count, every, &mut seen) {
            Ok(more) => images += more,
            Err(error) => panic!("{error}"),
        }
        seeds += 1;
        if images >= images_wanted {
            break;
        }
    }
    println!("{images} crash images of {seeds} loads");
    seen
}

/// Events that a run must have met to prove anything.
const WANTED: [&str; 18] = [
    "waits for room in the log",
    "transactions around the log",
    "marks",
    "deferred writes",
    "lives that went around the whole log",
    "trims",
    "lives with several reactors",
    "lives with a device for the log",
    "lives with another number of reactors than the log has lanes",
    "log writes lost",
    "log writes torn at 512 bytes",
    "cuts during a replay",
    "replays of several lanes",
    "transactions replayed",
    "transactions dropped for their data",
    "blocks written from the log",
    "omap keys in images",
    "shared blocks in images",
];

#[test]
fn every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged() {
    until(500, 20, 12).assert_all(&WANTED);
}

/// `cargo test --release -p carmine-store --test crash long -- --ignored --nocapture`: 10,000 images.
#[test]
#[ignore = "minutes"]
fn long() {
    until(10_000, 30, 1).assert_all(&WANTED);
}
