//! Real block devices for tests, made of files.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run programs and look at files"
)]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip;

/// A loop device on a file of its own. Detached when dropped; the file stays.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    backing: PathBuf,
}

impl LoopDevice {
    /// A device of `bytes` with sectors of `sector_bytes`, on a new file `backing` in `folder`. `None`, by way of [`skip`],
    /// where no such device can be made: that takes root, and a kernel with loop devices.
    pub fn new(folder: &Path, bytes: u64, sector_bytes: u32) -> Option<LoopDevice> {
        let backing = folder.join("backing");
        let device = File::create(&backing)
            .and_then(|file| file.set_len(bytes))
            .and_then(|()| LoopDevice::on(backing, sector_bytes));
        device
            .map_err(|why| {
                skip(format_args!(
                    "no loop device can be made ({why}): run as root, with util-linux and the kernel module loop"
                ));
            })
            .ok()
    }

    /// A device on an existing file, with sectors of `sector_bytes`.
    ///
    /// # Errors
    /// Those of `losetup`.
    pub fn on(backing: PathBuf, sector_bytes: u32) -> io::Result<LoopDevice> {
        let path = losetup(&["--find", "--show", "--sector-size", &sector_bytes.to_string()], &backing)?;
        Ok(LoopDevice { path: PathBuf::from(path), backing })
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same as text.
    ///
    /// # Panics
    /// Never: the kernel's names are ASCII.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.to_str().expect("ASCII")
    }

    /// Bytes that the file below takes on its own drive: what was discarded does not count.
    ///
    /// # Errors
    /// If the file has gone.
    pub fn kept_bytes(&self) -> io::Result<u64> {
        // Data in the device's cache counts only once it is in the file.
        File::open(&self.path)?.sync_all()?;
        Ok(self.backing.metadata()?.blocks() * 512)
    }

    /// Makes the device longer or shorter, as a volume manager does below a running system.
    ///
    /// # Errors
    /// Those of `ftruncate` and `losetup --set-capacity`.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        File::options().write(true).open(&self.backing)?.set_len(bytes)?;
        losetup(&["--set-capacity"], &self.path).map(drop)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A test that failed has more to say than this.
        let _ = losetup(&["--detach"], &self.path);
    }
}

/// Standard output of `losetup`; its complaint is the error.
fn losetup(options: &[&str], path: &Path) -> io::Result<String> {
    let output = Command::new("losetup").args(options).arg(path).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
