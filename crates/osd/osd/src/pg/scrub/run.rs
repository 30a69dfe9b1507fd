//! One scrub of a PG, a few objects at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_pgtypes::Omaps;
use carmine_store::StoreError;
use carmine_types::{Eversion, ObjectId, OsdId, errno};
use carmine_wire::header::Front;
use carmine_wire::osdmap::consts::{FLAG_NODEEP_SCRUB, FLAG_NOSCRUB, POOL_NODEEP_SCRUB, POOL_NOSCRUB};
use carmine_wire::scrub::{InconsistentObject, copy_errors};

use super::compare::{Inconsistent, Map, compare};
use super::scan::{Page, scan};
use super::sets::errors_of;
use super::{Found, Order};
use crate::for_each::for_each;
use crate::messages::{Head, PgScrub, PgScrubMap, ScanCursor};
use crate::pg::{Pg, family};
use crate::shard::OsdShard;

/// Objects compared together, whose writes wait meanwhile (Ceph's osd_scrub_chunk_max).
const CHUNK_OBJECTS: usize = 25;
/// Most bytes that a deep scrub compares together, unless one object has more.
const CHUNK_BYTES: u64 = 8 << 20;
/// Most objects that a replica may have in such a range.
const REPLICA_OBJECTS_MAX: usize = 1024;
/// Pause between two checks for the end of writes that had begun.
const POLL: Duration = Duration::from_millis(1);
/// Most bytes of a copy's attributes in the report; if there are more, none are shown.
const ATTR_BYTES_MAX: usize = 16 << 10;
/// How often a member is asked.
const TRIES: u32 = 3;
/// Pause between the tries.
const TRY_PAUSE: Duration = Duration::from_millis(200);

/// Why a scrub ended early.
#[derive(Debug)]
pub(super) enum End {
    /// A new interval began.
    Interval,
    /// A flag of the map was set.
    Flag,
    Failed(String),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> End {
        End::Failed(error.to_string())
    }
}

/// Ends a scrub, or a repair, if something `is_wrong`.
pub(super) fn fail_if(is_wrong: bool, why: impl FnOnce() -> String) -> Result<(), End> {
    if is_wrong { Err(End::Failed(why())) } else { Ok(()) }
}

/// The objects from `from` to `to` (exclusive), or to the end of the PG.
pub(super) struct Range {
    pub from: ObjectId,
    pub to: Option<ObjectId>,
}

impl Range {
    /// The range of one object.
    pub(super) fn single(oid: &ObjectId) -> Range {
        Range { from: oid.clone(), to: Some(family::clone_of(oid, oid.snap.saturating_add(1))) }
    }

    fn has(&self, oid: &ObjectId) -> bool {
        *oid >= self.from && self.to.as_ref().is_none_or(|to| oid < to)
    }
}

/// Scrubs and repairs one object; true if all copies are good afterwards.
pub(in crate::pg) async fn repair_object(osd: &Rc<OsdShard>, pg: &Rc<Pg>, oid: &ObjectId) -> bool {
    let order = Order { deep: true, repair: true, is_commanded: true };
    let mut run = Run { is_patient: true, ..Run::new(osd, pg, order) };
    run.check_current().is_ok() && matches!(run.repair_other(oid.clone()).await, Ok(None))
}

/// A scrub under way.
pub(super) struct Run {
    pub osd: Rc<OsdShard>,
    pub pg: Rc<Pg>,
    pub order: Order,
    /// The generation that it belongs to.
    generation: u64,
    /// Whether it waits for writes without a limit, since no other PG waits for it.
    is_patient: bool,
    pub found: Found,
    /// The omaps counted so far.
    pub omaps: Omaps,
    /// Number of repaired objects.
    pub repaired: u64,
}

impl Run {
    pub(super) fn new(osd: &Rc<OsdShard>, pg: &Rc<Pg>, order: Order) -> Run {
        let (osd, pg) = (Rc::clone(osd), Rc::clone(pg));
        let found = Found { interval: pg.peer.machine().attempt_id().interval, ..Found::default() };
        let generation = pg.peer.generation();
        Run { generation, is_patient: false, osd, pg, order, found, omaps: Omaps::default(), repaired: 0 }
    }

    /// Scrubs the whole PG.
    pub(super) async fn all(&mut self) -> Result<(), End> {
        let pgid = self.pg.id.pgid;
        let mut from = Some(ObjectId::cursor(pgid.pool, pgid.ps));
        while let Some(begin) = from {
            self.check_current()?;
            if !self.order.is_commanded && !may_begin(&self.osd, &self.pg, self.order.deep) {
                return Err(End::Flag);
            }
            from = self.chunk(begin).await?;
        }
        self.repair_if_few().await
    }

    /// Fails unless the generation is still the one in which the scrub began.
    pub(super) fn check_current(&self) -> Result<(), End> {
        if self.pg.peer.is_past(self.generation) || !self.pg.peer.is_active() {
            Err(End::Interval)
        } else {
            Ok(())
        }
    }

