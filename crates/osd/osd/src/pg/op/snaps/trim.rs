//! Trimming: clones that only show removed snapshots are removed in the background, a few objects at a time. When a PG has
//! nothing of a snapshot left on any member, the monitor is told.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_pgtypes::snaps::{SNAPSET, Trimmed};
use carmine_pgtypes::{ObjectChange, Step};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Group};
use carmine_store::StoreError;
use carmine_types::{Errno, LogOp, ObjectId, errno};
use carmine_wire::osd_op::{OpList, OsdRequest, flags};
use carmine_wire::osdmap::consts::FLAG_NOSNAPTRIM;
use carmine_wire::osdmap::{IntervalSet, intervals};

use super::{CloneChange, Snaps};
use crate::config::TRIM_OBJECTS_MAX;
use crate::error::OpError;
use crate::for_each::for_each;
use crate::op::{ClientOp, ReplyTo};
use crate::pg::Pg;
use crate::pg::family::{clone_of, mapper, set_of};
use crate::pg::op::exec::Plan;
use crate::pg::op::extra::Extra;
use crate::shard::OsdShard;

/// Objects that are looked up at a time.
const PAGE: usize = 32;
/// Most ranges of trimmed snapshots in one report to the monitor. When it has removed them from its queue, the next ones follow.
pub(crate) const TRIMMED_TOLD_MAX: usize = 1024;
/// How often a waiting trim checks whether it may still run.
const LOOK: Duration = Duration::from_millis(100);

/// Why trimming ended early.
enum End {
    /// A new interval began, or a flag was set: trimming starts again later.
    Over,
    Failed(String),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> End {
        End::Failed(error.to_string())
    }
}

impl Snaps {
    /// A removed snapshot that is not trimmed yet.
    fn next_to_trim(&self) -> Option<u64> {
        let left = intervals::subtract(&self.of_pool.borrow().removed, &self.trimmed.borrow());
        left.first().map(|(snap, _)| *snap)
    }

    /// A new interval: forgets what was trimmed in the last one.
    pub(in crate::pg) fn start_over(&self) {
        self.trimmed.borrow_mut().clear();
    }

    /// The first ranges of removed snapshots that are trimmed: the monitor combines the reports of all PGs.
    pub(in crate::pg) fn trimmed(&self) -> IntervalSet {
        self.trimmed.borrow().iter().take(TRIMMED_TOLD_MAX).copied().collect()
    }

    /// Number of removed snapshots that are not trimmed yet.
    pub(in crate::pg) fn to_trim(&self) -> u64 {
        let count = |set: &IntervalSet| set.iter().fold(0u64, |all, (_, len)| all.saturating_add(*len));
        let (removed, trimmed) = (count(&self.of_pool.borrow().removed), count(&self.trimmed.borrow()));
        debug_assert!(trimmed <= removed, "{trimmed} snapshots are trimmed, {removed} were removed");
        removed.saturating_sub(trimmed)
    }

    /// Whether snapshots are being trimmed.
    pub(in crate::pg) fn is_trimming(&self) -> bool {
        self.is_trimming.get()
    }

    fn note_trimmed(&self, snap: u64) {
        let mut trimmed = self.trimmed.borrow_mut();
        let all = intervals::union(&trimmed, &vec![(snap, 1)]);
        *trimmed = intervals::intersection(&all, &self.of_pool.borrow().removed);
    }
}

