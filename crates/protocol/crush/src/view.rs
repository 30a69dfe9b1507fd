//! One epoch's map with all its placements computed.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use carmine_types::{Epoch, OsdId, PgId};
use carmine_wire::osdmap::{OsdMap, PgPool};

use crate::changes::{Changes, asks_the_same, has_same_seed};
use crate::placement::{Mapping, Placement, served, try_pg_mapping};

/// Most PGs of one view: its table takes at most about 120 MiB. Ceph allows 2^16 PGs in a pool by default.
pub const PGS_MAX: usize = 1 << 20;

/// Most PGs whose rule may fail to end, which takes some 10 ms each, before a view stops trying.
const FAILURES_MAX: u32 = 16;

/// An OSDMap and the placement of its PGs. Immutable, so one can serve all shards of a process.
///
/// A pool whose PGs do not fit in the table ([`PGS_MAX`]) is not placed at all: see [`MapView::unplaced`].
#[derive(Debug)]
pub struct MapView {
    map: Arc<OsdMap>,
    /// Placements by seed. Views share those of pools that are where they were.
    pools: BTreeMap<i64, Arc<[Mapping]>>,
    /// PGs whose rule failed to end.
    failures: u32,
}

impl MapView {
    /// Computes the placement of every PG: a few microseconds each.
    pub fn new(map: Arc<OsdMap>) -> Self {
        Self::placed(map, |_, pool, place| place.all(pool))
    }

    /// The view of another map, which is made sooner if that differs little: CRUSH is asked only for PGs of which it may
    /// give something else, and a pool of which no PG is elsewhere costs nothing.
    pub fn next(&self, map: Arc<OsdMap>) -> Self {
        let Some(changes) = Changes::between(&self.map, &map) else { return Self::new(map) };
        let next = Self::placed(Arc::clone(&map), |id, pool, place| {
            let known = self.pools.get(&id).zip(self.map.pool(id));
            match known.filter(|(_, was)| asks_the_same(was, pool)) {
                Some((known, was)) => place.changed(pool, (known, was), &changes),
                None => place.all(pool),
            }
        });
        // Where CRUSH gave up, the order in which it was asked decides what is placed.
        if self.failures + next.failures > 0 { Self::new(map) } else { next }
    }

    /// The view of a map, made from the one before if there is one.
    pub fn after(before: Option<&Self>, map: Arc<OsdMap>) -> Self {
        match before {
            Some(before) => before.next(map),
            None => Self::new(map),
        }
    }

    fn placed(
        map: Arc<OsdMap>,
        mut place: impl FnMut(i64, &PgPool, &mut Placing<'_>) -> Arc<[Mapping]>,
    ) -> Self {
        let mut failures = 0;
        let mut pools = BTreeMap::new();
        for (id, pool) in fitting(&map) {
            let mut placing = Placing { map: &map, pool: id, failures: &mut failures };
            pools.insert(id, place(id, pool, &mut placing));
        }
        Self { map, pools, failures }
    }

    /// The pools that are not placed, because there are more than [`PGS_MAX`] PGs.
    pub fn unplaced(&self) -> impl Iterator<Item = i64> + '_ {
        self.map.pools.keys().copied().filter(|id| !self.pools.contains_key(id))
    }

    /// A line for each pool that is not placed, and was by the view `before`, or is new since.
    pub fn complaints(&self, before: Option<&Self>) -> Vec<String> {
        let is_known = |id: &i64| before.is_some_and(|before| before.unplaced().any(|known| known == *id));
        let line = |id| {
            let pg_num = self.map.pool(id).map_or(0, |pool| pool.pg_num);
            format!(
                "pool {id} '{}' is not placed, so nobody serves it: its {pg_num} PGs are too many beside those of the pools \
                 before it. Carmine places at most {PGS_MAX} PGs of all pools together",
                self.map.pool_name(id).unwrap_or_default()
            )
        };
        self.unplaced().filter(|id| !is_known(id)).map(line).collect()
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
        self.pools.iter().flat_map(|(id, pool)| (0..).zip(pool.iter()).map(|(ps, m)| (PgId::new(*id, ps), m)))
    }

    /// The PGs that `osd` serves, as primary or replica, or is going to serve by CRUSH, in order.
    pub fn pgs_of(&self, osd: OsdId) -> impl Iterator<Item = (PgId, &Mapping)> {
        let is_it = move |item: &i32| OsdId::from_item(*item) == Some(osd);
        self.pgs().filter(move |(_, mapping)| mapping.acting.iter().chain(&mapping.up).any(is_it))
    }
}

/// The pools whose PGs fit in a view.
fn fitting(map: &OsdMap) -> impl Iterator<Item = (i64, &PgPool)> {
    let mut room = PGS_MAX;
    map.pools.iter().filter_map(move |(id, pool)| {
        room = room.checked_sub(pool.pg_num as usize)?;
        Some((*id, pool))
    })
}

/// The computation of one pool's placements.
struct Placing<'a> {
    map: &'a OsdMap,
    pool: i64,
    failures: &'a mut u32,
}

impl Placing<'_> {
    fn all(&mut self, pool: &PgPool) -> Arc<[Mapping]> {
        (0..pool.pg_num).map(|ps| self.one(PgId::new(self.pool, ps))).collect()
    }

    fn one(&mut self, pg: PgId) -> Mapping {
        if *self.failures == FAILURES_MAX {
            return Mapping::default();
        }
        let (mapping, error) = try_pg_mapping(self.map, pg);
        *self.failures += u32::from(error.is_some());
        mapping
    }

    /// The placements of a pool that were `known` by a map of which CRUSH is asked the same.
    fn changed(
        &mut self,
        pool: &PgPool,
        (known, was): (&Arc<[Mapping]>, &PgPool),
        changes: &Changes,
    ) -> Arc<[Mapping]> {
        if (was.pg_num, was.pgp_num) == (pool.pg_num, pool.pgp_num) && changes.leave(self.pool) {
            return Arc::clone(known);
        }
        let place = |ps: u32| {
            let pg = PgId::new(self.pool, ps);
            match known.get(ps as usize).filter(|_| has_same_seed(pg, was, pool)) {
                None => self.one(pg),
                Some(known) if changes.leave_pg(pg, known) => known.clone(),
                Some(known) => served(self.map, pool, pg, known.raw.clone()),
            }
        };
        (0..pool.pg_num).map(place).collect()
    }
}
