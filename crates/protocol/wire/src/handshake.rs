//! The banner, and the payloads of all control frames.

mod auth;
mod banner;
mod session;

use crate::frame::{self, Tag};
use crate::{Decoder, Encoder, EntityAddr, EntityType, Result};

pub use auth::{
    AuthBadMethod, AuthDone, AuthNone, AuthRequest, AuthTarget, Signature, auth_method, connection_mode,
};
pub use banner::{BANNER_BYTES, Banner};
pub use features::FEATURES;
pub use session::{
    Ack, ClientIdent, FLAG_LOSSY, Keepalive2, Keepalive2Ack, MissingFeatures, Reconnect, ReconnectOk, Reset,
    Retry, RetryGlobal, ServerIdent, Wait,
};

/// Feature bits. What both sides have decides which encodings may be sent (PROTOCOL.md §3), so the
/// whole mask of Ceph 16 is announced: one bit less selects another layout of some message.
pub mod features {
    /// What Ceph 16.2.15 announces, and so do we.
    pub const FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

    /// What a client must have: addresses of the modern form (bit 59).
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
use controls;

controls! {
    /// First frame of both sides.
    pub struct Hello: Hello {
        /// The sender's kind; a client checks that it is the one that it dialled.
        pub entity: EntityType,
        /// The address as which the sender sees the receiver.
        pub peer_addr: EntityAddr,
    }
}

#[cfg(test)]
mod tests;
