//! From object names to PGs, and from PGs to OSDs, with everything the OSDMap adds to CRUSH.

use carmine_types::rjenkins::{hash32_2, object_hash, stable_mod};
use carmine_types::{NO_OSD, OsdId, PgId};
use carmine_wire::osdmap::consts::{AFFINITY_MAX, POOL_HASHPSPOOL};
use carmine_wire::osdmap::{OsdMap, PgPool};
use smallvec::SmallVec;

use crate::CrushError;
use crate::mapper::do_rule;

/// OSDs of a PG in order; a hole (erasure coded pools only) is [`NO_OSD`].
pub type OsdList = SmallVec<[i32; 4]>;

/// The choose_args set that serves pools without their own.
const DEFAULT_CHOOSE_ARGS: i64 = -1;

/// Where a PG lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// CRUSH's result, without OSDs that do not exist.
    pub raw: OsdList,
    /// Those that should have it, up or down: after upmaps.
    pub wanted: OsdList,
    /// Those that should serve it: of `wanted` the up ones, the primary moved to the front.
    pub up: OsdList,
    /// First to serve of `up`.
    pub up_primary: Option<OsdId>,
    /// Those that serve it now: `up`, or `pg_temp`.
    pub acting: OsdList,
    /// The one that clients talk to.
    pub acting_primary: Option<OsdId>,
}

impl Mapping {
    /// The OSDs of `acting`, without holes.
    pub fn acting_osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.acting.iter().filter_map(|osd| OsdId::from_item(*osd))
    }
}

/// Placement questions to an `OsdMap`.
pub trait Placement {
    /// The PG of an object; `None` if there is no such pool.
    fn object_pg(&self, pool: i64, nspace: &[u8], key: &[u8], name: &[u8]) -> Option<PgId>;
    /// Where a PG lives; empty for one that does not exist.
    fn pg_mapping(&self, pg: PgId) -> Mapping;
}

impl Placement for OsdMap {
    fn object_pg(&self, pool: i64, nspace: &[u8], key: &[u8], name: &[u8]) -> Option<PgId> {
        let pg_num = self.pool(pool)?.pg_num;
        Some(PgId::of_hash(pool, object_hash(nspace, key, name), pg_num))
    }

    fn pg_mapping(&self, pg: PgId) -> Mapping {
        pg_mapping(self, pg)
    }
}

/// Where a PG lives; empty for one that does not exist, and for one whose rule is missing, does not fit the pool's
/// size, or cannot be computed.
pub fn pg_mapping(map: &OsdMap, pg: PgId) -> Mapping {
    try_pg_mapping(map, pg).0
}

/// As [`pg_mapping`], and why CRUSH gave nothing, if it could not be computed.
pub(crate) fn try_pg_mapping(map: &OsdMap, pg: PgId) -> (Mapping, Option<CrushError>) {
    let Some(pool) = map.pool(pg.pool).filter(|pool| pg.ps < pool.pg_num) else {
        return (Mapping::default(), None);
    };
    let (raw, error) = match raw_osds(map, pool, pg.pool, placement_seed(pool, pg)) {
        Ok(raw) => (raw, None),
        Err(error) => (OsdList::new(), Some(error)),
    };
    (served(map, pool, pg, raw), error)
}

/// What the map makes of CRUSH's result: upmaps, who is up, who leads, and who serves meanwhile.
pub(crate) fn served(map: &OsdMap, pool: &PgPool, pg: PgId, raw: OsdList) -> Mapping {
    let mut wanted = raw.clone();
    apply_upmap(map, pg, &mut wanted);
    let mut up = wanted.clone();
    keep(pool, &mut up, |osd| map.is_up(osd));
    let up_primary = apply_affinity(map, pool, placement_seed(pool, pg), &mut up);
    let (mut acting, mut acting_primary) = temporary(map, pool, pg);
    if acting.is_empty() {
        acting = up.clone();
        acting_primary = acting_primary.or(up_primary);
    }
    Mapping { raw, wanted, up, up_primary, acting, acting_primary }
}

