//! Block devices in a tree like `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use carmine_load::drive::{DriveFacts, WriteCache};

/// Most layers of volumes (`dm`, `md`) that are looked through.
const LAYERS_MAX: usize = 8;

/// What the tree says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) facts: DriveFacts,
    /// The file behind a loop device.
    pub(super) backing_file: Option<PathBuf>,
}

/// The device with this number. The queue of a partition is its drive's; that of a volume says what holds for all of it.
pub(super) fn look(sys: &Path, major: u32, minor: u32) -> Option<Found> {
    let folder = sys.join(format!("dev/block/{major}:{minor}")).canonicalize().ok()?;
    let whole = whole(&folder);
    let queue = |name: &str| text(&whole.join("queue").join(name));
    let number = |name: &str| queue(name)?.parse::<u64>().ok();
    let mut drives = Vec::new();
    leaves(&whole, LAYERS_MAX, &mut drives);
    drives.sort_unstable();
    drives.dedup();
    // What only one drive has.
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
        write_cache: match queue("write_cache").as_deref() {
            Some("write through") => WriteCache::Through,
            Some("write back") => WriteCache::Back,
            _ => WriteCache::Unknown,
        },
        fua: number("fua").map(|fua| fua != 0),
        discard_granularity_bytes: discards(number("discard_max_bytes"), number("discard_granularity")),
    };
    let backing_file = text(&whole.join("loop/backing_file")).map(PathBuf::from);
    Some(Found { facts, backing_file })
}

/// A granularity counts only where there are discards at all.
fn discards(max_bytes: Option<u64>, granularity_bytes: Option<u64>) -> Option<u64> {
    if max_bytes == Some(0) { Some(0) } else { granularity_bytes }
}

/// A text without the white space around it; `None` if there is none.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
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
