//! PGs that were never active. Their primaries are ordered to create them (MOSDPGCreate2), as nobody else can tell a PG that is new
//! from one whose data is elsewhere.
//!
//! A pool has the flag `creating` until each of its PGs was active. As in Ceph, that is in the map, and so it is durable; which PGs are
//! meant, and what happened to them since, is made up anew from the stored maps when the monitor starts ([`Creating::restored`]).
//! A PG that was active before the restart then counts as new until its primary tells of it again. Its primary may be ordered
//! to create it: it has it, or it finds it by the past intervals in the order.

mod interval;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use carmine_crush::{Mapping, pg_mapping};
use carmine_types::{Epoch, OsdId, PgId, ScrubStamp, UTime};
use carmine_wire::osd_msg::{PastIntervals, PgCreate, PgHistory};
use carmine_wire::osdmap::consts::POOL_CREATING;
use carmine_wire::osdmap::{OsdMap, PgPool};
use tracing::warn;

use crate::history::History;

/// Most PGs in one order, which has some 300 bytes for each.
const PGS_MAX: usize = 1_000;

/// The PGs that were never active.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Creating {
    pgs: BTreeMap<PgId, NewPg>,
    /// The last epoch in which one of them got another primary.
    last_order: Epoch,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
struct NewPg {
    history: PgHistory,
    past: PastIntervals,
    /// Where it is.
    at: Mapping,
}

/// What an OSD that subscribes to orders has not got: those from this epoch on, and of this epoch those of PGs from this one on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CreateWish {
    from: Epoch,
    pg: PgId,
}

impl CreateWish {
    /// All orders since this epoch.
    pub(crate) fn since(from: Epoch) -> CreateWish {
        CreateWish { from, pg: PgId::new(i64::MIN, 0) }
    }
}

fn is_creating(pool: &PgPool) -> bool {
    pool.flags & POOL_CREATING != 0
}

impl Creating {
    /// Rebuilds the PGs that are being created now from the stored maps, the last of which is the current one.
    pub(crate) fn restored(history: &History, current: &OsdMap) -> Creating {
        let mut creating = Creating::default();
        if !current.pools.values().any(is_creating) {
            return creating;
        }
        let mut before = None;
        for bytes in history.all() {
            // They were decoded before, when the history was restored.
            let Ok(map) = OsdMap::decode(&bytes) else { continue };
            creating.follow(before.as_ref(), &map);
            before = Some(map);
        }
        creating.follow(before.as_ref(), current);
        creating
    }

    /// Goes on to the next map, or begins with the oldest one that there is.
    pub(crate) fn follow(&mut self, before: Option<&OsdMap>, map: &OsdMap) {
        self.pgs
            .retain(|pg, _| map.pool(pg.pool).is_some_and(|pool| is_creating(pool) && pg.ps < pool.pg_num));
        if let Some(before) = before {
            for (pg, new) in &mut self.pgs {
                new.follow(*pg, before, map);
            }
        }
        for (id, pool) in map.pools.iter().filter(|(_, pool)| is_creating(pool)) {
            match before {
                Some(before) if before.pool(*id).is_some() => {}
                None if pool.create_time != map.modified => {
                    warn!("pool {id} is older than the oldest stored map: its PGs count as created");
                }
                _ => self.begin(*id, pool, map),
            }
        }
        self.last_order =
            self.pgs.values().map(|new| new.history.same_primary_since).max().unwrap_or_default();
    }

    fn begin(&mut self, id: i64, pool: &PgPool, map: &OsdMap) {
        for pg in (0..pool.pg_num).map(|ps| PgId::new(id, ps)) {
            self.pgs.insert(pg, NewPg::begin(map.epoch, pool.create_time, pg_mapping(map, pg)));
        }
    }

    /// It was never active.
    pub(crate) fn contains(&self, pg: PgId) -> bool {
        self.pgs.contains_key(&pg)
    }

    /// It is active.
    pub(crate) fn remove(&mut self, pg: PgId) {
        self.pgs.remove(&pg);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pgs.is_empty()
    }

    /// The pools that have the flag though all of their PGs were active.
    pub(crate) fn created_pools(&self, map: &OsdMap) -> Vec<i64> {
        let has_new = |id: i64| self.pgs.range(PgId::new(id, 0)..=PgId::new(id, u32::MAX)).next().is_some();
        let creating = map.pools.iter().filter(|(_, pool)| is_creating(pool));
        creating.map(|(id, _)| *id).filter(|id| !has_new(*id)).collect()
    }

    /// The next order for an OSD, and what it has not got then; `None` if it has got all.
    pub(crate) fn next_order(
        &self,
        osd: OsdId,
        wish: CreateWish,
        map: &OsdMap,
    ) -> Option<(PgCreate, CreateWish)> {
        if wish.from > self.last_order {
            return None;
        }
        let key = |(pg, new): &(&PgId, &NewPg)| CreateWish { from: new.history.same_primary_since, pg: **pg };
        let is_its = |(_, new): &(&PgId, &NewPg)| new.at.acting_primary == Some(osd);
        let mut due: Vec<_> = self.pgs.iter().filter(is_its).filter(|new| key(new) >= wish).collect();
        due.sort_by_key(key);
        due.truncate(PGS_MAX);
        let last = key(due.last()?);
        let mut order = PgCreate { epoch: map.epoch, pgs: BTreeMap::new(), histories: BTreeMap::new() };
        for (pg, new) in due {
            let Some(pool) = map.pool(pg.pool) else { continue };
            let spg = interval::primary_shard(pool, *pg, &new.at);
            order.pgs.insert(spg, (new.history.epoch_created, new.history.last_scrub.time));
            order.histories.insert(spg, (new.history.clone(), new.past.clone()));
        }
        Some((order, CreateWish { pg: PgId::new(last.pg.pool, last.pg.ps.saturating_add(1)), ..last }))
    }
}

impl NewPg {
    fn begin(epoch: Epoch, stamp: UTime, at: Mapping) -> NewPg {
        let scrub = ScrubStamp { time: stamp, ..ScrubStamp::default() };
        let history = PgHistory {
            epoch_created: epoch,
            epoch_pool_created: epoch,
            same_interval_since: epoch,
            same_up_since: epoch,
            same_primary_since: epoch,
            last_scrub: scrub,
            last_deep_scrub: scrub,
            last_clean_scrub_stamp: stamp,
            ..PgHistory::default()
        };
        NewPg { history, past: PastIntervals::default(), at }
    }

    fn follow(&mut self, pg: PgId, before: &OsdMap, map: &OsdMap) {
        let at = pg_mapping(map, pg);
        let (Some(old), Some(pool)) = (before.pool(pg.pool), map.pool(pg.pool)) else { return };
        if interval::begins((old, &self.at), (pool, &at)) {
            let (ended, may_have_served) =
                interval::ended(before, old, &self.at, self.history.same_interval_since);
            self.past.add(ended, may_have_served);
            self.history.same_interval_since = map.epoch;
            if at.up != self.at.up {
                self.history.same_up_since = map.epoch;
            }
            if at.acting_primary != self.at.acting_primary {
                self.history.same_primary_since = map.epoch;
            }
        }
        self.at = at;
    }
}
