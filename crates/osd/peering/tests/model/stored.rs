//! A copy of the PG in the model: its log, and what its objects went through.

use carmine_pgtypes::{PgHistory, PgInfo};
use carmine_types::{Epoch, Eversion, ObjectId};

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
}

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
        }
    }
}

impl Stored {
    pub(crate) fn version(&self, len: usize) -> Eversion {
        let epoch = len.checked_sub(1).map_or(0, |at| self.log[at].0);
        Eversion::new(epoch, len as u64)
    }

    pub(crate) fn info(&self) -> PgInfo {
        PgInfo {
            last_update: self.version(self.log.len()),
            last_epoch_started: Epoch(self.started),
            made: Epoch(self.made),
            history: self.history.clone(),
            incomplete: self.incomplete,
            last_backfill: place(self.backfilled),
            ..PgInfo::default()
        }
    }

    pub(crate) fn common_with(&self, other: &[(u32, u8)]) -> Eversion {
        self.version(self.log.iter().zip(other).take_while(|(a, b)| a == b).count())
    }

    /// The objects as the log says.
    pub(crate) fn replayed(&self) -> Data {
        let mut data = [0; 2];
        self.log.iter().for_each(|(_, id)| data[usize::from(id % 2)] |= 1 << id);
        data
    }

    /// Objects that the log changed after this entry.
    pub(crate) fn changed_after(&self, common: Eversion) -> Which {
        let mut which = Which::default();
        self.log.iter().skip(common.version as usize).for_each(|(_, id)| which[usize::from(id % 2)] = true);
        which
    }

    pub(crate) fn ids(&self) -> u32 {
        self.log.iter().fold(0, |ids, (_, id)| ids | 1 << id)
    }
}
