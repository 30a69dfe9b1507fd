//! Removing the data of deleted pools, in the background and a few objects at a time.

use std::rc::Rc;
use std::sync::Arc;

use carmine_peering::Event;
use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::Group;
use carmine_store::StoreError;
use carmine_types::{PgId, SpgId, errno};
use carmine_wire::osdmap::OsdMap;

use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;

/// Objects removed per transaction.
const PAGE: usize = 256;

/// `bits` of a PG that stands for its whole pool, when the pool's number of PGs is no longer known.
pub(crate) const WHOLE_POOL: u32 = 0;

impl Pg {
    /// Removes a PG of a deleted pool. Pending operations are answered, because the clients may get the map much later.
    pub(crate) fn remove(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        self.ops.pipeline().start_over();
        self.ops.pipeline().take_waiting().iter().for_each(|op| self.finish_deleted(osd, op));
        self.on(osd, Event::Removed);
        if self.peer.parent().is_some() {
            // Its parent still has its objects, or another reactor.
            return self.copies.commits().close();
        }
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Recovery, "pg-remove", async move {
            remove_data(&own, pg.id, pg.peer.bits()).await;
            pg.copies.commits().close();
        });
    }

    /// Ends an operation of a deleted pool. The OSD's own operations end without an answer, as when an interval ends.
    pub(in crate::pg) fn finish_deleted(&self, osd: &OsdShard, op: &ClientOp) {
        match op.origin(osd.shard.id()) {
            Some(_) => self.finish_read(osd, op, Outcome::error(errno::ENOENT)),
            None => op.abandon(),
        }
    }
}

/// Removes stored data of pools that the first map no longer has, and adopts PGs that this OSD left while it was down. A pool
/// that a later map deletes is removed by its PGs, on their own reactors: two reactors that remove the same objects would free
/// their blocks twice.
pub(crate) fn remove_orphans(osd: &Rc<OsdShard>, first: &Arc<OsdMap>) {
    let (own, first) = (Rc::clone(osd), Arc::clone(first));
    osd.shard.spawn(Group::Recovery, "orphans", async move {
        let pgs = match own_store(&own).list_pgs().await {
            Ok(pgs) => pgs,
            Err(error) => return tracing::warn!("PGs of deleted pools cannot be looked for: {error}"),
        };
        let (pools, newest) = (&first.pools, i64::from(first.pool_max));
        own.adopt(pgs.iter().copied().filter(|pg| pools.contains_key(&pg.pgid.pool)));
        // A pool newer than the map was not deleted: the map is too old.
        for pg in pgs.into_iter().filter(|pg| !pools.contains_key(&pg.pgid.pool) && pg.pgid.pool <= newest) {
            remove_data(&own, pg, WHOLE_POOL).await;
        }
    });
}

pub(in crate::pg) async fn remove_data(osd: &OsdShard, pg: SpgId, bits: u32) {
    let _turn = osd.walks.acquire(1).await;
    match remove_objects(osd, pg, bits).await {
        Ok(objects) => tracing::info!("pg {pg}: its pool was deleted: {objects} objects removed"),
        Err(error) => {
            tracing::warn!("pg {pg}: its pool was deleted, but its data cannot be removed: {error}")
        }
    }
}

/// Removes a PG's objects (with [`WHOLE_POOL`] those of its whole pool), then its log and info; returns the number of objects.
pub(crate) async fn remove_objects(osd: &OsdShard, pg: SpgId, bits: u32) -> Result<usize, StoreError> {
    // If the pool had only one PG, that would be its whole content.
    let part = if bits == WHOLE_POOL { SpgId { pgid: PgId { ps: 0, ..pg.pgid }, ..pg } } else { pg };
    let mut objects = 0;
    loop {
        let page = own_store(osd).list(part, bits, None, PAGE).await?;
        if page.is_empty() {
            break;
        }
        objects += page.len();
        let mut txn = Transaction::new(part, bits);
        txn.changes.extend(page.into_iter().map(|oid| ObjectChange::new(oid, [Step::Remove])));
        let prepared = own_store(osd).prepare(&txn.changes).await?;
        let commit = own_store(osd).submit(txn);
        drop(prepared);
        commit.await?;
    }
    own_store(osd).submit(Transaction { forget_pg: true, ..Transaction::new(pg, bits) }).await?;
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use carmine_pgtypes::PgInfo;
    use carmine_reactor::{Config, Shard, block_on};
    use carmine_store::{Store, StoreShared};
    use carmine_types::{ObjectId, OsdId};

    use super::*;
    use crate::OsdConfig;

    /// Two shards of one PG, each with an object of the same name, on one OSD.
    const PARTS: [SpgId; 2] = [part(0), part(1)];

    const fn part(shard: i8) -> SpgId {
        SpgId { pgid: PgId::new(3, 0), shard }
    }

    fn object(pg: SpgId) -> ObjectId {
        ObjectId { shard: pg.shard, ..ObjectId::head(pg.pgid.pool, b"", b"", b"object") }
    }

    async fn make(osd: &Rc<OsdShard>, id: SpgId) -> Rc<Pg> {
        let pg = Pg::new(id, osd.config.id, osd.config.log);
        osd.pgs.borrow_mut().insert(id, Rc::clone(&pg));
        let mut txn = Transaction::new(id, 0);
        txn.changes.push(ObjectChange::new(object(id), [Step::Touch]));
        txn.info = Some(Box::new(PgInfo { pg: id, ..PgInfo::default() }));
        own_store(osd).submit(txn).await.unwrap();
        pg
    }

    /// Its objects, and whether it has an info.
    async fn stored(osd: &OsdShard, id: SpgId) -> (Vec<ObjectId>, bool) {
        let objects = own_store(osd).list(id, 0, None, 10).await.unwrap();
        (objects, own_store(osd).load_pg(id).await.unwrap().is_some())
    }

    #[test]
    fn two_shards_of_one_pg_are_found_and_removed_each_by_itself() {
        let main = async |shard: Shard| {
            let store = Store::open_shard(&StoreShared::cyan(1 << 20), &shard).await.unwrap();
            let config = OsdConfig::with_defaults(([127, 0, 0, 1], 1).into(), OsdId(0), 1);
            let osd = OsdShard::new(&shard, Arc::new(config), store);
            let made = [make(&osd, PARTS[0]).await, make(&osd, PARTS[1]).await];
            for (id, pg) in PARTS.into_iter().zip(&made) {
                assert!(osd.pg(id).is_some_and(|found| Rc::ptr_eq(&found, pg) && found.id == id));
            }
            assert!(osd.pg(PARTS[0].pgid.into()).is_none());
            assert_eq!(own_store(&osd).list_pgs().await.unwrap(), PARTS);
            // With its whole pool, but only of its shard.
            assert_eq!(remove_objects(&osd, PARTS[0], WHOLE_POOL).await.unwrap(), 1);
            assert_eq!(stored(&osd, PARTS[0]).await, (Vec::new(), false));
            assert_eq!(stored(&osd, PARTS[1]).await, (vec![object(PARTS[1])], true));
            assert_eq!(remove_objects(&osd, PARTS[1], 0).await.unwrap(), 1);
            assert_eq!(own_store(&osd).list_pgs().await.unwrap(), []);
        };
        block_on(Config::unpinned("remove", 1), main).unwrap();
    }
}
