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

/// Two arms that are measured at the same time on one CPU, each in an OSD of its own. The scheduler deals the CPU out in slices of
/// a few milliseconds, and so a neighbour on the same core, who halves the CPU's speed for half a second, slows both down alike:
/// where runs one after the other differ by 15 %, these differ by 2 %.
pub struct Experiment {
    beds: [Testbed; 2],
    window: &'static str,
    is_slow: [Cell<bool>; 2],
}

/// The name of an arm, and whether it is slowed down.
pub type Arm = (&'static str, bool);

impl Experiment {
    /// Starts two OSDs that do `percent` less per busy second while they measure an arm that is slowed down.
    pub fn new(percent: u32, window: &'static str) -> Experiment {
        let variable = format!("{SLOWDOWN}={percent}");
        let beds = Testbed::two_up_alone(&[BED, &["--osd-env", variable.as_str()]].concat());
        // The first run writes the objects.
        beds.iter().for_each(|bed| drop(bed.ok("bench", &[LOAD, &["--runtime", "100ms"]].concat())));
        Experiment { beds, window, is_slow: [Cell::new(true), Cell::new(true)] }
    }

    /// Folder of an arm's results in this round of the experiment.
    fn folder(&self, round: usize, arm: &str) -> PathBuf {
        self.beds[0].dir().with_file_name(format!("{round}-{arm}"))
    }

    /// Measures both arms `pairs` times. Each is in the first OSD as often as in the second: two processes differ by some percent.
    pub fn measure(&self, round: usize, arms: [Arm; 2], pairs: usize) {
        for pair in 0..pairs {
            let mut order = arms;
            order.rotate_left(pair % 2);
            let results = order.map(|(arm, _)| {
                let folder = self.folder(round, arm);
                std::fs::create_dir_all(&folder).expect("a folder for results");
                folder.join(format!("{pair:03}.json"))
            });
            (0..2).for_each(|at| self.slow_down(at, order[at].1));
            std::thread::scope(|scope| {
                for (bed, json) in self.beds.iter().zip(&results) {
                    let json = json.to_str().expect("UTF-8");
                    let window = self.window;
                    scope.spawn(move || {
                        bed.ok("bench", &[LOAD, &["--runtime", window, "--json", json]].concat())
                    });
                }
            });
        }
    }

    /// Each SIGUSR1 ends the slowdown or begins it again.
    fn slow_down(&self, at: usize, is_slow: bool) {
        if self.is_slow[at].replace(is_slow) != is_slow {
            let pid = self.beds[at].pid("osd.0").expect("a running OSD").to_string();
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
        let json = self.beds[0].file("comparison.json");
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
