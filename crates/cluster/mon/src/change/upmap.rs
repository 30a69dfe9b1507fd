//! PGs whose place the map tells itself: all of their OSDs (`pg_upmap`), or some of CRUSH's replaced by others (`pg_upmap_items`).

use carmine_types::{OsdId, PgId, UTime};
use carmine_wire::osdmap::{Incremental, OsdMap};

use super::{Refusal, place};

/// A PG's exception from CRUSH. Empty lists end it.
#[derive(Clone, Debug)]
pub(crate) enum Upmap {
    /// It has these OSDs.
    Osds(Vec<OsdId>),
    /// The second of each pair stands for the first.
    Items(Vec<(OsdId, OsdId)>),
}

/// Makes, replaces or ends an exception. The OSDs that have the data stay until the others have it.
pub(super) fn set(map: &OsdMap, pg: PgId, upmap: &Upmap, now: UTime) -> Result<Option<Incremental>, Refusal> {
    let item = |osd: &OsdId| osd.0 as i32;
    let mut inc = Incremental::next(map, now);
    let is_so = match upmap {
        Upmap::Osds(osds) => {
            let osds: Vec<i32> = osds.iter().map(item).collect();
            let is_so = map.pg_upmap.get(&pg).map_or(osds.is_empty(), |known| *known == osds);
            if osds.is_empty() {
                inc.old_pg_upmap.insert(pg);
            } else {
                inc.new_pg_upmap.insert(pg, osds);
            }
            is_so
        }
        Upmap::Items(pairs) => {
            let pairs: Vec<(i32, i32)> = pairs.iter().map(|(from, to)| (item(from), item(to))).collect();
            let is_so = map.pg_upmap_items.get(&pg).map_or(pairs.is_empty(), |known| *known == pairs);
            if pairs.is_empty() {
                inc.old_pg_upmap_items.insert(pg);
            } else {
                inc.new_pg_upmap_items.insert(pg, pairs);
            }
            is_so
        }
    };
    if is_so {
        return Ok(None);
    }
    place::pin(map, &mut inc)?;
    Ok(Some(inc))
}
