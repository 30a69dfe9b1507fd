use carmine_types::crc32c;
use proptest::prelude::*;

use super::*;
use crate::header::Header2;

fn message(front: &[u8], data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let tail = message_head(&mut out, &Header2::new(42, 8, 3), front, data.len());
    out.extend_from_slice(data);
    message_tail(&mut out, tail, crc32c::raw(crc32c::SEED, data));
    out
}

fn parse(frame: &[u8]) -> crate::Result<(Preamble, Frame<'_>)> {
    let preamble = Preamble::decode(frame)?;
    let body = frame.get(PREAMBLE_BYTES..).unwrap_or(&[]);
    Ok((preamble, Frame::parse(&preamble, body)?))
}

#[test]
fn a_wait_frame_is_only_a_preamble() {
    let mut out = Vec::new();
    control(&mut out, Tag::Wait, |_| ());
    let (preamble, frame) = parse(&out).unwrap();
    assert_eq!((out.len(), preamble.count, preamble.is_empty()), (32, 1, true));
    assert_eq!(frame.segments, [&[][..]; 4]);
}

proptest! {
    #[test]
    fn a_shared_part_of_the_front_makes_the_same_frame(before: Vec<u8>, shared: Vec<u8>, behind: Vec<u8>) {
        let mut out = vec![7]; // of another frame
        let crc = crc32c::raw(crc32c::SEED, &shared);
        let header = Header2::new(42, 8, 3);
        let tail = message_head_around(&mut out, &header, [&before, &behind], (shared.len(), crc));
        out.extend_from_slice(&shared);
        out.extend_from_slice(&behind);
        message_tail(&mut out, tail, crc32c::SEED);
        prop_assert_eq!(&out[1..], message(&[before, shared, behind].concat(), b""));
    }
}

#[test]
fn frame_overhead_is_90_bytes() {
    assert_eq!(message(b"front", b"data").len(), 90 + 9);
    assert_eq!(message(b"front", b"").len(), 90 + 5);
    // Without front and data the header is the only segment, and there is no epilogue.
    assert_eq!(message(b"", b"").len(), 32 + 41 + 4);
}

#[test]
fn empty_segments_in_the_middle_have_a_crc_and_absent_ones_none() {
    let whole = message(b"", b"data");
    let epilogue = Epilogue::decode(&whole[whole.len() - EPILOGUE_BYTES..]).unwrap();
    assert_eq!(epilogue.crcs[..2], [0xffff_ffff; 2]);
    let whole = message(b"front", b"");
    let epilogue = Epilogue::decode(&whole[whole.len() - EPILOGUE_BYTES..]).unwrap();
    assert_eq!(epilogue.crcs[1..], [0; 2]);
}

#[test]
fn an_aborted_frame_is_not_checked() {
    let mut whole = message(b"front", b"data");
    let at = whole.len() - EPILOGUE_BYTES;
    whole[at] = 1;
    whole[at - 1] ^= 1;
    assert!(parse(&whole).unwrap().1.aborted);
    whole[at] = 2;
    assert!(parse(&whole).is_err());
}

#[test]
fn one_wrong_bit_anywhere_is_noticed() {
    let whole = message(b"a front", b"some data");
    parse(&whole).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bad = whole.clone();
            bad[at] ^= 1 << bit;
            // The upper half of the late status has no meaning.
            let ignored = at == whole.len() - EPILOGUE_BYTES && bit >= 4;
            assert_eq!(parse(&bad).is_ok(), ignored, "byte {at} bit {bit}");
        }
    }
}

/// A preamble with a right checksum but other bytes.
fn forged(change: impl FnOnce(&mut [u8; PREAMBLE_BYTES])) -> crate::Result<Preamble> {
    let mut bytes = Preamble::new(Tag::Message, [41, 5, 0, 4096]).encode();
    change(&mut bytes);
    let crc = crc32c::raw(0, &bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    Preamble::decode(&bytes)
}

#[test]
fn limits_hold_even_with_a_right_checksum() {
    forged(|_| ()).unwrap();
    let set = |at: usize, value: u32| {
        forged(|b| b[at..at + 4].copy_from_slice(&value.to_le_bytes())).map(|p| p.body_bytes())
    };
    assert!(set(8, 16 << 20).is_ok());
    assert!(set(8, (16 << 20) + 1).unwrap_err().to_string().contains("over the limit"));
    assert!(set(14, u32::MAX).is_err());
    assert!(set(20, DATA_BYTES_MAX as u32).is_ok());
    assert!(set(20, DATA_BYTES_MAX as u32 + 1).is_err());
    assert!(set(2, 40).is_err(), "a message header has 41 bytes");
    assert!(forged(|b| b[20..24].fill(0)).is_err(), "the last segment is empty");
    for count in [0, 1, 3, 5, 255] {
        assert!(forged(|b| b[1] = count).is_err(), "{count} segments");
    }
    assert!(forged(|b| b[0] = Tag::Hello as u8).is_err(), "a control frame has one segment");
    assert!(forged(|b| b[0] = 21).is_err(), "compression is unknown");
    assert!(forged(|b| b[26] = 1).is_err(), "flags");
}

proptest! {
    #[test]
    fn message_round_trip(front: Vec<u8>, data: Vec<u8>) {
        let whole = message(&front, &data);
        let (preamble, frame) = parse(&whole)?;
        prop_assert_eq!(whole.len(), PREAMBLE_BYTES + preamble.body_bytes());
        prop_assert_eq!(frame.segments[segment::FRONT], &front[..]);
        prop_assert_eq!(frame.segments[segment::DATA], &data[..]);
        let body = &whole[PREAMBLE_BYTES..];
        prop_assert_eq!(&body[preamble.segment_range(segment::FRONT)], &front[..]);
        prop_assert_eq!(&body[preamble.segment_range(segment::DATA)], &data[..]);
    }

    #[test]
    fn control_round_trip(payload: Vec<u8>) {
        let mut whole = vec![1, 2, 3];
        control(&mut whole, Tag::Hello, |e| e.bytes(&payload));
        let (preamble, frame) = parse(&whole[3..])?;
        prop_assert_eq!(preamble.tag, Tag::Hello);
        prop_assert_eq!(frame.segments[0], &payload[..]);
    }

    #[test]
    fn any_bytes(bytes: [u8; PREAMBLE_BYTES], body: Vec<u8>, lens: [u16; 4]) {
        let _ = Preamble::decode(&bytes);
        let _ = Epilogue::decode(&body);
        let preamble = Preamble::new(Tag::Message, lens.map(|len| u32::from(len % 64)));
        let _ = Frame::parse(&preamble, &body);
    }
}
