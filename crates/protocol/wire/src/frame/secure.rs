//! Secure mode: frames in AES-128-GCM (msgr v2.1).
//!
//! ```text
//! preamble (32), segment 0 up to 48 bytes, zeros | tag (16)      one operation, always 96 bytes
//! rest of segment 0, padded                      | tag           if it is longer than that
//! segments 1..3, each padded, epilogue (16)      | tag           if there is more than one segment
//! ```
//! Padding is to 16 bytes, with zeros. The lengths in the preamble are without it. There are no checksums but the preamble's.
//!
//! Each operation has a nonce of its own: a fixed part, and a number that rises by one.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::encode::length;
use super::{PREAMBLE_BYTES, Preamble, SEGMENTS_MAX, Tag};
use crate::header::{HEADER2_BYTES, Header2};
use crate::{DecodeError, Decoder, Encoder, Result};

/// Bytes of the key of one connection, for both directions.
pub const KEY_BYTES: usize = 16;
/// Bytes of a direction's first nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes that authenticate an operation.
pub const TAG_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;
/// Bytes of segment 0 that are encrypted with the preamble.
const INLINE_BYTES: usize = 48;
/// What a preamble takes, with its part of segment 0.
pub const HEAD_BYTES: usize = PREAMBLE_BYTES + INLINE_BYTES + TAG_BYTES;
const EPILOGUE_BYTES: usize = BLOCK_BYTES;

/// All of a message's header is in the first operation.
const _: () = assert!(HEADER2_BYTES <= INLINE_BYTES);
const _: () = assert!(HEAD_BYTES == 96);

const STATUS_MASK: u8 = 0x0f;
const STATUS_COMPLETE: u8 = 0x0e;
const STATUS_ABORTED: u8 = 0x01;

/// The cipher of one direction of a connection.
pub struct Cipher {
    key: LessSafeKey,
    /// First part of all nonces.
    fixed: [u8; 4],
    /// Number of the next operation, and of the first.
    next: u64,
    first: u64,
    is_used: bool,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher({} operations)", self.next.wrapping_sub(self.first))
    }
}

impl Cipher {
    /// The cipher of the direction that begins with this nonce.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Cipher {
        let key = UnboundKey::new(&AES_128_GCM, key).expect("16 bytes are a key of AES-128");
        let [a, b, c, d, counter @ ..] = *nonce;
        let first = u64::from_le_bytes(counter);
        Cipher { key: LessSafeKey::new(key), fixed: [a, b, c, d], next: first, first, is_used: false }
    }

    /// The nonce of the next operation. None is ever used twice with this key.
    fn nonce(&mut self) -> Result<Nonce> {
        if self.is_used && self.next == self.first {
            return Err(DecodeError::Unsupported("the connection has used all its nonces: make another one"));
        }
        self.is_used = true;
        let mut nonce = [0; NONCE_BYTES];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.next.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Encrypts `out` from `start` on where it lies, and appends the tag.
    ///
    /// # Panics
    /// After 2^64 operations.
    pub fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let nonce = self.nonce().expect("fewer than 2^64 operations");
        let plain = out.get_mut(start..).unwrap_or_default();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), plain);
        out.extend_from_slice(tag.expect("less than 64 GiB").as_ref());
    }

    /// Decrypts what [`Self::seal`] made, where it lies, and returns it without the tag.
    fn open<'a>(&mut self, bytes: &'a mut [u8], what: &'static str) -> Result<&'a mut [u8]> {
        let nonce = self.nonce()?;
        let opened = self.key.open_in_place(nonce, Aad::empty(), bytes);
        opened.map_err(|_| DecodeError::BadTag { what })
    }
}

/// Length with padding.
fn padded(len: usize) -> usize {
    len.next_multiple_of(BLOCK_BYTES)
}

fn pad(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    out.resize(start + padded(len), 0);
}

/// Appends a control frame whose payload `encode` writes.
pub fn seal_control(cipher: &mut Cipher, out: &mut Vec<u8>, tag: Tag, encode: impl FnOnce(&mut Encoder<'_>)) {
    let payload = Encoder::collect(encode);
    seal_head(cipher, out, &Preamble::new(tag, [length(payload.len()), 0, 0, 0]), &payload);
}

/// Appends a MESSAGE frame. Its front is what `front` appends, its data are these pieces, of `data_bytes` together.
pub fn seal_message<'a>(
    cipher: &mut Cipher,
    out: &mut Vec<u8>,
    header: &Header2,
    front: impl FnOnce(&mut Vec<u8>),
    (data, data_bytes): (impl Iterator<Item = &'a [u8]>, usize),
) {
    // The preamble has the front's length: its place is filled when that is known.
    let start = out.len();
    out.resize(start + HEAD_BYTES, 0);
    let body = out.len();
    front(out);
    let front_bytes = out.len() - body;
    let lengths = [length(HEADER2_BYTES), length(front_bytes), 0, length(data_bytes)];
    let preamble = Preamble::new(Tag::Message, lengths);
    let mut head = Vec::with_capacity(HEAD_BYTES);
    seal_head(cipher, &mut head, &preamble, &header.encode());
    if let Some(place) = out.get_mut(start..body) {
        place.copy_from_slice(&head);
    }
    if preamble.count == 1 {
        return;
    }
    pad(out, body);
    out.reserve(padded(data_bytes) + EPILOGUE_BYTES + TAG_BYTES);
    let data_at = out.len();
    data.for_each(|piece| out.extend_from_slice(piece));
    assert_eq!(out.len() - data_at, data_bytes, "the data of a message has the length that its frame says");
    pad(out, data_at);
    let epilogue = out.len();
    out.push(STATUS_COMPLETE);
    out.resize(epilogue + EPILOGUE_BYTES, 0);
    cipher.seal(out, body);
}

/// The preamble and segment 0.
fn seal_head(cipher: &mut Cipher, out: &mut Vec<u8>, preamble: &Preamble, segment: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&preamble.encode());
    let (inline, rest) = segment.split_at(segment.len().min(INLINE_BYTES));
    out.extend_from_slice(inline);
    out.resize(start + PREAMBLE_BYTES + INLINE_BYTES, 0);
    cipher.seal(out, start);
    if !rest.is_empty() {
        let start = out.len();
        out.extend_from_slice(rest);
        pad(out, start);
        cipher.seal(out, start);
    }
}

