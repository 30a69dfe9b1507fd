//! `dump_shards`: what each reactor has and how its time went.

use std::rc::Rc;

use carmine_reactor::Group;
use serde_json::{Map, Value, json};

use super::on_all;
use crate::shard::OsdShard;

pub(super) async fn dump(osd: &Rc<OsdShard>) -> Value {
    json!({ "osd": osd.config.id.0, "shards": on_all(osd, one).await })
}

fn one(osd: &OsdShard) -> Value {
    let s = osd.shard.stats();
    let pgs = osd.pgs.borrow();
    let groups: Map<String, Value> = Group::ALL
        .iter()
        .zip(osd.shard.group_ns())
        .map(|(group, ns)| (group.name().to_owned(), ns.into()))
        .collect();
    let primary = pgs.values().filter(|pg| pg.acting().first() == Some(&osd.config.id)).count();
    json!({
        "shard": osd.shard.id().0,
        "tid": osd.shard.tid(),
        "port": osd.ports.borrow().get(usize::from(osd.shard.id().0)),
        "epoch": osd.epoch().0,
        "pgs": pgs.keys().map(ToString::to_string).collect::<Vec<_>>(),
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
