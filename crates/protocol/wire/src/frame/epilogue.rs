//! The 13 bytes behind a frame of several segments: status, and checksums of segments 1 to 3.

use super::{Preamble, SEGMENTS_MAX};
use crate::{DecodeError, Decoder, Result};

pub const EPILOGUE_BYTES: usize = 13;

const STATUS_MASK: u8 = 0x0f;
const STATUS_COMPLETE: u8 = 0x0e;
const STATUS_ABORTED: u8 = 0x01;

/// Checksum that stands for a segment that is counted but empty; one that is not counted has 0.
const EMPTY_CRC: u32 = 0xffff_ffff;

/// A decoded epilogue. Its checksums still have to be compared, see [`Epilogue::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// The sender gave up: the frame is to be dropped unread.
    pub aborted: bool,
    /// Checksums of segments 1, 2 and 3 (seed 0xffffffff).
    pub crcs: [u32; SEGMENTS_MAX - 1],
}

impl Epilogue {
    /// The epilogue of a frame with these checksums, which are ignored for empty segments.
    pub fn new(preamble: &Preamble, mut crcs: [u32; SEGMENTS_MAX - 1]) -> Epilogue {
        for (at, crc) in crcs.iter_mut().enumerate() {
            let index = at + 1;
            if index >= preamble.count.into() {
                *crc = 0;
            } else if preamble.len(index) == 0 {
                *crc = EMPTY_CRC;
            }
        }
        Epilogue { aborted: false, crcs }
    }

    pub fn decode(bytes: &[u8]) -> Result<Epilogue> {
        let mut d = Decoder::new(bytes, "epilogue");
        let status = d.u8()?;
        let aborted = match status & STATUS_MASK {
            STATUS_COMPLETE => false,
            STATUS_ABORTED => true,
            _ => return Err(DecodeError::BadValue { what: "late status", value: status.into() }),
        };
        Ok(Epilogue { aborted, crcs: [d.u32()?, d.u32()?, d.u32()?] })
    }

    pub fn encode(&self) -> [u8; EPILOGUE_BYTES] {
        let mut bytes = [0; EPILOGUE_BYTES];
        bytes[0] = if self.aborted { STATUS_ABORTED } else { STATUS_COMPLETE };
        for (place, crc) in bytes[1..].chunks_exact_mut(4).zip(self.crcs) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    /// Compares all three checksums with those that the receiver computed (any value for empty segments).
    pub fn verify(&self, preamble: &Preamble, computed: [u32; SEGMENTS_MAX - 1]) -> Result<()> {
        const NAMES: [&str; SEGMENTS_MAX - 1] = ["front", "middle", "data"];
        let expected = Epilogue::new(preamble, computed);
        for ((what, found), computed) in NAMES.iter().zip(self.crcs).zip(expected.crcs) {
            if found != computed {
                return Err(DecodeError::BadCrc { what, found, computed });
            }
        }
        Ok(())
    }
}