/// Reads the frames of one direction.
#[derive(Debug)]
pub(super) struct Opener {
    cipher: Cipher,
    /// Segment 0 of the frame under way, as far as it has come.
    pub(super) header: Vec<u8>,
}

impl Opener {
    pub(super) fn new(cipher: Cipher) -> Opener {
        Opener { cipher, header: Vec::new() }
    }

    /// Reads the first operation of a frame.
    pub(super) fn preamble(&mut self, bytes: &mut [u8]) -> Result<Preamble> {
        let plain = self.cipher.open(bytes, "preamble")?;
        let preamble = Preamble::decode(plain)?;
        let inline = plain.get(PREAMBLE_BYTES..).unwrap_or_default();
        let inline = inline.get(..preamble.len(0).min(INLINE_BYTES)).unwrap_or_default();
        self.header.clear();
        self.header.extend_from_slice(inline);
        Ok(preamble)
    }

    /// Length of all that follows the first operation.
    pub(super) fn body_bytes(preamble: &Preamble) -> usize {
        rest_bytes(preamble) + sealed_bytes(preamble)
    }

    /// Reads all that follows the first operation. Returns segments 1 to 3, which lie in `bytes`, and whether the sender gave the frame
    /// up. Segment 0 is `header` then.
    pub(super) fn body<'a>(
        &mut self,
        preamble: &Preamble,
        bytes: &'a mut [u8],
    ) -> Result<([&'a [u8]; SEGMENTS_MAX - 1], bool)> {
        let need = Self::body_bytes(preamble) as u64;
        let short = DecodeError::Truncated { what: "frame", need, left: bytes.len() };
        let (rest, sealed) = bytes.split_at_mut_checked(rest_bytes(preamble)).ok_or(short)?;
        if !rest.is_empty() {
            let plain = self.cipher.open(rest, "segment 0")?;
            let more = preamble.len(0).saturating_sub(INLINE_BYTES);
            self.header.extend_from_slice(plain.get(..more).unwrap_or_default());
        }
        if sealed_bytes(preamble) == 0 {
            return Ok(([&[]; SEGMENTS_MAX - 1], false));
        }
        let sealed = sealed.get_mut(..sealed_bytes(preamble)).ok_or(short)?;
        let plain = self.cipher.open(sealed, "segments")?;
        let mut d = Decoder::new(plain, "segments");
        let mut segments: [&[u8]; SEGMENTS_MAX - 1] = [&[]; SEGMENTS_MAX - 1];
        for (index, segment) in (1..).zip(&mut segments) {
            let len = preamble.len(index);
            *segment = d.bytes(padded(len))?.get(..len).unwrap_or_default();
        }
        let is_aborted = match d.u8()? & STATUS_MASK {
            STATUS_COMPLETE => false,
            STATUS_ABORTED => true,
            status => return Err(DecodeError::BadValue { what: "late status", value: status.into() }),
        };
        Ok((segments, is_aborted))
    }
}

/// Where the data of a message lies in all that follows the first operation; a receiver puts it where it wants it by that.
#[must_use]
pub fn data_at(preamble: &Preamble) -> usize {
    rest_bytes(preamble) + padded(preamble.len(1)) + padded(preamble.len(2))
}

/// Bytes of plain text in the operations after the first; 0: there is none.
#[must_use]
pub fn operations(preamble: &Preamble) -> [usize; 2] {
    [rest_bytes(preamble), sealed_bytes(preamble)].map(|bytes| bytes.saturating_sub(TAG_BYTES))
}

/// Length of the second operation of segment 0.
fn rest_bytes(preamble: &Preamble) -> usize {
    match preamble.len(0) {
        0..=INLINE_BYTES => 0,
        len => padded(len - INLINE_BYTES) + TAG_BYTES,
    }
}

/// Length of the operation with segments 1 to 3.
fn sealed_bytes(preamble: &Preamble) -> usize {
    if preamble.count == 1 {
        return 0;
    }
    (1..SEGMENTS_MAX).map(|index| padded(preamble.len(index))).sum::<usize>() + EPILOGUE_BYTES + TAG_BYTES
}
