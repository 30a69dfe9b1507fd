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
        "kv": kv(osd).await,
        "metrics": gather::all(osd).await.flat_json(),
    })
}

/// CPU time of the key-value store's own threads and of those that feed it; `null` for stores that have none.
async fn kv(osd: &OsdShard) -> Value {
    let feeder_cpu_ns = osd.store.stats().feeder_cpu_ns;
    osd.store.kv_cpu().await.map_or(Value::Null, |cpu| {
        json!({"feeder_cpu_ns": feeder_cpu_ns, "flush_cpu_ns": cpu.flush_ns, "compaction_cpu_ns": cpu.compaction_ns})
    })
}

fn raw(osd: &OsdShard) -> Value {
    let r = osd.shard.stats();
    let s = osd.store.stats();
    let net = carmine_messenger::traffic(&osd.shard);
    json!({
        "shard": osd.shard.id().0,
        "reactor": {
            "tid": osd.shard.tid(), "turns": r.turns, "enters": r.enters, "sleeps": r.sleeps, "spins": r.spins,
            "polls": r.polls, "tasks": r.tasks, "ops": r.ops, "ops_in_flight": r.ops_in_flight,
            "ops_standing": r.ops_standing,
            "hops_sent": r.hops_sent, "hops_received": r.hops_received, "hops_delayed": r.hops_delayed,
            "wakes_sent": r.wakes_sent, "wall_ns": r.wall_ns, "busy_ns": r.busy_ns, "spin_ns": r.spin_ns,
            "sleep_ns": r.sleep_ns, "wait_ns": r.wait_ns, "alien_busy_ns": r.alien_busy_ns, "alien_jobs": r.alien_jobs,
            "buf_fallbacks": r.buf_fallbacks, "bytes_copied": r.bytes_copied, "stalls": r.stalls,
        },
        "osd": osd.metrics.borrow().to_json(),
        "net": {
            "sent_bytes": net.sent_bytes, "sent_to_osds_bytes": net.sent_to_osds_bytes,
            "received_bytes": net.received_bytes,
        },
        "hopped_ops": osd.metrics.borrow().op_hops.get(),
        "stages": osd.stages.borrow().to_json(),
        "store": {
            "txns": s.txns, "txns_in_flight": s.txns_in_flight, "reads": s.reads,
            "device_writes": s.device_writes, "device_write_bytes": s.device_write_bytes,
            "device_reads": s.device_reads, "device_read_bytes": s.device_read_bytes, "flushes": s.flushes,
            "groups": s.groups, "log_bytes": s.log_bytes, "log_marks": s.log_marks, "log_waits": s.log_waits, "log_trims": s.log_trims,
            "deferred_txns": s.deferred_txns, "deferred_writes": s.deferred_writes, "around_log": s.around_log,
            "held_back": s.held_back, "discards": s.discards, "discard_bytes": s.discard_bytes,
            "kv_commits": s.kv_commits, "kv_bytes": s.kv_bytes, "kv_commit_ns": s.kv_commit_ns,
            "cache_hits": s.cache_hits, "cache_misses": s.cache_misses, "cache_bytes": s.cache_bytes,
            "data_cache_hits": s.data_cache_hits, "data_cache_bytes": s.data_cache_bytes,
            "readahead_blocks": s.readahead_blocks, "readahead_hits": s.readahead_hits,
            "bytes_copied": s.bytes_copied, "corrupt_blocks": s.corrupt_blocks,
            "unreadable_blocks": s.unreadable_blocks, "healed_blocks": s.healed_blocks,
        },
    })
}
