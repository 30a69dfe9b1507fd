//! `perf dump`: the counters of the OSD under Ceph's names, as far as they mean the same; everything else is in
//! `dump_metrics`.

use std::rc::Rc;

use carmine_metrics::Histogram;
use serde_json::{Value, json};

use super::on_all;
use crate::shard::OsdShard;

/// The counters of a shard, in the order in which [`sums`] adds them.
const COUNTS: [&str; 9] =
    ["op", "op_r", "op_w", "op_out_bytes", "op_in_bytes", "subop", "numpg", "numpg_primary", "op_wip"];

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    let shards = on_all(osd, one).await;
    let sum = |key: &str| shards.iter().filter_map(|shard| shard[key].as_u64()).sum::<u64>();
    let time = |keys: &[&str]| {
        let part = |at: usize| {
            let values = keys.iter().flat_map(|key| shards.iter().map(|shard| &shard[*key][at]));
            values.filter_map(Value::as_u64).sum::<u64>()
        };
        let (count, sum_s) = (part(0), part(1) as f64 / 1e9);
        json!({ "avgcount": count, "sum": sum_s, "avgtime": if count == 0 { 0.0 } else { sum_s / count as f64 } })
    };
    let mut out: serde_json::Map<String, Value> =
        COUNTS.iter().map(|key| ((*key).to_owned(), json!(sum(key)))).collect();
    let space = osd.store.statfs();
    let replicas = sum("numpg").saturating_sub(sum("numpg_primary"));
    let more = [
        ("op_latency", time(&["read_ns", "write_ns"])),
        ("op_r_latency", time(&["read_ns"])),
        ("op_w_latency", time(&["write_ns"])),
        ("op_r_out_bytes", json!(sum("op_out_bytes"))),
        ("op_w_in_bytes", json!(sum("op_in_bytes"))),
        ("subop_w", json!(sum("subop"))),
        ("numpg_replica", json!(replicas)),
        ("numpg_stray", json!(0)),
        ("osd_map_epoch", json!(osd.epoch().0)),
        ("stat_bytes", json!(space.total)),
        ("stat_bytes_used", json!(space.used)),
        ("stat_bytes_avail", json!(space.free)),
    ];
    out.extend(more.map(|(key, value)| (key.to_owned(), value)));
    json!({ "osd": out })
}

fn one(osd: &OsdShard) -> Value {
    let m = osd.metrics.borrow();
    let pgs = osd.pgs.borrow();
    let led = pgs.values().filter(|pg| pg.leads()).count();
    let served = pgs.values().filter(|pg| pg.acting().contains(&osd.config.id)).count();
    let busy: usize = pgs.values().map(|pg| pg.ops_in_flight().len()).sum();
    let pair = |times: &Histogram| json!([times.count(), u64::try_from(times.sum()).unwrap_or(u64::MAX)]);
    json!({
        "op": m.ops.get(), "op_r": m.read_ops.get(), "op_w": m.write_ops.get(), "op_out_bytes": m.read_bytes.get(),
        "op_in_bytes": m.write_bytes.get(), "subop": m.replica_ops.get(), "numpg": served, "numpg_primary": led,
        "op_wip": busy, "read_ns": pair(&m.read_latency_ns), "write_ns": pair(&m.write_latency_ns),
    })
}
