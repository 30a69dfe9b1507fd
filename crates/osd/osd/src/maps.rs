//! Maps: in from the monitor on shard 0, out to every shard in order, and on to clients that are behind.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_crush::MapView;
use carmine_messenger::Message;
use carmine_peering::OsdState;
use carmine_pgtypes::{pg_children, pg_parent};
use carmine_reactor::{Shard, ShardId};
use carmine_types::{Epoch, NO_SHARD, OsdId, PgId, SpgId, is_mutated};
use carmine_wire::mon_msg::{OsdMapMsg, log_level};
use carmine_wire::osdmap::{OsdMap, PgPool};
use carmine_wire::{EntityAddr, EntityAddrVec};

use crate::by_pg::ByPg;
use crate::config::OsdConfig;
use crate::for_each::for_each;
use crate::join::write_cluster_log;
use crate::kinds::{classic_osds, is_classic, report_mixed};
use crate::nothing;
use crate::pg::{Pg, remove_orphans};
use crate::shard::{ConnState, OsdShard};

/// Pause between two looks at PGs that are loaded, or change their reactors.
const LOOK: Duration = Duration::from_millis(10);
/// Most PGs of a shard that are prepared for their splits at the same time.
const PREPARED_MAX: usize = 16;

impl OsdShard {
    /// Where an OSD of Carmine is for other OSDs, by the newest map; `None` if it is down.
    pub(crate) fn addr_of(&self, osd: OsdId) -> Option<EntityAddr> {
        let view = self.view()?;
        if !view.map().is_up(osd) || is_classic(&self.config, view.map(), osd) {
            return None;
        }
        let (map, at) = (view.map(), osd.0 as usize);
        let [cluster, public] =
            [&map.cluster_addrs, &map.client_addrs].map(|all| all.get(at).and_then(EntityAddrVec::msgr2));
        cluster.or(public)
    }

    /// Takes a new map on shard 0 and gives it, with the owners of the PGs, to every shard. Mailboxes keep the order.
    pub fn take_map(self: &Rc<Self>, map: &Arc<OsdMap>) {
        if map.epoch <= self.epoch() {
            return;
        }
        let before = self.view();
        let view = Arc::new(MapView::after(before.as_deref(), Arc::clone(map)));
        let shards = self.shard.shards();
        let table = self.merge_table(PgTable::clone(&self.table.borrow()).made(), map);
        let table = self.split_table(table.with(self.stored_in(map).into_iter(), shards), map);
        let closed = self.closed_pools(map);
        // New PGs of such a pool would be parts of those that are here.
        let is_made = |pg: &SpgId| !closed.contains(&pg.pgid.pool) || table.owner(*pg).is_some();
        let own = self.config.id;
        let mine = view.pgs_of(own).flat_map(|(pg, _)| parts_of(&view, pg, own)).filter(is_made);
        let table = table.with(mine, shards).of_pools(|pool| map.pools.contains_key(&pool)).balanced(shards);
        self.note_stored(&table, map);
        self.moving.set(self.moving.get() + table.moves.len() + table.merges.len());
        let table = Arc::new(table);
        if self.epoch() == Epoch(0) {
            remove_orphans(self, map);
        }
        report_imbalance(&table, shards);
        report_mixed(self, &view);
        for text in view.complaints(before.as_deref()) {
            write_cluster_log(self, log_level::ERROR, text);
        }
        self.spread(&view, &table);
    }

    /// The table with the children of the copies that are to be split by this map.
    fn split_table(&self, table: PgTable, map: &OsdMap) -> PgTable {
        let mut stored = self.stored.borrow_mut();
        let mut table = PgTable { undivided: undivided(&stored, map), ..table };
        for (parent, children) in due_splits(&table.undivided, map) {
            let made = Made::by(map, parent);
            stored.insert(parent, made);
            for child in &children {
                if stored.insert(*child, made).is_none() {
                    table.parents.insert(*child, parent);
                }
            }
            table = table.split(parent, children.into_iter());
        }
        table
    }

