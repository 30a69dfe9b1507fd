//! Reads of objects and listings of the PG.

use std::rc::Rc;

use carmine_reactor::Group;

use super::{exec, list};
use crate::metrics::{EXECUTE, QUEUE, REPLY};
use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;
use crate::shard::OsdShard;

impl Pg {
    pub(in crate::pg) async fn run_read(
        self: Rc<Self>,
        osd: Rc<OsdShard>,
        op: Rc<ClientOp>,
        generation: u64,
    ) {
        let mut outcome = match exec::read_block(self.objects(&osd), &op).await {
            Some(outcome) => outcome,
            None => Box::pin(exec::read_only(&osd, &self, &op)).await,
        };
        // In a new interval the operation was started over, or dropped: this run is obsolete.
        if self.peer.is_past(generation) {
            return op.release_more();
        }
        // Its effects besides reading must not come late either.
        if self.comes_too_late(&osd, &op) {
            return;
        }
        self.ops.pipeline.leave(&op);
        let extra =
            outcome.extra.take().map(|extra| (extra, outcome.user_version, op.origin(osd.shard.id())));
        self.finish_read(&osd, &op, outcome);
        if let Some((extra, version, origin)) = extra {
            extra.take_effect(&osd, &self, &op, origin, version);
        }
    }

    /// Lists the PG. Changes that are not durable everywhere may not be visible: the listing waits until all are.
    pub(in crate::pg) fn list(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        let task = Rc::clone(self).run_list(Rc::clone(osd), op, self.peer.generation());
        osd.shard.spawn(Group::Client, "pg-list", task);
    }

    async fn run_list(self: Rc<Self>, osd: Rc<OsdShard>, op: Rc<ClientOp>, generation: u64) {
        let last = self.peer.last_update().version;
        while self.copies.backend().committed() < last && !self.peer.is_past(generation) {
            self.peer.changed().notified().await;
        }
        op.note_started(&osd);
        let outcome =
            if self.peer.is_past(generation) { None } else { Some(list::execute(&osd, &self, &op).await) };
        match outcome.filter(|_| !self.peer.is_past(generation)) {
            _ if self.comes_too_late(&osd, &op) => {}
            Some(outcome) => self.finish_read(&osd, &op, outcome),
            // It is in no queue, so nothing else starts it over.
            None => self.handle_op(&osd, op),
        }
    }

    /// Answers an operation that changed nothing.
    pub(in crate::pg) fn finish_read(&self, osd: &OsdShard, op: &ClientOp, outcome: Outcome) {
        let (bytes, error, done) = (outcome.bytes(), outcome.result < 0, osd.shard.stamp_ns());
        // Not in release builds: a read's path is the shortest of all.
        debug_assert!(
            error || self.peer.leases().covered(op.arrived_ns),
            "pg {}: {} is read outside of a lease",
            self.id,
            op.oid
        );
        op.reply(osd, outcome);
        let end = osd.shard.stamp_ns();
        let (arrived, started) = (op.arrived_ns, op.started_ns.get());
        let mut metrics = osd.metrics.borrow_mut();
        metrics.read_ops += 1;
        metrics.read_bytes += bytes;
        metrics.read_latency_ns.record(end.saturating_sub(arrived));
        if error {
            metrics.errors += 1;
        } else {
            self.ops.served.note_read(bytes);
        }
        drop(metrics);
        let mut stages = osd.stages.borrow_mut();
        stages.record(QUEUE, started.saturating_sub(arrived));
        stages.record(EXECUTE, done.saturating_sub(started));
        stages.record(REPLY, end.saturating_sub(done));
    }
}
