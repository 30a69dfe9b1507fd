//! From a client's operation to its answer, on an active PG.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use carmine_reactor::Group;
use carmine_types::{ObjectId, errno};

use super::exec::Plan;
use super::inflight::Write;
use super::{Pg, exec, heal, list, txn};
use crate::metrics::{EXECUTE, QUEUE, REPLICATE, REPLY, STORE};
use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;

impl Pg {
    /// Starts an operation, or queues it behind others of its object.
    pub(super) fn start(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        let refusal = if osd.bars(&op) { Some(errno::ESHUTDOWN) } else { op.refusal() };
        if let Some(result) = refusal {
            return self.finish_read(osd, &op, Outcome::error(result));
        }
        if op.is_pg_op() {
            let task = Rc::clone(self).run_list(Rc::clone(osd), op, self.turn.get());
            return osd.shard.spawn(Group::Client, "pg-list", task);
        }
        let oid = Arc::clone(&op.oid);
        let alone = self.objects.borrow_mut().start_alone(&oid, Rc::clone(&op));
        match alone {
            Ok(()) => self.execute(osd, op),
            Err(op) => {
                self.objects.borrow_mut().push(&oid, op);
                self.pump(osd, &oid);
            }
        }
    }

    /// Starts what may run now on an object.
    pub(super) fn pump(self: &Rc<Self>, osd: &Rc<OsdShard>, oid: &ObjectId) {
        loop {
            let next = self.objects.borrow_mut().next(oid, self.committed.get());
            let Some(op) = next else { return };
            self.execute(osd, op);
        }
    }

    /// Runs an operation whose turn it is. If there is nothing to wait for it needs no task.
    fn execute(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        op.started_ns.set(osd.shard.now_ns());
        let turn = self.turn.get();
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        // Two futures, each no larger than it must be: it is made on the stack and moved to the heap.
        if op.is_write {
            self.run(osd, Rc::clone(&op), Box::pin(pg.run_write(own, op, turn)));
        } else {
            self.run(osd, Rc::clone(&op), Box::pin(pg.run_read(own, op, turn)));
        }
    }

