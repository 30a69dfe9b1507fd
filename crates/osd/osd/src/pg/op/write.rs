//! The path of a write, from its arrival at an active PG to its answer:
//!
//! 1. [admit](Pg::start): requests that are refused whatever the state of their object end here; the rest are queued on their
//!    object (`object`), also while the PG has its maximum of writes in flight. Reads leave this path here (`read`).
//! 2. [plan](Pg::run_write): the only write running on its object. A resend is found in the log; otherwise the request is turned
//!    into changes (`exec`), and what these need is loaded.
//! 3. [submit](Pg::submit), one step without a suspension: it gets its version, its entry of the log (`numbering`), and is given
//!    to the local store and the replicas ([`Pg::commit`]). The object's next write may run.
//! 4. [commit](Pg::local_commit): it becomes durable here (`commit` waits for that) and on the replicas (`on_rep_ack`).
//! 5. [reply](Pg::settle): what is durable on all members is answered, in the order of the log.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::{LogEntry, Sealed};
use carmine_reactor::{Group, Payload};
use carmine_store::StoreError;
use carmine_types::{LogOp, ObjectId, errno, is_mutated, is_unasserted};

use super::exec::Plan;
use super::numbering::{LogEnd, Numbered};
use super::pipeline::Write;
use super::served::Served;
use super::{exec, snaps};
use crate::error::OpError;
use crate::metrics::{EXECUTE, QUEUE, REPLICATE, REPLY, STORE};
use crate::op::{ClientOp, Outcome, Stage};
use crate::pg::Pg;
use crate::pg::copies::IfUnfound;
use crate::shard::OsdShard;

impl Pg {
    /// Admits an operation that was sent or started before, and may have been executed: then it is answered as a resend.
    pub(in crate::pg) fn start_again(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        // Looked up now and not when its object is free: by then the log may have dropped it.
        if op.is_write
            && let Some(done) = self.executed(&op)
            && refusal(osd, &op).is_none()
            && !op.is_pg_op()
        {
            return self.answer_resend(osd, op, &done);
        }
        self.start(osd, op);
    }

    /// Admits an operation: runs it, or queues it after others of its object.
    pub(in crate::pg) fn start(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        if let Some(result) = refusal(osd, &op) {
            return self.finish_read(osd, &op, Outcome::error(result));
        }
        if op.is_pg_op() {
            return self.list(osd, op);
        }
        if self.ops.pipeline.enter(&op, self.copies.backend().committed()) {
            self.execute(osd, op);
        } else {
            self.recover_first(osd, &op);
        }
    }

    /// Starts the operations that may run now on an object.
    pub(in crate::pg) fn pump(self: &Rc<Self>, osd: &Rc<OsdShard>, oid: &Arc<ObjectId>) {
        while let Some(op) = self.ops.pipeline.next(oid, self.copies.backend().committed()) {
            op.note_started(osd);
            if !self.comes_too_late(osd, &op) {
                self.execute(osd, op);
            }
        }
    }

    /// Starts writes that waited for room in flight.
    fn use_room(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        while let Some(oid) = self.ops.pipeline.use_room() {
            self.pump(osd, &oid);
        }
    }

    /// Ends an operation that waited, if its client has disconnected or been blocklisted meanwhile: it may no longer change
    /// anything. A client that reconnects resends it.
    pub(in crate::pg) fn comes_too_late(&self, osd: &OsdShard, op: &Rc<ClientOp>) -> bool {
        let (has_gone, is_barred) = (osd.is_disconnected(op), osd.is_blocklisted(op));
        if has_gone || is_barred {
            self.ops.pipeline.leave(op);
        }
        if has_gone {
            osd.metrics.borrow_mut().ops_dropped += 1;
            op.abandon();
        } else if is_barred {
            self.finish_read(osd, op, Outcome::error(errno::ESHUTDOWN));
        }
        has_gone || is_barred
    }

    /// Runs an operation that is next on its object.
    fn execute(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        op.enters(Stage::Executing);
        if self.execute_at_hand(osd, &op) {
            return;
        }
        let generation = self.peer.generation();
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        // Two kinds of futures, so that each is as small as possible: it is made on the stack and moved to the heap.
        if op.is_write {
            self.run(osd, &op, || pg.run_write(own, Rc::clone(&op), generation));
        } else {
            self.run(osd, &op, || pg.run_read(own, Rc::clone(&op), generation));
        }
    }

