//! What the messenger calls.

use crate::{Connection, Message, Parts};
use std::rc::Rc;

/// Receives what happens on connections. Called on the connection's shard, from its reader task; it must not block, and
/// may send, close and connect. One dispatcher may serve many connections.
pub trait Dispatcher {
    /// A verified message. Reading from this peer pauses while too many messages are held (see [`crate::Permit`]), so let
    /// go of the message, or of its permit, when the work is done.
    fn on_message(&self, conn: &Rc<Connection>, msg: Message);

    /// Memory that a message will need beside its own bytes, as far as it says: it is dispatched when there is room for that,
    /// too.
    fn output_bytes(&self, conn: &Connection, parts: &Parts) -> usize {
        let _ = (conn, parts);
        0
    }

    /// The connection ended. Called once for each connection that got past its handshake; nothing follows it.
    fn on_closed(&self, conn: &Rc<Connection>, reason: &str);

    /// A connection that [`crate::serve`] accepted got past its handshake. Messages follow.
    fn on_accepted(&self, conn: &Rc<Connection>) {
        let _ = conn;
    }
}
