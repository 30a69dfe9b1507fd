//! The replica's side: log entries are prepared concurrently, applied in the order of their versions, and acknowledged when they
//! are durable.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use carmine_messenger::Message;
use carmine_peering::{AttemptId, Event};
use carmine_pgtypes::{Sealed, Transaction};
use carmine_reactor::{Group, probes};
use carmine_store::{Prepared, StoreError};
use carmine_types::{Errno, Eversion, ObjectId, errno};

use super::heal::IfUnfound;
use crate::messages::{Head, RepAck, RepOp};
use crate::pg::{Pg, family};
use crate::shard::OsdShard;

/// The work that a PG does for its primary.
#[derive(Default)]
pub(crate) struct Replica {
    /// Entries not yet applied, in the order of versions.
    queue: RefCell<VecDeque<Arrived>>,
    /// Where acknowledgements go: the connection of the last message.
    back: RefCell<Option<ReplyPath>>,
}

/// Sends an answer to the origin of a request, from the shard that executes it.
pub(crate) type ReplyPath = Rc<dyn Fn(Message)>;

struct Arrived {
    txn: Rc<Sealed>,
    version: Eversion,
    state: EntryStage,
}

enum EntryStage {
    /// Waits for an earlier entry of the same object.
    Waiting,
    /// Its steps are being prepared.
    Preparing,
    /// Its steps are prepared: the data loaded for them is held until the entry is submitted.
    Ready(#[allow(dead_code)] Prepared),
}

impl Replica {
    /// Begins a new generation: entries not yet applied are dropped.
    pub(in crate::pg) fn start_over(&self) {
        self.queue.borrow_mut().clear();
        self.back.borrow_mut().take();
    }

    fn last(&self) -> Option<Eversion> {
        self.queue.borrow().back().map(|arrived| arrived.version)
    }

    fn has_object(&self, oid: &ObjectId) -> bool {
        self.queue.borrow().iter().any(|arrived| arrived.changes(oid))
    }

    /// The oldest entry of an object, if it is still waiting.
    fn waiting_of(&self, oid: &ObjectId) -> Option<Eversion> {
        let queue = self.queue.borrow();
        let first = queue.iter().find(|arrived| arrived.changes(oid))?;
        matches!(first.state, EntryStage::Waiting).then_some(first.version)
    }

    fn set_ready(&self, version: Eversion, prepared: Prepared) {
        if let Some(arrived) = self.queue.borrow_mut().iter_mut().find(|a| a.version == version) {
            arrived.state = EntryStage::Ready(prepared);
        }
    }
}

impl Arrived {
    fn changes(&self, oid: &ObjectId) -> bool {
        self.txn.log.iter().any(|entry| *entry.oid == *oid)
    }
}

impl Pg {
    /// Handles a write of the primary (Ceph: `do_repop`).
    pub(crate) fn on_rep_op(self: &Rc<Self>, osd: &Rc<OsdShard>, op: RepOp, reply: ReplyPath) {
        let RepOp { head, txn } = op;
        if !self.peer.follows(&head) {
            return self.refuse_rep_op(head, errno::ESTALE, &reply);
        }
        *self.copies.replica.back.borrow_mut() = Some(Rc::clone(&reply));
        let version = txn.version();
        probes::replica_received(self.id.pgid.pool, self.id.pgid.ps, version.version);
        let last = self.copies.replica.last().unwrap_or_else(|| self.peer.last_update());
        if version <= last {
            // A resend. If it is durable, its acknowledgement was lost; otherwise that is still to come.
            if version.version <= self.copies.backend.local() {
                self.acknowledge(osd);
            }
            return;
        }
        if version.version != last.version + 1 {
            return self.refuse_rep_op(head, errno::EAGAIN, &reply);
        }
        if !self.is_write(&txn) {
            return self.refuse_rep_op(head, errno::EINVAL, &reply);
        }
        let is_next = self.copies.replica.last().is_none();
        if is_next && self.objects(osd).is_prepared(&txn.changes) {
            self.apply_or_stop(osd, txn);
            return;
        }
        let is_first = txn.objects().all(|oid| !self.copies.replica.has_object(oid));
        self.copies.replica.queue.borrow_mut().push_back(Arrived {
            txn: Rc::new(txn),
            version,
            state: EntryStage::Waiting,
        });
        if is_first {
            self.prepare_entry(osd, version);
        }
        self.apply_ready(osd);
    }

    /// Whether the transaction is a write: one log entry, and changes of its object.
    fn is_write(&self, txn: &Transaction) -> bool {
        let [entry] = txn.log.as_slice() else { return false };
        txn.pg == self.id
            && self.peer.contains(&entry.oid)
            // The object itself, its clones, and the snapshot mapper.
            && txn.objects().all(|oid| family::is_same_head(&entry.oid, oid) || *oid == family::mapper::oid(self.id))
            && txn.info.is_none()
            && txn.log_rewind_to.is_none()
            && !txn.forget_pg
            && txn.split.is_empty()
            && txn.merge.is_empty()
    }

