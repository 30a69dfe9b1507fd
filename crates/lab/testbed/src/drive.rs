//! The drives under a store as the kernel describes them, and the flush mode that they need.

pub mod facts;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use carmine_load::drive::{DriveFacts, StorePart};
use carmine_types::FlushMode;
use rustix::fs::{major, minor};

pub use carmine_load::drive::WriteCache;

/// Most loop devices on files on loop devices that are looked through.
const LOOPS_MAX: usize = 4;
/// Most layers of volumes (`dm`, `md`) that are looked through.
const LAYERS_MAX: usize = 8;

/// A file, folder or device, and what it lies on. For a path that does not exist yet, the folder around it counts.
#[must_use]
pub fn part_at(path: &Path) -> StorePart {
    part_in(Path::new("/sys"), path)
}

/// The name of the drive on which a device lies, as in `/sys/block`; of a volume on several drives its own.
pub(crate) fn name_of(device: &Path) -> String {
    match &part_at(device).drive.drives[..] {
        [one] => one.clone(),
        _ => own_name(device),
    }
}

/// The last part of a path.
pub(crate) fn own_name(device: &Path) -> String {
    name(device).unwrap_or_default()
}

fn part_in(sys: &Path, path: &Path) -> StorePart {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let is_device = fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device());
    StorePart { drive: drive_in(sys, &path), path, is_device }
}

/// The device's own queue says how it must be treated; the place of the file behind a loop device only says which drive it is.
fn drive_in(sys: &Path, path: &Path) -> DriveFacts {
    let Some((mut facts, mut backing_file)) = look(sys, path) else { return DriveFacts::default() };
    for _ in 0..LOOPS_MAX {
        let Some((below, file)) = backing_file.and_then(|file| look(sys, &file)) else { break };
        let DriveFacts { drives, model, serial, .. } = below;
        facts = DriveFacts { drives, model, serial, ..facts };
        backing_file = file;
    }
    facts
}

/// The device that this is, or on which its file system lies.
fn look(sys: &Path, path: &Path) -> Option<Found> {
    let found = path.ancestors().find_map(|at| fs::metadata(at).ok())?;
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    look_at(sys, major(device), minor(device))
}

/// A device as `/sys` describes it, and the file behind a loop device.
type Found = (DriveFacts, Option<PathBuf>);

/// The device with this number. The queue of a partition is its drive's; that of a volume says what holds for all of it.
fn look_at(sys: &Path, major: u32, minor: u32) -> Option<Found> {
    let folder = sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
    let whole = whole(&folder);
    let queue = |name: &str| text(&whole.join("queue").join(name));
    let number = |name: &str| queue(name)?.parse::<u64>().ok();
    let mut drives = Vec::new();
    leaves(&whole, LAYERS_MAX, &mut drives);
    drives.sort_unstable();
    drives.dedup();
    // Model and serial number belong to one drive.
    let alone = (drives.len() == 1).then(|| drives.first()).flatten();
    let of_alone = |names: [&str; 2]| alone.and_then(|drive| names.iter().find_map(|n| text(&drive.join(n))));
    let facts = DriveFacts {
        node: name(&folder),
        drives: drives.iter().filter_map(|drive| name(drive)).collect(),
        model: of_alone(["device/model", "device/name"]),
        serial: of_alone(["device/serial", "serial"]),
        rotational: number("rotational").map(|rotational| rotational != 0),
        logical_block_bytes: number("logical_block_size"),
        physical_block_bytes: number("physical_block_size"),
        write_cache: queue("write_cache")
            .and_then(|told| told.strip_prefix("write ")?.parse().ok())
            .unwrap_or_default(),
        fua: number("fua").map(|fua| fua != 0),
        // A granularity counts only where there are discards at all.
        discard_granularity_bytes: match number("discard_max_bytes") {
            Some(0) => Some(0),
            _ => number("discard_granularity"),
        },
    };
    Some((facts, text(&whole.join("loop/backing_file")).map(PathBuf::from)))
}

/// A text without the white space around it; `None` if there is none.
fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn name(folder: &Path) -> Option<String> {
    folder.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The drive of a partition; any other device itself.
fn whole(folder: &Path) -> PathBuf {
    let drive = folder.parent().filter(|_| folder.join("partition").exists());
    drive.unwrap_or(folder).to_path_buf()
}

/// The drives below a device, each by its folder.
fn leaves(whole_device: &Path, layers: usize, drives: &mut Vec<PathBuf>) {
    let slaves = fs::read_dir(whole_device.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<PathBuf> = slaves.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    if slaves.is_empty() || layers == 0 {
        drives.push(whole_device.to_path_buf());
    } else {
        slaves.iter().for_each(|slave| leaves(&whole(slave), layers - 1, drives));
    }
}

/// How a store makes writes durable, and why: the mode that is asked for, or else the one that the parts with data and log
/// need.
///
/// - All are block devices without a volatile cache (`write through`): nothing. The kernel would drop a flush of such a
///   device anyway, so this saves the calls and risks nothing. Drives with power-loss protection are of this kind.
/// - A file is flushed, whatever the drive below: `fdatasync` also makes durable what the file system must know to find
///   the bytes again. A file that was written through at mkfs would not need that on ext4 or xfs as they mostly are,
///   but nothing here can see whether its blocks are shared (reflink), moved (btrfs, ZFS), journalled with their data
///   (`data=journal`, where O_DIRECT goes through the page cache) or were given back since by `--discard`. On a drive
///   without a volatile cache such a flush costs a system call.
/// - All else, and what is not known: flush. FUA does not change that: few writes are written through by themselves
///   in this mode already where that costs less, and many share one flush, where with `dsync` each of them would be slow by itself. Where FUA is
///   cheap and `dsync` measures better, it can be asked for.
pub(crate) fn flush_mode(asked: Option<FlushMode>, parts: &[&StorePart]) -> (FlushMode, String) {
    if let Some(mode) = asked {
        return (mode, format!("--flush-mode {mode}"));
    }
    let needs = parts.iter().find_map(|part| {
        let name = part.drive.name();
        match part.drive.write_cache {
            _ if !part.is_device => Some(format!("{} is a file", part.path.display())),
            WriteCache::Through => None,
            WriteCache::Back => Some(format!("{name} has a volatile write cache")),
            WriteCache::Unknown => Some(format!("the kernel does not describe the write cache of {name}")),
        }
    });
    needs.map_or((FlushMode::None, "no volatile write cache".to_owned()), |why| (FlushMode::Flush, why))
}
