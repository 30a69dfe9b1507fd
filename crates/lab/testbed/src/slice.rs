//! Several OSDs on one device (`--osds-per-device`): each has a slice of it, and locks that while it runs.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{File, OpenOptions};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::error::{Result, fail_if, failed, refuse, usage};
use crate::spec::TestbedSpec;

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

/// The head of a device must be zero for this long; every label and partition table begins there.
pub(crate) const BLANK_BYTES: usize = 1 << 20;

/// The length of a block device, bytes, and whether it is blank; `None` if it is something else.
///
/// # Errors
/// It cannot be opened or read.
pub fn look_at(device: &Path) -> std::io::Result<Option<(u64, bool)>> {
    let mut file = File::open(device)?;
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    let is_blank = is_blank(&mut file)?;
    Ok(Some((file.seek(SeekFrom::End(0))?, is_blank)))
}

fn is_blank(device: &mut File) -> std::io::Result<bool> {
    let mut head = Vec::new();
    device.take(BLANK_BYTES as u64).read_to_end(&mut head)?;
    Ok(head.iter().all(|byte| *byte == 0))
}

/// Length of each of `parts` slices of a block device, bytes.
///
/// # Errors
/// It cannot be opened, is not a block device, or would give less than `least_bytes`.
pub(crate) fn share_of(device: &Path, parts: u32, least_bytes: u64) -> Result<u64> {
    let (found, device) = (look_at(device).map_err(|e| usage!("--devs: {e}"))?, device.display());
    let (bytes, _) = found.ok_or_else(|| usage!("--devs {device}: this is not a block device"))?;
    let share = bytes / u64::from(parts) / ALIGN_BYTES * ALIGN_BYTES;
    let (share_mib, least_mib) = (share >> 20, least_bytes >> 20);
    refuse!(
        share < least_bytes,
        "--osds-per-device {parts}: each slice of {device} would have {share_mib} MiB, and an OSD needs {least_mib}; lower it"
    );
    Ok(share)
}

/// Opens a block device for this process alone. It must be blank unless `wipe`.
///
/// # Errors
/// It is not a block device, is not blank, is in use (a mounted one cannot be opened exclusively), or cannot be read.
pub(crate) fn open_alone(device: &Path, wipe: bool) -> Result<File> {
    let name = device.display();
    let is_device = fs_err::metadata(device)?.file_type().is_block_device();
    refuse!(!is_device, "--devs {name}: this is not a block device");
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device);
    let mut opened = opened.map_err(|e| failed!("{e} (is it mounted?)"))?;
    let is_used = !is_blank(&mut opened)?;
    fail_if!(
        is_used && !wipe,
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

/// Takes an OSD's slice of `path`: no other process can take a slice that overlaps it. On a block device it also makes sure
/// that the device is in use by nobody but OSDs.
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
        for (path, part) in [("/dev/null", "not a block device"), ("/no/such", "/no/such")] {
            let error = share_of(Path::new(path), 2, 1).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
    }
}
