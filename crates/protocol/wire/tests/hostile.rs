//! Whatever the bytes: no panic, and no more memory than the declared limit.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads files

mod capture;

use std::sync::LazyLock;

use allocation_counter::measure;
use capture::{Captured, data_dir, files, frames, split, streams};
use carmine_codec::{MEMORY_BYTES_FIXED, MEMORY_PER_INPUT_BYTE_MAX};
use carmine_types::crc32c;
use carmine_wire::backoff::Backoff;
use carmine_wire::frame::{FrameReader, PREAMBLE_BYTES};
use carmine_wire::handshake::*;
use carmine_wire::mgr_msg::{MgrConfigure, MgrMapMsg, MgrOpen, MgrReport, PgStatsMsg};
use carmine_wire::mon_msg::*;
use carmine_wire::osd_msg::{Alive, Beacon, Boot, Failure, Full, MarkMeDown, OsdPing, PgTemp};
use carmine_wire::osd_op::{OsdReply, OsdRequest, payload_bytes, payload_ranges, peek};
use carmine_wire::pgls::{PgNlsArg, PgNlsReply};
use carmine_wire::private::*;
use carmine_wire::tell::{Ping, Tell, TellReply};
use carmine_wire::{Front, Header2};
use proptest::prelude::*;

static CORPUS: LazyLock<Vec<Captured>> = LazyLock::new(|| {
    let mut corpus = Vec::new();
    for path in files(&data_dir(), ".frames.txt") {
        corpus.extend(frames(&path).into_iter().filter(Captured::is_whole));
    }
    for path in files(&data_dir(), ".streams.txt") {
        streams(&path).iter().for_each(|stream| corpus.extend(split(stream).1));
    }
    corpus
});

/// Runs one decoder and compares the most memory that it held with the limit.
fn bounded(input: &[u8], what: &str, decode: impl Fn(&[u8])) {
    let most = measure(|| decode(input)).bytes_max;
    let limit = (input.len() * MEMORY_PER_INPUT_BYTE_MAX + MEMORY_BYTES_FIXED) as u64;
    assert!(most <= limit, "{what} held {most} bytes for {} of input: {}", input.len(), input.escape_ascii());
}

/// Runs decoders of one sort over the same bytes.
macro_rules! run {
    ($input:expr, $decode:ident: $($type:ty),* $(,)?) => {
        $(bounded($input, stringify!($type), |bytes| $decode::<$type>(bytes));)*
    };
}

fn front<T: Front>(bytes: &[u8]) {
    for version in T::OLDEST..=T::VERSION + 1 {
        let _ = T::from_front(&Header2 { version, ..T::header() }, bytes);
    }
}

fn control<T: Control>(bytes: &[u8]) {
    let _ = T::decode(bytes);
}

/// Every decoder, whatever the bytes were meant to be.
fn decode_as_everything(bytes: &[u8]) {
    run!(bytes, front: Subscribe, ConfigMsg, GetVersion, GetVersionReply, GetMap, MonMapMsg, OsdMapMsg);
    run!(bytes, front: Command, CommandAck, PoolOp, PoolOpReply, StatFs, StatFsReply, GetPoolStats);
    run!(bytes, front: GetPoolStatsReply, Backoff);
    run!(bytes, front: Route, RouteReply, OsdStats, Admin, AdminReply);
    run!(bytes, front: Tell, TellReply, Ping);
    run!(bytes, front: MgrMapMsg, MgrOpen, MgrConfigure, MgrReport, PgStatsMsg);
    run!(bytes, front: Boot, MarkMeDown, Alive, Beacon, PgTemp, Failure, Full, OsdPing);
    run!(bytes, control: Hello, AuthRequest, AuthBadMethod, AuthDone, Signature, ClientIdent, ServerIdent);
    run!(bytes, control: MissingFeatures, Reconnect, Reset, Retry, Wait, Keepalive2, Ack);
    for version in [8, 9, 10] {
        bounded(bytes, "OsdRequest", |bytes| {
            let header = Header2 { version, ..OsdRequest::header(1) };
            if let Ok(request) = OsdRequest::decode(&header, bytes) {
                let _ = payload_ranges(&request.ops, payload_bytes(&request.ops) as usize);
            }
        });
    }
    bounded(bytes, "OsdReply", |bytes| {
        let _ = OsdReply::decode(&OsdReply::header(1), bytes);
    });
    bounded(bytes, "small ones", |bytes| {
        let _ = (peek(bytes), AuthNone::decode(bytes), Banner::parse(bytes), Header2::decode(bytes));
    });
    bounded(bytes, "listings", |bytes| {
        let _ = (PgNlsArg::decode(bytes), PgNlsReply::decode(bytes));
    });
}

