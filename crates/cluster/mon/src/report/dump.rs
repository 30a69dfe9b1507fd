//! `osd dump`: the OSDMap, field by field.

use std::collections::BTreeMap;

use carmine_crush::print;
use carmine_types::{OsdId, PgId, UTime};
use carmine_wire::addr::{EntityAddr, EntityAddrVec, kind};
use carmine_wire::osdmap::consts::{FLAG_NAMES, STATE_NAMES, release_name};
use carmine_wire::osdmap::{IntervalSet, OsdMap};
use serde_json::{Map, Value, json};

use super::osd::weight_json;
use super::pools;
use crate::change::shown;

/// All OSDs, those up, those in.
pub(crate) fn counts(map: &OsdMap) -> (usize, usize, usize) {
    let count = |test: fn(&OsdMap, OsdId) -> bool| map.osds().filter(|osd| test(map, *osd)).count();
    (map.osds().count(), count(OsdMap::is_up), count(OsdMap::is_in))
}

/// `2026-11-21T01:41:31.719600+0000`
pub(crate) fn time(time: UTime) -> String {
    print::time(time)
}

/// As `osdmaptool --print` shows it.
pub(crate) fn text(map: &OsdMap) -> String {
    print::print_map(map)
}

/// Every field that Ceph 16's dump has.
pub(crate) fn json(map: &OsdMap) -> Value {
    let flags: Vec<&str> =
        FLAG_NAMES.iter().filter(|(bit, _)| map.flags & bit != 0).map(|(_, name)| *name).collect();
    let mut sorted = flags.clone();
    sorted.sort_unstable();
    let xinfo = |osd: OsdId| {
        let x = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
        json!({
            "osd": osd.0, "down_stamp": time(x.down_stamp), "laggy_probability": x.laggy_probability,
            "laggy_interval": x.laggy_interval_s, "features": x.features, "old_weight": x.old_weight,
            "last_purged_snaps_scrub": time(x.last_purged_snaps_scrub), "dead_epoch": x.dead_epoch.0,
        })
    };
    let upmap = |(pg, osds): (&PgId, &Vec<i32>)| json!({ "pgid": pg.to_string(), "osds": osds });
    let items = |(pg, items): (&PgId, &Vec<(i32, i32)>)| {
        let pairs: Vec<Value> = items.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
        json!({ "pgid": pg.to_string(), "mappings": pairs })
    };
    let primary = |(pg, osd): (&PgId, &i32)| json!({ "pgid": pg.to_string(), "osd": osd });
    let blocked = map.blocklist.iter().map(|(addr, until)| (shown(addr), json!(time(*until))));
    // Nodes and classes by their names, as far as they have one.
    let flags_of = |flags: &BTreeMap<i32, u32>, names: &BTreeMap<i32, String>| {
        let name = |id: &i32| names.get(id).cloned().unwrap_or_else(|| id.to_string());
        flags.iter().map(|(id, bits)| (name(id), json!(states_of(*bits)))).collect::<Map<_, _>>()
    };
    json!({
        "epoch": map.epoch.0, "fsid": map.fsid.to_string(), "created": time(map.created),
        "modified": time(map.modified), "last_up_change": time(map.last_up_change),
        "last_in_change": time(map.last_in_change), "flags": flags.join(","), "flags_num": map.flags,
        "flags_set": sorted, "crush_version": map.crush_version, "full_ratio": map.full_ratio,
        "backfillfull_ratio": map.backfillfull_ratio, "nearfull_ratio": map.nearfull_ratio,
        "cluster_snapshot": map.cluster_snapshot, "pool_max": map.pool_max, "max_osd": map.max_osd,
        "require_min_compat_client": release_name(map.require_min_compat_client),
        "min_compat_client": print::min_compat_client(map),
        "require_osd_release": release_name(map.require_osd_release), "pools": pools::json(map),
        "osds": map.osds().map(|id| osd(map, id)).collect::<Vec<_>>(),
        "osd_xinfo": map.osds().map(xinfo).collect::<Vec<_>>(),
        "pg_upmap": map.pg_upmap.iter().map(upmap).collect::<Vec<_>>(),
        "pg_upmap_items": map.pg_upmap_items.iter().map(items).collect::<Vec<_>>(),
        "pg_temp": map.pg_temp.iter().map(upmap).collect::<Vec<_>>(),
        "primary_temp": map.primary_temp.iter().map(primary).collect::<Vec<_>>(),
        "blocklist": blocked.collect::<Map<_, _>>(),
        "range_blocklist": {}, "erasure_code_profiles": map.erasure_code_profiles,
        "removed_snaps_queue": snaps(&map.removed_snaps_queue), "new_removed_snaps": snaps(&map.new_removed_snaps),
        "new_purged_snaps": snaps(&map.new_purged_snaps),
        "crush_node_flags": flags_of(&map.crush_node_flags, &map.crush.item_names),
        "device_class_flags": flags_of(&map.device_class_flags, &map.crush.class_names),
        "stretch_mode": {
            "stretch_mode_enabled": false, "stretch_bucket_count": 0, "degraded_stretch_mode": 0,
            "recovering_stretch_mode": 0, "stretch_mode_bucket": 0,
        },
    })
}

