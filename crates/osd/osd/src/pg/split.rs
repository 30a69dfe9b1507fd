//! The split of a PG: when its pool has more PGs, its copy here becomes a copy of each of its parts, in one record of the store. What it
//! has is kept: log, intervals, promises, operations that wait. Each OSD splits its copies for itself, at the map that says so.
//!
//! The children have been there since that map, and wait for their parent (`Phase::Loading`). It is split at once, or, if it is still
//! being read from the store, when it has been read.

use std::rc::Rc;
use std::sync::Arc;

use carmine_crush::MapView;
use carmine_peering::{Event, Phase, resize_is_due};
use carmine_pgtypes::{ObjectChange, PgInfo, Step, Transaction};
use carmine_reactor::Group;
use carmine_store::{Prepared, StoreError};
use carmine_types::{SpgId, is_mutated};
use carmine_wire::osdmap::OsdMap;

use super::Pg;
use super::copies::own_store;
use super::family::mapper;
use crate::maps::Others;
use crate::shard::OsdShard;

impl Pg {
    /// By this map the copy is to be split.
    pub(crate) fn is_split_due(&self, map: &OsdMap) -> bool {
        let Some(pool) = map.pool(self.id.pgid.pool) else { return false };
        let log = self.peer.log();
        log.info().pg_num < pool.pg_num && resize_is_due(log.info(), pool.pg_num, map.epoch)
    }

    /// The copy has been read, and its store works.
    pub(crate) fn is_loaded(&self) -> bool {
        !matches!(self.peer.machine().phase(), Phase::Loading | Phase::Failed(_))
    }

    /// It has yet to be read, or is being merged.
    pub(crate) fn is_loading(&self) -> bool {
        *self.peer.machine().phase() == Phase::Loading
    }

    /// Follows the map by which it is split.
    pub(crate) fn follow_split(self: &Rc<Self>, osd: &Rc<OsdShard>, view: &MapView, others: &Others) {
        let children = self.split(osd, view);
        self.on_map(osd, view, others);
        self.deal(osd, &children);
        children.iter().for_each(|child| child.begin_apart(osd));
    }

    /// Reads what the split into these children copies, and keeps it in memory. Must be held until the split.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn prepare_split(
        &self,
        osd: &OsdShard,
        children: &[SpgId],
    ) -> Result<Prepared, StoreError> {
        own_store(osd).prepare(&self.index_of(children)).await
    }

    /// The same for the children that wait for this PG, also those that come meanwhile.
    pub(in crate::pg) async fn prepare_parts(&self, osd: &OsdShard) -> Result<Prepared, StoreError> {
        loop {
            let children = ids(&self.children(osd));
            let prepared = self.prepare_split(osd, &children).await?;
            if ids(&self.children(osd)) == children {
                return Ok(prepared);
            }
        }
    }

    /// Gives each child the index of snapshots that its parent has. Entries of objects that are not the child's do no harm.
    fn index_of(&self, children: &[SpgId]) -> Vec<ObjectChange> {
        let from = Arc::new(mapper::oid(self.id));
        let copy = |child: &SpgId| {
            ObjectChange::new(mapper::oid(*child), [Step::CloneFrom { from: Arc::clone(&from) }])
        };
        children.iter().map(copy).collect()
    }

    /// The copy has just been read from the store: it is split, if that is due, before it is a copy of anything.
    pub(in crate::pg) fn load_parts(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let view = osd.view().filter(|view| self.is_split_due(view.map()));
        let children = match view {
            Some(view) => self.split(osd, &view),
            None => return self.begin_children_anew(osd),
        };
        children.iter().for_each(|child| child.begin_apart(osd));
    }

    /// What splits made is a copy of its own now, here or on another reactor.
    fn begin_apart(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if !self.leave(osd) {
            self.on(osd, Event::Loaded);
        }
    }

    /// It was removed, and made again after the split: there is nothing of its children in it.
    fn begin_children_anew(&self, osd: &Rc<OsdShard>) {
        for child in self.children(osd) {
            if !child.leave(osd) {
                child.peer.set_parent(None);
                child.load(osd);
            }
        }
    }

    /// Waits for the split of this PG, or, if that waits for one itself, for the same.
    pub(crate) fn wait_for_split(&self, osd: &Rc<OsdShard>, parent: SpgId) {
        let waits_for = osd.pg(parent).and_then(|parent| parent.peer.parent());
        self.peer.set_parent(Some(waits_for.unwrap_or(parent)));
    }

    /// Children that a map has just made do not wait for a PG that is not to be split.
    pub(crate) fn release_children(&self, osd: &Rc<OsdShard>) {
        if self.is_loaded() {
            self.begin_children_anew(osd);
        } else if let Phase::Failed(_) = self.peer.machine().phase() {
            let error = StoreError::Failed(format!("pg {}, its parent, has failed", self.id).into());
            self.children(osd).iter().for_each(|child| child.fail(osd, "it cannot be split", &error));
        }
    }

    /// The PGs that wait for this one to be split.
    pub(in crate::pg) fn children(&self, osd: &OsdShard) -> Vec<Rc<Pg>> {
        let waits = |pg: &&Rc<Pg>| pg.peer.parent() == Some(self.id);
        let (pgs, leaving) = (osd.pgs.borrow(), osd.leaving.borrow());
        pgs.values().chain(leaving.values().map(|leaving| &leaving.pg)).filter(waits).cloned().collect()
    }

    /// Splits the copy, in one step without a suspension: what was submitted before it is the undivided PG's, what comes after it the
    /// parts'. Returns the children.
    fn split(self: &Rc<Self>, osd: &Rc<OsdShard>, view: &MapView) -> Vec<Rc<Pg>> {
        let children = self.children(osd);
        let before = self.peer.info();
        let pg_num = view.map().pool(self.id.pgid.pool).map_or(before.pg_num, |pool| pool.pg_num);
        let part = |pg: SpgId| before.divide(pg, pg_num, view.epoch());
        let infos: Vec<PgInfo> =
            children.iter().map(|child| child.peer.inherit(&self.peer, &before, part(child.id))).collect();
        self.peer.become_part(part(self.id));
        // Only some of a pool's PGs are split, but all of them belong to more PGs now.
        let split = if is_mutated("forget_children") { Vec::new() } else { infos };
        let info = Some(self.peer.info().into());
        let changes = self.index_of(&ids(&children)).into();
        let commit = own_store(osd).submit(Transaction { info, split, changes, ..self.peer.transaction() });
        let (own, parts) = (Rc::clone(osd), [vec![Rc::clone(self)], children.clone()].concat());
        osd.shard.spawn(Group::Recovery, "pg-split", async move {
            if let Err(error) = commit.await {
                parts.iter().for_each(|pg| pg.fail(&own, "its split cannot be written", &error));
            }
        });
        tracing::info!("pg {}: split into {} of {pg_num}", self.id, children.len() + 1);
        // Clients register their watches again, and objects are counted.
        self.ops.forget_clients();
        children
    }

    /// Gives the operations that wait here to the parts that have their objects.
    fn deal(&self, osd: &OsdShard, children: &[Rc<Pg>]) {
        for op in self.ops.pipeline().take_waiting() {
            let owner = children.iter().find(|child| !op.is_pg_op() && child.peer.contains(&op.oid));
            owner.map_or(self, |child| &**child).keep(osd, op);
        }
    }
}

fn ids(pgs: &[Rc<Pg>]) -> Vec<SpgId> {
    pgs.iter().map(|pg| pg.id).collect()
}
