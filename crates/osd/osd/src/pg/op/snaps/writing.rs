//! Snapshots in writes: cloning the head before a write (make_writeable), and the metadata of the clone; rollbacks.

use std::sync::Arc;

use carmine_pgtypes::snaps::{At, Extents, SNAPSET, SnapContext, SnapSet, SnapSummary};
use carmine_pgtypes::{ObjectChange, ObjectMeta, Step};
use carmine_reactor::Bytes;
use carmine_types::{LogOp, ObjectId, errno};
use carmine_wire::osd_op::flags;

use super::CloneChange;
use crate::error::{OpError, refuse_if};
use crate::op::ClientOp;
use crate::pg::Pg;
use crate::pg::family::{clone_of, mapper, set_of, summary_of};
use crate::pg::op::exec::{ObjectState, Outputs, Plan};
use crate::pg::op::extra::{OmapView, WATCHER};
use crate::shard::OsdShard;

/// Longest list of an object's clones, bytes: every write that changes the list stores it again. A longer one drops the overlaps
/// of old clones with newer ones.
const SNAPSET_BYTES_MAX: usize = 1 << 20;
/// Most snapshots that one clone shows: each has a key of its own in the PG's index.
const SNAPS_PER_CLONE_MAX: usize = 8192;

/// The snapshots of an object during a write.
pub(in crate::pg) struct Writing {
    context: SnapContext,
    /// The snapshot set before the write, without its older clones.
    summary: SnapSummary,
    /// The stored head, which may be a whiteout.
    stored: Option<ObjectMeta>,
    /// If the object was rolled back: the bytes that differ from the previous head, and the new size.
    rolled_back: Option<(Extents, u64)>,
}

impl Writing {
    /// Begins a write of this stored head; also returns the head as the client sees it. `None`: neither the object nor the writer
    /// has snapshots.
    ///
    /// # Errors
    /// EOLDSNAPC: the client asked to be told if it missed a snapshot.
    pub(in crate::pg) fn new(
        op: &ClientOp,
        context: SnapContext,
        stored: Option<ObjectMeta>,
    ) -> Result<(Option<Box<Writing>>, Option<ObjectMeta>), OpError> {
        let summary = stored.as_ref().map(summary_of).transpose()?.flatten();
        if summary.is_none() && context.seq == 0 {
            return Ok((None, stored));
        }
        let summary = summary.unwrap_or_default();
        refuse_if(op.request.flags & flags::ORDER_SNAP != 0 && context.seq < summary.seq, errno::EOLDSNAPC)?;
        let head = stored.clone().filter(|_| !summary.is_whiteout);
        Ok((Some(Box::new(Writing { context, summary, stored, rolled_back: None })), head))
    }

    /// The object's clones before the write.
    ///
    /// # Errors
    /// EIO if the stored set cannot be decoded.
    fn set(&self) -> Result<SnapSet, OpError> {
        Ok(self.stored.as_ref().map(set_of).transpose()?.flatten().unwrap_or_default())
    }

    /// Whether the stored snapshot set stays unchanged.
    fn keeps_set(&self, state: &ObjectState<'_>, changed: &Extents) -> bool {
        let stays = state.exists && state.was.is_some() && !state.steps.iter().any(makes_anew);
        stays && self.summary.keeps(&self.context, changed)
    }

    /// The head before the write, perhaps a whiteout.
    pub(in crate::pg) fn stored(&self) -> Option<&ObjectMeta> {
        self.stored.as_ref()
    }

    pub(in crate::pg) fn is_rolled_back(&self) -> bool {
        self.rolled_back.is_some()
    }

    /// The bytes that a request's steps change, of a head of this size.
    fn changed(&self, mut size: u64, steps: &[Step]) -> Extents {
        let mut changed = Extents::default();
        for step in steps {
            match step {
                Step::Write { off, data, .. } => {
                    changed.insert(*off, data.len() as u64);
                    size = size.max(off.saturating_add(data.len() as u64));
                }
                Step::Zero { off, len } => changed.insert(*off, *len),
                Step::Truncate { size: to } => {
                    changed.insert(*to, size.saturating_sub(*to));
                    size = *to;
                }
                Step::Remove => {
                    changed.insert(0, size);
                    size = 0;
                }
                Step::CloneFrom { .. } => {
                    if let Some((differs, new)) = &self.rolled_back {
                        changed.extend(differs);
                        size = *new;
                    }
                }
                _ => {}
            }
        }
        changed
    }
}

