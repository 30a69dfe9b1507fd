//! The split of the PG in the model. Of its two objects the parent keeps the first, and the child gets the second.

use carmine_peering::resize_is_due;
use carmine_types::is_mutated;

use super::*;

impl World {
    /// The same cluster; after a split this half is followed.
    pub(crate) fn follow(mut self, half: u8) -> World {
        self.half = half;
        self
    }

    /// By this OSD's map its state machine is the child's.
    pub(super) fn is_child(&self, n: u8) -> bool {
        let seen = self.osds[usize::from(n)].epoch as usize;
        self.half == CHILD && seen.checked_sub(1).is_some_and(|at| self.maps[at].is_split)
    }

    /// The map of this OSD says that the PG is split, and the copy is not.
    pub(super) fn is_split_due(&self, n: u8) -> bool {
        let osd = &self.osds[usize::from(n)];
        let map = &self.maps[osd.epoch as usize - 1];
        let (own, now) = (osd.memory.info(), pg_num(map.is_split));
        own.pg_num < now && resize_is_due(&own, now, Epoch(osd.epoch))
    }

    pub(super) fn split(&mut self, to: Option<[u8; 2]>) {
        self.budget.splits -= 1;
        self.budget.pairs -= u8::from(to.is_some());
        let half = self.half;
        self.new_map(|map, _| {
            map.is_split = true;
            // An entry names one PG.
            map.temp.retain(|_| half == PARENT);
            map.wanted = to.map_or(map.wanted.clone(), |to| to.to_vec());
        });
    }

    /// An OSD sees the next map. If it says that the PG is split, the copy is split first; but one that is not loaded yet later, when it
    /// is, and until then the child follows the maps.
    pub(super) fn see_map(&mut self, n: u8) {
        self.osd(n).epoch += 1;
        if self.see_merge(n) {
            return;
        }
        let is_due = self.is_split_due(n);
        let divides = is_due && *self.osd(n).peering.phase() != Phase::Loading;
        let is_new = is_due && self.half == CHILD && self.osd(n).parent.is_none();
        if is_new {
            self.make_child(n);
        } else if divides {
            self.divide(n);
        }
        let before = self.osd(n).peering.generation();
        let map = self.map_for(n);
        self.on(n, Event::Map(map));
        if is_new && divides {
            if self.osd(n).parent.is_some() {
                self.divide(n);
            }
            self.on(n, Event::Loaded);
        }
        self.announce(n, before);
        self.send_again(n);
    }

    /// The facts of an OSD's map. Before the split there was no child: nobody had it.
    fn map_for(&self, n: u8) -> Map {
        let map = self.map_of(self.osds[usize::from(n)].epoch);
        let is_before =
            self.half == CHILD && self.osds[usize::from(n)].memory.half.is_some() && !self.is_child(n);
        if !is_before {
            return map;
        }
        Map { acting: Vec::new().into(), up: Vec::new().into(), members: Vec::new(), ..map }
    }

    /// The state machine of the child takes the place of the parent's. Without a copy of the parent the child begins as new.
    fn make_child(&mut self, n: u8) {
        let has_copy = self.has_copy(n);
        let osd = self.osd(n);
        let parent = std::mem::replace(&mut osd.peering, Peering::new(id(n)));
        osd.parent = has_copy.then(|| parent.into());
        osd.waits.clear();
        osd.followers.clear();
        osd.differ.clear();
        osd.lacking.clear();
        (osd.timer, osd.pushes, osd.primary) = (None, false, None);
        (osd.is_readable, osd.awaits) = (false, None);
        // What is on its way to the disk is the parent's.
        osd.pending.iter_mut().for_each(|(_, done)| *done = Done::Split);
        if !has_copy {
            osd.pending.clear();
            osd.memory = Stored { made: osd.epoch, half: Some(CHILD), ..Stored::default() };
            osd.disk = osd.memory.clone();
        }
    }

    /// It was to have a copy of the PG, since its store was made.
    pub(super) fn has_copy(&self, n: u8) -> bool {
        let osd = &self.osds[usize::from(n)];
        let mut before = self.maps.iter().take(osd.epoch as usize - 1).skip(osd.disk.made as usize - 1);
        let is_served = |map: &OsdMap| map.acting().contains(&n) || map.up_set().contains(&n);
        osd.disk.started > 0 || osd.disk.incomplete || before.any(is_served)
    }

    /// An OSD splits its copy, in memory at once and on disk in one transaction.
    pub(super) fn divide(&mut self, n: u8) {
        let half = self.half;
        let osd = self.osd(n);
        let own = osd.memory.info();
        osd.memory = osd.memory.divide(half, osd.epoch);
        let mut disk = osd.memory.clone();
        if let Some(parent) = osd.parent.take() {
            osd.memory.history = osd.peering.inherit(&parent, &own);
            disk.history = osd.memory.history.clone();
            if is_mutated("forget_children") {
                disk = Stored { half: Some(CHILD), ..Stored::default() };
            }
        }
        osd.pending.push_back((disk, Done::Split));
    }

    /// A message names a PG that its receiver's map does not have, or that is not split there yet. A question is to be asked again,
    /// anything else is dropped.
    pub(super) fn misdirected(&mut self, n: u8, message: &Message) {
        if message.of_child && matches!(message.body, Body::Query { .. }) {
            let nothing = Stored { made: self.osd(n).epoch, half: Some(CHILD), ..Stored::default() };
            let answer = if self.is_denied(n, message) { Ok(Some(nothing)) } else { Err(errno::EAGAIN) };
            self.answer(n, message, answer);
        }
    }

    /// To this question for the child it says that it has nothing, though it has the parent, and has not split it yet.
    pub(super) fn is_denied(&self, n: u8, message: &Message) -> bool {
        let is_undivided = self.osds[usize::from(n)].parent.is_some();
        is_undivided && matches!(message.body, Body::Query { .. }) && is_mutated("deny_undivided")
    }

    /// The next write that this primary takes.
    pub(super) fn write_to(&self, osd: &Osd) -> u8 {
        (self.next_write..).find(|write| osd.memory.has(*write)).unwrap_or_default()
    }
}
