//! `ceph pg N query|list_unfound|mark_unfound_lost|scrub|deep_scrub`: what a PG's primary knows of it, in Ceph's format. Fields
//! that Carmine does not track are left out.

use std::collections::BTreeSet;
use std::rc::Rc;

use carmine_crush::print::time;
use carmine_pgtypes::Interval;
use carmine_types::{NO_SHARD, ObjectId, OsdId, SpgId, Uuid, errno};
use carmine_wire::scrub::OsdScrub;
use serde_json::{Value, json};

use super::STATUS;
use crate::pg::{Pg, order_scrubs};
use crate::shard::OsdShard;

/// An answer with this key refuses the command; its value is the reason.
const REFUSED: &str = "refused";

/// The commands of a PG and their help.
const COMMANDS: [(&str, &str); 5] = [
    ("query", "details of a PG"),
    ("list_unfound", "objects of a PG of which no copy is known to be whole"),
    ("mark_unfound_lost", "give up the objects of a PG of which no copy is known to be whole"),
    ("scrub", "compare the copies of a PG"),
    ("deep_scrub", "compare the copies of a PG, and their data"),
];

/// Help and parameters for Ceph's tools: for `ceph pg N COMMAND`, and for `ceph tell N COMMAND`.
pub(super) fn signatures() -> impl Iterator<Item = (&'static str, Value)> {
    let forms = |(name, help): (&'static str, &'static str)| {
        let parameter = match name {
            "list_unfound" => Some(json!({ "name": "offset", "type": "CephString", "req": false })),
            "mark_unfound_lost" => {
                Some(json!({ "name": "mulcmd", "type": "CephChoices", "strings": "revert|delete" }))
            }
            _ => None,
        };
        let pgid = json!({ "name": "pgid", "type": "CephPgid" });
        let choice = json!({ "name": "cmd", "type": "CephChoices", "strings": name });
        let of_pg = [json!("pg"), pgid, choice].into_iter().chain(parameter.clone());
        let told = [json!(name)].into_iter().chain(parameter);
        [(help, of_pg.collect()), (help, told.collect())]
    };
    COMMANDS.into_iter().flat_map(forms)
}

/// Whether it is one of a PG's commands.
pub(super) fn is_of_pg(prefix: &str) -> bool {
    prefix == "pg" || COMMANDS.iter().any(|(name, _)| *name == prefix)
}

/// Refuses a client's question about a PG of which this OSD is not the primary, as Ceph's does. EAGAIN makes librados get a newer
/// map and ask the primary.
///
/// # Errors
/// A negative errno and its reason.
pub(super) fn admit(osd: &OsdShard, question: &Value) -> Result<(), (i32, String)> {
    let named: Option<SpgId> = question["pgid"].as_str().and_then(|text| text.parse().ok());
    let Some(id) = named.filter(|_| question["prefix"].as_str().is_some_and(is_of_pg)) else { return Ok(()) };
    if osd.owner(resolve_shard(osd, id)).is_none() {
        return Err((errno::ENOENT, absent(id)));
    }
    let primary = osd.view().and_then(|view| view.acting_primary(id.pgid));
    if primary == Some(osd.config.id) {
        Ok(())
    } else {
        Err((errno::EAGAIN, format!("not primary for pgid {id}")))
    }
}

/// The shard of a PG that a question means: if it names none, the one that serves clients.
fn resolve_shard(osd: &OsdShard, named: SpgId) -> SpgId {
    if named.shard == NO_SHARD { osd.primary_part(named.pgid) } else { named }
}

fn absent(id: SpgId) -> String {
    format!("i don't have pgid {id}")
}

/// Answers a command on the shard that owns the PG.
pub(super) async fn answer(osd: &Rc<OsdShard>, prefix: &str, question: &Value) -> Result<Value, String> {
    let text = question["pgid"].as_str().ok_or("name a PG: {\"pgid\": \"1.0\"}")?;
    let named: SpgId = text.parse().map_err(|_| format!("{text} is no PG"))?;
    let id = resolve_shard(osd, named);
    let command = if prefix == "pg" { question["cmd"].as_str().unwrap_or("query") } else { prefix };
    let tell = match command {
        "query" => query,
        "list_unfound" => list_unfound,
        "mark_unfound_lost" if matches!(question["mulcmd"].as_str(), Some("revert" | "delete")) => {
            mark_unfound_lost
        }
        "scrub" => |osd: &OsdShard, pg: &Pg| scrub(osd, pg, false),
        "deep_scrub" => |osd: &OsdShard, pg: &Pg| scrub(osd, pg, true),
        "mark_unfound_lost" => return Err("say what becomes of them: revert or delete".to_owned()),
        other => return Err(format!("{other:?} is no command of a PG")),
    };
    let Some(owner) = osd.owner(id) else { return Err(absent(id)) };
    let answer = osd.shard.call(owner, move |shard| async move {
        let osd = OsdShard::on(&shard)?;
        osd.pg(id).map(|pg| tell(&osd, &pg))
    });
    let answer = answer.await.ok_or_else(|| absent(id))?;
    match answer[REFUSED].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(answer),
    }
}

