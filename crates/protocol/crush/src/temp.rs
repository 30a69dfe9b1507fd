//! The acting sets that primaries ask the monitor for (MOSDPGTemp): pure functions of a map and of what a primary knows.
//!
//! An entry of `pg_temp` is a [`Pin`]: those that own the PG's data, and those to which it is being copied. Only the primary knows
//! when somebody else owns the data too, or when one that is down will miss writes: so it alone asks for another entry.

use carmine_types::{NO_OSD, OsdId, PgId};
use carmine_wire::osdmap::{OsdMap, Pin};

use crate::Mapping;

/// A PG as its primary knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It serves clients, and all of its members that are up are complete.
    Complete,
    /// It waits for members, or copies are incomplete; the primary's own copy is complete, or it is not.
    Waits {
        /// The primary's own copy.
        is_complete: bool,
    },
    /// This member has to lead: its copy is complete and the primary's is not, or the primary has no room for what only that
    /// member has.
    LedBy(OsdId),
}

/// The entry of `pg_temp` that the primary of a PG asks for, where it is another one than that of the map; an empty one ends it.
#[must_use]
pub fn wanted_temp(map: &OsdMap, pg: PgId, at: &Mapping, standing: Standing) -> Option<Vec<i32>> {
    let pool = map.pool(pg.pool)?;
    let place = Place { map, wanted: &at.wanted, size: usize::from(pool.size) };
    let pin = Pin::of(map, pg, &at.wanted);
    let before = pin.entry();
    let after = match standing {
        Standing::Complete if !map.pg_temp.contains_key(&pg) || place.is_settled(&pin) => return None,
        Standing::Complete => place.complete(pin),
        Standing::Waits { is_complete: false } => return None,
        Standing::Waits { is_complete: true } => {
            place.without_dead(pin, at.acting_primary?, usize::from(pool.min_size))?
        }
        Standing::LedBy(osd) => led_by(map, pin, osd)?.entry(),
    };
    (after != before).then_some(after)
}

/// Whether the monitor may take an acting set into the map: OSDs that exist, each once, and as [`Pin`] has them at most one hole.
#[must_use]
pub fn is_possible(map: &OsdMap, entry: &[i32]) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    let exists = |osd: i32| osd == NO_OSD || OsdId::from_item(osd).is_some_and(|osd| map.exists(osd));
    entry.iter().all(|osd| exists(*osd) && seen.insert(*osd))
}

/// Where CRUSH wants a PG.
struct Place<'a> {
    map: &'a OsdMap,
    wanted: &'a [i32],
    size: usize,
}

impl Place<'_> {
    /// Nobody joins, and there are too few OSDs for the PG to be where CRUSH wants it.
    fn is_settled(&self, pin: &Pin) -> bool {
        let inside = || self.map.osds().filter(|osd| self.map.is_in(*osd)).count();
        pin.joiners.is_empty() && inside() < self.size
    }

    /// The entry of a PG of which all members that are up are complete: none if they are those that CRUSH wants.
    fn complete(&self, pin: Pin) -> Vec<i32> {
        let Place { map, wanted, size } = self;
        if !pin.owners.iter().all(|osd| is_up(map, *osd)) {
            return pin.entry(); // it cannot be active
        }
        let (joined, joiners): (Vec<i32>, Vec<i32>) = pin.joiners.iter().partition(|osd| is_up(map, **osd));
        let mut owners = [pin.owners, joined].concat();
        if !joiners.is_empty() {
            return Pin { owners, joiners }.entry();
        }
        if wanted.len() >= *size && wanted.iter().all(|osd| owners.contains(osd)) {
            return Vec::new();
        }
        // Those that CRUSH wants stay for sure.
        owners.sort_by_key(|osd| !wanted.contains(osd));
        owners.truncate((*size).max(1));
        owners
    }

    /// The entry without owners that are down: the others go on, and those will miss writes. `None` where `leader` may not say so.
    fn without_dead(&self, pin: Pin, leader: OsdId, min_size: usize) -> Option<Vec<i32>> {
        let Place { map, wanted, size } = self;
        let found = pin.members().filter(|osd| map.is_up(*osd)).count();
        if !pin.is_owner(leader) || found < min_size {
            return None;
        }
        let Pin { owners, mut joiners } = pin;
        let (owners, gone): (Vec<i32>, Vec<i32>) = owners.into_iter().partition(|osd| is_up(map, *osd));
        // With too few OSDs in, each that comes back is needed.
        joiners.extend(gone.iter().filter(|osd| wanted.contains(osd) || wanted.len() < *size));
        Some(Pin { owners, joiners }.entry())
    }
}

