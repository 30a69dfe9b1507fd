//! `dump_ops_in_flight`.

use std::rc::Rc;

use serde_json::{Value, json};

use super::on_all;
use crate::shard::OsdShard;

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    json!({ "shards": on_all(osd, in_flight).await })
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
