//! Reports slow operations: how many, at which stage, and what the oldest waits for.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::Group;

use crate::op::ClientOp;
use crate::pg::OpInFlight;
use crate::shard::OsdShard;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(5);

/// Checks for slow operations of this shard as long as it runs.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "slow-ops", async move {
        while !own.stopping.get() {
            own.shard.sleep(EVERY).await;
            let slow = slow_ops(&own);
            own.metrics.borrow_mut().slow_ops = slow.len() as u64;
            if let Some(text) = describe(&slow, own.shard.now_ns()) {
                tracing::warn!("{text}");
            }
        }
    });
}

/// How many operations are slow (`osd_op_complaint_time`), and the age of the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlowOps {
    pub(crate) count: u64,
    pub(crate) oldest_ns: u64,
}

/// Of all shards.
pub(crate) async fn count_all(osd: &OsdShard) -> SlowOps {
    let mut all = SlowOps::default();
    for part in osd.on_all(|osd| count(osd)).await {
        all.count += part.count;
        all.oldest_ns = all.oldest_ns.max(part.oldest_ns);
    }
    all
}

/// Of this shard.
fn count(osd: &OsdShard) -> SlowOps {
    let (now_ns, before_ns) = (osd.shard.now_ns(), before_ns(osd));
    let mut slow = SlowOps::default();
    let mut note = |op: &Rc<ClientOp>| {
        if op.arrived_ns <= before_ns {
            slow.count += 1;
            slow.oldest_ns = slow.oldest_ns.max(now_ns.saturating_sub(op.arrived_ns));
        }
    };
    osd.waiting.borrow().iter().for_each(&mut note);
    osd.pgs.borrow().values().for_each(|pg| pg.each_op(&mut note));
    slow
}

/// Unanswered operations that arrived before this time are slow.
fn before_ns(osd: &OsdShard) -> u64 {
    osd.shard.now_ns().saturating_sub(osd.options.borrow().complaint.as_nanos() as u64)
}

/// The slow operations of this shard, oldest first.
pub(crate) fn slow_ops(osd: &OsdShard) -> Vec<OpInFlight> {
    // Usually nothing is slow; then skip the descriptions.
    if count(osd).count == 0 {
        return Vec::new();
    }
    let before_ns = before_ns(osd);
    let mut slow = waiting_for_map(osd);
    slow.extend(osd.pgs.borrow().values().flat_map(|pg| pg.ops_in_flight(osd)));
    slow.retain(|op| op.op.arrived_ns <= before_ns);
    slow.sort_by_key(|op| op.op.arrived_ns);
    slow
}

/// The operations of this shard whose clients have a newer map.
pub(crate) fn waiting_for_map(osd: &OsdShard) -> Vec<OpInFlight> {
    let shown = |op: &Rc<ClientOp>| OpInFlight {
        op: Rc::clone(op),
        stage: "waiting_for_map",
        waits_for: format!("map {}, ours is {}", op.request.epoch, osd.epoch()),
    };
    osd.waiting.borrow().iter().map(shown).collect()
}

fn describe(slow: &[OpInFlight], now_ns: u64) -> Option<String> {
    let oldest = slow.first()?;
    let mut stages: BTreeMap<&str, usize> = BTreeMap::new();
    slow.iter().for_each(|op| *stages.entry(op.stage).or_default() += 1);
    let stages: Vec<String> = stages.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
    let op = &oldest.op;
    Some(format!(
        "{} slow ops ({}), oldest for {} s: {} {} of object {} in pg {}: stage {}, waits for {}",
        slow.len(),
        stages.join(", "),
        now_ns.saturating_sub(op.arrived_ns) / 1_000_000_000,
        op.reqid,
        if op.is_write { "write" } else { "read" },
        String::from_utf8_lossy(&op.oid.name),
        op.request.pg,
        oldest.stage,
        oldest.waits_for,
    ))
}