/// Completes the plan of a write that knows of snapshots.
///
/// # Errors
/// E2BIG: the list of clones is too long.
pub(in crate::pg) fn finish(
    pg: &Pg,
    mut state: ObjectState<'_>,
    writing: &Writing,
    outputs: Outputs,
) -> Result<Plan, OpError> {
    if state.steps.is_empty() {
        return Ok(state.into_plan(outputs));
    }
    let Writing { context, stored, .. } = writing;
    let size = state.was.as_ref().map(|was| was.size);
    let changed = writing.changed(size.unwrap_or(0), &state.steps);
    if writing.keeps_set(&state, &changed) {
        return Ok(state.into_plan(outputs));
    }
    let mut set = writing.set()?;
    let head = Arc::clone(state.oid);
    let cloned = size.and_then(|size| Some((set.add_clone(context, size)?, size)));
    set.note_change(&changed);
    set.seq = set.seq.max(context.seq);
    set.is_whiteout = !state.exists && !set.clones.is_empty();
    let stays = state.exists || set.is_whiteout;
    // Not in release builds: it checks all clones, of which there may be thousands.
    debug_assert!(set.is_consistent(), "pg {}: a write of {head} leaves the clones {set:?}", pg.id);
    note(&mut state, &mut set, stored.as_ref(), stays)?;
    let is_whiteout = set.is_whiteout;
    if let Some((id, size)) = cloned {
        let made = CloneChange { id, before: None, after: Some(size) };
        state.extra.get_or_insert_default().clones.push(made);
    }
    let mut plan = state.into_plan(outputs);
    if let Some((id, _)) = cloned {
        plan.changes.add_other(clone(&head, id, stored.as_ref()));
        let snaps = set.clone_of(id).map(|clone| clone.snaps.as_slice()).unwrap_or_default();
        plan.changes.add_other(ObjectChange::new(mapper::oid(pg.id), [mapper::add(snaps, &head)]));
    }
    if is_whiteout {
        (plan.effect, plan.sizes.1) = (LogOp::Modify, Some(0));
    }
    if let Some(stored) = stored {
        plan.sizes.0 = Some(stored.size);
        (plan.prior, plan.user_version) = (stored.version, stored.user_version);
    }
    Ok(plan)
}

/// Whether the step replaces the head with its xattrs.
fn makes_anew(step: &Step) -> bool {
    matches!(step, Step::Remove | Step::CloneFrom { .. })
}

/// Stores the set with the head, if it changed or the steps dropped it by replacing the head.
fn note(
    state: &mut ObjectState<'_>,
    set: &mut SnapSet,
    stored: Option<&ObjectMeta>,
    stays: bool,
) -> Result<(), OpError> {
    if !stays || *set == SnapSet::default() {
        return Ok(());
    }
    let bytes = set.encode_within(SNAPSET_BYTES_MAX);
    let has_too_many = set.clones.last().is_some_and(|newest| newest.snaps.len() > SNAPS_PER_CLONE_MAX);
    refuse_if(bytes.len() > SNAPSET_BYTES_MAX || has_too_many, errno::E2BIG)?;
    let is_new = state.steps.iter().any(makes_anew);
    let known = stored.and_then(|meta| meta.xattrs.get(SNAPSET)).filter(|_| !is_new);
    if known.is_none_or(|known| **known != *bytes) {
        state.steps.push(Step::SetXattr { name: SNAPSET.into(), value: Bytes::from(bytes) });
    }
    Ok(())
}

/// Clones the head, without the xattrs that only heads have.
fn clone(head: &Arc<ObjectId>, id: u64, stored: Option<&ObjectMeta>) -> ObjectChange {
    let has = |prefix| stored.is_some_and(|meta| meta.xattrs.with_prefix(prefix).next().is_some());
    let mut steps = vec![Step::CloneFrom { from: Arc::clone(head) }];
    for prefix in [SNAPSET, WATCHER].into_iter().filter(|prefix| has(prefix)) {
        steps.push(Step::ClearXattrs { prefix: prefix.into() });
    }
    ObjectChange::new(clone_of(head, id), steps)
}

/// ROLLBACK: the head becomes what it was at a snapshot.
///
/// # Errors
/// EBUSY: it did not exist then, and is watched now; EINVAL: a second rollback in one request; those of the store.
pub(in crate::pg) async fn roll_back(
    osd: &OsdShard,
    pg: &Pg,
    state: &mut ObjectState<'_>,
    snap: u64,
) -> Result<(), OpError> {
    let (at, size) = (at(pg, state, snap)?, state.size);
    if at == At::Head && state.exists {
        state.steps.push(Step::Touch);
        return Ok(());
    }
    let At::Clone(id) = at else { return remove(state) };
    let from = Arc::new(clone_of(state.oid, id));
    let meta = pg.objects(osd).stat(&from).await?.ok_or(OpError::new(errno::EIO))?;
    let Some(writing) = state.writing() else { return Err(OpError::new(errno::EIO)) };
    refuse_if(writing.rolled_back.is_some(), errno::EINVAL)?;
    let mut differs = Extents::from_range(0, size);
    differs.subtract(&writing.set()?.equal_since(id));
    writing.rolled_back = Some((differs, meta.size));
    state.steps.push(Step::CloneFrom { from });
    // The head keeps its watchers.
    let watchers = state.xattrs.with_prefix(WATCHER);
    let watchers: Vec<(Box<[u8]>, Bytes)> =
        watchers.map(|(name, value)| (name.into(), value.clone())).collect();
    (state.exists, state.size, state.xattrs) = (true, meta.size, meta.xattrs);
    for (name, value) in watchers {
        state.xattrs.set(&name, value.clone());
        state.steps.push(Step::SetXattr { name, value });
    }
    let extra = state.extra.get_or_insert_default();
    (extra.omap, extra.data) = (Some(OmapView::removed()), None);
    Ok(())
}

/// Finds the head or the clone that shows the object at the snapshot.
fn at(pg: &Pg, state: &mut ObjectState<'_>, snap: u64) -> Result<At, OpError> {
    if pg.ops.snaps.is_removed(snap) {
        return Ok(At::Nothing);
    }
    let set = state.writing().map(|writing| writing.set()).transpose()?;
    Ok(set.unwrap_or_default().at(snap))
}

fn remove(state: &mut ObjectState<'_>) -> Result<(), OpError> {
    if !state.exists {
        return Ok(());
    }
    refuse_if(state.xattrs.with_prefix(WATCHER).next().is_some(), errno::EBUSY)?;
    state.remove();
    Ok(())
}