/// Orders a scrub, if this OSD is the PG's primary.
fn scrub(osd: &OsdShard, pg: &Pg, deep: bool) -> Value {
    let epoch = osd.epoch();
    order_scrubs(osd, &OsdScrub { fsid: Uuid::default(), epoch, pgs: vec![pg.id], repair: false, deep });
    json!({ "deep": deep, "epoch": epoch.0 })
}

/// Lists the unfound objects met so far: whether a block can be read is known only after trying.
fn list_unfound(_: &OsdShard, pg: &Pg) -> Value {
    let unfound = pg.recovery.unfound();
    json!({
        "num_missing": unfound.len(),
        "num_unfound": unfound.len(),
        "objects": unfound.iter().map(|oid| unfound_object(pg, oid)).collect::<Vec<_>>(),
        "state": pg.peer.recovery_state_name().rsplit('/').next(),
        "available_might_have_unfound": true,
        "might_have_unfound": might_have_unfound(pg),
        "more": false,
    })
}

fn unfound_object(pg: &Pg, oid: &ObjectId) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "oid": {
            "oid": text(&oid.name),
            "key": text(&oid.key),
            "snapid": oid.snap as i64,
            "hash": oid.hash,
            "max": 0,
            "pool": pg.id.pgid.pool,
            "namespace": text(&oid.nspace),
        },
        "locations": [],
    })
}

/// The OSDs that may have unfound data and cannot be asked.
fn might_have_unfound(pg: &Pg) -> Value {
    let sources = pg.sources().down;
    sources.iter().map(|osd| json!({ "osd": osd.0.to_string(), "status": "osd is down" })).collect()
}

/// An object is unfound only while an OSD that may have it could come back. After that it is lost, and reading its lost blocks is
/// an error.
fn mark_unfound_lost(_: &OsdShard, pg: &Pg) -> Value {
    match pg.recovery.unfound().len() {
        0 => json!({ STATUS: "pg has no unfound objects" }),
        n => {
            json!({ REFUSED: format!("pg has {n} unfound objects but we haven't probed all sources, not marking lost") })
        }
    }
}

fn query(osd: &OsdShard, pg: &Pg) -> Value {
    let (state, why) = pg.describe(osd);
    let mapping = osd.view().map(|view| view.mapping(pg.id.pgid).clone());
    let up = mapping.as_ref().map(|mapping| mapping.up.to_vec()).unwrap_or_default();
    let targets = pg.recovery.targets();
    let acting: Vec<u32> = pg.peer.acting().osds().map(|osd| osd.0).collect();
    let backfilled: Vec<String> =
        targets.iter().filter(|(_, _, place)| place.is_some()).map(|(osd, ..)| osd.0.to_string()).collect();
    let own = osd.config.id.0;
    let peers = acting.iter().filter(|peer| pg.peer.leads() && **peer != own);
    let peers: Vec<Value> = peers.map(|peer| peer_info(pg, &state, *peer, &targets)).collect();
    json!({
        "state": state,
        "epoch": osd.epoch().0,
        "up": up,
        "acting": acting,
        "backfill_targets": backfilled,
        "acting_recovery_backfill": acting.iter().map(u32::to_string).collect::<Vec<_>>(),
        "info": info(pg, &state, None),
        "peer_info": peers,
        "recovery_state": recovery_state(osd, pg, &why, &targets),
        "agent_state": {},
    })
}

/// A member, the objects that it lacks by the log, and where its backfill is.
type Targets = [(OsdId, usize, Option<ObjectId>)];

/// Ceph's notation for a position in the order of objects.
fn place(oid: Option<&ObjectId>) -> String {
    oid.map_or_else(|| "MAX".to_owned(), ToString::to_string)
}

