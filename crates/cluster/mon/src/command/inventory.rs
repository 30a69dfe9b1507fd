//! Commands that list daemons and their places, and those about parts of a cluster that Carmine has not got.

use carmine_types::errno;
use serde_json::{Value, json};

use super::osd::known;
use super::{Known, Outcome, View, done, either, is_set, pretty, read, required, text};
use crate::change::refuse;
use crate::report::cluster;
use crate::report::inventory::{self, Kind, Spread};
use crate::report::osd::{self, Trees};

/// The commands of this family.
pub(super) const COMMANDS: &[Known] = &[
    read("osd versions", "count OSDs by version", |c, v| versions(c, v, Kind::Osd)),
    read("mon versions", "count monitors by version", |c, v| versions(c, v, Kind::Mon)),
    read("mgr versions", "count managers by version (there are none)", |c, v| versions(c, v, Kind::None)),
    read("mds versions", "count metadata servers by version (there are none)", |c, v| {
        versions(c, v, Kind::None)
    }),
    read("osd count-metadata property:CephString", "count OSDs by a value of their metadata", |c, v| {
        done(pretty(c, &inventory::count(v, Kind::Osd, required(c, "property")?)))
    }),
    read("mon count-metadata property:CephString", "count monitors by a value of their metadata", |c, v| {
        done(pretty(c, &inventory::count(v, Kind::Mon, required(c, "property")?)))
    }),
    read("node ls type:(all|osd|mon|mds|mgr)?", "list the daemons of each host", node_ls),
    read("osd info id:CephOsdName?", "show what the map says of an OSD, or of each", |c, v| {
        // Ceph's errno of this command.
        let known = |id| known(v, id).map_err(|refusal| refuse(errno::EINVAL, refusal.text));
        let osd = c.get("id").map(known).transpose()?;
        either(c, || inventory::info_json(v.map, osd), || inventory::info_text(v.map, osd))
    }),
    read("osd numa-status", "show the NUMA node of each OSD (none has one for all its cores)", |c, v| {
        either(c, || inventory::numa_json(v), || inventory::numa_text(v))
    }),
    read("osd utilization", "show how evenly the PGs lie on the OSDs", |c, v| {
        let spread = Spread::measure(v).ok_or_else(|| refuse(errno::ENOENT, "no OSD is in"))?;
        either(c, || spread.json(), || spread.text())
    }),
    read("osd crush tree shadow:(--show-shadow)?", "print the buckets and OSDs of the CRUSH map", |c, v| {
        let which = if is_set(c, "shadow") { Trees::All } else { Trees::Real };
        either(c, || osd::crush_tree_json(v.map, which), || inventory::crush_tree_text(v.map, which))
    }),
    read("osd crush ls node:CephString", "list what is directly below a bucket", |c, v| {
        let node = required(c, "node")?;
        let items = inventory::below(v.map, node);
        let items = items.ok_or_else(|| refuse(errno::ENOENT, format!("node '{node}' does not exist")))?;
        either(c, || json!(items), || items.iter().map(|item| format!("{item}\n")).collect())
    }),
    read("osd crush get-tunable tunable:(straw_calc_version)", "print a CRUSH tunable", |c, v| {
        let value = v.map.crush.tunables.straw_calc_version;
        either(c, || json!({ "straw_calc_version": value }), || format!("{value}\n"))
    }),
    read("time-sync-status", "show how far the monitors' clocks differ (there is one monitor)", |c, _| {
        let checks = json!({ "epoch": cluster::MONMAP_EPOCH, "round": 0, "round_status": "finished" });
        done(pretty(c, &json!({ "timechecks": checks })))
    }),
    read("mgr services", "list the addresses of the manager's modules (there are none)", |c, _| {
        done(pretty(c, &json!({})))
    }),
    read("mgr metadata", "show what is known of the managers (there are none)", |c, _| {
        done(pretty(c, &json!([])))
    }),
    read("mds metadata", "show what is known of the metadata servers (there are none)", |c, _| {
        done(pretty(c, &json!([])))
    }),
];

fn versions(command: &Value, view: &View<'_>, kind: Kind) -> Outcome {
    done(pretty(command, &inventory::count(view, kind, "ceph_version")))
}

fn node_ls(command: &Value, view: &View<'_>) -> Outcome {
    let of = |kind| inventory::by_host(view, kind);
    let hosts = match text(command, "type").unwrap_or("all") {
        "all" => json!({ "mon": of(Kind::Mon), "osd": of(Kind::Osd), "mgr": of(Kind::None) }),
        "mon" => of(Kind::Mon),
        "osd" => of(Kind::Osd),
        "mds" | "mgr" => of(Kind::None),
        other => return Err(refuse(errno::EINVAL, format!("there are no nodes of the type '{other}'"))),
    };
    done(pretty(command, &hosts))
}
