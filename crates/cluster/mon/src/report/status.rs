//! `status`, which is `ceph -s`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::units::{age, bytes, count};
use super::{dump, health, pg};
use crate::command::View;

/// Sections and lines as Ceph has them.
pub(crate) fn text(view: &View<'_>) -> String {
    let (all, up, inside) = dump::counts(view.map);
    let mut health = health::lines(view).into_iter();
    let mut out = format!(
        "  cluster:\n    id:     {}\n    health: {}\n",
        view.map.fsid,
        health.next().unwrap_or_default()
    );
    for line in health {
        let _ = writeln!(out, "            {line}");
    }
    let _ = write!(
        out,
        " \n  services:\n    mon: 1 daemons, quorum a (age {})\n    mgr: a(active, the monitor itself)\n    osd: {all} osds: {up} up, \
         {inside} in",
        age(view.uptime_s)
    );
    if !view.map.pg_temp.is_empty() {
        let _ = write!(out, "; {} remapped pgs", view.map.pg_temp.len());
    }
    let held = held(view);
    let _ = write!(
        out,
        "\n \n  data:\n    pools:   {} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {}\n",
        view.map.pools.len(),
        pg::total(view.map),
        count(held.objects),
        bytes(held.bytes),
        usage(view)
    );
    for (at, (state, number)) in pg::by_state(view).iter().enumerate() {
        let head = if at == 0 { "pgs:    " } else { "        " };
        let _ = writeln!(out, "    {head} {number} {state}");
    }
    out.push_str(" \n");
    out
}

/// Used, free and total bytes, in words.
pub(super) fn usage(view: &View<'_>) -> String {
    let (total, used) = view.stats.space();
    format!("{} used, {} / {} avail", bytes(used), bytes(total.saturating_sub(used)), bytes(total))
}

/// Objects and bytes of all pools.
pub(super) struct Held {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

pub(super) fn held(view: &View<'_>) -> Held {
    let pools = view.stats.pools();
    Held {
        objects: pools.values().map(|p| p.objects).sum(),
        bytes: pools.values().map(|p| p.bytes).fold(0, u64::saturating_add),
    }
}

/// The keys that Ceph's has, as far as there is something to tell.
pub(crate) fn json(view: &View<'_>) -> Value {
    let map = view.map;
    let (all, up, inside) = dump::counts(map);
    let (total, used) = view.stats.space();
    let held = held(view);
    let states: Vec<Value> = pg::by_state(view)
        .into_iter()
        .map(|(state, count)| json!({ "state_name": state, "count": count }))
        .collect();
    json!({
        "fsid": map.fsid.to_string(),
        "health": health::json(view, false),
        "election_epoch": 1,
        "quorum": [0],
        "quorum_names": ["a"],
        "quorum_age": view.uptime_s,
        "monmap": { "epoch": 1, "min_mon_release_name": "pacific", "num_mons": 1 },
        "osdmap": {
            "epoch": map.epoch.0, "num_osds": all, "num_up_osds": up, "osd_up_since": map.last_up_change.sec,
            "num_in_osds": inside, "osd_in_since": map.last_in_change.sec, "num_remapped_pgs": map.pg_temp.len(),
        },
        "pgmap": {
            "pgs_by_state": states, "num_pgs": pg::total(map), "num_pools": map.pools.len(),
            "num_objects": held.objects, "data_bytes": held.bytes, "bytes_used": used,
            "bytes_avail": total.saturating_sub(used), "bytes_total": total,
        },
        "fsmap": { "epoch": 1, "by_rank": [], "up:standby": 0 },
        "mgrmap": { "available": true, "num_standbys": 0, "modules": [], "services": {} },
        "servicemap": { "epoch": 1, "modified": dump::time(map.created), "services": {} },
        "progress_events": {},
    })
}
