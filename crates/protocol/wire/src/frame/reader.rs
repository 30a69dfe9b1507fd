//! From received bytes to frames: a state machine without I/O and without buffers of its own.

use carmine_types::crc32c;

use super::secure::{self, Cipher, Opener};
use super::{Codec, PREAMBLE_BYTES, Preamble, SEGMENTS_MAX, Tag, segment};
use crate::{DecodeError, Result};

/// Reads the frames of one direction of a connection. Its owner receives the bytes, wherever it wants to have them,
/// and hands them over in order:
/// 1. [`preamble`](Self::preamble): how long the frame is and of what kind, before any memory is taken for it;
/// 2. either [`body`](Self::body), all the rest at once, where it lies;
/// 3. or [`head`](Self::head), then [`piece`](Self::piece) until nothing is [`left`](Self::left) of the segments,
///    then [`end`](Self::end).
///
/// [`next`](Self::next) does 1 and 2 for bytes that come in one after the other. After an error the stream cannot be
/// read on: where the next frame begins is not known.
#[derive(Debug)]
pub struct FrameReader {
    codec: Codec,
    /// Length of a preamble, with what is encrypted with it.
    preamble_bytes: usize,
    /// Secure mode.
    secure: Option<Box<Opener>>,
    /// The frame under way, …
    frame: Option<Preamble>,
    /// … and the length of all that follows its preamble.
    body_bytes: usize,
    /// Index of the segment being received; [`SEGMENTS_MAX`] once all have arrived.
    segment: usize,
    /// Bytes of it that have not come.
    left: usize,
    crcs: [u32; SEGMENTS_MAX - 1],
}

/// A whole frame, where it was received. All its checksums are right, unless it was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub tag: Tag,
    /// In secure mode segment 0 is not among them: [`FrameReader::secure_header`] has it.
    pub segments: [&'a [u8]; SEGMENTS_MAX],
    /// Checksum of the data segment, with seed 0xffffffff; the seed if it is empty. `None` in secure mode, which has none.
    pub data_crc: Option<u32>,
    /// The sender gave the frame up: drop it. Its checksums were not compared.
    pub aborted: bool,
}

impl Default for FrameReader {
    /// Reads frames in crc mode.
    fn default() -> FrameReader {
        FrameReader {
            codec: Codec::Crc,
            preamble_bytes: PREAMBLE_BYTES,
            secure: None,
            frame: None,
            body_bytes: 0,
            segment: 0,
            left: 0,
            crcs: [0; SEGMENTS_MAX - 1],
        }
    }
}

impl FrameReader {
    /// Reads frames in secure mode, which `cipher` decrypts.
    #[must_use]
    pub fn secure(cipher: Cipher) -> FrameReader {
        let secure = Some(Box::new(Opener::new(cipher)));
        FrameReader { preamble_bytes: secure::HEAD_BYTES, secure, ..FrameReader::default() }
    }

    /// Whether frames are encrypted: then the parts of a frame are never read one by one.
    #[inline]
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Number of bytes that the next call takes: of [`preamble`](Self::preamble), or behind it of [`body`](Self::body).
    #[inline]
    pub fn need(&self) -> usize {
        if self.frame.is_some() { self.body_bytes } else { self.preamble_bytes }
    }

    /// Begins a frame.
    ///
    /// # Errors
    /// The checksum is wrong, or a declared length is over its limit.
    pub fn preamble(&mut self, received: &mut [u8]) -> Result<Preamble> {
        if let Some(secure) = &mut self.secure {
            let preamble = secure.preamble(received)?;
            (self.frame, self.body_bytes) = (Some(preamble), Opener::body_bytes(&preamble));
            return Ok(preamble);
        }
        let preamble = self.codec.preamble(received)?;
        (self.frame, self.body_bytes) = (Some(preamble), self.codec.body_bytes(&preamble));
        Ok(preamble)
    }

