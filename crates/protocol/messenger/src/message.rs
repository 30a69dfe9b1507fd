//! A message, received or to be sent, and the trait of its receivers.

use crate::connection::Connection;
use crate::throttle::Permit;
use carmine_reactor::Payload;
use carmine_wire::header::{Front, Header2};
use std::rc::Rc;

/// One RADOS (or private) message. The middle segment is always empty in this protocol.
#[derive(Debug)]
pub struct Message {
    /// Type, transaction id, version of the front. `seq` and `ack_seq` are set by [`crate::Connection::send`].
    pub header: Header2,
    /// The encoded fields.
    pub front: Vec<u8>,
    /// Bulk data; received data lies in chunks of at most 1 MiB, each aligned to 4,096 bytes, and its checksum is known and
    /// verified. To be sent, a known checksum is trusted and sent as it is.
    pub data: Payload,
    permit: Option<Permit>,
}

/// A message without its permit: it may travel to another shard.
#[derive(Debug)]
pub struct Parts {
    /// See [`Message::header`].
    pub header: Header2,
    /// See [`Message::front`].
    pub front: Vec<u8>,
    /// See [`Message::data`].
    pub data: Payload,
}

impl Message {
    /// A message of type `kind` whose front has encoding `version`, readable by `compat`.
    pub fn new(kind: u16, version: u16, compat: u16, front: Vec<u8>) -> Message {
        Message::from_header(Header2::new(kind, version, compat), front)
    }

    /// A message with this header and front, and no data.
    pub fn from_header(header: Header2, front: Vec<u8>) -> Message {
        Message { header, front, data: Payload::new(), permit: None }
    }

    /// A message whose front is the encoding of `value`.
    pub fn encode<T: Front>(value: &T) -> Message {
        Message::from_header(T::header(), value.to_front())
    }

    /// Decodes the front, which must be of this type.
    ///
    /// # Errors
    /// If the message is of another type or of an unknown version, or its bytes are invalid.
    pub fn decode<T: Front>(&self) -> carmine_wire::Result<T> {
        T::from_front(&self.header, &self.front)
    }

    /// Sets the transaction id, which the sender of a request chooses and the answer echoes.
    pub fn with_tid(mut self, tid: u64) -> Message {
        self.header.tid = tid;
        self
    }

    /// Sets the data segment; a checksum that is not known is computed when it is sent.
    pub fn with_data(mut self, data: impl Into<Payload>) -> Message {
        self.data = data.into();
        self
    }

    /// Takes the permit to hold this message, which may then outlive the message or be released before it.
    pub fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Splits the message into the part that may move to another shard and the permit, which may not.
    pub fn into_parts(self) -> (Parts, Option<Permit>) {
        let Message { header, front, data, permit } = self;
        (Parts { header, front, data }, permit)
    }

    pub(crate) fn received(parts: Parts, permit: Permit) -> Message {
        Message { permit: Some(permit), ..Message::from(parts) }
    }
}

impl From<Parts> for Message {
    fn from(parts: Parts) -> Message {
        let Parts { header, front, data } = parts;
        Message { header, front, data, permit: None }
    }
}

/// Receives what happens on connections. Called on the connection's shard, from its reader task; it must not block, and
/// may send, close and connect. One dispatcher may serve many connections.
pub trait Dispatcher {
    /// A verified message. Reading from this peer pauses while too many messages are held (see [`crate::Permit`]), so drop the
    /// message, or its permit, when the work is done.
    fn on_message(&self, conn: &Rc<Connection>, msg: Message);

    /// Additional memory that a message is known to need: it is dispatched when there is room for that, too.
    fn output_bytes(&self, conn: &Connection, parts: &Parts) -> usize {
        let _ = (conn, parts);
        0
    }

    /// The connection ended. Called once, as the last call, for each connection that completed its handshake.
    fn on_closed(&self, conn: &Rc<Connection>, reason: &str);

    /// A connection accepted by [`crate::serve`] completed its handshake. Messages follow.
    fn on_accepted(&self, conn: &Rc<Connection>) {
        let _ = conn;
    }
}
