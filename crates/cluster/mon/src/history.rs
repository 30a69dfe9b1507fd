//! The maps before the current one: an OSD that was away looks at each that it missed, or else it would not know which OSDs
//! may have served its PGs meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use carmine_types::{Epoch, OsdId};
use carmine_wire::osdmap::OsdMap;

/// So many are kept though nobody may need them (Ceph: `mon_min_osdmap_epochs`), …
const MAPS_MIN: usize = 500;
/// … as long as they are no more than this. Those beyond it go, whoever needs them: an OSD then sees a gap.
const BYTES_MAX: usize = 4 << 20;

/// Earlier maps, oldest first, as they are sent.
#[derive(Default)]
pub(crate) struct History {
    maps: VecDeque<(Epoch, Rc<Vec<u8>>)>,
    bytes: usize,
    /// The oldest `last_epoch_clean` of the PGs that an OSD leads, by its last beacon.
    clean: BTreeMap<OsdId, Epoch>,
}

impl History {
    /// Takes the maps that a state file holds, oldest first, but for the current one.
    pub(crate) fn of(maps: &[Rc<Vec<u8>>], current: Epoch) -> History {
        let mut history = History::default();
        let epoch = |bytes: &Rc<Vec<u8>>| OsdMap::decode(bytes).ok().map(|map| map.epoch);
        let known = maps.iter().filter_map(|bytes| Some((epoch(bytes)?, Rc::clone(bytes))));
        known.filter(|(epoch, _)| *epoch < current).for_each(|(epoch, bytes)| history.note(epoch, bytes));
        history
    }

    /// A map that is not the current one any more.
    pub(crate) fn note(&mut self, epoch: Epoch, bytes: Rc<Vec<u8>>) {
        if self.maps.back().is_some_and(|(newest, _)| *newest >= epoch) {
            return;
        }
        self.bytes += bytes.len();
        self.maps.push_back((epoch, bytes));
        while self.bytes > BYTES_MAX {
            self.drop_oldest();
        }
    }

    /// An OSD's beacon. A map is dropped when all OSDs that are `up` have said that no PG needs it.
    pub(crate) fn trim(&mut self, of: OsdId, clean: Epoch, up: impl Iterator<Item = OsdId>) {
        self.clean.insert(of, clean);
        let oldest = up.map(|osd| self.clean.get(&osd).copied().unwrap_or_default()).min();
        let oldest = oldest.unwrap_or_default();
        while self.maps.len() > MAPS_MIN && self.maps.front().is_some_and(|(epoch, _)| *epoch < oldest) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        self.bytes -= self.maps.pop_front().map_or(0, |(_, bytes)| bytes.len());
    }

    /// The oldest map that can be had.
    pub(crate) fn oldest(&self) -> Option<Epoch> {
        self.maps.front().map(|(epoch, _)| *epoch)
    }

    /// All maps.
    pub(crate) fn all(&self) -> Vec<Rc<Vec<u8>>> {
        self.maps.iter().map(|(_, bytes)| Rc::clone(bytes)).collect()
    }

    /// All maps from this epoch on.
    pub(crate) fn since(&self, from: Epoch) -> impl Iterator<Item = (Epoch, Rc<Vec<u8>>)> + '_ {
        self.maps.iter().filter(move |(epoch, _)| *epoch >= from).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(maps: u32, each: usize) -> History {
        let mut history = History::default();
        (1..=maps).for_each(|epoch| history.note(Epoch(epoch), vec![0; each].into()));
        history
    }

    fn epochs(history: &History, from: u32) -> Vec<u32> {
        history.since(Epoch(from)).map(|(epoch, _)| epoch.0).collect()
    }

    #[test]
    fn maps_are_kept_until_all_osds_say_that_nobody_needs_them() {
        let mut history = history(600, 100);
        let up = || [OsdId(0), OsdId(1)].into_iter();
        history.trim(OsdId(0), Epoch(50), up());
        assert_eq!(history.oldest(), Some(Epoch(1)), "the other one may need them");
        history.trim(OsdId(1), Epoch(20), up());
        assert_eq!(history.oldest(), Some(Epoch(20)));
        history.trim(OsdId(1), Epoch(590), up());
        assert_eq!(history.oldest(), Some(Epoch(50)));
        history.trim(OsdId(0), Epoch(590), up());
        assert_eq!(history.oldest(), Some(Epoch(101)), "the newest ones are kept anyway");
        assert_eq!(epochs(&history, 598), [598, 599, 600]);
    }

    #[test]
    fn their_bytes_have_a_limit() {
        let history = history(100, BYTES_MAX / 10);
        assert_eq!(epochs(&history, 0), (91..=100).collect::<Vec<_>>());
    }

    #[test]
    fn a_map_counts_once() {
        let mut history = history(3, 1);
        history.note(Epoch(3), vec![0].into());
        assert_eq!(epochs(&history, 0), [1, 2, 3]);
    }
}
