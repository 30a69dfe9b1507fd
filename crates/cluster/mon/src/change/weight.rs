//! Weights: OSDs go out of the placement and come back, and no PG loses its data by that: see [`pins`].

use carmine_types::{OsdId, UTime};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::osd::check_exist;
use super::{Refusal, pins};

/// Sets the weights and pins the PGs that need it.
pub(super) fn set(
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
