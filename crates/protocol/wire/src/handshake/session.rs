//! Frames of lossless sessions. We keep none: a RECONNECT is answered with a full RESET.

use super::Control;
use crate::frame::Tag;
use crate::{Decoder, Encoder, EntityAddrVec, Result};

/// Client → server: take up an old session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconnect {
    pub addrs: EntityAddrVec,
    pub client_cookie: u64,
    pub server_cookie: u64,
    pub global_seq: u64,
    pub connect_seq: u64,
    /// Number of the last message received.
    pub in_seq: u64,
}

impl Control for Reconnect {
    const TAG: Tag = Tag::SessionReconnect;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.put(&self.addrs);
        e.u64(self.client_cookie);
        e.u64(self.server_cookie);
        e.u64(self.global_seq);
        e.u64(self.connect_seq);
        e.u64(self.in_seq);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Reconnect> {
        Ok(Reconnect {
            addrs: d.get()?,
            client_cookie: d.u64()?,
            server_cookie: d.u64()?,
            global_seq: d.u64()?,
            connect_seq: d.u64()?,
            in_seq: d.u64()?,
        })
    }
}

/// Server → client: no such session. The client then sends CLIENT_IDENT on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Whether the client must also tell its upper layer that messages were lost.
    pub full: bool,
}

impl Control for Reset {
    const TAG: Tag = Tag::SessionReset;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.bool(self.full);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Reset> {
        Ok(Reset { full: d.bool()? })
    }
}

/// Defines a control frame whose payload is one u64.
macro_rules! one_u64 {
    ($(#[$doc:meta] $name:ident: $tag:ident,)*) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub u64);

        impl Control for $name {
            const TAG: Tag = Tag::$tag;

            fn encode(&self, e: &mut Encoder<'_>) {
                e.u64(self.0);
            }

            fn decode_fields(d: &mut Decoder<'_>) -> Result<$name> {
                Ok($name(d.u64()?))
            }
        }
    )*};
}

one_u64! {
    /// Server → client: try again with a higher connect_seq than this, the server's.
    Retry: SessionRetry,
    /// Server → client: try again with a higher global_seq than this, the server's record of the client's.
    RetryGlobal: SessionRetryGlobal,
    /// Server → client: the session goes on; the number of the last message that the server received.
    ReconnectOk: SessionReconnectOk,
}

/// Server → client: both sides connect at once and the client's attempt lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait;

impl Control for Wait {
    const TAG: Tag = Tag::Wait;

    fn encode(&self, _: &mut Encoder<'_>) {}

    fn decode_fields(_: &mut Decoder<'_>) -> Result<Wait> {
        Ok(Wait)
    }
}