impl Pg {
    /// Starts trimming removed snapshots, unless that is under way.
    pub(in crate::pg) fn trim_snaps(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let is_idle = self.peer.serves() && self.may_trim(osd) && self.ops.snaps.next_to_trim().is_some();
        if !is_idle || self.ops.snaps.is_trimming.replace(true) {
            return;
        }
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::SnapTrim, "snap-trim", async move {
            let turn = own.trims.acquire(1).await;
            pg.ops.snaps.turn.replace(Some(turn));
            let end = pg.run_trim(&own).await;
            pg.ops.snaps.turn.take();
            pg.ops.snaps.is_trimming.set(false);
            pg.report_soon(&own);
            match end {
                // There may be more, or it has to start again.
                Ok(()) | Err(End::Over) => pg.trim_snaps(&own),
                Err(End::Failed(why)) => tracing::error!("pg {}: a snapshot cannot be trimmed: {why}", pg.id),
            }
        });
    }

    fn may_trim(&self, osd: &OsdShard) -> bool {
        osd.view().is_some_and(|view| view.map().flags & FLAG_NOSNAPTRIM == 0)
    }

    async fn run_trim(self: &Rc<Self>, osd: &Rc<OsdShard>) -> Result<(), End> {
        let generation = self.peer.generation();
        while let Some(snap) = self.ops.snaps.next_to_trim() {
            self.may_go_on(osd, generation)?;
            loop {
                let objects = self.objects_to_trim(osd, snap).await?;
                self.may_go_on(osd, generation)?;
                if objects.is_empty() {
                    break;
                }
                let (objects, others) = objects.into_iter().partition(|oid| self.peer.contains(oid));
                self.forget_others(osd, snap, others).await?;
                for_each(TRIM_OBJECTS_MAX, objects, |oid| self.trim_object(osd, oid, snap, generation))
                    .await?;
            }
            let last = self.peer.last_update().version;
            while self.copies.backend().committed() < last {
                self.peer.changed().notified().await;
                self.may_go_on(osd, generation)?;
            }
            self.ops.snaps.note_trimmed(snap);
        }
        Ok(())
    }

    /// Some of the objects with clones that show a snapshot.
    async fn objects_to_trim(&self, osd: &OsdShard, snap: u64) -> Result<Vec<ObjectId>, StoreError> {
        let objects = self.objects(osd);
        match objects.omap_page(&mapper::oid(self.id), &mapper::range(snap, PAGE)).await {
            Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            page => mapper::heads(&page?),
        }
    }

    /// Removes objects of another part of a PG that was split from the index of this copy. Nobody looks for them in it, so that other
    /// copies keep them until they trim.
    async fn forget_others(
        &self,
        osd: &OsdShard,
        snap: u64,
        others: Vec<ObjectId>,
    ) -> Result<(), StoreError> {
        if others.is_empty() {
            return Ok(());
        }
        let steps = others.iter().map(|oid| mapper::remove(snap, oid));
        let changes = [ObjectChange::new(mapper::oid(self.id), steps)];
        self.change_own(osd, changes.into()).await
    }

    fn may_go_on(&self, osd: &OsdShard, generation: u64) -> Result<(), End> {
        let may = !self.peer.is_past(generation) && self.peer.serves() && self.may_trim(osd);
        if may { Ok(()) } else { Err(End::Over) }
    }

    /// Trims a snapshot from an object: queues an operation on it, and waits until that is durable everywhere.
    async fn trim_object(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        oid: ObjectId,
        snap: u64,
        generation: u64,
    ) -> Result<(), End> {
        self.may_go_on(osd, generation)?;
        if !self.peer.contains(&oid) {
            return Err(End::Failed(format!("{oid} is no object of this PG")));
        }
        let request =
            OsdRequest::new(self.id.pgid, osd.epoch(), flags::CLIENT_WRITE, &oid, OpList::default());
        let (tell, mut told) = oneshot::channel();
        let op = ClientOp::trim(request, snap, osd.shard.now_ns(), ReplyTo::Local(tell));
        let head = &Arc::clone(&op.oid);
        self.handle_op(osd, op);
        loop {
            // In a new interval it would wait until the PG is active again.
            match with_timeout(&osd.shard, LOOK, &mut told).await {
                None => {
                    self.may_go_on(osd, generation)?;
                    // Its writes may wait long, and other PGs must not wait for that.
                    if self.has_unfound(head) {
                        self.ops.snaps.turn.take();
                    }
                }
                Some(Ok(reply)) if reply.result == 0 => return Ok(()),
                Some(Ok(reply)) if reply.result == errno::EAGAIN => return Err(End::Over),
                Some(Ok(reply)) => return Err(End::Failed(format!("{oid}: {}", Errno(reply.result)))),
                Some(Err(_)) => return Err(End::Over),
            }
        }
    }
}

/// The plan that removes a snapshot from an object.
///
/// # Errors
/// Those of the store.
pub(in crate::pg) async fn plan(
    osd: &OsdShard,
    pg: &Pg,
    op: &ClientOp,
    snap: u64,
) -> Result<Box<Plan>, OpError> {
    let stored = pg.objects(osd).stat(&op.oid).await?;
    let forget = ObjectChange::new(mapper::oid(pg.id), [mapper::remove(snap, &op.oid)]);
    let mut plan = Box::new(Plan::failed(0));
    plan.changes.add_other(forget);
    let Some(stored) = stored else { return Ok(plan) };
    let Some(mut set) = set_of(&stored)? else { return Ok(plan) };
    let trimmed = set.trim(snap);
    if trimmed == Trimmed::Nothing {
        return Ok(plan);
    }
    let mut extra = Box::<Extra>::default();
    extra.mtime = Some(stored.mtime);
    if let Trimmed::Gone { id, size } = trimmed {
        plan.changes.add_other(ObjectChange::new(clone_of(&op.oid, id), [Step::Remove]));
        extra.clones.push(CloneChange { id, before: Some(size), after: None });
    }
    let is_gone = set.is_whiteout && set.clones.is_empty();
    let step = match is_gone {
        true => Step::Remove,
        false => Step::SetXattr { name: SNAPSET.into(), value: Bytes::from(set.encode()) },
    };
    plan.changes.set_object(ObjectChange::new(Arc::clone(&op.oid), [step]));
    plan.effect = if is_gone { LogOp::Delete } else { LogOp::Modify };
    plan.sizes = (Some(stored.size), (!is_gone).then_some(stored.size));
    (plan.prior, plan.user_version) = (stored.version, stored.user_version);
    plan.extra = Some(extra);
    Ok(plan)
}
