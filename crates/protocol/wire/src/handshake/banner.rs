//! The first bytes of a connection, sent by both sides at once.

use crate::handshake::features::MSGR2_REVISION_1;
use crate::{DecodeError, Decoder, Encoder, Result};

/// Length of the banner that we send.
pub const BANNER_BYTES: usize = 26;

const MAGIC: &[u8; 8] = b"ceph v2\n";
/// How the banner of msgr v1 starts.
const LEGACY_MAGIC: &[u8] = b"ceph v0";
pub(super) const LEGACY_PEER: &str =
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
