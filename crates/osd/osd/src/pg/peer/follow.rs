//! The replica's side of an activation: it describes its copy, accepts objects, and adopts the primary's log.
//!
//! Before the first object changes, the replica writes down that its copy is incomplete. The activation clears that mark. If the
//! primary pushes objects while clients write, its last order clears it. A later query cancels all earlier orders. The log in
//! memory changes in the step that submits the change to the store; other OSDs hear of the change once it is durable.

use std::rc::Rc;
use std::sync::Arc;

use carmine_messenger::Message;
use carmine_peering::{Event, Order, Then};
use carmine_pgtypes::{ObjectChange, PgInfo, Promised, Step, Transaction};
use carmine_store::{BLOCK_BYTES, Commit, StoreError};
use carmine_types::{Epoch, Eversion, errno, is_mutated};

use super::log::{PgLog, is_run};
use crate::error::{OpError, refuse_if};
use crate::messages::{Head, PgAck, PgActivate, PgComplete, PgNotify, PgQuery, PgRepair, PushObject};
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

/// Room that a repair leaves free: other PGs are repaired at the same time, and each reactor holds some space for itself.
const SPARE_BYTES: u64 = 4 << 20;

impl Pg {
    /// Answers a primary that begins an interval. The answer says only what is durable.
    pub(crate) async fn answer_query(self: &Rc<Self>, osd: &Rc<OsdShard>, query: PgQuery) -> Message {
        let (head, last_update) = (query.head, query.last_update);
        let result = async {
            let (generation, _) = self.take_order(osd, head, Order::Query { acting: query.acting })?;
            own_store(osd).sync().await?;
            self.carried_out(osd, generation, false)
        };
        if let Err(error) = result.await {
            return no_answer(head, error.report());
        }
        let lease = self.promise_left(osd);
        let log = self.peer.log.borrow();
        let is_same = log.info().last_update == last_update && !log.info().incomplete;
        let entries = if is_same { Vec::new() } else { log.after(Eversion::ZERO).cloned().collect() };
        // A stray has not written down what it learned from later maps.
        let info = PgInfo { history: self.peer.history(), ..log.info().clone() };
        Message::encode(&PgNotify { head, result: 0, info, lease, log: entries })
    }

    /// Asks the state machine whether to carry out an order; returns the generation in which it is valid, and the info to write first.
    pub(in crate::pg) fn take_order(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        head: Head,
        order: Order,
    ) -> Result<(u64, Option<PgInfo>), OpError> {
        match self.on(osd, Event::Ordered { attempt: head.into(), epoch: head.epoch, order }) {
            Then::CarryOut { generation, info } => Ok((generation, info.map(|info| *info))),
            Then::Refuse(errno) => Err(errno.into()),
            Then::Nothing | Then::Answer | Then::Push | Then::PushUndone => Err(OpError::new(errno::EAGAIN)),
        }
    }

    /// An order was carried out durably. It is void if a newer one came meanwhile.
    pub(in crate::pg) fn carried_out(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        generation: u64,
        activates: bool,
    ) -> Result<(), OpError> {
        match self.on(osd, Event::CarriedOut { generation, activates }) {
            Then::Answer => Ok(()),
            _ => Err(OpError::new(errno::EAGAIN)),
        }
    }

    /// The answer to an order.
    pub(in crate::pg) fn ack(head: Head, result: Result<(), OpError>) -> Message {
        Message::encode(&PgAck { head, result: result.err().map_or(0, |error| error.report()) })
    }

    /// The primary will change objects of which this copy's log does not tell.
    pub(crate) async fn answer_repair(self: &Rc<Self>, osd: &Rc<OsdShard>, repair: PgRepair) -> Message {
        let room_bytes = own_store(osd).statfs().free.saturating_sub(SPARE_BYTES);
        let PgRepair { head, complete_to, last_backfill, needs_bytes } = repair;
        let has_room = needs_bytes == 0 || needs_bytes <= room_bytes;
        let result = async {
            let order = Order::Repair { has_room, complete_to, last_backfill };
            let (generation, info) = self.take_order(osd, head, order)?;
            if let Some(info) = info {
                let txn = Transaction { info: Some(info.clone().into()), ..self.peer.transaction() };
                self.carry_out(osd, txn, generation, |log| log.change_info(|old| *old = info)).await?;
            }
            self.carried_out(osd, generation, false)
        };
        Pg::ack(head, result.await)
    }

