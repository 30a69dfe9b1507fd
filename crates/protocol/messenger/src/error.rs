//! Why a connection ended, or never came to be.

use carmine_wire::private::OtherVersion;
use carmine_wire::{DecodeError, EntityAddr, EntityType};
use std::io;
use std::time::Duration;

/// Why a connection was closed. The text is what logs and [`crate::Dispatcher::on_closed`] get.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloseReason {
    #[error("the peer closed the connection")]
    Eof,
    #[error("network: {0}")]
    Io(#[from] io::Error),
    #[error("bad bytes: {0}")]
    Wire(#[from] DecodeError),
    /// `kind` is the type of the message that showed it.
    #[error("{other}")]
    OtherVersion { other: OtherVersion, kind: u16 },
    #[error("protocol: {0}")]
    Protocol(String),
}

impl CloseReason {
    pub(crate) fn protocol(text: impl Into<String>) -> CloseReason {
        CloseReason::Protocol(text.into())
    }
}

/// Why [`crate::connect`] failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address has no IP address and port.
    #[error("{0} cannot be dialled: it has no msgr v2 socket address")]
    NoAddress(EntityAddr),
    /// TCP said no.
    #[error("cannot connect to {addr}: {source}")]
    Io { addr: EntityAddr, source: io::Error },
    /// Nothing (or not enough) came in time.
    #[error("{addr} did not finish the handshake within {after:?}")]
    Timeout { addr: EntityAddr, after: Duration },
    /// Something else listens there.
    #[error("{addr} is a {found}, not a {expected}")]
    WrongEntity { addr: EntityAddr, expected: EntityType, found: EntityType },
    /// Another daemon, or another incarnation of the same, has that port now.
    #[error("{addr} presents itself as {found}: the map is out of date, or another daemon has this port")]
    WrongAddress { addr: EntityAddr, found: String },
    /// It wants authentication that we do not have.
    #[error(
        "{addr} refuses to talk without authentication (it allows methods {allowed:?}; this client has only none = 1)"
    )]
    Auth { addr: EntityAddr, allowed: Vec<u32> },
    /// One side lacks features that the other requires.
    #[error("{addr} and this client do not fit: feature bits {missing:#x} are missing")]
    Features { addr: EntityAddr, missing: u64 },
    /// It broke the protocol or hung up.
    #[error("handshake with {addr} failed: {reason}")]
    Handshake { addr: EntityAddr, reason: String },
}
