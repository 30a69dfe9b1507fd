//! Frames that open a session, keep it alive and take up an old one. We keep no sessions: a RECONNECT is answered with a
//! full RESET.

use carmine_types::UTime;

use super::controls;
use crate::{EntityAddr, EntityAddrVec};

/// Bit of the ident frames' `flags`: nothing is kept when the connection breaks.
pub const FLAG_LOSSY: u64 = 1;

controls! {
    /// Client → server, after the signatures.
    pub struct ClientIdent: ClientIdent {
        /// The client's own addresses.
        pub addrs: EntityAddrVec,
        /// The address that the client dialled.
        pub target: EntityAddr,
        /// Global id; -1 (all ones) before the monitor gave one to the messenger.
        pub gid: u64,
        /// Number of connection attempts of this process, to anybody.
        pub global_seq: u64,
        pub supported: u64,
        pub required: u64,
        /// [`FLAG_LOSSY`].
        pub flags: u64,
        pub cookie: u64,
    }

    /// Server → client: the session is open.
    pub struct ServerIdent: ServerIdent {
        /// Must contain the address that the client dialled, nonce included, else the client gives up.
        pub addrs: EntityAddrVec,
        pub gid: u64,
        pub global_seq: u64,
        pub supported: u64,
        pub required: u64,
        /// [`FLAG_LOSSY`]; the server decides.
        pub flags: u64,
        /// 0 for lossy sessions.
        pub cookie: u64,
    }

    /// Server → client: the features that the server requires and the client lacks.
    pub struct MissingFeatures(pub u64): IdentMissingFeatures;

    /// Client → server: take up an old session.
    pub struct Reconnect: SessionReconnect {
        pub addrs: EntityAddrVec,
        pub client_cookie: u64,
        pub server_cookie: u64,
        pub global_seq: u64,
        pub connect_seq: u64,
        /// Number of the last message received.
        pub in_seq: u64,
    }

    /// Server → client: no such session. The client then sends CLIENT_IDENT on the same connection.
    pub struct Reset: SessionReset {
        /// Whether the client must also tell its upper layer that messages were lost.
        pub full: bool,
    }

    /// Server → client: try again with a higher connect_seq than this, the server's.
    pub struct Retry(pub u64): SessionRetry;

    /// Server → client: try again with a higher global_seq than this, the server's record of the client's.
    pub struct RetryGlobal(pub u64): SessionRetryGlobal;

    /// Server → client: the session goes on; the number of the last message that the server received.
    pub struct ReconnectOk(pub u64): SessionReconnectOk;

    /// Server → client: both sides connect at once, and the client's attempt lost.
    pub struct Wait: Wait;

    /// "Are you there?" Must be answered with the same time.
    pub struct Keepalive2(pub UTime): Keepalive2;

    /// The answer to [`Keepalive2`], with its time.
    pub struct Keepalive2Ack(pub UTime): Keepalive2Ack;

    /// Number of the last message received; only of use in lossless sessions.
    pub struct Ack(pub u64): Ack;
}
