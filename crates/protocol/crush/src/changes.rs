//! What differs between two maps of what decides where PGs are.

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{OsdId, PgId};
use carmine_wire::osdmap::consts::{POOL_HASHPSPOOL, STATE_EXISTS};
use carmine_wire::osdmap::{OsdMap, PgPool};

use crate::placement::{Mapping, placement_seed};

/// Differences of two maps for which CRUSH gives the same.
pub(crate) struct Changes {
    /// OSDs that came up, went down, or have another affinity.
    osds: BTreeSet<i32>,
    /// PGs with other upmaps, another `pg_temp` or `primary_temp`, or with one of these OSDs in their `pg_temp`.
    pgs: BTreeSet<PgId>,
}

impl Changes {
    /// `None` if CRUSH may give something else for any PG.
    pub(crate) fn between(old: &OsdMap, new: &OsdMap) -> Option<Self> {
        let exists = |map: &OsdMap, osd| map.state(OsdId(osd)) & STATE_EXISTS;
        let is_same = old.max_osd == new.max_osd
            && old.osd_weight == new.osd_weight
            && old.osd_state.len() == new.osd_state.len()
            && (0..new.osd_state.len() as u32).all(|osd| exists(old, osd) == exists(new, osd))
            && old.crush == new.crush;
        is_same.then(|| {
            let osds = changed_osds(old, new);
            let mut pgs = differing(&old.pg_temp, &new.pg_temp);
            pgs.append(&mut differing(&old.primary_temp, &new.primary_temp));
            pgs.append(&mut differing(&old.pg_upmap, &new.pg_upmap));
            pgs.append(&mut differing(&old.pg_upmap_items, &new.pg_upmap_items));
            let names = |entry: &[i32]| entry.iter().any(|osd| osds.contains(osd));
            pgs.extend(new.pg_temp.iter().filter(|(_, entry)| names(entry)).map(|(pg, _)| *pg));
            Self { osds, pgs }
        })
    }

    /// Whether nothing of this pool's PGs is different, if CRUSH gives the same.
    pub(crate) fn leave(&self, pool: i64) -> bool {
        self.osds.is_empty()
            && self.pgs.range(PgId::new(pool, 0)..=PgId::new(pool, u32::MAX)).next().is_none()
    }

    /// Whether a PG is where it was, if CRUSH gives the same.
    pub(crate) fn leave_pg(&self, pg: PgId, known: &Mapping) -> bool {
        !self.pgs.contains(&pg)
            && (self.osds.is_empty() || !known.wanted.iter().any(|osd| self.osds.contains(osd)))
    }
}

/// Whether CRUSH is asked the same for PGs of a pool whose [`placement_seed`]s are the same.
pub(crate) fn asks_the_same(old: &PgPool, new: &PgPool) -> bool {
    let asked = |pool: &PgPool| (pool.kind, pool.size, pool.crush_rule, pool.flags & POOL_HASHPSPOOL);
    asked(old) == asked(new)
}

/// Whether CRUSH is asked the same for a PG of both pools.
pub(crate) fn has_same_seed(pg: PgId, old: &PgPool, new: &PgPool) -> bool {
    old.pgp_num == new.pgp_num || placement_seed(old, pg) == placement_seed(new, pg)
}

fn changed_osds(old: &OsdMap, new: &OsdMap) -> BTreeSet<i32> {
    let changed =
        |osd: &OsdId| old.is_up(*osd) != new.is_up(*osd) || old.affinity(*osd) != new.affinity(*osd);
    (0..new.osd_state.len() as u32).map(OsdId).filter(changed).map(|osd| osd.0 as i32).collect()
}

/// The keys that only one of them has, or with other values.
fn differing<V: PartialEq>(old: &BTreeMap<PgId, V>, new: &BTreeMap<PgId, V>) -> BTreeSet<PgId> {
    let missing = old.keys().filter(|pg| !new.contains_key(pg));
    missing
        .chain(new.iter().filter(|(pg, value)| old.get(pg) != Some(value)).map(|(pg, _)| pg))
        .copied()
        .collect()
}
