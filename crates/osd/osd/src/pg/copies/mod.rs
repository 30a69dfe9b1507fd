//! Where the changes of a PG go, into this OSD's store and to the other members, and where reads come from. Nowhere else in a PG is the
//! store named.
//!
//! - `backend`: sends a change to all members, and knows when it is durable on them. `commit` waits until it is durable here.
//! - `reads`: the objects as clients see them; `heal` gets blocks that this store cannot give from other members.
//! - `replica`: applies the changes of another primary, and acknowledges them.
//! - `window`: the changes that a copy which is backfilled is sent.

mod backend;
mod commit;
mod heal;
mod reads;
mod replica;
mod window;

use carmine_store::Store;

use crate::shard::OsdShard;
use backend::Backend;
use commit::Commits;
use replica::Replica;

pub(in crate::pg) use heal::{Fate, IfUnfound, Unhealed};
pub(crate) use reads::Objects;
pub(crate) use replica::ReplyPath;
pub(in crate::pg) use window::Window;

/// This OSD's store, for what concerns its own copies alone: they are compared, pushed, repaired and removed where they lie, whatever
/// the kind of the PG. Operations of clients see [`Objects`].
pub(in crate::pg) fn own_store(osd: &OsdShard) -> &Store {
    &osd.store
}

/// The part of a PG that makes changes durable on all members.
#[derive(Default)]
pub(crate) struct Copies {
    backend: Backend,
    /// Writes of another primary on their way into the store.
    replica: Replica,
    commits: Commits,
}

impl Copies {
    /// Makes a change durable on all members.
    pub(in crate::pg) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Transactions that are on their way into the store.
    pub(in crate::pg) fn commits(&self) -> &Commits {
        &self.commits
    }

    /// A new interval, or attempt: `last` is the newest version of the log.
    pub(in crate::pg) fn start_over(&self, last: u64) {
        self.backend.start_over(last);
        self.replica.start_over();
    }
}
