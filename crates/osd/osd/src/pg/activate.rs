//! Makes all copies of a PG equal at the start of an interval, and then lets clients in. Runs on the primary.
//!
//! Every acknowledged write is in the log of every member, so the primary's log wins: what a replica has beyond the
//! common part is undone, and objects that differ since are copied whole.
//!
//! `last_epoch_started` tells whose interval is the latest. The primary writes it down before any replica does, when all
//! copies are equal, and all have written it before anything new is executed. So a replica with a later one has data that
//! the primary may lack (it lost its store), unless both end in the same entry: then the primary changes nothing and says
//! so. A copy that is being made or repaired says durably that it is incomplete: it never leads, and never counts as equal.
//! A primary that finds another member's copy better than its own, or full, tells the monitor who has to lead.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_pgtypes::{ObjectChange, ObjectMeta, Sealed, Step, Transaction};
use carmine_reactor::{Group, Payload};
use carmine_store::{BLOCK_BYTES, OmapRange, StoreError};
use carmine_types::{Epoch, Errno, Eversion, LogOp, ObjectId, OsdId, errno};
use carmine_wire::header::Front;

use super::replicate::Follower;
use super::{Pg, Phase, heal};
use crate::concurrent::for_each;
use crate::messages::{Head, PgAck, PgActivate, PgNotify, PgQuery, PgRepair, PushObject};
use crate::shard::OsdShard;

/// Bytes of an object in one push.
const PUSH_BYTES: u64 = 1 << 20;
/// Bytes of omap keys and values in one push.
const OMAP_PAGE_BYTES: usize = 512 << 10;
/// Objects of a PG that are pushed at the same time.
const PUSHES: usize = 4;
/// Pause before a replica that is not ready is asked again; it doubles up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Pause before a PG that lacks data looks again.
const INCOMPLETE_RETRY: Duration = Duration::from_secs(5);
/// Objects listed at a time when all are copied.
const LIST_PAGE: usize = 512;

/// Why an attempt did not make the PG active.
enum Stop {
    /// A newer turn began: its own activation goes on.
    Superseded,
    /// Somebody did not answer, or not as it should: it is tried again.
    Again(String),
    /// It must not go on.
    Incomplete(String),
}

