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

/// The frame that `bytes` are.
fn parse(bytes: &mut [u8]) -> crate::Result<Frame<'_>> {
    let len = bytes.len();
    let (frame, taken) = FrameReader::default().next(bytes)?.expect("a whole frame");
    assert_eq!(taken, len);
    Ok(frame)
}

/// The frames of a stream that comes in pieces of these lengths, over and over: their tags and segments.
fn split(stream: &[u8], pieces: &[usize]) -> Vec<(Tag, Vec<Vec<u8>>)> {
    let (mut reader, mut received, mut frames) = (FrameReader::default(), Vec::new(), Vec::new());
    let (mut rest, mut lens) = (stream, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(*lens.next().unwrap()));
        rest = after;
        received.extend_from_slice(piece);
        while let Some((frame, taken)) = reader.next(&mut received).unwrap() {
            frames.push((frame.tag, frame.segments.map(<[u8]>::to_vec).to_vec()));
            received.drain(..taken);
        }
    }
    assert!(received.is_empty());
    frames
}

/// The segments of a message frame that is taken in pieces of this length, or why not; `None` if it was aborted.
fn in_pieces(mut bytes: Vec<u8>, len: usize) -> crate::Result<Option<[Vec<u8>; SEGMENTS_MAX]>> {
    let (mut reader, mut segments) = (FrameReader::default(), [const { Vec::new() }; SEGMENTS_MAX]);
    let mut rest = &mut bytes[..];
    let mut take = |len| rest.split_off_mut(..len).unwrap();
    reader.preamble(take(reader.need()))?;
    segments[0] = reader.head(take(reader.head_bytes()))?.to_vec();
    while reader.segment() < SEGMENTS_MAX {
        let index = reader.segment();
        let piece = take(len.min(reader.left()));
        let kept = reader.piece(piece);
        segments[index].extend_from_slice(&piece[..kept]);
    }
    let aborted = reader.end(take(reader.end_bytes()))?;
    assert!(rest.is_empty());
    Ok((!aborted).then_some(segments))
}

#[test]
fn blocks_of_data_have_their_checksums_or_none_has() {
    let noise: Vec<u8> = (0..5 * 4096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (len, piece_len, known_bytes) in [
        (8192, usize::MAX, 8192),
        (5 * 4096, usize::MAX, 5 * 4096),
        (4 * 4096, 8192, 4 * 4096),
        (0, usize::MAX, 0),
        (4096, usize::MAX, 0),
        (10_000, usize::MAX, 0),
        (3 * 4096, 8192, 8192),
        (8192, 4000, 0),
    ] {
        let data = &noise[..len];
        let mut bytes = message(b"front", data);
        let (mut reader, mut rest, mut crcs) = (FrameReader::default(), &mut bytes[..], Vec::new());
        let mut take = |len| rest.split_off_mut(..len).unwrap();
        reader.preamble(take(reader.need())).unwrap();
        if piece_len == usize::MAX {
            reader.body_with_blocks(take(reader.need()), &mut crcs).unwrap();
        } else {
            reader.head(take(reader.head_bytes())).unwrap();
            while reader.segment() < SEGMENTS_MAX {
                reader.piece_with_blocks(take(piece_len.min(reader.left())), &mut crcs);
            }
            reader.end(take(reader.end_bytes())).unwrap();
        }
        let known: Vec<u32> =
            noise[..known_bytes].chunks(4096).map(|block| crc32c::raw(crc32c::SEED, block)).collect();
        assert_eq!(crcs, known, "{len} bytes in pieces of {piece_len}");
    }
}

#[test]
fn a_wait_frame_is_only_a_preamble() {
    let mut out = Vec::new();
    control(&mut out, Tag::Wait, |_| ());
    assert_eq!(out.len(), PREAMBLE_BYTES);
    let frame = parse(&mut out).unwrap();
    assert_eq!(frame.tag, Tag::Wait);
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
    assert!(parse(&mut whole).unwrap().aborted);
    assert_eq!(in_pieces(whole.clone(), 3), Ok(None));
    whole[at] = 2;
    assert!(parse(&mut whole).is_err() && in_pieces(whole, 3).is_err());
}

#[test]
fn one_wrong_bit_anywhere_is_noticed() {
    let whole = message(b"a front", b"some data");
    parse(&mut whole.clone()).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bad = whole.clone();
            bad[at] ^= 1 << bit;
            // The upper half of the late status has no meaning.
            let ignored = at == whole.len() - EPILOGUE_BYTES && bit >= 4;
            let preamble_is_right = at >= PREAMBLE_BYTES;
            if preamble_is_right {
                assert_eq!(in_pieces(bad.clone(), 4).is_ok(), ignored, "byte {at} bit {bit}");
            }
            assert_eq!(parse(&mut bad).is_ok(), ignored, "byte {at} bit {bit}");
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
        forged(|b| b[at..at + 4].copy_from_slice(&value.to_le_bytes())).map(|p| Codec::Crc.body_bytes(&p))
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
        let mut whole = message(&front, &data);
        let preamble = Preamble::decode(&whole)?;
        let body = whole[PREAMBLE_BYTES..].to_vec();
        prop_assert_eq!(body.len(), Codec::Crc.body_bytes(&preamble));
        let frame = parse(&mut whole)?;
        prop_assert_eq!(frame.data_crc, Some(crc32c::raw(crc32c::SEED, &data)));
        for (index, bytes) in [(segment::FRONT, &front), (segment::DATA, &data)] {
            prop_assert_eq!(frame.segments[index], &bytes[..]);
            prop_assert_eq!(&body[Codec::Crc.segment_range(&preamble, index)], &bytes[..]);
        }
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_come(
        messages: Vec<(Vec<u8>, Vec<u8>)>, pieces in prop::collection::vec(1usize..50, 1..5), len in 1usize..50,
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (front, data) in &messages {
            let whole = message(front, data);
            let segments = in_pieces(whole.clone(), len)?.expect("it is not aborted");
            prop_assert_eq!((&segments[segment::FRONT], &segments[segment::DATA]), (front, data));
            expected.push((Tag::Message, segments.to_vec()));
            stream.extend(whole);
            control(&mut stream, Tag::Ack, |e| e.bytes(front));
            expected.push((Tag::Ack, vec![front.clone(), vec![], vec![], vec![]]));
        }
        prop_assert_eq!(split(&stream, &pieces), expected);
    }

    #[test]
    fn control_round_trip(payload: Vec<u8>) {
        let mut whole = vec![1, 2, 3];
        control(&mut whole, Tag::Hello, |e| e.bytes(&payload));
        let frame = parse(&mut whole[3..])?;
        prop_assert_eq!(frame.tag, Tag::Hello);
        prop_assert_eq!(frame.segments[0], &payload[..]);
    }

    #[test]
    fn any_bytes(bytes: [u8; PREAMBLE_BYTES], mut body: Vec<u8>, lens: [u16; 4]) {
        let _ = Preamble::decode(&bytes);
        let _ = Epilogue::decode(&body);
        let preamble = Preamble::new(Tag::Message, lens.map(|len| u32::from(len % 64)));
        let mut reader = FrameReader::default();
        if reader.preamble(&mut preamble.encode()).is_ok() {
            let _ = reader.body(&mut body);
        }
    }
}
