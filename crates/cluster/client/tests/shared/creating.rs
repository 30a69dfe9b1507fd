//! PGs that were never active, as a monitor knows them: it orders their primaries to create them, once for each new primary.

use std::collections::BTreeMap;

use carmine_crush::{Mapping, OsdList, pg_mapping};
use carmine_types::{Epoch, NO_SHARD, OsdId, PgId};
use carmine_wire::osd_msg::{PastInterval, PastIntervals, PgCreate, PgHistory};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::pg_stat::PgShard;

#[derive(Default)]
pub(crate) struct Creating(BTreeMap<PgId, NewPg>);

struct NewPg {
    history: PgHistory,
    past: PastIntervals,
    interval: Interval,
}

/// The facts that make an interval; `up_from` of its OSDs tells restarts.
#[derive(PartialEq)]
struct Interval {
    size: u8,
    min_size: u8,
    pg_num: u32,
    at: Mapping,
    up_from: Vec<Epoch>,
}

impl Creating {
    /// Goes on to the next map.
    pub(crate) fn follow(&mut self, before: Option<&OsdMap>, map: &OsdMap) {
        self.0.retain(|pg, _| map.pools.contains_key(&pg.pool));
        if let Some(before) = before {
            self.0.iter_mut().for_each(|(pg, new)| new.follow(*pg, before, map));
        }
        let is_new = |id: &i64| before.is_none_or(|before| !before.pools.contains_key(id));
        for (id, pool) in map.pools.iter().filter(|(id, _)| is_new(id)) {
            let pgs = (0..pool.pg_num).map(|ps| PgId::new(*id, ps));
            self.0.extend(pgs.map(|pg| (pg, NewPg::begin(pg, map))));
        }
    }

    /// It was active.
    pub(crate) fn remove(&mut self, pg: PgId) {
        self.0.remove(&pg);
    }

    /// The order to the primary `osd`, which has got those up to this epoch.
    pub(crate) fn order(&self, osd: OsdId, from: Epoch, map: &OsdMap) -> Option<PgCreate> {
        let mut order = PgCreate { epoch: map.epoch, pgs: BTreeMap::new(), histories: BTreeMap::new() };
        let is_due = |new: &NewPg| {
            new.interval.at.acting_primary == Some(osd) && new.history.same_primary_since >= from
        };
        for (pg, new) in self.0.iter().filter(|(_, new)| is_due(new)) {
            order.pgs.insert((*pg).into(), (new.history.epoch_created, map.pools[&pg.pool].create_time));
            order.histories.insert((*pg).into(), (new.history.clone(), new.past.clone()));
        }
        (!order.pgs.is_empty()).then_some(order)
    }
}

impl NewPg {
    fn begin(pg: PgId, map: &OsdMap) -> NewPg {
        let epoch = map.epoch;
        let history = PgHistory {
            epoch_created: epoch,
            epoch_pool_created: epoch,
            same_interval_since: epoch,
            same_up_since: epoch,
            same_primary_since: epoch,
            ..PgHistory::default()
        };
        NewPg { history, past: PastIntervals::default(), interval: Interval::of_map(pg, map) }
    }

    fn follow(&mut self, pg: PgId, before: &OsdMap, map: &OsdMap) {
        let now = Interval::of_map(pg, map);
        if now == self.interval {
            return;
        }
        let Mapping { acting, acting_primary, .. } = &self.interval.at;
        let first = self.history.same_interval_since;
        let is_up_since = |primary: OsdId| {
            before.osd_info[primary.0 as usize].up_from <= first && before.up_thru(primary) >= first
        };
        let may_have_served =
            acting.len() >= self.interval.min_size.into() && acting_primary.is_some_and(is_up_since);
        let acting = acting.iter().map(|osd| PgShard { osd: *osd, shard: NO_SHARD }).collect();
        self.past.add(PastInterval { first, last: before.epoch, acting }, may_have_served);
        self.history.same_interval_since = map.epoch;
        if now.at.up != self.interval.at.up {
            self.history.same_up_since = map.epoch;
        }
        if now.at.acting_primary != *acting_primary {
            self.history.same_primary_since = map.epoch;
        }
        self.interval = now;
    }
}

impl Interval {
    fn of_map(pg: PgId, map: &OsdMap) -> Interval {
        let pool = &map.pools[&pg.pool];
        let at = Mapping { raw: OsdList::new(), wanted: OsdList::new(), ..pg_mapping(map, pg) };
        let osds = at.up.iter().chain(&at.acting).filter_map(|osd| OsdId::from_item(*osd));
        let up_from = osds.map(|osd| map.osd_info[osd.0 as usize].up_from).collect();
        Interval { size: pool.size, min_size: pool.min_size, pg_num: pool.pg_num, at, up_from }
    }
}
