//! The drives under the parts of a store, as results and `ceph osd metadata` name them. The testbed fills them in from `/sys`.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use carmine_types::{FlushMode, IoPath};
use serde::{Deserialize, Serialize};

carmine_types::words! {
    /// A drive's guarantee for a write that it has acknowledged.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum WriteCache: "write cache" {
        /// It survives a power cut: there is no cache, or it is power-safe (the kernel's `write through`).
        Through = "through",
        /// It is lost in a power cut until a flush (the kernel's `write back`).
        Back = "back",
        /// The kernel does not say: as bad as `Back`.
        #[default]
        Unknown = "unknown",
    }
}

carmine_types::words! {
    /// Kind of a drive, by Ceph's names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum DeviceClass: "class of drives" {
        /// It rotates.
        Hdd = "hdd",
        /// It does not rotate, or the kernel does not know.
        #[default]
        Ssd = "ssd",
        /// It is reached by NVMe.
        Nvme = "nvme",
    }
}

/// A block device, as `/sys` describes it. Unknown facts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFacts {
    /// The block device on which the file system or the store lies: `sda1`, `dm-0`, `loop3`. `None` on file systems that
    /// do not say which they lie on: overlay, btrfs, tmpfs.
    pub node: Option<String>,
    /// The drives below it: one, or those of a volume.
    pub drives: Vec<String>,
    /// The maker's name for it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// As the kernel says; disks of virtio say that they rotate whatever they are.
    pub rotational: Option<bool>,
    /// Bytes of the smallest block that can be addressed.
    pub logical_block_bytes: Option<u64>,
    /// Bytes of the smallest block that is written without reading.
    pub physical_block_bytes: Option<u64>,
    /// The fate of a write without a flush.
    pub write_cache: WriteCache,
    /// It has writes that go past its cache (force unit access).
    pub fua: Option<bool>,
    /// Bytes of the unit in which space can be discarded; 0: it cannot.
    pub discard_granularity_bytes: Option<u64>,
}

/// A part of a store and what it lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePart {
    /// File, folder or device, behind all links.
    pub path: PathBuf,
    /// It is a block device itself, not something in a file system.
    pub is_device: bool,
    #[serde(flatten)]
    pub drive: DriveFacts,
}

/// The store of an OSD: what its parts lie on, and the settings that follow from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFacts {
    pub osd: u32,
    pub data: StorePart,
    /// The log; the same as `data` unless it has a device of its own.
    pub log: StorePart,
    /// RocksDB; `None`: metadata in memory.
    pub db: Option<StorePart>,
    pub flush_mode: FlushMode,
    /// It was asked for, not chosen.
    pub flush_forced: bool,
    /// Why it was chosen.
    pub flush_reason: String,
    /// How reads and writes go to the drive of the data.
    #[serde(default)]
    pub io_path: IoPath,
    /// Why it is so, or why what was asked for cannot be had.
    #[serde(default)]
    pub io_path_reason: String,
    pub device_class: DeviceClass,
    /// It was asked for, not detected.
    pub device_class_forced: bool,
    /// Transactions with less data than this go into the log first.
    pub prefer_deferred_bytes: u64,
    /// Freed space is discarded.
    pub discard: bool,
    /// Budget of its cache of data; 0: it has none.
    #[serde(default)]
    pub data_cache_bytes: u64,
}

impl DeviceClass {
    /// Detects the class from the kernel's description of a drive. A virtio disk claims to rotate, which says nothing: it counts as
    /// unknown.
    pub fn detect(drive: &DriveFacts) -> DeviceClass {
        let all = |prefix: &str| {
            !drive.drives.is_empty() && drive.drives.iter().all(|name| name.starts_with(prefix))
        };
        match drive.rotational {
            _ if all("nvme") => DeviceClass::Nvme,
            Some(true) if !all("vd") => DeviceClass::Hdd,
            _ => DeviceClass::Ssd,
        }
    }
}

impl DriveFacts {
    /// Names of the drives, or `unknown`.
    pub fn name(&self) -> String {
        let node = || self.node.clone().unwrap_or_else(|| "unknown".to_owned());
        if self.drives.is_empty() { node() } else { self.drives.join(",") }
    }
}

impl fmt::Display for DriveFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if let Some(node) = self.node.as_ref().filter(|node| !self.drives.contains(node)) {
            write!(f, " ({node})")?;
        }
        f.write_str(if self.write_cache == WriteCache::Unknown { ", write cache " } else { ", write " })?;
        write!(f, "{}{}", self.write_cache, if self.fua == Some(true) { ", FUA" } else { "" })
    }
}