    /// A piece of an object.
    pub(crate) async fn answer_push(self: &Rc<Self>, osd: &Rc<OsdShard>, push: PushObject) -> Message {
        let PushObject { head, txn } = push;
        let result = async {
            let (generation, _) = self.take_order(osd, head, Order::Push)?;
            let is_push = txn.pg == self.id
                && txn.log.is_empty()
                && txn.info.is_none()
                && txn.log_rewind_to.is_none()
                && txn.log_trim_to.is_none()
                && !txn.forget_pg
                && txn.split.is_empty()
                && txn.merge.is_empty()
                && txn.objects().all(|oid| self.peer.contains(oid));
            refuse_if(!is_push, errno::EINVAL)?;
            let txn = Transaction { bits: self.peer.bits.get(), ..txn.into_txn() };
            self.carry_out(osd, txn, generation, |_| {}).await?;
            self.carried_out(osd, generation, false)
        };
        Pg::ack(head, result.await)
    }

    /// The primary's log is this copy's log from now on.
    pub(crate) async fn answer_activate(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        activate: PgActivate,
    ) -> Message {
        let PgActivate { head, lease_ms, .. } = activate;
        let last_epoch_started = activate.info.last_epoch_started;
        let result = async {
            let (generation, _) = self.take_order(osd, head, Order::Activate { last_epoch_started })?;
            refuse_if(!self.fits(&activate), errno::EINVAL)?;
            let txn = activate.transaction(self.peer.transaction(), &self.peer.log.borrow());
            self.carry_out(osd, txn, generation, |log| activate.replace(log)).await?;
            self.carried_out(osd, generation, true)?;
            self.promise(osd, head.interval, lease_ms);
            Ok(())
        };
        Pg::ack(head, result.await)
    }

    /// The copy has all that the primary has.
    pub(crate) async fn answer_complete(self: &Rc<Self>, osd: &Rc<OsdShard>, order: PgComplete) -> Message {
        let result = async {
            let (generation, _) = self.take_order(osd, order.head, Order::Complete)?;
            let complete = |info: &mut PgInfo| {
                (info.incomplete, info.complete_to, info.last_backfill) = (false, Eversion::ZERO, None);
            };
            self.write_down(osd, complete).await?;
            self.recovery_ends();
            self.carried_out(osd, generation, false)
        };
        Pg::ack(order.head, result.await)
    }

    /// Whether all objects of an activation are this PG's, and its entries continue the part of this log that is kept.
    fn fits(&self, activate: &PgActivate) -> bool {
        let logged = activate.log.iter().map(|entry| &*entry.oid);
        logged.chain(&activate.info.unfound).all(|oid| self.peer.contains(oid)) && self.continues(activate)
    }

    fn continues(&self, activate: &PgActivate) -> bool {
        let PgActivate { keep_to, info, log: entries, .. } = activate;
        let log = self.peer.log.borrow();
        let (keeps_some, tail) = (keep_to > &Eversion::ZERO, info.log_tail);
        let is_same = entries.is_empty() && info.last_update == log.info().last_update;
        let end = if keeps_some { log.end_of(*keep_to) } else { tail };
        // The primary's tail is the end of what is kept, or an entry before that.
        let has_tail = tail <= log.info().log_tail || (tail <= end && log.end_of(tail) == tail);
        let is_log = is_run(end, entries, info.last_update) && (!keeps_some || has_tail);
        (is_same || is_log) && info.complete_to <= info.last_update
    }

    /// Prepares a transaction, submits it unless `generation` is over, and waits until it is durable. `note` changes the log in
    /// memory as the transaction does in the store.
    async fn carry_out(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        txn: Transaction,
        generation: u64,
        note: impl FnOnce(&mut PgLog),
    ) -> Result<(), OpError> {
        let submitted = match self.submit_repair(osd, &txn, generation).await {
            // The old data of these objects may go: the primary is copying them anew.
            Err(error) if error.lost_block().is_some() || matches!(error, StoreError::NoSpace { .. }) => {
                self.clear_way(osd, &txn, &error, generation).await?;
                self.submit_repair(osd, &txn, generation).await
            }
            submitted => submitted,
        };
        let commit = submitted?.ok_or(OpError::new(errno::EAGAIN))?;
        note(&mut self.peer.log.borrow_mut());
        let result = commit.await;
        if let Err(error) = &result {
            self.fail(osd, "a step of its repair failed", error);
        }
        Ok(result?)
    }