    /// Compares the next objects; returns where the objects after them begin.
    async fn chunk(&mut self, from: ObjectId) -> Result<Option<ObjectId>, End> {
        let since = self.pg.peer.last_update();
        let (objects, next) = self.list(&from).await?;
        self.check_current()?;
        // Clones change together with their heads.
        let heads: BTreeSet<ObjectId> = objects.iter().map(|oid| family::head_of(oid)).collect();
        let held: Vec<Arc<ObjectId>> = heads.into_iter().map(Arc::new).collect();
        self.pg.ops.pipeline().hold(&held);
        let mut done = self.compare_held(&held, Range { from, to: next.clone() }, since).await;
        if done.is_ok() {
            done = self.check_sets(&objects).await;
        }
        self.release(&held);
        done.map(|()| next)
    }

    /// The objects of a chunk, and the first one after them.
    async fn list(&self, from: &ObjectId) -> Result<(Vec<Arc<ObjectId>>, Option<ObjectId>), End> {
        let objects = self.pg.objects(&self.osd);
        let page = objects.list(Some(from), CHUNK_OBJECTS + 1).await?;
        let (mut listed, mut bytes) = (Vec::new(), 0u64);
        for oid in page.into_iter().filter(|oid| !family::mapper::is_mapper(oid)) {
            if self.order.deep {
                // Unreadable objects are reported by the comparison.
                let meta = objects.stat(&oid).await.ok().flatten();
                bytes = bytes.saturating_add(meta.map_or(0, |meta| meta.size));
            }
            if listed.len() == CHUNK_OBJECTS || (bytes > CHUNK_BYTES && !listed.is_empty()) {
                return Ok((listed, Some(oid)));
            }
            listed.push(Arc::new(oid));
        }
        Ok((listed, None))
    }

    /// Releases these objects: their writes may start.
    pub(super) fn release(&self, objects: &[Arc<ObjectId>]) {
        // A new generation has new queues.
        if self.pg.peer.is_past(self.generation) {
            return;
        }
        self.pg.ops.pipeline().release(objects);
        objects.iter().for_each(|oid| self.pg.pump(&self.osd, oid));
    }

    async fn compare_held(
        &mut self,
        held: &[Arc<ObjectId>],
        range: Range,
        since: Eversion,
    ) -> Result<(), End> {
        let maps = self.maps(held, &range).await?;
        self.count_omaps(&maps);
        for object in compare(self.osd.config.id, self.order.deep, &maps) {
            let is_held = held.iter().any(|head| family::is_same_head(head, &object.object.oid));
            if is_held || !self.may_be_new(&object.object.oid, since) {
                self.note(object, is_held).await?;
            }
        }
        Ok(())
    }

    /// Whether the object may have been created after `since`, during the scan. The next scrub covers it.
    fn may_be_new(&self, oid: &ObjectId, since: Eversion) -> bool {
        let log = self.pg.peer.log();
        log.info().log_tail > since || log.after(since).any(|entry| family::is_same_head(&entry.oid, oid))
    }

    /// Compares the copies of some objects, which are held until it is done.
    pub(super) async fn compare_copies(
        &self,
        held: &[Arc<ObjectId>],
        range: &Range,
    ) -> Result<Vec<Inconsistent>, End> {
        Ok(compare(self.osd.config.id, self.order.deep, &self.maps(held, range).await?))
    }

    /// Scans the objects on each member.
    async fn maps(&self, held: &[Arc<ObjectId>], range: &Range) -> Result<BTreeMap<OsdId, Map>, End> {
        while self.pg.ops.pipeline().is_writing(held) {
            let unfound = held.iter().find(|head| !self.is_patient && self.pg.has_unfound(head));
            if let Some(head) = unfound {
                return Err(End::Failed(format!("{head} is unfound, and being written")));
            }
            self.osd.shard.sleep(POLL).await;
            self.check_current()?;
        }
        // Every member has the changes that are durable everywhere.
        let version = self.pg.peer.last_update();
        while self.pg.copies.backend().committed() < version.version {
            self.osd.shard.sleep(POLL).await;
            self.check_current()?;
        }
        let (members, maps) =
            (self.pg.peer.acting().osds().collect::<Vec<_>>(), RefCell::new(BTreeMap::new()));
        for_each(members.len(), members, async |member| {
            let map = self.map_of(member, range, version).await?;
            maps.borrow_mut().insert(member, map);
            Ok::<(), End>(())
        })
        .await?;
        self.check_current()?;
        Ok(maps.into_inner())
    }

    async fn map_of(&self, member: OsdId, range: &Range, version: Eversion) -> Result<Map, End> {
        let mut map = Map::new();
        let mut at = Some(ScanCursor::at(range.from.clone()));
        while let Some(from) = at {
            let (objects, next) = if member == self.osd.config.id {
                scan(&self.osd, &self.pg, from, range.to.as_ref(), self.order.deep).await?
            } else {
                self.ask_map(member, from, range, version).await?
            };
            self.check_current()?;
            for object in objects {
                let is_asked = self.pg.peer.contains(&object.oid) && range.has(&object.oid);
                fail_if(!is_asked, || format!("{member} answers with an object that was not asked for"))?;
                map.insert(object.oid.clone(), object);
            }
            fail_if(map.len() > REPLICA_OBJECTS_MAX, || format!("{member} has far more objects"))?;
            at = next;
        }
        Ok(map)
    }

