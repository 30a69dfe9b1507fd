//! The folder of a testbed or a peer: empty when it is made, and of which daemons it has the records.

use std::fs;
use std::path::Path;

use carmine_types::OsdId;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::confine;
use crate::daemons::{Stopped, stop};
use crate::error::{Result, TestbedError, failed, usage};
use crate::files;
use crate::layout::{Daemon, Layout};
use crate::lock::FolderLock;

/// Fails if something new cannot be made in this folder because there is something in it. Worth asking before work that
/// takes hours. `what` is a testbed or a peer.
///
/// # Errors
/// Names what is there.
pub fn refuse_used_folder(dir: &Path, what: &str) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(TestbedError::io("read", dir))?,
    };
    for entry in entries {
        let name = entry.map_err(TestbedError::io("read", dir))?.file_name();
        if name != "lock" {
            return Err(usage!(
                "{} is not empty (it has {}) and holds no {what}: name another folder with --dir; nothing was changed",
                dir.display(),
                name.display()
            ));
        }
    }
    Ok(())
}

/// An empty folder that was taken for something new.
#[derive(Debug)]
pub struct NewFolder {
    /// Its paths.
    pub layout: Layout,
    /// Held from here on.
    pub lock: FolderLock,
    /// False if it was created now: it is removed again if filling it fails.
    pub existed: bool,
}

impl NewFolder {
    /// Makes the folder if there is none, and locks it.
    ///
    /// # Errors
    /// There is something in it, or another command works on it.
    pub fn take(layout: &Layout, what: &str) -> Result<Self> {
        refuse_used_folder(layout.dir(), what)?;
        let existed = layout.dir().exists();
        fs::create_dir_all(layout.dir()).map_err(TestbedError::io("create", layout.dir()))?;
        let layout = Layout::new(layout.dir())?;
        let lock = FolderLock::take(&layout)?;
        // Another command may have been quicker.
        refuse_used_folder(layout.dir(), what)?;
        Ok(Self { layout, lock, existed })
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// True if a plan can be read so far that it is of another format.
pub(crate) fn has_other_format(path: &Path, format: u32) -> bool {
    files::read_json::<Format>(path).is_ok_and(|found| found.is_some_and(|found| found.format != format))
}

/// Reads a plan with a number of its format; `None` if there is none.
///
/// # Errors
/// It cannot be read, is damaged, or has another format.
pub fn read_plan<P: DeserializeOwned>(path: &Path, format: u32) -> Result<Option<P>> {
    match files::read_json::<Format>(path)? {
        None => Ok(None),
        Some(Format { format: other }) if other != format => Err(failed!(
            "{} has format {other}, this carmine reads {format}: use the carmine that made it",
            path.display()
        )),
        Some(_) => files::read_json(path),
    }
}

/// The daemons of so many OSDs, OSDs first: the order in which they are stopped.
pub fn daemons_of(osds: u32) -> Vec<Daemon> {
    (0..osds).map(|id| Daemon::Osd(OsdId(id))).chain([Daemon::Mon]).collect()
}

/// Stops the OSDs, then the monitor.
///
/// # Errors
/// A record is damaged, or a daemon does not end.
pub fn stop_all(layout: &Layout, osds: u32) -> Result<Vec<(Daemon, Stopped)>> {
    stop_daemons(layout, &daemons_of(osds))
}

/// Stops these: OSDs first, then the monitor, and what confined them.
pub(crate) fn stop_daemons(layout: &Layout, daemons: &[Daemon]) -> Result<Vec<(Daemon, Stopped)>> {
    let (osds, mon): (Vec<_>, Vec<_>) = daemons.iter().copied().partition(|d| *d != Daemon::Mon);
    let mut report = stop(layout, &osds)?;
    report.extend(stop(layout, &mon)?);
    files::remove_file(&layout.mon_addr())?;
    confine::remove(layout)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("bed")).unwrap();
        assert!(!NewFolder::take(&layout, "testbed").unwrap().existed);
        assert!(NewFolder::take(&layout, "testbed").unwrap().existed, "a lock alone is nothing");
        fs::write(layout.dir().join("thesis.tex"), "").unwrap();
        let error = NewFolder::take(&layout, "peer").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("thesis.tex"), "{error}");
        assert!(error.to_string().contains("holds no peer"), "{error}");
    }

    #[test]
    fn a_damaged_or_other_plan_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let read = || read_plan::<serde_json::Value>(&path, 1);
        assert!(read().unwrap().is_none());
        fs::write(&path, "{\"format\": 1").unwrap();
        assert!(read().unwrap_err().to_string().contains("damaged"));
        fs::write(&path, "{\"format\": 2}").unwrap();
        assert!(read().unwrap_err().to_string().contains("has format 2, this carmine reads 1"));
        fs::write(&path, "{\"format\": 1, \"x\": 5}").unwrap();
        assert_eq!(read().unwrap().unwrap()["x"], 5);
    }
}
