//! Where the changes of a PG go: into this OSD's store and to the other members; and where a member's changes come from.

pub(crate) mod backend;
pub(crate) mod commit;
pub(crate) mod heal;
pub(crate) mod replica;
pub(crate) mod window;

use backend::Backend;
use commit::Commits;
use replica::Replica;

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
