//! Pools: `osd pool ls detail`, `stats`, `autoscale-status`, and their part of `osd dump`.

use carmine_wire::osdmap::consts::{POOL_FLAG_NAMES, POOL_POOL_SNAPS};
use carmine_wire::osdmap::{OsdMap, PgPool, PoolOpt, PoolSnap};
use carmine_wire::pg_stat::ObjectStatSum;
use serde_json::{Map, Value, json};

use super::autoscale::mode;
use super::dump::time;
use super::share;
use super::table::bytes;
use crate::command::View;
use crate::stats::unsigned;

/// The pools' lines of `osd dump`.
pub(crate) fn text(map: &OsdMap) -> String {
    carmine_crush::print::print_pools(map)
}

/// The same for `osd pool ls detail`, where the number has another name.
pub(crate) fn detail_json(map: &OsdMap) -> Value {
    let mut all = json(map);
    for one in all.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let id = one.remove("pool");
        one.extend(id.map(|id| ("pool_id".to_owned(), id)));
    }
    all
}

/// An object for each pool, as in `osd dump`.
pub(crate) fn json(map: &OsdMap) -> Value {
    map.pools.iter().map(|(id, pool)| one(*id, map.pool_name(*id).unwrap_or_default(), pool)).collect()
}

fn one(id: i64, name: &str, pool: &PgPool) -> Value {
    let flags: Vec<&str> =
        POOL_FLAG_NAMES.iter().filter(|(bit, _)| pool.flags & bit != 0).map(|(_, name)| *name).collect();
    let meta = &pool.last_pg_merge_meta;
    let snap = |s: &PoolSnap| json!({ "snapid": s.snapid, "stamp": time(s.stamp), "name": s.name });
    let snaps: Vec<Value> = pool.snaps.values().map(snap).collect();
    let option = |(key, value): (&i32, &PoolOpt)| {
        let value = match value {
            PoolOpt::Text(text) => json!(text),
            PoolOpt::Int(number) => json!(number),
            PoolOpt::Float(number) => json!(number),
        };
        (carmine_crush::print::pool_option(*key), value)
    };
    json!({
        "pool": id, "pool_name": name, "create_time": time(pool.create_time), "flags": pool.flags,
        "flags_names": flags.join(","), "type": pool.kind, "size": pool.size, "min_size": pool.min_size,
        "crush_rule": pool.crush_rule, "peering_crush_bucket_count": 0, "peering_crush_bucket_target": 0,
        "peering_crush_bucket_barrier": 0, "peering_crush_bucket_mandatory_member": i32::MAX,
        "object_hash": pool.object_hash,
        "pg_autoscale_mode": mode(pool),
        "pg_num": pool.pg_num, "pg_placement_num": pool.pgp_num, "pg_placement_num_target": pool.pgp_num_target,
        "pg_num_target": pool.pg_num_target, "pg_num_pending": pool.pg_num_pending,
        "last_pg_merge_meta": {
            "source_pgid": meta.source_pg.to_string(), "ready_epoch": meta.ready_epoch.0,
            "last_epoch_started": meta.last_epoch_started.0, "last_epoch_clean": meta.last_epoch_clean.0,
            "source_version": meta.source_version.to_string(), "target_version": meta.target_version.to_string(),
        },
        "last_change": pool.last_change.to_string(),
        "last_force_op_resend": pool.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": pool.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": pool.last_force_op_resend_preluminous.to_string(),
        "auid": pool.auid, "snap_mode": if pool.flags & POOL_POOL_SNAPS == 0 { "selfmanaged" } else { "pool" },
        "snap_seq": pool.snap_seq, "snap_epoch": pool.snap_epoch.0, "pool_snaps": snaps, "removed_snaps": "[]",
        "quota_max_bytes": pool.quota_max_bytes, "quota_max_objects": pool.quota_max_objects,
        "tiers": pool.tiers, "tier_of": pool.tier_of, "read_tier": pool.read_tier, "write_tier": pool.write_tier,
        "cache_mode": "none", "target_max_bytes": pool.target_max_bytes, "target_max_objects": pool.target_max_objects,
        "cache_target_dirty_ratio_micro": pool.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": pool.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": pool.cache_target_full_ratio_micro,
        "cache_min_flush_age": pool.cache_min_flush_age_s, "cache_min_evict_age": pool.cache_min_evict_age_s,
        "erasure_code_profile": pool.erasure_code_profile, "hit_set_params": { "type": "none" },
        "hit_set_period": pool.hit_set_period_s, "hit_set_count": pool.hit_set_count,
        "use_gmt_hitset": pool.use_gmt_hitset,
        "min_read_recency_for_promote": pool.min_read_recency_for_promote,
        "min_write_recency_for_promote": pool.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": pool.hit_set_grade_decay_rate,
        "hit_set_search_last_n": pool.hit_set_search_last_n, "grade_table": [],
        "stripe_width": pool.stripe_width, "expected_num_objects": pool.expected_num_objects,
        "fast_read": pool.fast_read, "options": pool.opts.iter().map(option).collect::<Map<_, _>>(),
        "application_metadata": pool.application_metadata,
    })
}