fn info(pg: &Pg, state: &str, last_backfill: Option<&ObjectId>) -> Value {
    let (info, history) = (pg.peer.info(), pg.peer.history());
    let scrubs = info.scrubs;
    let last_complete = if info.incomplete { info.complete_to } else { info.last_update };
    let own_backfill = info.last_backfill.as_ref().filter(|_| info.incomplete);
    let (objects, clones, bytes) = pg.usage();
    json!({
        "pgid": pg.id.to_string(),
        "last_update": info.last_update.to_string(),
        "last_complete": last_complete.to_string(),
        "log_tail": info.log_tail.to_string(),
        "last_user_version": info.last_update.version,
        "last_backfill": place(last_backfill.or(own_backfill)),
        "purged_snaps": [],
        "history": {
            "last_epoch_started": info.last_epoch_started.0,
            "last_epoch_clean": history.last_epoch_clean.0,
            "last_interval_started": info.history.same_interval_since.0,
            "last_interval_clean": history.last_epoch_clean.0,
            "same_interval_since": history.same_interval_since.0,
            "last_scrub": scrubs.last.version.to_string(),
            "last_scrub_stamp": time(scrubs.last.time),
            "last_deep_scrub": scrubs.last_deep.version.to_string(),
            "last_deep_scrub_stamp": time(scrubs.last_deep.time),
            "last_clean_scrub_stamp": time(info.last_clean_scrub()),
        },
        "stats": {
            "version": info.last_update.to_string(),
            "state": state,
            "stat_sum": {
                "num_objects": objects,
                "num_object_clones": clones,
                "num_bytes": bytes,
                "num_objects_missing_on_primary": 0,
            },
        },
        "empty": i32::from(info.last_update == carmine_types::Eversion::ZERO),
        "dne": 0,
        "incomplete": i32::from(info.incomplete),
        "last_epoch_started": info.last_epoch_started.0,
    })
}

/// The state of another member, as the primary knows it: its log is the primary's.
fn peer_info(pg: &Pg, state: &str, peer: u32, targets: &Targets) -> Value {
    let target = targets.iter().find(|(osd, ..)| osd.0 == peer);
    let mut info = info(pg, state, target.and_then(|(.., place)| place.as_ref()));
    info["peer"] = peer.to_string().into();
    info["incomplete"] = i32::from(target.is_some()).into();
    info["stats"]["stat_sum"]["num_objects_missing"] = target.map_or(0, |(_, missing, _)| *missing).into();
    info
}

/// The intervals since all copies were last whole in which clients may have been served.
fn past_intervals(past: &[Interval]) -> Value {
    let first = past.iter().map(|interval| interval.first).min();
    let (Some(first), Some(last)) = (first, past.last()) else { return json!([]) };
    let all: BTreeSet<u32> =
        past.iter().flat_map(|interval| interval.acting.osds()).map(|osd| osd.0).collect();
    let interval = |interval: &Interval| {
        let acting: Vec<String> = interval.acting.osds().map(|osd| osd.0.to_string()).collect();
        json!({
            "first": interval.first.0.to_string(), "last": interval.last.0.to_string(), "acting": acting.join(","),
        })
    };
    json!([{
        "first": first.0.to_string(),
        "last": last.last.0.to_string(),
        "all_participants": all.into_iter().map(|osd| json!({ "osd": osd })).collect::<Vec<_>>(),
        "intervals": past.iter().map(interval).collect::<Vec<_>>(),
    }])
}

/// Adds what a peering primary does: the OSDs that it asks, and those that it waits for.
fn peering_state(osd: &OsdShard, pg: &Pg, state: &mut Value) {
    let blocked_by = pg.peer.blocked_by();
    let lost_at = |id| osd.view().map_or(0, |view| view.map().lost_at(id).0);
    let blocker = |id: &OsdId| {
        json!({
            "osd": id.0,
            "current_lost_at": lost_at(*id),
            "comment": "starting or marking this osd lost may let us proceed",
        })
    };
    state["past_intervals"] = past_intervals(&pg.peer.history().past);
    state["probing_osds"] = pg.peer.acting().osds().map(|osd| osd.0.to_string()).collect();
    state["down_osds_we_would_probe"] = blocked_by.iter().map(|osd| osd.0).collect();
    state["peering_blocked_by"] = blocked_by.iter().map(blocker).collect();
}

fn recovery_state(osd: &OsdShard, pg: &Pg, why: &str, targets: &Targets) -> Value {
    let name = pg.peer.recovery_state_name();
    if name != "Started/Primary/Active" {
        let mut state = json!({ "name": name });
        if !why.is_empty() {
            state["blocked"] = why.into();
        }
        if pg.peer.leads() {
            peering_state(osd, pg, &mut state);
        }
        return json!([state, { "name": "Started" }]);
    }
    let places = targets.iter().filter_map(|(osd, _, place)| Some((osd.0, place.as_ref()?)));
    let started = places.clone().map(|(_, place)| place).min();
    let begun = started.map_or_else(|| "MIN".to_owned(), |begun| place(Some(begun)));
    json!([
        {
            "name": name,
            "might_have_unfound": if pg.recovery.unfound().is_empty() { json!([]) } else { might_have_unfound(pg) },
            "recovery_progress": {
                "backfill_targets": places.map(|(osd, _)| osd.to_string()).collect::<Vec<_>>(),
                "waiting_on_backfill": [],
                "last_backfill_started": begun,
                "objects_missing_on_peers": targets.iter().map(|(_, missing, _)| missing).sum::<usize>(),
            },
        },
        { "name": "Started" },
    ])
}
