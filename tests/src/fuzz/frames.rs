//! The framing: a stream of bytes as a peer sends it, and the control frames in it.

use carmine_types::crc32c;
use carmine_wire::frame::{Frame, PREAMBLE_BYTES, Preamble, Tag, segment};
use carmine_wire::handshake::*;

use super::seeds;

/// Bytes of a preamble that its checksum covers.
const CHECKED_BYTES: usize = 28;

/// A connection from its first byte: the banner if there is one, then frames to the end or to the first bad one. Each frame
/// is looked at as it came, and once more as if its sender had meant it: with a right checksum of the preamble.
pub(super) fn stream(bytes: &[u8]) {
    let mut rest = match Banner::parse(bytes) {
        Ok(Some((banner, len))) => {
            let _ = banner.check_compatible();
            bytes.get(len..).unwrap_or_default()
        }
        _ => bytes,
    };
    while rest.len() >= PREAMBLE_BYTES {
        let mut head = rest[..PREAMBLE_BYTES].to_vec();
        let as_sent = Preamble::decode(&head);
        let crc = crc32c::raw(0, &head[..CHECKED_BYTES]);
        head[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        let Ok(preamble) = as_sent.or_else(|_| Preamble::decode(&head)) else { return };
        rest = &rest[PREAMBLE_BYTES..];
        let (body, next) = rest.split_at(preamble.body_bytes().min(rest.len()));
        if let Ok(frame) = Frame::parse(&preamble, body) {
            assert_eq!(frame.tag, preamble.tag);
            one_control(frame.tag, frame.segments[segment::HEADER]);
        }
        rest = next;
    }
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

/// What is decoded must encode again.
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