    /// The table without the copies that this map merges into others. An OSD that has only a part of a PG has an incomplete copy of the
    /// whole afterwards.
    fn merge_table(&self, mut table: PgTable, map: &OsdMap) -> PgTable {
        let mut stored = self.stored.borrow_mut();
        let too_many: Vec<(SpgId, Made)> = stored
            .iter()
            .map(|(pg, made)| (*pg, *made))
            .filter(|(pg, made)| made.is_above(map, *pg))
            .collect();
        for (pg, made) in too_many {
            let now = Made::by(map, pg);
            let target = SpgId { pgid: PgId { ps: pg_parent(pg.pgid.ps, now.pg_num), ..pg.pgid }, ..pg };
            stored.insert(target, now);
            if pg_children(target.pgid.ps, now.pg_num, made.pg_num).next().is_none() {
                continue; // others are merged
            }
            let sources = table.merges.entry(target).or_default();
            if target != pg {
                stored.remove(&pg);
                sources.push((pg, table.owners.remove(pg)));
            }
        }
        table
    }

    /// Whether copies here are to be split or merged by this map, which is newer than that of the shards.
    pub(crate) fn resizes_by(&self, map: &OsdMap) -> bool {
        self.stored.borrow().iter().any(|(pg, made)| made.is_below(map, *pg) || made.is_above(map, *pg))
    }

    /// Runs on shard 0. Waits until every copy here is loaded, and where it belongs: one that is merged, or split, must not be on its way,
    /// nor be a part of a PG that is yet to be split itself.
    pub(crate) async fn settle_pgs(&self) {
        let loads = |osd: &Rc<OsdShard>| osd.pgs.borrow().values().filter(|pg| pg.is_loading()).count();
        while self.moving.get() > 0 || self.on_all(loads).await.iter().sum::<usize>() > 0 {
            self.shard.sleep(LOOK).await;
        }
    }

    /// Runs on shard 0. The owners of the copies that this map splits read the objects that the splits copy. A copy that has yet to be
    /// loaded reads them when it is.
    pub(crate) async fn prepare_splits(&self, map: &OsdMap) {
        let mut of_shards: BTreeMap<ShardId, Vec<(SpgId, Vec<SpgId>)>> = BTreeMap::new();
        for (parent, children) in due_splits(&undivided(&self.stored.borrow(), map), map) {
            if let Some(owner) = self.owner(parent) {
                of_shards.entry(owner).or_default().push((parent, children));
            }
        }
        let epoch = map.epoch;
        for (owner, splits) in of_shards {
            let prepare = async move |shard: Shard| {
                if let Some(osd) = OsdShard::on(&shard) {
                    prepare_own_splits(&osd, epoch, splits).await;
                }
            };
            self.shard.call(owner, prepare).await;
        }
    }

    /// The pools that had another number of PGs by this old map than their copies here have, which were split or merged since. This OSD
    /// serves no client of these PGs and leaves them unchanged.
    fn closed_pools(&self, map: &OsdMap) -> BTreeSet<i64> {
        let stored = self.stored.borrow();
        let is_other = |(pg, made): &(&SpgId, &Made)| {
            map.pool(pg.pgid.pool).is_some_and(|pool| pool.pg_num != made.pg_num)
        };
        stored.iter().filter(is_other).map(|(pg, _)| pg.pgid.pool).collect()
    }

    /// The PGs of this map that the store had when the OSD started. Members and strays alike are split when their pool is.
    fn stored_in(&self, map: &OsdMap) -> Vec<SpgId> {
        self.stored.borrow().keys().copied().filter(|pg| exists(map, *pg)).collect()
    }

    /// The PGs that have no copy here yet are made with as many PGs as their pools have now.
    fn note_stored(&self, table: &PgTable, map: &OsdMap) {
        let mut stored = self.stored.borrow_mut();
        stored.retain(|pg, _| map.pools.contains_key(&pg.pgid.pool));
        for (pg, _) in table.iter().filter(|(pg, _)| exists(map, *pg)) {
            stored.entry(pg).or_insert(Made { epoch: Epoch(0), ..Made::by(map, pg) });
        }
    }

