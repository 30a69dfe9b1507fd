//! Children of a split that another reactor than their parent's is to own: they go there before they serve.
//!
//! The parent's reactor makes them, because it has the parent's objects, and does nothing else for them. The other reactor knows of them
//! from the same map on, and reads them from the store when they arrive, as if the OSD had just started. Clients send their operations
//! again, since by that map the objects are in another PG.

use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_crush::MapView;
use carmine_reactor::{Group, Shard, ShardId};
use carmine_store::Released;
use carmine_types::SpgId;

use super::Pg;
use super::copies::own_store;
use super::recovery::remove::remove_data;
use crate::maps::Others;
use crate::shard::OsdShard;

/// A PG that is made here for another reactor.
pub(crate) struct Leaving {
    pub(in crate::pg) pg: Rc<Pg>,
    to: ShardId,
}

impl OsdShard {
    /// Makes children that are to leave; each waits here for the split of its parent. Forgets those of deleted pools.
    pub(crate) fn make_leaving(
        self: &Rc<Self>,
        view: &MapView,
        leaving: impl Iterator<Item = (SpgId, SpgId, ShardId)>,
        others: &Others,
    ) {
        for (id, parent, to) in leaving {
            let pg = Pg::begin(self, id, view, others);
            pg.wait_for_split(self, parent);
            self.leaving.borrow_mut().insert(id, Leaving { pg, to });
        }
        let is_gone = |pool: i64| !view.map().pools.contains_key(&pool);
        let gone: BTreeMap<SpgId, Leaving> =
            self.leaving.borrow_mut().extract_if(.., |id, _| is_gone(id.pgid.pool)).collect();
        for Leaving { pg, .. } in gone.into_values() {
            pg.copies.commits().close();
            note_moved(self);
        }
    }

    /// A PG has come from another reactor. It is read at once, or when this reactor follows the map that made it.
    async fn receive(self: &Rc<Self>, id: SpgId, bits: u32, released: Released) {
        self.store.adopt(released).await;
        if let Some(pg) = self.pg(id) {
            pg.peer.set_parent(None);
            pg.load(self);
        } else if self.is_deleted(id.pgid.pool) {
            remove_data(self, id, bits).await;
        } else {
            self.received.borrow_mut().insert(id);
        }
        note_moved(self);
    }
}

/// A PG that changes its reactor has arrived, or is gone; or one that was merged is whole, or failed.
pub(in crate::pg) fn note_moved(osd: &OsdShard) {
    OsdShard::run_on(&osd.shard, ShardId(0), |osd| {
        let moving = osd.moving.get();
        assert!(moving > 0, "a PG arrived that nobody sent");
        osd.moving.set(moving - 1);
    });
}

impl Pg {
    /// Gives this PG, which has done nothing here, to the reactor that is to own it. False if that is this reactor.
    pub(in crate::pg) fn leave(self: &Rc<Self>, osd: &Rc<OsdShard>) -> bool {
        let Some(Leaving { to, .. }) = osd.leaving.borrow_mut().remove(&self.id) else { return false };
        self.ops.pipeline().take_waiting().iter().for_each(|op| op.abandon());
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-leave", async move {
            pg.copies.commits().close();
            let (id, bits) = (pg.id, pg.peer.bits());
            match own_store(&own).release(id, bits).await {
                Ok(released) => {
                    let arrive = async move |shard: Shard| {
                        if let Some(osd) = OsdShard::on(&shard) {
                            osd.receive(id, bits, released).await;
                        }
                    };
                    own.shard.call(to, arrive).await;
                }
                // The store has stopped, and with it the OSD.
                Err(error) => tracing::error!("pg {id}: it cannot go to reactor {}: {error}", to.0),
            }
        });
        true
    }
}
