//! The primary's side of replication: a write is in flight until it is durable here and acknowledged by every replica.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use carmine_messenger::Message;
use carmine_reactor::{Group, Payload, sync::Notify};
use carmine_store::{Commit, LogEntry, StoreError, TxnOp};
use carmine_types::{Eversion, OsdId, errno};
use carmine_wire::private::rep::{Head, RepAck, RepOp, RepTxn};
use smallvec::SmallVec;

use super::{Pg, Phase, log};
use crate::shard::OsdShard;

/// A write that is not yet durable everywhere.
pub(crate) struct InFlight {
    pub version: Eversion,
    pg: Weak<Pg>,
    /// Replicas that have not acknowledged it.
    missing: RefCell<SmallVec<[OsdId; 2]>>,
    /// The local store's result.
    local: RefCell<Option<Result<(), StoreError>>>,
    /// Neither client nor log waits for it any more: the PG went to another primary.
    abandoned: Cell<bool>,
    done: Notify,
    /// What replicas are sent, kept for sending it again; `None` without replicas.
    request: Option<(RepOp, Payload)>,
}

impl InFlight {
    pub(crate) fn new(
        version: Eversion,
        pg: &Rc<Pg>,
        osd: &OsdShard,
        ops: &[TxnOp],
        entry: &LogEntry,
        trim_to: Option<Eversion>,
    ) -> Rc<InFlight> {
        let missing: SmallVec<[OsdId; 2]> = pg.replicas().into();
        let request = (!missing.is_empty()).then(|| {
            let (txn, data) = steps(ops);
            let head = Head { pg: pg.id, epoch: osd.epoch(), interval: pg.interval.get() };
            let trim_to = trim_to.unwrap_or(Eversion::ZERO);
            (RepOp { head, entry: log::to_wire(entry), trim_to, txn }, data)
        });
        Rc::new(InFlight {
            version,
            pg: Rc::downgrade(pg),
            missing: RefCell::new(missing),
            local: RefCell::new(None),
            abandoned: Cell::new(false),
            done: Notify::new(),
            request,
        })
    }

    /// Watches the local commit.
    pub(crate) fn start(self: &Rc<Self>, osd: &OsdShard, commit: Commit) {
        if let Some(result) = commit.peek() {
            *self.local.borrow_mut() = Some(result);
            return;
        }
        let this = Rc::clone(self);
        osd.shard.spawn(Group::Client, "commit", async move {
            let result = commit.await;
            *this.local.borrow_mut() = Some(result);
            if let Some(pg) = this.pg.upgrade() {
                pg.settle();
            }
        });
    }

    fn is_settled(&self) -> bool {
        self.abandoned.get() || (self.local.borrow().is_some() && self.missing.borrow().is_empty())
    }

    /// Waits until the write is durable everywhere; `None` if that is not for this OSD to say any more.
    pub(crate) async fn wait(&self) -> Option<Result<(), StoreError>> {
        while !self.is_settled() {
            self.done.notified().await;
        }
        if self.abandoned.get() { None } else { self.local.borrow().clone() }
    }
}

impl Pg {
    /// A replica has everything up to this version.
    pub(crate) fn acknowledged(&self, from: OsdId, up_to: Eversion) {
        for write in self.in_flight.borrow().iter().take_while(|w| w.version <= up_to) {
            write.missing.borrow_mut().retain(|osd| *osd != from);
        }
        self.settle();
    }

    /// Activation made every copy equal to the log: whatever was in flight is everywhere.
    pub(crate) fn all_acknowledged(&self) {
        self.in_flight.borrow().iter().for_each(|write| write.missing.borrow_mut().clear());
        self.settle();
    }

    /// The PG has another primary: nobody here may say that these writes are durable.
    pub(crate) fn abandon_in_flight(&self) {
        for write in self.in_flight.borrow_mut().drain(..) {
            write.abandoned.set(true);
            write.done.notify_all();
        }
        self.changed.notify_all();
    }

    /// Completes writes in the order of the log.
    pub(crate) fn settle(&self) {
        loop {
            let first = self.in_flight.borrow().front().filter(|w| w.is_settled()).cloned();
            let Some(first) = first else { break };
            self.in_flight.borrow_mut().pop_front();
            first.done.notify_all();
        }
    }

    /// Waits until the entry of this version is durable everywhere; false if the PG went away instead.
    pub(crate) async fn committed(&self, version: Eversion) -> bool {
        loop {
            let write = self.in_flight.borrow().iter().find(|w| w.version == version).cloned();
            if let Some(write) = write {
                return matches!(write.wait().await, Some(Ok(())));
            }
            if *self.phase.borrow() != Phase::Peering {
                return self.is_active();
            }
            self.changed.notified().await;
        }
    }

    /// Sends a replica everything that it has not acknowledged, after its connection was made again.
    pub(crate) fn resend_to(&self, osd: &Rc<OsdShard>, replica: OsdId) {
        for write in self.in_flight.borrow().iter() {
            if write.missing.borrow().contains(&replica) {
                send(osd, self, write, replica);
            }
        }
    }
}

/// Sends a write to every replica.
pub(crate) fn send_to_replicas(osd: &Rc<OsdShard>, pg: &Pg, write: &InFlight) {
    for replica in write.missing.borrow().iter() {
        send(osd, pg, write, *replica);
    }
}

fn send(osd: &Rc<OsdShard>, pg: &Pg, write: &InFlight, replica: OsdId) {
    if let Some((request, data)) = &write.request {
        let message = Message::of(request).with_data(data.clone());
        osd.peers.send(replica, pg.id, message);
    }
}

/// Handles a replica's acknowledgement.
pub(crate) fn on_ack(osd: &Rc<OsdShard>, pg: &Rc<Pg>, from: OsdId, ack: &RepAck) {
    if ack.head.interval != pg.interval.get() {
        return;
    }
    match ack.result {
        0 => pg.acknowledged(from, ack.version),
        errno::EAGAIN => super::activate::again(osd, pg),
        error => tracing::error!("pg {}: {from} cannot apply {}: error {error}", pg.id, ack.version),
    }
}

/// The steps that a replica takes, and their bytes one after the other.
fn steps(ops: &[TxnOp]) -> (SmallVec<[RepTxn; 2]>, Payload) {
    let mut data = Payload::new();
    let steps = ops.iter().filter_map(|op| {
        Some(match op {
            TxnOp::Touch { .. } => RepTxn::Touch,
            TxnOp::Write { off, data: bytes, .. } => {
                data.append(bytes);
                RepTxn::Write { off: *off, len: bytes.len() as u64 }
            }
            TxnOp::Zero { off, len, .. } => RepTxn::Zero { off: *off, len: *len },
            TxnOp::Truncate { size, .. } => RepTxn::Truncate { size: *size },
            TxnOp::Remove { .. } => RepTxn::Remove,
            TxnOp::SetMeta { .. } => return None, // the entry has it
        })
    });
    (steps.collect(), data)
}
