//! A whole frame in one piece of memory.

use carmine_types::crc32c;

use super::{Epilogue, Preamble, SEGMENTS_MAX, Tag};
use crate::{Decoder, Result};

/// The segments of a frame whose bytes lie in one slice, all checksums verified. For receivers that put the
/// data elsewhere: [`Preamble::verify_head`] and [`Epilogue::verify`] do the same in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub tag: Tag,
    pub segments: [&'a [u8]; SEGMENTS_MAX],
    /// The sender gave the frame up: drop it (its checksums were not looked at).
    pub aborted: bool,
}

impl<'a> Frame<'a> {
    /// Splits the [`Preamble::body_bytes`] bytes behind a preamble.
    pub fn parse(preamble: &Preamble, body: &'a [u8]) -> Result<Frame<'a>> {
        let mut d = Decoder::new(body, "frame");
        let mut segments = [d.bytes(0)?; SEGMENTS_MAX];
        let mut crcs = [0; SEGMENTS_MAX - 1];
        segments[0] = preamble.verify_head(body)?;
        d.bytes(preamble.segment_range(1).start)?;
        for (index, segment) in segments.iter_mut().enumerate().skip(1) {
            *segment = d.bytes(preamble.len(index))?;
        }
        let mut aborted = false;
        if preamble.count > 1 {
            let epilogue = Epilogue::decode(d.bytes(super::EPILOGUE_BYTES)?)?;
            aborted = epilogue.aborted;
            if !aborted {
                for (crc, segment) in crcs.iter_mut().zip(&segments[1..]) {
                    *crc = crc32c::raw(crc32c::SEED, segment);
                }
                epilogue.verify(preamble, crcs)?;
            }
        }
        d.finish()?;
        Ok(Frame { tag: preamble.tag, segments, aborted })
    }
}
