//! Text and JSON of the cluster's state, in the shape that Ceph's tools print it.

use std::fmt::Write as _;

use carmine_types::{OsdId, UTime};
use carmine_wire::addr::EntityAddrVec;
use carmine_wire::osdmap::{OsdMap, PgPool};
use serde_json::{Value, json};

use crate::command::View;

/// All OSDs, those up, those in.
pub(crate) fn osd_counts(map: &OsdMap) -> (usize, usize, usize) {
    let count = |test: fn(&OsdMap, OsdId) -> bool| map.osds().filter(|osd| test(map, *osd)).count();
    (map.osds().count(), count(OsdMap::is_up), count(OsdMap::is_in))
}

fn down_list(map: &OsdMap) -> Vec<OsdId> {
    map.osds().filter(|osd| !map.is_up(*osd)).collect()
}

/// What is wrong, one line each.
fn complaints(map: &OsdMap) -> Vec<(&'static str, String)> {
    let down = down_list(map);
    if down.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = down.iter().take(16).map(ToString::to_string).collect();
    let more = if down.len() > names.len() { ", …" } else { "" };
    vec![("OSD_DOWN", format!("{} osds down: {}{more}", down.len(), names.join(", ")))]
}

fn health(map: &OsdMap) -> &'static str {
    if complaints(map).is_empty() { "HEALTH_OK" } else { "HEALTH_WARN" }
}

pub(crate) fn health_text(map: &OsdMap) -> String {
    let mut out = health(map).to_string();
    for (code, text) in complaints(map) {
        let _ = write!(out, " {code}: {text}");
    }
    out.push('\n');
    out
}

pub(crate) fn health_json(map: &OsdMap) -> Value {
    let checks: serde_json::Map<String, Value> = complaints(map)
        .into_iter()
        .map(|(code, text)| {
            (code.to_string(), json!({ "severity": "HEALTH_WARN", "summary": { "message": text } }))
        })
        .collect();
    json!({ "status": health(map), "checks": checks })
}

fn pg_total(map: &OsdMap) -> u64 {
    map.pools.values().map(|p| u64::from(p.pg_num)).sum()
}

pub(crate) fn status_text(view: &View<'_>) -> String {
    let map = view.map;
    let (all, up, inside) = osd_counts(map);
    let (total, used) = view.stats.space();
    let mut out = format!("  cluster:\n    id:     {}\n    health: {}", map.fsid, health_text(map));
    let _ = write!(
        out,
        "\n  services:\n    mon: 1 daemon at {}\n    osd: {all} osds: {up} up, {inside} in (epoch {})\n",
        view.addr, map.epoch
    );
    let _ = write!(
        out,
        "\n  data:\n    pools:   {} pools, {} pgs\n    objects: {}\n    usage:   {} MiB used, {} MiB / {} MiB avail\n",
        map.pools.len(),
        pg_total(map),
        objects(view),
        used >> 20,
        total.saturating_sub(used) >> 20,
        total >> 20
    );
    out
}

pub(crate) fn status_json(view: &View<'_>) -> Value {
    let map = view.map;
    let (all, up, inside) = osd_counts(map);
    let (total, used) = view.stats.space();
    json!({
        "fsid": map.fsid.to_string(),
        "health": health_json(map),
        "monmap": { "epoch": 1, "num_mons": 1 },
        "osdmap": { "epoch": map.epoch.0, "num_osds": all, "num_up_osds": up, "num_in_osds": inside },
        "pgmap": {
            "num_pools": map.pools.len(), "num_pgs": pg_total(map), "num_objects": objects(view),
            "bytes_used": used, "bytes_total": total, "bytes_avail": total.saturating_sub(used),
        },
    })
}

fn objects(view: &View<'_>) -> u64 {
    view.stats.pools().values().map(|p| p.objects).sum()
}

