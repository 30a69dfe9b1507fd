//! How often each point was begun: a point that takes the whole sweep down must not do so for ever.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::archive::{ArchiveError, write_whole};

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
        let bytes = std::fs::read(&path).unwrap_or_default();
        Attempts { path, counts: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    /// Counts a beginning before it happens; which one it is, from 1.
    pub(super) fn begin(&mut self, stem: &str) -> Result<u32, ArchiveError> {
        let count = self.counts.entry(stem.to_owned()).or_default();
        *count += 1;
        let count = *count;
        let bytes = serde_json::to_vec_pretty(&self.counts).unwrap_or_default();
        write_whole(&self.path, &bytes)?;
        Ok(count)
    }

    /// The user stopped it: that was not the point's fault.
    pub(super) fn forget(&mut self, stem: &str) -> Result<(), ArchiveError> {
        self.counts.remove(stem);
        write_whole(&self.path, &serde_json::to_vec_pretty(&self.counts).unwrap_or_default())
    }

    /// The run is complete.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
