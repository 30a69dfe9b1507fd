//! Intervals of a PG, as Ceph counts them.

use carmine_crush::Mapping;
use carmine_types::{Epoch, NO_OSD, NO_SHARD, OsdId, PgId, SpgId};
use carmine_wire::osd_msg::PastInterval;
use carmine_wire::osdmap::{OsdMap, PgPool};
use carmine_wire::pg_stat::PgShard;

/// A new interval begins where the OSDs of a PG change, or how many it has or needs.
pub(super) fn begins(before: (&PgPool, &Mapping), now: (&PgPool, &Mapping)) -> bool {
    let facts = |(pool, at): (&PgPool, &Mapping)| {
        (pool.size, pool.min_size, pool.pg_num, at.up_primary, at.acting_primary)
    };
    facts(before) != facts(now) || before.1.up != now.1.up || before.1.acting != now.1.acting
}

/// The interval since `first` that `map` is the last one of, and whether clients may have been served in it: there were enough members,
/// and the map says that the primary was up then, and since before.
pub(super) fn ended(map: &OsdMap, pool: &PgPool, at: &Mapping, first: Epoch) -> (PastInterval, bool) {
    let acting: std::collections::BTreeSet<PgShard> = (0..)
        .zip(&at.acting)
        .filter(|(_, osd)| **osd != NO_OSD)
        .map(|(place, osd)| PgShard { osd: *osd, shard: shard_at(pool, place) })
        .collect();
    let up_from = |osd: OsdId| map.osd_info.get(osd.0 as usize).map_or(Epoch(u32::MAX), |info| info.up_from);
    let was_up = |primary: OsdId| map.up_thru(primary) >= first && up_from(primary) <= first;
    let may_have_served = acting.len() >= usize::from(pool.min_size) && at.acting_primary.is_some_and(was_up);
    (PastInterval { first, last: map.epoch, acting }, may_have_served)
}

/// The primary's part of a PG.
pub(super) fn primary_shard(pool: &PgPool, pgid: PgId, at: &Mapping) -> SpgId {
    let is_primary = |osd: &i32| OsdId::from_item(*osd) == at.acting_primary && at.acting_primary.is_some();
    let place = at.acting.iter().position(is_primary).unwrap_or_default();
    SpgId { pgid, shard: shard_at(pool, place as i8) }
}

/// The shard of the member at this place.
fn shard_at(pool: &PgPool, place: i8) -> i8 {
    if pool.is_erasure() { place } else { NO_SHARD }
}
