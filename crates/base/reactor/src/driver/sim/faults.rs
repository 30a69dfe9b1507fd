//! What can be wrong with a simulated disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::disk::FileName;

/// Bytes that become unreadable together, and readable again when something is written there.
const PAGE: u64 = 4096;

/// The faults of one file.
#[derive(Default)]
pub(crate) struct Fault {
    /// Pages that cannot be read.
    pub(crate) unreadable: BTreeSet<u64>,
    pub(crate) writes_fail: bool,
    pub(crate) flushes_fail: bool,
    /// It takes no discards.
    pub(crate) discards_fail: bool,
    /// Virtual time that every operation takes longer.
    pub(crate) slower_ns: u64,
}

/// Faults by file.
#[derive(Default)]
pub(crate) struct Faults(BTreeMap<FileName, Fault>);

fn pages(off: u64, len: u64) -> RangeInclusive<u64> {
    off / PAGE..=(off + len.max(1) - 1) / PAGE
}

impl Faults {
    pub(crate) fn of(&mut self, file: &FileName) -> &mut Fault {
        self.0.entry(file.clone()).or_default()
    }

    pub(super) fn get(&self, file: &FileName) -> Option<&Fault> {
        self.0.get(file)
    }

    pub(super) fn read_fails(&self, file: &FileName, off: u64, len: u64) -> bool {
        self.get(file).is_some_and(|fault| fault.unreadable.range(pages(off, len)).next().is_some())
    }

    /// A write fails, or the drive puts another place where it could not read.
    pub(super) fn write_fails(&mut self, file: &FileName, off: u64, len: u64) -> bool {
        let Some(fault) = self.0.get_mut(file) else { return false };
        if !fault.writes_fail {
            fault.unreadable.retain(|page| !pages(off, len).contains(page));
        }
        fault.writes_fail
    }
}
