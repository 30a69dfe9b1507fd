//! Lists about clients and pools: `dump_watchers`, `dump_blocklist`, `get_mapped_pools`.

use std::collections::BTreeSet;
use std::rc::Rc;

use carmine_types::UTime;
use carmine_wire::EntityAddr;
use serde_json::{Value, json};

use crate::shard::OsdShard;

/// `dump_watchers`: the watchers of objects in the PGs that this OSD leads.
pub(super) async fn watchers(osd: &Rc<OsdShard>) -> Value {
    let dump = |osd: &Rc<OsdShard>| -> Vec<Value> {
        osd.pgs.borrow().values().flat_map(|pg| pg.ops.watched().dump()).collect()
    };
    osd.on_all(dump).await.concat().into()
}

/// `get_mapped_pools`: the pools of its PGs.
pub(super) async fn mapped_pools(osd: &Rc<OsdShard>) -> Value {
    let pools = |osd: &Rc<OsdShard>| -> BTreeSet<i64> {
        osd.pgs.borrow().values().map(|pg| pg.id.pgid.pool).collect()
    };
    let all: BTreeSet<i64> = osd.on_all(pools).await.into_iter().flatten().collect();
    json!(all)
}

/// `dump_blocklist`: the blocklist of its map.
pub(super) fn blocklist(osd: &OsdShard) -> Value {
    let view = osd.view();
    let listed = view.iter().flat_map(|view| &view.map().blocklist);
    let one = |(addr, until): &(EntityAddr, UTime)| json!({ "entity_addr_t": address(addr), "expire_time": carmine_crush::print::time(*until) });
    listed.map(one).collect()
}

/// An address, as Ceph's daemons dump it.
pub(crate) fn address(addr: &EntityAddr) -> Value {
    let sock = addr.sock.map_or_else(|| "-".to_owned(), |sock| sock.to_string());
    json!({ "type": addr.protocol(), "addr": sock, "nonce": addr.nonce })
}
