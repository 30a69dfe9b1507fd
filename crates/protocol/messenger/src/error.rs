//! Why a connection ended, or never came to be.

use carmine_auth::AuthError;
use carmine_types::Errno;
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
    /// Somebody is not who it should be.
    #[error("cephx: {0}")]
    Auth(#[from] AuthError),
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
    /// It has no method of authentication, or no mode, in common with us.
    #[error(
        "{addr} allows methods {methods:?} (1 none, 2 cephx) in modes {modes:?} (1 crc, 2 secure), and this client wants {wanted}"
    )]
    Auth { addr: EntityAddr, methods: Vec<u32>, modes: Vec<u32>, wanted: String },
    /// It does not accept our key or ticket.
    #[error("{addr} does not accept the key or ticket of this client: {errno}")]
    Refused { addr: EntityAddr, errno: Errno },
    /// We have nothing to prove our identity with, or the peer is not who it should be.
    #[error("cannot connect to {addr}: {source}")]
    Identity { addr: EntityAddr, source: AuthError },
    /// One side lacks features that the other requires.
    #[error("{addr} and this client do not fit: feature bits {missing:#x} are missing")]
    Features { addr: EntityAddr, missing: u64 },
    /// It broke the protocol or hung up.
    #[error("handshake with {addr} failed: {reason}")]
    Handshake { addr: EntityAddr, reason: String },
}
