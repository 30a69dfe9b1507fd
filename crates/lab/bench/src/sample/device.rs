//! Block devices from `/proc/diskstats`.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use carmine_load::window::DeviceWindow;

/// diskstats counts in these, whatever the device's own sectors.
const SECTOR_BYTES: u64 = 512;
const MS_NS: u64 = 1_000_000;

/// Counters of the named devices; those that do not exist are left out.
pub(super) fn read(root: &Path, names: &[String]) -> BTreeMap<String, DeviceWindow> {
    let text = super::read(&root.join("diskstats")).unwrap_or_default();
    let lines = text.lines().filter_map(parse);
    lines
        .filter(|line| names.contains(&line.counters.name))
        .map(|l| (l.counters.name.clone(), l.counters))
        .collect()
}

struct Line {
    major: u64,
    minor: u64,
    /// Since boot.
    counters: DeviceWindow,
}

fn parse(line: &str) -> Option<Line> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    let counters = DeviceWindow {
        name: (*fields.get(2)?).to_owned(),
        reads: number(3)?,
        writes: number(7)?,
        read_bytes: number(5)? * SECTOR_BYTES,
        write_bytes: number(9)? * SECTOR_BYTES,
        busy_ns: number(12)? * MS_NS,
        weighted_ns: number(13)? * MS_NS,
        // Linux before 5.5 does not count them.
        flushes: number(18).unwrap_or(0),
    };
    Some(Line { major: number(0)?, minor: number(1)?, counters })
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
    text.lines().filter_map(parse).find(|l| (l.major, l.minor) == (major, minor)).map(|l| l.counters.name)
}

/// What happened between two readings.
pub(super) fn since(before: &DeviceWindow, after: &DeviceWindow) -> DeviceWindow {
    let since = |counter: fn(&DeviceWindow) -> u64| counter(after).saturating_sub(counter(before));
    DeviceWindow {
        name: after.name.clone(),
        reads: since(|c| c.reads),
        writes: since(|c| c.writes),
        read_bytes: since(|c| c.read_bytes),
        write_bytes: since(|c| c.write_bytes),
        busy_ns: since(|c| c.busy_ns),
        weighted_ns: since(|c| c.weighted_ns),
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
        assert_eq!((line.counters.name.as_str(), line.major, line.minor), ("vda", 254, 0));
        assert_eq!(line.counters.flushes, 1700);
        let old = " 8 1 sda1 10 0 80 5 20 0 160 9 0 7 14";
        let c = parse(old).unwrap().counters;
        let want = (10, 40_960, 20, 81_920, 7_000_000, 14_000_000);
        assert_eq!((c.reads, c.read_bytes, c.writes, c.write_bytes, c.busy_ns, c.weighted_ns), want);
        assert_eq!(since(&DeviceWindow::default(), &c), c);
        assert_eq!(since(&c, &c).busy_ns, 0);
        assert!(parse("8 1 sda1 10").is_none());
    }
}
