//! Several OSDs on one device (`--osds-per-device`): each has a slice of it, and locks that while it runs.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use fs_err as fs;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::error::{Result, TestbedError, failed, refuse, usage};

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

/// The slices of `osds` OSDs, in their order: the first `per_device` on the first device.
pub(crate) fn deal(
    osds: u32,
    per_device: u32,
    size_of: impl Fn(u32) -> Result<u64>,
) -> Result<Vec<SlicePlan>> {
    (0..osds)
        .map(|osd| {
            let (device, number) = (osd / per_device, u64::from(osd % per_device));
            let size_bytes = size_of(device)?;
            Ok(SlicePlan { device, offset_bytes: number * size_bytes, size_bytes })
        })
        .collect()
}

/// Length of each of `parts` slices of a block device, bytes.
///
/// # Errors
/// It cannot be opened, is no block device, or would give less than `least_bytes`.
pub(crate) fn share_of(device: &Path, parts: u32, least_bytes: u64) -> Result<u64> {
    let open = || -> std::io::Result<(bool, u64)> {
        let mut file = File::open(device)?;
        Ok((file.metadata()?.file_type().is_block_device(), file.seek(SeekFrom::End(0))?))
    };
    let (is_device, bytes) = open().map_err(|e| usage!("--devs {}: {e}", device.display()))?;
    refuse!(!is_device, "--devs {}: this is no block device", device.display());
    let share = bytes / u64::from(parts) / ALIGN_BYTES * ALIGN_BYTES;
    refuse!(
        share < least_bytes,
        "--osds-per-device {parts}: each slice of {} would have {} MiB, and an OSD needs {}; lower it",
        device.display(),
        share >> 20,
        least_bytes >> 20
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
    let is_device = fs::metadata(device)?.file_type().is_block_device();
    refuse!(!is_device, "--devs {name}: this is no block device");
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device);
    let mut opened = opened.map_err(TestbedError::io("open for itself alone (is it mounted?)", device))?;
    let mut head = vec![0; BLANK_BYTES];
    opened.read_exact(&mut head).map_err(TestbedError::io("read", device))?;
    if !wipe && head.iter().any(|byte| *byte != 0) {
        return Err(failed!(
            "{name} is not blank: name another device, or take --force-wipe, which destroys what is on it"
        ));
    }
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
    let file =
        OpenOptions::new().read(true).write(true).open(path).map_err(TestbedError::io("open", path))?;
    let others = range_lock(slice.offset_bytes, slice.size_bytes);
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&others)) {
        Ok(_) => {}
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            return Err(failed!(
                "the slice of {} at byte {} is in use: does another OSD, or another testbed, run on it?",
                path.display(),
                slice.offset_bytes
            ));
        }
        Err(e) => return Err(failed!("cannot lock a slice of {}: {e}", path.display())),
    }
    let is_device = file.metadata()?.file_type().is_block_device();
    let device = if is_device { claim_device(path, &file)? } else { None };
    Ok(SliceLock { _range: file, _device: device })
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

/// Opens a device for Carmine alone. If it is in use, that must be by an OSD, which has a lock on its slice.
fn claim_device(path: &Path, file: &File) -> Result<Option<File>> {
    let exclusive = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
    match exclusive {
        Ok(device) => Ok(Some(device)),
        Err(e) if e.kind() == ErrorKind::ResourceBusy => {
            // Length 0: to the end, whatever that is.
            let mut found = range_lock(0, 0);
            fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))
                .map_err(|e| failed!("cannot ask for the locks of {}: {e}", path.display()))?;
            if libc::c_int::from(found.l_type) == libc::F_UNLCK {
                return Err(failed!(
                    "{} is mounted or in use: unmount it, or name another device",
                    path.display()
                ));
            }
            Ok(None)
        }
        Err(e) => Err(TestbedError::io("open", path)(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_side_by_side() {
        let slices = deal(4, 2, |device| Ok(100 * (u64::from(device) + 1))).unwrap();
        let all: Vec<_> = slices.iter().map(|s| (s.device, s.offset_bytes, s.size_bytes)).collect();
        assert_eq!(all, [(0, 0, 100), (0, 100, 100), (1, 0, 200), (1, 200, 200)]);
    }

    #[test]
    fn a_slice_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        File::create(&path).unwrap();
        let slices = deal(2, 2, |_| Ok(4096)).unwrap();
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
