//! Frames in secure mode: those of real Ceph, and what becomes of changed ones.

use carmine_wire::frame::secure::{Cipher, HEAD_BYTES, KEY_BYTES, NONCE_BYTES, seal_control, seal_message};
use carmine_wire::frame::{FrameReader, SEGMENTS_MAX, Tag, segment};
use carmine_wire::header::Header2;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}

/// A frame: its tag, its bytes on the wire, and its segments.
struct Captured {
    tag: Tag,
    wire: Vec<u8>,
    segments: [Vec<u8>; SEGMENTS_MAX],
}

/// Key and first nonce of each captured stream, and its frames.
fn captured() -> Vec<([u8; KEY_BYTES], [u8; NONCE_BYTES], Vec<Captured>)> {
    let mut streams = Vec::new();
    for line in include_str!("data/secure.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["stream", key, nonce] => {
                streams.push((hex(key).try_into().unwrap(), hex(nonce).try_into().unwrap(), Vec::new()));
            }
            ["frame", tag, wire, ref parts @ ..] => {
                let mut segments = [const { Vec::new() }; SEGMENTS_MAX];
                for (segment, part) in segments.iter_mut().zip(parts) {
                    *segment = hex(part.trim_matches('-'));
                }
                let tag = Tag::from_byte(tag.parse().unwrap()).unwrap();
                streams.last_mut().unwrap().2.push(Captured { tag, wire: hex(wire), segments });
            }
            _ => panic!("{line}"),
        }
    }
    assert!(streams.len() > 4);
    streams
}

/// Writes the frame of these segments.
fn seal(cipher: &mut Cipher, tag: Tag, segments: &[Vec<u8>; SEGMENTS_MAX]) -> Vec<u8> {
    let mut out = Vec::new();
    let [header, front, middle, data] = segments;
    if tag == Tag::Message {
        assert!(middle.is_empty());
        let header = Header2::decode(header).unwrap();
        let pieces = data.chunks(5000);
        seal_message(cipher, &mut out, &header, |out| out.extend_from_slice(front), (pieces, data.len()));
    } else {
        seal_control(cipher, &mut out, tag, |e| e.bytes(header));
    }
    out
}

/// Reads one frame: tag and segments.
fn open(reader: &mut FrameReader, bytes: &mut [u8]) -> carmine_wire::Result<(Tag, [Vec<u8>; SEGMENTS_MAX])> {
    let len = bytes.len();
    let (frame, taken) = reader.next(bytes)?.expect("a whole frame");
    assert_eq!(taken, len);
    let (tag, mut segments) = (frame.tag, frame.segments.map(<[u8]>::to_vec));
    segments[segment::HEADER] = reader.secure_header().to_vec();
    Ok((tag, segments))
}

#[test]
fn frames_of_ceph_are_read_and_written_to_the_byte() {
    let mut kinds = 0;
    for (key, nonce, frames) in captured() {
        let (mut reader, mut cipher) =
            (FrameReader::secure(Cipher::new(&key, &nonce)), Cipher::new(&key, &nonce));
        for Captured { tag, wire, segments } in frames {
            assert_eq!(open(&mut reader, &mut wire.clone()), Ok((tag, segments.clone())));
            assert_eq!(seal(&mut cipher, tag, &segments), wire);
            kinds |= 1u32 << tag as u8;
        }
    }
    for tag in [Tag::AuthSignature, Tag::ClientIdent, Tag::ServerIdent, Tag::Message] {
        assert!(kinds & 1 << tag as u8 != 0, "no {tag:?} among them");
    }
}

fn cipher() -> Cipher {
    // The counter goes around its end.
    Cipher::new(&[5; KEY_BYTES], &[1, 2, 3, 4, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
}

fn message(front: usize, data: usize) -> [Vec<u8>; SEGMENTS_MAX] {
    let noise = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
    [Header2::new(42, 8, 3).encode().to_vec(), noise(front), Vec::new(), noise(data)]
}

proptest! {
    #[test]
    fn whatever_is_sealed_is_read_and_nothing_else(
        lengths in prop::collection::vec((0..200usize, 0..9000usize), 1..4),
        idents in 0..300usize,
        changed in any::<prop::sample::Index>(),
        by in 1..=255u8,
    ) {
        let (mut sealer, mut reader) = (cipher(), FrameReader::secure(cipher()));
        let ident = [vec![7; idents], Vec::new(), Vec::new(), Vec::new()];
        let messages = lengths.into_iter().map(|(front, data)| (Tag::Message, message(front, data)));
        let frames: Vec<_> = messages.chain([(Tag::ClientIdent, ident)]).collect();
        let sealed: Vec<Vec<u8>> =
            frames.iter().map(|(tag, segments)| seal(&mut sealer, *tag, segments)).collect();
        for (frame, bytes) in frames.iter().zip(&sealed) {
            prop_assert_eq!(open(&mut reader, &mut bytes.clone()), Ok(frame.clone()));
        }
        // The same stream with one bit changed ends at that frame.
        let mut stream = sealed.concat();
        let place = changed.index(stream.len());
        stream[place] ^= by;
        let (mut rest, mut read) = (&mut stream[..], 0);
        let mut reader = FrameReader::secure(cipher());
        while let Ok(Some((_, len))) = reader.next(rest) {
            read += len;
            rest = rest.split_at_mut(len).1;
        }
        let ends = sealed.iter().scan(0, |end, frame| {
            *end += frame.len();
            Some(*end)
        });
        let first = ends.take_while(|end| *end <= place).last().unwrap_or(0);
        prop_assert_eq!(read, first, "the frame with the changed byte is not read");
    }
}

#[test]
fn frames_are_read_in_their_order_and_once() {
    let (mut sealer, mut reader) = (cipher(), FrameReader::secure(cipher()));
    let frames = [1, 2].map(|front| seal(&mut sealer, Tag::Message, &message(front, 0)));
    assert!(FrameReader::secure(cipher()).next(&mut frames[1].clone()).is_err(), "the second first");
    assert!(open(&mut reader, &mut frames[0].clone()).is_ok());
    assert!(reader.next(&mut frames[0].clone()).is_err(), "the first twice");
}

#[test]
fn a_preamble_is_one_operation_of_96_bytes() {
    let mut sealer = cipher();
    assert_eq!((HEAD_BYTES, seal(&mut sealer, Tag::Message, &message(0, 0)).len()), (96, 96));
    assert_eq!(seal(&mut sealer, Tag::Message, &message(1, 0)).len(), 96 + 16 + 16 + 16);
    assert_eq!(seal(&mut sealer, Tag::Message, &message(16, 4096)).len(), 96 + 16 + 4096 + 16 + 16);
}
