//! What a frame is.

use crate::{DecodeError, Result};

macro_rules! tags {
    ($($name:ident = $value:literal,)*) => {
        /// Frame types of msgr v2.1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Tag { $($name = $value,)* }

        impl Tag {
            pub fn from_byte(byte: u8) -> Result<Tag> {
                match byte {
                    $($value => Ok(Tag::$name),)*
                    _ => Err(DecodeError::BadValue { what: "frame tag", value: byte.into() }),
                }
            }
        }
    };
}

tags! {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}
