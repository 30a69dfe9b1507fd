//! Records that a sweep keeps beside the archive: attempts, layouts, baselines, `commands.sh`, logs of points that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_testbed::{end_of, read_json, write_json, write_whole};
use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, Config, Point, Run};
use crate::commands::by_hand;
use crate::plan::{Role, axis};

/// A point is begun at most this often.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// A baseline that is older than this says nothing about the present.
const AGE_MAX_S: f64 = 600.0;

/// The baselines that were measured last, each with its settings and when it was measured (Unix time).
#[derive(Default)]
pub(super) struct Baselines(Vec<(Config, f64, PathBuf)>);

/// The settings that a baseline depends on: the load's shape and where its data lies.
fn key(point: &Point) -> Config {
    point.config.only(|name| DEPTHS.contains(&name) || is_of_drive(name))
}

/// The settings of the depth.
const DEPTHS: [&str; 2] = ["iodepth", "jobs"];

/// A setting on which depends what a drive does at its best depth.
fn is_of_drive(name: &str) -> bool {
    const KINDS: [&str; 7] =
        ["workload", "bs_bytes", "bssplit", "random_distribution", "read_percent", "cpus", "confine"];
    KINDS.contains(&name) || axis(name).is_some_and(|axis| axis.role == Role::Layout)
}

impl Baselines {
    /// A baseline that was taken for the same load a short while ago.
    pub(super) fn fresh(&self, point: &Point, now_unix_s: f64) -> Option<&PathBuf> {
        let taken = self.0.iter().rev().find(|(of, ..)| *of == key(point))?;
        ((now_unix_s - taken.1).abs() <= AGE_MAX_S).then_some(&taken.2)
    }

    /// A baseline that was taken a short while ago for the same kind of load, at whatever depth.
    pub(super) fn of_kind(&self, point: &Point, now_unix_s: f64) -> Option<&PathBuf> {
        let kind = point.config.only(is_of_drive);
        let taken = self.0.iter().rev().find(|(of, ..)| of.only(is_of_drive) == kind)?;
        ((now_unix_s - taken.1).abs() <= AGE_MAX_S).then_some(&taken.2)
    }

    /// Remembers one.
    pub(super) fn add(&mut self, point: &Point, now_unix_s: f64, file: PathBuf) {
        self.0.push((key(point), now_unix_s, file));
    }
}

/// The history of a layout's store: the condition of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    /// Starts of its OSDs, the first one not counted that made it.
    pub(super) starts: u32,
    /// Loads that were put on it.
    pub(super) loads: u32,
    /// Their windows together, seconds.
    pub(super) loaded_seconds: f64,
}

/// Mark of a run whose layouts are on named devices: what is on them is this run's own, and the next layout may overwrite it.
const DEVICES: &str = "devices.taken";
/// How often each point was begun, also by sweeps that were killed.
const ATTEMPTS: &str = "attempts.json";

/// The folder of all layouts of a run, with a file `LAYOUT.ready` for each that is made.
pub(super) struct Layouts {
    dir: PathBuf,
    /// Layouts that could not be made, with the reason: their points fail without another try.
    pub(super) broken: BTreeMap<String, String>,
    attempts: BTreeMap<String, u32>,
}

impl Layouts {
    /// A file of attempts that is damaged counts as empty: it only guards.
    pub(super) fn open(dir: &Path) -> Result<Layouts, ArchiveError> {
        fs_err::create_dir_all(dir)?;
        let attempts = read_json(&dir.join(ATTEMPTS)).ok().flatten().unwrap_or_default();
        Ok(Layouts { dir: dir.to_path_buf(), broken: BTreeMap::new(), attempts })
    }

    /// Counts a beginning of a point before it happens, and returns its number, from 1.
    pub(super) fn begin(&mut self, stem: &str) -> Result<u32, ArchiveError> {
        let count = self.attempts.entry(stem.to_owned()).or_default();
        *count += 1;
        let count = *count;
        write_json(&self.dir.join(ATTEMPTS), &self.attempts).map(|()| count)
    }

