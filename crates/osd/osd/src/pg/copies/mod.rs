//! Where a PG's changes go, to this OSD's store and to the other members, and where reads come from. No other part of a PG names
//! the store.
//!
//! - `backend`: sends a change to all members, handles their answers, and knows when it is durable on them. `commit` waits until
//!   it is durable here.
//! - `reads`: the objects as clients see them; `heal` fetches blocks that this store cannot read from other members.
//! - `replica`: applies the changes of another primary, and acknowledges them.
//! - `window`: which changes are sent to a copy that is being backfilled.

mod backend;
mod commit;
mod heal;
mod reads;
mod replica;
mod window;

use carmine_pgtypes::{ObjectChange, Transaction};
use carmine_store::{Store, StoreError};

use crate::pg::Pg;
use crate::shard::OsdShard;
use backend::Backend;
use commit::Commits;
use replica::Replica;

pub(in crate::pg) use heal::{Fate, IfUnfound, Unhealed};
pub(crate) use reads::Objects;
pub(crate) use replica::ReplyPath;
pub(in crate::pg) use window::Window;

/// This OSD's store, for work on its own copies: they are compared, pushed, repaired and removed where they are, whatever the
/// kind of the PG. Clients' operations use [`Objects`].
pub(in crate::pg) fn own_store(osd: &OsdShard) -> &Store {
    &osd.store
}

impl Pg {
    /// Changes objects of this copy only, of which the log says nothing.
    pub(in crate::pg) async fn change_own(
        &self,
        osd: &OsdShard,
        changes: Vec<ObjectChange>,
    ) -> Result<(), StoreError> {
        let _prepared = own_store(osd).prepare(&changes).await?;
        own_store(osd).submit(Transaction { changes: changes.into(), ..self.peer.transaction() }).await
    }
}

/// The part of a PG that makes changes durable on all members.
#[derive(Default)]
pub(crate) struct Copies {
    backend: Backend,
    /// Writes of another primary that are not yet in the store.
    replica: Replica,
    commits: Commits,
}

impl Copies {
    /// The backend, which makes a change durable on all members.
    pub(in crate::pg) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Transactions that are not durable yet.
    pub(in crate::pg) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// A new interval, or attempt: `last` is the newest version of the log.
    pub(in crate::pg) fn start_over(&self, last: u64) {
        self.backend.start_over(last);
        self.replica.start_over();
    }
}
