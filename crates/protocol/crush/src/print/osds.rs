//! `osdmaptool --print`: the map's head, its pools, its OSDs, and the PGs placed by hand.

use std::collections::BTreeSet;
use std::fmt::Write;

use carmine_types::{Epoch, OsdId};
use carmine_wire::EntityAddrVec;
use carmine_wire::addr::{EntityAddr, kind};
use carmine_wire::crushmap::{BucketKind, CrushMap};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::osdmap::consts::{AFFINITY_MAX, FLAG_NAMES, POOL_HASHPSPOOL, STATE_NAMES, release_name};

use super::number::{Time, ratio, weight};
use super::pools::write_pool;

/// The map as `osdmaptool --print` shows it. Times are in UTC.
pub fn print_map(map: &OsdMap) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_head(&mut out, map)
        .and_then(|()| map.pools.iter().try_for_each(|(id, pool)| write_pool(&mut out, map, *id, pool)))
        .and_then(|()| write_osds(&mut out, map))
        .and_then(|()| write_pins(&mut out, map));
    out
}

/// The line of one OSD.
pub fn osd(map: &OsdMap, osd: OsdId) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_osd(&mut out, map, osd);
    out
}

fn write_head(out: &mut String, map: &OsdMap) -> std::fmt::Result {
    let flags = FLAG_NAMES.iter().filter(|(bit, _)| map.flags & bit != 0).map(|(_, name)| *name);
    writeln!(out, "epoch {}", map.epoch)?;
    writeln!(out, "fsid {}", map.fsid)?;
    writeln!(out, "created {}", Time(map.created))?;
    writeln!(out, "modified {}", Time(map.modified))?;
    writeln!(out, "flags {}", flags.collect::<Vec<_>>().join(","))?;
    writeln!(out, "crush_version {}", map.crush_version)?;
    writeln!(out, "full_ratio {}", ratio(map.full_ratio))?;
    writeln!(out, "backfillfull_ratio {}", ratio(map.backfillfull_ratio))?;
    writeln!(out, "nearfull_ratio {}", ratio(map.nearfull_ratio))?;
    if map.require_min_compat_client > 0 {
        writeln!(out, "require_min_compat_client {}", release_name(map.require_min_compat_client))?;
    }
    writeln!(out, "min_compat_client {}", min_compat_client(map))?;
    if map.require_osd_release > 0 {
        writeln!(out, "require_osd_release {}", release_name(map.require_osd_release))?;
    }
    writeln!(out, "stretch_mode_enabled false")?;
    if !map.cluster_snapshot.is_empty() && map.cluster_snapshot_epoch == map.epoch {
        writeln!(out, "cluster_snapshot {}", map.cluster_snapshot)?;
    }
    writeln!(out)
}

/// Oldest client release that understands everything the map uses.
pub fn min_compat_client(map: &OsdMap) -> &'static str {
    let crush: &CrushMap = &map.crush;
    let t = &crush.tunables;
    let straw2 = crush.buckets.iter().flatten().any(|b| matches!(b.kind, BucketKind::Straw2 { .. }));
    if !map.pg_upmap.is_empty() || !map.pg_upmap_items.is_empty() || !crush.choose_args.is_empty() {
        "luminous"
    } else if t.chooseleaf_stable != 0 {
        "jewel"
    } else if straw2 {
        "hammer"
    } else if t.chooseleaf_vary_r != 0 || map.primary_affinity.iter().any(|a| *a != AFFINITY_MAX) {
        "firefly"
    } else if t.chooseleaf_descend_once != 0
        || (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries) != (2, 5, 19)
        || map.pools.values().any(|pool| pool.flags & POOL_HASHPSPOOL != 0)
    {
        "dumpling"
    } else {
        "argonaut"
    }
}

fn write_osds(out: &mut String, map: &OsdMap) -> std::fmt::Result {
    // The empty line ends the pools.
    writeln!(out, "\nmax_osd {}", map.max_osd)?;
    for osd in map.osds() {
        write_osd(out, map, osd)?;
    }
    writeln!(out)
}

fn write_osd(out: &mut String, map: &OsdMap, osd: OsdId) -> std::fmt::Result {
    let at = osd.0 as usize;
    let up = if map.is_up(osd) { "up  " } else { "down" };
    let is_in = if map.is_in(osd) { "in " } else { "out" };
    write!(out, "{osd} {up} {is_in} weight {}", weight(map.weight(osd)))?;
    if map.affinity(osd) != AFFINITY_MAX {
        write!(out, " primary_affinity {}", weight(map.affinity(osd)))?;
    }
    let info = map.osd_info.get(at).copied().unwrap_or_default();
    write!(out, " up_from {} up_thru {} down_at {}", info.up_from, info.up_thru, info.down_at)?;
    write!(out, " last_clean_interval [{},{})", info.last_clean_begin, info.last_clean_end)?;
    if info.lost_at != Epoch(0) {
        write!(out, " lost_at {}", info.lost_at)?;
    }
    for addrs in [&map.client_addrs, &map.cluster_addrs] {
        write!(out, " {}", addrs.get(at).map_or_else(String::new, addr_vec))?;
    }
    write!(out, " {}", state_names(map.state(osd)))?;
    if let Some(uuid) = map.osd_uuid.get(at).filter(|uuid| !uuid.is_nil()) {
        write!(out, " {uuid}")?;
    }
    writeln!(out)
}

/// Names of the state bits in the order of the alphabet; one "???" for all unknown ones.
fn state_names(state: u32) -> String {
    let name = |bit: u32| STATE_NAMES.iter().find(|(known, _)| *known == bit).map_or("???", |(_, name)| name);
    let set: BTreeSet<&str> = (0..32).map(|n| 1 << n).filter(|bit| state & bit != 0).map(name).collect();
    set.into_iter().collect::<Vec<_>>().join(",")
}

fn addr_vec(addrs: &EntityAddrVec) -> String {
    match addrs.0.as_slice() {
        [] => String::new(),
        [one] => addr(one),
        many => format!("[{}]", many.iter().map(addr).collect::<Vec<_>>().join(",")),
    }
}

fn addr(addr: &EntityAddr) -> String {
    let Some(sock) = addr.sock else { return "-".to_owned() };
    let protocol = match addr.kind {
        kind::LEGACY => "v1:",
        kind::MSGR2 => "v2:",
        _ => "",
    };
    format!("{protocol}{sock}/{}", addr.nonce)
}

fn write_pins(out: &mut String, map: &OsdMap) -> std::fmt::Result {
    for (pg, osds) in &map.pg_upmap {
        writeln!(out, "pg_upmap {pg} {}", list(osds))?;
    }
    for (pg, items) in &map.pg_upmap_items {
        let pairs: Vec<i32> = items.iter().flat_map(|(from, to)| [*from, *to]).collect();
        writeln!(out, "pg_upmap_items {pg} {}", list(&pairs))?;
    }
    for (pg, osds) in &map.pg_temp {
        writeln!(out, "pg_temp {pg} {}", list(osds))?;
    }
    for (pg, osd) in &map.primary_temp {
        writeln!(out, "primary_temp {pg} {osd}")?;
    }
    for (client, until) in &map.blocklist {
        writeln!(out, "blocklist {} expires {}", addr(client), Time(*until))?;
    }
    Ok(())
}

/// OSD ids as Ceph prints a vector: `[1,2,3]`.
pub(super) fn list(osds: &[i32]) -> String {
    format!("[{}]", osds.iter().map(i32::to_string).collect::<Vec<_>>().join(","))
}