/// Starts the activation of the turn that has just begun.
pub(super) fn start(osd: &Rc<OsdShard>, pg: &Rc<Pg>) {
    let (osd, pg, turn) = (Rc::clone(osd), Rc::clone(pg), pg.turn.get());
    let shard = osd.shard.clone();
    shard.spawn(Group::Recovery, "activate", async move {
        let run = Activation { osd: &osd, pg: &pg, turn };
        let mut pause = RETRY;
        loop {
            let stop = match run.run().await {
                Ok(()) => return,
                Err(stop) => stop,
            };
            if pg.is_past(turn) {
                return;
            }
            match stop {
                Stop::Superseded => return,
                Stop::Again(why) => {
                    pg.set_phase(Phase::Peering(why));
                    osd.shard.sleep(pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
                Stop::Incomplete(why) => {
                    if !matches!(*pg.phase.borrow(), Phase::Incomplete(_)) {
                        tracing::error!("pg {}: {why}", pg.id);
                    }
                    pg.set_phase(Phase::Incomplete(why));
                    osd.shard.sleep(INCOMPLETE_RETRY).await;
                }
            }
            if pg.is_past(turn) {
                return;
            }
        }
    });
}

struct Activation<'a> {
    osd: &'a Rc<OsdShard>,
    pg: &'a Rc<Pg>,
    turn: u64,
}

/// What a replica said, and what follows from it.
struct Copy {
    osd: OsdId,
    notify: PgNotify,
    /// Newest entry that both logs have; `None` if they do not touch, or its copy is incomplete.
    common: Option<Eversion>,
}

impl Copy {
    /// This copy has nothing that the primary lacks: the other way round the PG loses only what nobody was told of.
    fn is_prefix(&self) -> bool {
        self.common == Some(self.notify.info.last_update)
    }
}

impl Activation<'_> {
    async fn run(&self) -> Result<(), Stop> {
        if self.pg.is_promised(self.osd.epoch()) {
            let why = "waits for the monitor's next map: it was told that all copies are complete";
            return Err(Stop::Again(why.to_owned()));
        }
        // What belongs to an earlier attempt and comes late is not taken by the replicas any more.
        self.pg.attempt.set(self.pg.attempt.get() + 1);
        let last = self.pg.log.borrow().info.last_update;
        let mut copies = Vec::new();
        for replica in self.pg.replicas() {
            let notify = self.query(replica, last).await?;
            copies.push(Copy { osd: replica, common: self.common_with(&notify), notify });
        }
        self.check_lead(&copies)?;
        for copy in &copies {
            if copy.common != Some(last) || copy.notify.info.last_update != last {
                self.pg.set_phase(Phase::Peering(format!("repairs osd.{}", copy.osd.0)));
                self.repair(copy).await?;
            }
        }
        self.write_started().await?;
        for copy in &copies {
            self.activate_replica(copy).await?;
        }
        let followers = copies.iter().map(|copy| Follower::new(copy.osd, last.version)).collect();
        *self.pg.followers.borrow_mut() = followers;
        self.osd.metrics.borrow_mut().activations.inc();
        self.pg.successor.set(None);
        self.pg.set_phase(Phase::Active);
        self.pg.count_objects(self.osd);
        self.pg.resume(self.osd);
        Ok(())
    }

    /// Nobody else has to lead.
    fn check_lead(&self, copies: &[Copy]) -> Result<(), Stop> {
        let log = self.pg.log.borrow();
        let (mine, last, incomplete) =
            (log.info.last_epoch_started, log.info.last_update, log.info.incomplete);
        let is_complete =
            |notify: &PgNotify| !notify.info.incomplete && notify.info.last_epoch_started > Epoch(0);
        let complete = copies.iter().filter(|copy| is_complete(&copy.notify));
        let best =
            complete.max_by_key(|copy| (copy.notify.info.last_epoch_started, copy.notify.info.last_update));
        let better = best.filter(|best| {
            incomplete || (best.notify.info.last_epoch_started > mine && best.notify.info.last_update != last)
        });
        self.pg.successor.set(better.map(|copy| copy.osd));
        match better {
            None if incomplete => Err(Stop::Incomplete("every copy is incomplete".to_owned())),
            None => Ok(()),
            Some(copy) if incomplete => Err(Stop::Incomplete(format!(
                "the repair of this copy was interrupted: {} has a complete one and must lead",
                copy.osd
            ))),
            Some(copy) => Err(Stop::Incomplete(format!(
                "{} has newer data: it was active in epoch {}, this primary last in {mine}",
                copy.osd, copy.notify.info.last_epoch_started
            ))),
        }
    }

    fn current(&self) -> Result<(), Stop> {
        if self.pg.is_past(self.turn) { Err(Stop::Superseded) } else { Ok(()) }
    }

    fn head(&self) -> Head {
        self.pg.head(self.osd)
    }

    fn stuck(&self, error: &StoreError) -> Stop {
        Stop::Again(format!("osd.{}, its store: {error}", self.osd.config.id.0))
    }

    /// Up to where this copy and a replica's went through the same changes.
    fn common_with(&self, notify: &PgNotify) -> Option<Eversion> {
        let log = self.pg.log.borrow();
        match notify {
            _ if notify.info.incomplete => None,
            _ if notify.info.last_update == log.info.last_update => Some(notify.info.last_update),
            _ => log.common_with(notify.info.log_tail, &notify.log),
        }
    }

    /// Sends a request and waits for its answer.
    async fn ask<T: Front>(&self, to: OsdId, request: Message) -> Result<T, Stop> {
        let answer = self.osd.peers.request(to, self.pg.id, request).await;
        self.current()?;
        let answer = answer.ok_or_else(|| Stop::Again(format!("waits for an answer of osd.{}", to.0)))?;
        answer.decode().map_err(|error| Stop::Again(format!("osd.{} answers nonsense: {error}", to.0)))
    }

    /// Sends an order and waits until it is done.
    async fn order(&self, to: OsdId, order: Message) -> Result<(), Stop> {
        let ack: PgAck = self.ask(to, order).await?;
        match ack.result {
            0 => Ok(()),
            errno => Err(Stop::Again(format!("{to} cannot do its part: {}", Errno(errno)))),
        }
    }

    async fn query(&self, replica: OsdId, last_update: Eversion) -> Result<PgNotify, Stop> {
        let query = PgQuery { head: self.head(), last_update, acting: self.pg.acting() };
        let notify: PgNotify = self.ask(replica, Message::of(&query)).await?;
        match notify.result {
            0 if notify.log.iter().any(|entry| !self.pg.contains(&entry.oid)) => {
                Err(Stop::Again(format!("osd.{} answers with objects of another PG", replica.0)))
            }
            0 => Ok(notify),
            errno::EAGAIN => Err(Stop::Again(format!("waits until osd.{} has the same map", replica.0))),
            errno => Err(Stop::Again(format!("osd.{} cannot say what it has: {}", replica.0, Errno(errno)))),
        }
    }

    /// Writes down that this copy is whole in this interval.
    async fn write_started(&self) -> Result<(), Stop> {
        let info = {
            let mut log = self.pg.log.borrow_mut();
            log.info.last_epoch_started = self.pg.interval.get();
            log.info.same_interval_since = self.pg.interval.get();
            log.info.acting = self.pg.acting();
            log.info.clone()
        };
        assert!(!info.incomplete, "pg {}: an incomplete copy must not lead", self.pg.id);
        let commit = self.osd.store.submit(Transaction { info: Some(info), ..self.pg.transaction() });
        let result = commit.await;
        self.current()?;
        if let Err(error) = result {
            self.pg.fail(self.osd, "its store failed", &error);
            return Err(Stop::Superseded);
        }
        Ok(())
    }

    /// Tells a replica that its copy is whole, with the log entries that it lacks.
    async fn activate_replica(&self, copy: &Copy) -> Result<(), Stop> {
        let activate = {
            let log = self.pg.log.borrow();
            let from = copy.common.unwrap_or(log.info.log_tail);
            PgActivate {
                head: self.head(),
                keep_to: copy.common.unwrap_or(Eversion::ZERO),
                info: log.info.clone(),
                log: log.after(from).cloned().collect(),
            }
        };
        self.order(copy.osd, Message::of(&activate)).await
    }

    /// Makes a replica's objects equal to ours.
    async fn repair(&self, copy: &Copy) -> Result<(), Stop> {
        let _turn = self.osd.repairs.acquire(1).await;
        self.current()?;
        let Some(common) = copy.common else {
            self.begin_repair(copy, 0).await?;
            return self.push_all(copy.osd).await;
        };
        let mut differ: BTreeSet<Arc<ObjectId>> = self
            .pg
            .log
            .borrow()
            .after(common)
            .filter(|e| e.op != LogOp::Error)
            .map(|e| Arc::clone(&e.oid))
            .collect();
        let theirs = copy.notify.log.iter().filter(|e| e.version > common && e.op != LogOp::Error);
        differ.extend(theirs.map(|e| Arc::clone(&e.oid)));
        let needs_bytes = if self.may_lead(copy) { self.bytes_of(&differ).await? } else { 0 };
        self.begin_repair(copy, needs_bytes).await?;
        for_each(PUSHES, &differ, |oid| self.push(copy.osd, oid)).await
    }

    /// A member that has all that clients were told of, so that it could lead as well.
    fn may_lead(&self, copy: &Copy) -> bool {
        let is_owner = self.osd.view().is_some_and(|view| self.pg.is_owner(&view, copy.osd));
        copy.is_prefix() && is_owner
    }

    async fn bytes_of(&self, objects: &BTreeSet<Arc<ObjectId>>) -> Result<u64, Stop> {
        let mut bytes = 0u64;
        for oid in objects {
            let meta = self.osd.store.stat(oid).await.map_err(|error| self.stuck(&error))?;
            bytes = bytes.saturating_add(meta.map_or(0, |meta| meta.size.next_multiple_of(BLOCK_BYTES)));
        }
        self.current()?;
        Ok(bytes)
    }

    /// The copy counts as incomplete from here on. One that could lead is asked first whether it has room for the repair:
    /// without, it leads, and what only this copy has is undone. So a full OSD does not keep its PGs from serving.
    async fn begin_repair(&self, copy: &Copy, needs_bytes: u64) -> Result<(), Stop> {
        let reset = copy.common.is_none();
        let order = PgRepair { head: self.head(), reset, needs_bytes };
        let ack: PgAck = self.ask(copy.osd, Message::of(&order)).await?;
        match ack.result {
            0 => Ok(()),
            errno::ENOSPC if needs_bytes > 0 => {
                self.pg.successor.set(Some(copy.osd));
                Err(Stop::Again(format!(
                    "{} is full: it must lead, without what only this copy has",
                    copy.osd
                )))
            }
            errno => Err(Stop::Again(format!("{} cannot be repaired: {}", copy.osd, Errno(errno)))),
        }
    }

    async fn push_all(&self, replica: OsdId) -> Result<(), Stop> {
        let mut from: Option<ObjectId> = None;
        loop {
            let bits = self.pg.bits.get();
            let page = self.osd.store.list(self.pg.id, bits, from.as_ref(), LIST_PAGE + 1).await;
            let page = page.map_err(|error| self.stuck(&error))?;
            self.current()?;
            let objects: Vec<_> = page.iter().take(LIST_PAGE).cloned().map(Arc::new).collect();
            for_each(PUSHES, &objects, |oid| self.push(replica, oid)).await?;
            match page.into_iter().nth(LIST_PAGE) {
                Some(next) => from = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Copies one object, or its absence.
    async fn push(&self, replica: OsdId, oid: &Arc<ObjectId>) -> Result<(), Stop> {
        let meta = self.osd.store.stat(oid).await.map_err(|error| self.stuck(&error))?;
        match meta {
            None => self.push_steps(replica, oid, [Step::Remove]).await?,
            Some(meta) => {
                self.push_data(replica, oid, &meta).await?;
                if meta.has_omap {
                    self.push_omap(replica, oid).await?;
                }
            }
        }
        self.osd.metrics.borrow_mut().objects_pushed.inc();
        Ok(())
    }

    async fn push_steps(
        &self,
        replica: OsdId,
        oid: &Arc<ObjectId>,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<(), Stop> {
        self.current()?;
        let mut txn = self.pg.transaction();
        txn.changes.push(ObjectChange::new(Arc::clone(oid), steps));
        let txn = Sealed::from(txn);
        let (data, crc) = txn.data();
        self.order(replica, PushObject::message(PushObject::front(&self.head(), &txn), data, crc)).await
    }

    /// The first piece is read before the replica's old copy goes: a block that is bad here may be good there.
    async fn push_data(&self, replica: OsdId, oid: &Arc<ObjectId>, meta: &ObjectMeta) -> Result<(), Stop> {
        let (mut off, mut steps) = (0, whole(meta));
        loop {
            let (data, lost_bytes) = self.piece(oid, off, meta.size).await?;
            let (begin, end) = (off, off + data.len() as u64);
            off = end + lost_bytes;
            steps.extend((!data.is_empty()).then_some(Step::Write { off: begin, data, crc: None }));
            steps.extend((lost_bytes > 0).then_some(Step::Lose { off: end, len: lost_bytes }));
            self.push_steps(replica, oid, std::mem::take(&mut steps)).await?;
            if off >= meta.size {
                return Ok(());
            }
        }
    }

    async fn push_omap(&self, replica: OsdId, oid: &Arc<ObjectId>) -> Result<(), Stop> {
        let store = &self.osd.store;
        let header = store.omap_header(oid).await.map_err(|error| self.stuck(&error))?;
        self.push_steps(replica, oid, [Step::SetOmapHeader { header }]).await?;
        let mut range = OmapRange::all(OMAP_PAGE_BYTES);
        loop {
            let page = store.omap_page(oid, &range).await.map_err(|error| self.stuck(&error))?;
            range = range.after(&page);
            if !page.entries.is_empty() {
                self.push_steps(replica, oid, [Step::SetOmap { entries: page.entries }]).await?;
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// The next bytes of an object, and how many after them no copy can give: those are an error in the new copy, too. One
    /// bad block must not keep all else in the PG from being served. It is lost only if all members have said so; while one
    /// does not answer it is asked again.
    async fn piece(&self, oid: &ObjectId, off: u64, size: u64) -> Result<(Payload, u64), Stop> {
        let (mut len, mut lost_bytes) = ((size - off).min(PUSH_BYTES), 0);
        while len > 0 {
            match heal::read_for_copy(self.osd, oid, off, len).await {
                Ok(data) => return Ok((data, lost_bytes)),
                Err(unhealed) => {
                    let lost = unhealed.error.lost_block().filter(|_| unhealed.is_lost);
                    let Some((_, at)) = lost else { return Err(self.stuck(&unhealed.error)) };
                    lost_bytes = size.saturating_sub(at).min(BLOCK_BYTES);
                    len = at.saturating_sub(off);
                }
            }
        }
        if lost_bytes > 0 {
            tracing::error!("pg {}: object {oid}, offset {off}: the block is copied as lost", self.pg.id);
        }
        Ok((Payload::new(), lost_bytes))
    }
}

/// The steps that make an object anew, without its data and its omap.
fn whole(meta: &ObjectMeta) -> Vec<Step> {
    let ObjectMeta { size, version, user_version, mtime, .. } = *meta;
    let mut steps =
        vec![Step::Remove, Step::Truncate { size }, Step::SetMeta { version, user_version, mtime }];
    let xattrs = meta.xattrs.iter();
    steps.extend(xattrs.map(|(name, value)| Step::SetXattr { name: name.into(), value: value.clone() }));
    steps
}