    /// Loads what an entry needs; at once, if it is all in memory.
    fn prepare_entry(self: &Rc<Self>, osd: &Rc<OsdShard>, version: Eversion) {
        let txn = {
            let mut queue = self.copies.replica.queue.borrow_mut();
            let Some(arrived) = queue.iter_mut().find(|a| a.version == version) else { return };
            arrived.state = EntryStage::Preparing;
            Rc::clone(&arrived.txn)
        };
        let (pg, own, generation) = (Rc::clone(self), Rc::clone(osd), self.peer.generation());
        let preparing = || async move {
            let prepared = pg.objects(&own).prepare(&txn.changes, IfUnfound::Fail).await;
            match prepared {
                _ if pg.peer.is_past(generation) => {}
                Ok(prepared) => pg.copies.replica.set_ready(version, prepared),
                Err(error) if error.lost_block().is_some() => pg.request_repair(&own, &error),
                Err(error) => pg.fail(&own, "a write of its primary cannot be applied", &error),
            }
        };
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn_polled(Group::Replication, "replica-prepare", preparing, move || {
            if !pg.peer.is_past(generation) {
                pg.apply_ready(&own);
            }
        });
    }

    /// Submits the oldest entries that are ready.
    fn apply_ready(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        loop {
            let is_ready = |arrived: &mut Arrived| matches!(arrived.state, EntryStage::Ready(_));
            let ready = self.copies.replica.queue.borrow_mut().pop_front_if(is_ready);
            let Some(arrived) = ready else { return };
            let oid = arrived.txn.log.last().map(|entry| Arc::clone(&entry.oid));
            // The prepared data is held until the entry is applied.
            let Arrived { txn, state: _prepared, .. } = arrived;
            if self.apply_or_stop(osd, Rc::unwrap_or_clone(txn)).is_none() {
                return;
            }
            if let Some(next) = oid.and_then(|oid| self.copies.replica.waiting_of(&oid)) {
                self.prepare_entry(osd, next);
            }
        }
    }

    /// Applies a write; `None` if this copy cannot continue.
    fn apply_or_stop(self: &Rc<Self>, osd: &Rc<OsdShard>, txn: Sealed) -> Option<()> {
        match self.apply(osd, txn) {
            Ok(()) => return Some(()),
            // Removing objects frees space: recovery from this must not need a restart.
            Err(error @ StoreError::NoSpace { .. }) => self.request_repair(osd, &error),
            Err(error) => self.fail(osd, "a write of its primary cannot be applied", &error),
        }
        None
    }

    fn apply(self: &Rc<Self>, osd: &Rc<OsdShard>, mut txn: Sealed) -> Result<(), StoreError> {
        let (version, entries, trim_to) = (txn.version(), txn.log.clone(), txn.log_trim_to);
        txn.set_bits(self.peer.bits());
        let commit = self.objects(osd).submit(txn);
        let ready = commit.peek();
        if let Some(Err(error)) = ready {
            return Err(error);
        }
        for entry in entries {
            self.peer.note_entry(entry, trim_to);
        }
        self.copies.backend.note_replica_op(version.version);
        osd.metrics.borrow_mut().replica_ops += 1;
        match ready {
            Some(_) => self.replica_commit(osd, version.version),
            None => self.copies.commits.push(self.peer.generation(), version, commit),
        }
        Ok(())
    }

    /// Handles a write that cannot be applied although the store works: it changes a part of a block that is lost here and on the
    /// primary, which has changed its own already, or there is no space. The primary makes the copies equal again.
    fn request_repair(self: &Rc<Self>, osd: &Rc<OsdShard>, error: &StoreError) {
        tracing::warn!("pg {}: this copy has to be made equal again: {error}", self.id);
        self.on(osd, Event::CannotApply(Errno(error.errno())));
    }

    /// Tells the primary, if this PG has one, that this copy cannot continue: the primary must not continue without it.
    pub(in crate::pg) fn tell_primary(&self, osd: &OsdShard, errno: i32) {
        let head = self.replica_head(osd);
        let back = self.copies.replica.back.borrow_mut().take();
        if let Some(back) = back {
            self.refuse_rep_op(head, errno, &back);
        }
    }

    fn replica_head(&self, osd: &OsdShard) -> Head {
        let AttemptId { interval, attempt } = self.peer.machine().following().unwrap_or_default();
        Head { pg: self.id, epoch: osd.epoch(), interval, attempt }
    }

    /// Notes, on a replica, that everything up to this version number is durable here.
    pub(in crate::pg) fn replica_commit(&self, osd: &OsdShard, version: u64) {
        probes::replica_durable(self.id.pgid.pool, self.id.pgid.ps, version);
        self.copies.backend.note_durable(version);
        self.acknowledge(osd);
    }

    fn acknowledge(&self, osd: &OsdShard) {
        let head = self.replica_head(osd);
        let version = Eversion::new(0, self.copies.backend.local());
        let back = self.copies.replica.back.borrow().clone();
        if let Some(back) = back {
            back(Message::encode(&RepAck { head, version, result: 0 }));
        }
    }

    pub(crate) fn refuse_rep_op(&self, head: Head, result: i32, reply: &ReplyPath) {
        tracing::debug!("pg {}: a write of its primary is refused: {}", self.id, Errno(result));
        let version = self.peer.last_update();
        reply(Message::encode(&RepAck { head, version, result }));
    }
}
