use std::fs;
use std::os::unix::fs::symlink;

use carmine_load::drive::{DeviceClass, WriteCache};
use carmine_types::FlushMode;
use tempfile::TempDir;

use super::*;

/// A made-up `/sys`.
struct Tree(TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, from: &str, to: &str) {
        let from = self.root().join(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(self.root().join(to), from).unwrap();
    }

    /// A device with its number and its queue: write cache, FUA, rotational, discard granularity.
    fn device(&self, number: &str, folder: &str, queue: [&str; 4]) {
        self.put(&format!("{folder}/size"), "1");
        for (name, value) in
            ["write_cache", "fua", "rotational", "discard_granularity"].into_iter().zip(queue)
        {
            self.put(&format!("{folder}/queue/{name}"), value);
        }
        self.put(&format!("{folder}/queue/logical_block_size"), "512");
        self.put(&format!("{folder}/queue/physical_block_size"), "4096");
        self.link(&format!("dev/block/{number}"), folder);
    }

    fn look(&self, major: u32, minor: u32) -> DriveFacts {
        look_at(self.root(), major, minor).unwrap().0
    }
}

fn part(drive: DriveFacts, is_device: bool) -> StorePart {
    StorePart { path: "/x".into(), is_device, drive }
}

/// The mode that is chosen for a block device.
fn chosen(drive: &DriveFacts) -> FlushMode {
    flush_mode(None, &[&part(drive.clone(), true)]).0
}

#[test]
fn a_disk_and_its_partition_share_a_queue() {
    let tree = Tree::new();
    tree.device("8:0", "devices/pci/block/sda", ["write back", "0", "1", "0"]);
    tree.put("devices/pci/block/sda/device/model", "ST4000NM0035    ");
    tree.put("devices/pci/block/sda/sda1/partition", "1");
    tree.link("dev/block/8:1", "devices/pci/block/sda/sda1");
    let (disk, partition) = (tree.look(8, 0), tree.look(8, 1));
    assert_eq!(
        disk,
        DriveFacts {
            node: Some("sda".into()),
            drives: vec!["sda".into()],
            model: Some("ST4000NM0035".into()),
            serial: None,
            rotational: Some(true),
            logical_block_bytes: Some(512),
            physical_block_bytes: Some(4096),
            write_cache: WriteCache::Back,
            fua: Some(false),
            discard_granularity_bytes: Some(0),
        }
    );
    assert_eq!(partition, DriveFacts { node: Some("sda1".into()), ..disk.clone() });
    assert_eq!((DeviceClass::detect(&disk), chosen(&disk)), (DeviceClass::Hdd, FlushMode::Flush));
}

