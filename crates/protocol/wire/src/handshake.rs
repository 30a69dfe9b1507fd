//! The banner, and the payloads of all control frames.

use carmine_types::UTime;

use crate::frame::secure::{self, Cipher};
use crate::frame::{self, Tag};
use crate::{DecodeError, Decoder, Encoder, EntityAddr, EntityAddrVec, EntityType, Result};
use features::MSGR2_REVISION_1;

pub use features::FEATURES;

/// Feature bits. The features that both sides have decide which encodings may be sent (PROTOCOL.md §3), so the
/// whole mask of Ceph 16 is announced: one bit less selects another layout of some message.
pub mod features {
    /// The features that Ceph 16.2.15 announces, and Carmine too.
    pub const FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

    /// By this bit in the boot message, which Ceph reserves and never sets, OSDs see in a real cluster's map which of them are
    /// Carmine's. No session has it.
    pub const CARMINE: u64 = 1 << 62;

    /// The feature that a client must have: addresses of the modern form (bit 59).
    pub const REQUIRED: u64 = 1 << 59;

    /// The part that selects map encodings; stored in incremental maps.
    pub const SIGNIFICANT: u64 = 0x0f00_0880_1021_2a04;

    /// The only feature of msgr2 itself: revision 1, i.e. msgr v2.1.
    pub const MSGR2_REVISION_1: u64 = 1;
}

/// The payload of a control frame.
pub trait Control: Sized {
    const TAG: Tag;

