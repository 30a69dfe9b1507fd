//! Handles transactions that become durable. They do so in the order of submission, so one task per PG awaits them one after the
//! other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use carmine_reactor::sync::Notify;
use carmine_store::{Commit, StoreError};
use carmine_types::Eversion;

use crate::pg::Pg;
use crate::shard::OsdShard;

/// A PG's transactions that are not durable yet.
#[derive(Default)]
pub(crate) struct Commits {
    queue: RefCell<VecDeque<Pending>>,
    /// Notified when the queue gets an entry or is closed.
    wake: Notify,
    closed: Cell<bool>,
}

struct Pending {
    /// The generation in which it was submitted.
    generation: u64,
    version: Eversion,
    commit: Commit,
}

impl Commits {
    pub(in crate::pg) fn push(&self, generation: u64, version: Eversion, commit: Commit) {
        let mut queue = self.queue.borrow_mut();
        queue.push_back(Pending { generation, version, commit });
        if queue.len() == 1 {
            self.wake.notify_one();
        }
    }

    /// Closes the queue.
    pub(in crate::pg) fn close(&self) {
        self.closed.set(true);
        self.wake.notify_one();
    }

    /// The next one, if it is durable already.
    fn pop_ready(&self) -> Option<(u64, Eversion, Result<(), StoreError>)> {
        let mut queue = self.queue.borrow_mut();
        let result = queue.front()?.commit.peek()?;
        queue.pop_front().map(|next| (next.generation, next.version, result))
    }
}

impl Pg {
    /// Awaits commits until the queue is closed.
    pub(in crate::pg) async fn pump_commits(self: Rc<Self>, osd: Rc<OsdShard>) {
        loop {
            let next = self.copies.commits.queue.borrow_mut().pop_front();
            let Some(Pending { generation, version, commit }) = next else {
                if self.copies.commits.closed.get() {
                    return;
                }
                self.copies.commits.wake.notified().await;
                continue;
            };
            let mut done = (generation, version, commit.await);
            // One batch of the store makes many transactions durable: only the last is reported.
            loop {
                let (generation, version, result) = done;
                if let Err(error) = result {
                    self.fail(&osd, "its store failed", &error);
                    break;
                }
                let more = self.copies.commits.pop_ready();
                if more.as_ref().is_none_or(|(next, _, result)| *next != generation || result.is_err()) {
                    self.durable(&osd, generation, version.version);
                }
                match more {
                    Some(more) => done = more,
                    None => break,
                }
            }
        }
    }

    /// Notes that everything up to this version number, submitted in this generation, is durable here.
    fn durable(self: &Rc<Self>, osd: &Rc<OsdShard>, generation: u64, version: u64) {
        if self.peer.is_past(generation) {
            return;
        }
        if self.peer.leads() {
            self.local_commit(osd, version, osd.shard.stamp_ns());
        } else {
            self.replica_commit(osd, version);
        }
    }
}
