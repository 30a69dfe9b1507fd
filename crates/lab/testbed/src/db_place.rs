//! Where RocksDB's folder of an OSD lies: in the OSD's folder, or behind a link there, on another drive. The link is the
//! only thing that says so: when it points elsewhere, nothing of the old place is used any more.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use carmine_types::OsdId;

use crate::error::{Result, TestbedError, failed, usage};
use crate::files;
use crate::layout::Layout;

/// What a move of a database was.
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

/// Before the store is made: lets the database of an OSD lie in this folder, which must be empty or not there.
///
/// # Errors
/// If there is something in the folder, or it cannot be made.
pub fn put_db(layout: &Layout, osd: OsdId, folder: &Path) -> Result<()> {
    let folder = make_empty(folder)?;
    link(&folder, &layout.db(osd))
}

/// Moves the database of an OSD that does not run into `to`, which must be empty or not there: copies, makes the copy durable,
/// lets the link point there, removes the old folder. After a crash in between the database that the link points to is the
/// whole one; the other folder is rubbish.
///
/// # Errors
/// If there is no database, if `to` is not empty or is inside of it, and those of copying.
pub fn migrate_db(layout: &Layout, osd: OsdId, to: &Path) -> Result<DbMove> {
    let link_path = layout.db(osd);
    let from = link_path.canonicalize().map_err(TestbedError::io("find", &link_path))?;
    let is_elsewhere = link_path.is_symlink();
    let to = make_empty(to)?;
    if to.starts_with(&from) {
        return Err(usage!("{} lies inside of {}: take another folder", to.display(), from.display()));
    }
    let mut moved = DbMove { from: from.clone(), to: to.clone(), files: 0, bytes: 0 };
    for entry in fs::read_dir(&from).map_err(TestbedError::io("list", &from))? {
        let entry = entry.map_err(TestbedError::io("list", &from))?;
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return Err(failed!(
                "{} is not a file: a database's folder has files only",
                entry.path().display()
            ));
        }
        let target = to.join(entry.file_name());
        moved.bytes +=
            copy_durably(&entry.path(), &target).map_err(TestbedError::io("copy", &entry.path()))?;
        moved.files += 1;
    }
    sync(&to)?;
    // A folder that stood in the link's place goes with this; its path is the link's from now on.
    link(&to, &link_path)?;
    if is_elsewhere {
        files::remove_dir(&from)?;
    }
    Ok(moved)
}

/// Removes the database of an OSD where it lies outside of the OSD's folder.
pub(crate) fn remove_db(layout: &Layout, osd: OsdId) -> Result<()> {
    let path = layout.db(osd);
    match fs::read_link(&path) {
        Ok(target) => files::remove_dir(&target),
        Err(_) => Ok(()),
    }
}

fn make_empty(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).map_err(TestbedError::io("create", folder))?;
    let mut entries = fs::read_dir(folder).map_err(TestbedError::io("list", folder))?;
    if entries.next().is_some() {
        return Err(usage!("{} is not empty: name a folder that is, or none", folder.display()));
    }
    folder.canonicalize().map_err(TestbedError::io("find", folder))
}

fn copy_durably(from: &Path, to: &Path) -> io::Result<u64> {
    let bytes = fs::copy(from, to)?;
    File::open(to)?.sync_all()?;
    Ok(bytes)
}

fn sync(folder: &Path) -> Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(TestbedError::io("flush", folder))
}

/// Lets `link` point to `target`, at one stroke. A folder that stands where the link is to be is put aside and removed.
fn link(target: &Path, link: &Path) -> Result<()> {
    let parent = link.parent().unwrap_or(link);
    let fresh = link.with_extension("new");
    files::remove_file(&fresh)?;
    symlink(target, &fresh).map_err(TestbedError::io("link", &fresh))?;
    let is_folder = fs::symlink_metadata(link).is_ok_and(|found| found.is_dir());
    let aside = link.with_extension("old");
    if is_folder {
        fs::rename(link, &aside).map_err(TestbedError::io("move", link))?;
    }
    fs::rename(&fresh, link).map_err(TestbedError::io("move", &fresh))?;
    sync(parent)?;
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
        remove_db(&layout, OsdId(0)).unwrap();
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
}
