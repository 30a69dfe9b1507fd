//! Weights: OSDs go out of the placement and come back, and no PG loses its data by that.
//!
//! Data is copied from a PG's primary to the other members at the start of an interval, so the primary must be an OSD that
//! has it. When a weight changes, CRUSH may put another one first, or find too few OSDs. Then `pg_temp` says who serves:
//! those that have the data first, or the old members as long as there are not enough new ones. When such a PG is active its
//! members are equal, and the pin goes.

use std::collections::BTreeMap;

use carmine_crush::{Mapping, OsdList, pg_mapping};
use carmine_types::{Epoch, OsdId, PgId, UTime, errno};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::osd::check_exist;
use super::{Refusal, refuse};

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
    // What CRUSH wants now, without the pins of before.
    next.pg_temp.clear();
    inc.new_pg_temp = pins(map, &next)?;
    Ok(Some(inc))
}

/// Entries of `pg_temp` that change: who serves each PG until it is where CRUSH wants it; an empty list removes an entry.
fn pins(map: &OsdMap, next: &OsdMap) -> Result<BTreeMap<PgId, Vec<i32>>, Refusal> {
    let mut pins = BTreeMap::new();
    for (&id, pool) in &map.pools {
        for pg in (0..pool.pg_num).map(|ps| PgId::new(id, ps)) {
            let (before, after) = (pg_mapping(map, pg), pg_mapping(next, pg));
            let members = members(map, pg, &before);
            let pin = pin(&members, &before, &after, usize::from(pool.size))
                .ok_or_else(|| stranded(pg, &members))?;
            let old = map.pg_temp.get(&pg);
            if old.map_or(!pin.is_empty(), |old| *old != pin) {
                pins.insert(pg, pin);
            }
        }
    }
    Ok(pins)
}

/// Who has the PG's data, whether up or down.
fn members(map: &OsdMap, pg: PgId, mapping: &Mapping) -> OsdList {
    map.pg_temp.get(&pg).map_or_else(|| mapping.raw.clone(), |pinned| OsdList::from_slice(pinned))
}

/// The pin of one PG, empty for none; `None` if its data would be left behind.
fn pin(members: &[i32], before: &Mapping, after: &Mapping, size: usize) -> Option<Vec<i32>> {
    if after.raw[..] == before.raw[..] && members == &before.raw[..] {
        return Some(Vec::new());
    }
    if after.raw.len() < size {
        // Too few OSDs are in: the old members go on.
        return Some(members.to_vec());
    }
    let (mut keep, new): (Vec<i32>, Vec<i32>) = after.raw.iter().partition(|osd| members.contains(osd));
    let is_up = |osd: &i32| after.up.contains(osd);
    // The first one has to be there to give its data to the new ones.
    let source = keep.iter().position(is_up)?;
    if source == 0 && after.raw.first() == keep.first() {
        return Some(Vec::new());
    }
    keep[..=source].rotate_right(1);
    Some([keep, new].concat())
}

/// Takes the pins away that are not needed any more: an active PG's members all have its data, so that CRUSH's first one can
/// lead. What the leader says is of use only if it knows this very map: a pin may be younger than its report.
pub(super) fn unpin(
    map: &OsdMap,
    (leader, epoch): (OsdId, Epoch),
    stuck: &[PgId],
    now: UTime,
) -> Option<Incremental> {
    if epoch != map.epoch {
        return None;
    }
    let inside = map.osds().filter(|osd| map.is_in(*osd)).count();
    let is_done = |pg: PgId, pinned: &[i32]| {
        let size = map.pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
        let is_led = pinned.first().and_then(|osd| OsdId::from_item(*osd)) == Some(leader);
        // With too few OSDs in no PG is where CRUSH wants it: spares looking each of them up.
        if !is_led || inside < size || stuck.contains(&pg) {
            return false;
        }
        let mapping = pg_mapping(map, pg);
        let first = mapping.raw.first();
        mapping.raw.len() >= size
            && first.is_some_and(|first| pinned.contains(first) && mapping.up.contains(first))
    };
    let mut inc = Incremental::next(map, now);
    let done = map.pg_temp.iter().filter(|(pg, pinned)| is_done(**pg, pinned));
    inc.new_pg_temp = done.map(|(pg, _)| (*pg, Vec::new())).collect();
    (!inc.new_pg_temp.is_empty()).then_some(inc)
}

fn stranded(pg: PgId, members: &[i32]) -> Refusal {
    let names: Vec<String> = members.iter().map(|osd| format!("osd.{osd}")).collect();
    let text = format!(
        "pg {pg} has its data only on {}, which would not serve it any more: data moves only to OSDs that join one that \
         has it and is up",
        names.join(", ")
    );
    refuse(errno::EBUSY, text)
}