    /// Runs on shard 0. Gives an owner to each PG that the store holds though this OSD is not a member.
    pub(crate) fn adopt(self: &Rc<Self>, strays: impl Iterator<Item = SpgId>) {
        let Some(view) = self.view() else { return };
        let strays = strays.filter(|pg| exists(view.map(), *pg));
        let table = self.table.borrow().with(strays, self.shard.shards());
        self.spread(&view, &Arc::new(PgTable { has_strays: true, ..table.made() }));
    }

    /// Gives a map and the owners of the PGs to every shard.
    fn spread(self: &Rc<Self>, view: &Arc<MapView>, table: &Arc<PgTable>) {
        self.follow(Arc::clone(view), Arc::clone(table));
        let (view, table) = (Arc::clone(view), Arc::clone(table));
        self.run_on_others(move |osd| osd.follow(view, table));
        nothing::reconsider(self);
    }

    /// A shard's own part of taking a map.
    fn follow(self: &Rc<Self>, view: Arc<MapView>, table: Arc<PgTable>) {
        *self.view.borrow_mut() = Some(Arc::clone(&view));
        self.has_sharded_pools.set(view.map().pools.values().any(PgPool::is_erasure));
        *self.table.borrow_mut() = Arc::clone(&table);
        self.peers.on_map(|osd| self.addr_of(osd));
        self.apply_blocklist(view.map());
        self.remove_pgs_of_deleted_pools(&view);
        let (here, others) = (self.shard.id(), Others::new(&self.config, view.map()));
        for (source, to) in table.given(here) {
            self.give_source(source, to);
        }
        let mut due = Vec::new();
        for (id, _) in table.iter().filter(|(_, owner)| *owner == here) {
            if let Some(sources) = table.merges.get(&id) {
                self.merge(id, sources, &view, &others);
                continue;
            }
            let known = self.pg(id);
            if let Some(pg) = known.as_ref().filter(|pg| pg.is_loaded() && pg.is_split_due(view.map())) {
                due.push(Rc::clone(pg));
                continue;
            }
            if let Some(pg) = known {
                pg.on_map(self, &view, &others);
                continue;
            }
            let pg = Pg::begin(self, id, &view, &others);
            self.pgs.borrow_mut().insert(id, Rc::clone(&pg));
            match table.parents.get(&id).filter(|_| !self.received.borrow_mut().remove(&id)) {
                Some(parent) => pg.wait_for_split(self, *parent),
                None => pg.load(self),
            }
        }
        self.make_leaving(&view, table.leaving(here), &others);
        due.iter().for_each(|pg| pg.follow_split(self, &view, &others));
        self.prepared.borrow_mut().retain(|(epoch, _)| *epoch > view.epoch());
        let parents: BTreeSet<SpgId> = table.parents.values().copied().collect();
        parents.into_iter().filter_map(|id| self.pg(id)).for_each(|parent| parent.release_children(self));
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(|op| {
            op.note_started(self);
            crate::dispatch::route_op(self, op);
        });
        let unplaced = std::mem::take(&mut *self.unplaced.borrow_mut());
        unplaced.into_iter().for_each(|op| crate::dispatch::place_op(self, op));
    }
}

impl OsdShard {
    /// Whether there was such a pool, and the newest map no longer has it.
    pub(crate) fn is_deleted(&self, pool: i64) -> bool {
        let view = self.view.borrow();
        let map = view.as_ref().map(|view| view.map());
        map.is_some_and(|map| !map.pools.contains_key(&pool) && pool <= map.pool_max.into())
    }

    fn remove_pgs_of_deleted_pools(self: &Rc<Self>, view: &MapView) {
        let gone = self.pgs.borrow_mut().remove_pools(|pool| !view.map().pools.contains_key(&pool));
        gone.iter().for_each(|pg| pg.remove(self));
    }
}

