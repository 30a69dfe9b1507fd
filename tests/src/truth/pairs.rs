//! Comparisons of real runs: arms that are equal, and arms of which one is slowed down by a known part.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::{Testbed, carmine_bin, run};

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
/// Load from within the OSD: nothing but the OSD is measured. The data stay in the CPU's caches, whose misses are as noisy as
/// the machine's other guests.
const LOAD: &[&str] = &["--in-process", "--rw", "randread", "--iodepth", "16", "--size", "4m"];
/// As in `crates/bin/carmine-osd/src/slowdown.rs`.
const SLOWDOWN: &str = "CARMINE_TEST_SLOWDOWN_PERCENT";

/// Arms that are measured in turn, all on one running OSD: two processes differ by several percent.
pub struct Experiment {
    bed: Testbed,
    /// Names, and which are slowed down.
    arms: Vec<(&'static str, bool)>,
    window: &'static str,
    is_slow: Cell<bool>,
}

impl Experiment {
    /// Starts an OSD that does `percent` less per busy second while an arm is measured that is slowed down.
    pub fn new(arms: &[(&'static str, bool)], percent: u32, window: &'static str) -> Experiment {
        let variable = format!("{SLOWDOWN}={percent}");
        let bed = Testbed::up_alone(&[BED, &["--osd-env", variable.as_str()]].concat());
        // The first run writes the objects.
        bed.ok("bench", &[LOAD, &["--runtime", "100ms"]].concat());
        Experiment { bed, arms: arms.to_vec(), window, is_slow: Cell::new(true) }
    }

    /// Folder of an arm's results in this round of the experiment.
    fn folder(&self, round: usize, arm: &str) -> PathBuf {
        self.bed.dir().with_file_name(format!("{round}-{arm}"))
    }

    /// Measures every arm `pairs` times; every other time in the opposite order, so that a steady drift favours nobody.
    pub fn measure(&self, round: usize, pairs: usize) {
        for pair in 0..pairs {
            let mut order = self.arms.clone();
            if pair % 2 == 1 {
                order.reverse();
            }
            for (arm, is_slow) in order {
                let folder = self.folder(round, arm);
                std::fs::create_dir_all(&folder).expect("a folder for results");
                let json = folder.join(format!("{pair:03}.json"));
                self.slow_down(is_slow);
                self.bed.ok(
                    "bench",
                    &[LOAD, &["--runtime", self.window, "--json", json.to_str().expect("UTF-8")]].concat(),
                );
            }
        }
    }

    /// Each SIGUSR1 ends the slowdown or begins it again.
    fn slow_down(&self, is_slow: bool) {
        if self.is_slow.replace(is_slow) != is_slow {
            let pid = self.bed.pid("osd.0").expect("a running OSD").to_string();
            assert!(Command::new("kill").args(["-USR1", &pid]).status().expect("kill").success());
        }
    }

    /// Exit code, text and JSON of `carmine compare` of two arms.
    pub fn compare(
        &self,
        round: usize,
        base: &str,
        new: &str,
        tolerance: &str,
    ) -> (Option<i32>, String, Value) {
        let json = self.bed.file("comparison.json");
        let folders = [base, new].map(|arm| self.folder(round, arm).to_str().expect("UTF-8").to_owned());
        let line = ["compare", &folders[0], &folders[1], "--tolerance", tolerance, "--json", &json];
        let output = run(&carmine_bin(), &line, Duration::from_secs(60));
        let said = [output.stdout, output.stderr].concat();
        let text = std::fs::read_to_string(&json).expect("compare wrote its JSON");
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said, serde_json::from_str(&text).expect("JSON"))
    }
}

/// The row of one figure in the JSON of a comparison.
pub fn row<'a>(comparison: &'a Value, metric: &str) -> &'a Value {
    let rows = comparison["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["metric"] == metric).unwrap_or(&Value::Null)
}

/// Any figure was called different.
pub fn any_different(comparison: &Value) -> bool {
    comparison["rows"].as_array().expect("rows").iter().any(|row| row["outcome"] == "different")
}
