//! OSDs that come and go.

use carmine_types::{OsdId, UTime, Uuid, errno};
use carmine_wire::FEATURES;
use carmine_wire::addr::EntityAddrVec;
use carmine_wire::osdmap::{Incremental, OsdMap, OsdXinfo};

use super::{Refusal, pins, refuse};

pub(super) fn boot(
    map: &OsdMap,
    osd: OsdId,
    uuid: Uuid,
    addrs: &EntityAddrVec,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    if !map.exists(osd) {
        let text = format!("{osd} is not in this cluster of {} OSDs", map.max_osd);
        return Err(refuse(errno::ENOENT, text));
    }
    let known = map.osd_uuid.get(osd.0 as usize).copied().unwrap_or_default();
    if !known.is_nil() && known != uuid {
        let text = format!(
            "{osd} has the store {uuid}, the map knows {known}: is this the folder of another cluster?"
        );
        return Err(refuse(errno::EPERM, text));
    }
    if map.client_addr(osd) == Some(addrs) {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    inc.new_up_client.insert(osd, addrs.clone());
    inc.new_up_cluster.insert(osd, addrs.clone());
    if known.is_nil() {
        inc.new_uuid.insert(osd, uuid);
    }
    let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
    inc.new_xinfo.insert(osd, OsdXinfo { features: FEATURES, ..old });
    inc.new_last_up_change = now;
    Ok(Some(inc))
}

pub(super) fn down(map: &OsdMap, osd: OsdId, addrs: &EntityAddrVec, now: UTime) -> Option<Incremental> {
    (map.client_addr(osd) == Some(addrs)).then(|| all_down(map, &[osd], now))
}

/// Those that are up; one that there is not is refused.
pub(super) fn mark_down(map: &OsdMap, osds: &[OsdId], now: UTime) -> Result<Option<Incremental>, Refusal> {
    check_exist(map, osds)?;
    let inc = all_down(map, osds, now);
    Ok((!inc.new_state.is_empty()).then_some(inc))
}

/// Those of `osds` that are up go down.
fn all_down(map: &OsdMap, osds: &[OsdId], now: UTime) -> Incremental {
    let mut inc = Incremental::next(map, now);
    for osd in osds.iter().filter(|osd| map.is_up(**osd)) {
        inc.mark_down(*osd);
        let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
        inc.new_xinfo.insert(*osd, OsdXinfo { down_stamp: now, ..old });
        inc.new_last_up_change = now;
    }
    inc
}

/// Sets the weights and pins the PGs that need it: OSDs go out of the placement and come back, and no PG loses its data
/// by that, see [`pins`].
pub(super) fn set_weight(
    map: &OsdMap,
    osds: &[OsdId],
    weight: u32,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_exist(map, osds)?;
    let mut inc = Incremental::next(map, now);
    let changed = osds.iter().filter(|osd| map.weight(**osd) != weight);
    inc.new_weight = changed.map(|osd| (*osd, weight)).collect();
    if inc.new_weight.is_empty() {
        return Ok(None);
    }
    inc.new_last_in_change = now;
    let mut next = map.clone();
    for osd in inc.new_weight.keys() {
        if let Some(slot) = next.osd_weight.get_mut(osd.0 as usize) {
            *slot = weight;
        }
    }
    inc.new_pg_temp = pins::follow(map, &next, None);
    Ok(Some(inc))
}

/// Names the first OSD that is not in the map.
pub(crate) fn check_exist(map: &OsdMap, osds: &[OsdId]) -> Result<(), Refusal> {
    match osds.iter().find(|osd| !map.exists(**osd)) {
        None => Ok(()),
        Some(osd) => {
            Err(refuse(errno::ENOENT, format!("{osd} does not exist: the cluster has {} OSDs", map.max_osd)))
        }
    }
}
