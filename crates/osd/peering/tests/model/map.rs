//! The monitor's map of the PG, and what the monitor does about `pg_temp` (Ceph: OSDMonitor's `preprocess_pgtemp`, OSDMap's
//! `clean_temps`).

use carmine_types::Eversion;

/// The monitor's map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OsdMap {
    /// Start and epoch since which it is up.
    pub(crate) up: Vec<Option<(u32, u32)>>,
    /// Epoch in which it was up, of each.
    pub(crate) up_thru: Vec<u32>,
    /// The acting set that a primary asked for; empty: none.
    pub(crate) temp: Vec<u8>,
    /// The OSDs that CRUSH names, up or down.
    pub(crate) wanted: Vec<u8>,
    pub(crate) size: usize,
    pub(crate) min_size: usize,
    /// The PG is split, or is not merged with its neighbour yet.
    pub(crate) is_split: bool,
    /// The epoch in which its merge was announced; 0: it is not.
    pub(crate) announced: u32,
    /// This very map merges it.
    pub(crate) merged: Option<Merged>,
}

/// What a map says of the merge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Merged {
    /// The last version before it.
    pub(crate) version: Eversion,
    /// The OSDs that had all of both parts.
    pub(crate) members: Vec<u8>,
    /// The change that stands for the source.
    pub(crate) marker: u8,
}

impl OsdMap {
    pub(crate) fn is_up(&self, osd: u8) -> bool {
        self.up[usize::from(osd)].is_some()
    }

    /// The up set, primary first.
    pub(crate) fn up_set(&self) -> Vec<u8> {
        self.wanted.iter().copied().filter(|osd| self.is_up(*osd)).collect()
    }

    /// The acting set, primary first.
    pub(crate) fn acting(&self) -> Vec<u8> {
        let temp: Vec<u8> = self.temp.iter().copied().filter(|osd| self.is_up(*osd)).collect();
        if temp.is_empty() { self.up_set() } else { temp }
    }

    /// Drops an entry that is of no use.
    pub(crate) fn clean_temps(&mut self) {
        let is_useless = self.temp.iter().all(|osd| !self.is_up(*osd))
            || self.temp == self.up_set()
            || self.temp.len() > self.size;
        if is_useless {
            self.temp.clear();
        }
    }

    /// A primary asks for an acting set.
    pub(crate) fn heed(&mut self, leader: u8, asked: &[u8]) {
        if self.acting().first() == Some(&leader) {
            self.temp = asked.to_vec();
        }
    }
}
