//! Who is at the other end.

use carmine_wire::{EntityAddr, EntityType};
use std::fmt;
use std::net::SocketAddr;

/// What the handshake told about the other side.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What it said it is, in HELLO.
    pub entity: EntityType,
    /// The name it authenticated with (`admin`, or an OSD's number); empty for a server that we dialled.
    pub name: String,
    /// Its id: the global id of a client, the number of an OSD, the rank of a mon.
    pub gid: u64,
    /// The address it announced. A client's is "any" with port 0 and a random nonce.
    pub addr: EntityAddr,
    /// The TCP end.
    pub sock: SocketAddr,
    /// Features that both sides have; they decide the encodings of messages.
    pub features: u64,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} at {}", self.entity, self.gid, self.sock)
    }
}
