//! The comparison on real runs: equal arms are not called different, and a slowdown that was put into an OSD is found.
//!
//! The long form wants a machine with nothing else to do, and a release build:
//! `CARMINE_BIN=target/release/carmine cargo test -p carmine-tests --release --test compare -- --ignored --nocapture`
#![allow(clippy::disallowed_methods, reason = "runs programs and reads files")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_tests::{Testbed, carmine_bin, run};
use serde_json::Value;

/// One reactor on CPU 1; its idle testbed costs nothing.
const BED: &[&str] = &[
    "--osds",
    "1",
    "--reactors",
    "1",
    "--store",
    "cyan",
    "--osd-memory",
    "512M",
    "--cpus",
    "1",
    "--client-cpus",
    "0",
    "--pgs",
    "32",
];
/// Load from within the OSD: nothing but the OSD is measured.
const LOAD: &[&str] =
    &["--in-process", "--rw", "randread", "--iodepth", "16", "--size", "64m", "--ramp", "200ms"];
/// As in `crates/bin/carmine-osd/src/slowdown.rs`.
const SLOWDOWN: &str = "CARMINE_TEST_SLOWDOWN_PERCENT";

/// Some arms, measured in turn.
struct Experiment {
    bed: Testbed,
    /// A folder of results for each arm.
    arms: Vec<(String, u32)>,
    runtime: &'static str,
}

impl Experiment {
    /// Arms by name and by percent of slowdown.
    fn new(arms: &[(&str, u32)], runtime: &'static str) -> Experiment {
        let arms = arms.iter().map(|(name, percent)| ((*name).to_owned(), *percent)).collect();
        Experiment { bed: Testbed::alone(), arms, runtime }
    }

    /// Folder of an arm's results in this round of the experiment.
    fn folder(&self, round: usize, arm: &str) -> PathBuf {
        self.bed.dir().with_file_name(format!("{round}-{arm}"))
    }

    /// Measures every arm `pairs` times, each time with OSDs that were just started; every other time in the opposite
    /// order, so that a steady drift favours nobody.
    fn measure(&self, round: usize, pairs: usize) {
        for pair in 0..pairs {
            let mut order: Vec<&(String, u32)> = self.arms.iter().collect();
            if pair % 2 == 1 {
                order.reverse();
            }
            for (arm, percent) in order {
                let folder = self.folder(round, arm);
                std::fs::create_dir_all(&folder).expect("a folder for results");
                self.point(*percent, &folder.join(format!("{pair:03}.json")));
            }
        }
    }

    fn point(&self, percent: u32, json: &Path) {
        let variable = format!("{SLOWDOWN}={percent}");
        self.bed.ok("up", &[BED, &["--osd-env", variable.as_str()]].concat());
        let json = json.to_str().expect("UTF-8");
        self.bed.ok("bench", &[LOAD, &["--runtime", self.runtime, "--json", json]].concat());
        self.bed.ok("down", &[]);
    }

    /// Exit code and JSON of `carmine compare` of two arms.
    fn compare(&self, round: usize, base: &str, new: &str, tolerance: &str) -> (Option<i32>, Value) {
        let json = self.bed.dir().with_file_name("comparison.json");
        let (base, new) = (self.folder(round, base), self.folder(round, new));
        let words = [&base, &new, &json].map(|path| path.to_str().expect("UTF-8").to_owned());
        let line = ["compare", words[0].as_str(), &words[1], "--tolerance", tolerance, "--json", &words[2]];
        let output = run(&carmine_bin(), &line, Duration::from_secs(60));
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&json).expect("compare wrote its JSON");
        (output.status.code(), serde_json::from_str(&text).expect("JSON"))
    }
}

fn row<'a>(comparison: &'a Value, metric: &str) -> &'a Value {
    let rows = comparison["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["metric"] == metric).unwrap_or(&Value::Null)
}

fn any_different(comparison: &Value) -> bool {
    comparison["rows"].as_array().expect("rows").iter().any(|row| row["outcome"] == "different")
}

/// What must hold on any machine, however busy: so a large slowdown, and the figure that other processes touch least.
#[test]
fn a_slowdown_is_found_and_equal_arms_are_not_rejected() {
    let experiment = Experiment::new(&[("base", 0), ("same", 0), ("slow", 60)], "500ms");
    experiment.measure(0, 6);
    let (code, same) = experiment.compare(0, "base", "same", "30%");
    // On a busy machine six pairs may be too few to tell.
    let expected = match same["verdict"].as_str() {
        Some("accepted") => 0,
        Some("undecided") if same["pairs_to_decide"].as_u64().is_none_or(|pairs| pairs > 6) => 3,
        _ => panic!("{same:#}"),
    };
    assert_eq!(code, Some(expected), "{same:#}");
    assert_eq!(row(&same, "iops")["pairs"], 6);
    assert_eq!(same["differences"], serde_json::json!([]), "{same:#}");
    let (code, slow) = experiment.compare(0, "base", "slow", "30%");
    let cpu = row(&slow, "osd_cpu_us_per_op");
    assert_eq!(code, Some(1), "{slow:#}");
    assert_eq!((&cpu["outcome"], &cpu["verdict"]), (&"different".into(), &"rejected".into()), "{slow:#}");
    assert!(cpu["comparison"]["ratio"].as_f64().is_some_and(|ratio| ratio > 1.5), "{cpu:#}");
    assert_eq!(slow["differences"][0]["setting"], "osd_env", "{slow:#}");
}

/// Twenty comparisons of equal arms (at most one may find a difference) and twenty of an arm that is slower by 5 % (at
/// least eighteen must find it), with the default number of pairs: about half an hour.
#[test]
#[ignore = "half an hour on a machine with nothing else to do"]
fn twenty_comparisons_of_equal_arms_and_of_a_slowdown() {
    const ROUNDS: usize = 20;
    let experiment = Experiment::new(&[("base", 0), ("same", 0), ("slow", 5)], "1s");
    let (mut wrong, mut found) = (0, 0);
    for round in 0..ROUNDS {
        experiment.measure(round, carmine_stats::PAIRS_DEFAULT);
        wrong += usize::from(any_different(&experiment.compare(round, "base", "same", "5%").1));
        found += usize::from(any_different(&experiment.compare(round, "base", "slow", "1%").1));
        println!("{} rounds: {wrong} equal arms called different, {found} slowdowns found", round + 1);
    }
    assert!(wrong * 20 <= ROUNDS, "{wrong} of {ROUNDS} comparisons of equal arms found a difference");
    assert!(found * 10 >= ROUNDS * 9, "{found} of {ROUNDS} slowdowns of 5 % were found");
}
