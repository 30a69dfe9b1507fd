//! Keeps a heartbeat connection to a peer open.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{ConnectError, Connection, Dispatcher, Message, connect};
use carmine_reactor::sync::Notify;
use carmine_wire::osd_msg::OsdPing;
use carmine_wire::{EntityType, Front};

use super::{Heartbeats, NETWORKS, Peer};
use crate::join::boot_again;

/// Pause between attempts to connect.
const RETRY: Duration = Duration::from_millis(50);
/// A connection that lasted this long is reopened without a pause.
const GOOD: Duration = Duration::from_secs(1);

/// Keeps a peer's connection on this network for as long as the peer is watched.
pub(super) async fn keep_connected(own: Rc<Heartbeats>, peer: Rc<Peer>, network: usize) {
    let shard = &own.osd.shard;
    while !peer.is_over.get() && !own.osd.stopping.get() {
        let began_ns = shard.now_ns();
        match dial(&own, &peer, network).await {
            Ok(closed) => closed.notified().await,
            Err(error) => {
                tracing::debug!("{} ({}): {error}", peer.osd, NETWORKS.get(network).unwrap_or(&""));
                if is_gone(&error) {
                    peer.watch.borrow_mut().note_refused();
                    own.judge(&peer);
                }
            }
        }
        if shard.now_ns() - began_ns < GOOD.as_nanos() as u64 {
            shard.sleep(RETRY).await;
        }
    }
}

/// Whether the error means that the peer's process has ended: nobody listens there, or another process does.
fn is_gone(error: &ConnectError) -> bool {
    match error {
        ConnectError::Io { source, .. } => source.kind() == ErrorKind::ConnectionRefused,
        ConnectError::WrongAddress { .. } | ConnectError::WrongEntity { .. } => true,
        _ => false,
    }
}

/// Connects and sends the first ping; the notification fires when the connection has ended.
async fn dial(own: &Rc<Heartbeats>, peer: &Rc<Peer>, network: usize) -> Result<Rc<Notify>, ConnectError> {
    let addr = peer.hb_addrs.get(network).copied().flatten().unwrap_or_default();
    let closed = Rc::new(Notify::new());
    let link = Link { own: Rc::clone(own), peer: Rc::clone(peer), network, closed: Rc::clone(&closed) };
    let conn = connect(&own.osd.shard, addr, EntityType::OSD, Rc::clone(&own.client), Rc::new(link)).await?;
    if peer.is_over.get() {
        conn.close("the OSD is watched no longer");
    }
    if let Some(place) = peer.conns.borrow_mut().get_mut(network) {
        *place = Some(conn);
    }
    own.ping(peer, network);
    Ok(closed)
}

/// Receives a peer's answers.
struct Link {
    own: Rc<Heartbeats>,
    peer: Rc<Peer>,
    network: usize,
    closed: Rc<Notify>,
}

impl Dispatcher for Link {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        match OsdPing::from_front(&msg.header, &msg.front) {
            Ok(answer) if answer.op == OsdPing::REPLY => {
                self.peer.watch.borrow_mut().note_answer(self.network, self.own.osd.shard.now_ns());
                if self.own.waits.get() {
                    boot_again(&self.own.osd);
                }
            }
            Ok(_) => {}
            Err(error) => conn.close(format!("answer to a ping: {error}")),
        }
    }

    fn on_closed(&self, _conn: &Rc<Connection>, _reason: &str) {
        self.closed.notify_one();
    }
}
