//! Makes the objects of a replica's copy equal to the primary's.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{Message, with_timeout};
use carmine_peering::{Event, Peering, Place, Task, Then, Trouble};
use carmine_pgtypes::{LogEntry, ObjectChange, ObjectMeta, Sealed, Step};
use carmine_reactor::{Group, Payload};
use carmine_store::{BLOCK_BYTES, OmapRange, StoreError};
use carmine_types::{Errno, Eversion, LogOp, ObjectId, OsdId, UTime, errno, is_mutated};

use super::run::Turn;
use crate::for_each::for_each;
use crate::messages::{PgAck, PgRepair, PushObject};
use crate::pg::Pg;
use crate::pg::copies::{Fate, IfUnfound, Objects, Unhealed};
use crate::pg::family::{self, Family};
use crate::shard::OsdShard;

/// Bytes of an object in one push: those of one piece of its block map.
const PUSH_BYTES: u64 = 256 << 10;
/// Pieces of an object pushed at the same time.
const PIECES: usize = 4;
/// Bytes of omap keys and values in one push.
const OMAP_PAGE_BYTES: usize = 256 << 10;
/// Objects of a PG pushed at the same time before it serves.
const PUSHES: usize = 4;
/// How often an object is checked without a commit: a write that changed nothing ends without a notification.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long to wait for an object's writes; after that it is postponed.
const QUIET_WAIT: Duration = Duration::from_secs(1);

/// The repair of one replica's copy.
pub(in crate::pg) struct Repair {
    pub osd: Rc<OsdShard>,
    pub pg: Rc<Pg>,
    /// The attempt that it belongs to.
    pub attempt: u64,
    /// The replica.
    pub to: OsdId,
    /// How far the copy is complete; all other objects are compared.
    pub place: Place,
    /// Whether an interruption leaves the copy at this place.
    pub keeps_place: bool,
    /// Objects that the replica's log changed after the newest common entry.
    pub changed: Vec<Arc<ObjectId>>,
    /// Whether the replica could lead as well.
    pub may_lead: bool,
}

/// Why a repair ended.
pub(in crate::pg) enum Stop {
    /// Another attempt has begun: nobody waits for this one.
    Superseded,
    /// It failed.
    Failed(Trouble),
}

/// Starts a repair; a few run at the same time.
pub(in crate::pg) fn start(repair: Repair) {
    let shard = repair.osd.shard.clone();
    shard.spawn(Group::Recovery, "repair", async move {
        let _permit = repair.osd.repairs.acquire(1).await;
        repair.run().await;
    });
}

impl Repair {
    async fn run(&self) {
        let (attempt, from, differ) = (self.attempt, self.to, self.differing());
        let Some(result) = outcome_to_report(self.begin(&differ).await) else { return };
        let pushed = match self.pg.on(&self.osd, Event::Done { task: Task::Mark, attempt, from, result }) {
            Then::Push => self.push_differing(&differ).await,
            Then::PushUndone => self.push(self.changed_there_only().iter().map(|oid| &**oid)).await,
            _ => return,
        };
        if let Some(result) = outcome_to_report(pushed) {
            self.pg.on(&self.osd, Event::Done { task: Task::Push, attempt, from, result });
        }
    }

    /// The repair of one member's copy while clients are served.
    pub(in crate::pg) fn while_serving(osd: &Rc<OsdShard>, pg: &Rc<Pg>, attempt: u64, to: OsdId) -> Repair {
        let (osd, pg) = (Rc::clone(osd), Rc::clone(pg));
        let (place, changed) = (Place::default(), Vec::new());
        Repair { osd, pg, attempt, to, place, keeps_place: true, changed, may_lead: false }
    }