/// A frame's bytes as a receiver takes them.
fn receive(bytes: &[u8]) {
    let received = std::cell::RefCell::new(bytes.to_vec());
    bounded(bytes, "frame", |_| {
        let (mut received, mut reader) = (received.borrow_mut(), FrameReader::default());
        let _ = reader.next(&mut received);
        let _ = reader.body(&mut received);
    });
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    /// A 32-bit value as lengths and counts have them: near 0 or near the maximum.
    Number(prop::sample::Index, i8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Double(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || any::<prop::sample::Index>();
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), any::<i8>()).prop_map(|(at, value)| Mutation::Number(at, value)),
        at().prop_map(Mutation::Cut),
        (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, new)| Mutation::Insert(at, new)),
        at().prop_map(Mutation::Double),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let place = |at: &prop::sample::Index| at.index(len + 1);
        match self {
            Mutation::Set(at, byte) => bytes.iter_mut().skip(place(at)).take(1).for_each(|b| *b = *byte),
            Mutation::Number(at, value) => {
                let new = i32::from(*value).to_le_bytes();
                bytes.iter_mut().skip(place(at)).zip(new).for_each(|(b, new)| *b = new);
            }
            Mutation::Cut(at) => bytes.truncate(place(at)),
            Mutation::Insert(at, new) => drop(bytes.splice(place(at)..place(at), new.iter().copied())),
            Mutation::Double(at) => {
                let tail = bytes[place(at)..].to_vec();
                bytes.extend(tail);
            }
        }
    }
}

fn frame_index() -> impl Strategy<Value = usize> {
    0..CORPUS.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn mutated_payloads(
        index in frame_index(), segment in 0usize..4, mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let mut bytes = CORPUS[index].segments[segment].clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        decode_as_everything(&bytes);
    }

    #[test]
    fn mutated_frames(index in frame_index(), mutations in prop::collection::vec(mutation(), 1..4)) {
        let mut bytes = CORPUS[index].bytes();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        receive(&bytes);
        // As if the sender had meant it: with a right checksum the lengths have to be survived too.
        if bytes.len() >= PREAMBLE_BYTES {
            let crc = crc32c::raw(0, &bytes[..28]);
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
            receive(&bytes);
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decode_as_everything(&bytes);
        receive(&bytes);
    }
}

/// Else the limits above would prove nothing.
#[test]
fn memory_is_really_measured() {
    let bytes = Admin { json: vec![7; 1000] }.to_front();
    let held = measure(|| drop(Admin::from_front(&Admin::header(), &bytes).unwrap())).bytes_max;
    assert!((1000..1100).contains(&held), "{held}");
}

/// The inputs that make the most values out of the fewest bytes: lists as long as they can be of items as
/// small as they can be.
#[test]
fn long_lists_of_nothing() {
    for prefix in 0..140 {
        for (items, item_bytes) in [(127u32, 12), (129, 4), (1025, 4), (1025, 8), (1025, 10), (4097, 8)] {
            let mut bytes = vec![0; prefix];
            bytes.extend_from_slice(&items.to_le_bytes());
            // Less than one item more, so that what follows the list is not the reason to refuse it.
            bytes.resize(bytes.len() + items as usize * item_bytes + 4, 0);
            decode_as_everything(&bytes);
        }
    }
}
