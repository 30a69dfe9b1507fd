//! Questions of tools: how PGs are dealt, in what state they are, what the reactors counted.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_metrics::MetricSet;
use carmine_reactor::{Group, ShardId};
use carmine_types::errno;
use carmine_wire::private::{Admin, AdminReply, RouteReply};
use serde_json::{Value, json};

use crate::shard::OsdShard;

/// An answer to an admin question: a JSON object, or what is wrong with the question.
pub type AdminAnswer = Pin<Box<dyn Future<Output = Result<Value, String>>>>;

/// Questions that the OSD itself does not know; `None` if this hook does not know them either. Called on the shard that
/// the question arrived on.
pub trait AdminHook {
    /// Answers the question with this prefix.
    fn answer(&self, osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Option<AdminAnswer>;
}

/// The hook as a shard keeps it.
pub(crate) struct Hook(pub Box<dyn AdminHook>);

/// Tells a client which reactor owns which PG.
pub(crate) fn route(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let reply = RouteReply {
        epoch: osd.epoch(),
        reactors: osd.ports.borrow().clone(),
        pgs: osd.table.borrow().iter().map(|(pg, shard)| (pg, shard.0)).collect(),
    };
    conn.send(Message::of(&reply).with_tid(msg.header.tid));
}

/// Answers a tool.
pub(crate) fn admin(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: &Message) {
    let tid = msg.header.tid;
    let question = match msg.decode::<Admin>().map_err(|e| e.to_string()) {
        Ok(admin) => serde_json::from_slice::<Value>(&admin.json).map_err(|e| format!("bad JSON: {e}")),
        Err(error) => Err(error),
    };
    let (osd, conn) = (Rc::clone(osd), Rc::clone(conn));
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "admin", async move {
        let answer = match question {
            Ok(question) => answer(&osd, &question).await,
            Err(error) => Err(error),
        };
        let (result, json) = match answer {
            Ok(value) => (0, value),
            Err(error) => (errno::EINVAL, json!({ "error": error })),
        };
        conn.send(Message::of(&AdminReply { result, json: json.to_string().into_bytes() }).with_tid(tid));
    });
}

async fn answer(osd: &Rc<OsdShard>, question: &Value) -> Result<Value, String> {
    let prefix = question["prefix"].as_str().ok_or("the question has no \"prefix\"")?;
    match prefix {
        "status" => Ok(status(osd).await),
        "dump_metrics" => Ok(json!({ "osd": osd.config.id.0, "shards": on_all(osd, metrics).await })),
        "dump_ops_in_flight" => Ok(json!({ "shards": on_all(osd, in_flight).await })),
        "pg_contents" => crate::scrub::contents(osd).await,
        _ => {
            let hook = osd.shard.local::<Hook>();
            match hook.and_then(|hook| hook.0.answer(osd, prefix, question)) {
                Some(answer) => answer.await,
                None => Err(format!(
                    "unknown command {prefix:?}: status, dump_metrics, dump_ops_in_flight, pg_contents or bench"
                )),
            }
        }
    }
}

/// One value from every shard, in order.
async fn on_all(osd: &Rc<OsdShard>, read: fn(&OsdShard) -> Value) -> Vec<Value> {
    let mut values = Vec::new();
    for to in (0..osd.shard.shards()).map(ShardId) {
        let value =
            osd.shard.call(to, move |shard| async move { OsdShard::of(&shard).map(|osd| read(&osd)) });
        values.extend(value.await);
    }
    values
}

async fn status(osd: &Rc<OsdShard>) -> Value {
    let shards = on_all(osd, pg_states).await;
    let all: Vec<&Value> = shards.iter().filter_map(|s| s["pgs"].as_array()).flatten().collect();
    let primary: Vec<&&Value> = all.iter().filter(|pg| pg["primary"] == true).collect();
    let active = primary.iter().filter(|pg| pg["state"] == "active+clean").count();
    let fs = osd.store.statfs();
    json!({
        "osd": osd.config.id.0,
        "epoch": osd.epoch().0,
        "reactors": osd.shard.shards(),
        "store": osd.store.kind().to_string(),
        "space": { "total_bytes": fs.total, "used_bytes": fs.used, "free_bytes": fs.free },
        "pgs": { "total": primary.len(), "active": active, "clean": active },
        "pgs_per_reactor": osd.table.borrow().counts(osd.shard.shards()),
        "pg_states": all,
    })
}

fn pg_states(osd: &OsdShard) -> Value {
    let pgs = osd.pgs.borrow();
    let states = pgs.values().map(|pg| {
        let (state, why) = pg.phase.borrow().describe();
        let members = pg.acting();
        json!({
            "pg": pg.id.to_string(),
            "state": state,
            "why": why,
            "reactor": osd.shard.id().0,
            "primary": members.first() == Some(&osd.config.id),
            "acting": members.iter().map(|m| m.0).collect::<Vec<_>>(),
            "last_update": pg.log.borrow().info.last_update.to_string(),
            "ops_waiting": pg.waiting.borrow().len(),
        })
    });
    json!({ "pgs": states.collect::<Vec<_>>() })
}

fn metrics(osd: &OsdShard) -> Value {
    let r = osd.shard.stats();
    let s = osd.store.stats();
    let net = carmine_messenger::traffic(&osd.shard);
    json!({
        "shard": osd.shard.id().0,
        "reactor": {
            "tid": osd.shard.tid(), "turns": r.turns, "enters": r.enters, "sleeps": r.sleeps, "spins": r.spins,
            "polls": r.polls, "tasks": r.tasks, "ops": r.ops, "ops_in_flight": r.ops_in_flight,
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
            "groups": s.groups, "kv_commits": s.kv_commits, "kv_bytes": s.kv_bytes, "kv_commit_ns": s.kv_commit_ns,
            "cache_hits": s.cache_hits, "cache_misses": s.cache_misses, "cache_bytes": s.cache_bytes,
            "bytes_copied": s.bytes_copied, "corrupt_blocks": s.corrupt_blocks,
        },
    })
}

fn in_flight(osd: &OsdShard) -> Value {
    let pgs = osd.pgs.borrow();
    let busy = pgs
        .values()
        .map(|pg| (pg, pg.busy_objects(), pg.in_flight.borrow().len(), pg.waiting.borrow().len()));
    let busy = busy.filter(|(_, objects, writes, waiting)| objects + writes + waiting > 0);
    let pgs: Vec<Value> = busy
        .map(|(pg, objects, writes, waiting)| {
            json!({ "pg": pg.id.to_string(), "objects": objects, "writes_not_durable": writes, "waiting_for_pg": waiting })
        })
        .collect();
    json!({ "shard": osd.shard.id().0, "waiting_for_map": osd.waiting.borrow().len(), "pgs": pgs })
}
