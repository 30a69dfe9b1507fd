//! Turning a plan into a transaction: version, log entry, local store, replicas: one step without a suspension.

use std::rc::Rc;

use carmine_store::{LogEntry, LogOp, StoreError, Transaction, TxnOp};
use carmine_types::UTime;
use smallvec::smallvec;

use super::Pg;
use super::exec::{Plan, failed};
use super::inflight::Write;
use super::log::Done;
use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;

/// Submits a planned write, which is then in flight until it is durable everywhere.
pub(super) fn submit(osd: &Rc<OsdShard>, pg: &Rc<Pg>, op: Rc<ClientOp>, plan: Plan) {
    debug_assert!(pg.is_active());
    let version = pg.next_version(osd.epoch());
    let Plan { mut ops, delete, prior, outputs, .. } = plan;
    let oid = &*op.oid;
    let entry = LogEntry {
        version,
        prior,
        reqid: op.reqid,
        oid: oid.clone(),
        op: if delete { LogOp::Delete } else { LogOp::Modify },
        user_version: version.version,
        result: 0,
        mtime: mtime(osd, &op),
    };
    let trim_to = pg.log.borrow().trim_point();
    let (rep, rep_data, rep_crc) = pg.encode_rep(osd, &entry, &ops, trim_to);
    if !delete {
        let (user_version, mtime) = (entry.user_version, entry.mtime);
        ops.push(TxnOp::SetMeta { oid: oid.clone(), version, user_version, mtime });
    }
    let log = smallvec![entry.clone()];
    let txn = Transaction { ops, log, log_trim_to: trim_to, ..Transaction::new(pg.id) };
    let commit = osd.store.submit(txn);
    let ready = commit.peek();
    if let Some(Err(error)) = ready {
        return pg.follow(osd, op, Outcome::error(refused(&error, pg)), 0);
    }
    pg.note_entry(entry, trim_to);
    let submitted_ns = osd.shard.now_ns();
    pg.objects.borrow_mut().finish(&op.oid, &op, Some(version.version));
    let outcome = Outcome { result: 0, outputs, version, user_version: version.version };
    let (local_ns, followers) = (0, Vec::new());
    let write = Write { version, op, outcome, submitted_ns, local_ns, rep, rep_data, rep_crc, followers };
    pg.send_to_replicas(osd, &write);
    pg.in_flight.borrow_mut().push(write);
    match ready {
        Some(_) => pg.local_commit(osd, version.version),
        None => pg.commits.push(pg.turn.get(), version, commit),
    }
}

/// The outcome of a request that was applied before.
pub(super) fn replayed(op: &ClientOp, done: Done) -> Outcome {
    let outputs = op.request.ops.iter().map(|_| (0, carmine_reactor::Payload::new())).collect();
    Outcome { result: done.result, outputs, version: done.version, user_version: done.user_version }
}

/// What the client is told when the store takes nothing.
pub(super) fn refused(error: &StoreError, pg: &Pg) -> i32 {
    tracing::warn!("pg {}: write refused: {error}", pg.id);
    failed(error)
}

/// The client's time, or ours if it gave none.
fn mtime(osd: &OsdShard, op: &ClientOp) -> UTime {
    if op.request.mtime == UTime::ZERO { UTime::from_unix(osd.shard.unix_now()) } else { op.request.mtime }
}
