//! `mon dump`, `mon stat`, `quorum_status`: one monitor, which always has a quorum.

use serde_json::{Value, json};

use super::dump::time;
use crate::command::View;

fn addrs(view: &View<'_>) -> Value {
    json!({ "addrvec": [{ "type": "v2", "addr": view.addr, "nonce": 0 }] })
}

fn monmap(view: &View<'_>) -> Value {
    json!({
        "epoch": 1, "fsid": view.map.fsid.to_string(), "modified": time(view.map.created),
        "created": time(view.map.created), "min_mon_release": 16, "min_mon_release_name": "pacific",
        "election_strategy": 1, "stretch_mode": false, "tiebreaker_mon": "",
        "mons": [{
            "rank": 0, "name": "a", "public_addrs": addrs(view), "addr": format!("{}/0", view.addr),
            "public_addr": format!("{}/0", view.addr), "priority": 0, "weight": 0, "crush_location": "{}",
        }],
    })
}

/// The MonMap and the quorum.
pub(crate) fn dump_json(view: &View<'_>) -> Value {
    let mut out = monmap(view);
    out["quorum"] = json!([0]);
    out
}

/// The MonMap in lines.
pub(crate) fn dump_text(view: &View<'_>) -> String {
    let created = time(view.map.created);
    format!(
        "epoch 1\nfsid {}\nlast_changed {created}\ncreated {created}\nmin_mon_release 16 (pacific)\nelection_strategy: 1\n\
         0: v2:{}/0 mon.a\n",
        view.map.fsid, view.addr
    )
}

/// One line.
pub(crate) fn stat_text(view: &View<'_>) -> String {
    format!("e1: 1 mons at {{a=v2:{}/0}}, election epoch 1, leader 0 a, quorum 0 a\n", view.addr)
}

/// The same by name.
pub(crate) fn stat_json(view: &View<'_>) -> Value {
    json!({
        "epoch": 1, "num_mons": 1, "leader": "a",
        "quorum": [{ "rank": 0, "name": "a", "addr": format!("v2:{}/0", view.addr) }],
    })
}

/// Who leads.
pub(crate) fn quorum_json(view: &View<'_>) -> Value {
    json!({
        "election_epoch": 1, "quorum": [0], "quorum_names": ["a"], "quorum_leader_name": "a",
        "quorum_age": view.uptime_s, "monmap": monmap(view),
    })
}
