//! PGs whose place the map tells itself: all of their OSDs (`pg_upmap`), or some of CRUSH's replaced by others (`pg_upmap_items`).

use std::collections::{BTreeMap, BTreeSet};

use carmine_types::{OsdId, PgId, UTime};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::Refusal;

/// A PG's exception from CRUSH. Empty lists end it.
#[derive(Clone, Debug)]
pub(crate) enum Upmap {
    /// It has these OSDs.
    Osds(Vec<OsdId>),
    /// The second of each pair stands for the first.
    Items(Vec<(OsdId, OsdId)>),
}

/// Makes, replaces or ends an exception.
pub(super) fn set(map: &OsdMap, pg: PgId, upmap: &Upmap, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let item = |osd: &OsdId| osd.0 as i32;
    let mut inc = Incremental::next(map, now);
    let changes = match upmap {
        Upmap::Osds(osds) => {
            let wish = osds.iter().map(item).collect();
            note(pg, wish, &map.pg_upmap, (&mut inc.new_pg_upmap, &mut inc.old_pg_upmap))
        }
        Upmap::Items(pairs) => {
            let wish = pairs.iter().map(|(from, to)| (item(from), item(to))).collect();
            note(pg, wish, &map.pg_upmap_items, (&mut inc.new_pg_upmap_items, &mut inc.old_pg_upmap_items))
        }
    };
    Ok(changes.then_some(inc))
}

/// Notes a wish among the new entries, or an empty one among those that end; false if it is so already.
fn note<T: PartialEq>(
    pg: PgId,
    wish: Vec<T>,
    known: &BTreeMap<PgId, Vec<T>>,
    (new, old): (&mut BTreeMap<PgId, Vec<T>>, &mut BTreeSet<PgId>),
) -> bool {
    let is_so = known.get(&pg).map_or(wish.is_empty(), |known| *known == wish);
    if wish.is_empty() {
        old.insert(pg);
    } else {
        new.insert(pg, wish);
    }
    !is_so
}