    /// Executes a plain operation that finds all it needs in memory; false if it needs the general path.
    fn execute_at_hand(self: &Rc<Self>, osd: &Rc<OsdShard>, op: &Rc<ClientOp>) -> bool {
        if !op.is_write {
            let Some(outcome) = exec::read_at_hand(self.objects(osd), op) else { return false };
            self.ops.pipeline.leave(op);
            self.finish_read(osd, op, outcome);
            return true;
        }
        if self.ops.snaps.are_of_pool() {
            return false;
        }
        if self.executed(op).is_some() {
            return false;
        }
        let Some(plan) = exec::plan_at_hand(self.objects(osd), op) else { return false };
        self.submit(osd, Rc::clone(op), plan);
        true
    }

    /// The entry of an operation that is in the log already: this one is a resend.
    pub(in crate::pg) fn executed(&self, op: &ClientOp) -> Option<LogEntry> {
        self.peer.log().find(&op.reqid).filter(|_| !is_mutated("forget_resend")).cloned()
    }

    /// Runs an operation, which may have to wait: then others of its object are queued after it.
    fn run<F: Future<Output = ()> + 'static>(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        op: &Rc<ClientOp>,
        running: impl FnOnce() -> F,
    ) {
        let (pg, own, oid) = (Rc::clone(self), Rc::clone(osd), Arc::clone(&op.oid));
        let go_on = move || pg.pump(&own, &oid);
        if !osd.shard.spawn_polled(Group::Client, "client-op", running, go_on) {
            self.ops.pipeline.suspend(op);
        }
    }

    /// Plans a write and submits it.
    async fn run_write(self: Rc<Self>, osd: Rc<OsdShard>, op: Rc<ClientOp>, generation: u64) {
        let osd = &osd;
        if let Some(done) = self.executed(&op) {
            return self.answer_resend(osd, op, &done);
        }
        let (plan, prepared, had_room) = loop {
            let of_snaps = self.ops.snaps.version();
            let planned = match op.trims {
                None => exec::plan_write(osd, &self, &op).await,
                Some(snap) => Box::pin(snaps::plan_trim(osd, &self, &op, snap)).await,
            };
            if self.peer.is_past(generation) {
                return op.release_more();
            }
            let plan = match planned {
                Ok(plan) => plan,
                // It waits, and the client resends it to the next primary.
                Err(error) if osd.holds_back(error.errno()) => return self.ops.pipeline.suspend(&op),
                Err(error) => Box::new(Plan::failed(error.report())),
            };
            let prepared = self.objects(osd).prepare(plan.changes.all(), IfUnfound::Wait).await;
            if self.peer.is_past(generation) {
                return op.release_more();
            }
            let had_room = self.ops.pipeline.has_room();
            let has_room =
                had_room || Box::pin(self.ops.pipeline.room()).await && self.claims_room(generation);
            if !has_room {
                return op.release_more();
            }
            // Plan again if snapshots changed: it must not make a clone for a snapshot removed meanwhile.
            if of_snaps == self.ops.snaps.version() {
                break (plan, prepared, had_room);
            }
            self.use_room(osd); // others may need the room that it does not use
        };
        // No suspension from here on: versions, the log and the store stay in step.
        if !self.comes_too_late(osd, &op) {
            match prepared {
                Ok(_prepared) => self.submit(osd, op, *plan),
                Err(error) if osd.holds_back(error.errno()) => self.ops.pipeline.suspend(&op),
                Err(error) => self.submit(osd, op, Plan::failed(self.refused(error))),
            }
        }
        if !had_room {
            self.use_room(osd);
        }
    }

    /// Claims the room that was waited for, unless all operations were started over since.
    fn claims_room(&self, generation: u64) -> bool {
        let is_current = !self.peer.is_past(generation);
        if is_current {
            self.ops.pipeline.claim_room();
        }
        is_current
    }

    /// Submits a planned write, which is then in flight until it is durable everywhere. One that failed, or has no effect, is
    /// submitted as a log entry, too: a resend must not be executed on top of later writes.
    pub(in crate::pg) fn submit(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>, plan: Plan) {
        assert!(self.peer.serves(), "pg {}: a write of a PG that serves nobody", self.id);
        // Not in release builds: `execute` has made this search already.
        debug_assert!(
            self.peer.log().find(&op.reqid).is_none_or(|entry| entry.oid != op.oid)
                || is_unasserted("forget_resend")
                || is_unasserted("trim_uncommitted"),
            "pg {}: {:?} of {} is executed twice",
            self.id,
            op.reqid,
            op.oid
        );
        let mtime = plan.extra.as_ref().and_then(|extra| extra.mtime).unwrap_or_else(|| op.mtime(osd));
        let committed = self.copies.backend().committed();
        let numbered =
            LogEnd { log: &self.peer.log(), limits: osd.config.log, committed, epoch: osd.epoch() }
                .number(&op, &plan, mtime);
        self.commit(osd, op, plan, numbered);
    }

    /// Gives a numbered write to the store and to the replicas.
    #[inline] // otherwise the long plan is copied once more
    fn commit(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>, plan: Plan, numbered: Numbered) {
        let Plan { changes, effect, result, sizes, outputs, mut extra, .. } = plan;
        let Numbered { entry, trim_to } = numbered;
        let (version, user_version) = (entry.version, entry.user_version);
        let txn = Sealed::from(changes.into_transaction(self.id, self.peer.bits(), &entry, trim_to));
        let sent = self.copies.backend().encode(|| self.head(osd), &txn);
        let commit = self.objects(osd).submit(txn);
        let ready = commit.peek();
        if let Some(Err(error)) = ready {
            if matches!(error, StoreError::Failed(_)) {
                // It waits like those in flight, whose commits fail, too: the client resends it to the next primary.
                self.ops.pipeline.suspend(&op);
                return self.copies.commits().push(self.peer.generation(), version, commit);
            }
            let result = self.refused(error);
            // The failure fits in the log even if the data has no space.
            return match effect {
                LogOp::Error => self.answer_when_committed(osd, op, Outcome::error(result), 0),
                LogOp::Modify | LogOp::Delete => self.submit(osd, op, Plan::failed(result)),
            };
        }
        self.peer.note_entry(entry, trim_to);
        if effect != LogOp::Error && sizes != (None, None) {
            self.ops.usage.borrow_mut().change(&op.oid, sizes.0, sizes.1);
        }
        let clones = extra.as_mut().map(|extra| std::mem::take(&mut extra.clones)).unwrap_or_default();
        if !clones.is_empty() {
            self.count_clones(&op.oid, &clones);
        }
        if let Some(extra) = extra.filter(|_| result >= 0) {
            extra.take_effect(osd, self, &op, op.origin(osd.shard.id()), user_version);
        }
        let submitted_ns = osd.shard.stamp_ns();
        self.copies.backend().submit(&osd.peers, self.id, version.version, sent);
        let outcome = Outcome { result, outputs, version, user_version, extra: None };
        let (local_ns, followers) = (0, Vec::new());
        let write = Write { version, op: Rc::clone(&op), outcome, submitted_ns, local_ns, followers };
        self.ops.pipeline.submitted(write);
        match ready {
            Some(_) => self.local_commit(osd, version.version, submitted_ns),
            None => self.copies.commits().push(self.peer.generation(), version, commit),
        }
        let again =
            self.ops.pipeline.leave_submitted(&op, version.version, self.copies.backend().committed());
        if let Some(again) = again {
            // The log may have dropped it by the time the object's next operation runs.
            self.start_again(osd, again);
        }
    }

    /// The client's errno when the store refuses a write.
    fn refused(&self, error: StoreError) -> i32 {
        tracing::warn!("pg {}: write refused: {error}", self.id);
        OpError::from(error).errno()
    }

    /// Notes that everything up to this version number became durable here now.
    pub(in crate::pg) fn local_commit(self: &Rc<Self>, osd: &Rc<OsdShard>, version: u64, now: u64) {
        self.ops.pipeline.durable(self.copies.backend().local() + 1..=version, now);
        self.copies.backend().note_durable(version);
        self.settle(osd, now);
    }

    /// Answers writes that have become durable on all members, in the order of the log, and starts operations that waited for
    /// them.
    pub(in crate::pg) fn settle(self: &Rc<Self>, osd: &Rc<OsdShard>, now: u64) {
        // An answer may start writes that are durable at once: the loop below finds them, without recursion.
        if !self.ops.pipeline.begin_settling() {
            return;
        }
        while self.peer.is_active()
            && let Some(committed) = self.copies.backend().advance()
        {
            self.peer.changed().notify_all();
            while let Some(write) = self.ops.pipeline.committed(committed) {
                let op = Rc::clone(&write.op);
                finish_write(osd, &self.ops.served, write, now);
                self.use_room(osd);
                self.pump(osd, &op.oid);
            }
        }
        self.ops.pipeline.end_settling();
    }

    /// Answers a resend of a write that was executed before.
    fn answer_resend(&self, osd: &OsdShard, op: Rc<ClientOp>, done: &LogEntry) {
        osd.metrics.borrow_mut().dups += 1;
        let outcome = replayed(&op, done);
        self.answer_when_committed(osd, op, outcome, done.version.version);
    }

    /// Ends a write that was executed before, or that needs no log entry. It is answered when everything up to this version
    /// number is durable everywhere.
    fn answer_when_committed(&self, osd: &OsdShard, op: Rc<ClientOp>, outcome: Outcome, version: u64) {
        self.ops.pipeline.leave(&op);
        if version <= self.copies.backend().committed() {
            return finish_unchanged(osd, &op, outcome);
        }
        if let Some((op, outcome)) = self.ops.pipeline.attach(version, op, outcome) {
            finish_unchanged(osd, &op, outcome);
        }
    }
}

