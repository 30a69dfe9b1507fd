//! The framing: a stream of bytes as a peer sends it, and the control frames in it.

use carmine_types::crc32c;
use carmine_wire::frame::secure::{Cipher, HEAD_BYTES, KEY_BYTES, NONCE_BYTES, TAG_BYTES, operations};
use carmine_wire::frame::{FrameReader, PREAMBLE_BYTES, Preamble, Tag, segment};
use carmine_wire::handshake::*;

use super::seeds;

/// Bytes of a preamble that its checksum covers.
const CHECKED_BYTES: usize = 28;

/// A connection from its first byte: the banner if there is one, then frames to the end or to the first bad one. Each frame
/// is looked at as it came, and once more as if its sender had meant it: with a right checksum of the preamble.
pub(super) fn stream(bytes: &[u8]) {
    let frames_at = match Banner::parse(bytes) {
        Ok(Some((banner, len))) => {
            let _ = banner.check_compatible();
            len
        }
        _ => 0,
    };
    let mut received = bytes.get(frames_at..).unwrap_or_default().to_vec();
    let mut rest = &mut received[..];
    while rest.len() >= PREAMBLE_BYTES {
        let mut reader = FrameReader::default();
        let (head, body) = rest.split_at_mut(PREAMBLE_BYTES);
        let Ok(preamble) = reader.preamble(head).or_else(|_| {
            let crc = crc32c::raw(0, &head[..CHECKED_BYTES]);
            head[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
            reader.preamble(head)
        }) else {
            return;
        };
        let (body, next) = body.split_at_mut(reader.need().min(body.len()));
        let whole = reader.body(body).map(|frame| {
            assert_eq!(frame.tag, preamble.tag);
            one_control(frame.tag, frame.segments[segment::HEADER]);
            (frame.aborted, frame.data_crc)
        });
        assert_eq!(in_pieces(head, body), whole.ok());
        rest = next;
    }
}

/// The same frame as a receiver reads it that has no room for the whole: it must come to the same end.
fn in_pieces(head: &mut [u8], body: &mut [u8]) -> Option<(bool, Option<u32>)> {
    let (mut reader, mut rest) = (FrameReader::default(), body);
    reader.preamble(head).ok()?;
    reader.head(rest.split_off_mut(..reader.head_bytes())?).ok()?;
    while reader.left() > 0 {
        reader.piece(rest.split_off_mut(..reader.left().min(7))?);
    }
    let crc = reader.data_crc();
    reader.end(rest).ok().map(|aborted| (aborted, Some(crc)))
}

/// Frames in secure mode: the bytes as a peer without the key sends them, and as one with the key, who means them as the plain text.
pub(super) fn secure(bytes: &[u8]) {
    let cipher = || Cipher::new(&[7; KEY_BYTES], &[9; NONCE_BYTES]);
    let mut received = bytes.to_vec();
    assert!(FrameReader::secure(cipher()).next(&mut received).is_err() || bytes.len() < HEAD_BYTES);
    let (mut at, mut rest, mut sealer) = (Vec::new(), bytes, cipher());
    // The first operation of a frame is of one length, and what follows is what the preamble says, cut where the bytes end.
    while let Some((head, after)) = rest.split_at_checked(HEAD_BYTES - TAG_BYTES) {
        let mut head = head.to_vec();
        let crc = crc32c::raw(0, &head[..CHECKED_BYTES]);
        head[CHECKED_BYTES..PREAMBLE_BYTES].copy_from_slice(&crc.to_le_bytes());
        let Ok(preamble) = Preamble::decode(&head) else { return };
        let mut frame = Vec::new();
        seal(&mut sealer, &mut frame, &head);
        let mut after = after;
        for operation in operations(&preamble).into_iter().filter(|bytes| *bytes > 0) {
            let Some((plain, left)) = after.split_at_checked(operation) else { return };
            seal(&mut sealer, &mut frame, plain);
            after = left;
        }
        at.extend_from_slice(&frame);
        let mut reader = FrameReader::secure(cipher());
        let mut stream = at.clone();
        let mut left = &mut stream[..];
        while !left.is_empty() {
            let Ok(Some((frame, len))) = reader.next(left) else { return };
            let tag = frame.tag;
            one_control(tag, reader.secure_header());
            left = left.split_at_mut(len).1;
        }
        rest = after;
    }
}

/// Appends one operation.
fn seal(cipher: &mut Cipher, frame: &mut Vec<u8>, plain: &[u8]) {
    let start = frame.len();
    frame.extend_from_slice(plain);
    cipher.seal(frame, start);
}

/// A tag and the payload of that control frame.
pub(super) fn control(bytes: &[u8]) {
    let Some((tag, payload)) = bytes.split_first() else { return };
    if let Ok(tag) = Tag::from_byte(*tag) {
        one_control(tag, payload);
    }
}

fn one_control(tag: Tag, payload: &[u8]) {
    match tag {
        Tag::Hello => decode::<Hello>(payload),
        Tag::AuthRequest => {
            if let Ok(request) = AuthRequest::decode(payload) {
                let _ = AuthNone::decode(&request.payload);
            }
        }
        Tag::AuthBadMethod => decode::<AuthBadMethod>(payload),
        Tag::AuthDone => decode::<AuthDone>(payload),
        Tag::AuthSignature => decode::<Signature>(payload),
        Tag::ClientIdent => decode::<ClientIdent>(payload),
        Tag::ServerIdent => decode::<ServerIdent>(payload),
        Tag::IdentMissingFeatures => decode::<MissingFeatures>(payload),
        Tag::SessionReconnect => decode::<Reconnect>(payload),
        Tag::SessionReset => decode::<Reset>(payload),
        Tag::SessionRetry => decode::<Retry>(payload),
        Tag::SessionRetryGlobal => decode::<RetryGlobal>(payload),
        Tag::SessionReconnectOk => decode::<ReconnectOk>(payload),
        Tag::Wait => decode::<Wait>(payload),
        Tag::Keepalive2 => decode::<Keepalive2>(payload),
        Tag::Keepalive2Ack => decode::<Keepalive2Ack>(payload),
        Tag::Ack => decode::<Ack>(payload),
        Tag::AuthReplyMore => decode::<AuthReplyMore>(payload),
        Tag::AuthRequestMore => decode::<AuthRequestMore>(payload),
        Tag::Message => {}
    }
}

/// A frame that can be decoded must encode again.
fn decode<C: Control>(payload: &[u8]) {
    if let Ok(control) = C::decode(payload) {
        control.frame_into(&mut Vec::new());
    }
}

pub(super) fn stream_seeds() -> Vec<Vec<u8>> {
    seeds::streams()
}

/// The plain text of a message with a front and data, and of a control frame with a long payload.
pub(super) fn secure_seeds() -> Vec<Vec<u8>> {
    let lengths = [
        (Tag::Message, [41, 30, 0, 50]),
        (Tag::ClientIdent, [123, 0, 0, 0]),
        (Tag::Keepalive2, [8, 0, 0, 0]),
    ];
    let plain = lengths.map(|(tag, lengths)| {
        let preamble = Preamble::new(tag, lengths);
        let rest: usize = operations(&preamble).iter().sum();
        let mut plain = preamble.encode().to_vec();
        plain.resize(HEAD_BYTES - TAG_BYTES + rest, 0x0e);
        plain
    });
    plain.to_vec()
}

pub(super) fn control_seeds() -> Vec<Vec<u8>> {
    let controls = seeds::frames().into_iter().filter(|frame| !frame.is_message());
    controls
        .map(|frame| [&[frame.preamble.tag as u8][..], &frame.segments[segment::HEADER]].concat())
        .collect()
}
