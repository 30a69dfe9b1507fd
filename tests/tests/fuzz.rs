//! The fuzz targets without libFuzzer: every seed, then mutated seeds for some time each.
//! CARMINE_FUZZ_SECONDS=60 scripts/test -p carmine-tests --test fuzz -- --nocapture
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads clocks and folders

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use carmine_tests::fuzz::{Mutator, TARGETS, Target};
use carmine_tests::workspace_root;

/// Seconds for each target, unless `CARMINE_FUZZ_SECONDS` says otherwise. CI runs each for ten seconds.
const SECONDS: f64 = 0.3;
/// One input may take this long on a busy machine; it takes microseconds.
const INPUT_LIMIT: Duration = Duration::from_secs(20);

fn seconds() -> Duration {
    let told = std::env::var("CARMINE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(told.unwrap_or(SECONDS))
}

/// Runs one input; a panic or a hang names it, so that it can become a test.
fn one(target: &Target, input: &[u8]) {
    let begin = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = begin.elapsed();
    let shown = || input.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(outcome.is_ok(), "the target {} panics with {}", target.name, shown());
    assert!(took < INPUT_LIMIT, "the target {} takes {took:?} with {}", target.name, shown());
}

#[test]
fn mutated_seeds_do_no_harm() {
    let random = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|text| text.parse().ok());
    let random = random.unwrap_or_else(|| u64::from(std::process::id()));
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| one(target, seed));
        let (mut mutator, end, mut inputs) = (Mutator::new(random), Instant::now() + seconds(), 0_u64);
        while Instant::now() < end {
            for _ in 0..64 {
                one(target, &mutator.input(&seeds));
                inputs += 1;
            }
        }
        eprintln!("{}: {} seeds, {inputs} inputs (mutator {random})", target.name, seeds.len());
    }
}

/// A target without its three lines would only be run here, and the other way round not at all.
#[test]
fn libfuzzer_has_the_same_targets() {
    let folder = workspace_root().join("tests/fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).expect("tests/fuzz/fuzz_targets").flatten();
    let files: BTreeSet<String> =
        files.filter_map(|f| Some(f.path().file_stem()?.to_str()?.to_owned())).collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(files, names);
    let manifest = std::fs::read_to_string(workspace_root().join("tests/fuzz/Cargo.toml")).expect("UTF-8");
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "tests/fuzz/Cargo.toml has no {name}");
        let path = workspace_root().join(format!("tests/fuzz/fuzz_targets/{name}.rs"));
        let text = std::fs::read_to_string(path).expect("UTF-8");
        assert!(text.contains(&format!("run({name:?}, bytes)")), "{name}.rs runs another target");
    }
}