pub(crate) fn df_text(view: &View<'_>) -> String {
    let (total, used) = view.stats.space();
    let mut out = format!(
        "TOTAL {} MiB, USED {} MiB, AVAIL {} MiB\n",
        total >> 20,
        used >> 20,
        total.saturating_sub(used) >> 20
    );
    let pools = view.stats.pools();
    for (id, name) in &view.map.pool_names {
        let held = pools.get(id).copied().unwrap_or_default();
        let _ =
            writeln!(out, "pool {id} '{name}': {} objects, {} MiB stored", held.objects, held.bytes >> 20);
    }
    out
}

pub(crate) fn df_json(view: &View<'_>) -> Value {
    let (total, used) = view.stats.space();
    let pools = view.stats.pools();
    let pool = |(id, name): (&i64, &String)| {
        let held = pools.get(id).copied().unwrap_or_default();
        json!({ "id": id, "name": name, "stats": { "stored": held.bytes, "objects": held.objects } })
    };
    json!({ "stats": {
        "total_bytes": total, "total_used_bytes": used, "total_avail_bytes": total.saturating_sub(used),
    }, "pools": view.map.pool_names.iter().map(pool).collect::<Vec<_>>() })
}

pub(crate) fn dump_text(map: &OsdMap) -> String {
    carmine_crush::print::print_map(map)
}

pub(crate) fn pools_text(map: &OsdMap) -> String {
    let line = |(id, pool): (&i64, &PgPool)| {
        let name = map.pool_name(*id).unwrap_or_default();
        format!(
            "pool {id} '{name}' replicated size {} min_size {} crush_rule {} object_hash rjenkins pg_num {} pgp_num {} last_change {} application {}\n",
            pool.size,
            pool.min_size,
            pool.crush_rule,
            pool.pg_num,
            pool.pgp_num,
            pool.last_change,
            pool.application_metadata.keys().cloned().collect::<Vec<_>>().join(",")
        )
    };
    map.pools.iter().map(line).collect()
}

pub(crate) fn pools_json(map: &OsdMap) -> Value {
    let one = |(id, pool): (&i64, &PgPool)| {
        json!({
            "pool": id, "pool_name": map.pool_name(*id), "create_time": stamp(pool.create_time), "flags": pool.flags,
            "type": pool.kind, "size": pool.size, "min_size": pool.min_size, "crush_rule": pool.crush_rule,
            "object_hash": pool.object_hash, "pg_num": pool.pg_num, "pg_placement_num": pool.pgp_num,
            "last_change": pool.last_change.0.to_string(), "snap_seq": pool.snap_seq,
            "stripe_width": pool.stripe_width, "application_metadata": pool.application_metadata,
        })
    };
    map.pools.iter().map(one).collect()
}

/// Seconds and nanoseconds: the monitor has no calendar.
fn stamp(time: UTime) -> String {
    time.to_string()
}

fn addrs(list: Option<&EntityAddrVec>) -> Value {
    let text: Vec<String> = list.map(|l| l.0.iter().map(ToString::to_string).collect()).unwrap_or_default();
    json!(format!("[{}]", text.join(",")))
}

pub(crate) fn dump_json(map: &OsdMap) -> Value {
    let osd = |id: OsdId| {
        let at = id.0 as usize;
        let info = map.osd_info.get(at).copied().unwrap_or_default();
        json!({
            "osd": id.0, "uuid": map.osd_uuid.get(at).copied().unwrap_or_default().to_string(),
            "up": u8::from(map.is_up(id)), "in": u8::from(map.is_in(id)),
            "weight": f64::from(map.weight(id)) / 65536.0, "primary_affinity": f64::from(map.affinity(id)) / 65536.0,
            "up_from": info.up_from.0, "up_thru": info.up_thru.0, "down_at": info.down_at.0, "lost_at": info.lost_at.0,
            "public_addrs": addrs(map.client_addrs.get(at)), "cluster_addrs": addrs(map.cluster_addrs.get(at)),
            "state": [if map.is_up(id) { "up" } else { "down" }, "exists"],
        })
    };
    json!({
        "epoch": map.epoch.0, "fsid": map.fsid.to_string(), "created": stamp(map.created),
        "modified": stamp(map.modified), "last_up_change": stamp(map.last_up_change),
        "last_in_change": stamp(map.last_in_change), "flags_num": map.flags, "crush_version": map.crush_version,
        "full_ratio": map.full_ratio, "backfillfull_ratio": map.backfillfull_ratio,
        "nearfull_ratio": map.nearfull_ratio, "pool_max": map.pool_max, "max_osd": map.max_osd,
        "pools": pools_json(map), "osds": map.osds().map(osd).collect::<Vec<_>>(),
    })
}

