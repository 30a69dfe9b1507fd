//! The maps before the current one: an OSD that was away looks at each that it missed, or else it would not know which OSDs
//! may have served its PGs meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use carmine_types::{Epoch, OsdId};
use carmine_wire::osdmap::OsdMap;
use tracing::warn;

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
    /// The maps of a state file that lead up to the current one without a gap, out of all that it holds. Builds before November
    /// 2026 lost a map where they compacted the file: nobody may take the maps before such a gap for all that there were.
    pub(crate) fn restored(stored: &[Rc<Vec<u8>>], current: Epoch) -> History {
        let epoch = |bytes: &Rc<Vec<u8>>| OsdMap::decode(bytes).ok().map(|map| map.epoch);
        let known: BTreeMap<Epoch, &Rc<Vec<u8>>> =
            stored.iter().filter_map(|bytes| Some((epoch(bytes)?, bytes))).collect();
        let older: Vec<Epoch> = known.range(..current).map(|(epoch, _)| *epoch).collect();
        let epochs_down = (0..current.0).rev();
        let whole =
            older.iter().rev().zip(epochs_down).take_while(|(epoch, wanted)| epoch.0 == *wanted).count();
        if let Some(lost) = older.len().checked_sub(whole).filter(|lost| *lost > 0) {
            warn!(
                "the stored maps have a gap before epoch {}: the {lost} before it are dropped, and an OSD that was away since then \
                 sees a gap",
                current.0 - whole as u32
            );
        }
        let mut history = History::default();
        for (epoch, bytes) in
            older.iter().skip(older.len() - whole).filter_map(|epoch| known.get_key_value(epoch))
        {
            history.note(*epoch, Rc::clone(bytes));
        }
        history
    }

    /// Adds the map that is not the current one any more: the next one after the newest here.
    pub(crate) fn note(&mut self, epoch: Epoch, bytes: Rc<Vec<u8>>) {
        if let Some((newest, _)) = self.maps.back() {
            assert_eq!(
                epoch.0,
                newest.0 + 1,
                "epoch {epoch} is noted after epoch {newest}: the maps have a gap"
            );
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
    use crate::testing::cluster;

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
    #[should_panic(expected = "epoch 5 is noted after epoch 3")]
    fn a_gap_is_never_noted() {
        history(3, 1).note(Epoch(5), vec![0].into());
    }

    #[test]
    fn stored_maps_count_from_the_last_gap_on() {
        let stored = |epochs: &[u32]| -> Vec<Rc<Vec<u8>>> {
            let bytes = |epoch: &u32| {
                let mut map = cluster(1);
                map.epoch = Epoch(*epoch);
                Rc::new(map.encode())
            };
            epochs.iter().map(bytes).collect()
        };
        let restored = |maps: &[u32], current| epochs(&History::restored(&stored(maps), Epoch(current)), 0);
        assert_eq!(restored(&[1, 2, 3], 4), [1, 2, 3]);
        assert_eq!(restored(&[1, 2, 3, 4], 4), [1, 2, 3], "the current one is none of those before it");
        assert_eq!(restored(&[1, 2, 4, 5], 6), [4, 5]);
        assert_eq!(restored(&[1, 2, 3], 5), [0; 0], "the gap is before the current one");
        assert_eq!(restored(&[4, 5, 4, 5], 6), [4, 5], "each counts once");
        assert_eq!(restored(&[], 6), [0; 0]);
        let mut torn = stored(&[1, 2, 3]);
        torn[1] = Rc::new(b"no map".to_vec());
        assert_eq!(epochs(&History::restored(&torn, Epoch(4)), 0), [3]);
        assert_eq!(epochs(&History::restored(&stored(&[0, 1]), Epoch(0)), 0), [0; 0]);
    }
}
