//! How a store's writes are made durable, as its drives need it.

use carmine_load::drive::{StorePart, WriteCache};
use carmine_types::FlushMode;

/// What a store does, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushing {
    pub mode: FlushMode,
    /// It was asked for.
    pub forced: bool,
    /// In words.
    pub reason: String,
}

impl Flushing {
    /// What is asked for; else what the parts that hold data and log need.
    ///
    /// - All are block devices without a volatile cache (`write through`): nothing. The kernel would drop a flush of such a
    ///   device anyway, so this saves the calls and gives nothing away. Such is a drive with power-loss protection.
    /// - A file is flushed, whatever the drive below: `fdatasync` also makes durable what the file system must know to find
    ///   the bytes again. A file that was written through at mkfs would not need that on ext4 or xfs as they mostly are,
    ///   but nothing here can see whether its blocks are shared (reflink), moved (btrfs, ZFS), journalled with their data
    ///   (`data=journal`, where O_DIRECT goes through the page cache) or were given back since by `--discard`. On a drive
    ///   without a volatile cache such a flush costs a system call.
    /// - All else, and what is not known: flush. FUA does not change that: a lone write is written through by itself in
    ///   this mode already, and many share one flush, where with `dsync` each of them would be slow by itself. Where FUA is
    ///   cheap and `dsync` measures better, it can be asked for.
    #[must_use]
    pub fn choose(asked: Option<FlushMode>, parts: &[&StorePart]) -> Flushing {
        if let Some(mode) = asked {
            return Flushing { mode, forced: true, reason: format!("--flush-mode {mode}") };
        }
        let needs = parts.iter().find_map(|part| {
            let name = part.drive.name();
            match part.drive.write_cache {
                _ if !part.is_device => Some(format!("{} is a file", part.path.display())),
                WriteCache::Through => None,
                WriteCache::Back => Some(format!("{name} has a volatile write cache")),
                WriteCache::Unknown => Some(format!("the kernel does not tell the write cache of {name}")),
            }
        });
        let mode = if needs.is_some() { FlushMode::Flush } else { FlushMode::None };
        let reason = needs.unwrap_or_else(|| "no volatile write cache".to_owned());
        Flushing { mode, forced: false, reason }
    }
}