/// All OSDs by a map: their states, by number, and those that are not Carmine's.
pub(crate) struct Others {
    pub(crate) states: Arc<[OsdState]>,
    pub(crate) classic: BTreeSet<OsdId>,
}

impl Others {
    fn new(config: &OsdConfig, map: &OsdMap) -> Others {
        Others { states: osd_states(map), classic: classic_osds(config, map) }
    }
}

/// The state of each OSD by the map.
fn osd_states(map: &OsdMap) -> Arc<[OsdState]> {
    let state = |osd: u32| match (map.exists(OsdId(osd)), map.is_up(OsdId(osd))) {
        (false, _) => OsdState::Gone,
        (true, true) => OsdState::Up { up_thru: map.up_thru(OsdId(osd)) },
        (true, false) => {
            OsdState::Down { lost_at: map.lost_at(OsdId(osd)), up_thru: map.up_thru(OsdId(osd)) }
        }
    };
    (0..map.osd_state.len() as u32).map(state).collect()
}

/// More than a tenth above the mean is worth knowing: such a reactor is the one that limits the OSD.
fn report_imbalance(table: &PgTable, shards: u16) {
    let counts = table.counts(shards);
    let (most, total) = (counts.iter().max().copied().unwrap_or(0), counts.iter().sum::<usize>());
    let mean = total as f64 / counts.len().max(1) as f64;
    if total > 0 && most as f64 > mean * 1.1 {
        tracing::warn!(
            "PGs per reactor: {counts:?}; the fullest has {most}, the mean is {mean:.1}: raise pg_num"
        );
    } else {
        tracing::info!("PGs per reactor: {counts:?}");
    }
}

/// Sends our map to a client that has an older one, once per epoch (PROTOCOL.md of the wire crate, §6).
pub(crate) fn share_map(osd: &OsdShard, state: &ConnState, client_epoch: Epoch) {
    let Some(view) = osd.view() else { return };
    let known = client_epoch.max(state.epoch.get());
    state.epoch.set(known);
    if known < view.epoch() && client_epoch != Epoch(0) {
        state.epoch.set(view.epoch());
        state.conn.send(Message::encode(&OsdMapMsg::full(
            view.map().fsid,
            view.epoch(),
            view.map().encode(),
        )));
    }
}

/// The parts of a PG that an OSD has by a map: the PG itself in a replicated pool; in an erasure-coded one a shard for each of its
/// places in the acting set or in the up set.
pub(crate) fn parts_of(view: &MapView, pg: PgId, osd: OsdId) -> impl Iterator<Item = SpgId> + use<> {
    let is_sharded = view.map().pool(pg.pool).is_some_and(PgPool::is_erasure);
    let mapping = view.mapping(pg);
    let places = (0..=i8::MAX).zip(&mapping.acting).chain((0..=i8::MAX).zip(&mapping.up));
    let own = places.filter(move |(_, item)| OsdId::from_item(**item) == Some(osd)).map(|(place, _)| place);
    let shards: BTreeSet<i8> = own.map(|place| if is_sharded { place } else { NO_SHARD }).collect();
    shards.into_iter().map(move |shard| SpgId { pgid: pg, shard })
}

/// The part of a PG that serves its clients by a map: the primary's. Clients name the PG alone.
#[inline]
pub(crate) fn primary_part(view: &MapView, pg: PgId) -> SpgId {
    if !view.map().pool(pg.pool).is_some_and(PgPool::is_erasure) {
        return SpgId::replicated(pg);
    }
    let primary = view.acting_primary(pg);
    let part = primary.and_then(|primary| parts_of(view, pg, primary).next());
    part.unwrap_or(SpgId::replicated(pg))
}

/// Reads the objects that the splits of these copies, which this shard owns, copy into their children, and keeps them in memory until
/// this shard has followed the map of this epoch. Where they cannot be read, the copy fails when it is split.
async fn prepare_own_splits(osd: &Rc<OsdShard>, epoch: Epoch, splits: Vec<(SpgId, Vec<SpgId>)>) {
    let own = splits.into_iter().filter_map(|(parent, children)| Some((osd.pg(parent)?, children)));
    let prepare = async |(pg, children): (Rc<Pg>, Vec<SpgId>)| {
        if let Ok(prepared) = pg.prepare_split(osd, &children).await {
            osd.prepared.borrow_mut().push((epoch, prepared));
        }
        Ok::<(), Infallible>(())
    };
    let Ok(()) = for_each(PREPARED_MAX, own, prepare).await;
}

