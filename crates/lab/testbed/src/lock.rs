//! One command at a time per testbed folder.

use std::fs::{File, OpenOptions, TryLockError};

use crate::error::{Result, TestbedError, failed};
use crate::layout::Layout;

/// Held while a command starts, stops or removes the testbed. The kernel releases it with the process,
/// so a killed command leaves no stale lock. Daemons do not inherit it (the file is close-on-exec).
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock, or says who else may hold it. The folder must exist.
    pub fn take(layout: &Layout) -> Result<Self> {
        let path = layout.lock();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(TestbedError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(failed!(
                "another carmine command is working on {} (it holds {}): wait for it, or end it",
                layout.dir().display(),
                path.display()
            )),
            Err(TryLockError::Error(e)) => Err(TestbedError::io("lock", &path)(e)),
        }
    }
}