    /// All that follows the preamble, [`need`](Self::need) bytes.
    ///
    /// # Errors
    /// A checksum is wrong, or these are fewer bytes.
    pub fn body<'a>(&mut self, received: &'a mut [u8]) -> Result<Frame<'a>> {
        self.body_with_blocks(received, &mut Vec::new())
    }

    /// The same. The checksums of the data segment's blocks of 4096 bytes go into `block_crcs`, if it is made of two or more whole ones:
    /// who stores them needs these, and the segment's follows from them.
    ///
    /// # Errors
    /// Those of [`body`](Self::body).
    #[inline]
    pub fn body_with_blocks<'a>(
        &mut self,
        received: &'a mut [u8],
        block_crcs: &mut Vec<u32>,
    ) -> Result<Frame<'a>> {
        let preamble = self.frame()?;
        if self.secure.is_some() {
            return self.secure_body(&preamble, received);
        }
        let (head, mut rest) = split(received, self.codec.head_bytes(&preamble))?;
        let mut segments: [&[u8]; SEGMENTS_MAX] = [self.codec.head(&preamble, head)?, &[], &[], &[]];
        self.crcs = [crc32c::SEED; SEGMENTS_MAX - 1];
        for (index, (segment, crc)) in (1..).zip(segments[1..].iter_mut().zip(&mut self.crcs)) {
            let piece;
            (piece, rest) = split(rest, self.codec.segment_bytes(&preamble, index))?;
            if !piece.is_empty() {
                match index {
                    segment::DATA => self.codec.data(crc, piece, block_crcs),
                    _ => self.codec.piece(crc, piece),
                }
                *segment = piece;
            }
        }
        (self.segment, self.left) = (SEGMENTS_MAX, 0);
        let data_crc = self.data_crc();
        let aborted = self.end(rest)?;
        Ok(Frame { tag: preamble.tag, segments, data_crc: Some(data_crc), aborted })
    }

    /// Segment 0 of the last frame in secure mode, in which a part of it comes with the preamble.
    #[must_use]
    pub fn secure_header(&self) -> &[u8] {
        self.secure.as_ref().map_or(&[], |secure| &secure.header)
    }

    /// All that follows the preamble in secure mode. Nobody knows the checksum of its data.
    #[cold]
    fn secure_body<'a>(&mut self, preamble: &Preamble, received: &'a mut [u8]) -> Result<Frame<'a>> {
        self.frame = None;
        let Some(secure) = &mut self.secure else { unreachable!("only in secure mode") };
        let ([front, middle, data], aborted) = secure.body(preamble, received)?;
        let segments = [&[], front, middle, data];
        Ok(Frame { tag: preamble.tag, segments, data_crc: None, aborted })
    }

    /// Length of what [`head`](Self::head) takes.
    pub fn head_bytes(&self) -> usize {
        self.frame.map_or(0, |frame| self.codec.head_bytes(&frame))
    }

    /// Checks and returns segment 0.
    ///
    /// # Errors
    /// Its checksum is wrong.
    pub fn head<'a>(&mut self, received: &'a mut [u8]) -> Result<&'a [u8]> {
        let preamble = self.frame()?;
        let head = self.codec.head(&preamble, received)?;
        self.crcs = [crc32c::SEED; SEGMENTS_MAX - 1];
        (self.segment, self.left) = (0, 0);
        self.advance(&preamble);
        Ok(head)
    }

    /// Index of the segment being received; [`SEGMENTS_MAX`] once all have arrived.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Number of bytes of [`segment`](Self::segment) that have not come.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Takes bytes of the current segment, at most [`left`](Self::left). Returns how many of them are the segment's own.
    pub fn piece(&mut self, received: &mut [u8]) -> usize {
        self.piece_with_blocks(received, &mut Vec::new())
    }

    /// The same. The checksums of the piece's blocks of 4096 bytes go into `block_crcs`, if it is made of two or more whole ones.
    pub fn piece_with_blocks(&mut self, received: &mut [u8], block_crcs: &mut Vec<u32>) -> usize {
        let taken = received.len().min(self.left);
        if let (Some(crc), Some(bytes)) =
            (self.crcs.get_mut(self.segment.wrapping_sub(1)), received.get_mut(..taken))
        {
            self.codec.data(crc, bytes, block_crcs);
        }
        self.left -= taken;
        if let Some(preamble) = self.frame.filter(|_| self.left == 0) {
            self.advance(&preamble);
        }
        taken
    }

    /// The checksum of the data segment, as far as it came.
    pub fn data_crc(&self) -> u32 {
        self.crcs[segment::DATA - 1]
    }

    /// Length of what [`end`](Self::end) takes; 0 for a frame of one segment.
    pub fn end_bytes(&self) -> usize {
        self.frame.map_or(0, |frame| self.codec.epilogue_bytes(&frame))
    }

    /// Ends the frame. True: its sender gave it up, so that nothing of it counts.
    ///
    /// # Errors
    /// A checksum is wrong.
    pub fn end(&mut self, received: &mut [u8]) -> Result<bool> {
        let preamble = self.frame()?;
        self.frame = None;
        if self.codec.epilogue_bytes(&preamble) == 0 {
            return Ok(false);
        }
        self.codec.end(&preamble, self.crcs, received)
    }

    /// The frame at the start of `received` and the number of its bytes; `None` if it is not complete. The next call is
    /// to begin with the same bytes again, or behind the frame.
    ///
    /// # Errors
    /// Those of [`preamble`](Self::preamble) and [`body`](Self::body).
    pub fn next<'a>(&mut self, received: &'a mut [u8]) -> Result<Option<(Frame<'a>, usize)>> {
        let Some((head, rest)) = received.split_at_mut_checked(self.preamble_bytes) else {
            return Ok(None);
        };
        if self.frame.is_none() {
            self.preamble(head)?;
        }
        let need = self.need();
        let Some(body) = rest.get_mut(..need) else { return Ok(None) };
        let len = head.len() + need;
        Ok(Some((self.body(body)?, len)))
    }

    fn frame(&self) -> Result<Preamble> {
        self.frame.ok_or(DecodeError::Truncated {
            what: "preamble",
            need: self.preamble_bytes as u64,
            left: 0,
        })
    }

    /// To the next segment that is not empty.
    #[inline]
    fn advance(&mut self, preamble: &Preamble) {
        while self.left == 0 && self.segment < SEGMENTS_MAX {
            self.segment += 1;
            self.left = self.codec.segment_bytes(preamble, self.segment);
        }
    }
}

fn split(bytes: &mut [u8], at: usize) -> Result<(&mut [u8], &mut [u8])> {
    let left = bytes.len();
    bytes.split_at_mut_checked(at).ok_or(DecodeError::Truncated { what: "frame", need: at as u64, left })
}