/// The copies that this map splits, each with its children. There are none where the pool's new PGs are children of others.
fn due_splits(undivided: &BTreeMap<SpgId, u32>, map: &OsdMap) -> Vec<(SpgId, Vec<SpgId>)> {
    let children = |parent: SpgId, made: u32| {
        let now = map.pool(parent.pgid.pool).map_or(made, |pool| pool.pg_num);
        let seeds = pg_children(parent.pgid.ps, made, now);
        seeds.map(|ps| SpgId { pgid: PgId { ps, ..parent.pgid }, ..parent }).collect()
    };
    undivided.iter().map(|(parent, made)| (*parent, children(*parent, *made))).collect()
}

/// The copies that were made when there were fewer PGs than in this map, with how many.
fn undivided(stored: &BTreeMap<SpgId, Made>, map: &OsdMap) -> BTreeMap<SpgId, u32> {
    let due = stored.iter().filter(|(pg, made)| made.is_below(map, **pg));
    due.map(|(pg, made)| (*pg, made.pg_num)).collect()
}

/// How a copy was made: with how many PGs in its pool, and by which map it was split or merged last, if it ever was. Earlier maps, which
/// an OSD that starts follows again, split and merge nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) pg_num: u32,
    pub(crate) epoch: Epoch,
}

impl Made {
    /// A copy that this map makes.
    fn by(map: &OsdMap, pg: SpgId) -> Made {
        Made { pg_num: map.pool(pg.pgid.pool).map_or(0, |pool| pool.pg_num), epoch: map.epoch }
    }

    /// This map splits it.
    fn is_below(&self, map: &OsdMap, pg: SpgId) -> bool {
        map.epoch > self.epoch && map.pool(pg.pgid.pool).is_some_and(|pool| self.pg_num < pool.pg_num)
    }

    /// This map merges it.
    fn is_above(&self, map: &OsdMap, pg: SpgId) -> bool {
        map.epoch > self.epoch && map.pool(pg.pgid.pool).is_some_and(|pool| self.pg_num > pool.pg_num)
    }
}

/// Whether there is such a PG by this map.
fn exists(map: &OsdMap, pg: SpgId) -> bool {
    map.pool(pg.pgid.pool).is_some_and(|pool| pg.pgid.ps < pool.pg_num)
}

// The table of PGs and their reactors.

/// Whether a PG of this pool is about to be merged into another one, or to get one.
pub(crate) fn is_merging(pool: &PgPool, ps: u32) -> bool {
    let (now, next) = (pool.pg_num, pool.pg_num_pending);
    next > 0 && next < now && (ps >= next || pg_children(ps, next, now).next().is_some())
}

/// The PGs that an OSD serves, by shard, and the reactor that owns each. Two shards of one PG may have different owners. A shard of
/// a PG stays with its reactor while the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PgTable {
    owners: ByPg<ShardId>,
    /// Whether it also has the PGs that only the store knows: there is then no copy here of any other PG.
    has_strays: bool,
    /// The copies that have the objects of other PGs, too, as they are not split yet, with the numbers of PGs that their pools had
    /// when they were made.
    undivided: BTreeMap<SpgId, u32>,
    /// The PGs that splits make by this very map, with the PGs that are split.
    parents: BTreeMap<SpgId, SpgId>,
    /// Those that leave the reactors of their parents for others, with the reactors that they leave.
    moves: BTreeMap<SpgId, ShardId>,
    /// The PGs that get others by this very map, with the copies here of those and the reactors that have them, if they have owners.
    merges: BTreeMap<SpgId, Vec<(SpgId, Option<ShardId>)>>,
}

