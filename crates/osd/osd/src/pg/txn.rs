//! Turning a plan into a transaction: version, log entry, local store, replicas: one step without a suspension.

use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::{LogEntry, Sealed, Step, Transaction};
use carmine_store::StoreError;
use carmine_types::LogOp;

use super::Pg;
use super::exec::{Plan, failed};
use super::inflight::Write;
use super::log::Done;
use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;

/// Submits a planned write, which is then in flight until it is durable everywhere. One that failed, or has no effect, goes
/// the same way, as an entry of the log: sent again it must not be executed on what was written after it.
pub(super) fn submit(osd: &Rc<OsdShard>, pg: &Rc<Pg>, op: Rc<ClientOp>, plan: Box<Plan>) {
    debug_assert!(pg.is_active());
    let version = pg.next_version(osd.epoch());
    let Plan { mut changes, effect, result, prior, sizes, user_version, outputs, extra } = *plan;
    // A watch changes nothing that clients see.
    let unseen = effect == LogOp::Error || extra.as_ref().is_some_and(|_| op.only_watches());
    let user_version = if unseen { user_version } else { version.version };
    let entry = LogEntry {
        version,
        prior,
        reqid: op.reqid,
        oid: Arc::clone(&op.oid),
        op: effect,
        user_version,
        result,
        mtime: op.mtime(osd),
    };
    let trim_to = pg.log.borrow().trim_point();
    if effect == LogOp::Modify
        && let Some(change) = changes.last_mut()
    {
        change.steps.push(Step::SetMeta { version, user_version, mtime: entry.mtime });
    }
    let mut txn = Transaction { changes, ..pg.transaction() };
    txn.log.push(entry.clone());
    txn.log_trim_to = trim_to;
    let txn = Sealed::from(txn);
    let rep = pg.replicated(osd, &txn);
    let commit = osd.store.submit(txn);
    let ready = commit.peek();
    if let Some(Err(error)) = ready {
        let result = refused(&error, pg);
        // That it failed can be noted where its data has no room.
        return match effect {
            LogOp::Error => pg.follow(osd, op, Outcome::error(result), 0),
            LogOp::Modify | LogOp::Delete => submit(osd, pg, op, Box::new(Plan::failed(result))),
        };
    }
    pg.note_entry(entry, trim_to);
    if effect != LogOp::Error {
        pg.usage.borrow_mut().change(&op.oid, sizes.0, sizes.1);
    }
    if let Some(extra) = extra.filter(|_| result == 0) {
        extra.take_effect(osd, pg, &op, op.origin(osd.shard.id()), user_version);
    }
    let submitted_ns = osd.shard.now_ns();
    pg.objects.borrow_mut().finish(&op.oid, &op, Some(version.version));
    let outcome = Outcome { result, outputs, version, user_version, extra: None };
    let (local_ns, followers) = (0, Vec::new());
    let write = Write { version, op, outcome, submitted_ns, local_ns, rep, followers };
    pg.send_to_replicas(osd, &write);
    pg.in_flight.borrow_mut().push(write);
    match ready {
        Some(_) => pg.local_commit(osd, version.version),
        None => pg.commits.push(pg.turn.get(), version, commit),
    }
}

/// The outcome of a request that was executed before.
pub(super) fn replayed(op: &ClientOp, done: Done) -> Outcome {
    let outputs = op.request.ops.iter().map(|_| (0, carmine_reactor::Payload::new())).collect();
    let (version, user_version) = (done.version, done.user_version);
    Outcome { result: done.result, outputs, version, user_version, extra: None }
}

/// What the client is told when the store takes nothing.
pub(super) fn refused(error: &StoreError, pg: &Pg) -> i32 {
    tracing::warn!("pg {}: write refused: {error}", pg.id);
    failed(error)
}