fn wanted<'a>(view: &View<'a>, name: Option<&str>) -> Vec<(i64, &'a str)> {
    let all = view.map.pool_names.iter().map(|(id, name)| (*id, name.as_str()));
    all.filter(|(_, own)| name.is_none_or(|name| name == *own)).collect()
}

/// `osd pool stats`.
pub(crate) fn stats_text(view: &View<'_>, name: Option<&str>) -> String {
    let held = view.stats.pools();
    let one = |(id, name)| {
        let (sum, rate) = (held.get(&id).copied().unwrap_or_default(), view.stats.rate(id));
        let recovery = recovery_text(&rate).map(|io| format!("recovery io {io}"));
        let client = io_text(&rate).map(|io| format!("client io {io}"));
        let mut lines: Vec<String> = share::lines(&sum).into_iter().chain(recovery).chain(client).collect();
        if lines.is_empty() {
            lines.push("nothing is going on".to_owned());
        }
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        format!("pool {name} id {id}\n{lines}\n")
    };
    wanted(view, name).into_iter().map(one).collect()
}

/// Rates of clients' operations in words, if there are any.
pub(super) fn io_text(rate: &ObjectStatSum) -> Option<String> {
    let ObjectStatSum { num_read, num_read_kb, num_write, num_write_kb, .. } = rate;
    let moved = [(num_read_kb, "rd"), (num_write_kb, "wr")].into_iter().filter(|(kb, _)| **kb > 0);
    let moved = moved.map(|(kb, what)| format!("{}/s {what}, ", bytes(kb_bytes(*kb)))).collect::<String>();
    (*num_read > 0 || *num_write > 0).then(|| format!("{moved}{num_read} op/s rd, {num_write} op/s wr"))
}

fn kb_bytes(kb: i64) -> u64 {
    unsigned(kb).saturating_mul(1024)
}

/// The rate of the recovery in words, if there is any.
pub(super) fn recovery_text(rate: &ObjectStatSum) -> Option<String> {
    let ObjectStatSum { num_objects_recovered, num_bytes_recovered, .. } = rate;
    let is_any = *num_objects_recovered > 0 || *num_bytes_recovered > 0;
    is_any.then(|| format!("{}/s, {num_objects_recovered} objects/s", bytes(unsigned(*num_bytes_recovered))))
}

/// The same by name.
pub(super) fn recovery_json(rate: &ObjectStatSum) -> Value {
    match recovery_text(rate) {
        None => json!({}),
        Some(_) => json!({
            "recovering_objects_per_sec": rate.num_objects_recovered,
            "recovering_bytes_per_sec": rate.num_bytes_recovered, "recovering_keys_per_sec": 0,
        }),
    }
}

/// Rates of clients' operations by name: what is not 0.
pub(super) fn io_json(rate: &ObjectStatSum) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, rate: u64| out.insert(name.to_owned(), rate.into());
    if rate.num_read_kb > 0 {
        put("read_bytes_sec", kb_bytes(rate.num_read_kb));
    }
    if rate.num_write_kb > 0 {
        put("write_bytes_sec", kb_bytes(rate.num_write_kb));
    }
    if rate.num_read > 0 || rate.num_write > 0 {
        put("read_op_per_sec", unsigned(rate.num_read));
        put("write_op_per_sec", unsigned(rate.num_write));
    }
    out.into()
}

/// The same by name.
pub(crate) fn stats_json(view: &View<'_>, name: Option<&str>) -> Value {
    let held = view.stats.pools();
    let one = |(id, name)| {
        let rate = view.stats.rate(id);
        json!({
            "pool_name": name, "pool_id": id, "recovery": share::json(&held.get(&id).copied().unwrap_or_default()),
            "recovery_rate": recovery_json(&rate), "client_io_rate": io_json(&rate),
        })
    };
    wanted(view, name).into_iter().map(one).collect()
}
