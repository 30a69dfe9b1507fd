//! The primary's side of replication: a write is durable when it is so here and on every replica.

use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::Sealed;
use carmine_types::{Errno, OsdId, errno};

use super::inflight::{Replicated, Write};
use super::{Pg, Phase};
use crate::messages::{Head, RepAck, RepOp};
use crate::shard::OsdShard;

/// Another member, seen by the primary.
pub(crate) struct Follower {
    pub osd: OsdId,
    /// Version number up to which everything is durable there.
    acked: u64,
    /// The version number after which entries were last sent again because it asked for them: once is enough.
    resent: Option<u64>,
}

impl Follower {
    /// A member that has everything up to version number `acked`.
    pub(super) fn new(osd: OsdId, acked: u64) -> Follower {
        Follower { osd, acked, resent: None }
    }

    /// Version number up to which everything is durable there.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }
}

impl Pg {
    pub(super) fn head(&self, osd: &OsdShard) -> Head {
        Head { pg: self.id, epoch: osd.epoch(), interval: self.interval.get(), attempt: self.attempt.get() }
    }

    /// A transaction as replicas are sent it; `None` if there are no replicas.
    pub(super) fn replicated(&self, osd: &OsdShard, txn: &Sealed) -> Option<Replicated> {
        if self.followers.borrow().is_empty() {
            return None;
        }
        let (data, crc) = txn.data();
        Some(Replicated { front: RepOp::front(&self.head(osd), txn), data, crc })
    }

    /// Sends a write to every replica.
    pub(super) fn send_to_replicas(&self, osd: &OsdShard, write: &Write) {
        for follower in self.followers.borrow().iter() {
            self.send(osd, follower.osd, write);
        }
    }

    fn send(&self, osd: &OsdShard, to: OsdId, write: &Write) {
        if let Some(Replicated { front, data, crc }) = &write.rep {
            osd.peers.send(to, self.id, RepOp::message(front.clone(), data.clone(), *crc));
        }
    }

    /// Handles a replica's answer to a write.
    pub(crate) fn on_ack(self: &Rc<Self>, osd: &Rc<OsdShard>, from: OsdId, ack: &RepAck) {
        let is_ours = (ack.head.interval, ack.head.attempt) == (self.interval.get(), self.attempt.get());
        if !is_ours || !self.is_active() {
            return;
        }
        match ack.result {
            0 => {
                if let Some(follower) = self.followers.borrow_mut().iter_mut().find(|f| f.osd == from) {
                    follower.acked = follower.acked.max(ack.version.version);
                }
                self.settle(osd, osd.shard.now_ns());
            }
            errno::EAGAIN => self.fill_gap(osd, from, ack.version.version),
            // It is in another interval: either a map is on its way to us, or a late question of ours made it begin anew.
            // Doing the same is right in both cases.
            errno::ESTALE => self.restart(osd, &format!("osd.{} is not active", from.0)),
            // Its store failed: nothing can be acknowledged without it until a map says that it is down, or back.
            error => self.restart(osd, &format!("osd.{} cannot write: {}", from.0, Errno(error))),
        }
    }

    /// A replica missed something after `version`: what was lost with a connection, and not sent again yet.
    fn fill_gap(&self, osd: &OsdShard, to: OsdId, version: u64) {
        let mut followers = self.followers.borrow_mut();
        let Some(follower) = followers.iter_mut().find(|f| f.osd == to) else { return };
        if follower.resent.replace(version) != Some(version) {
            self.in_flight.borrow().after(version).for_each(|write| self.send(osd, to, write));
        }
    }

    /// Sends a replica everything that it has not acknowledged, after its connection was lost.
    pub(crate) fn resend_to(&self, osd: &OsdShard, replica: OsdId) {
        let mut followers = self.followers.borrow_mut();
        let Some(follower) = followers.iter_mut().find(|f| f.osd == replica) else { return };
        follower.resent = None;
        self.in_flight.borrow().after(follower.acked).for_each(|write| self.send(osd, replica, write));
    }

    /// Answers what has become durable on all members, in the order of the log, and starts what waited for it.
    pub(super) fn settle(self: &Rc<Self>, osd: &Rc<OsdShard>, now: u64) {
        // An answer may start requests that are durable at once: the loop below finds them, without recursion.
        if self.settling.replace(true) {
            return;
        }
        loop {
            let followers = self.followers.borrow();
            let committed = followers.iter().map(|f| f.acked).fold(self.local.get(), u64::min);
            drop(followers);
            if committed <= self.committed.get() || *self.phase.borrow() != Phase::Active {
                break;
            }
            self.committed.set(committed);
            self.changed.notify_all();
            loop {
                let next = self.in_flight.borrow_mut().pop(committed);
                let Some(write) = next else { break };
                let oid = Arc::clone(&write.op.oid);
                self.objects.borrow_mut().commit(&oid, write.version.version);
                self.finish_write(osd, write, now);
                self.pump(osd, &oid);
            }
        }
        self.settling.set(false);
    }
}
