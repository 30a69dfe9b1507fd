//! Which drives a block device is made of, by `/sys/class/block`.

use std::path::Path;

/// Device mappers and RAIDs upon each other; more is a loop.
const DEPTH_MAX: u32 = 8;

/// Names of the NVMe drives (`nvme0n1`) under these block devices, each once.
pub(super) fn nvme_under(sys: &Path, devices: &[String]) -> Vec<String> {
    let mut found: Vec<String> =
        devices.iter().flat_map(|device| drives_under(sys, device, DEPTH_MAX)).collect();
    found.retain(|name| name.starts_with("nvme"));
    found.sort();
    found.dedup();
    found
}

fn drives_under(sys: &Path, name: &str, depth: u32) -> Vec<String> {
    let folder = sys.join("class/block").join(name);
    if depth == 0 {
        return Vec::new();
    }
    // A partition's folder lies in its drive's.
    if folder.join("partition").exists() {
        let real = folder.canonicalize().unwrap_or_default();
        let parent =
            real.parent().and_then(Path::file_name).map(|drive| drive.to_string_lossy().into_owned());
        return parent.map(|drive| drives_under(sys, &drive, depth - 1)).unwrap_or_default();
    }
    let entries = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if below.is_empty() {
        return vec![name.to_owned()];
    }
    below.iter().flat_map(|lower| drives_under(sys, lower, depth - 1)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn partitions_and_stacks_lead_to_their_drives() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        let make = |path: &str| std::fs::create_dir_all(sys.join(path)).unwrap();
        make("devices/nvme0/nvme0n1/nvme0n1p2");
        make("devices/nvme1/nvme1n1");
        make("devices/dm-0/slaves");
        make("devices/dm-1/slaves");
        make("devices/vda");
        make("class/block");
        std::fs::write(sys.join("devices/nvme0/nvme0n1/nvme0n1p2/partition"), "2\n").unwrap();
        for (name, place) in [
            ("nvme0n1", "nvme0/nvme0n1"),
            ("nvme0n1p2", "nvme0/nvme0n1/nvme0n1p2"),
            ("nvme1n1", "nvme1/nvme1n1"),
            ("dm-0", "dm-0"),
            ("dm-1", "dm-1"),
            ("vda", "vda"),
        ] {
            symlink(sys.join("devices").join(place), sys.join("class/block").join(name)).unwrap();
        }
        // A volume on a partition and a drive, and one that is made of itself.
        for (stack, lower) in [("dm-0", "nvme0n1p2"), ("dm-0", "nvme1n1"), ("dm-1", "dm-1")] {
            symlink("/nowhere", sys.join("devices").join(stack).join("slaves").join(lower)).unwrap();
        }
        let under =
            |names: &[&str]| nvme_under(sys, &names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(under(&["dm-0", "nvme0n1", "vda"]), ["nvme0n1", "nvme1n1"]);
        assert_eq!(under(&["nvme0n1p2"]), ["nvme0n1"]);
        assert!(under(&["vda", "dm-1"]).is_empty());
    }
}
