//! Tickets are renewed on the session with the monitor (MAuth), and so are the keys of a daemon's own service.

use std::rc::{Rc, Weak};
use std::time::Duration;

use carmine_messenger::{Connection, Message};
use carmine_wire::mon_msg::{Auth, AuthReply};

use super::MonSession;

/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_secs(1);
/// Time for the monitor's answer; after it the same is asked for again.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Asks for what is due until the connection ends.
pub(super) async fn renew(session: Weak<MonSession>, conn: Rc<Connection>) {
    let mut asked_ns = 0;
    while !conn.is_closed() {
        let Some(up) = session.upgrade() else { return };
        let Some(keys) = up.keys.clone() else { return };
        let (shard, now_ns) = (up.shard.clone(), up.shard.now_ns());
        let waits = up.asked_tickets.get() > 0 && now_ns < asked_ns + PATIENCE_NS;
        match keys.renewals() {
            Ok(due) if !due.is_empty() && !waits => {
                asked_ns = now_ns;
                up.asked_tickets.set(due.len());
                due.into_iter().for_each(|payload| conn.send(Message::encode(&Auth::cephx(payload))));
            }
            Ok(_) => {}
            Err(error) => tracing::error!("tickets cannot be renewed: {error}"),
        }
        drop(up);
        shard.sleep(LOOK).await;
    }
}

impl MonSession {
    /// The monitor's answer to a renewal. A session that it refuses to renew is made anew.
    pub(super) fn take_tickets(self: &Rc<Self>, conn: &Connection, reply: &AuthReply) {
        let Some(keys) = &self.keys else { return };
        self.asked_tickets.set(self.asked_tickets.get().saturating_sub(1));
        let taken = match reply.result {
            0 => keys.take_reply(&reply.payload).map_err(|error| error.to_string()),
            refused => Err(format!("the monitor refuses: {}", carmine_types::Errno(refused))),
        };
        match taken {
            Ok(()) => self.handler.on_tickets(keys),
            Err(error) => conn.close(format!("tickets cannot be renewed: {error}")),
        }
    }
}