/// Ranges of snapshots.
pub(super) fn ranges(set: &IntervalSet) -> Value {
    set.iter().map(|(begin, length)| json!({ "begin": begin, "length": length })).collect()
}

/// The same by pool.
fn snaps(pools: &BTreeMap<i64, IntervalSet>) -> Value {
    let one = |(pool, set): (&i64, &IntervalSet)| json!({ "pool": pool, "snaps": ranges(set) });
    pools.iter().map(one).collect()
}

/// One object with the fields of all.
pub(super) fn joined<const N: usize>(parts: [Value; N]) -> Value {
    let fields = parts.into_iter().filter_map(|part| match part {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    Value::Object(fields.flatten().collect())
}

/// The names of the bits of an OSD's state, as Ceph sorts them.
fn states_of(bits: u32) -> Vec<&'static str> {
    let mut names: Vec<&str> =
        STATE_NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    names.sort_unstable();
    names
}

/// All that the map says of an OSD.
pub(super) fn osd(map: &OsdMap, id: OsdId) -> Value {
    let at = id.0 as usize;
    let info = map.osd_info.get(at).copied().unwrap_or_default();
    let mut out = json!({
        "osd": id.0, "uuid": map.osd_uuid.get(at).copied().unwrap_or_default().to_string(),
        "up": u8::from(map.is_up(id)), "in": u8::from(map.is_in(id)), "weight": weight_json(map.weight(id)),
        "primary_affinity": weight_json(map.affinity(id)), "last_clean_begin": info.last_clean_begin.0,
        "last_clean_end": info.last_clean_end.0, "up_from": info.up_from.0, "up_thru": info.up_thru.0,
        "down_at": info.down_at.0, "lost_at": info.lost_at.0, "state": states_of(map.state(id)),
    });
    let addrs = [
        ("public_addr", &map.client_addrs),
        ("cluster_addr", &map.cluster_addrs),
        ("heartbeat_back_addr", &map.hb_back_addrs),
        ("heartbeat_front_addr", &map.hb_front_addrs),
    ];
    for (name, list) in addrs {
        out[format!("{name}s")] = addr_vec(list.get(at));
        out[name] = json!(legacy_addr(list.get(at)));
    }
    out
}

/// `{"addrvec": [{"type", "addr", "nonce"}, …]}`
pub(super) fn addr_vec(addrs: Option<&EntityAddrVec>) -> Value {
    json!({ "addrvec": addrs.map_or(&[][..], |a| &a.0).iter().map(addr).collect::<Vec<_>>() })
}

/// `{"type": "v2", "addr": "127.0.0.1:6800", "nonce": 1}`
pub(crate) fn addr(addr: &EntityAddr) -> Value {
    let sock = addr.sock.map_or_else(|| "-".to_owned(), |sock| sock.to_string());
    json!({ "type": addr.protocol(), "addr": sock, "nonce": addr.nonce })
}

/// The first msgr v1 address, else the first one.
fn legacy_addr(addrs: Option<&EntityAddrVec>) -> String {
    let all = addrs.map_or(&[][..], |a| &a.0);
    let one = all.iter().find(|addr| addr.kind == kind::LEGACY).or(all.first());
    one.filter(|addr| addr.sock.is_some()).map_or_else(|| "-".to_owned(), shown)
}

/// `v2:127.0.0.1:6800/1`, or several in brackets.
pub(super) fn addr_list(addrs: &EntityAddrVec) -> String {
    let shown: Vec<String> = addrs.0.iter().map(ToString::to_string).collect();
    if shown.len() == 1 { shown.concat() } else { format!("[{}]", shown.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map of Ceph 16.2.15, and its own dump of it.
    #[test]
    fn the_dump_is_ceph_s() {
        let bin = include_bytes!("../../../../protocol/wire/tests/data/live-1osd/osdmap.bin");
        let ours = json(&OsdMap::decode(bin).unwrap());
        let theirs: Value = serde_json::from_str(include_str!("../../tests/data/osd-dump.json")).unwrap();
        let (Value::Object(ours), Value::Object(theirs)) = (ours, theirs) else { panic!("two objects") };
        for (key, value) in &theirs {
            assert_eq!(ours.get(key), Some(value), "{key}");
        }
        assert_eq!(ours.len(), theirs.len());
    }
}
