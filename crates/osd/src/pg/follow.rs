//! The replica's side of an activation: says what it has, takes objects, and takes over the primary's log.
//!
//! Before the first object is changed the replica writes down that its copy is not whole (`last_epoch_started` 0); only
//! the activation at the end says otherwise. A later query takes back everything that was ordered before it.

use std::rc::Rc;

use carmine_messenger::Message;
use carmine_reactor::Payload;
use carmine_store::{StoreError, Transaction, TxnOp};
use carmine_types::{Epoch, Eversion, SNAP_ATTRS, errno};
use carmine_wire::private::rep::{Head, PgAck, PgActivate, PgNotify, PgQuery, PgRepair, PushObject};
use smallvec::SmallVec;

use super::{Pg, Phase, log};
use crate::shard::OsdShard;

/// Objects removed in one transaction when a copy is emptied.
const REMOVE_PAGE: usize = 256;

impl Pg {
    /// A primary begins an interval.
    pub(crate) async fn answer_query(self: &Rc<Self>, osd: &Rc<OsdShard>, query: PgQuery) -> Message {
        let head = query.head;
        // Only with the same members as the primary's is it the same interval; until then it asks again.
        let follows = matches!(*self.phase.borrow(), Phase::Replica(_));
        // A primary that died, or was called dead, had not seen all of today's members up.
        let is_old = head.interval < self.replica.interval.get().max(self.members_since());
        if osd.epoch() < head.epoch || self.acting() != query.acting || !follows || is_old {
            return not_ready(head);
        }
        self.next_turn();
        self.replica.begin(head.interval);
        self.set_phase(Phase::Replica(false));
        let turn = self.turn.get();
        // What is told must last.
        if let Err(error) = osd.store.sync().await {
            return no_answer(head, error.errno());
        }
        if self.is_past(turn) {
            return not_ready(head);
        }
        let log = self.log.borrow();
        self.local.set(log.info.last_update.version);
        let same = log.info.last_update == query.last_update;
        let entries = if same { Vec::new() } else { log.after(Eversion::ZERO).map(log::to_wire).collect() };
        Message::of(&PgNotify {
            head,
            result: 0,
            last_update: log.info.last_update,
            log_tail: log.info.log_tail,
            last_epoch_started: log.info.last_epoch_started,
            log: entries,
        })
    }

    /// The turn that an order belongs to; EAGAIN unless it is of the interval of the last query.
    fn check(&self, head: Head) -> Result<u64, i32> {
        let valid = *self.phase.borrow() == Phase::Replica(false)
            && head.interval != Epoch(0)
            && head.interval == self.replica.interval.get();
        if valid { Ok(self.turn.get()) } else { Err(errno::EAGAIN) }
    }

    /// The primary will change objects behind this copy's log.
    pub(crate) async fn answer_repair(self: &Rc<Self>, osd: &Rc<OsdShard>, repair: PgRepair) -> Message {
        let result = async {
            let turn = self.check(repair.head)?;
            let info = {
                let mut log = self.log.borrow_mut();
                log.info.last_epoch_started = Epoch(0);
                log.info.clone()
            };
            let txn = Transaction { info: Some(info), ..Transaction::new(self.id) };
            self.carry_out(osd, txn, turn).await?;
            if repair.reset { self.remove_all(osd, turn).await } else { Ok(()) }
        };
        answer(repair.head, result.await)
    }

    async fn remove_all(&self, osd: &Rc<OsdShard>, turn: u64) -> Result<(), i32> {
        loop {
            let page = osd.store.list(self.id, self.bits.get(), None, REMOVE_PAGE).await;
            let page = page.map_err(|e| e.errno())?;
            if page.is_empty() {
                return Ok(());
            }
            let ops = page.into_iter().map(|oid| TxnOp::Remove { oid }).collect();
            self.carry_out(osd, Transaction { ops, ..Transaction::new(self.id) }, turn).await?;
        }
    }

    /// A piece of an object.
    pub(crate) async fn answer_push(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        push: PushObject,
        data: Payload,
        crc: Option<u32>,
    ) -> Message {
        let head = push.head;
        let result = async {
            let turn = self.check(head)?;
            let ops = push_ops(push, data, crc);
            self.carry_out(osd, Transaction { ops, ..Transaction::new(self.id) }, turn).await
        };
        answer(head, result.await)
    }

