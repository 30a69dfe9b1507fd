//! Snapshots of objects, which plain reads and writes never pass.
//!
//! A write whose snapshot context is newer than its object first clones the object ([`writing`]), in the same transaction and
//! entry of the log. The head's xattr [`SNAPSET`] says which clones there are and what they show ([`SnapSet`]); a head that
//! is removed while it has clones stays as a *whiteout*: empty, and absent for clients. All operations of an object, at
//! whatever snapshot, stand in its head's queue, so that clones need no order of their own.
//!
//! Which objects have clones for a snapshot is an omap of the PG ([`mapper`]); with it the clones of a removed snapshot are
//! found and [trimmed](trim).

mod family;
mod find;
mod mapper;
mod trim;
mod writing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use carmine_pgtypes::ObjectMeta;
use carmine_pgtypes::snaps::{SNAPSET, SnapContext, SnapSet, SnapSummary};
use carmine_reactor::sync::Permit;
use carmine_types::{ObjectId, SNAP_HEAD, errno};
use carmine_wire::osd_op::flags;
use carmine_wire::osdmap::consts::POOL_POOL_SNAPS;
use carmine_wire::osdmap::{IntervalSet, OsdMap, intervals};

use crate::error::OpError;
use crate::op::ClientOp;

pub(super) use family::{Families, Family, add as add_to_family, families, family_begin};
pub(super) use find::{Target, find, list};
pub(crate) use mapper::is_mapper;
pub(super) use mapper::{entries as mapper_entries, oid as mapper};
pub(crate) use trim::TRIMMED_TOLD_MAX;
pub(super) use trim::plan as plan_trim;
pub(super) use writing::{Writing, finish, roll_back};

/// The snapshots of its pool, as a PG knows them.
#[derive(Default)]
pub(super) struct Snaps {
    of_pool: RefCell<OfPool>,
    /// One more with each change of `of_pool`.
    version: Cell<u64>,
    /// The removed snapshots of which this PG has nothing any more, on any member (primary).
    trimmed: RefCell<IntervalSet>,
    /// They are being trimmed.
    is_trimming: Cell<bool>,
    /// The turn among the PGs that trim.
    turn: RefCell<Option<Permit>>,
}

#[derive(Default, PartialEq)]
struct OfPool {
    /// The snapshots that all writes have to preserve, if snapshots are taken of the whole pool.
    context: Option<Rc<SnapContext>>,
    /// Snapshots that were removed, and are not trimmed on all PGs.
    removed: IntervalSet,
}

impl Snaps {
    /// Follows the map.
    pub(super) fn follow(&self, pool: i64, map: &OsdMap) {
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

    /// Contexts that were made earlier may have to be made anew.
    pub(super) fn version(&self) -> u64 {
        self.version.get()
    }

    /// Writes have a context though their clients give none.
    pub(super) fn are_of_pool(&self) -> bool {
        self.of_pool.borrow().context.is_some()
    }

    /// The snapshot was removed.
    pub(super) fn is_removed(&self, snap: u64) -> bool {
        intervals::contains(&self.of_pool.borrow().removed, snap)
    }

    /// The snapshots that a write has to preserve.
    ///
    /// # Errors
    /// EINVAL: the context that the client gives is not valid.
    pub(super) fn context(&self, op: &ClientOp) -> Result<SnapContext, OpError> {
        let of_pool = self.of_pool.borrow();
        if let Some(context) = &of_pool.context
            && op.request.flags & flags::ENFORCE_SNAPC == 0
        {
            return Ok(SnapContext::clone(context));
        }
        let mut context = SnapContext { seq: op.request.snap_seq, snaps: op.request.snaps.clone() };
        if !context.is_valid() {
            return Err(OpError::of(errno::EINVAL));
        }
        context.snaps.retain(|snap| !intervals::contains(&of_pool.removed, *snap));
        Ok(context)
    }
}

/// The clones of an object, by its head; `None` if it was never written under a snapshot.
///
/// # Errors
/// EIO: what is stored is none.
pub(super) fn set_of(head: &ObjectMeta) -> Result<Option<SnapSet>, OpError> {
    let stored = head.xattrs.get(SNAPSET).map(|bytes| SnapSet::decode(bytes));
    stored.transpose().map_err(|error| OpError::because(errno::EIO, error))
}

/// The same in short.
///
/// # Errors
/// As [`set_of`].
pub(super) fn summary_of(head: &ObjectMeta) -> Result<Option<SnapSummary>, OpError> {
    let stored = head.xattrs.get(SNAPSET).map(|bytes| SnapSummary::of(bytes));
    stored.transpose().map_err(|error| OpError::because(errno::EIO, error))
}

/// The head as clients see it: a whiteout is no object.
///
/// # Errors
/// As [`set_of`].
pub(super) fn seen(head: Option<ObjectMeta>) -> Result<Option<ObjectMeta>, OpError> {
    let Some(meta) = head else { return Ok(None) };
    let is_whiteout = summary_of(&meta)?.is_some_and(|set| set.is_whiteout);
    Ok((!is_whiteout).then_some(meta))
}

/// The head of the object that this is a clone of, or itself.
pub(super) fn head_of(oid: &ObjectId) -> ObjectId {
    clone_of(oid, SNAP_HEAD)
}

/// A clone of the object.
pub(super) fn clone_of(oid: &ObjectId, id: u64) -> ObjectId {
    ObjectId { snap: id, ..oid.clone() }
}

/// Both are the same object, at whatever snapshots.
pub(super) fn is_same_head(a: &ObjectId, b: &ObjectId) -> bool {
    a.snap == b.snap && a == b || (a.hash == b.hash && a.name == b.name && head_of(a) == head_of(b))
}

/// A clone that a write makes, changes or removes: its snap id, and its size before and after; `None`: it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CloneChange {
    pub id: u64,
    pub before: Option<u64>,
    pub after: Option<u64>,
}
