//! Snapshots of objects. Plain reads and writes never come here.
//!
//! A write whose snapshot context is newer than its object first clones the object ([`writing`]), in the same transaction and
//! entry of the log. The head's xattr [`SNAPSET`] says which clones there are and what they show ([`SnapSet`]); a head that is
//! removed while it has clones stays as a *whiteout*: empty, and absent for clients. All operations on an object, at any
//! snapshot, go through its head's queue, so that clones need no order of their own.
//!
//! An omap of the PG lists the objects with clones for each snapshot ([`mapper`]); with it the clones of a removed snapshot are
//! found and [trimmed](trim).

mod find;
mod trim;
mod writing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use carmine_pgtypes::snaps::SnapContext;
use carmine_reactor::sync::Permit;
use carmine_types::errno;
use carmine_wire::osd_op::flags;
use carmine_wire::osdmap::consts::POOL_POOL_SNAPS;
use carmine_wire::osdmap::{IntervalSet, OsdMap, intervals};

use crate::error::{OpError, refuse_if};
use crate::op::ClientOp;

pub(in crate::pg) use find::{Target, find, list};
pub(crate) use trim::TRIMMED_TOLD_MAX;
pub(in crate::pg) use trim::plan as plan_trim;
pub(in crate::pg) use writing::{Writing, finish, roll_back};

/// The snapshots of a PG's pool.
#[derive(Default)]
pub(in crate::pg) struct Snaps {
    of_pool: RefCell<OfPool>,
    /// Counts the changes of `of_pool`.
    version: Cell<u64>,
    /// The removed snapshots that are trimmed on all members (primary).
    trimmed: RefCell<IntervalSet>,
    /// Set while snapshots are being trimmed.
    is_trimming: Cell<bool>,
    /// The permit to trim, which PGs take turns to hold.
    turn: RefCell<Option<Permit>>,
}

#[derive(Default, PartialEq)]
struct OfPool {
    /// The snapshots that all writes must preserve, if the pool has snapshots of its own.
    context: Option<Rc<SnapContext>>,
    /// Snapshots that were removed, and are not trimmed on all PGs.
    removed: IntervalSet,
}

impl Snaps {
    /// Applies a new map.
    pub(in crate::pg) fn follow(&self, pool: i64, map: &OsdMap) {
        let removed = map.removed_snaps_queue.get(&pool).cloned().unwrap_or_default();
        let whole = map.pool(pool).filter(|pool| pool.flags & POOL_POOL_SNAPS != 0);
        let context = whole.map(|pool| {
            Rc::new(SnapContext { seq: pool.snap_seq, snaps: pool.snaps.keys().rev().copied().collect() })
        });
        let new = OfPool { context, removed };
        if *self.of_pool.borrow() != new {
            let mut trimmed = self.trimmed.borrow_mut();
            *trimmed = intervals::intersection(&trimmed, &new.removed);
            *self.of_pool.borrow_mut() = new;
            self.version.set(self.version.get() + 1);
        }
    }

    /// Changes when contexts made earlier may be out of date.
    pub(in crate::pg) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Whether the pool has snapshots of its own, so that writes have a context without their client's.
    pub(in crate::pg) fn are_of_pool(&self) -> bool {
        self.of_pool.borrow().context.is_some()
    }

    /// Whether the snapshot was removed.
    pub(in crate::pg) fn is_removed(&self, snap: u64) -> bool {
        intervals::contains(&self.of_pool.borrow().removed, snap)
    }

    /// The snapshots that a write must preserve.
    ///
    /// # Errors
    /// EINVAL: the client's context is not valid.
    pub(in crate::pg) fn context(&self, op: &ClientOp) -> Result<SnapContext, OpError> {
        let of_pool = self.of_pool.borrow();
        if let Some(context) = &of_pool.context
            && op.request.flags & flags::ENFORCE_SNAPC == 0
        {
            return Ok(SnapContext::clone(context));
        }
        let mut context = SnapContext { seq: op.request.snap_seq, snaps: op.request.snaps.clone() };
        refuse_if(!context.is_valid(), errno::EINVAL)?;
        context.snaps.retain(|snap| !intervals::contains(&of_pool.removed, *snap));
        Ok(context)
    }
}

/// A clone that a write makes, changes or removes: its snap id, and its size before and after; `None`: it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) struct CloneChange {
    pub id: u64,
    pub before: Option<u64>,
    pub after: Option<u64>,
}
