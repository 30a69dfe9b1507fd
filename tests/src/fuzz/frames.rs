//! The framing: a stream of bytes as a peer sends it, and the control frames in it.

use carmine_types::crc32c;
use carmine_wire::frame::{FrameReader, PREAMBLE_BYTES, Tag, segment};
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
        in_pieces(reader, body);
        if let Ok(frame) = reader.body(body) {
            assert_eq!(frame.tag, preamble.tag);
            one_control(frame.tag, frame.segments[segment::HEADER]);
        }
        rest = next;
    }
}

/// The same frame as a receiver takes it that has no room for the whole: it must come to the same end.
fn in_pieces(mut reader: FrameReader, body: &mut [u8]) {
    let mut whole = reader;
    let expected = whole.body(body).map(|frame| (frame.aborted, frame.data_crc)).ok();
    let mut rest = &mut body[..];
    let mut run = || {
        reader.head(rest.split_off_mut(..reader.head_bytes())?).ok()?;
        while reader.left() > 0 {
            reader.piece(rest.split_off_mut(..reader.left().min(7))?);
        }
        let crc = reader.data_crc();
        reader.end(rest).ok().map(|aborted| (aborted, crc))
    };
    assert_eq!(run(), expected);
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
        Tag::AuthReplyMore | Tag::AuthRequestMore | Tag::Message => {}
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

pub(super) fn control_seeds() -> Vec<Vec<u8>> {
    let controls = seeds::frames().into_iter().filter(|frame| !frame.is_message());
    controls
        .map(|frame| [&[frame.preamble.tag as u8][..], &frame.segments[segment::HEADER]].concat())
        .collect()
}
