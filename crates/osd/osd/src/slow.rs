//! Operations that take too long are told of: how many, at which stage, and what the oldest waits for.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::Group;

use crate::pg::OpInFlight;
use crate::shard::OsdShard;

/// An operation is slow after this time, as in Ceph (`osd_op_complaint_time`).
pub(crate) const COMPLAINT: Duration = Duration::from_secs(30);
/// Time between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// Looks for slow operations of this shard as long as it lives.
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

/// The slow operations of this shard, oldest first.
pub(crate) fn slow_ops(osd: &OsdShard) -> Vec<OpInFlight> {
    let before_ns = osd.shard.now_ns().saturating_sub(COMPLAINT.as_nanos() as u64);
    let mut slow: Vec<OpInFlight> = Vec::new();
    for pg in osd.pgs.borrow().values() {
        // Most of the time nothing is slow, and then nothing is put into words.
        if pg.oldest_ns().is_some_and(|oldest| oldest <= before_ns) {
            slow.extend(pg.ops_in_flight(osd).into_iter().filter(|op| op.op.arrived_ns <= before_ns));
        }
    }
    slow.sort_by_key(|op| op.op.arrived_ns);
    slow
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
