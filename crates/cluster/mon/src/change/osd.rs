//! OSDs that come and go.

use std::collections::BTreeMap;

use carmine_types::{Epoch, OsdId, UTime, Uuid, errno};
use carmine_wire::FEATURES;
use carmine_wire::addr::EntityAddrVec;
use carmine_wire::osdmap::{Incremental, OsdMap, OsdXinfo};

use super::group::{NODOWN, NOIN, NOUP};
use super::{OsdAddrs, Refusal, place, refuse};

pub(super) fn boot(
    map: &OsdMap,
    osd: OsdId,
    uuid: Uuid,
    addrs: &OsdAddrs,
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
    if map.client_addr(osd) == Some(&addrs.client) {
        return Ok(None);
    }
    if NOUP.holds(map, osd) {
        return Err(refuse(errno::EAGAIN, format!("{osd} stays down: the flag noup is set")));
    }
    let mut inc = Incremental::next(map, now);
    inc.new_up_client.insert(osd, addrs.client.clone());
    inc.new_up_cluster.insert(osd, addrs.cluster.clone());
    inc.new_hb_back_up.insert(osd, addrs.hb_back.clone());
    inc.new_hb_front_up.insert(osd, addrs.hb_front.clone());
    if known.is_nil() {
        inc.new_uuid.insert(osd, uuid);
    }
    let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
    inc.new_xinfo.insert(osd, OsdXinfo { features: FEATURES, ..old });
    inc.new_last_up_change = now;
    if let Some(weight) = place::weight_before(map, osd).filter(|_| !NOIN.holds(map, osd)) {
        inc.new_weight.insert(osd, weight);
        inc.new_last_in_change = now;
    }
    Ok(Some(inc))
}

pub(super) fn down(
    map: &OsdMap,
    osd: OsdId,
    addrs: &EntityAddrVec,
    is_dead: bool,
    now: UTime,
) -> Option<Incremental> {
    if map.client_addr(osd) != Some(addrs) || NODOWN.holds(map, osd) {
        return None;
    }
    let mut inc = all_down(map, &[osd], now);
    if let Some(xinfo) = inc.new_xinfo.get_mut(&osd).filter(|_| is_dead) {
        xinfo.dead_epoch = inc.epoch;
    }
    Some(inc)
}

/// `up_thru` of those that are up and have a lower one.
pub(super) fn up_thru(map: &OsdMap, epochs: &BTreeMap<OsdId, Epoch>, now: UTime) -> Option<Incremental> {
    let is_news = |(osd, epoch): &(&OsdId, &Epoch)| map.is_up(**osd) && map.up_thru(**osd) < **epoch;
    let news = epochs.iter().filter(is_news).map(|(osd, epoch)| (*osd, *epoch)).collect();
    let inc = Incremental { new_up_thru: news, ..Incremental::next(map, now) };
    (!inc.new_up_thru.is_empty()).then_some(inc)
}

/// One that has this affinity already is left alone; one that there is not is refused.
pub(super) fn set_affinity(
    map: &OsdMap,
    osd: OsdId,
    affinity: u32,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_exist(map, &[osd])?;
    let mut inc = Incremental::next(map, now);
    inc.new_primary_affinity.insert(osd, affinity);
    Ok((map.affinity(osd) != affinity).then_some(inc))
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

/// Sets the weights: OSDs go out of the placement and come back.
pub(super) fn set_weights(
    map: &OsdMap,
    weights: BTreeMap<OsdId, u32>,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    check_exist(map, &weights.keys().copied().collect::<Vec<_>>())?;
    let mut inc = Incremental::next(map, now);
    inc.new_weight = weights.into_iter().filter(|(osd, weight)| map.weight(*osd) != *weight).collect();
    if inc.new_weight.is_empty() {
        return Ok(None);
    }
    inc.new_last_in_change = now;
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