    /// Submits a transaction, unless `generation` is over, or it would change a copy that is no longer marked as incomplete. After
    /// an error nothing has changed.
    async fn submit_repair(
        &self,
        osd: &OsdShard,
        txn: &Transaction,
        generation: u64,
    ) -> Result<Option<Commit>, StoreError> {
        let _prepared = own_store(osd).prepare(&txn.changes).await?;
        let is_marked = txn.changes.is_empty() || self.peer.log.borrow().info().incomplete;
        if self.peer.is_past(generation) || !(is_marked || is_mutated("unmarked_repair")) {
            return Ok(None);
        }
        assert!(is_marked, "pg {}: a copy is repaired that counts as whole", self.id);
        let commit = own_store(osd).submit(txn.clone());
        match commit.peek() {
            Some(Err(error)) => Err(error),
            _ => Ok(Some(commit)),
        }
    }

    /// Drops what keeps a piece of an object from being applied: the block that it would change a part of and that cannot be
    /// read; or, for want of room, all of an object that begins anew. This copy counts as incomplete until its repair ends, so
    /// it may stop in between.
    async fn clear_way(
        &self,
        osd: &OsdShard,
        txn: &Transaction,
        error: &StoreError,
        generation: u64,
    ) -> Result<(), StoreError> {
        let lost = error.lost_block();
        let drop = |change: &ObjectChange| match lost {
            Some((oid, off)) if *oid == *change.oid => Some(Step::Zero { off, len: BLOCK_BYTES }),
            None if is_first(&change.steps) => Some(Step::Remove),
            _ => None,
        };
        let changes = txn.changes.iter().filter_map(|change| Some((change, drop(change)?)));
        let changes = changes.map(|(change, step)| ObjectChange::new(Arc::clone(&change.oid), [step]));
        let first = Transaction { changes: changes.collect(), ..self.peer.transaction() };
        match self.submit_repair(osd, &first, generation).await? {
            Some(commit) => commit.await,
            None => Ok(()),
        }
    }
}

/// How a replica adopts the primary's log.
impl PgActivate {
    fn is_other(&self, log: &PgLog) -> bool {
        log.info().last_update != self.info.last_update || !self.log.is_empty()
    }

    /// The PG's info with this log. Of its own log it keeps nothing older than the primary's tail, or else the log could become twice
    /// as long as it may be.
    fn info_after(&self, log: &PgLog) -> PgInfo {
        let own = log.info().log_tail;
        let log_tail = match self.is_other(log) {
            true if self.keep_to == Eversion::ZERO => self.info.log_tail,
            true => self.info.log_tail.max(own),
            false => own,
        };
        let (holder, interval) =
            (self.info.acting.primary().unwrap_or_default(), self.info.last_epoch_started);
        let promised = Promised { holder, interval, length_ms: self.lease_ms };
        PgInfo { pg: self.head.pg, log_tail, made: log.info().made, promised, ..self.info.clone() }
    }

    /// `txn` is an empty one of the PG.
    fn transaction(&self, mut txn: Transaction, log: &PgLog) -> Transaction {
        let info = self.info_after(log);
        if self.is_other(log) {
            txn.log = self.log.iter().cloned().collect();
            txn.log_rewind_to = Some(self.keep_to).filter(|_| !is_mutated("skip_rewind"));
            txn.log_trim_to = Some(info.log_tail).filter(|tail| *tail > log.info().log_tail);
        }
        txn.info = Some(info.into());
        txn
    }

    fn replace(self, log: &mut PgLog) {
        let info = self.info_after(log);
        match self.is_other(log) {
            true => log.replace(self.keep_to, self.log, info),
            false => log.change_info(|old| *old = info),
        }
    }
}

/// Answer to a query for a PG of which this OSD has no copy at this map.
pub(crate) fn has_nothing(head: Head, epoch: Epoch) -> Message {
    let info = PgInfo { pg: head.pg, made: epoch, ..PgInfo::default() };
    Message::encode(&PgNotify { head, result: 0, info, lease: None, log: Vec::new() })
}

/// Answer to a query of a map that has not arrived yet.
pub(crate) fn not_ready(head: Head) -> Message {
    no_answer(head, errno::EAGAIN)
}

fn no_answer(head: Head, result: i32) -> Message {
    Message::encode(&PgNotify { head, result, info: PgInfo::default(), lease: None, log: Vec::new() })
}

/// A piece that begins an object anew, or removes it: it can be applied without what the copy has of the object.
fn is_first(steps: &[Step]) -> bool {
    matches!(steps.first(), Some(Step::ClearOmap | Step::Remove))
}