#[test]
fn flash_with_a_volatile_cache_is_flushed_and_without_one_is_not() {
    let tree = Tree::new();
    tree.device("8:0", "devices/a/block/sda", ["write back", "1", "0", "4096"]);
    tree.device("8:16", "devices/b/block/sdb", ["write through", "0", "0", "4096"]);
    tree.put("devices/b/block/sdb/queue/discard_max_bytes", "0");
    let (volatile, safe) = (tree.look(8, 0), tree.look(8, 16));
    assert_eq!((DeviceClass::detect(&volatile), volatile.fua), (DeviceClass::Ssd, Some(true)));
    assert_eq!((chosen(&volatile), chosen(&safe)), (FlushMode::Flush, FlushMode::None));
    assert_eq!(volatile.discard_granularity_bytes, Some(4096));
    assert_eq!(safe.discard_granularity_bytes, Some(0), "it has no discards");
    // One of both is enough.
    let parts = [&part(safe.clone(), true), &part(volatile, true)];
    assert_eq!(flush_mode(None, &parts).0, FlushMode::Flush);
    // A file is flushed for its file system.
    let (mode, reason) = flush_mode(None, &[&part(safe.clone(), false)]);
    assert_eq!(mode, FlushMode::Flush);
    assert!(reason.contains("is a file"), "{reason}");
    // A mode that is asked for is taken.
    for mode in [FlushMode::Flush, FlushMode::Dsync, FlushMode::None] {
        assert_eq!(flush_mode(Some(mode), &[&part(safe.clone(), false)]).0, mode);
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
}

#[test]
fn nvme_and_virtio_are_known_by_their_names() {
    let tree = Tree::new();
    let nvme = "devices/pci/nvme/nvme0/nvme0n1";
    tree.device("259:0", nvme, ["write back", "1", "0", "512"]);
    tree.put("devices/pci/nvme/nvme0/model", "SAMSUNG MZQL23T8HCLS-00A07");
    tree.put("devices/pci/nvme/nvme0/serial", "S64HNG0");
    tree.link(&format!("{nvme}/device"), "devices/pci/nvme/nvme0");
    tree.device("254:0", "devices/virtio0/block/vda", ["write back", "0", "1", "4096"]);
    tree.put("devices/virtio0/block/vda/serial", "rootfs");
    let (flash, virtual_disk) = (tree.look(259, 0), tree.look(254, 0));
    assert_eq!(flash.model.as_deref(), Some("SAMSUNG MZQL23T8HCLS-00A07"));
    assert_eq!((flash.serial.as_deref(), flash.fua), (Some("S64HNG0"), Some(true)));
    assert_eq!(DeviceClass::detect(&flash), DeviceClass::Nvme);
    assert_eq!((virtual_disk.rotational, virtual_disk.serial.as_deref()), (Some(true), Some("rootfs")));
    assert_eq!(DeviceClass::detect(&virtual_disk), DeviceClass::Ssd);
    assert_eq!(chosen(&virtual_disk), FlushMode::Flush);
}

#[test]
fn a_volume_names_its_drives_and_a_loop_device_its_file() {
    let tree = Tree::new();
    tree.device("8:0", "devices/a/block/sda", ["write back", "0", "1", "0"]);
    tree.put("devices/a/block/sda/sda2/partition", "2");
    tree.device("8:16", "devices/b/block/sdb", ["write back", "0", "1", "0"]);
    tree.device("253:0", "devices/virtual/block/dm-0", ["write back", "0", "1", "0"]);
    tree.link("devices/virtual/block/dm-0/slaves/sda2", "devices/a/block/sda/sda2");
    tree.link("devices/virtual/block/dm-0/slaves/sdb", "devices/b/block/sdb");
    tree.device("7:0", "devices/virtual/block/loop0", ["write back", "0", "1", "4096"]);
    tree.put("devices/virtual/block/loop0/loop/backing_file", "/var/disk");
    let volume = tree.look(253, 0);
    assert_eq!((volume.node.as_deref(), volume.name().as_str()), (Some("dm-0"), "sda,sdb"));
    assert!(volume.model.is_none());
    let (_, backing_file) = look_at(tree.root(), 7, 0).unwrap();
    assert_eq!(backing_file.as_deref(), Some(Path::new("/var/disk")));
}

#[test]
fn what_the_kernel_does_not_name_is_flushed() {
    let tree = Tree::new();
    // A file system without a device (overlay, btrfs, tmpfs) has a number that /sys does not know.
    let file = tempfile::NamedTempFile::new().unwrap();
    let unknown = part_in(tree.root(), file.path());
    assert_eq!((unknown.drive.name().as_str(), unknown.is_device), ("unknown", false));
    assert_eq!(unknown.drive, DriveFacts::default());
    assert_eq!(flush_mode(None, &[&unknown]).0, FlushMode::Flush);
    assert_eq!(chosen(&unknown.drive), FlushMode::Flush);
    // A device with an empty folder.
    tree.put("devices/x/block/xyz/size", "1");
    tree.link("dev/block/240:0", "devices/x/block/xyz");
    let bare = tree.look(240, 0);
    assert_eq!(bare.name(), "xyz");
    assert_eq!((bare.write_cache, chosen(&bare)), (WriteCache::Unknown, FlushMode::Flush));
}

#[test]
fn this_machine_s_own_folder_lies_on_something() {
    let here = part_at(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(!here.is_device && here.path.is_absolute());
    // On an overlay nothing is known, and that is said; else there is a drive with blocks.
    assert_eq!(here.drive.node.is_some(), !here.drive.drives.is_empty(), "{here:?}");
    assert!(here.drive.node.is_none() || here.drive.logical_block_bytes >= Some(512), "{here:?}");
    let nowhere = part_at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("not/there"));
    assert_eq!(nowhere.drive, here.drive);
}