fn is_up(map: &OsdMap, osd: i32) -> bool {
    OsdId::from_item(osd).is_some_and(|osd| map.is_up(osd))
}

/// The pin with this owner first; `None` if it is none, or down.
fn led_by(map: &OsdMap, mut pin: Pin, successor: OsdId) -> Option<Pin> {
    let place = pin.owners.iter().position(|osd| OsdId::from_item(*osd) == Some(successor))?;
    pin.owners.get_mut(..=place)?.rotate_right(1);
    map.is_up(successor).then_some(pin)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carmine_types::{Epoch, UTime, Uuid};
    use carmine_wire::osdmap::PgPool;

    use super::*;
    use crate::{build_simple_crush, pg_mapping};

    const PG: PgId = PgId::new(1, 0);

    /// Four OSDs of which these are up, and a PG of three copies with this entry.
    fn map(up: &[u32], entry: &[i32]) -> OsdMap {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.set_max_osd(4);
        map.crush = Arc::new(build_simple_crush(&[0, 1, 2, 3].map(|osd| (OsdId(osd), 0x10000)), true));
        map.osd_weight.fill(0x10000);
        map.osd_state = (0..4).map(|osd| if up.contains(&osd) { 3 } else { 1 }).collect();
        map.pools.insert(1, PgPool::replicated(3, 2, 1, 0, Epoch(1), UTime::ZERO));
        if !entry.is_empty() {
            map.pg_temp.insert(PG, entry.to_vec());
        }
        map
    }

    fn asked(map: &OsdMap, standing: Standing) -> Option<Vec<i32>> {
        wanted_temp(map, PG, &pg_mapping(map, PG), standing)
    }

    #[test]
    fn a_primary_asks_only_for_what_it_knows() {
        let all = map(&[0, 1, 2, 3], &[]);
        let [a, b, c] = pg_mapping(&all, PG).wanted[..] else { panic!("three members") };
        let other = (0..4).find(|osd| ![a, b, c].contains(osd)).unwrap();
        let (complete, waits) = (Standing::Complete, Standing::Waits { is_complete: true });
        assert_eq!((asked(&all, complete), asked(&all, waits)), (None, None), "nothing is to be changed");
        // A backfill from `other` to `a`: it ends when both are complete, and nobody asks before.
        let moving = map(&[0, 1, 2, 3], &[b, c, other, NO_OSD, a]);
        assert_eq!(asked(&moving, complete), Some(Vec::new()));
        assert_eq!(asked(&moving, waits), None);
        assert_eq!(asked(&moving, Standing::Waits { is_complete: false }), None);
        // One that has to lead comes first, if it owns the data.
        assert_eq!(asked(&moving, Standing::LedBy(OsdId(c as u32))), Some(vec![c, b, other, NO_OSD, a]));
        assert_eq!(asked(&moving, Standing::LedBy(OsdId(a as u32))), None);
        assert_eq!(asked(&all, Standing::LedBy(OsdId(b as u32))), Some(vec![b, a, c]));
        // One that died will miss writes.
        let dead = map(&[a as u32, b as u32], &[]);
        assert_eq!(asked(&dead, waits), Some(vec![a, b, NO_OSD, c]));
        assert_eq!(asked(&dead, Standing::Waits { is_complete: false }), None);
        assert_eq!(asked(&map(&[a as u32], &[]), waits), None, "fewer than min_size");
    }

    #[test]
    fn only_osds_that_exist_once_each_are_possible() {
        let map = map(&[0], &[]);
        for entry in [&[][..], &[3, 0], &[1, NO_OSD, 2]] {
            assert!(is_possible(&map, entry), "{entry:?}");
        }
        for entry in [&[4][..], &[0, 0], &[-1], &[1, NO_OSD, NO_OSD]] {
            assert!(!is_possible(&map, entry), "{entry:?}");
        }
    }
}
