//! Recovery beside clients: the members that lack objects are given them while the PG serves.
//!
//! - `missing`: the objects that members lack by the log. Writes to them wait from the activation on, and an object that one
//!   waits for is pushed first, whatever else is under way. Reads do not wait: the primary has all objects. One that it cannot
//!   read, nor any member, is unfound (`copies/heal.rs`), and is left until it is found or lost.
//! - `backfill`: a copy of which no log tells what it lacks is compared object by object, by their versions. It is sent the
//!   changes of the objects that the backfill has passed, and of the others only the log entries (`copies/window.rs`).
//! - `push`: copies an object to a member, also before the PG serves.
//! - `run`: does both, one PG's targets one after the other, within reservations (`reserve`), limits and the map's flags.
//! - `unfound`: what is unfound is looked for; what was so before the PG served is written down.
//! - `answer`: the replica's side.
//! - `stray`: copies of OSDs that left a PG go when nobody needs them. `remove`: so do those of deleted pools.

mod answer;
mod backfill;
mod missing;
pub(crate) mod push;
pub(crate) mod remove;
mod reserve;
mod run;
mod stray;
mod unfound;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use carmine_peering::{Place, Recovery};
use carmine_types::{LogOp, ObjectId, OsdId};
use carmine_wire::pg_stat::ObjectStatSum;

use crate::op::ClientOp;
use crate::pg::Pg;
use crate::pg::copies::Window;
use crate::shard::OsdShard;
use missing::{Begun, Missing};
use reserve::Reservation;
use run::Run;

pub(crate) use reserve::Reserver;
pub(crate) use stray::start as start_strays;

/// The recovery of a PG.
#[derive(Default)]
pub(crate) struct Recoveries {
    /// The part of the recovery that is under way (primary).
    stage: Cell<Recovery>,
    missing: RefCell<Missing>,
    targets: RefCell<Vec<Target>>,
    /// Objects of which no member can give all, and an OSD that is down may (primary).
    unfound: RefCell<BTreeSet<ObjectId>>,
    /// They are looked for.
    is_searching: Cell<bool>,
    /// Objects, and their bytes, that members were given since this OSD leads (primary).
    pushed: Cell<(u64, u64)>,
    /// The place that its primary was given here (replica).
    granted: RefCell<Option<Reservation>>,
}

/// A member that lacks objects.
#[derive(Clone)]
pub(super) struct Target {
    pub osd: OsdId,
    /// It is to be compared from here on; `None`: it lacks only what the log tells of.
    pub window: Option<Rc<Window>>,
}

impl Recoveries {
    pub(super) fn stage(&self) -> Recovery {
        match self.stage.get() {
            Recovery::Idle if !self.unfound.borrow().is_empty() => Recovery::RecoveryUnfound,
            stage => stage,
        }
    }

    /// The unfound objects that were met since the PG is active.
    pub(crate) fn unfound(&self) -> Vec<ObjectId> {
        self.unfound.borrow().iter().cloned().collect()
    }

    /// A new generation.
    pub(super) fn start_over(&self) {
        self.stage.set(Recovery::Idle);
        self.missing.borrow_mut().start_over();
        self.targets.take();
        self.unfound.take();
        self.is_searching.set(false);
        self.granted.take();
    }

    /// The members that are sent a part of the changes only.
    pub(super) fn windows(&self) -> Vec<(OsdId, Rc<Window>)> {
        let targets = self.targets.borrow();
        targets.iter().filter_map(|target| Some((target.osd, Rc::clone(target.window.as_ref()?)))).collect()
    }

    /// How many objects each member lacks that lacks any: by the log, and by what `behind` says of the place of its backfill.
    pub(super) fn lacking(&self, behind: impl Fn(&ObjectId) -> u64) -> Vec<(OsdId, u64)> {
        let missing = self.missing.borrow();
        let to_compare = |target: &Target| {
            let place = target.window.as_ref().and_then(|window| window.position());
            place.map_or(0, |place| behind(&place))
        };
        let targets = self.targets.borrow();
        let lacks = |target: &Target| missing.count_of(target.osd) as u64 + to_compare(target);
        targets.iter().map(|target| (target.osd, lacks(target))).collect()
    }

    /// A member was given an object, with so many bytes.
    fn note_pushed(&self, bytes: u64) {
        let (objects, before) = self.pushed.get();
        self.pushed.set((objects + 1, before + bytes));
    }

    /// Another OSD leads.
    pub(super) fn forget_pushed(&self) {
        self.pushed.take();
    }

    /// Adds what members were given to a PG's statistics.
    pub(super) fn add_pushed_to(&self, sum: &mut ObjectStatSum) {
        let (objects, bytes) = self.pushed.get();
        (sum.num_objects_recovered, sum.num_bytes_recovered) = (objects as i64, bytes as i64);
    }

    /// Members that lack objects: how many by the log, and where their backfills are.
    pub(crate) fn targets(&self) -> Vec<(OsdId, usize, Option<ObjectId>)> {
        let missing = self.missing.borrow();
        let place = |target: &Target| target.window.as_ref().and_then(|window| window.position());
        let targets = self.targets.borrow();
        targets.iter().map(|target| (target.osd, missing.len_of(target.osd), place(target))).collect()
    }
}

impl Pg {
    /// A member that lacks objects is about to be activated: writes to those that the log names wait from now on.
    pub(super) fn expect_recovery(&self, to: OsdId, place: Place) {
        let common = place.common;
        let from = self.compares_from(place);
        let lacks = |oid: &ObjectId| from.as_ref().is_none_or(|from| oid < from);
        let mut missing = self.recovery.missing.borrow_mut();
        let log = self.peer.log();
        for entry in log.after(common.unwrap_or(log.info().last_update)) {
            if entry.op != LogOp::Error && lacks(&entry.oid) {
                self.ops.pipeline().hold(std::slice::from_ref(&entry.oid));
                missing.add(Arc::clone(&entry.oid), &entry.clones, to);
            }
        }
        let window = from.map(|from| Rc::new(Window::at(from)));
        self.recovery.targets.borrow_mut().push(Target { osd: to, window });
    }

    /// The PG serves clients: members that lack objects get them.
    pub(super) fn start_recovery(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if !self.recovery.targets.borrow().is_empty() {
            Run::new(osd, self).start();
        }
        self.look_for_unfound(osd);
    }

    /// An operation was queued. If it is a write and a member lacks its object, that is pushed now.
    pub(super) fn recover_first(self: &Rc<Self>, osd: &Rc<OsdShard>, op: &ClientOp) {
        if op.is_write
            && let Some(begun) = Begun::claim(&self.recovery.missing, &op.oid)
        {
            // The task begins it again.
            let oid = Arc::clone(&begun.family.head);
            drop(begun);
            Run::new(osd, self).start_urgent(oid);
        }
    }

    /// The first object of those that have to be compared with a copy, if any have to.
    pub(super) fn compares_from(&self, place: Place) -> Option<ObjectId> {
        place.common.map_or_else(|| Some(self.first_object()), |_| place.last_backfill)
    }

    /// The place before all objects of the PG.
    pub(super) fn first_object(&self) -> ObjectId {
        let pgid = self.id.pgid;
        ObjectId { shard: self.id.shard, ..ObjectId::cursor(pgid.pool, pgid.ps) }
    }
}
