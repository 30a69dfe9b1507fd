//! Records that a sweep keeps beside the archive: attempts, layouts, baselines, `commands.sh`, logs of points that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, Config, Point, RunWriter, read_json, write_json, write_whole};
use crate::commands::{BoundedCommand, by_hand, shell_line};
use crate::plan::{Role, axis};

/// A point is begun at most so often.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// Beginnings of points, also by sweeps that were killed.
pub(super) struct Attempts {
    path: PathBuf,
    counts: BTreeMap<String, u32>,
}

impl Attempts {
    /// A file that is damaged counts as empty: it only guards.
    pub(super) fn open(dir: &Path) -> Attempts {
        let path = dir.join("attempts.json");
        let counts = read_json(&path).ok().flatten().unwrap_or_default();
        Attempts { path, counts }
    }

    /// Counts a beginning before it happens; which one it is, from 1.
    pub(super) fn begin(&mut self, stem: &str) -> Result<u32, ArchiveError> {
        let count = self.counts.entry(stem.to_owned()).or_default();
        *count += 1;
        let count = *count;
        write_json(&self.path, &self.counts).map(|()| count)
    }

    /// The user stopped it: that was not the point's fault.
    pub(super) fn forget(&mut self, stem: &str) -> Result<(), ArchiveError> {
        self.counts.remove(stem);
        write_json(&self.path, &self.counts)
    }

    /// The run is complete.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A baseline that is older than this says nothing about now.
const AGE_MAX_S: f64 = 600.0;

/// The baselines that were measured last.
#[derive(Default)]
pub(super) struct Baselines {
    taken: Vec<Taken>,
}

struct Taken {
    key: Config,
    at_unix_s: f64,
    file: PathBuf,
}

/// The settings that a baseline depends on: the load's shape and where its data lies.
fn key(point: &Point) -> Config {
    const SHAPES: [&str; 7] = ["workload", "bs_bytes", "read_percent", "iodepth", "jobs", "cpus", "confine"];
    let layout = |name: &str| axis(name).is_some_and(|axis| axis.role == Role::Layout);
    point.config.only(|name| SHAPES.contains(&name) || layout(name))
}

impl Baselines {
    /// One that was taken for the same load a short while ago.
    pub(super) fn fresh(&self, point: &Point, now_unix_s: f64) -> Option<&PathBuf> {
        let key = key(point);
        let fits = |taken: &&Taken| taken.key == key && (now_unix_s - taken.at_unix_s).abs() <= AGE_MAX_S;
        self.taken.iter().rev().find(fits).map(|taken| &taken.file)
    }

    /// Remembers one.
    pub(super) fn add(&mut self, point: &Point, now_unix_s: f64, file: PathBuf) {
        let key = key(point);
        self.taken.retain(|taken| taken.key != key);
        self.taken.push(Taken { key, at_unix_s: now_unix_s, file });
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

/// Mark of a run whose layouts are on named devices.
const DEVICES: &str = "devices.taken";

/// The folder of all layouts of a run.
pub(super) struct Layouts {
    dir: PathBuf,
    /// Layouts that could not be made: their points fail without another try.
    broken: BTreeMap<String, String>,
}

impl Layouts {
    pub(super) fn new(dir: &Path) -> Layouts {
        Layouts { dir: dir.to_path_buf(), broken: BTreeMap::new() }
    }

    /// Folder of a layout.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn ready_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.ready"))
    }

    /// Folders that are there, whole or not.
    pub(super) fn existing(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> =
            folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// `None` if the layout is not made, or was not made to its end.
    pub(super) fn history(&self, name: &str) -> Option<History> {
        read_json(&self.ready_file(name)).ok()?
    }

    /// Marks a layout as made, or tells what it has gone through.
    pub(super) fn record(&self, name: &str, history: &History) -> Result<(), ArchiveError> {
        std::fs::create_dir_all(&self.dir).map_err(ArchiveError::io("create", &self.dir))?;
        write_json(&self.ready_file(name), history)
    }

    /// The layout is not whole any more.
    pub(super) fn forget(&self, name: &str) {
        let _ = std::fs::remove_file(self.ready_file(name));
    }

    /// Remembers that what is on the named devices is this run's own: the next layout may overwrite it.
    pub(super) fn take_devices(&self) -> Result<(), ArchiveError> {
        write_whole(&self.dir.join(DEVICES), b"")
    }

    /// True if a layout of this run was made on the named devices.
    pub(super) fn has_devices(&self) -> bool {
        self.dir.join(DEVICES).exists()
    }

    /// Remembers that it can't be made.
    pub(super) fn break_off(&mut self, name: &str, why: &str) {
        self.broken.insert(name.to_owned(), why.to_owned());
    }

    /// Why it can't be made, if that was tried.
    pub(super) fn broken(&self, name: &str) -> Option<&str> {
        self.broken.get(name).map(String::as_str)
    }

    /// Removes the folder of all layouts if nothing but marks is left in it.
    pub(super) fn remove_if_empty(&self) {
        let _ = std::fs::remove_file(self.dir.join(DEVICES));
        let _ = std::fs::remove_dir(&self.dir);
    }
}

const HEAD: &str = "#!/bin/sh\n# The commands of this run, as they were run. Behind `# by hand:` stands what does the load of the point above with\n# fio, and with rados bench where that can, against the same folder while its OSDs run: first the data, then the load.\n";

/// The script so far.
pub(super) struct Script {
    text: String,
    shown: BTreeSet<String>,
}

impl Script {
    /// A stopped run's script goes on.
    pub(super) fn open(dir: &Path) -> Script {
        let text = std::fs::read_to_string(dir.join("commands.sh")).unwrap_or_else(|_| HEAD.to_owned());
        Script { text, shown: BTreeSet::new() }
    }

    /// Begins a point.
    pub(super) fn point(&mut self, point: &Point) {
        self.text.push_str(&format!("\n# {} {}\n", point.index, point.stem));
    }

    /// Adds a command; after a load its equivalents.
    pub(super) fn step(&mut self, step: &BoundedCommand) {
        self.text.push_str(&shell_line(&step.argv));
        self.text.push('\n');
    }

    /// Adds what does a point's load by hand.
    pub(super) fn by_hand(&mut self, layout: &Path, point: &Point, ramp: Duration, seed: u64) {
        if self.shown.insert(point.stem.clone()) {
            by_hand(layout, point, ramp, seed)
                .iter()
                .for_each(|line| self.text.push_str(&format!("# by hand: {line}\n")));
        }
    }

    /// Writes it out.
    pub(super) fn write(&self, writer: &RunWriter) -> Result<(), ArchiveError> {
        writer.commands(&self.text)
    }
}

/// The end of each log, bytes.
const TAIL_BYTES: u64 = 32 << 10;

/// Adds the ends of all logs in `folder` to the file `log`. What can't be read is left out: it only explains.
pub(super) fn keep_logs(folder: &Path, log: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    paths.sort_unstable();
    let Ok(mut to) = OpenOptions::new().create(true).append(true).open(log) else { return };
    for path in paths {
        if let Ok(tail) = tail(&path) {
            let name = path.file_name().unwrap_or_default().display().to_string();
            let _ = write!(to, "--- the end of {name}\n{}\n", String::from_utf8_lossy(&tail).trim_end());
        }
    }
}

fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
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