    async fn ask_map(
        &self,
        member: OsdId,
        from: ScanCursor,
        range: &Range,
        version: Eversion,
    ) -> Result<Page, End> {
        let deep = self.order.deep;
        let ask = |head| {
            Message::encode(&PgScrub { head, version, deep, from: from.clone(), to: range.to.clone() })
        };
        let answer: PgScrubMap = self.ask(member, ask, |answer: &PgScrubMap| answer.result).await?;
        match answer.next {
            Some(next) if next == from => Err(End::Failed(format!("{member} gets no further"))),
            next => Ok((answer.objects, next)),
        }
    }

    /// Asks a member until it answers.
    pub(super) async fn ask<T: Front>(
        &self,
        member: OsdId,
        question: impl Fn(Head) -> Message,
        result: impl Fn(&T) -> i32,
    ) -> Result<T, End> {
        let mut why = String::new();
        for _ in 0..TRIES {
            let answer = self.pg.ask::<T>(&self.osd, member, question(self.pg.head(&self.osd))).await;
            self.check_current()?;
            match answer {
                Ok(answer) => match result(&answer) {
                    0 => return Ok(answer),
                    errno::EAGAIN => why = "it is not ready".to_owned(),
                    errno => return Err(End::Failed(format!("{member}: {}", carmine_types::Errno(errno)))),
                },
                Err(trouble) => why = format!("{trouble:?}"),
            }
            self.osd.shard.sleep(TRY_PAUSE).await;
            self.check_current()?;
        }
        Err(End::Failed(format!("{member}: {why}")))
    }

    /// Reports an inconsistent object, and repairs it if that was ordered.
    async fn note(&mut self, mut object: Inconsistent, is_held: bool) -> Result<(), End> {
        tracing::error!("pg {}: scrub: {}", self.pg.id, super::report::describe(&object));
        self.osd.metrics.borrow_mut().scrub_errors += object.bad_copies();
        if object.is_of_attrs() {
            self.show_attrs(&mut object).await;
        }
        let left = match self.order.repair {
            false => Some(object),
            true if is_held => self.repair(object).await?,
            true => self.repair_other(object.object.oid).await?,
        };
        left.into_iter().for_each(|object| self.found.add(object));
        Ok(())
    }

    /// Adds the attributes of each copy to the report.
    async fn show_attrs(&self, object: &mut Inconsistent) {
        let InconsistentObject { oid, copies, .. } = &mut object.object;
        let shown = copy_errors::MISSING | copy_errors::STAT_ERROR;
        for (osd, copy) in copies.iter_mut().filter(|(_, copy)| copy.errors & shown == 0) {
            let Ok(meta) = self.meta_of(*osd, oid).await else { continue };
            if meta.xattrs.bytes() <= ATTR_BYTES_MAX {
                let xattrs = meta.xattrs.iter();
                copy.attrs = xattrs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            }
        }
    }

    /// Repairs what a scheduled deep scrub found, if that is few enough to be an accident (osd_scrub_auto_repair_num_errors).
    async fn repair_if_few(&mut self) -> Result<(), End> {
        let options = self.osd.options.borrow().scrub.clone();
        let few = self.found.errors <= options.auto_repair_errors_max;
        if self.order.is_commanded || !self.order.deep || !options.auto_repair || !few {
            return Ok(());
        }
        self.found.errors = self.found.sets.iter().map(errors_of).sum();
        for object in std::mem::take(&mut self.found.objects) {
            let left = self.repair_other(object.object.oid).await?;
            left.into_iter().for_each(|object| self.found.add(object));
        }
        Ok(())
    }

    /// Holds and repairs an object, if there is still something to repair.
    async fn repair_other(&mut self, oid: ObjectId) -> Result<Option<Inconsistent>, End> {
        let (range, held) = (Range::single(&oid), [Arc::new(family::head_of(&oid))]);
        self.pg.ops.pipeline().hold(&held);
        let left = match self.compare_copies(&held, &range).await.map(|mut wrong| wrong.pop()) {
            Ok(Some(object)) => self.repair(object).await,
            done => done,
        };
        self.release(&held);
        left
    }
}

/// Whether the map's flags allow a scheduled scrub to begin, or to continue.
pub(super) fn may_begin(osd: &OsdShard, pg: &Pg, deep: bool) -> bool {
    let Some(view) = osd.view() else { return false };
    let (flag, of_pool) =
        if deep { (FLAG_NODEEP_SCRUB, POOL_NODEEP_SCRUB) } else { (FLAG_NOSCRUB, POOL_NOSCRUB) };
    let pool = view.map().pool(pg.id.pgid.pool);
    view.map().flags & flag == 0 && pool.is_some_and(|pool| pool.flags & of_pool == 0)
}