    fn objects(&self) -> Objects<'_> {
        self.pg.objects(&self.osd)
    }

    /// Objects that our log changed after the newest common entry.
    fn changed_here(&self) -> BTreeSet<Arc<ObjectId>> {
        let Some(common) = self.place.common else { return BTreeSet::new() };
        let log = self.pg.peer.log();
        log.after(common).filter(|e| e.op != LogOp::Error).flat_map(LogEntry::objects).collect()
    }

    /// Objects that the replica's log changed after it.
    fn changed_there(&self) -> BTreeSet<Arc<ObjectId>> {
        self.place.common.map_or_else(BTreeSet::new, |_| self.changed.iter().cloned().collect())
    }

    /// Objects that either log changed after it.
    fn differing(&self) -> BTreeSet<Arc<ObjectId>> {
        self.changed_here().union(&self.changed_there()).cloned().collect()
    }

    /// Objects that only the replica's log changed after it.
    fn changed_there_only(&self) -> BTreeSet<Arc<ObjectId>> {
        self.changed_there().difference(&self.changed_here()).cloned().collect()
    }

    /// Pushes these objects, and those that differ in the part that no log covers.
    async fn push_differing(&self, differ: &BTreeSet<Arc<ObjectId>>) -> Result<(), Stop> {
        self.push(differ.iter().map(|oid| &**oid)).await?;
        let mut from = self.pg.compares_from(self.place.clone());
        while let Some(begin) = from {
            let (differ, next) = self.differing_from(&begin).await?;
            self.push(&differ).await?;
            from = next;
        }
        Ok(())
    }

    /// Marks the copy as incomplete. A copy that could lead is first asked whether it has space for the repair: if not, it leads,
    /// and changes that only this copy has are undone. So a full OSD does not keep its PGs from serving.
    async fn begin(&self, differ: &BTreeSet<Arc<ObjectId>>) -> Result<(), Stop> {
        self.current()?;
        let needs_bytes = if self.may_lead { self.bytes_of(differ).await? } else { 0 };
        let complete_to = self.place.common.filter(|_| self.keeps_place).unwrap_or(Eversion::ZERO);
        let last_backfill = self.place.last_backfill.clone().filter(|_| complete_to > Eversion::ZERO);
        let order = PgRepair { head: self.pg.head(&self.osd), complete_to, last_backfill, needs_bytes };
        let ack: PgAck =
            self.pg.ask(&self.osd, self.to, Message::encode(&order)).await.map_err(Stop::Failed)?;
        match ack.result {
            0 => Ok(()),
            errno::ENOSPC if needs_bytes > 0 => Err(Stop::Failed(Trouble::Full)),
            errno => Err(Stop::Failed(Trouble::Refused(Errno(errno)))),
        }
    }

    pub(in crate::pg) fn current(&self) -> Result<(), Stop> {
        let peering = self.pg.peer.machine();
        let is_current = peering.is_under_way(self.attempt) || self.serves_clients(&peering);
        if is_current { Ok(()) } else { Err(Stop::Superseded) }
    }

    /// Whether clients are served meanwhile.
    fn serves_clients(&self, peering: &Peering) -> bool {
        peering.is_recovering(self.attempt, self.to)
    }

    pub(in crate::pg) fn stuck(&self, error: &StoreError) -> Stop {
        tracing::warn!("pg {}: {} cannot be repaired: {error}", self.pg.id, self.to);
        Stop::Failed(Trouble::OwnStore(Errno(error.errno())))
    }

    async fn bytes_of(&self, objects: &BTreeSet<Arc<ObjectId>>) -> Result<u64, Stop> {
        let mut bytes = 0u64;
        for oid in objects {
            let meta = self.objects().stat(oid).await.map_err(|error| self.stuck(&error))?;
            bytes = bytes.saturating_add(meta.map_or(0, |meta| meta.size.next_multiple_of(BLOCK_BYTES)));
        }
        self.current()?;
        Ok(bytes)
    }

    /// Pushes objects, or their absence, before clients are served.
    async fn push<'a>(&self, objects: impl IntoIterator<Item = &'a ObjectId>) -> Result<(), Stop> {
        for_each(PUSHES, family::families(objects), async |(head, members)| {
            self.push_family(&Family { head, members }, None).await.map(drop)
        })
        .await
    }

    /// Pushes members of a family, or their absence, with its entries of the snapshot mapper; returns the number of bytes.
    /// Nothing is written to the family meanwhile.
    pub(in crate::pg) async fn push_family(
        &self,
        family: &Family,
        mut turn: Option<&mut Turn>,
    ) -> Result<u64, Stop> {
        let mut bytes = 0;
        for (n, oid) in family.objects().enumerate() {
            let is_last = n + 1 == family.members.len();
            self.check_still(&family.head);
            bytes += self.push_object(&oid, turn.as_deref_mut().filter(|_| is_last)).await?;
        }
        self.check_still(&family.head);
        let meta = self.objects().stat(&family.head).await.map_err(|error| self.stuck(&error))?;
        // A damaged set is copied as it is.
        let set = meta.as_ref().and_then(|meta| family::set_of(meta).ok().flatten()).unwrap_or_default();
        if let Some(entries) = family::mapper::entries(&set, &family.head) {
            self.push_steps(&Arc::new(family::mapper::oid(self.pg.id)), [entries]).await?;
        }
        Ok(bytes)
    }

    /// Waits until all writes of a held object are committed; false if that takes long. A write may wait for an unfound block, or
    /// for another OSD, and other objects must not wait for that.
    pub(in crate::pg) async fn is_soon_quiet(&self, head: &Arc<ObjectId>) -> Result<bool, Stop> {
        self.current()?;
        let end_ns = self.osd.shard.now_ns() + QUIET_WAIT.as_nanos() as u64;
        let is_quiet = || self.pg.ops.pipeline().is_quiet(head, self.pg.copies.backend().committed());
        while !is_quiet() && !is_mutated("push_written") {
            if self.osd.shard.now_ns() >= end_ns || self.pg.has_unfound(head) {
                return Ok(false);
            }
            with_timeout(&self.osd.shard, LOOK_AGAIN, self.pg.peer.changed().notified()).await;
            self.current()?;
        }
        Ok(true)
    }

    /// While clients are served, an object that is being pushed is held and has no write in flight.
    fn check_still(&self, head: &ObjectId) {
        let committed = self.pg.copies.backend().committed();
        assert!(
            !self.serves_clients(&self.pg.peer.machine()) || self.pg.ops.pipeline().is_still(head, committed),
            "pg {}: {head} is written to while it is pushed",
            self.pg.id
        );
    }

    /// Pushes one object, or its absence (Ceph: MOSDPGPush); returns the number of bytes. Nothing is written to it meanwhile. Its
    /// version comes last, so that an interrupted copy has none. When the last piece is sent, the next object may begin.
    async fn push_object(&self, oid: &Arc<ObjectId>, mut turn: Option<&mut Turn>) -> Result<u64, Stop> {
        let meta = self.objects().stat(oid).await.map_err(|error| self.stuck(&error))?;
        let (mut bytes, mut ends) = (0, || turn.iter_mut().for_each(|turn| turn.let_next_begin()));
        match meta {
            None => {
                ends();
                self.push_steps(oid, [Step::Remove]).await?;
            }
            Some(meta) => {
                let ObjectMeta { size, version, user_version, mtime, has_omap, .. } = meta;
                let last = Step::SetMeta { version, user_version, mtime };
                if size <= PUSH_BYTES && !has_omap {
                    ends();
                    self.push_range(oid, 0..size, recreate_steps(&meta), Some(last)).await?;
                } else {
                    self.push_range(oid, 0..size.min(PUSH_BYTES), recreate_steps(&meta), None).await?;
                    if has_omap {
                        bytes += self.push_omap(oid).await?;
                    }
                    self.push_rest(oid, size, ends).await?;
                    self.push_steps(oid, [last]).await?;
                }
                bytes += size;
            }
        }
        self.osd.metrics.borrow_mut().objects_pushed += 1;
        Ok(bytes)
    }

    /// Pushes all pieces after the first, a few at a time, and calls `ends` when the last has begun. If one fails, those in
    /// flight are awaited, because they must not arrive later.
    async fn push_rest(&self, oid: &Arc<ObjectId>, size: u64, mut ends: impl FnMut()) -> Result<(), Stop> {
        let failed = RefCell::new(None);
        let mut begins = (PUSH_BYTES..size).step_by(PUSH_BYTES as usize);
        let more = std::iter::from_fn(|| {
            let begin = begins.next().filter(|_| failed.borrow().is_none());
            if begin.is_none_or(|begin| begin + PUSH_BYTES >= size) {
                ends();
            }
            begin
        });
        for_each(PIECES, more, async |begin| {
            let range = begin..size.min(begin + PUSH_BYTES);
            if let Err(stop) = self.push_range(oid, range, Vec::new(), None).await {
                failed.replace(Some(stop));
            }
            Ok(())
        })
        .await?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    async fn push_steps(
        &self,
        oid: &Arc<ObjectId>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<(), Stop> {
        self.current()?;
        let mut txn = self.pg.peer.transaction();
        txn.changes.push(ObjectChange::new(Arc::clone(oid), steps));
        let txn = Sealed::from(txn);
        let push = PushObject::pack(&self.pg.head(&self.osd), &txn, txn.data()).message();
        drop(txn);
        self.pg.order(&self.osd, self.to, push).await.map_err(Stop::Failed)
    }

    /// Pushes a piece, between these steps and `last`. It is read before the replica's old data is replaced, because a block that
    /// is bad here may be good there.
    async fn push_range(
        &self,
        oid: &Arc<ObjectId>,
        range: Range<u64>,
        mut steps: Vec<Step>,
        last: Option<Step>,
    ) -> Result<(), Stop> {
        let bytes = (range.end - range.start).max(BLOCK_BYTES);
        let _room = self.osd.room_to_push(self.to, bytes).await;
        let mut off = range.start;
        loop {
            let (data, lost) = self.piece(oid, off, range.end).await?;
            let (begin, end) = (off, off + data.len() as u64);
            off = end + lost.map_or(0, |lost| lost.bytes);
            steps.extend(self.written(oid, begin, data).await?);
            steps.extend(lost.map(|Lost { bytes, crc }| Step::MarkLost { off: end, len: bytes, crc }));
            if off >= range.end {
                steps.extend(last);
                return self.push_steps(oid, steps).await;
            }
            self.push_steps(oid, std::mem::take(&mut steps)).await?;
        }
    }

    /// The steps that replace a range with these bytes, keeping the object's holes as holes.
    async fn written(&self, oid: &ObjectId, begin: u64, data: Payload) -> Result<Vec<Step>, Stop> {
        if data.is_empty() {
            return Ok(Vec::new());
        }
        let len = data.len() as u64;
        let runs = self.objects().written(oid, begin, len).await;
        let runs = runs.map_err(|error| self.stuck(&error))?;
        let write = |run: Range<u64>| {
            let data = data.slice((run.start - begin) as usize, (run.end - run.start) as usize);
            Step::Write { off: run.start, data }
        };
        let zero = std::iter::once(Step::Zero { off: begin, len });
        Ok(zero.chain(runs.into_iter().map(write)).collect())
    }

    /// Pushes the omap; returns the number of bytes.
    async fn push_omap(&self, oid: &Arc<ObjectId>) -> Result<u64, Stop> {
        let (objects, mut bytes) = (self.objects(), 0);
        let header = objects.omap_header(oid).await.map_err(|error| self.stuck(&error))?;
        let room = self.osd.room_to_push(self.to, header.len() as u64).await;
        self.push_steps(oid, [Step::SetOmapHeader { header }]).await?;
        drop(room);
        let mut range = OmapRange::all(OMAP_PAGE_BYTES);
        loop {
            let page = objects.omap_page(oid, &range).await.map_err(|error| self.stuck(&error))?;
            range = range.after(&page);
            let page_bytes = page.entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
            bytes += page_bytes;
            if !page.entries.is_empty() {
                // A single value may use all of it.
                let _room = self.osd.room_to_push(self.to, page_bytes).await;
                self.push_steps(oid, [Step::SetOmap { entries: page.entries }]).await?;
            }
            if !page.more {
                return Ok(bytes);
            }
        }
    }

    /// The object's bytes from `off` to `to`, up to the first bad block, and that block if no copy can provide it: it is an error
    /// in the new copy, too, since one bad block must not keep the PG from serving. A block is lost only if all OSDs that may
    /// have it have said that they do not; while one does not answer it is asked again, and while one is down the object is
    /// unfound.
    async fn piece(&self, oid: &ObjectId, off: u64, to: u64) -> Result<(Payload, Option<Lost>), Stop> {
        let (mut len, mut lost) = (to - off, None);
        while len > 0 {
            let Unhealed { error, fate } = match self.objects().read(oid, off, len, IfUnfound::Fail).await {
                Ok(data) => return Ok((data, lost)),
                Err(unhealed) => unhealed,
            };
            let at = match (fate, error.lost_block()) {
                (Fate::Lost, Some((_, at))) => at,
                // Before the PG serves, the object is copied without the block, because the others must not wait for it.
                (Fate::Unfound, Some((_, at)))
                    if !self.serves_clients(&self.pg.peer.machine()) && self.pg.record_unfound(oid) =>
                {
                    at
                }
                (Fate::Unfound, _) => return Err(Stop::Failed(Trouble::Unfound)),
                _ => return Err(self.stuck(&error)),
            };
            lost = Some(Lost { bytes: to.saturating_sub(at).min(BLOCK_BYTES), crc: error.lost_crc() });
            len = at.saturating_sub(off);
        }
        if lost.is_some() {
            tracing::error!("pg {}: object {oid}, offset {off}: the block is copied as lost", self.pg.id);
        }
        Ok((Payload::new(), lost))
    }
}

/// A block that no copy can provide.
#[derive(Clone, Copy)]
struct Lost {
    bytes: u64,
    /// Its checksum, which identifies it if an OSD has it after all; zero: unknown.
    crc: u32,
}

/// The steps that recreate an object without its data, omap and version. The copy's old data stays until the pieces replace it.
fn recreate_steps(meta: &ObjectMeta) -> Vec<Step> {
    let (version, user_version, mtime) = (Eversion::ZERO, 0, UTime::ZERO);
    let mut steps = vec![
        Step::ClearOmap,
        Step::ClearXattrs { prefix: Box::default() },
        Step::SetMeta { version, user_version, mtime },
        Step::Truncate { size: meta.size },
    ];
    let xattrs = meta.xattrs.iter();
    steps.extend(xattrs.map(|(name, value)| Step::SetXattr { name: name.into(), value: value.clone() }));
    steps
}

/// The result for the state machine; `None` if nobody waits for it.
fn outcome_to_report(result: Result<(), Stop>) -> Option<Result<(), Trouble>> {
    match result {
        Ok(()) => Some(Ok(())),
        Err(Stop::Failed(trouble)) => Some(Err(trouble)),
        Err(Stop::Superseded) => None,
    }
}