    fn encode(&self, e: &mut Encoder<'_>);

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Self>;

    /// Decodes segment 0 of a frame of this tag; every byte must be used.
    fn decode(payload: &[u8]) -> Result<Self> {
        Decoder::all(payload, "control frame", Self::decode_fields)
    }

    /// Appends the whole frame.
    fn frame_into(&self, out: &mut Vec<u8>) {
        frame::control(out, Self::TAG, |e| self.encode(e));
    }

    /// Appends the whole frame in secure mode.
    fn seal_into(&self, cipher: &mut Cipher, out: &mut Vec<u8>) {
        secure::seal_control(cipher, out, Self::TAG, |e| self.encode(e));
    }
}

/// Defines control frames and says the layout of each payload once: a structure as [`carmine_codec::fields!`] has it,
/// with its tag; or one value, or none.
macro_rules! controls {
    (@impl $name:ident, $tag:ident, $self:ident, $e:ident, $d:ident, $put:expr, $get:expr) => {
        impl $crate::handshake::Control for $name {
            const TAG: $crate::frame::Tag = $crate::frame::Tag::$tag;

            fn encode(&$self, $e: &mut $crate::Encoder<'_>) {
                $put
            }

            fn decode_fields($d: &mut $crate::Decoder<'_>) -> $crate::Result<$name> {
                $get
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident: $tag:ident { $($fields:tt)* } $($rest:tt)*) => {
        carmine_codec::fields! {
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name { $($fields)* }
        }
        controls! { @impl $name, $tag, self, e, d,
            carmine_codec::Fields::put_fields(self, e, u16::MAX), carmine_codec::Fields::get_fields(d, u16::MAX) }
        controls! { $($rest)* }
    };
    ($(#[$meta:meta])* pub struct $name:ident(pub $type:ty): $tag:ident; $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $type);
        controls! { @impl $name, $tag, self, e, d, e.put(&self.0), d.get().map($name) }
        controls! { $($rest)* }
    };
    ($(#[$meta:meta])* pub struct $name:ident: $tag:ident; $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;
        controls! { @impl $name, $tag, self, _e, _d, (), Ok($name) }
        controls! { $($rest)* }
    };
    () => {};
}

controls! {
    /// First frame of both sides.
    pub struct Hello: Hello {
        /// The sender's kind; a client checks that it is the one that it dialled.
        pub entity: EntityType,
        /// The address as which the sender sees the receiver.
        pub peer_addr: EntityAddr,
    }
}

// Authentication frames.

/// Authentication methods.
pub mod auth_method {
    pub const NONE: u32 = 1;
    pub const CEPHX: u32 = 2;
}

/// Connection modes.
pub mod connection_mode {
    pub const CRC: u32 = 1;
    pub const SECURE: u32 = 2;
}

controls! {
    /// Client → server: which method and modes it wants.
    pub struct AuthRequest: AuthRequest {
        /// One of [`auth_method`].
        pub method: u32,
        /// [`connection_mode`]s in order of preference.
        pub modes: Vec<u32>,
        /// Depends on the method, see [`AuthNone`].
        pub payload: Vec<u8>,
    }
}

impl AuthRequest {
    /// The request for method none in crc mode.
    pub fn none(identity: &AuthNone) -> AuthRequest {
        let payload = Encoder::collect(|e| identity.encode(e));
        AuthRequest { method: auth_method::NONE, modes: vec![connection_mode::CRC], payload }
    }
}

/// The receiver of an [`AuthNone`] payload: the first byte differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthTarget {
    Mon,
    Osd,
}

/// AUTH_REQUEST payload of method none: who the client says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthNone {
    pub target: AuthTarget,
    pub entity: EntityType,
    /// Name after the type: "admin" of "client.admin".
    pub name: String,
    /// 0 in the first request to a monitor, which then assigns one.
    pub global_id: u64,
}

/// auth_mode "mon", and the version of the authorizer that OSDs get.
const MODE_MON: u8 = 10;
const AUTHORIZER_VERSION: u8 = 1;

impl AuthNone {
    pub fn encode(&self, e: &mut Encoder<'_>) {
        e.u8(match self.target {
            AuthTarget::Mon => MODE_MON,
            AuthTarget::Osd => AUTHORIZER_VERSION,
        });
        e.u32(self.entity.0.into());
        e.str(&self.name);
        e.u64(self.global_id);
    }

    pub fn decode(payload: &[u8]) -> Result<AuthNone> {
        Decoder::all(payload, "auth none payload", |d| {
            let target = match d.u8()? {
                MODE_MON => AuthTarget::Mon,
                AUTHORIZER_VERSION => AuthTarget::Osd,
                mode => return Err(DecodeError::BadValue { what: "auth mode", value: mode.into() }),
            };
            let kind = d.u32()?;
            let kind = u8::try_from(kind)
                .map_err(|_| DecodeError::BadValue { what: "entity type", value: kind.into() })?;
            Ok(AuthNone { target, entity: EntityType(kind), name: d.string()?, global_id: d.u64()? })
        })
    }
}

controls! {
    /// Server → client: that method is not possible, these are.
    pub struct AuthBadMethod: AuthBadMethod {
        pub method: u32,
        /// Negative errno.
        pub result: i32,
        pub allowed_methods: Vec<u32>,
        pub allowed_modes: Vec<u32>,
    }
}

impl AuthBadMethod {
    /// The answer to any method but none.
    pub fn only_none(method: u32) -> AuthBadMethod {
        AuthBadMethod {
            method,
            result: carmine_types::errno::EOPNOTSUPP,
            allowed_methods: vec![auth_method::NONE],
            allowed_modes: vec![connection_mode::CRC],
        }
    }
}

controls! {
    /// Server → client: a challenge.
    pub struct AuthReplyMore: AuthReplyMore {
        /// Depends on the method.
        pub payload: Vec<u8>,
    }

    /// Client → server: its answer.
    pub struct AuthRequestMore: AuthRequestMore {
        /// Depends on the method.
        pub payload: Vec<u8>,
    }

    /// Server → client: accepted.
    pub struct AuthDone: AuthDone {
        /// The client's identity in the cluster.
        pub global_id: u64,
        /// The [`connection_mode`] chosen.
        pub mode: u32,
        /// Empty for method none.
        pub payload: Vec<u8>,
    }

    /// Signature over what was received so far. Without a session key (method none) it is all zeros, and the
    /// receiver checks for exactly that.
    #[derive(Default)]
    pub struct Signature(pub [u8; 32]): AuthSignature;
}

impl Signature {
    /// Fails unless this is the signature of method none.
    pub fn check_none(&self) -> Result<()> {
        match self.0.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(DecodeError::BadValue { what: "signature", value: (*byte).into() }),
        }
    }
}

// The first bytes of a connection, sent by both sides at once.

/// Length of the banner that we send.
pub const BANNER_BYTES: usize = 26;

const MAGIC: &[u8; 8] = b"ceph v2\n";
/// How the banner of msgr v1 starts.
const LEGACY_MAGIC: &[u8] = b"ceph v0";
const LEGACY_PEER: &str =
    "peer speaks msgr v1 (\"ceph v0..\"), only msgr v2 is served: give it a v2: address";
/// Magic and payload length.
const HEAD_BYTES: usize = 10;

/// msgr2's own features (not [`crate::handshake::features::FEATURES`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banner {
    pub supported: u64,
    pub required: u64,
}

impl Default for Banner {
    /// msgr v2.1, and nothing else: no compression, not the older framing.
    fn default() -> Banner {
        Banner { supported: MSGR2_REVISION_1, required: MSGR2_REVISION_1 }
    }
}

impl Banner {
    /// Reads a banner at the start of what was received so far. `Ok(None)`: it is not complete yet.
    /// Returns the banner and its length; a longer payload than ours is skipped.
    pub fn parse(received: &[u8]) -> Result<Option<(Banner, usize)>> {
        let seen = received.len().min(MAGIC.len());
        if received[..seen] != MAGIC[..seen] {
            return Err(if received.starts_with(LEGACY_MAGIC) {
                DecodeError::Unsupported(LEGACY_PEER)
            } else if LEGACY_MAGIC.starts_with(&received[..seen]) {
                return Ok(None);
            } else {
                DecodeError::BadValue { what: "banner", value: first_bytes(received) }
            });
        }
        if received.len() < HEAD_BYTES {
            return Ok(None);
        }
        let mut d = Decoder::new(received, "banner");
        d.array::<8>()?;
        let payload = d.u16()? as usize;
        if payload < 16 {
            return Err(DecodeError::BadValue { what: "banner payload length", value: payload as u64 });
        }
        if d.remaining() < payload {
            return Ok(None);
        }
        let banner = Banner { supported: d.u64()?, required: d.u64()? };
        Ok(Some((banner, HEAD_BYTES + payload)))
    }

    /// Whether the peer can speak msgr v2.1 with us: it supports that revision and requires nothing else.
    pub fn check_compatible(&self) -> Result<()> {
        if self.supported & MSGR2_REVISION_1 == 0 {
            return Err(DecodeError::BadValue { what: "supported msgr2 features", value: self.supported });
        }
        if self.required & !MSGR2_REVISION_1 != 0 {
            return Err(DecodeError::BadValue { what: "required msgr2 features", value: self.required });
        }
        Ok(())
    }

    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let mut e = Encoder::new(out);
        e.bytes(MAGIC);
        e.u16(16);
        e.u64(self.supported);
        e.u64(self.required);
    }
}

/// Up to eight bytes as a number that reads in their order.
fn first_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

// Frames that open a session, keep it alive and take up an old one. We keep no sessions: a RECONNECT is answered with a
// full RESET.

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

#[cfg(test)]
mod tests;
