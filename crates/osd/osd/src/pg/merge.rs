//! The merge of PGs: when its pool has fewer PGs, a PG's copy here gets the copies of those that end in it, its sources, in one record of
//! the store. Each OSD merges its copies for itself, at the map that says so.
//!
//! The target is not loaded meanwhile (`Phase::Loading`). The reactors that have the sources give them up to the target's reactor, which
//! then reads all of them from the store, as if the OSD had just started.

use std::rc::Rc;

use carmine_crush::MapView;
use carmine_peering::{Event, resize_is_due};
use carmine_pgtypes::{
    Merge, ObjectChange, PgInfo, PgState, Step, Transaction, merged_away, pg_bits, pg_children,
};
use carmine_reactor::{Group, Shard, ShardId};
use carmine_store::{OmapRange, Released, StoreError};
use carmine_types::{Eversion, PgId, SpgId};
use carmine_wire::osdmap::OsdMap;

use super::Pg;
use super::copies::own_store;
use super::family::mapper;
use super::moving::note_moved;
use crate::maps::Others;
use crate::shard::OsdShard;

/// Bytes of a page of an index of snapshots.
const PAGE_BYTES: usize = 1 << 20;

impl OsdShard {
    /// Gives a PG that this reactor owns, and that is merged into another one, to the reactor that has that.
    pub(crate) fn give_source(self: &Rc<Self>, source: SpgId, to: ShardId) {
        let pg = self.pgs.borrow_mut().remove(source);
        let pg = pg.unwrap_or_else(|| panic!("pg {source}, which is merged, has its owner here"));
        pg.ops.pipeline().start_over();
        // Their clients send them to the other PG.
        pg.ops.pipeline().take_waiting().iter().for_each(|op| op.abandon());
        pg.on(self, Event::Removed);
        let own = Rc::clone(self);
        self.shard.spawn(Group::Recovery, "pg-source", async move {
            pg.copies.commits().close();
            let released = own_store(&own).release(source, pg.peer.bits()).await;
            let released = released.inspect_err(|error| tracing::error!("pg {source}: {error}")).ok();
            let arrive = async move |shard: Shard| {
                if let Some(osd) = OsdShard::on(&shard) {
                    osd.receive_source(source, released).await;
                }
            };
            own.shard.call(to, arrive).await;
        });
    }

    /// A source has come to the reactor of its target; `None`: its store has stopped.
    async fn receive_source(&self, source: SpgId, released: Option<Released>) {
        let has_come = released.is_some();
        if let Some(released) = released {
            self.store.adopt(released).await;
        }
        self.sources.borrow_mut().insert(source, has_come);
        self.source_news.notify_all();
    }

    /// Waits until these have come.
    async fn await_sources(&self, sources: &[SpgId]) -> Result<(), StoreError> {
        for source in sources {
            let has_come = loop {
                if let Some(has_come) = self.sources.borrow_mut().remove(source) {
                    break has_come;
                }
                self.source_news.notified().await;
            };
            if !has_come {
                return Err(StoreError::Failed(format!("the store of pg {source} has stopped").into()));
            }
        }
        Ok(())
    }

    /// Merges these PGs into one that this reactor owns; of those with owners the copies come from their reactors.
    pub(crate) fn merge(
        self: &Rc<Self>,
        id: SpgId,
        sources: &[(SpgId, Option<ShardId>)],
        view: &MapView,
        others: &Others,
    ) {
        let merge = merge_by(view.map(), id.pgid, sources);
        let known = self.pg(id).map(|pg| (pg.peer.bits(), pg));
        let bits_before = known.as_ref().map(|(bits, _)| *bits);
        let pg = match known {
            Some((_, pg)) => {
                pg.on(self, Event::Merges);
                // Operations on the sources' objects wait here from now on.
                pg.peer.change_info(|info| info.pg_num = merge.pg_num);
                pg.on_map(self, view, others);
                pg
            }
            None => {
                let pg = Pg::begin(self, id, view, others);
                self.pgs.borrow_mut().insert(id, Rc::clone(&pg));
                pg
            }
        };
        let moved: Vec<SpgId> =
            sources.iter().filter(|(_, from)| from.is_some()).map(|(source, _)| *source).collect();
        let sources: Vec<SpgId> = sources.iter().map(|(source, _)| *source).collect();
        let own = Rc::clone(self);
        self.shard.spawn(Group::Recovery, "pg-merge", async move {
            let merged = async {
                own.await_sources(&moved).await?;
                pg.merge(&own, &sources, &merge, bits_before).await
            };
            match merged.await {
                Ok(()) => {
                    tracing::info!("pg {id}: merged with {} of {}", sources.len() + 1, merge.pg_num + 1);
                    pg.on(&own, Event::Loaded);
                    pg.heed_order(&own);
                }
                Err(error) => pg.fail(&own, "it cannot be merged", &error),
            }
            note_moved(&own);
        });
    }
}