impl PgTable {
    /// The owner of a PG.
    pub(crate) fn owner(&self, pg: SpgId) -> Option<ShardId> {
        self.owners.get(pg).copied()
    }

    /// PGs and owners, in order of pools, then shards.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SpgId, ShardId)> + '_ {
        self.owners.iter().map(|(pg, owner)| (pg, *owner))
    }

    /// The table with these PGs added: each goes to the reactor that has the fewest so far, the first of them on a tie, so
    /// PGs that are added together are dealt evenly and in order.
    pub(crate) fn with(&self, pgs: impl Iterator<Item = SpgId>, shards: u16) -> PgTable {
        let mut owners = self.owners.clone();
        let mut counts = self.counts(shards);
        for pg in pgs {
            if owners.get(pg).is_none() {
                let least = (0..shards).min_by_key(|s| counts[usize::from(*s)]).unwrap_or(0);
                counts[usize::from(least)] += 1;
                owners.insert(pg, ShardId(least));
            }
        }
        PgTable { owners, ..self.clone() }
    }

    /// The table when the splits and merges of its map have been made.
    fn made(self) -> PgTable {
        PgTable { parents: BTreeMap::new(), moves: BTreeMap::new(), merges: BTreeMap::new(), ..self }
    }

    /// The copies of one reactor that this very map merges into PGs of others, or of its own, with the reactors of these.
    fn given(&self, from: ShardId) -> impl Iterator<Item = (SpgId, ShardId)> {
        let all = self.merges.iter().flat_map(|(target, sources)| sources.iter().map(move |s| (*target, *s)));
        let own = all.filter(move |(_, (_, owner))| *owner == Some(from));
        own.filter_map(|(target, (source, _))| Some((source, self.owner(target)?)))
    }

    /// The PGs that splits make by this very map on one reactor for others: each with its parent and the reactor that is to own it.
    fn leaving(&self, from: ShardId) -> impl Iterator<Item = (SpgId, SpgId, ShardId)> {
        let own = self.moves.iter().filter(move |(_, shard)| **shard == from).map(|(id, _)| *id);
        own.filter_map(|id| Some((id, *self.parents.get(&id)?, self.owner(id)?)))
    }

    /// Gives PGs that splits make by this very map to the reactors with the fewest PGs, where those of their parents have more.
    fn balanced(mut self, shards: u16) -> PgTable {
        let mut counts = self.counts(shards);
        for child in self.parents.keys() {
            let Some(from) = self.owners.get(*child).copied() else { continue };
            let least = (0..shards).min_by_key(|s| counts[usize::from(*s)]).map_or(from, ShardId);
            if counts[usize::from(from.0)] > counts[usize::from(least.0)] + 1 {
                counts[usize::from(from.0)] -= 1;
                counts[usize::from(least.0)] += 1;
                self.owners.insert(*child, least);
                self.moves.insert(*child, from);
            }
        }
        self
    }

    /// The table with the children of a PG in it, on its reactor, where their objects are.
    pub(crate) fn split(mut self, parent: SpgId, children: impl Iterator<Item = SpgId>) -> PgTable {
        if let Some(owner) = self.owner(parent) {
            for child in children {
                assert!(
                    self.owner(child).is_none_or(|other| other == owner),
                    "{child} is apart from {parent}"
                );
                self.owners.insert(child, owner);
            }
        }
        self.undivided.remove(&parent);
        self
    }

    /// Whether it is certain that there is no copy of this PG here.
    pub(crate) fn has_no_copy(&self, pg: SpgId) -> bool {
        self.has_strays && self.owner(pg).is_none() && !self.has_part(pg)
    }

    /// Whether a copy here has the objects of this PG, too, as it is not split yet.
    pub(crate) fn has_part(&self, pg: SpgId) -> bool {
        let is_whole = |whole: &SpgId, pg_num: u32| {
            (whole.pgid.pool, whole.shard) == (pg.pgid.pool, pg.shard)
                && whole.pgid.ps == pg_parent(pg.pgid.ps, pg_num)
        };
        self.undivided.iter().any(|(whole, pg_num)| is_whole(whole, *pg_num)) && !is_mutated("deny_undivided")
    }

    /// Whether all PGs of which there is a copy here have owners.
    pub(crate) fn knows_strays(&self) -> bool {
        self.has_strays
    }

    /// The table without the PGs of pools that are gone.
    pub(crate) fn of_pools(mut self, exists: impl Fn(i64) -> bool) -> PgTable {
        self.owners.remove_pools(|pool| !exists(pool));
        self
    }

    /// Number of PGs of each reactor.
    pub(crate) fn counts(&self, shards: u16) -> Vec<usize> {
        let mut counts = vec![0; usize::from(shards.max(1))];
        for shard in self.owners.values() {
            counts[usize::from(shard.0)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::{NO_OSD, UTime, Uuid};
    use carmine_wire::osdmap::consts::POOL_ERASURE;

    use super::*;

    const PG: PgId = PgId::new(1, 5);

    #[test]
    fn pgs_are_dealt_evenly_and_stay() {
        let pgs = |pool| (0..33).map(move |ps| SpgId::from(PgId::new(pool, ps)));
        let first = PgTable::default().with(pgs(1), 4);
        assert_eq!(first.counts(4), [9, 8, 8, 8]);
        let second = first.with(pgs(1).chain(pgs(2)), 4);
        assert!(first.iter().all(|(pg, shard)| second.owner(pg) == Some(shard)));
        let counts = second.counts(4);
        assert!(counts.iter().max().zip(counts.iter().min()).is_some_and(|(max, min)| max - min <= 1));
        assert_eq!(second.owner(PgId::new(3, 0).into()), None);
    }

    #[test]
    fn a_copy_is_split_or_merged_by_maps_after_the_one_that_made_it() {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.epoch = Epoch(5);
        map.pools.insert(1, PgPool::replicated(2, 1, 8, 0, Epoch(1), UTime::ZERO));
        let pg = SpgId::from(PgId::new(1, 0));
        let due = |pg_num, epoch| {
            let made = Made { pg_num, epoch: Epoch(epoch) };
            (made.is_below(&map, pg), made.is_above(&map, pg))
        };
        assert_eq!([due(4, 4), due(8, 4), due(16, 4)], [(true, false), (false, false), (false, true)]);
        assert_eq!([due(4, 5), due(16, 6)], [(false, false); 2], "an older map is followed again");
    }

    #[test]
    fn it_is_not_denied_that_the_parent_of_a_pg_is_here() {
        let parent = SpgId::from(PgId::new(1, 5));
        let table = PgTable::default().with([parent].into_iter(), 1);
        let table = PgTable { has_strays: true, ..table };
        let undivided = PgTable { undivided: [(parent, 8)].into(), ..table.clone() };
        for child in [13, 21, 29].map(|ps| SpgId::from(PgId::new(1, ps))) {
            assert!(!undivided.has_no_copy(child), "{child} is in its parent, which is here");
            assert!(table.has_no_copy(child), "{parent} is split, and the child is elsewhere");
        }
        let others =
            [part(PgId::new(1, 6), NO_SHARD), part(PgId::new(2, 13), NO_SHARD), part(PgId::new(1, 13), 0)];
        assert!(others.iter().all(|pg| undivided.has_no_copy(*pg)));
        let later = undivided.with(others.into_iter(), 1);
        assert!(!later.has_no_copy(part(PgId::new(1, 13), NO_SHARD)), "also when other PGs have come");
    }

    #[test]
    fn children_begin_where_their_parents_are() {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.pools.insert(1, PgPool::replicated(2, 1, 14, 0, Epoch(1), UTime::ZERO));
        let ids = |seeds: &[u32]| seeds.iter().map(|ps| SpgId::from(PgId::new(1, *ps))).collect::<Vec<_>>();
        let old = ids(&[0, 1, 2, 3]);
        let table = PgTable::default().with(old.iter().copied(), 4);
        let table = PgTable { undivided: [(old[1], 4), (old[2], 8)].into(), ..table };
        let due = due_splits(&table.undivided, &map);
        // PG 1 of 4 becomes four PGs of 14; PG 2 of 8 becomes two, as there is no PG 1.e.
        assert_eq!(due, [(old[1], ids(&[5, 9, 13])), (old[2], ids(&[10]))]);
        let split =
            due.iter().fold(table, |table, (pg, children)| table.split(*pg, children.iter().copied()));
        let owners = ids(&[1, 5, 9, 13, 2, 10]).into_iter().map(|pg| split.owner(pg)).collect::<Vec<_>>();
        assert_eq!(owners, [1, 1, 1, 1, 2, 2].map(|shard| Some(ShardId(shard))));
        assert!(split.undivided.is_empty() && !split.has_part(ids(&[5])[0]));
        assert_eq!(split.with(ids(&[5]).into_iter(), 4), split, "CRUSH puts a child where it is");
    }

    #[test]
    fn copies_that_were_made_with_fewer_pgs_are_undivided() {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.pools.insert(1, PgPool::replicated(2, 1, 8, 0, Epoch(1), UTime::ZERO));
        map.epoch = Epoch(1);
        let id = |pool, ps| SpgId::from(PgId::new(pool, ps));
        let copy = |pool, ps, pg_num| (id(pool, ps), Made { pg_num, epoch: Epoch(0) });
        let stored = [copy(1, 0, 8), copy(1, 3, 4), copy(1, 1, 16), copy(4, 0, 4)].into();
        assert_eq!(undivided(&stored, &map), [(id(1, 3), 4)].into());
    }

    fn part(pgid: PgId, shard: i8) -> SpgId {
        SpgId { pgid, shard }
    }

    #[test]
    fn shards_of_one_pg_have_owners_of_their_own() {
        let parts = [part(PG, 0), part(PG, 2)];
        let first = PgTable::default().with(parts[..1].iter().copied(), 2);
        assert_eq!(parts.map(|pg| first.owner(pg)), [Some(ShardId(0)), None]);
        let both = first.with(parts.into_iter(), 2);
        assert_eq!(parts.map(|pg| both.owner(pg)), [Some(ShardId(0)), Some(ShardId(1))]);
        assert!(both.iter().eq([(parts[0], ShardId(0)), (parts[1], ShardId(1))]));
        assert_eq!(both.owner(PG.into()), None, "it is in no pool without shards");
        assert_eq!(both.of_pools(|pool| pool != PG.pool), PgTable::default());
    }

    /// A map in which the PG of a pool of this kind is served by these OSDs.
    fn view(kind: u8, acting: &[i32]) -> MapView {
        let mut map = OsdMap::new(Uuid([7; 16]), UTime::ZERO);
        map.epoch = Epoch(1);
        map.set_max_osd(3);
        map.osd_state.fill(3);
        let pool = PgPool { kind, ..PgPool::replicated(4, 1, 8, 0, Epoch(1), UTime::ZERO) };
        map.pools.insert(PG.pool, pool);
        map.pg_temp.insert(PG, acting.to_vec());
        MapView::new(Arc::new(map))
    }

    #[test]
    fn the_parts_of_a_pg_are_the_places_in_its_acting_set_where_these_matter() {
        let parts = |view: &MapView, osd| parts_of(view, PG, OsdId(osd)).collect::<Vec<_>>();
        let sharded = view(POOL_ERASURE, &[NO_OSD, 2, 1, 2]);
        assert_eq!(parts(&sharded, 2), [part(PG, 1), part(PG, 3)]);
        assert_eq!((parts(&sharded, 1), parts(&sharded, 0)), (vec![part(PG, 2)], vec![]));
        assert_eq!(primary_part(&sharded, PG), part(PG, 1));
        let replicated = view(PgPool::default().kind, &[1, 2]);
        assert_eq!(parts(&replicated, 2), [PG.into()]);
        assert_eq!((parts(&replicated, 0), primary_part(&replicated, PG)), (vec![], PG.into()));
    }
}