    /// The copy is whole: the primary's log is this copy's log from now on.
    pub(crate) async fn answer_activate(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        activate: PgActivate,
    ) -> Message {
        let (head, last) = (activate.head, activate.last_update.version);
        let result = async {
            let turn = self.check(head)?;
            let txn = self.take_log(activate);
            self.carry_out(osd, txn, turn).await?;
            if self.is_past(turn) {
                return Err(errno::EAGAIN);
            }
            self.local.set(last);
            self.set_phase(Phase::Replica(true));
            Ok(())
        };
        answer(head, result.await)
    }

    fn take_log(&self, activate: PgActivate) -> Transaction {
        let mut log = self.log.borrow_mut();
        let unchanged = log.info.last_update == activate.last_update && activate.log.is_empty();
        let mut txn = Transaction::new(self.id);
        if !unchanged {
            log.rewind(activate.keep_to);
            if activate.keep_to == Eversion::ZERO {
                log.info.log_tail = activate.log_tail;
            }
            for entry in activate.log {
                let entry = log::from_wire(entry);
                txn.log.push(entry.clone());
                log.push(entry);
            }
            log.info.last_update = activate.last_update;
            txn.log_rewind_to = Some(activate.keep_to);
        }
        log.info.last_epoch_started = activate.last_epoch_started;
        log.info.same_interval_since = activate.head.interval;
        log.info.acting = activate.acting;
        txn.info = Some(log.info.clone());
        txn
    }

    /// Prepares a transaction, submits it unless `turn` is over, and waits until it is durable.
    async fn carry_out(&self, osd: &OsdShard, txn: Transaction, turn: u64) -> Result<(), i32> {
        let mut prepared = osd.store.prepare(&txn.ops).await;
        if prepared.as_ref().is_err_and(|error| error.lost_block().is_some()) {
            // An object that is removed and written anew: the block is not needed once the old object is gone.
            if self.is_past(turn) {
                return Err(errno::EAGAIN);
            }
            self.remove_first(osd, &txn).await.map_err(|e| e.errno())?;
            prepared = osd.store.prepare(&txn.ops).await;
        }
        let prepared = prepared.map_err(|e| e.errno())?;
        if self.is_past(turn) {
            return Err(errno::EAGAIN);
        }
        let commit = osd.store.submit(txn);
        drop(prepared);
        commit.await.map_err(|error| {
            tracing::error!("pg {}: a step of its repair failed: {error}", self.id);
            error.errno()
        })
    }

    /// What a transaction removes, alone. This copy counts as not whole until its repair ends, so it may stop in between.
    async fn remove_first(&self, osd: &OsdShard, txn: &Transaction) -> Result<(), StoreError> {
        let removed = txn.ops.iter().filter(|op| matches!(op, TxnOp::Remove { .. })).cloned();
        let first = Transaction { ops: removed.collect(), ..Transaction::new(self.id) };
        let prepared = osd.store.prepare(&first.ops).await?;
        let commit = osd.store.submit(first);
        drop(prepared);
        commit.await
    }
}

/// Answer to a query that comes before the map that it belongs to.
pub(crate) fn not_ready(head: Head) -> Message {
    no_answer(head, errno::EAGAIN)
}

fn no_answer(head: Head, result: i32) -> Message {
    let (last_update, log_tail) = (Eversion::ZERO, Eversion::ZERO);
    let last_epoch_started = Epoch(0);
    Message::of(&PgNotify { head, result, last_update, log_tail, last_epoch_started, log: Vec::new() })
}

fn push_ops(push: PushObject, data: Payload, crc: Option<u32>) -> SmallVec<[TxnOp; 2]> {
    let PushObject { oid, exists, size, off, version, user_version, mtime, .. } = push;
    let mut ops: SmallVec<[TxnOp; 2]> = SmallVec::new();
    if off == 0 && oid.snap != SNAP_ATTRS {
        ops.push(TxnOp::Remove { oid: oid.attrs() }); // they come next, if there are any
    }
    if !exists {
        ops.push(TxnOp::Remove { oid });
        return ops;
    }
    if off == 0 {
        ops.push(TxnOp::Remove { oid: oid.clone() });
        ops.push(TxnOp::Truncate { oid: oid.clone(), size });
    }
    if !data.is_empty() {
        ops.push(TxnOp::Write { oid: oid.clone(), off, data, crc });
    }
    ops.push(TxnOp::SetMeta { oid, version, user_version, mtime });
    ops
}

fn answer(head: Head, result: Result<(), i32>) -> Message {
    Message::of(&PgAck { head, result: result.err().unwrap_or(0) })
}
