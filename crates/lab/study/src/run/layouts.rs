//! Prefilled folders: made once in a run, and what they went through since.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::archive::{ArchiveError, write_whole};

/// What a layout's store went through: the condition of a point.
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
        let bytes = std::fs::read(self.ready_file(name)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Marks a layout as made, or tells what it has gone through.
    pub(super) fn record(&self, name: &str, history: &History) -> Result<(), ArchiveError> {
        std::fs::create_dir_all(&self.dir).map_err(|source| ArchiveError::Io {
            what: "create",
            path: self.dir.clone(),
            source,
        })?;
        write_whole(&self.ready_file(name), &serde_json::to_vec_pretty(history).unwrap_or_default())
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
