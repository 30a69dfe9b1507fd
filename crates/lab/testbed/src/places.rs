//! Where the parts of an OSD's store lie that need not lie in its folder: each behind a link there, which is the only thing that
//! says so. When it points elsewhere, nothing of the old place is used any more.
//!
//! RocksDB's folder is `db`, or behind that link on another drive. A log with a device or file of its own is behind the link
//! `block.wal`; while the log moves there is a second link, `block.wal.new`, and the store's label says which of the two counts.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use carmine_types::OsdId;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{self as fs, File, OpenOptions, os::unix::fs::symlink};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::error::{Result, fail_if, failed, refuse, usage};
use crate::files;
use crate::folder::Layout;
use crate::spec::TestbedSpec;

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

/// Moves the database of an OSD that does not run into `to`, which must be empty or not there: copies, makes the copy durable,
/// lets the link point there, removes the old folder. After a crash in between the database that the link points to is the
/// whole one; the other folder is rubbish.
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
    refuse!(is_used, "{} is not empty: name a folder that is, or none", folder.display());
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

/// Where the logs of all OSDs lie when the stores are made: each in a file in one folder, or each at a path of its own.
#[must_use]
pub fn planned_wal(wal_devs: &[PathBuf], fsid: &str, osd: OsdId) -> Option<PathBuf> {
    match wal_devs {
        [folder] if folder.is_dir() => Some(folder.join(format!("{fsid}-osd.{}.wal", osd.0))),
        all => all.get(osd.0 as usize).cloned(),
    }
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

/// Lets `link` point to `target`, at one stroke and durably. A folder that stands where the link is to be is put aside and
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

// Several OSDs on one device (`--osds-per-device`): each has a slice of it, and locks that while it runs.

/// Slices begin at multiples of this.
const ALIGN_BYTES: u64 = 1 << 20;

/// The part of a device that one OSD has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlicePlan {
    /// Which device: index in `--devs`, or number of the file `device.N` in the folder.
    pub device: u32,
    /// Where it begins, bytes.
    pub offset_bytes: u64,
    /// Its length, bytes.
    pub size_bytes: u64,
}

/// The OSDs' slices if they share devices, in their order: the first ones on the first device. Each has `least_bytes`.
pub(crate) fn deal(spec: &TestbedSpec, least_bytes: u64) -> Result<Vec<SlicePlan>> {
    let per_device = spec.osds_per_device;
    let slice = |osd| {
        let (device, number) = (osd / per_device, u64::from(osd % per_device));
        let path = spec.devices.get(device as usize);
        let size_bytes =
            path.map_or(Ok(spec.osd_size_bytes), |path| share_of(path, per_device, least_bytes))?;
        Ok(SlicePlan { device, offset_bytes: number * size_bytes, size_bytes })
    };
    (0..spec.osds).filter(|_| per_device > 1).map(slice).collect()
}

/// Length of each of `parts` slices of a block device, bytes.
///
/// # Errors
/// It cannot be opened, is no block device, or would give less than `least_bytes`.
pub(crate) fn share_of(device: &Path, parts: u32, least_bytes: u64) -> Result<u64> {
    let size = || -> std::io::Result<Option<u64>> {
        let mut file = File::open(device)?;
        let is_device = file.metadata()?.file_type().is_block_device();
        Ok(if is_device { Some(file.seek(SeekFrom::End(0))?) } else { None })
    };
    let (size, device) = (size().map_err(|e| usage!("--devs: {e}"))?, device.display());
    let bytes = size.ok_or_else(|| usage!("--devs {device}: this is no block device"))?;
    let share = bytes / u64::from(parts) / ALIGN_BYTES * ALIGN_BYTES;
    let (share_mib, least_mib) = (share >> 20, least_bytes >> 20);
    refuse!(
        share < least_bytes,
        "--osds-per-device {parts}: each slice of {device} would have {share_mib} MiB, and an OSD needs {least_mib}; lower it"
    );
    Ok(share)
}

/// The head of a device must be zero for this long; every label and partition table begins there.
pub(crate) const BLANK_BYTES: usize = 1 << 20;

