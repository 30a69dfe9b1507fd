//! Turning a plan into a transaction: version, log entry, local store, replicas: one step without a suspension.

use std::rc::Rc;

use carmine_store::{LogEntry, LogOp, StoreError, Transaction, TxnOp};
use carmine_types::UTime;
use smallvec::smallvec;

use super::Pg;
use super::exec::{Plan, failed};
use super::log::Done;
use super::replicate::{InFlight, send_to_replicas};
use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;

/// Submits a planned write. On success: the write in flight, and the outcome to answer with once it is durable.
pub(crate) fn submit(
    osd: &Rc<OsdShard>,
    pg: &Rc<Pg>,
    op: &ClientOp,
    plan: Plan,
) -> Result<(Rc<InFlight>, Outcome), i32> {
    let version = pg.next_version(osd.epoch());
    let Plan { mut ops, delete, prior, outputs } = plan;
    let entry = LogEntry {
        version,
        prior,
        reqid: op.reqid,
        oid: op.oid.clone(),
        op: if delete { LogOp::Delete } else { LogOp::Modify },
        user_version: version.version,
        result: 0,
        mtime: mtime(osd, op),
    };
    if !delete {
        let oid = op.oid.clone();
        ops.push(TxnOp::SetMeta { oid, version, user_version: entry.user_version, mtime: entry.mtime });
    }
    let trim_to = pg.log.borrow().trim_point();
    let in_flight = InFlight::new(version, pg, osd, &ops, &entry, trim_to);
    let log = smallvec![entry.clone()];
    let txn = Transaction { ops, log, log_trim_to: trim_to, ..Transaction::new(pg.id) };
    let commit = osd.store.submit(txn);
    if let Some(Err(error)) = commit.peek() {
        return Err(refused(&error, pg));
    }
    {
        let mut log = pg.log.borrow_mut();
        log.push(entry);
        if let Some(to) = trim_to {
            log.trim(to);
        }
    }
    in_flight.start(osd, commit);
    pg.in_flight.borrow_mut().push_back(Rc::clone(&in_flight));
    send_to_replicas(osd, pg, &in_flight);
    // Without replicas and with a store that commits at once there is nothing to wait for.
    pg.settle();
    let outcome = Outcome { result: 0, outputs, version, user_version: version.version };
    Ok((in_flight, outcome))
}

/// The outcome of a request that was applied before.
pub(crate) fn replayed(op: &ClientOp, done: Done) -> Outcome {
    let outputs = op.request.ops.iter().map(|_| (0, carmine_reactor::Payload::new())).collect();
    Outcome { result: done.result, outputs, version: done.version, user_version: done.user_version }
}

/// What the client is told when the store takes nothing.
pub(crate) fn refused(error: &StoreError, pg: &Pg) -> i32 {
    tracing::warn!("pg {}: write refused: {error}", pg.id);
    failed(error)
}

/// The client's time, or ours if it gave none.
fn mtime(osd: &OsdShard, op: &ClientOp) -> UTime {
    if op.request.mtime == UTime::ZERO { UTime::from_unix(osd.shard.unix_now()) } else { op.request.mtime }
}
