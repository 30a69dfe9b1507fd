//! Read-only commands, each answered with JSON from all shards.

use std::rc::Rc;

use carmine_metrics::MetricSet;
use carmine_pgtypes::ObjectMeta;
use carmine_reactor::Group;
use carmine_store::{OmapRange, StoreError};
use carmine_types::{ObjectId, crc32c};
use serde_json::{Map, Value, json};

use crate::live::gather;
use crate::pg::{OpInFlight, Pg, is_mapper};
use crate::shard::OsdShard;
use crate::slow;

/// `status`: epoch, space, and every PG with its state.
pub(super) async fn status(osd: &Rc<OsdShard>) -> Value {
    let shards = osd.on_all(|osd| pg_states(osd)).await;
    let all: Vec<&Value> = shards.iter().filter_map(|s| s["pgs"].as_array()).flatten().collect();
    let states =
        all.iter().filter(|pg| pg["primary"] == true).map(|pg| pg["state"].as_str().unwrap_or_default());
    let states: Vec<&str> = states.collect();
    let with = |word| states.iter().filter(|state| state.split('+').any(|part| part == word)).count();
    let fs = osd.store.statfs();
    let view = osd.view();
    let map = view.as_ref().map(|view| view.map());
    let own = map.and_then(|map| map.osd_uuid.get(osd.config.id.0 as usize));
    json!({
        "cluster_fsid": map.map(|map| map.fsid.to_string()),
        "osd_fsid": own.map(ToString::to_string),
        "whoami": osd.config.id.0,
        "state": if map.is_some_and(|map| map.is_up(osd.config.id)) { "active" } else { "booting" },
        "newest_map": osd.epoch().0,
        "num_pgs": all.len(),
        "osd": osd.config.id.0,
        "epoch": osd.epoch().0,
        "reactors": osd.shard.shards(),
        "store": osd.store.kind().to_string(),
        "io_path": osd.store.io_path().map(|path| path.word()),
        "space": { "total_bytes": fs.total, "used_bytes": fs.used, "free_bytes": fs.free },
        "pgs": { "total": states.len(), "active": with("active"), "clean": with("clean") },
        "pgs_per_reactor": osd.table.borrow().counts(osd.shard.shards()),
        "pg_states": all,
    })
}

fn pg_states(osd: &OsdShard) -> Value {
    let pgs = osd.pgs.borrow();
    let states = pgs.values().map(|pg| {
        let (state, why) = pg.describe(osd);
        let members = pg.peer.acting();
        json!({
            "pg": pg.id.to_string(),
            "state": state,
            "why": why,
            "reactor": osd.shard.id().0,
            "primary": pg.peer.leads(),
            "acting": members.osds().map(|m| m.0).collect::<Vec<_>>(),
            "last_update": pg.peer.last_update().to_string(),
            "ops_waiting": pg.lengths().0,
        })
    });
    json!({ "pgs": states.collect::<Vec<_>>() })
}

/// `dump_shards`: each reactor's PGs and connections, and how it spent its time.
pub(super) async fn dump_shards(osd: &Rc<OsdShard>) -> Value {
    json!({ "osd": osd.config.id.0, "shards": osd.on_all(|osd| one_shard(osd)).await })
}

fn one_shard(osd: &OsdShard) -> Value {
    let s = osd.shard.stats();
    let pgs = osd.pgs.borrow();
    let groups: Map<String, Value> = Group::ALL
        .iter()
        .zip(osd.shard.group_ns())
        .map(|(group, ns)| (group.word().to_owned(), ns.into()))
        .collect();
    let primary = pgs.values().filter(|pg| pg.peer.leads()).count();
    json!({
        "shard": osd.shard.id().0,
        "tid": osd.shard.tid(),
        "port": osd.ports.borrow().get(usize::from(osd.shard.id().0)).map(|ports| ports.public),
        "epoch": osd.epoch().0,
        "pgs": pgs.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>(),
        "pgs_primary": primary,
        "connections": osd.conns.borrow().len(),
        "tasks": s.tasks,
        "io_in_flight": s.ops_in_flight.saturating_sub(s.ops_standing),
        "io_standing": s.ops_standing,
        "txns_in_flight": osd.store.stats().txns_in_flight,
        "waiting_for_map": osd.waiting.borrow().len() + osd.unplaced.borrow().len(),
        "clocks": {
            "wall_ns": s.wall_ns, "busy_ns": s.busy_ns, "spin_ns": s.spin_ns, "sleep_ns": s.sleep_ns,
            "wait_ns": s.wait_ns, "alien_busy_ns": s.alien_busy_ns,
        },
        "groups_ns": groups,
        "hops": { "sent": s.hops_sent, "received": s.hops_received, "delayed": s.hops_delayed },
        "stalls": s.stalls,
    })
}

// `dump_ops_in_flight`: every operation that is not answered yet, with its stage and what it waits for.

/// Most operations that one shard lists; the count is of all.
const LISTED_MAX: usize = 1_000;

pub(super) async fn dump_ops_in_flight(osd: &Rc<OsdShard>) -> Value {
    let shards = osd.on_all(|osd| in_flight(osd)).await;
    let total: u64 = shards.iter().filter_map(|shard| shard["num_ops"].as_u64()).sum();
    json!({ "ops": as_ceph(&shards), "num_ops": total, "shards": shards })
}

/// `dump_historic_ops` and its relatives: always empty, since answered operations are not kept.
pub(super) fn dump_historic_ops() -> Value {
    json!({ "size": 0, "duration": 0, "ops": [] })
}

/// `dump_historic_slow_ops`: the same.
pub(super) fn dump_historic_slow_ops(osd: &OsdShard) -> Value {
    json!({ "num to keep": 0, "threshold to keep": complaint_s(osd), "Ops": [] })
}