impl Pg {
    /// By this map the pool has fewer PGs than when the copy was made, and no other PG is merged into this one.
    fn only_others_merge(&self, map: &OsdMap) -> Option<u32> {
        let now = map.pool(self.id.pgid.pool)?.pg_num;
        let log = self.peer.log();
        let info = log.info();
        let is_due = info.pg_num > now && resize_is_due(info, now, map.epoch);
        let is_target = pg_children(self.id.pgid.ps, now, info.pg_num).next().is_some();
        (is_due && !is_target && self.id.pgid.ps < now).then_some(now)
    }

    /// Notes that the pool has fewer PGs, if only others are merged.
    pub(in crate::pg) fn note_fewer(self: &Rc<Self>, osd: &Rc<OsdShard>, map: &OsdMap) {
        let Some(pg_num) = self.only_others_merge(map) else { return };
        let epoch = map.epoch;
        let commit = self.peer.write_info(osd, |info| (info.pg_num, info.split) = (pg_num, epoch));
        self.peer.note_bits();
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-fewer", async move {
            if let Err(error) = commit.await {
                pg.fail(&own, "its number of PGs cannot be written", &error);
            }
        });
    }

    /// Makes one copy of this one and its sources, all of which are in this reactor's part of the store. `bits_before`: those that the
    /// objects of this PG shared, if it was here.
    async fn merge(
        &self,
        osd: &Rc<OsdShard>,
        sources: &[SpgId],
        merge: &Merge,
        bits_before: Option<u32>,
    ) -> Result<(), StoreError> {
        let store = own_store(osd);
        if let Some(bits) = bits_before {
            // All that was submitted for it is in the store then.
            store.adopt(store.release(self.id, bits).await?).await;
        }
        let is_known = |state: &PgState| state.info.pg_num > 0;
        let target = store.load_pg(self.id).await?.filter(is_known);
        let bits = pg_bits(self.id.pgid.ps, merge.pg_num);
        let mut parts = Vec::new();
        for source in sources {
            parts.extend(store.load_pg(*source).await?.filter(is_known));
            self.copy_index(osd, *source, bits).await?;
        }
        // A stray's copy may have been removed: then there is nothing of it.
        let sources: Vec<SpgId> = parts.iter().map(|part| part.info.pg).collect();
        let mut merged = match target.is_none() && parts.is_empty() {
            true => PgState { info: self.nothing(merge), log: Vec::new() },
            false => PgState::absorb(target, self.id, &parts, merge),
        };
        if bits_before.is_some() {
            merged.info.history = self.peer.history();
        }
        let txn = Transaction {
            info: Some(merged.info.clone().into()),
            log: merged.log.iter().cloned().collect(),
            log_rewind_to: Some(Eversion::ZERO),
            changes: merged_away(&sources),
            merge: sources,
            ..Transaction::new(self.id, bits)
        };
        let prepared = store.prepare(&txn.changes).await?;
        let commit = store.submit(txn);
        drop(prepared);
        commit.await?;
        self.peer.become_merged(merged);
        if bits_before.is_none() {
            self.promised_before(osd);
        }
        // Clients register their watches again, and objects are counted.
        self.ops.forget_clients();
        Ok(())
    }

    /// The info of a copy that is made by a merge of which nothing is here.
    fn nothing(&self, merge: &Merge) -> PgInfo {
        let Merge { pg_num, epoch, .. } = *merge;
        PgInfo { pg: self.id, pg_num, split: epoch, made: epoch, ..PgInfo::default() }
    }

    /// Adds the index of snapshots of a source to this PG's. A page that comes again after a crash does no harm.
    async fn copy_index(&self, osd: &OsdShard, source: SpgId, bits: u32) -> Result<(), StoreError> {
        let (store, from) = (own_store(osd), mapper::oid(source));
        let mut range = OmapRange::all(PAGE_BYTES);
        loop {
            let page = match store.omap_page(&from, &range).await {
                Err(StoreError::NotFound(_)) => return Ok(()),
                page => page?,
            };
            range = range.after(&page);
            let steps = [Step::SetOmap { entries: page.entries }];
            let changes = vec![ObjectChange::new(mapper::oid(self.id), steps)];
            let prepared = store.prepare(&changes).await?;
            let commit =
                store.submit(Transaction { changes: changes.into(), ..Transaction::new(self.id, bits) });
            drop(prepared);
            commit.await?;
            if !page.more {
                return Ok(());
            }
        }
    }
}

/// What the map says of the merge of these sources into a PG.
fn merge_by(map: &OsdMap, target: PgId, sources: &[(SpgId, Option<ShardId>)]) -> Merge {
    let pool = map.pool(target.pool).cloned().unwrap_or_default();
    let (pg_num, meta) = (pool.pg_num, pool.last_pg_merge_meta);
    let is_meant = sources.iter().all(|(source, _)| source.pgid == meta.source_pg);
    let versions = (meta.source_version, meta.target_version);
    Merge { pg_num, epoch: map.epoch, versions: is_meant.then_some(versions) }
}