/// Opens a block device for this process alone. It must be blank unless `wipe`.
///
/// # Errors
/// It is no block device, is not blank, is in use (a mounted one cannot be opened exclusively), or cannot be read.
pub(crate) fn open_alone(device: &Path, wipe: bool) -> Result<File> {
    let name = device.display();
    let is_device = fs_err::metadata(device)?.file_type().is_block_device();
    refuse!(!is_device, "--devs {name}: this is no block device");
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device);
    let mut opened = opened.map_err(|e| failed!("{e} (is it mounted?)"))?;
    let mut head = vec![0; BLANK_BYTES];
    opened.read_exact(&mut head)?;
    fail_if!(
        !wipe && head.iter().any(|byte| *byte != 0),
        "{name} is not blank: name another device, or take --force-wipe, which destroys what is on it"
    );
    Ok(opened)
}

/// Holds a slice; released when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub struct SliceLock {
    _range: File,
    /// The device for Carmine alone, held by the first of its OSDs that starts.
    _device: Option<File>,
}

/// Takes an OSD's slice of `path`: no other process can take a slice that overlaps it. On a block device it also sees to
/// it that the device is in use by nobody but OSDs.
///
/// # Errors
/// The slice is taken, or the device is mounted or in use otherwise.
pub fn lock(path: &Path, slice: &SlicePlan) -> Result<SliceLock> {
    let (open, name) =
        (|flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path), path.display());
    let range = open(0)?;
    match fcntl(&range, FcntlArg::F_OFD_SETLK(&range_lock(slice.offset_bytes, slice.size_bytes))) {
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            let at = slice.offset_bytes;
            Err(failed!(
                "the slice of {name} at byte {at} is in use: does another OSD, or another testbed, run on it?"
            ))
        }
        locked => locked.map_err(|e| failed!("cannot lock a slice of {name}: {e}")),
    }?;
    if !range.metadata()?.file_type().is_block_device() {
        return Ok(SliceLock { _range: range, _device: None });
    }
    let device = match open(libc::O_EXCL) {
        // If it is in use, that must be by an OSD, which has a lock on its slice.
        Err(e) if e.kind() == ErrorKind::ResourceBusy => {
            // Length 0: to the end, whatever that is.
            let mut found = range_lock(0, 0);
            fcntl(&range, FcntlArg::F_OFD_GETLK(&mut found))
                .map_err(|e| failed!("cannot ask for the locks of {name}: {e}"))?;
            let is_foreign = libc::c_int::from(found.l_type) == libc::F_UNLCK;
            fail_if!(is_foreign, "{name} is mounted or in use: unmount it, or name another device");
            None
        }
        device => Some(device?),
    };
    Ok(SliceLock { _range: range, _device: device })
}

fn range_lock(offset_bytes: u64, size_bytes: u64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset_bytes as libc::off_t,
        l_len: size_bytes as libc::off_t,
        l_pid: 0,
    }
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
        // A move that was refused, of a place where something else is.
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
        assert_eq!(planned_wal(&folder, "f", OsdId(3)), Some(root.path().join("f-osd.3.wal")));
        let paths = [PathBuf::from("/dev/a"), PathBuf::from("/dev/b")];
        assert_eq!(planned_wal(&paths, "f", OsdId(1)).as_deref(), Some(Path::new("/dev/b")));
        assert_eq!(planned_wal(&[], "f", OsdId(0)), None);
    }
}

#[cfg(test)]
mod slice_tests {
    use super::*;

    #[test]
    fn slices_lie_side_by_side() {
        let spec = TestbedSpec { osds: 4, osds_per_device: 2, osd_size_bytes: 100, ..TestbedSpec::default() };
        let slices = deal(&spec, 1).unwrap();
        let all: Vec<_> = slices.iter().map(|s| (s.device, s.offset_bytes, s.size_bytes)).collect();
        assert_eq!(all, [(0, 0, 100), (0, 100, 100), (1, 0, 100), (1, 100, 100)]);
    }

    #[test]
    fn a_slice_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        File::create(&path).unwrap();
        let slices = [0, 4096].map(|offset_bytes| SlicePlan { device: 0, offset_bytes, size_bytes: 4096 });
        let first = lock(&path, &slices[0]).unwrap();
        let second = lock(&path, &slices[1]).unwrap();
        let overlap = SlicePlan { offset_bytes: 4095, size_bytes: 2, ..slices[0] };
        for taken in [&slices[0], &slices[1], &overlap] {
            let error = lock(&path, taken).unwrap_err().to_string();
            assert!(error.contains("is in use"), "{error}");
        }
        drop((first, second));
        lock(&path, &overlap).unwrap();
    }

    #[test]
    fn what_is_no_device_has_no_slices() {
        for (path, part) in [("/dev/null", "no block device"), ("/no/such", "/no/such")] {
            let error = share_of(Path::new(path), 2, 1).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }
}