impl StoreFacts {
    /// The block devices of all parts, as the kernel's statistics name them.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let parts = [&self.data, &self.log].into_iter().chain(&self.db);
        parts.filter_map(|part| part.drive.node.as_deref())
    }

    /// One line: the drives of the parts, and how writes become durable.
    pub fn line(&self) -> String {
        let forced = |is: bool| if is { ", forced" } else { "" };
        let mut text = match self.log.path == self.data.path {
            true => format!("data and log on {}", self.data.drive),
            false => format!("data on {}; log on {}", self.data.drive, self.log.drive),
        };
        match &self.db {
            Some(db) => text += &format!("; RocksDB on {}", db.drive.name()),
            None => text += "; metadata in memory",
        }
        let StoreFacts { device_class, io_path, flush_mode, prefer_deferred_bytes, .. } = self;
        text += &format!(
            "; class {device_class}{}; I/O path {io_path}; flush mode {flush_mode}{}; deferred below {prefer_deferred_bytes} bytes{}",
            forced(self.device_class_forced),
            forced(self.flush_forced),
            if self.discard { "; discards" } else { "" },
        );
        if self.data_cache_bytes > 0 {
            text += &format!("; a cache of data of {} MiB", self.data_cache_bytes >> 20);
        }
        text
    }

    /// The flush mode of several OSDs, and whether one of them was forced. Stores in memory: `none`.
    pub fn flush_of(stores: &[StoreFacts]) -> (String, bool) {
        let none = stores.is_empty().then_some(FlushMode::None.word());
        let modes: BTreeSet<&str> = stores.iter().map(|store| store.flush_mode.word()).chain(none).collect();
        let is_forced = stores.iter().any(|store| store.flush_forced);
        (modes.into_iter().collect::<Vec<_>>().join(", "), is_forced)
    }

    /// [`Self::line`] of several OSDs; neighbours that have the same line are put together.
    pub fn lines(stores: &[StoreFacts]) -> Vec<String> {
        let group = |stores: &[StoreFacts]| {
            let name = match stores {
                [first, .., last] => format!("osd.{}-{} ({})", first.osd, last.osd, stores.len()),
                _ => format!("osd.{}", stores[0].osd),
            };
            format!("{name:<9} {}", stores[0].line())
        };
        stores.chunk_by(|a, b| a.line() == b.line()).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str, rotational: Option<bool>) -> DriveFacts {
        DriveFacts {
            node: Some(name.to_owned()),
            drives: vec![name.to_owned()],
            rotational,
            ..DriveFacts::default()
        }
    }

    #[test]
    fn classes_follow_from_what_the_kernel_says() {
        for (name, rotational, class) in [
            ("sda", Some(true), DeviceClass::Hdd),
            ("sda", Some(false), DeviceClass::Ssd),
            ("sda", None, DeviceClass::Ssd),
            ("nvme0n1", Some(false), DeviceClass::Nvme),
            ("vda", Some(true), DeviceClass::Ssd),
        ] {
            assert_eq!(DeviceClass::detect(&drive(name, rotational)), class, "{name} {rotational:?}");
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        let mixed = DriveFacts { drives: vec!["nvme0n1".into(), "sda".into()], ..drive("dm-0", Some(true)) };
        assert_eq!(DeviceClass::detect(&mixed), DeviceClass::Hdd);
        assert_eq!(DeviceClass::detect(&DriveFacts::default()), DeviceClass::Ssd);
        assert!("tape".parse::<DeviceClass>().unwrap_err().to_string().contains("tape"));
        assert!("never".parse::<FlushMode>().unwrap_err().to_string().contains("never"));
    }

    #[test]
    fn every_part_is_named_and_what_was_forced() {
        let part = |path: &str, name| StorePart {
            path: path.into(),
            is_device: true,
            drive: drive(name, Some(false)),
        };
        let store = StoreFacts {
            data: part("/dev/sda", "sda"),
            log: part("/dev/nvme0n1", "nvme0n1"),
            db: Some(part("/var/db", "sdb")),
            flush_mode: FlushMode::None,
            flush_forced: true,
            discard: true,
            data_cache_bytes: 64 << 20,
            ..StoreFacts::default()
        };
        let line = store.line();
        for word in [
            "data on sda,",
            "log on nvme0n1,",
            "RocksDB on sdb;",
            "flush mode none, forced",
            "discards",
            "of data of 64 MiB",
        ] {
            assert!(line.contains(word), "{word}: {line}");
        }
        let one = StoreFacts { osd: 1, log: store.data.clone(), ..store.clone() };
        assert!(one.line().starts_with("data and log on sda"));
        let same = StoreFacts { osd: 2, ..one.clone() };
        let lines = StoreFacts::lines(&[store.clone(), one.clone(), same]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("osd.0 ") && lines[1].starts_with("osd.1-2 (2)"), "{lines:?}");
        let flush = StoreFacts { flush_mode: FlushMode::Flush, flush_forced: false, ..one };
        assert_eq!(StoreFacts::flush_of(&[store, flush.clone()]), ("flush, none".to_owned(), true));
        assert_eq!(StoreFacts::flush_of(&[flush]), ("flush".to_owned(), false));
        assert_eq!(StoreFacts::flush_of(&[]), ("none".to_owned(), false));
    }
}