    /// The user stopped the point: that was not its fault.
    pub(super) fn take_back(&mut self, stem: &str) -> Result<(), ArchiveError> {
        self.attempts.remove(stem);
        write_json(&self.dir.join(ATTEMPTS), &self.attempts)
    }

    /// Folder of a layout.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Output of commands that belong to no point.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("stop.log")
    }

    /// Folders that are there, whole or not.
    pub(super) fn existing(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn ready(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.ready"))
    }

    /// `None` if the layout is not made, or was not made to its end.
    pub(super) fn history(&self, name: &str) -> Option<History> {
        read_json(&self.ready(name)).ok()?
    }

    /// Marks a layout as made, or records its history.
    pub(super) fn record(&self, name: &str, history: &History) -> Result<(), ArchiveError> {
        write_json(&self.ready(name), history)
    }

    /// The layout is not whole any more.
    pub(super) fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(self.ready(name));
    }

    /// Remembers that a layout of this run was made on the named devices.
    pub(super) fn take_devices(&self) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join(DEVICES), b"")
    }

    /// True if a layout of this run was made on the named devices.
    pub(super) fn has_devices(&self) -> bool {
        self.dir.join(DEVICES).exists()
    }

    /// Removes the records, and the folder if no layout is left in it.
    pub(super) fn remove(&self) {
        for file in [self.log(), self.dir.join(ATTEMPTS), self.dir.join(DEVICES)] {
            let _ = std::fs::remove_file(file);
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

const HEAD: &str = "#!/bin/sh\n# The commands of this run, as they were run. After `# by hand:` come commands that make the load of the point above with\n# fio, and with rados bench if it can, against the same folder while its OSDs run: first the data, then the load.\n";

/// `commands.sh` so far; the script of a stopped run goes on.
pub(super) struct Script {
    text: String,
    shown: BTreeSet<String>,
}

impl Script {
    pub(super) fn open(dir: &Path) -> Script {
        let text = std::fs::read_to_string(dir.join("commands.sh")).unwrap_or_else(|_| HEAD.to_owned());
        Script { text, shown: BTreeSet::new() }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// Adds the commands that make a point's load by hand.
    pub(super) fn by_hand(&mut self, layout: &Path, point: &Point, ramp: Duration, seed: u64) {
        if self.shown.insert(point.stem.clone()) {
            for line in by_hand(layout, point, ramp, seed) {
                self.line(&format!("# by hand: {line}"));
            }
        }
    }

    pub(super) fn write(&self, run: &Run) -> Result<(), ArchiveError> {
        run.save_text("commands.sh", &self.text)
    }
}

/// The end of each log, bytes.
const TAIL_BYTES: u64 = 32 << 10;

/// Adds the ends of all logs in `folder` to the file `log`. Logs that can't be read are left out: they only explain.
pub(super) fn keep_logs(folder: &Path, log: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    paths.sort_unstable();
    let Ok(mut to) = OpenOptions::new().create(true).append(true).open(log) else { return };
    for path in paths {
        let name = path.file_name().unwrap_or_default().display().to_string();
        let _ = write!(to, "--- the end of {name}\n{}\n", end_of(&path, 0, TAIL_BYTES).trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_all_logs_follow_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("osd.0.log"), format!("{}last words\n", "x".repeat(100_000))).unwrap();
        std::fs::write(path("mon.log"), "calm\n").unwrap();
        std::fs::write(path("testbed.json"), "{}").unwrap();
        std::fs::create_dir(path("out")).unwrap();
        let log = path("out/point");
        std::fs::write(&log, "error: osd.0 died\n").unwrap();
        keep_logs(dir.path(), &log);
        let kept = std::fs::read_to_string(&log).unwrap();
        assert!(
            kept.starts_with("error: osd.0 died\n--- the end of mon.log\ncalm\n--- the end of osd.0.log\n")
        );
        assert!(kept.ends_with("last words\n") && kept.len() < 40_000 && !kept.contains("{}"));
    }
}
