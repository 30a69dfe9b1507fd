//! One epoch's map with all its placements computed.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use carmine_types::{Epoch, OsdId, PgId};
use carmine_wire::osdmap::OsdMap;

use crate::placement::{Mapping, Placement, try_pg_mapping};

/// Most PGs of one view: its table takes at most about 30 MiB. Ceph allows 2^16 PGs in a pool by default.
const PGS_MAX: usize = 1 << 18;

/// Most PGs whose rule may fail to end, which takes some 10 ms each, before a view stops trying.
const FAILURES_MAX: u32 = 16;

/// An OSDMap and the placement of its PGs. Immutable, so one can serve all shards of a process.
///
/// A pool whose PGs do not fit in the table (they all do, up to 2^18) is not placed at all.
#[derive(Debug)]
pub struct MapView {
    map: Arc<OsdMap>,
    /// Placements by seed.
    pools: BTreeMap<i64, Vec<Mapping>>,
}

impl MapView {
    /// Computes the placement of every PG: a microsecond or two each.
    pub fn new(map: Arc<OsdMap>) -> Self {
        let (mut room, mut failures) = (PGS_MAX, 0);
        let mut place = |pg| {
            if failures == FAILURES_MAX {
                return Mapping::default();
            }
            let (mapping, error) = try_pg_mapping(&map, pg);
            failures += u32::from(error.is_some());
            mapping
        };
        let mut pools = BTreeMap::new();
        for (&id, pool) in &map.pools {
            let pg_num = pool.pg_num as usize;
            if pg_num <= room {
                room -= pg_num;
                pools.insert(id, (0..pool.pg_num).map(|ps| place(PgId::new(id, ps))).collect());
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
    pub fn mapping(&self, pg: PgId) -> &Mapping {
        static NOWHERE: LazyLock<Mapping> = LazyLock::new(Mapping::default);
        self.pools.get(&pg.pool).and_then(|pool| pool.get(pg.ps as usize)).unwrap_or(&NOWHERE)
    }

    /// The OSD that clients talk to about a PG.
    pub fn acting_primary(&self, pg: PgId) -> Option<OsdId> {
        self.mapping(pg).acting_primary
    }

    /// Every PG and where it lives, in order.
    pub fn pgs(&self) -> impl Iterator<Item = (PgId, &Mapping)> {
        self.pools.iter().flat_map(|(id, pool)| (0..).zip(pool).map(|(ps, m)| (PgId::new(*id, ps), m)))
    }

    /// The PGs that `osd` serves, as primary or replica, or is going to serve by CRUSH, in order.
    pub fn pgs_of(&self, osd: OsdId) -> impl Iterator<Item = (PgId, &Mapping)> {
        let is_it = move |item: &i32| OsdId::from_item(*item) == Some(osd);
        self.pgs().filter(move |(_, mapping)| mapping.acting.iter().chain(&mapping.up).any(is_it))
    }
}
