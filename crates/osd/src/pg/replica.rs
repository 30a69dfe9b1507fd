//! The replica's side: applies the primary's writes in the order of the log and acknowledges what is durable.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_reactor::{Group, Payload};
use carmine_store::{Commit, Transaction, TxnOp};
use carmine_types::{Epoch, Eversion, errno};
use carmine_wire::private::rep::{RepAck, RepOp, RepTxn};
use smallvec::{SmallVec, smallvec};

use super::{Pg, log};
use crate::shard::OsdShard;

/// Pause while the write that is being applied gets through.
const FENCE_POLL: Duration = Duration::from_micros(100);

/// What a PG does for its primary.
#[derive(Default)]
pub(crate) struct Replica {
    /// The primary's interval, from its last query; nothing of another interval is taken.
    pub interval: Cell<Epoch>,
    /// Arrived and not yet applied.
    queue: RefCell<VecDeque<Arrived>>,
    applying: Cell<bool>,
    /// Applied and not yet durable, in the order of the log.
    commits: RefCell<VecDeque<(RepAck, Commit, ReplyPath)>>,
    acking: Cell<bool>,
}

/// Sends an answer back to where a request came from, from whatever shard executes it.
pub(crate) type ReplyPath = Rc<dyn Fn(Message)>;

struct Arrived {
    op: RepOp,
    data: Payload,
    crc: Option<u32>,
    reply: ReplyPath,
}

impl Pg {
    /// A write of the primary.
    pub(crate) fn replicate(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        op: RepOp,
        data: Payload,
        crc: Option<u32>,
        reply: ReplyPath,
    ) {
        if op.head.interval != self.replica.interval.get() {
            tracing::debug!("pg {}: write of interval {} refused", self.id, op.head.interval);
            let (head, version) = (op.head, op.entry.version);
            reply(Message::of(&RepAck { head, version, result: errno::EAGAIN }));
            return;
        }
        self.replica.queue.borrow_mut().push_back(Arrived { op, data, crc, reply });
        if !self.replica.applying.replace(true) {
            let (osd, pg) = (Rc::clone(osd), Rc::clone(self));
            let shard = osd.shard.clone();
            shard.spawn(Group::Replication, "replica-apply", async move {
                loop {
                    let next = pg.replica.queue.borrow_mut().pop_front();
                    let Some(next) = next else { break };
                    pg.apply(&osd, next).await;
                }
                pg.replica.applying.set(false);
            });
        }
    }

    async fn apply(self: &Rc<Self>, osd: &Rc<OsdShard>, arrived: Arrived) {
        let Arrived { op, data, crc, reply } = arrived;
        let ack = RepAck { head: op.head, version: op.entry.version, result: 0 };
        let last = self.log.borrow().info.last_update;
        if op.entry.version <= last {
            // Sent again after a fault: what we have is acknowledged as soon as all before it is durable.
            let commit = osd.store.submit(Transaction::new(self.id));
            self.acknowledge(osd, ack, commit, reply);
            return;
        }
        if op.entry.version.version != last.version + 1 {
            tracing::warn!("pg {}: write {} after {last}: dropped", self.id, op.entry.version);
            return;
        }
        let Some(ops) = transaction_ops(&op, &data, crc) else {
            reply(Message::of(&RepAck { result: errno::EINVAL, ..ack }));
            return;
        };
        let prepared = match osd.store.prepare(&ops).await {
            Ok(prepared) => prepared,
            Err(error) => {
                tracing::error!("pg {}: replica cannot apply {}: {error}", self.id, op.entry.version);
                reply(Message::of(&RepAck { result: error.errno(), ..ack }));
                return;
            }
        };
        if op.head.interval != self.replica.interval.get() {
            return;
        }
        let entry = log::from_wire(op.entry);
        let log_trim_to = (op.trim_to != Eversion::ZERO).then_some(op.trim_to);
        let log = smallvec![entry.clone()];
        let txn = Transaction { ops, log, log_trim_to, ..Transaction::new(self.id) };
        let commit = osd.store.submit(txn);
        drop(prepared);
        if let Some(Err(error)) = commit.peek() {
            tracing::error!("pg {}: replica cannot apply {}: {error}", self.id, ack.version);
            reply(Message::of(&RepAck { result: error.errno(), ..ack }));
            return;
        }
        {
            let mut log = self.log.borrow_mut();
            log.push(entry);
            log_trim_to.into_iter().for_each(|to| log.trim(to));
        }
        osd.metrics.borrow_mut().replica_ops.inc();
        self.acknowledge(osd, ack, commit, reply);
    }

    /// Acknowledges when durable, in order.
    fn acknowledge(self: &Rc<Self>, osd: &Rc<OsdShard>, ack: RepAck, commit: Commit, reply: ReplyPath) {
        let idle = self.replica.commits.borrow().is_empty() && !self.replica.acking.get();
        if idle && matches!(commit.peek(), Some(Ok(()))) {
            reply(Message::of(&ack));
            return;
        }
        self.replica.commits.borrow_mut().push_back((ack, commit, reply));
        if !self.replica.acking.replace(true) {
            let pg = Rc::clone(self);
            osd.shard.spawn(Group::Replication, "replica-ack", async move {
                loop {
                    let next = pg.replica.commits.borrow_mut().pop_front();
                    let Some((ack, commit, reply)) = next else { break };
                    let result = commit.await.map_or_else(|e| e.errno(), |()| 0);
                    reply(Message::of(&RepAck { result, ..ack }));
                }
                pg.replica.acking.set(false);
            });
        }
    }

    /// A new interval begins: nothing of the old one is applied any more. Returns when the one being applied is through.
    pub(crate) async fn fence(&self, osd: &OsdShard, interval: Epoch) {
        self.replica.interval.set(interval);
        self.replica.queue.borrow_mut().clear();
        while self.replica.applying.get() {
            osd.shard.sleep(FENCE_POLL).await;
        }
    }
}

/// The steps as the store takes them; `None` if they and the data do not fit.
fn transaction_ops(op: &RepOp, data: &Payload, crc: Option<u32>) -> Option<SmallVec<[TxnOp; 2]>> {
    let oid = &op.entry.oid;
    let mut at = 0usize;
    let mut ops = SmallVec::new();
    for step in &op.txn {
        let oid = oid.clone();
        ops.push(match *step {
            RepTxn::Touch => TxnOp::Touch { oid },
            RepTxn::Write { off, len } => {
                let len = usize::try_from(len).ok()?;
                let end = at.checked_add(len).filter(|end| *end <= data.len())?;
                let crc = crc.filter(|_| len == data.len());
                let bytes = data.slice(at, len);
                at = end;
                TxnOp::Write { oid, off, data: bytes, crc }
            }
            RepTxn::Zero { off, len } => TxnOp::Zero { oid, off, len },
            RepTxn::Truncate { size } => TxnOp::Truncate { oid, size },
            RepTxn::Remove => TxnOp::Remove { oid },
        });
    }
    if !op.entry.delete {
        let (version, user_version, mtime) = (op.entry.version, op.entry.user_version, op.entry.mtime);
        ops.push(TxnOp::SetMeta { oid: oid.clone(), version, user_version, mtime });
    }
    (at == data.len()).then_some(ops)
}
