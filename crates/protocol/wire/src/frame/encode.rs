//! Writing frames into a caller's vector.

use carmine_types::crc32c;

use super::{CRC_BYTES, Epilogue, PREAMBLE_BYTES, Preamble, Tag};
use crate::Encoder;
use crate::header::{HEADER2_BYTES, Header2};

/// Appends a control frame whose payload `encode` writes.
pub fn control(out: &mut Vec<u8>, tag: Tag, encode: impl FnOnce(&mut Encoder<'_>)) {
    let start = out.len();
    out.resize(start + PREAMBLE_BYTES, 0);
    encode(&mut Encoder::new(out));
    let payload = out.get(start + PREAMBLE_BYTES..).unwrap_or(&[]);
    let len = length(payload.len());
    if len > 0 {
        let crc = crc32c::raw(crc32c::SEED, payload);
        out.extend_from_slice(&crc.to_le_bytes());
    }
    patch_preamble(out, start, &Preamble::new(tag, [len, 0, 0, 0]));
}

/// The rest of a message, which is still to be written: made by [`message_head`], used up by [`message_tail`].
#[must_use = "the frame is not complete without its tail"]
#[derive(Debug)]
pub struct MessageTail {
    preamble: Preamble,
    front_crc: u32,
}

/// Appends a MESSAGE frame up to its data: preamble, header and front. `data_len` bytes of data (which may
/// lie elsewhere and be sent from there) and [`message_tail`] complete it.
pub fn message_head(out: &mut Vec<u8>, header: &Header2, front: &[u8], data_len: usize) -> MessageTail {
    out.reserve(PREAMBLE_BYTES + HEADER2_BYTES + 4 + front.len());
    message_head_with(out, header, data_len, |out| out.extend_from_slice(front))
}

/// [`message_head`] with a front that `front` appends, so that it needs no vector of its own.
pub fn message_head_with(
    out: &mut Vec<u8>,
    header: &Header2,
    data_len: usize,
    front: impl FnOnce(&mut Vec<u8>),
) -> MessageTail {
    let start = out.len();
    out.resize(start + PREAMBLE_BYTES, 0);
    let header = header.encode();
    out.extend_from_slice(&header);
    out.extend_from_slice(&crc32c::raw(crc32c::SEED, &header).to_le_bytes());
    let front_at = out.len();
    front(out);
    let front = out.get(front_at..).unwrap_or(&[]);
    let front_crc = crc32c::raw(crc32c::SEED, front);
    let lengths = [length(header.len()), length(front.len()), 0, length(data_len)];
    let preamble = Preamble::new(Tag::Message, lengths);
    patch_preamble(out, start, &preamble);
    MessageTail { preamble, front_crc }
}

/// Appends a MESSAGE frame without data up to `front[0]`. The bytes between the two parts of its front lie elsewhere,
/// because many messages share them: their length and checksum (`raw(SEED, …)`) are given. These bytes, `front[1]` and
/// [`message_tail`] complete the frame.
pub fn message_head_around(
    out: &mut Vec<u8>,
    header: &Header2,
    front: [&[u8]; 2],
    (shared_len, shared_crc): (usize, u32),
) -> MessageTail {
    let [before, behind] = front;
    let MessageTail { front_crc, .. } =
        message_head_with(out, header, 0, |out| out.extend_from_slice(before));
    let crc = crc32c::combine(front_crc, shared_crc, shared_len as u64);
    let front_crc = crc32c::combine(crc, crc32c::raw(crc32c::SEED, behind), behind.len() as u64);
    let front_len = before.len() + shared_len + behind.len();
    let preamble = Preamble::new(Tag::Message, [length(HEADER2_BYTES), length(front_len), 0, 0]);
    let start = out.len() - before.len() - CRC_BYTES - HEADER2_BYTES - PREAMBLE_BYTES;
    patch_preamble(out, start, &preamble);
    MessageTail { preamble, front_crc }
}

/// Appends what follows a message's data. `data_crc` is the data's checksum with seed 0xffffffff (that of a
/// stored block can be used as it is); it is ignored if there is no data.
pub fn message_tail(out: &mut Vec<u8>, tail: MessageTail, data_crc: u32) {
    let MessageTail { preamble, front_crc } = tail;
    if preamble.count > 1 {
        out.extend_from_slice(&Epilogue::new(&preamble, [front_crc, 0, data_crc]).encode());
    }
}

/// A length for the preamble. One that does not fit becomes one that every receiver refuses.
pub(super) fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn patch_preamble(out: &mut [u8], at: usize, preamble: &Preamble) {
    if let Some(place) = out.get_mut(at..at + PREAMBLE_BYTES) {
        place.copy_from_slice(&preamble.encode());
    }
}
