//! Room in the memory that clients' requests share: for what only the execution of a request finds that it needs, and the
//! clients that keep room from others.

use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::{Group, Shard, ShardId};

use crate::op::ClientOp;
use crate::shard::OsdShard;

/// Time between two looks at clients that do not go on.
const EVERY: Duration = Duration::from_secs(5);

/// The right of one request to hold [`carmine_messenger::MORE_BYTES`]. It is given back to the shard of the request's connection.
pub(crate) struct More {
    /// The shard that this is on.
    here: Shard,
    home: ShardId,
}

/// Waits for that right; see [`carmine_messenger::Budget::more`]. `None`: nothing bounds the connection.
pub(crate) async fn acquire_more(osd: &OsdShard, op: &ClientOp) -> Option<More> {
    let origin = op.origin(osd.shard.id())?;
    let asked = osd.shard.call(origin.home, move |home| async move {
        let osd = OsdShard::of(&home).filter(|osd| osd.is_bounded(origin.conn));
        let Some(osd) = osd else { return false };
        let more = osd.budget.more().await;
        let other = osd.more.replace(Some(more));
        debug_assert!(other.is_none(), "only one request at a time");
        true
    });
    asked.await.then(|| More { here: osd.shard.clone(), home: origin.home })
}

impl Drop for More {
    fn drop(&mut self) {
        self.here.submit_to(self.home, |home| {
            if let Some(osd) = OsdShard::of(home) {
                osd.more.take();
            }
        });
    }
}

impl OsdShard {
    /// The connection shares memory with others; so did one that has ended.
    fn is_bounded(&self, conn: u64) -> bool {
        self.conns.borrow().get(&conn).is_none_or(|state| state.conn.budget().is_some())
    }

    /// Requests of this shard's clients, or notifications, wait for room: until the next look.
    pub(crate) fn note_short(&self) {
        self.is_short.set(true);
    }

    /// Closes connections that hold room while others wait for it, and whose peers have neither read nor sent anything since
    /// the last look. They may come again.
    fn close_stalled(&self) {
        let is_noted = self.is_short.take();
        let was_short = self.was_short.replace(is_noted || self.budget.is_short());
        let conns: Vec<_> = self
            .conns
            .borrow()
            .values()
            .map(|state| (Rc::clone(&state.conn), state.stalls()))
            .filter(|(conn, stalls)| *stalls && was_short && conn.budget().is_some())
            .collect();
        for (conn, _) in conns.into_iter().filter(|(conn, _)| is_noted || conn.others_wait()) {
            tracing::warn!(
                "{conn:?}: closed: others wait for the memory that it holds, and it does not go on"
            );
            conn.close("it does not go on, and others wait for its memory");
        }
    }
}

/// Looks for clients that do not go on.
pub(crate) fn start(osd: &Rc<OsdShard>) {
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "room", async move {
        while !own.stopping.get() {
            own.shard.sleep(EVERY).await;
            own.metrics.borrow_mut().request_bytes = own.budget.used_bytes() as u64;
            own.close_stalled();
        }
    });
}
