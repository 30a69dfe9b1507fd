//! `status`: epoch, space, and every PG with its state.

use std::rc::Rc;

use serde_json::{Value, json};

use super::on_all;
use crate::shard::OsdShard;

pub(super) async fn status(osd: &Rc<OsdShard>) -> Value {
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
        let (state, why) = pg.describe();
        let members = pg.acting();
        json!({
            "pg": pg.id.to_string(),
            "state": state,
            "why": why,
            "reactor": osd.shard.id().0,
            "primary": members.first() == Some(&osd.config.id),
            "acting": members.iter().map(|m| m.0).collect::<Vec<_>>(),
            "last_update": pg.last_update().to_string(),
            "ops_waiting": pg.lengths().0,
        })
    });
    json!({ "pgs": states.collect::<Vec<_>>() })
}
