//! The banner, and the payloads of all control frames (ceph-protocol.md §1.2 to §1.6, §1.9).

mod auth;
mod banner;
mod ident;
mod keepalive;
mod session;

use crate::frame::{self, Tag};
use crate::{Decoder, Encoder, EntityAddr, EntityType, Result};

pub use crate::features::FEATURES;
pub use auth::{
    AuthBadMethod, AuthDone, AuthNone, AuthRequest, AuthTarget, Signature, auth_method, connection_mode,
};
pub use banner::{BANNER_BYTES, Banner};
pub use ident::{ClientIdent, FLAG_LOSSY, MissingFeatures, ServerIdent};
pub use keepalive::{Ack, Keepalive2, Keepalive2Ack};
pub use session::{Reconnect, ReconnectOk, Reset, Retry, RetryGlobal, Wait};

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

/// First frame of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the sender is; a client checks that it is what it dialled.
    pub entity: EntityType,
    /// The address as which the sender sees the receiver.
    pub peer_addr: EntityAddr,
}

impl Control for Hello {
    const TAG: Tag = Tag::Hello;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u8(self.entity.0);
        e.put(&self.peer_addr);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Hello> {
        Ok(Hello { entity: EntityType(d.u8()?), peer_addr: d.get()? })
    }
}

#[cfg(test)]
mod tests;
