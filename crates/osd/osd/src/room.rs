//! The memory that clients' requests share: more of it for a request that turns out to need more, and an end to clients that hold
//! it without progress.

use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::{Group, Shard, ShardId};

use crate::op::ClientOp;
use crate::shard::OsdShard;

/// Time between two checks for stalled clients.
const EVERY: Duration = Duration::from_secs(5);

/// One request's right to hold [`carmine_messenger::MORE_BYTES`]. Dropping it returns the right to the shard of the request's
/// connection.
pub(crate) struct More {
    /// The shard that holds this.
    here: Shard,
    home: ShardId,
}

/// Waits for that right; see [`carmine_messenger::Budget::more`]. `None`: the connection is not limited.
pub(crate) async fn acquire_more(osd: &OsdShard, op: &ClientOp) -> Option<More> {
    let origin = op.origin(osd.shard.id())?;
    let asked = osd.shard.call(origin.home, move |home| async move {
        let osd = OsdShard::on(&home).filter(|osd| osd.is_bounded(origin.conn));
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
        OsdShard::run_on(&self.here, self.home, |home| drop(home.more.take()));
    }
}

impl OsdShard {
    /// Whether the connection shares memory with others; true for one that has closed.
    fn is_bounded(&self, conn: u64) -> bool {
        self.conns.borrow().get(&conn).is_none_or(|state| state.conn.budget().is_some())
    }

    /// Closes connections that hold memory while others wait for it, if their peers have neither read nor sent anything since the
    /// last check. They may reconnect.
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

/// Starts the checks for stalled clients.
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
