//! Block files and devices of the OSDs, made as a Carmine testbed makes its own: files written through, devices only if
//! they are blank.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use carmine_testbed::{Result, TestbedError};

const CHUNK_BYTES: u64 = 4 << 20;
/// Zeros between two syncs: bounds the page cache that mkfs takes.
const SYNC_BYTES: u64 = 256 << 20;
/// The head of a device must be zero for this long; every label and partition table begins there.
const BLANK_BYTES: usize = 1 << 20;

/// How a block file is made.
pub(crate) struct Making<'a> {
    /// Its length.
    pub(crate) size_bytes: u64,
    /// Leave holes.
    pub(crate) sparse: bool,
    /// Set from outside: give up.
    pub(crate) cancel: &'a AtomicBool,
}

/// Makes a block file and writes it full of zeros, so that no write of a test meets an unwritten extent of the file
/// system. `progress` is told the bytes done.
///
/// # Errors
/// The file exists, the disk is full, or it was interrupted.
pub(crate) fn make_file(path: &Path, making: &Making<'_>, mut progress: impl FnMut(u64)) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(TestbedError::io("create", path))?;
    file.set_len(making.size_bytes).map_err(TestbedError::io("set the size of", path))?;
    if making.sparse {
        return Ok(());
    }
    let zeros = vec![0; CHUNK_BYTES as usize];
    let mut done = 0;
    while done < making.size_bytes {
        if making.cancel.load(Ordering::Relaxed) {
            return Err(TestbedError::Failed("interrupted".into()));
        }
        let chunk = CHUNK_BYTES.min(making.size_bytes - done) as usize;
        file.write_all(&zeros[..chunk]).map_err(TestbedError::io("write zeros to", path))?;
        done += chunk as u64;
        if done.is_multiple_of(SYNC_BYTES) || done == making.size_bytes {
            file.sync_data().map_err(TestbedError::io("flush", path))?;
            progress(done);
        }
    }
    Ok(())
}

/// Makes `link` point to a block device, which must be blank unless `wipe`; with `wipe` its head is cleared, so that
/// BlueStore takes it for a new one.
///
/// # Errors
/// It is no block device, is not blank, is in use (a mounted one cannot be opened exclusively), or cannot be read.
pub(crate) fn link_device(device: &Path, link: &Path, wipe: bool) -> Result<()> {
    let meta = std::fs::metadata(device).map_err(TestbedError::io("look at", device))?;
    if !meta.file_type().is_block_device() {
        return Err(TestbedError::Usage(format!("--devs {}: this is no block device", device.display())));
    }
    let mut opened = open_exclusively(device)?;
    let mut head = vec![0; BLANK_BYTES];
    opened.read_exact(&mut head).map_err(TestbedError::io("read", device))?;
    if head.iter().any(|byte| *byte != 0) {
        if !wipe {
            return Err(TestbedError::Usage(format!(
                "--devs {}: the device is not blank: name another, or take --force-wipe, which destroys what is on it",
                device.display()
            )));
        }
        clear_head(&mut opened).map_err(TestbedError::io("clear the head of", device))?;
    }
    symlink(device, link).map_err(TestbedError::io("create", link))
}

fn clear_head(device: &mut File) -> std::io::Result<()> {
    std::io::Seek::rewind(device)?;
    device.write_all(&vec![0; BLANK_BYTES])?;
    device.sync_all()
}

/// `O_EXCL` on a block device without `O_CREAT`: refused while it is mounted or part of something.
fn open_exclusively(device: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    const O_EXCL: i32 = 0o200;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_EXCL)
        .open(device)
        .map_err(TestbedError::io("open for itself alone (is it mounted?)", device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_through_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let cancel = AtomicBool::new(false);
        let making = Making { size_bytes: 9 << 20, sparse: false, cancel: &cancel };
        let mut last = 0;
        make_file(&path, &making, |done| last = done).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((last, meta.len()), (9 << 20, 9 << 20));
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= 9 << 20, "it has holes");
        let again = make_file(&path, &making, |_| ()).unwrap_err();
        assert!(again.to_string().contains("create"), "{again}");
    }

    #[test]
    fn interrupted_and_no_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let making = Making { size_bytes: 8 << 20, sparse: false, cancel: &AtomicBool::new(true) };
        assert!(make_file(&path, &making, |_| ()).unwrap_err().to_string().contains("interrupted"));
        let error = link_device(&path, &dir.path().join("link"), true).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no block device"), "{error}");
    }
}