    fn run(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        op: Rc<ClientOp>,
        mut running: Pin<Box<impl Future<Output = ()> + 'static>>,
    ) {
        if running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Client, "client-op", async move {
            running.await;
            pg.pump(&own, &op.oid);
        });
    }

    async fn run_read(self: Rc<Self>, osd: Rc<OsdShard>, op: Rc<ClientOp>, turn: u64) {
        let mut outcome = exec::read_only(&osd, &op).await;
        // In a new interval the operation was started over, or dropped: this run of it counts no longer.
        if self.is_past(turn) {
            op.release_more();
        } else {
            self.objects.borrow_mut().finish(&op.oid, &op, None);
            let extra =
                outcome.extra.take().map(|extra| (extra, outcome.user_version, op.origin(osd.shard.id())));
            self.finish_read(&osd, &op, outcome);
            if let Some((extra, version, origin)) = extra {
                extra.take_effect(&osd, &self, &op, origin, version);
            }
        }
    }

    /// Lists the PG. What is not durable everywhere may not be shown: it waits until all is.
    async fn run_list(self: Rc<Self>, osd: Rc<OsdShard>, op: Rc<ClientOp>, turn: u64) {
        let last = self.log.borrow().info.last_update.version;
        while self.committed.get() < last && !self.is_past(turn) {
            self.changed.notified().await;
        }
        op.started_ns.set(osd.shard.now_ns());
        let outcome = if self.is_past(turn) { None } else { Some(list::execute(&osd, &self, &op).await) };
        match outcome.filter(|_| !self.is_past(turn)) {
            Some(outcome) => self.finish_read(&osd, &op, outcome),
            // It stands in no queue, so nobody else starts it over.
            None => self.take(&osd, op),
        }
    }

    async fn run_write(self: Rc<Self>, osd: Rc<OsdShard>, op: Rc<ClientOp>, turn: u64) {
        let osd = &osd;
        let done = self.log.borrow().find(&op.reqid);
        if let Some(done) = done {
            osd.metrics.borrow_mut().dups.inc();
            return self.follow(osd, op.clone(), txn::replayed(&op, done), done.version.version);
        }
        let planned = exec::plan_write(osd, &op).await;
        if self.is_past(turn) {
            return op.release_more();
        }
        let plan = planned.unwrap_or_else(|result| Box::new(Plan::failed(result)));
        let prepared = heal::prepare(osd, &plan.changes).await;
        if self.is_past(turn) {
            return op.release_more();
        }
        match prepared {
            // Nothing suspends from here on: versions, the log and the store stay in step.
            Ok(_prepared) => txn::submit(osd, &self, op, plan),
            Err(error) => txn::submit(osd, &self, op, Box::new(Plan::failed(txn::refused(&error, &self)))),
        }
    }

    /// Ends a write that was executed before, or that the log has no room for. It is answered when everything up to this version number is durable everywhere.
    pub(super) fn follow(&self, osd: &OsdShard, op: Rc<ClientOp>, outcome: Outcome, version: u64) {
        self.objects.borrow_mut().finish(&op.oid, &op, None);
        if version > self.committed.get()
            && let Some(write) = self.in_flight.borrow_mut().get_mut(version)
        {
            return write.followers.push((op, outcome));
        }
        finish_unchanged(osd, &op, outcome);
    }

    pub(super) fn finish_read(&self, osd: &OsdShard, op: &ClientOp, outcome: Outcome) {
        let (bytes, error, done) = (outcome.bytes(), outcome.result < 0, osd.shard.now_ns());
        op.reply(osd, outcome);
        let end = osd.shard.now_ns();
        let (arrived, started) = (op.arrived_ns, op.started_ns.get());
        let mut metrics = osd.metrics.borrow_mut();
        metrics.ops.inc();
        metrics.read_ops.inc();
        metrics.read_bytes.add(bytes);
        metrics.read_latency_ns.record(end.saturating_sub(arrived));
        if error {
            metrics.errors.inc();
        }
        drop(metrics);
        let mut stages = osd.stages.borrow_mut();
        stages.record(QUEUE, started.saturating_sub(arrived));
        stages.record(EXECUTE, done.saturating_sub(started));
        stages.record(REPLY, end.saturating_sub(done));
    }

    /// Answers a write that is durable everywhere.
    pub(super) fn finish_write(&self, osd: &OsdShard, write: Write, now: u64) {
        let Write { op, outcome, submitted_ns, local_ns, followers, .. } = write;
        let (bytes, failed) = (op.data.len() as u64, outcome.result < 0);
        op.reply(osd, outcome);
        let end = osd.shard.now_ns();
        {
            let mut metrics = osd.metrics.borrow_mut();
            metrics.ops.inc();
            metrics.write_ops.inc();
            if failed {
                metrics.errors.inc();
            } else {
                metrics.write_bytes.add(bytes);
            }
            metrics.write_latency_ns.record(end.saturating_sub(op.arrived_ns));
            let started = op.started_ns.get();
            let mut stages = osd.stages.borrow_mut();
            stages.record(QUEUE, started.saturating_sub(op.arrived_ns));
            stages.record(EXECUTE, submitted_ns.saturating_sub(started));
            stages.record(STORE, local_ns.saturating_sub(submitted_ns));
            stages.record(REPLICATE, now.saturating_sub(local_ns));
            stages.record(REPLY, end.saturating_sub(now));
        }
        followers.into_iter().for_each(|(op, outcome)| finish_unchanged(osd, &op, outcome));
    }
}

/// Counts and answers a write that changed nothing.
fn finish_unchanged(osd: &OsdShard, op: &ClientOp, outcome: Outcome) {
    let mut metrics = osd.metrics.borrow_mut();
    metrics.ops.inc();
    metrics.write_ops.inc();
    if outcome.result < 0 {
        metrics.errors.inc();
    }
    metrics.write_latency_ns.record(osd.shard.now_ns().saturating_sub(op.arrived_ns));
    drop(metrics);
    op.reply(osd, outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each operation's future is copied to the heap, and allocators have a fast way up to 1 KiB. What waits rarely (for
    /// another copy, for metadata that is not cached, for steps of other operations) belongs into a box of its own.
    #[test]
    fn futures_of_plain_operations_are_small() {
        fn bytes<F>(_: impl FnOnce(Rc<Pg>, Rc<OsdShard>, Rc<ClientOp>, u64) -> F) -> usize {
            size_of::<F>()
        }
        assert!(bytes(Pg::run_read) <= 1024, "{}", bytes(Pg::run_read));
        assert!(bytes(Pg::run_write) <= 1024, "{}", bytes(Pg::run_write));
    }
}