/// The input that CRUSH gets for a PG.
pub(crate) fn placement_seed(pool: &PgPool, pg: PgId) -> u32 {
    let folded = stable_mod(pg.ps, pool.pgp_num);
    if pool.flags & POOL_HASHPSPOOL != 0 {
        hash32_2(folded, pg.pool as u32)
    } else {
        folded.wrapping_add(pg.pool as u32)
    }
}

/// CRUSH's result, without OSDs that do not exist; empty if no rule fits the pool.
fn raw_osds(map: &OsdMap, pool: &PgPool, pool_id: i64, seed: u32) -> Result<OsdList, CrushError> {
    let crush = &map.crush;
    let Some(rule) = crush.find_rule(pool.crush_rule, pool.kind, pool.size) else {
        return Ok(OsdList::new());
    };
    let sets = &crush.choose_args;
    let args = sets.get(&pool_id).or_else(|| sets.get(&DEFAULT_CHOOSE_ARGS));
    let found = do_rule(crush, rule, seed, pool.size.into(), &map.osd_weight, args)?;
    let mut osds = OsdList::from_vec(found);
    keep(pool, &mut osds, |osd| map.exists(osd));
    Ok(osds)
}

/// Takes out the OSDs that do not serve: the rest closes up, or in erasure coded pools a hole stays.
fn keep(pool: &PgPool, osds: &mut OsdList, serves: impl Fn(OsdId) -> bool) {
    let serves = |item: i32| OsdId::from_item(item).is_some_and(&serves);
    if pool.is_erasure() {
        osds.iter_mut().filter(|osd| !serves(**osd)).for_each(|osd| *osd = NO_OSD);
    } else {
        osds.retain(|osd| serves(*osd));
    }
}

/// The first entry that is not a hole.
fn first(osds: &[i32]) -> Option<OsdId> {
    osds.iter().find_map(|osd| OsdId::from_item(*osd))
}

/// Pins and replacements of this PG. Those that lead to an OSD that is out are ignored.
fn apply_upmap(map: &OsdMap, pg: PgId, osds: &mut OsdList) {
    let is_out =
        |item: i32| OsdId::from_item(item).is_some_and(|osd| osd.0 < map.max_osd && map.weight(osd) == 0);
    if let Some(pins) = map.pg_upmap.get(&pg) {
        if pins.iter().any(|osd| is_out(*osd)) {
            return;
        }
        *osds = OsdList::from_slice(pins);
    }
    for &(from, to) in map.pg_upmap_items.get(&pg).into_iter().flatten() {
        if osds.contains(&to) || is_out(to) {
            continue;
        }
        if let Some(osd) = osds.iter_mut().find(|osd| **osd == from) {
            *osd = to;
        }
    }
}

/// Chooses the primary: the first one that its affinity does not pass over; it moves to the front.
fn apply_affinity(map: &OsdMap, pool: &PgPool, seed: u32, osds: &mut OsdList) -> Option<OsdId> {
    let fallback = first(osds);
    if osds.iter().filter_map(|o| OsdId::from_item(*o)).all(|osd| map.affinity(osd) == AFFINITY_MAX) {
        return fallback;
    }
    let takes = |item: &i32| {
        OsdId::from_item(*item).is_some_and(|osd| {
            let affinity = map.affinity(osd);
            affinity >= AFFINITY_MAX || hash32_2(seed, osd.0) >> 16 < affinity
        })
    };
    let Some(place) = osds.iter().position(takes) else {
        return fallback;
    };
    let primary = osds.get(place).and_then(|item| OsdId::from_item(*item));
    if !pool.is_erasure()
        && let Some(head) = osds.get_mut(..=place)
    {
        head.rotate_right(1);
    }
    primary
}

/// `pg_temp` and `primary_temp` of this PG: empty and `None` if it has none.
fn temporary(map: &OsdMap, pool: &PgPool, pg: PgId) -> (OsdList, Option<OsdId>) {
    let mut osds = map.pg_temp.get(&pg).map(|osds| OsdList::from_slice(osds)).unwrap_or_default();
    keep(pool, &mut osds, |osd| map.is_up(osd));
    let primary = match map.primary_temp.get(&pg) {
        Some(osd) => OsdId::from_item(*osd),
        None => first(&osds),
    };
    (osds, primary)
}
