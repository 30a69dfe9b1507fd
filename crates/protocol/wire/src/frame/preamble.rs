//! The 32 bytes in front of every frame: its type and the lengths of its segments.

use carmine_types::crc32c;

use super::{DATA_BYTES_MAX, SEGMENT_BYTES_MAX, segment};
use crate::header::HEADER2_BYTES;
use crate::{DecodeError, Decoder, Result};

pub const PREAMBLE_BYTES: usize = 32;
pub const SEGMENTS_MAX: usize = 4;

/// Bytes of the preamble that its checksum covers.
const CHECKED_BYTES: usize = 28;
/// Hints for the receiver's buffers: nothing is padded to them on the wire.
const ALIGNMENT: u16 = 8;
const DATA_ALIGNMENT: u16 = 4096;

/// A decoded preamble: all lengths are within the limits, and only the last segments are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    pub tag: Tag,
    /// Length of each segment in bytes; 0 from `count` on.
    pub segments: [u32; SEGMENTS_MAX],
    /// Number of segments, 1 to 4. The last of several is never empty.
    pub count: u8,
}

impl Preamble {
    /// The preamble of a frame with these segment lengths: empty ones at the end are dropped.
    pub fn new(tag: Tag, segments: [u32; SEGMENTS_MAX]) -> Preamble {
        let count = segments.iter().rposition(|len| *len > 0).map_or(1, |last| last + 1);
        Preamble { tag, segments, count: count as u8 }
    }

    /// Reads the first [`PREAMBLE_BYTES`] of a frame and checks its checksum and limits.
    pub fn decode(bytes: &[u8]) -> Result<Preamble> {
        let mut d = Decoder::new(bytes, "preamble");
        let bytes: [u8; PREAMBLE_BYTES] = d.array()?;
        let (checked, crc) = bytes.split_at(CHECKED_BYTES);
        let found = Decoder::new(crc, "preamble").u32()?;
        let computed = crc32c::raw(0, checked);
        if found != computed {
            return Err(DecodeError::BadCrc { what: "preamble", found, computed });
        }
        let mut d = Decoder::new(checked, "preamble");
        let tag = Tag::from_byte(d.u8()?)?;
        let count = d.u8()?;
        let mut segments = [0; SEGMENTS_MAX];
        for len in &mut segments {
            *len = d.u32()?;
            d.u16()?; // alignment, a hint
        }
        let flags = d.u8()?;
        if flags != 0 {
            // Compression, which is never negotiated.
            return Err(DecodeError::BadValue { what: "preamble flags", value: flags.into() });
        }
        let preamble = Preamble { tag, segments, count };
        preamble.check()?;
        Ok(preamble)
    }

    fn check(&self) -> Result<()> {
        let expected = Preamble::new(self.tag, self.segments).count;
        let countable = if self.tag == Tag::Message { 1..=SEGMENTS_MAX as u8 } else { 1..=1 };
        if self.count != expected || !countable.contains(&self.count) {
            return Err(DecodeError::BadValue { what: "number of segments", value: self.count.into() });
        }
        for (index, &len) in self.segments.iter().enumerate() {
            let limit = if index == segment::DATA { DATA_BYTES_MAX } else { SEGMENT_BYTES_MAX };
            if len as usize > limit {
                return Err(DecodeError::TooLong { what: "segment", len: len.into(), limit });
            }
        }
        if self.tag == Tag::Message && self.len(segment::HEADER) != HEADER2_BYTES {
            let value = self.segments[segment::HEADER].into();
            return Err(DecodeError::BadValue { what: "length of message header", value });
        }
        Ok(())
    }

    /// The 32 bytes.
    pub fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[0] = self.tag as u8;
        bytes[1] = self.count;
        for index in 0..(self.count as usize).min(SEGMENTS_MAX) {
            let alignment = if index == segment::DATA { DATA_ALIGNMENT } else { ALIGNMENT };
            let at = 2 + 6 * index;
            bytes[at..at + 4].copy_from_slice(&self.segments[index].to_le_bytes());
            bytes[at + 4..at + 6].copy_from_slice(&alignment.to_le_bytes());
        }
        let crc = crc32c::raw(0, &bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Length of a segment in bytes; 0 for an index past the last.
    #[inline]
    pub fn len(&self, index: usize) -> usize {
        self.segments.get(index).map_or(0, |len| *len as usize)
    }
}

// The types of frames.

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
