//! A PG changes its reactor: the shard that had it forgets what it knows of it, when all of that is in the key-value store.

use std::time::Duration;

use carmine_pgtypes::pg_contains;
use carmine_types::{ObjectId, SpgId};

use crate::StoreError;
use crate::blue::shard::Blue;

/// Pause between two looks at objects that are still in use.
const LOOK: Duration = Duration::from_millis(1);

impl Blue {
    /// See [`crate::Store::release`].
    pub(crate) async fn release(&self, pg: SpgId, bits: u32) -> Result<(), StoreError> {
        self.feed_all().await?;
        // After a crash nothing of the PG is replayed from this shard's lane: another lane has what follows.
        self.shared.log().flush(&self.shard).await?;
        self.forget_pg(pg, bits).await;
        Ok(())
    }

    /// Forgets a PG's objects, whose state is that of the key-value store, once no operation uses them any more.
    pub(crate) async fn forget_pg(&self, pg: SpgId, bits: u32) {
        let reads = self.reads.begun();
        self.readahead.clear();
        while self.is_used(pg, bits).await || !self.reads.have_ended(reads) {
            self.shard.sleep(LOOK).await;
        }
        self.trimmed.borrow_mut().remove(&pg);
    }

    /// Forgets the objects that are not in use; whether there are others.
    async fn is_used(&self, pg: SpgId, bits: u32) -> bool {
        let is_own = |oid: &ObjectId| pg_contains(pg, bits, oid);
        let (mut next, mut is_used) = (Some(0), self.loading.borrow().keys().any(is_own));
        while let Some(from) = next {
            let found = self.cache.borrow_mut().forget(from, is_own);
            (next, is_used) = (found.0, is_used || found.1);
            self.shard.yield_now().await;
        }
        is_used
    }
}
