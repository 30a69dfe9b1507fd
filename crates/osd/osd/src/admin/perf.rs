//! `perf dump`: the counters of the OSD under Ceph's names, as far as they mean the same; everything else is in
//! `dump_metrics`.

use std::rc::Rc;

use carmine_metrics::{Histogram, MetricSet};
use carmine_reactor::ShardId;
use serde_json::{Value, json};

use crate::metrics::ShardMetrics;
use crate::shard::OsdShard;

/// The part of one shard, or of several.
#[derive(Default)]
struct Part {
    metrics: ShardMetrics,
    /// PGs whose acting set this OSD is in.
    served: usize,
    /// PGs that it leads.
    led: usize,
    /// Operations in flight.
    busy: usize,
}

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    let mut all = Part::default();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let part = osd.shard.call(to, |shard| async move { OsdShard::of(&shard).map(|osd| Part::of(&osd)) });
        all.add(&part.await.unwrap_or_default());
    }
    let (m, space) = (&all.metrics, osd.store.statfs());
    let mut both = m.read_latency_ns.clone();
    both.merge(&m.write_latency_ns);
    json!({ "osd": {
        "op": m.ops,
        "op_r": m.read_ops,
        "op_w": m.write_ops,
        "op_out_bytes": m.read_bytes,
        "op_r_out_bytes": m.read_bytes,
        "op_in_bytes": m.write_bytes,
        "op_w_in_bytes": m.write_bytes,
        "subop": m.replica_ops,
        "subop_w": m.replica_ops,
        "op_latency": time(&both),
        "op_r_latency": time(&m.read_latency_ns),
        "op_w_latency": time(&m.write_latency_ns),
        "op_wip": all.busy,
        "numpg": all.served,
        "numpg_primary": all.led,
        "numpg_replica": all.served.saturating_sub(all.led),
        "numpg_stray": 0,
        "osd_map_epoch": osd.epoch().0,
        "stat_bytes": space.total,
        "stat_bytes_used": space.used,
        "stat_bytes_avail": space.free,
    }})
}

/// A time as Ceph has it: seconds, and how many of them.
fn time(times: &Histogram) -> Value {
    let (count, sum_s) = (times.count(), times.sum() as f64 / 1e9);
    json!({ "avgcount": count, "sum": sum_s, "avgtime": if count == 0 { 0.0 } else { sum_s / count as f64 } })
}

impl Part {
    fn of(osd: &OsdShard) -> Part {
        let pgs = osd.pgs.borrow();
        Part {
            metrics: osd.metrics.borrow().clone(),
            served: pgs.values().filter(|pg| pg.acting().contains(&osd.config.id)).count(),
            led: pgs.values().filter(|pg| pg.leads()).count(),
            busy: pgs.values().map(|pg| pg.ops_in_flight().len()).sum(),
        }
    }

    fn add(&mut self, other: &Part) {
        self.metrics.merge_from(&other.metrics);
        self.served += other.served;
        self.led += other.led;
        self.busy += other.busy;
    }
}
