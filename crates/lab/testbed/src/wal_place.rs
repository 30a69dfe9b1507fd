//! Where an OSD's log lies if it has a device or file of its own: behind the link `block.wal` in the OSD's folder. While the
//! log moves there is a second link, `block.wal.new`; the store's label says which of the two counts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use carmine_types::OsdId;

use crate::error::{Result, TestbedError};
use crate::files;
use crate::layout::Layout;

/// The places where the log of an OSD may lie: what the links point to.
#[must_use]
pub fn wal_places(layout: &Layout, osd: OsdId) -> Vec<PathBuf> {
    [layout.wal(osd), layout.wal_new(osd)].iter().filter_map(|link| target(link)).collect()
}

/// Where a link points to, behind all links.
fn target(link: &Path) -> Option<PathBuf> {
    let to = fs::read_link(link).ok()?;
    Some(to.canonicalize().unwrap_or(to))
}

/// Where the logs of all OSDs lie when the stores are made: each in a file in one folder, or each at a path of its own.
#[must_use]
pub fn planned_wal(wal_devs: &[PathBuf], fsid: &str, osd: OsdId) -> Option<PathBuf> {
    match wal_devs {
        [folder] if folder.is_dir() => Some(folder.join(format!("{fsid}-osd.{}.wal", osd.0))),
        all => all.get(osd.0 as usize).cloned(),
    }
}

/// Before the store is made: its log will lie there.
///
/// # Errors
/// If the link cannot be made.
pub fn put_wal(layout: &Layout, osd: OsdId, to: &Path) -> Result<()> {
    link(to, &layout.wal(osd))
}

/// Before the log moves: it may lie there soon.
///
/// # Errors
/// If the link cannot be made.
pub fn begin_wal_move(layout: &Layout, osd: OsdId, to: &Path) -> Result<()> {
    link(to, &layout.wal_new(osd))
}

/// When it is known where the log lies (`None`: beside the data): there is one link, to that place.
///
/// # Errors
/// If a link cannot be made or removed.
pub fn settle_wal(layout: &Layout, osd: OsdId, used: Option<&Path>) -> Result<()> {
    let wal = layout.wal(osd);
    match used {
        Some(used) if target(&wal).as_deref() != Some(used) => link(used, &wal)?,
        Some(_) => {}
        None => files::remove_file(&wal)?,
    }
    files::remove_file(&layout.wal_new(osd))
}

/// Removes what was an OSD's log, if it is a file.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_old_wal(path: &Path) -> Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.is_file()) { files::remove_file(path) } else { Ok(()) }
}

/// Removes the log of an OSD if it is a file of its own.
pub(crate) fn remove_wal(layout: &Layout, osd: OsdId) -> Result<()> {
    match fs::read_link(layout.wal(osd)) {
        Ok(target) => remove_old_wal(&target),
        Err(_) => Ok(()),
    }
}

/// Lets `link` point to `target`, at one stroke and durably.
fn link(target: &Path, link: &Path) -> Result<()> {
    let target = std::path::absolute(target).map_err(TestbedError::io("find", target))?;
    let mut fresh = link.as_os_str().to_owned();
    fresh.push(".tmp");
    let fresh = PathBuf::from(fresh);
    files::remove_file(&fresh)?;
    symlink(&target, &fresh).map_err(TestbedError::io("link", &fresh))?;
    fs::rename(&fresh, link).map_err(TestbedError::io("move", &fresh))?;
    let folder = link.parent().unwrap_or(link);
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(TestbedError::io("flush", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_moved_leaves_one_link() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(&root.path().join("bed")).unwrap();
        let osd = OsdId(0);
        fs::create_dir_all(layout.osd_dir(osd)).unwrap();
        let place = |name: &str| {
            let path = root.path().canonicalize().unwrap().join(name);
            fs::write(&path, b"log").unwrap();
            path
        };
        let (first, second) = (place("first"), place("second"));
        assert_eq!(wal_places(&layout, osd), [] as [PathBuf; 0]);
        // From beside the data.
        begin_wal_move(&layout, osd, &first).unwrap();
        settle_wal(&layout, osd, Some(&first)).unwrap();
        begin_wal_move(&layout, osd, &second).unwrap();
        assert_eq!(wal_places(&layout, osd), [first.clone(), second.clone()]);
        settle_wal(&layout, osd, Some(&second)).unwrap();
        assert_eq!(wal_places(&layout, osd), std::slice::from_ref(&second));
        // A move that was refused, of a place where something else is.
        begin_wal_move(&layout, osd, &first).unwrap();
        settle_wal(&layout, osd, Some(&second)).unwrap();
        assert_eq!(wal_places(&layout, osd), std::slice::from_ref(&second));
        remove_wal(&layout, osd).unwrap();
        assert!(first.exists() && !second.exists());
        settle_wal(&layout, osd, None).unwrap();
        assert!(wal_places(&layout, osd).is_empty());
    }

    #[test]
    fn logs_get_a_file_each_in_a_folder_or_the_paths_that_are_named() {
        let root = tempfile::tempdir().unwrap();
        let folder = [root.path().to_owned()];
        assert_eq!(planned_wal(&folder, "f", OsdId(3)), Some(root.path().join("f-osd.3.wal")));
        let paths = [PathBuf::from("/dev/a"), PathBuf::from("/dev/b")];
        assert_eq!(planned_wal(&paths, "f", OsdId(1)).as_deref(), Some(Path::new("/dev/b")));
        assert_eq!(planned_wal(&[], "f", OsdId(0)), None);
    }
}
