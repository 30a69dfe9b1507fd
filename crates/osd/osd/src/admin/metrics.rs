//! `dump_metrics`: all metrics by their names, as Crimson's command of that name has them, and the raw clocks and counters
//! of each shard in nanoseconds, for whoever computes differences.

use std::rc::Rc;

use carmine_metrics::MetricSet;
use serde_json::{Value, json};

use super::on_all;
use crate::live::gather;
use crate::shard::OsdShard;

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    json!({
        "osd": osd.config.id.0,
        "shards": on_all(osd, raw).await,
        "kv": gather::kv(osd).await.map(|kv| kv.to_json()),
        "metrics": gather::all(osd).await.flat_json(),
    })
}

fn raw(osd: &OsdShard) -> Value {
    let mut reactor = osd.shard.stats().to_json();
    reactor["tid"] = osd.shard.tid().into();
    let metrics = osd.metrics.borrow();
    json!({
        "shard": osd.shard.id().0,
        "reactor": reactor,
        "osd": metrics.to_json(),
        "net": carmine_messenger::traffic(&osd.shard).to_json(),
        "hopped_ops": metrics.op_hops,
        "stages": osd.stages.borrow().to_json(),
        "store": osd.store.stats().to_json(),
    })
}
