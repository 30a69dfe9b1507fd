use carmine_types::{Epoch, Eversion, ObjectId, PgId, SNAP_HEAD, UTime};
use proptest::prelude::*;

use super::*;
use crate::{FEATURES, Header2, kinds};

fn op() -> impl Strategy<Value = OsdOp> {
    any::<(u16, u32, [u8; 28], u32)>().prop_map(|(code, flags, arg, payload_len)| OsdOp {
        code,
        flags,
        arg,
        payload_len,
    })
}

fn bytes() -> impl Strategy<Value = Box<[u8]>> {
    any::<Vec<u8>>().prop_map(Vec::into_boxed_slice)
}

fn request() -> impl Strategy<Value = OsdRequest> {
    let fixed = any::<(PgId2, i8, u32, u32, u32, i32, (u32, u32))>();
    let names = (any::<i64>(), bytes(), bytes(), any::<i64>(), bytes());
    let rest = (prop::collection::vec(op(), 0..5), any::<(u64, u64, Vec<u64>, i32, u64)>());
    (fixed, names, rest).prop_map(|(fixed, names, (ops, rest))| OsdRequest {
        pg: PgId::new(fixed.0.0, fixed.0.1),
        shard: fixed.1,
        hash: fixed.2,
        epoch: Epoch(fixed.3),
        flags: fixed.4,
        client_inc: fixed.5,
        mtime: UTime { sec: fixed.6.0, nsec: fixed.6.1 },
        locator: Locator { pool: names.0, key: names.1, nspace: names.2, hash: names.3 },
        name: names.4,
        ops: ops.into(),
        snapid: rest.0,
        snap_seq: rest.1,
        snaps: rest.2,
        retry_attempt: rest.3,
        features: rest.4,
    })
}

type PgId2 = (i64, u32);

fn front(request: &OsdRequest) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode_into(&mut out);
    out
}

proptest! {
    #[test]
    fn requests_round_trip(request in request()) {
        let bytes = front(&request);
        prop_assert_eq!(
            peek(&bytes),
            Some((request.pg, request.hash, request.epoch, request.flags))
        );
        prop_assert_eq!(&OsdRequest::decode(&OsdRequest::header(1), &bytes)?, &request);
        let mut v9 = bytes;
        v9.splice(87..87, [1, 1, 1, 0, 0, 0, 0]);
        let header = Header2 { version: 9, ..OsdRequest::header(1) };
        prop_assert_eq!(OsdRequest::decode(&header, &v9)?, request);
    }

    /// The fixed part of a request begins, and its id lies, as everybody writes them.
    #[test]
    fn a_request_of_another_layout_is_an_error(
        request in request(), at in prop_oneof![0..7usize, 36..42usize], byte: u8,
    ) {
        let mut bytes = front(&request);
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        prop_assert!(OsdRequest::decode(&OsdRequest::header(1), &bytes).is_err());
    }

    #[test]
    fn a_cut_request_is_an_error(request in request(), cut: prop::sample::Index) {
        let bytes = front(&request);
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert!(OsdRequest::decode(&OsdRequest::header(1), part).is_err());
    }

    #[test]
    fn replies_round_trip(
        name: Vec<u8>, pool: i64, ints: (u32, u32, i32, u32, i32, u32), versions: (u64, u64, u64, u32),
        ops in prop::collection::vec((op(), any::<i32>()), 0..5),
    ) {
        let reply = OsdReply {
            name: &name,
            pg: PgId::new(pool, ints.0),
            flags: ints.1,
            result: ints.2,
            bad_replay: Eversion::new(ints.3, versions.0),
            epoch: Epoch(ints.5),
            ops: ops.iter().map(|op| op.0).collect(),
            retry_attempt: ints.4,
            rvals: ops.iter().map(|op| op.1).collect(),
            replay_version: Eversion::new(versions.3, versions.1),
            user_version: versions.2,
        };
        let mut bytes = Vec::new();
        reply.encode_into(&mut bytes);
        prop_assert_eq!(bytes.len(), 102 + name.len() + 42 * ops.len());
        prop_assert_eq!(OsdReply::decode(&OsdReply::header(1), &bytes)?, reply);
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        let _ = peek(&bytes);
        let _ = OsdReply::decode(&OsdReply::header(1), &bytes);
        for version in [8, 9, 10] {
            let header = Header2 { version, ..OsdRequest::header(1) };
            let _ = OsdRequest::decode(&header, &bytes);
        }
    }
}

#[test]
fn sizes_are_as_documented() {
    let object = ObjectId::head(1, b"", b"", b"obj1");
    let pg = PgId::of_hash(1, object.hash, 8);
    let ops = OpList::from_slice(&[OsdOp::write(0, 4096)]);
    let request = OsdRequest::new(pg, Epoch(16), flags::CLIENT_WRITE, &object, ops);
    assert_eq!(front(&request).len(), 209 + 4);
    let mut out = Vec::new();
    OsdReply::to(&request, b"obj1", Epoch(16), 0).encode_into(&mut out);
    assert_eq!(out.len(), 144 + 4);
}

