//! The merge of the PG with another one in the model. The PG, which has the first object, is the target; all of the source is one change
//! of the second object, the last entry of the merged log. Before the merge a copy of the source is whole where the source's members are,
//! which are the target's.

use carmine_peering::resize_is_due;

use super::*;
use crate::map::Merged;

impl World {
    /// The monitor announces the merge.
    pub(super) fn announce_merge(&mut self) {
        self.budget.merges -= 1;
        self.new_map(|map, epoch| map.announced = epoch);
    }

    /// The monitor gives it up.
    pub(super) fn retract_merge(&mut self) {
        self.budget.merges -= 1;
        self.new_map(|map, _| map.announced = 0);
    }

    /// This primary may say that the merge can be, and has not.
    pub(super) fn is_mergeable(&self, n: u8) -> bool {
        let osd = &self.osds[usize::from(n)];
        let may = osd.is_up && osd.peering.may_merge(&osd.memory.info()) == Some(true);
        let is_sent =
            |m: &Message| m.from == n && m.epoch == osd.epoch && matches!(m.body, Body::Mergeable(_));
        may && self.maps[self.maps.len() - 1].announced > 0 && !self.net.iter().any(is_sent)
    }

    /// It says so to the monitor, with what it has, and where the copies are whole.
    pub(super) fn say_mergeable(&mut self, n: u8) {
        let osd = &self.osds[usize::from(n)];
        let version = osd.memory.version(osd.memory.log.len());
        let members = osd.peering.acting().osds().map(|osd| osd.0 as u8).collect();
        self.send(
            n,
            MONITOR,
            0,
            AttemptId::default(),
            Body::Mergeable(Merged { version, members, marker: 0 }),
        );
    }

    /// The monitor hears it. What was said before the merge was announced, perhaps for the second time, is of no use.
    pub(super) fn merge(&mut self, said: u32, merged: Merged) {
        let announced = self.maps[self.maps.len() - 1].announced;
        if announced == 0 || said < announced {
            return;
        }
        let marker = self.next_write | 1;
        self.next_write = marker + 1;
        self.new_map(|map, _| {
            (map.is_split, map.announced) = (false, 0);
            map.merged = Some(Merged { marker, ..merged });
        });
    }

    /// The map of this OSD says that the PG is merged, and the copy is not.
    fn is_merge_due(&self, n: u8) -> bool {
        let osd = &self.osds[usize::from(n)];
        let own = osd.memory.info();
        let now = pg_num(self.maps[osd.epoch as usize - 1].is_split);
        own.pg_num > now && resize_is_due(&own, now, Epoch(osd.epoch))
    }

    /// An OSD sees the map that merges the PG; false: it does not. It merges its copy, in memory at once and on disk in one transaction, and
    /// goes on when that is durable.
    pub(super) fn see_merge(&mut self, n: u8) -> bool {
        if !self.is_merge_due(n) {
            return false;
        }
        let has_copy = self.has_copy(n);
        let epoch = self.osds[usize::from(n)].epoch;
        let merged = self.maps[epoch as usize - 1].merged.clone();
        let marker = self.marker();
        self.on(n, Event::Merges);
        let osd = self.osd(n);
        osd.waits.clear();
        (osd.primary, osd.timer) = (None, None);
        osd.memory = match has_copy {
            true => osd.memory.merge(n, epoch, merged.as_ref(), marker),
            // There is nothing of either.
            false => Stored { made: epoch, split: epoch, ..Stored::default() },
        };
        osd.pending.push_back((osd.memory.clone(), Done::Merged));
        let map = self.map_of(epoch);
        self.on(n, Event::Map(map));
        true
    }

    /// The change that stands for the source.
    fn marker(&self) -> u8 {
        self.maps.iter().find_map(|map| map.merged.as_ref()).map_or(0, |merged| merged.marker)
    }

    /// The copy that this OSD has is being merged.
    pub(super) fn merges(&self, n: u8) -> bool {
        self.osds[usize::from(n)].pending.iter().any(|(_, done)| *done == Done::Merged)
    }
}
