//! Ranges of objects for which an OSD asked to be left alone (Ceph's back-off).

use carmine_types::{ObjectId, PgId};
use carmine_wire::backoff::Backoff;
use carmine_wire::osd_op::OsdRequest;
use std::cell::RefCell;

/// Most ranges kept per OSD. An OSD that asks for more gets the operations and has to queue them itself.
const HOLDS_MAX: usize = 4096;

/// The ranges that are held back.
#[derive(Default)]
pub(super) struct Holds(RefCell<Vec<Backoff>>);

impl Holds {
    /// Adds a range; false if there are too many.
    pub(super) fn add(&self, backoff: Backoff) -> bool {
        let mut holds = self.0.borrow_mut();
        if holds.len() >= HOLDS_MAX {
            return false;
        }
        holds.push(backoff);
        true
    }

    /// Removes what this UNBLOCK ends; false if there was none.
    pub(super) fn remove(&self, unblock: &Backoff) -> bool {
        let mut holds = self.0.borrow_mut();
        let before = holds.len();
        holds.retain(|hold| hold.id != unblock.id || hold.pg != unblock.pg);
        holds.len() != before
    }

    /// Forgets all: a back-off lives no longer than its connection.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// True if operations on this object (or PG) are held back.
    pub(super) fn covers(&self, pg: PgId, request: &OsdRequest) -> bool {
        let holds = self.0.borrow();
        holds
            .iter()
            .any(|hold| hold.pg == pg && (request.name.is_empty() || contains(hold, &object(request))))
    }
}

fn object(request: &OsdRequest) -> ObjectId {
    ObjectId {
        nspace: request.locator.nspace.clone(),
        key: request.locator.key.clone(),
        name: request.name.clone(),
        snap: request.snapid,
        ..ObjectId::cursor(request.locator.pool, request.hash)
    }
}

fn contains(hold: &Backoff, object: &ObjectId) -> bool {
    if hold.begin == hold.end {
        return hold.begin.object == *object;
    }
    let object = object.clone().into();
    hold.begin <= object && object < hold.end
}