#[test]
fn constructors_and_accessors_agree() {
    let write = OsdOp::write(8192, 4096);
    assert_eq!(write.extent(), Extent { offset: 8192, length: 4096, ..Extent::default() });
    assert_eq!((write.code, write.payload_len, write.is_write()), (ops::WRITE, 4096, true));
    let read = OsdOp::read(1, 2);
    assert_eq!((read.extent().offset, read.extent().length, read.is_write()), (1, 2, false));
    let hint = OsdOp::set_alloc_hint(4 << 20, 4096).alloc_hint();
    assert_eq!((hint.object_size, hint.write_size), (4 << 20, 4096));
    let list = OsdOp::pgnls(1024, 7, 39);
    assert_eq!(list.pgls(), PgLs { max_entries: 1024, start_epoch: 7 });
    assert!(list.is_pg_op() && !list.is_write());
    assert_eq!(OsdOp::truncate(5).extent().offset, 5);
    assert_eq!(OsdOp::create(true).flags, flags::op::EXCL);
    assert_eq!(read.with_extent(write.extent()).extent(), write.extent());
    assert_eq!(format!("{write:?}"), "write 8192~4096 payload=4096");
}

#[test]
fn payloads_must_add_up_to_the_data() {
    let ops = [OsdOp::set_alloc_hint(0, 0), OsdOp::write(0, 10), OsdOp::write(10, 5)];
    let ranges = payload_ranges(&ops, 15).unwrap();
    assert_eq!(ranges.as_slice(), [0..0, 0..10, 10..15]);
    assert!(payload_ranges(&ops, 14).is_err());
    assert!(payload_ranges(&ops, 16).is_err());
    assert!(payload_ranges(&[OsdOp::stat()], 1).is_err());
    assert!(payload_ranges(&[OsdOp::stat()], 0).is_ok());
    assert!(payload_ranges(&[OsdOp::write(0, u32::MAX); 3], 20).is_err());
}

#[test]
fn a_huge_count_of_ops_allocates_nothing() {
    let object = ObjectId::head(1, b"", b"", b"o");
    let request = OsdRequest::new(PgId::new(1, 0), Epoch(1), 0, &object, OpList::new());
    let mut bytes = front(&request);
    let at = bytes.len() - (8 + 8 + 4 + 4 + 8) - 2;
    bytes[at..at + 2].fill(0xff);
    assert!(OsdRequest::decode(&OsdRequest::header(1), &bytes).is_err());
}

#[test]
fn the_object_id_is_taken_without_copying() {
    let object = ObjectId::head(3, b"ns", b"key", b"name");
    let mut request = OsdRequest::new(PgId::new(3, 1), Epoch(1), 0, &object, OpList::new());
    let name = request.name.as_ptr();
    let taken = request.take_object_id();
    assert_eq!(taken, object);
    assert_eq!(taken.name.as_ptr(), name);
    assert_eq!(taken.snap, SNAP_HEAD);
}

#[test]
fn other_versions_and_types_are_refused() {
    let decode = |header: &Header2| OsdRequest::decode(header, &[]).unwrap_err().to_string();
    assert!(decode(&Header2::new(kinds::OSD_OP, 7, 3)).contains("older than 8"));
    assert!(decode(&Header2::new(kinds::OSD_OP, 12, 10)).contains("needs a reader of version 10"));
    assert!(decode(&Header2::new(kinds::STATFS, 8, 3)).contains("message type"));
    assert_eq!(OsdRequest::header(5).priority, 63);
    assert_eq!(FEATURES & crate::handshake::features::REQUIRED, crate::handshake::features::REQUIRED);
}

#[test]
fn what_reads_ask_for_is_seen_without_decoding() {
    let object = ObjectId::head(3, b"namespace", b"key", b"name");
    let asked = |list: &[OsdOp]| {
        let request = OsdRequest::new(PgId::new(3, 1), Epoch(1), 0, &object, list.iter().copied().collect());
        let bytes = front(&request);
        for cut in 0..bytes.len() {
            let _ = peek_output(8, &bytes[..cut]);
        }
        // Version 9 has an envelope more, behind the trace.
        let newer = [&bytes[..87], &[1, 1, 2, 0, 0, 0, 9, 9], &bytes[87..]].concat();
        assert_eq!(peek_output(9, &newer), peek_output(8, &bytes));
        peek_output(8, &bytes)
    };
    assert_eq!(asked(&[OsdOp::read(5, 4096)]), 4096);
    assert_eq!(asked(&[OsdOp::stat(), OsdOp::read(0, 100), OsdOp::sparse_read(7, 11)]), 111);
    assert_eq!(asked(&[OsdOp::read(0, 0)]), 4 << 20, "the whole object");
    assert_eq!(asked(&[OsdOp::write(0, 1 << 20)]), 0, "its data was counted as it came");
    assert_eq!(asked(&[OsdOp::write_same_op(0, 90 << 20, 1), OsdOp::write(0, 5)]), 90 << 20);
    assert_eq!(asked(&[OsdOp::with_payload(ops::COPY_FROM, 40)]), 4 << 20);
    assert_eq!(asked(&[OsdOp::with_payload(ops::OMAP_SET_VALS, 100)]), (256 << 10) + 200);
    assert_eq!(asked(&[OsdOp::pgnls(1024, 1, 50)]), (256 << 10) + 100);
    assert_eq!(asked(&[OsdOp::read(0, u64::MAX); 3]), u64::MAX);
    assert_eq!(peek_output(8, &[0xff; 300]), 0);
}
