//! The objects of a PG as clients see them. All reads and changes of operations go through here, so that the kind of the PG
//! decides where the bytes are.
//!
//! Each member has the names and the metadata of all objects, whatever the kind. Their bytes and omaps are here too if each has a
//! whole copy; a block that the store cannot read is healed first (`heal`).

use std::ops::Range;
use std::sync::Arc;

use carmine_pgtypes::{ObjectChange, ObjectMeta, Sealed};
use carmine_reactor::{Bytes, Payload};
use carmine_store::{Commit, OmapPage, OmapRange, Prepared, Store, StoreError};
use carmine_types::ObjectId;

use super::backend::Kind;
use super::heal::{Fate, IfUnfound, Unhealed};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Most damaged blocks that one operation heals.
const BLOCKS_MAX: usize = 1024;

type Stored<T> = Result<T, StoreError>;

/// The objects of a PG, on the reactor that owns it.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    pub osd: &'a OsdShard,
    pub pg: &'a Pg,
}

impl Pg {
    /// Its objects, for reads and changes.
    pub(in crate::pg) fn objects<'a>(&'a self, osd: &'a OsdShard) -> Objects<'a> {
        Objects { osd, pg: self }
    }
}

/// Methods that do not heal are those of [`Store`] with the same names. Those that plain operations call return the store's own
/// future, since a wrapper would be larger.
impl<'a> Objects<'a> {
    /// This OSD's store, if it holds whole objects. An erasure-coded PG would read the shards of several members in each method that
    /// calls this.
    fn whole(self) -> &'a Store {
        match self.pg.copies.backend.kind() {
            Kind::Replicated => &self.osd.store,
        }
    }

    pub(crate) fn stat(self, oid: &ObjectId) -> impl Future<Output = Stored<Option<ObjectMeta>>> {
        self.osd.store.stat(oid)
    }

    pub(crate) fn stat_at_hand(self, oid: &Arc<ObjectId>) -> Option<Option<ObjectMeta>> {
        self.osd.store.stat_at_hand(oid)
    }

    /// The objects from this one on.
    pub(crate) async fn list(self, from: Option<&ObjectId>, max: usize) -> Stored<Vec<ObjectId>> {
        self.osd.store.list(self.pg.id, self.pg.peer.bits(), from, max).await
    }

    /// Reads bytes, and heals damaged blocks. The future of the healing is boxed: blocks are rarely damaged, and unboxed it would enlarge
    /// the future of every read.
    pub(in crate::pg) async fn read(
        self,
        oid: &ObjectId,
        off: u64,
        len: u64,
        unfound: IfUnfound,
    ) -> Result<Payload, Unhealed> {
        let mut healed = 0;
        loop {
            match self.whole().read(oid, off, len).await {
                Err(error) if healed < BLOCKS_MAX => Box::pin(self.heal(error, unfound)).await?,
                Err(error) => return Err(Unhealed { error, fate: Fate::Unknown }),
                Ok(data) => return Ok(data),
            }
            healed += 1;
        }
    }

    pub(crate) fn read_at_hand(self, oid: &ObjectId, off: u64, len: u64) -> Option<(u64, Payload)> {
        self.whole().read_at_hand(oid, off, len)
    }

    pub(crate) fn read_block(
        self,
        oid: &ObjectId,
        off: u64,
        len: u64,
    ) -> impl Future<Output = Option<Stored<(u64, Payload)>>> {
        self.whole().read_block(oid, off, len)
    }

    pub(crate) async fn written(self, oid: &ObjectId, off: u64, len: u64) -> Stored<Vec<Range<u64>>> {
        self.whole().written(oid, off, len).await
    }

    pub(crate) async fn in_part(self, oid: &ObjectId, off: u64, len: u64) -> Stored<Vec<u64>> {
        self.whole().in_part(oid, off, len).await
    }

    pub(crate) async fn omap_header(self, oid: &ObjectId) -> Stored<Bytes> {
        self.whole().omap_header(oid).await
    }

    pub(crate) async fn omap_values(self, oid: &ObjectId, keys: &[Box<[u8]>]) -> Stored<Vec<Option<Bytes>>> {
        self.whole().omap_values(oid, keys).await
    }

    pub(crate) async fn omap_page(self, oid: &ObjectId, range: &OmapRange) -> Stored<OmapPage> {
        self.whole().omap_page(oid, range).await
    }

    /// Prepares a write, and heals what it needs.
    pub(in crate::pg) async fn prepare(
        self,
        changes: &[ObjectChange],
        unfound: IfUnfound,
    ) -> Stored<Prepared> {
        let mut healed = 0;
        loop {
            match self.osd.store.prepare(changes).await {
                Err(error) if healed < BLOCKS_MAX => Box::pin(self.heal(error, unfound)).await?,
                done => return done,
            }
            healed += 1;
        }
    }

    pub(crate) fn is_prepared(self, changes: &[ObjectChange]) -> bool {
        self.osd.store.is_prepared(changes)
    }

    /// Submits this member's part of a change; [`Backend::submit`](super::backend::Backend::submit) sends the others theirs.
    pub(crate) fn submit(self, txn: Sealed) -> Commit {
        self.osd.store.submit(txn)
    }
}