/// The operations of all shards, with Ceph's fields.
fn as_ceph(shards: &[Value]) -> Vec<Value> {
    let ops = shards.iter().filter_map(|shard| shard["ops"].as_array()).flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |op: &Value| {
        let [reqid, pg, object, kind] = ["reqid", "pg", "object", "kind"].map(|key| text(&op[key]));
        let age_s = op["age_ms"].as_f64().unwrap_or_default() / 1e3;
        json!({
            "description": format!("osd_op({reqid} {pg} {object} {kind})"), "age": age_s, "duration": age_s,
            "type_data": { "flag_point": op["stage"], "waits_for": op["waits_for"], "client_info": { "client": op["client"] } },
        })
    };
    ops.map(one).collect()
}

/// `dump_blocked_ops`: those that are slow.
pub(super) async fn dump_blocked_ops(osd: &Rc<OsdShard>) -> Value {
    let shards = osd.on_all(|osd| blocked(osd)).await;
    let total: u64 = shards.iter().filter_map(|shard| shard["num_blocked_ops"].as_u64()).sum();
    let ops = as_ceph(&shards);
    json!({ "ops": ops, "complaint_time": complaint_s(osd), "num_blocked_ops": total, "shards": shards })
}

/// As Ceph prints it: without a fraction if it is whole seconds.
fn complaint_s(osd: &OsdShard) -> Value {
    let complaint = osd.options.borrow().complaint;
    if complaint.subsec_nanos() == 0 { complaint.as_secs().into() } else { complaint.as_secs_f64().into() }
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
    let mut ops = slow::waiting_for_map(osd);
    ops.extend(osd.pgs.borrow().values().flat_map(|pg| pg.ops_in_flight(osd)));
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

/// `dump_metrics`: all metrics by name, as Crimson's command of that name prints them, and each shard's raw clocks and counters
/// in nanoseconds, for computing differences.
pub(super) async fn dump_metrics(osd: &Rc<OsdShard>) -> Value {
    json!({
        "osd": osd.config.id.0,
        "shards": osd.on_all(|osd| raw(osd)).await,
        "kv": gather::kv(osd).await.map(|kv| kv.to_json()),
        "metrics": gather::all(osd).await.flat_json(),
    })
}

fn raw(osd: &OsdShard) -> Value {
    let mut reactor = osd.shard.stats().to_json();
    reactor["tid"] = osd.shard.tid().into();
    let metrics = osd.metrics_now();
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

// A digest of every object of every PG, for comparing copies.

/// Objects listed at a time.
const PAGE: usize = 512;
/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// `{"pgs": {"1.3": {"last_update": …, "objects": {"name": "size version crc", …}}, …}}` of all shards. Reads the whole store:
/// for tests, not for measurements.
pub(super) async fn pg_contents(osd: &Rc<OsdShard>) -> Result<Value, String> {
    let mut all = Map::new();
    for part in osd.call_all(async |osd| pgs_of_shard(&osd).await).await {
        all.extend(part?);
    }
    Ok(json!({ "pgs": all }))
}

async fn pgs_of_shard(osd: &Rc<OsdShard>) -> Result<Map<String, Value>, String> {
    let pgs: Vec<Rc<Pg>> = osd.pgs.borrow().values().cloned().collect();
    let mut found = Map::new();
    for pg in pgs {
        found.insert(pg.id.to_string(), one_pg(osd, &pg).await?);
    }
    Ok(found)
}

async fn one_pg(osd: &Rc<OsdShard>, pg: &Pg) -> Result<Value, String> {
    let mut objects = Map::new();
    let mut from = None;
    loop {
        let page = osd.store.list(pg.id, pg.peer.bits(), from.as_ref(), PAGE + 1).await;
        let page = page.map_err(|e| e.to_string())?;
        for oid in page.iter().take(PAGE).filter(|oid| !is_mapper(oid)) {
            let Some(meta) = osd.store.stat(oid).await.map_err(|e| e.to_string())? else { continue };
            let (mut off, mut crc) = (0, crc32c::SEED);
            while off < meta.size {
                let data = osd.store.read(oid, off, READ_BYTES).await.map_err(|e| e.to_string())?;
                crc = data.crc32c(crc);
                off += READ_BYTES;
            }
            let attrs = attrs_crc(osd, oid, &meta).await.map_err(|e| e.to_string())?;
            let digest = format!("{} {} {crc:08x} {attrs:08x}", meta.size, meta.version);
            objects.insert(oid.to_string(), json!(digest));
        }
        from = page.into_iter().nth(PAGE);
        if from.is_none() {
            break;
        }
    }
    Ok(json!({ "last_update": pg.peer.last_update().to_string(), "objects": objects }))
}

/// The checksum of an object's xattrs and omap.
async fn attrs_crc(osd: &OsdShard, oid: &ObjectId, meta: &ObjectMeta) -> Result<u32, StoreError> {
    let part =
        |crc: u32, bytes: &[u8]| crc32c::raw(crc32c::raw(crc, &(bytes.len() as u32).to_le_bytes()), bytes);
    let mut crc = meta.xattrs.iter().fold(crc32c::SEED, |crc, (name, value)| part(part(crc, name), value));
    let header = osd.store.omap_header(oid).await?;
    crc = if header.is_empty() { crc } else { part(crc, &header) };
    let mut range = OmapRange::all(READ_BYTES as usize);
    loop {
        let page = osd.store.omap_page(oid, &range).await?;
        crc = page.entries.iter().fold(crc, |crc, (key, value)| part(part(crc, key), value));
        range = range.after(&page);
        if !page.more {
            return Ok(crc);
        }
    }
}
