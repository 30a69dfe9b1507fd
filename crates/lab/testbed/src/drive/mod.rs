//! What the kernel says of the drives under a store, and what follows for it: class, flush mode.

pub mod facts;
mod flush;
mod sysfs;
#[cfg(test)]
mod tests;

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use carmine_load::drive::{DriveFacts, StorePart};
use rustix::fs::{major, minor};

pub use carmine_load::drive::WriteCache;
pub use flush::Flushing;

/// Most loop devices on files on loop devices that are looked through.
const LOOPS_MAX: usize = 4;

/// A file, folder or device, and what it lies on. Of a path that does not exist yet, the folder around it counts.
#[must_use]
pub fn part_at(path: &Path) -> StorePart {
    part_in(Path::new("/sys"), path)
}

fn part_in(sys: &Path, path: &Path) -> StorePart {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_device = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
    StorePart { drive: drive_in(sys, &path), path, is_device }
}

/// The device's own queue says how it must be treated; what the file behind a loop device lies on says only which drive.
fn drive_in(sys: &Path, path: &Path) -> DriveFacts {
    let Some(mut found) = look(sys, path) else { return DriveFacts::default() };
    let mut facts = found.facts.clone();
    for _ in 0..LOOPS_MAX {
        let Some(below) = found.backing_file.as_deref().and_then(|file| look(sys, file)) else { break };
        facts.drives.clone_from(&below.facts.drives);
        facts.model.clone_from(&below.facts.model);
        facts.serial.clone_from(&below.facts.serial);
        found = below;
    }
    facts
}

fn look(sys: &Path, path: &Path) -> Option<sysfs::Found> {
    let device = number(&path.ancestors().find_map(|at| std::fs::metadata(at).ok())?);
    sysfs::look(sys, major(device), minor(device))
}

/// Number of the device that this is, or on which its file system lies.
fn number(found: &Metadata) -> u64 {
    if found.file_type().is_block_device() { found.rdev() } else { found.dev() }
}
