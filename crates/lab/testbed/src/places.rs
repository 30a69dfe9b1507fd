//! The places of those parts of an OSD's store that may lie outside its folder: each is behind a link in the folder, which alone
//! says where the part is. When the link points elsewhere, the old place is not used any more.
//!
//! RocksDB's folder is `db`, or behind that link on another drive. A log with a device or file of its own is behind the link
//! `block.wal`; while the log moves there is a second link, `block.wal.new`, and the store's label says which of the two counts.

use std::path::{Path, PathBuf};

use carmine_types::OsdId;
use fs_err::{self as fs, File, os::unix::fs::symlink};

use crate::error::{Result, fail_if, refuse};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;

/// A database that was moved.
#[derive(Clone, Debug)]
pub struct DbMove {
    /// Its old folder, which is gone.
    pub from: PathBuf,
    /// Its new folder.
    pub to: PathBuf,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// The folder itself, behind all links; as it is named if it does not exist.
#[must_use]
pub fn db_place(layout: &Layout, osd: OsdId) -> PathBuf {
    let path = layout.db(osd);
    path.canonicalize().unwrap_or(path)
}

/// Moves the database of an OSD that does not run into `to`, which must be empty or absent: copies, makes the copy durable,
/// lets the link point there, removes the old folder. After a crash in between the database that the link points to is the
/// whole one; the other folder is garbage.
///
/// # Errors
/// If there is no database, if `to` is not empty or is inside of it, and those of copying.
pub fn migrate_db(layout: &Layout, osd: OsdId, to: &Path) -> Result<DbMove> {
    let link_path = layout.db(osd);
    let from = fs::canonicalize(&link_path)?;
    let is_elsewhere = link_path.is_symlink();
    let to = make_empty(to)?;
    refuse!(to.starts_with(&from), "{} lies inside of {}: take another folder", to.display(), from.display());
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        let (path, is_file) = (entry.path(), entry.file_type()?.is_file());
        fail_if!(!is_file, "{} is not a file: a database's folder has files only", path.display());
        let target = to.join(entry.file_name());
        bytes += fs::copy(path, &target)?;
        File::open(&target)?.sync_all()?;
        files += 1;
    }
    File::open(&to)?.sync_all()?;
    // A folder that stood in the link's place goes with this; its path is the link's from now on.
    link(&to, &link_path)?;
    if is_elsewhere {
        files::remove_dir(&from)?;
    }
    Ok(DbMove { from, to, files, bytes })
}

/// Removes what an OSD has outside of its folder: its database, and its log if that is a file.
pub(crate) fn remove_parts(layout: &Layout, osd: OsdId) -> Result<()> {
    let [db, wal] = [layout.db(osd), layout.wal(osd)].map(fs::read_link);
    db.map_or(Ok(()), |db| files::remove_dir(&db))?;
    wal.map_or(Ok(()), |wal| remove_old_wal(&wal))
}

/// Makes a folder that is empty: one for a database.
///
/// # Errors
/// If there is something in the folder, or it cannot be made.
pub fn make_empty(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let is_used = fs::read_dir(folder)?.next().is_some();
    refuse!(is_used, "{} is not empty: name an empty folder, or one that does not exist", folder.display());
    Ok(fs::canonicalize(folder)?)
}

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

/// Where the log of an OSD lies when its store is made, if not beside the data.
#[must_use]
pub fn planned_wal(plan: &Plan, osd: OsdId) -> Option<PathBuf> {
    wal_at(&plan.wal_devs, &plan.fsid, osd, plan.place_of(osd)?)
}

/// All logs lie in a file each in one folder, or each at a path of its own: the one at its OSD's place.
fn wal_at(wal_devs: &[PathBuf], fsid: &str, osd: OsdId, place: usize) -> Option<PathBuf> {
    match wal_devs {
        [folder] if folder.is_dir() => Some(folder.join(format!("{fsid}-{osd}.wal"))),
        all => all.get(place).cloned(),
    }
}

/// Leaves one link, to the place where the log is now known to lie (`None`: no link, since it lies beside the data).
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

