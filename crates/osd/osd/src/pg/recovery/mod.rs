//! Recovery while the PG serves clients: members get the objects that they lack.
//!
//! - `missing`: the objects that members lack by the log. Writes to them wait from the activation on, and an object with a
//!   waiting write is pushed first. Reads do not wait, because the primary has all objects. An object that no member can read is
//!   unfound (`copies/heal.rs`) and is skipped until it is found or lost.
//! - `backfill`: a copy too old for the log is compared object by object, by version. It is sent the changes of the objects that
//!   the backfill has passed, and only the log entries of the others (`copies/window.rs`).
//! - `push`: copies an object to a member, also before the PG serves.
//! - `run`: runs both, for one target of the PG after the other, within reservations (`reserve`), limits and the map's flags.
//! - `unfound`: searches for unfound objects, and records those met before the PG served.
//! - `answer`: the replica's side.
//! - `stray`: removes copies of OSDs that left a PG, when nobody needs them. `remove`: removes data of deleted pools.

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
use carmine_pgtypes::pg_first_object;
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
    /// The current stage of the recovery (primary).
    stage: Cell<Recovery>,
    missing: RefCell<Missing>,
    targets: RefCell<Vec<Target>>,
    /// Unfound objects: no member has all of their blocks, and an OSD that is down may (primary).
    unfound: RefCell<BTreeSet<ObjectId>>,
    /// Set while they are searched for.
    is_searching: Cell<bool>,
    /// Objects pushed to members since this OSD leads, and their bytes (primary).
    pushed: Cell<(u64, u64)>,
    /// The slot that the primary has reserved here (replica).
    granted: RefCell<Option<Reservation>>,
}

/// A member that lacks objects.
#[derive(Clone)]
pub(super) struct Target {
    pub osd: OsdId,
    /// Its backfill; `None`: it lacks only objects that the log names.
    pub window: Option<Rc<Window>>,
}

impl Recoveries {
    pub(super) fn stage(&self) -> Recovery {
        match self.stage.get() {
            Recovery::Idle if !self.unfound.borrow().is_empty() => Recovery::RecoveryUnfound,
            stage => stage,
        }
    }

    /// The unfound objects met since the PG became active.
    pub(crate) fn unfound(&self) -> Vec<ObjectId> {
        self.unfound.borrow().iter().cloned().collect()
    }

    /// Begins a new generation.
    pub(super) fn start_over(&self) {
        self.stage.set(Recovery::Idle);
        self.missing.borrow_mut().start_over();
        self.targets.take();
        self.unfound.take();
        self.is_searching.set(false);
        self.granted.take();
    }

    /// The members that are sent only a part of the changes, with their windows.
    pub(super) fn windows(&self) -> Vec<(OsdId, Rc<Window>)> {
        let targets = self.targets.borrow();
        targets.iter().filter_map(|target| Some((target.osd, Rc::clone(target.window.as_ref()?)))).collect()
    }

    /// How many objects each incomplete member lacks: by the log, plus `behind` of its backfill's position.
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

    /// Counts an object of this many bytes that was pushed to a member.
    fn note_pushed(&self, bytes: u64) {
        let (objects, before) = self.pushed.get();
        self.pushed.set((objects + 1, before + bytes));
    }

    /// Resets the counts: another OSD leads.
    pub(super) fn forget_pushed(&self) {
        self.pushed.take();
    }

    /// Adds the counts of pushed objects to a PG's statistics.
    pub(super) fn add_pushed_to(&self, sum: &mut ObjectStatSum) {
        let (objects, bytes) = self.pushed.get();
        (sum.num_objects_recovered, sum.num_bytes_recovered) = (objects as i64, bytes as i64);
    }

    /// Members that lack objects: how many by the log, and the positions of their backfills.
    pub(crate) fn targets(&self) -> Vec<(OsdId, usize, Option<ObjectId>)> {
        let missing = self.missing.borrow();
        let place = |target: &Target| target.window.as_ref().and_then(|window| window.position());
        let targets = self.targets.borrow();
        targets.iter().map(|target| (target.osd, missing.len_of(target.osd), place(target))).collect()
    }
}

impl Pg {
    /// A member that lacks objects is about to be activated: holds the objects that the log names, so that their writes wait.
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

    /// Starts the recovery, when the PG begins to serve clients.
    pub(super) fn start_recovery(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if !self.recovery.targets.borrow().is_empty() {
            Run::new(osd, self).start();
        }
        self.look_for_unfound(osd);
    }

    /// If a queued operation is a write and a member lacks its object, pushes that at once.
    pub(super) fn recover_first(self: &Rc<Self>, osd: &Rc<OsdShard>, op: &ClientOp) {
        if op.is_write
            && let Some(begun) = Begun::claim(&self.recovery.missing, &op.oid)
        {
            // The task claims it again.
            let oid = Arc::clone(&begun.family.head);
            drop(begun);
            Run::new(osd, self).start_urgent(oid);
        }
    }

    /// The first object that has to be compared with a copy, if it needs a backfill.
    pub(super) fn compares_from(&self, place: Place) -> Option<ObjectId> {
        place.common.map_or_else(|| Some(self.first_object()), |_| place.last_backfill)
    }

    /// The position before all objects of the PG.
    pub(super) fn first_object(&self) -> ObjectId {
        pg_first_object(self.id)
    }
}
