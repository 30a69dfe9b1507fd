//! `dump_ops_in_flight`: every operation that is not answered yet, with its stage and what it waits for.

use std::rc::Rc;

use serde_json::{Value, json};

use super::on_all;
use crate::op::ClientOp;
use crate::pg::OpInFlight;
use crate::shard::OsdShard;
use crate::slow;

/// Most operations that one shard lists; the count is of all.
const LISTED_MAX: usize = 1_000;

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    let shards = on_all(osd, in_flight).await;
    let total: u64 = shards.iter().filter_map(|shard| shard["num_ops"].as_u64()).sum();
    json!({ "num_ops": total, "shards": shards })
}

/// `dump_blocked_ops`: those that are slow.
pub(super) async fn dump_blocked(osd: &Rc<OsdShard>) -> Value {
    let shards = on_all(osd, blocked).await;
    let total: u64 = shards.iter().filter_map(|shard| shard["num_blocked_ops"].as_u64()).sum();
    json!({ "complaint_time": slow::COMPLAINT.as_secs(), "num_blocked_ops": total, "shards": shards })
}

fn blocked(osd: &OsdShard) -> Value {
    let (now_ns, ops) = (osd.shard.now_ns(), slow::slow_ops(osd));
    json!({
        "shard": osd.shard.id().0,
        "num_blocked_ops": ops.len(),
        "ops": ops.iter().take(LISTED_MAX).map(|op| show(op, now_ns)).collect::<Vec<_>>(),
    })
}

fn in_flight(osd: &OsdShard) -> Value {
    let now_ns = osd.shard.now_ns();
    let mut ops: Vec<OpInFlight> = osd.waiting.borrow().iter().map(|op| before_map(osd, op)).collect();
    ops.extend(osd.pgs.borrow().values().flat_map(|pg| pg.ops_in_flight()));
    // The oldest are the interesting ones.
    ops.sort_by_key(|op| op.op.arrived_ns);
    let unplaced = osd.unplaced.borrow().len();
    json!({
        "shard": osd.shard.id().0,
        "num_ops": ops.len() + unplaced,
        // Not decoded yet: their PG is not in our map.
        "waiting_for_map_of_pg": unplaced,
        "ops": ops.iter().take(LISTED_MAX).map(|op| show(op, now_ns)).collect::<Vec<_>>(),
    })
}

fn before_map(osd: &OsdShard, op: &Rc<ClientOp>) -> OpInFlight {
    OpInFlight {
        op: Rc::clone(op),
        stage: "waiting_for_map",
        waits_for: format!("map {}, ours is {}", op.request.epoch, osd.epoch()),
    }
}

fn show(shown: &OpInFlight, now_ns: u64) -> Value {
    let op = &shown.op;
    json!({
        "client": format!("client.{}", op.reqid.client),
        "reqid": op.reqid.to_string(),
        "object": String::from_utf8_lossy(&op.oid.name),
        "pg": op.request.pg.to_string(),
        "kind": if op.is_write { "write" } else { "read" },
        "age_ms": now_ns.saturating_sub(op.arrived_ns) as f64 / 1e6,
        "stage": shown.stage,
        "waits_for": shown.waits_for,
    })
}
