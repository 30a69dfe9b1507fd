//! One epoch's map with all its placements computed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use carmine_types::{Epoch, OsdId, PgId};
use carmine_wire::osdmap::OsdMap;

use crate::placement::{Mapping, Placement, pg_mapping};

/// Most PGs whose placement is kept; those beyond are computed when asked for. 2^17 take about 0.3 s and 20 MiB.
const PGS_MAX: usize = 1 << 17;

/// An OSDMap and the placement of its PGs. Immutable, so one can serve all shards of a process.
#[derive(Debug)]
pub struct MapView {
    map: Arc<OsdMap>,
    /// Placements by seed, of each pool that fitted into `PGS_MAX`.
    pools: BTreeMap<i64, Vec<Mapping>>,
}

impl MapView {
    /// Computes the placement of every PG: a few microseconds each.
    pub fn new(map: Arc<OsdMap>) -> Self {
        let mut room = PGS_MAX;
        let mut pools = BTreeMap::new();
        for (&id, pool) in &map.pools {
            let pg_num = pool.pg_num as usize;
            if pg_num <= room {
                room -= pg_num;
                let mappings = (0..pool.pg_num).map(|ps| pg_mapping(&map, PgId::new(id, ps))).collect();
                pools.insert(id, mappings);
            }
        }
        Self { map, pools }
    }

    /// The map.
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// Number of the map.
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// The PG of an object; `None` if there is no such pool.
    pub fn object_pg(&self, pool: i64, nspace: &[u8], key: &[u8], name: &[u8]) -> Option<PgId> {
        self.map.object_pg(pool, nspace, key, name)
    }

    /// Where a PG lives; empty for one that does not exist.
    pub fn mapping(&self, pg: PgId) -> Cow<'_, Mapping> {
        match self.pools.get(&pg.pool).and_then(|pool| pool.get(pg.ps as usize)) {
            Some(mapping) => Cow::Borrowed(mapping),
            None => Cow::Owned(pg_mapping(&self.map, pg)),
        }
    }

    /// The OSD that clients talk to about a PG.
    pub fn acting_primary(&self, pg: PgId) -> Option<OsdId> {
        self.mapping(pg).acting_primary
    }

    /// The PGs that `osd` serves, as primary or replica, in order.
    pub fn pgs_of(&self, osd: OsdId) -> impl Iterator<Item = (PgId, Cow<'_, Mapping>)> {
        self.map
            .pools
            .iter()
            .flat_map(|(id, pool)| (0..pool.pg_num).map(|ps| PgId::new(*id, ps)))
            .map(|pg| (pg, self.mapping(pg)))
            .filter(move |(_, mapping)| mapping.acting_osds().any(|o| o == osd))
    }
}