/// Why an operation is refused whatever the state of its object.
fn refusal(osd: &OsdShard, op: &ClientOp) -> Option<i32> {
    if osd.is_blocklisted(op) { Some(errno::ESHUTDOWN) } else { op.refusal() }
}

/// The outcome of a request that was executed before.
fn replayed(op: &ClientOp, done: &LogEntry) -> Outcome {
    let outputs = match &done.returned {
        None => op.request.ops.iter().map(|_| (0, Payload::new())).collect(),
        Some(returned) => {
            returned.0.iter().map(|(result, output)| (*result, Payload::from(output.to_vec()))).collect()
        }
    };
    let (version, user_version) = (done.given_version(), done.user_version);
    Outcome { result: done.result, outputs, version, user_version, extra: None }
}

/// Answers a write that is durable everywhere.
fn finish_write(osd: &OsdShard, served: &Served, write: Write, now: u64) {
    let Write { op, outcome, submitted_ns, local_ns, followers, .. } = write;
    let (bytes, failed) = (op.data.len() as u64, outcome.result < 0);
    op.reply(osd, outcome);
    let end = osd.shard.stamp_ns();
    {
        let mut metrics = osd.metrics.borrow_mut();
        metrics.write_ops += 1;
        if failed {
            metrics.errors += 1;
        } else {
            metrics.write_bytes += bytes;
            served.note_write(bytes);
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

/// Counts and answers a write that changed nothing.
fn finish_unchanged(osd: &OsdShard, op: &ClientOp, outcome: Outcome) {
    let mut metrics = osd.metrics.borrow_mut();
    metrics.write_ops += 1;
    if outcome.result < 0 {
        metrics.errors += 1;
    }
    metrics.write_latency_ns.record(osd.shard.stamp_ns().saturating_sub(op.arrived_ns));
    drop(metrics);
    op.reply(osd, outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each operation's future is copied to the heap, and allocators have a fast way up to 1 KiB. Rare awaits (for another copy,
    /// for metadata that is not cached, for steps of other operations) are boxed.
    #[test]
    fn futures_of_plain_operations_are_small() {
        fn bytes<F>(_: impl FnOnce(Rc<Pg>, Rc<OsdShard>, Rc<ClientOp>, u64) -> F) -> usize {
            size_of::<F>()
        }
        assert!(bytes(Pg::run_read) <= 1024, "{}", bytes(Pg::run_read));
        assert!(bytes(Pg::run_write) <= 1024, "{}", bytes(Pg::run_write));
    }
}
