//! Block devices from `/proc/diskstats`.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use carmine_load::window::DeviceWindow;

/// diskstats counts in these, whatever the device's own sectors.
const SECTOR_BYTES: u64 = 512;
const MS_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceCounters {
    reads: u64,
    read_sectors: u64,
    writes: u64,
    write_sectors: u64,
    busy_ms: u64,
    weighted_ms: u64,
    /// 0 before Linux 5.5, which does not count them.
    flushes: u64,
}

impl DeviceCounters {
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_sectors * SECTOR_BYTES
    }

    pub(super) fn write_bytes(&self) -> u64 {
        self.write_sectors * SECTOR_BYTES
    }

    pub(super) fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Reads and writes.
    pub(super) fn operations(&self) -> u64 {
        self.reads + self.writes
    }
}

/// Counters of the named devices; those that do not exist are left out.
pub(super) fn read(root: &Path, names: &[String]) -> BTreeMap<String, DeviceCounters> {
    let text = super::read(&root.join("diskstats")).unwrap_or_default();
    let lines = text.lines().filter_map(parse);
    lines.filter(|line| names.contains(&line.name)).map(|l| (l.name, l.counters)).collect()
}

struct Line {
    major: u64,
    minor: u64,
    name: String,
    counters: DeviceCounters,
}

fn parse(line: &str) -> Option<Line> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    Some(Line {
        major: number(0)?,
        minor: number(1)?,
        name: (*fields.get(2)?).to_owned(),
        counters: DeviceCounters {
            reads: number(3)?,
            read_sectors: number(5)?,
            writes: number(7)?,
            write_sectors: number(9)?,
            busy_ms: number(12)?,
            weighted_ms: number(13)?,
            flushes: number(18).unwrap_or(0),
        },
    })
}

/// Name of the block device under a path, or of the device that the path is; `None` for tmpfs, overlays and the like,
/// and where there is no such path.
pub fn device_of(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    // glibc's gnu_dev_major and gnu_dev_minor.
    let major = number >> 8 & 0xfff | number >> 32 & !0xfff;
    let minor = number & 0xff | number >> 12 & !0xff;
    let text = super::read(Path::new("/proc/diskstats")).ok()?;
    text.lines().filter_map(parse).find(|l| (l.major, l.minor) == (major, minor)).map(|l| l.name)
}

pub(super) fn device_window(name: &str, before: &DeviceCounters, after: &DeviceCounters) -> DeviceWindow {
    let since = |counter: fn(&DeviceCounters) -> u64| counter(after).saturating_sub(counter(before));
    DeviceWindow {
        name: name.to_owned(),
        reads: since(|c| c.reads),
        writes: since(|c| c.writes),
        read_bytes: since(|c| c.read_sectors) * SECTOR_BYTES,
        write_bytes: since(|c| c.write_sectors) * SECTOR_BYTES,
        busy_ns: since(|c| c.busy_ms) * MS_NS,
        weighted_ns: since(|c| c.weighted_ms) * MS_NS,
        flushes: since(|c| c.flushes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_both_old_and_new_lines() {
        let new = " 254       0 vda 186405 12773 8391962 294788 24602 41542 9518872 21337 3 14584 317595 10053 45 4500768 1405 1700 63";
        let line = parse(new).unwrap();
        assert_eq!((line.name.as_str(), line.major, line.minor), ("vda", 254, 0));
        assert_eq!(line.counters.flushes, 1700);
        let old = " 8 1 sda1 10 0 80 5 20 0 160 9 0 7 14";
        let c = parse(old).unwrap().counters;
        assert_eq!(
            (c.reads, c.read_sectors, c.writes, c.write_sectors, c.busy_ms, c.weighted_ms),
            (10, 80, 20, 160, 7, 14)
        );
        let window = device_window("sda1", &DeviceCounters::default(), &c);
        assert_eq!((window.read_bytes, window.busy_ns), (40_960, 7_000_000));
        assert!(parse("8 1 sda1 10").is_none());
    }
}
