//! From a client's operation to its answer: the order of the steps, and nothing else.

use std::rc::Rc;

use carmine_reactor::Group;
use carmine_types::errno;

use super::{Pg, exec, list, txn};
use crate::metrics::{COMMIT, EXECUTE, QUEUE, REPLY};
use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;

/// What became of a write's execution.
enum Written {
    /// Answer with this.
    Outcome(Outcome),
    /// The PG stopped being active meanwhile: the operation waits for it again.
    Again,
    /// The PG is not ours any more: the client sends the operation to the new primary.
    Gone,
}

/// Starts an operation on an active PG.
pub(crate) fn start(osd: &Rc<OsdShard>, pg: &Rc<Pg>, op: ClientOp) {
    if let Some(result) = op.refusal() {
        return finish(osd, op, Outcome::error(result));
    }
    let (osd, pg) = (Rc::clone(osd), Rc::clone(pg));
    let shard = osd.shard.clone();
    shard.spawn(Group::Client, "client-op", async move {
        if op.request.ops.iter().any(|o| o.is_pg_op()) {
            let outcome = list::execute(&osd, &pg, &op).await;
            finish(&osd, op, outcome);
        } else if op.is_write() {
            write(&osd, &pg, op).await;
        } else {
            read(&osd, &pg, op).await;
        }
    });
}

async fn read(osd: &Rc<OsdShard>, pg: &Rc<Pg>, mut op: ClientOp) {
    let oid = op.oid.clone();
    let object = pg.objects.get(&oid);
    let turn = object.read_turn().await;
    lap(osd, &mut op, QUEUE);
    if !pg.is_active() {
        // What is here may not be what all have, or not be the newest any more.
        drop(turn);
        drop(object);
        pg.take(osd, op);
        return;
    }
    let outcome = exec::read_only(osd, &op).await;
    drop(turn);
    lap(osd, &mut op, EXECUTE);
    finish(osd, op, outcome);
}

async fn write(osd: &Rc<OsdShard>, pg: &Rc<Pg>, mut op: ClientOp) {
    match execute_write(osd, pg, &mut op).await {
        Written::Outcome(outcome) => finish(osd, op, outcome),
        Written::Again => pg.take_again(osd, op),
        Written::Gone => osd.metrics.borrow_mut().ops_dropped.inc(),
    }
}

async fn execute_write(osd: &Rc<OsdShard>, pg: &Rc<Pg>, op: &mut ClientOp) -> Written {
    let oid = op.oid.clone();
    let object = pg.objects.get(&oid);
    let turn = object.write_turn().await;
    lap(osd, op, QUEUE);
    if !pg.is_active() {
        return Written::Again;
    }
    let done = pg.log.borrow().find(&op.reqid);
    if let Some(done) = done {
        drop(turn);
        osd.metrics.borrow_mut().dups.inc();
        return if pg.committed(done.version).await {
            Written::Outcome(txn::replayed(op, done))
        } else {
            Written::Gone
        };
    }
    let plan = match exec::plan_write(osd, op).await {
        Ok(plan) => plan,
        Err(result) => return Written::Outcome(Outcome::error(result)),
    };
    if plan.ops.is_empty() {
        return Written::Outcome(Outcome { outputs: plan.outputs, ..Outcome::default() });
    }
    let prepared = match osd.store.prepare(&plan.ops).await {
        Ok(prepared) => prepared,
        Err(error) => return Written::Outcome(Outcome::error(txn::refused(&error, pg))),
    };
    if !pg.is_active() {
        return Written::Again;
    }
    // From here to the end of `submit` nothing suspends: versions, the log and the store stay in step.
    let submitted = txn::submit(osd, pg, op, plan);
    let uncommitted = object.uncommitted();
    drop((prepared, turn));
    lap(osd, op, EXECUTE);
    let (in_flight, outcome) = match submitted {
        Ok(submitted) => submitted,
        Err(result) => return Written::Outcome(Outcome::error(result)),
    };
    let durable = in_flight.wait().await;
    drop(uncommitted);
    lap(osd, op, COMMIT);
    match durable {
        Some(Ok(())) => Written::Outcome(outcome),
        Some(Err(error)) => {
            tracing::error!("pg {}: a write is lost to the client: {error}", pg.id);
            Written::Outcome(Outcome::error(errno::EIO))
        }
        None => Written::Gone,
    }
}

fn lap(osd: &OsdShard, op: &mut ClientOp, stage: usize) {
    let now_ns = osd.shard.now_ns();
    osd.stages.borrow_mut().lap(&mut op.clock, stage, now_ns);
}

/// Counts the operation and answers it.
fn finish(osd: &OsdShard, mut op: ClientOp, outcome: Outcome) {
    let is_write = op.is_write();
    let (total_ns, out_bytes) = (op.clock.total(osd.shard.now_ns()), output_bytes(&outcome));
    {
        let mut metrics = osd.metrics.borrow_mut();
        metrics.ops.inc();
        if outcome.result < 0 {
            metrics.errors.inc();
        }
        if is_write {
            metrics.write_ops.inc();
            metrics.write_bytes.add(op.data.len() as u64);
            metrics.write_latency_ns.record(total_ns);
        } else {
            metrics.read_ops.inc();
            metrics.read_bytes.add(out_bytes);
            metrics.read_latency_ns.record(total_ns);
        }
    }
    lap(osd, &mut op, REPLY);
    op.reply(osd, outcome);
}

fn output_bytes(outcome: &Outcome) -> u64 {
    outcome.outputs.iter().map(|(_, data)| data.len() as u64).sum()
}
