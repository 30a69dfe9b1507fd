//! OSDs in the placement: new ones, out because they are down for long, another weight in the CRUSH map, gone for good.

use carmine_crush::{classes, edit};
use carmine_types::{OsdId, UTime, Uuid, errno};
use carmine_wire::crushmap::CrushMap;
use carmine_wire::osdmap::consts::{STATE_AUTOOUT, STATE_EXISTS, WEIGHT_IN, WEIGHT_OUT};
use carmine_wire::osdmap::{Incremental, OsdMap, OsdXinfo};

use super::group::NOOUT;
use super::osd::check_exist;
use super::{Refusal, refuse};

/// Share of all OSDs that stay in, however many are down (Ceph's mon_osd_min_in_ratio).
const IN_RATIO_MIN: f64 = 0.75;

/// An OSD that is down goes out, unless the flag noout or too few others forbid it. It comes back with its old weight.
pub(super) fn auto_out(map: &OsdMap, osd: OsdId, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let (all, inside) = (map.osds().count(), map.osds().filter(|osd| map.is_in(*osd)).count());
    let may_go = !NOOUT.holds(map, osd) && inside as f64 >= IN_RATIO_MIN * all as f64;
    if map.is_up(osd) || !map.is_in(osd) || !may_go {
        return Ok(None);
    }
    let mut inc = Incremental::next(map, now);
    inc.new_weight.insert(osd, WEIGHT_OUT);
    inc.new_last_in_change = now;
    // The bits that are named are flipped.
    let flips = STATE_AUTOOUT & !map.state(osd);
    if flips != 0 {
        inc.new_state.insert(osd, flips);
    }
    let old = map.osd_xinfo.get(osd.0 as usize).copied().unwrap_or_default();
    inc.new_xinfo.insert(osd, OsdXinfo { old_weight: map.weight(osd), ..old });
    Ok(Some(inc))
}

/// The weight with which an OSD that boots comes back in; `None` if it is not out by [`auto_out`].
pub(super) fn weight_before(map: &OsdMap, osd: OsdId) -> Option<u32> {
    if map.state(osd) & STATE_AUTOOUT == 0 || map.is_in(osd) {
        return None;
    }
    let old = map.osd_xinfo.get(osd.0 as usize).map_or(0, |xinfo| xinfo.old_weight);
    Some(if old == 0 { WEIGHT_IN } else { old })
}

/// Another weight (16.16) of an OSD in the CRUSH map.
pub(super) fn crush_reweight(
    map: &OsdMap,
    osd: OsdId,
    weight: u32,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    let mut crush = CrushMap::clone(&map.crush);
    if !edit::reweight(&mut crush, osd.0 as i32, weight) {
        return Err(refuse(errno::ENOENT, format!("device '{osd}' does not appear in the crush map")));
    }
    if crush == *map.crush {
        return Ok(None);
    }
    Ok(Some(Incremental { crush: crush.encode(), ..Incremental::next(map, now) }))
}

/// Most OSDs of a cluster (Ceph's mon_max_osd).
const OSDS_MAX: u32 = 10_000;

/// The number of an OSD that does not exist yet.
pub(super) fn new_osd(
    map: &OsdMap,
    osd: OsdId,
    uuid: Uuid,
    now: UTime,
) -> Result<Option<Incremental>, Refusal> {
    if map.exists(osd) {
        let known = map.osd_uuid.get(osd.0 as usize).copied().unwrap_or_default();
        let is_same = known == uuid;
        let text = || format!("{osd} exists with the store {known}");
        return if is_same { Ok(None) } else { Err(refuse(errno::EEXIST, text())) };
    }
    if osd.0 >= OSDS_MAX {
        return Err(refuse(errno::ERANGE, format!("{osd}: a cluster has {OSDS_MAX} OSDs at most")));
    }
    let mut inc = Incremental::next(map, now);
    if osd.0 >= map.max_osd {
        inc.new_max_osd = osd.0 as i32 + 1;
    }
    // Whoever has a weight exists.
    inc.new_weight.insert(osd, WEIGHT_IN);
    inc.new_uuid.insert(osd, uuid);
    Ok(Some(inc))
}

/// OSDs that are down go from the list of OSDs. Their numbers are free again.
pub(super) fn remove(map: &OsdMap, osds: &[OsdId], now: UTime) -> Result<Option<Incremental>, Refusal> {
    if let Some(osd) = osds.iter().find(|osd| map.is_up(**osd)) {
        return Err(refuse(errno::EBUSY, format!("{osd} is still up; must be down before removal. ")));
    }
    let gone: Vec<OsdId> = osds.iter().copied().filter(|osd| map.exists(*osd)).collect();
    let mut inc = Incremental::next(map, now);
    forget(&mut inc, &gone);
    Ok((!gone.is_empty()).then_some(inc))
}

/// They exist no longer.
fn forget(inc: &mut Incremental, osds: &[OsdId]) {
    for osd in osds {
        inc.new_state.insert(*osd, STATE_EXISTS);
        inc.new_weight.insert(*osd, WEIGHT_OUT);
    }
}

/// The end of the OSD ids, behind all OSDs that there are.
pub(super) fn set_max(map: &OsdMap, max: u32, now: UTime) -> Result<Option<Incremental>, Refusal> {
    if max > OSDS_MAX {
        let text = format!("cannot set max_osd to {max} which is > conf.mon_max_osd ({OSDS_MAX})");
        return Err(refuse(errno::ERANGE, text));
    }
    if let Some(osd) = map.osds().find(|osd| osd.0 >= max) {
        let text = format!("cannot shrink max_osd to {max} because {osd} (and possibly others) still in use");
        return Err(refuse(errno::EBUSY, text));
    }
    let inc = Incremental { new_max_osd: max as i32, ..Incremental::next(map, now) };
    Ok((max != map.max_osd).then_some(inc))
}

/// An OSD that is down goes for good, from the CRUSH map and from the list of OSDs. Its number is free again.
pub(super) fn purge(map: &OsdMap, osd: OsdId, now: UTime) -> Result<Option<Incremental>, Refusal> {
    if !map.exists(osd) {
        return Ok(None);
    }
    if map.is_up(osd) {
        return Err(refuse(errno::EBUSY, format!("{osd} is not `down`.")));
    }
    let mut crush = CrushMap::clone(&map.crush);
    edit::remove_device(&mut crush, osd.0 as i32);
    classes::rebuild_shadows(&mut crush);
    let mut inc = Incremental { crush: crush.encode(), ..Incremental::next(map, now) };
    forget(&mut inc, &[osd]);
    Ok(Some(inc))
}

/// Gives up the data that only this OSD has, which is down.
pub(super) fn lost(map: &OsdMap, osd: OsdId, now: UTime) -> Result<Option<Incremental>, Refusal> {
    check_exist(map, &[osd])?;
    if map.is_up(osd) {
        return Err(refuse(errno::EBUSY, format!("{osd} is not down")));
    }
    let mut inc = Incremental::next(map, now);
    let down_at = map.osd_info.get(osd.0 as usize).map(|info| info.down_at).unwrap_or_default();
    inc.new_lost.insert(osd, down_at);
    Ok(Some(inc))
}