fn weight(raw: u32) -> f64 {
    f64::from(raw) / 65536.0
}

/// Walks the CRUSH tree from its roots, parents first: depth, item, weight within its parent.
fn walk(map: &OsdMap) -> Vec<(usize, i32, u32)> {
    let crush = &map.crush;
    let buckets = || crush.buckets.iter().flatten();
    let is_child = |id: i32| buckets().any(|b| b.items.contains(&id));
    let mut stack: Vec<(usize, i32, u32)> =
        buckets().filter(|b| !is_child(b.id)).map(|b| (0, b.id, b.weight)).collect();
    stack.reverse();
    let mut out = Vec::new();
    // A map with a cycle has no root on it, so the walk ends; the limit is for maps made by others.
    let limit = crush.buckets.len() + map.osd_state.len() + 1;
    while let Some((depth, id, weight)) = stack.pop() {
        out.push((depth, id, weight));
        if out.len() > limit {
            break;
        }
        if let Some(bucket) = buckets().find(|b| b.id == id) {
            let children = bucket.items.iter().enumerate();
            stack.extend(children.rev().map(|(at, item)| (depth + 1, *item, bucket.item_weight(at))));
        }
    }
    out
}

fn item_name(map: &OsdMap, id: i32) -> String {
    let named = map.crush.item_names.get(&id).cloned();
    named.unwrap_or_else(|| if id >= 0 { format!("osd.{id}") } else { format!("bucket{id}") })
}

fn item_type(map: &OsdMap, id: i32) -> String {
    let kind = map.crush.buckets.iter().flatten().find(|b| b.id == id).map_or(0, |b| i32::from(b.kind_id));
    map.crush.type_names.get(&kind).cloned().unwrap_or_else(|| format!("type{kind}"))
}

pub(crate) fn tree_text(map: &OsdMap) -> String {
    let mut out =
        format!("{:>4}  {:>9}  {:<28} {:<6} {}\n", "ID", "WEIGHT", "TYPE NAME", "STATUS", "REWEIGHT");
    for (depth, id, w) in walk(map) {
        let mut name = "    ".repeat(depth);
        if id < 0 {
            let _ = write!(name, "{} ", item_type(map, id));
        }
        name.push_str(&item_name(map, id));
        let _ = write!(out, "{id:>4}  {:>9.5}  {name:<28}", weight(w));
        if let Ok(osd) = u32::try_from(id) {
            let up = if map.is_up(OsdId(osd)) { "up" } else { "down" };
            let _ = write!(out, " {up:<6} {:.5}", weight(map.weight(OsdId(osd))));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

pub(crate) fn tree_json(map: &OsdMap) -> Value {
    let node = |(depth, id, w): (usize, i32, u32)| {
        let mut node = json!({
            "id": id, "name": item_name(map, id), "depth": depth, "crush_weight": weight(w),
            "type": if id < 0 { item_type(map, id) } else { "osd".into() },
        });
        if let Ok(osd) = u32::try_from(id) {
            node["status"] = json!(if map.is_up(OsdId(osd)) { "up" } else { "down" });
            node["reweight"] = json!(weight(map.weight(OsdId(osd))));
        } else if let Some(b) = map.crush.buckets.iter().flatten().find(|b| b.id == id) {
            node["children"] = json!(b.items);
        }
        node
    };
    json!({ "nodes": walk(map).into_iter().map(node).collect::<Vec<_>>(), "stray": [] })
}
