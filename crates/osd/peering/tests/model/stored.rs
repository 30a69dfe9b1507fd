//! A copy of the PG in the model: its log, and what its objects went through.

use carmine_pgtypes::{PgHistory, PgInfo, Promised};
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, PgId, SpgId, is_mutated};

use crate::map::Merged;

/// The parts of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    /// Epoch of the version and id of the write; version numbers count from 1.
    pub(crate) log: Vec<(u32, u8)>,
    pub(crate) started: u32,
    /// The first epoch that was seen with this store.
    pub(crate) made: u32,
    /// The intervals as they were when it was last activated.
    pub(crate) history: PgHistory,
    pub(crate) incomplete: bool,
    /// If incomplete: it lacks only objects that the log changed after so many entries; 0: any.
    pub(crate) complete_to: u64,
    /// That holds for so many objects. The others may have any content.
    pub(crate) backfilled: u8,
    /// The writes that each object went through: one that was applied to an old content lacks some.
    pub(crate) data: Data,
    /// The PG was split: it has only this object, and of the other one the log has stubs.
    pub(crate) half: Option<u8>,
    /// The epoch in which it was split.
    pub(crate) split: u32,
    /// The primary and the interval of the last promise that was written down.
    pub(crate) promised: Option<(u8, u32)>,
}

/// The halves of the PG, by their objects: the parent, and …
pub(crate) const PARENT: u8 = 0;
/// … its child.
pub(crate) const CHILD: u8 = 1;

pub(crate) const OBJECTS: u8 = 2;

/// A bit for each write, of each object. The highest is the object's version.
pub(crate) type Data = [u32; OBJECTS as usize];

/// Objects of a push.
pub(crate) type Which = [bool; 2];

/// The objects whose versions differ.
pub(crate) fn differing(here: &Data, there: &Data) -> Which {
    [0, 1].map(|at| here[at].leading_zeros() != there[at].leading_zeros())
}

/// The place of a backfill that has so many objects; all: none.
pub(crate) fn place(backfilled: u8) -> Option<ObjectId> {
    (backfilled < OBJECTS).then(|| ObjectId::cursor(1, backfilled.into()))
}

pub(crate) fn backfilled(place: Option<ObjectId>) -> u8 {
    place.map_or(OBJECTS, |place| place.hash as u8)
}

impl Default for Stored {
    fn default() -> Stored {
        Stored {
            log: Vec::new(),
            started: 0,
            made: 0,
            history: PgHistory::default(),
            incomplete: false,
            complete_to: 0,
            backfilled: OBJECTS,
            data: Data::default(),
            half: None,
            split: 0,
            promised: None,
        }
    }
}

impl Stored {
    pub(crate) fn version(&self, len: usize) -> Eversion {
        let epoch = len.checked_sub(1).map_or(0, |at| self.log[at].0);
        Eversion::new(epoch, len as u64)
    }

    pub(crate) fn info(&self) -> PgInfo {
        let promised = |(holder, interval): (u8, u32)| Promised {
            holder: OsdId(holder.into()),
            interval: Epoch(interval),
            length_ms: 1,
        };
        PgInfo {
            pg: pg(self.half.unwrap_or(PARENT)),
            pg_num: pg_num(self.half.is_some()),
            split: Epoch(self.split),
            promised: self.promised.map(promised).unwrap_or_default(),
            last_update: self.version(self.log.len()),
            last_epoch_started: Epoch(self.started),
            made: Epoch(self.made),
            history: self.history.clone(),
            incomplete: self.incomplete,
            last_backfill: place(self.backfilled),
            ..PgInfo::default()
        }
    }

    /// The part of the copy that one half has after a split by the map of this epoch.
    pub(crate) fn divide(&self, half: u8, epoch: u32) -> Stored {
        let info = self.info().divide(pg(half), pg_num(true), Epoch(epoch));
        let promised = Some(info.promised).filter(|promised| promised.length_ms > 0);
        Stored {
            started: info.last_epoch_started.0,
            made: info.made.0,
            incomplete: info.incomplete,
            backfilled: backfilled(info.last_backfill),
            data: [PARENT, CHILD].map(|at| if at == half { self.data[usize::from(at)] } else { 0 }),
            half: Some(half),
            split: info.split.0,
            promised: promised.map(|promised| (promised.holder.0 as u8, promised.interval.0)),
            ..self.clone()
        }
    }

    /// The copy on this OSD after the merge by the map of this epoch, which says this of it. Where it is whole the source is there, too.
    pub(crate) fn merge(&self, n: u8, epoch: u32, merged: Option<&Merged>, marker: u8) -> Stored {
        let is_whole = !self.incomplete
            && merged.is_some_and(|merged| {
                merged.members.contains(&n) && merged.version == self.version(self.log.len())
            });
        let mut whole = Stored { half: None, split: epoch, ..self.clone() };
        whole.log.push((epoch, marker));
        match is_whole || is_mutated("merge_any") {
            true if is_whole => whole.data[1] |= 1 << marker,
            true => {}
            false => (whole.incomplete, whole.complete_to, whole.backfilled) = (true, 0, OBJECTS),
        }
        whole
    }

    /// This write changed an object that it has.
    pub(crate) fn has(&self, write: u8) -> bool {
        self.half.is_none_or(|half| write % 2 == half)
    }

    /// The writes of the log that are no stubs.
    fn writes(&self) -> impl Iterator<Item = u8> {
        self.log.iter().map(|(_, write)| *write).filter(|write| self.has(*write))
    }

    /// Those of these writes that are not in the log, and would be if they had happened.
    pub(crate) fn lacks(&self, writes: u32) -> u32 {
        (0..32).filter(|write| self.has(*write)).fold(0, |all, write| all | 1 << write) & writes & !self.ids()
    }

    pub(crate) fn common_with(&self, other: &[(u32, u8)]) -> Eversion {
        self.version(self.log.iter().zip(other).take_while(|(a, b)| a == b).count())
    }

    /// The objects as the log says.
    pub(crate) fn replayed(&self) -> Data {
        let mut data = [0; 2];
        self.writes().for_each(|write| data[usize::from(write % 2)] |= 1 << write);
        data
    }

    /// Objects that the log changed after this entry.
    pub(crate) fn changed_after(&self, common: Eversion) -> Which {
        let mut which = Which::default();
        let after = self.log.iter().skip(common.version as usize).map(|(_, write)| *write);
        after.filter(|write| self.has(*write)).for_each(|write| which[usize::from(write % 2)] = true);
        which
    }

    pub(crate) fn ids(&self) -> u32 {
        self.writes().fold(0, |ids, write| ids | 1 << write)
    }
}

fn pg(half: u8) -> SpgId {
    PgId::new(1, half.into()).into()
}

/// The number of PGs of the pool.
pub(crate) fn pg_num(is_split: bool) -> u32 {
    if is_split { 2 } else { 1 }
}