/// Lets `link` point to `target`, atomically and durably. A folder that stands where the link is to be is moved aside and
/// removed.
///
/// # Errors
/// If the link cannot be made.
pub fn link(target: &Path, link: &Path) -> Result<()> {
    let target = std::path::absolute(target)?;
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let [fresh, aside] = ["tmp", "old"].map(|ending| link.with_file_name(format!("{name}.{ending}")));
    files::remove_file(&fresh)?;
    symlink(&target, &fresh)?;
    let is_folder = fs::symlink_metadata(link).is_ok_and(|found| found.is_dir());
    if is_folder {
        fs::rename(link, &aside)?;
    }
    fs::rename(&fresh, link)?;
    File::open(link.parent().unwrap_or(link))?.sync_all()?;
    if is_folder { files::remove_dir(&aside) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(&root.path().join("bed")).unwrap();
        fs::create_dir_all(layout.db(OsdId(0))).unwrap();
        fs::write(layout.db(OsdId(0)).join("CURRENT"), b"MANIFEST-1\n").unwrap();
        fs::write(layout.db(OsdId(0)).join("000004.sst"), vec![7; 5000]).unwrap();
        (root, layout)
    }

    #[test]
    fn a_moved_database_leaves_nothing_behind() {
        let (root, layout) = layout();
        let first = layout.db(OsdId(0));
        for name in ["a", "b"] {
            let to = root.path().join(name);
            let before = db_place(&layout, OsdId(0));
            let moved = migrate_db(&layout, OsdId(0), &to).unwrap();
            assert_eq!((moved.files, moved.bytes), (2, 5011));
            assert_eq!(db_place(&layout, OsdId(0)), to.canonicalize().unwrap());
            assert_eq!(fs::read(first.join("000004.sst")).unwrap(), vec![7; 5000]);
            assert!(!before.exists() || before == first, "{}", before.display());
        }
        let left: Vec<_> =
            fs::read_dir(first.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["db"]);
        remove_parts(&layout, OsdId(0)).unwrap();
        assert!(!root.path().join("b").exists());
    }

    #[test]
    fn a_folder_with_something_in_it_is_refused_and_nothing_is_changed() {
        let (root, layout) = layout();
        fs::write(root.path().join("precious"), b"x").unwrap();
        let error = migrate_db(&layout, OsdId(0), root.path()).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("not empty"), "{error}");
        let inside = layout.db(OsdId(0)).join("deeper");
        let error = migrate_db(&layout, OsdId(0), &inside).unwrap_err();
        assert!(error.to_string().contains("inside"), "{error}");
        assert!(layout.db(OsdId(0)).join("CURRENT").exists());
    }

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
        link(&first, &layout.wal_new(osd)).unwrap();
        settle_wal(&layout, osd, Some(&first)).unwrap();
        link(&second, &layout.wal_new(osd)).unwrap();
        assert_eq!(wal_places(&layout, osd), [first.clone(), second.clone()]);
        settle_wal(&layout, osd, Some(&second)).unwrap();
        assert_eq!(wal_places(&layout, osd), std::slice::from_ref(&second));
        // A move that was refused because something else is at the new place.
        link(&first, &layout.wal_new(osd)).unwrap();
        settle_wal(&layout, osd, Some(&second)).unwrap();
        assert_eq!(wal_places(&layout, osd), std::slice::from_ref(&second));
        remove_parts(&layout, osd).unwrap();
        assert!(first.exists() && !second.exists());
        settle_wal(&layout, osd, None).unwrap();
        assert!(wal_places(&layout, osd).is_empty());
    }

    #[test]
    fn logs_get_a_file_each_in_a_folder_or_the_paths_that_are_named() {
        let root = tempfile::tempdir().unwrap();
        let folder = [root.path().to_owned()];
        assert_eq!(wal_at(&folder, "f", OsdId(3), 0), Some(root.path().join("f-osd.3.wal")));
        let paths = [PathBuf::from("/dev/a"), PathBuf::from("/dev/b")];
        assert_eq!(wal_at(&paths, "f", OsdId(7), 1).as_deref(), Some(Path::new("/dev/b")));
        assert_eq!(wal_at(&[], "f", OsdId(0), 0), None);
    }
}
