//! Every frame that real Ceph sent: decoded to the last byte, and encoded again to the same bytes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // reads files

mod capture;

use std::collections::BTreeMap;
use std::path::Path;

use capture::{Captured, data_dir, files, frames, split, streams};
use carmine_types::crc32c;
use carmine_wire::frame::{self, Tag};
use carmine_wire::handshake::*;
use carmine_wire::mgr_msg::{MgrConfigure, MgrMapMsg, MgrReport, PgStatsMsg};
use carmine_wire::mon_msg::*;
use carmine_wire::osd_msg::{
    Alive, Beacon, Boot, Failure, MarkMeDown, OsdPing, PgCreate, PgCreated, PgNotify2, PgQuery2, PgTemp,
    ReadyToMerge,
};
use carmine_wire::osd_op::{OsdReply, OsdRequest, ops, payload_ranges, peek};
use carmine_wire::pgls::{PgNlsArg, PgNlsReply};
use carmine_wire::{Front, Header2, kinds};

/// How many frames of each kind were seen, by name.
type Seen = BTreeMap<&'static str, usize>;

fn check_control<T: Control>(captured: &Captured) {
    let decoded = T::decode(&captured.segments[0]).unwrap_or_else(|e| panic!("{}: {e}", captured.title));
    let mut encoded = Vec::new();
    decoded.frame_into(&mut encoded);
    assert_eq!(encoded, captured.bytes(), "{}", captured.title);
}

fn check_control_frame(captured: &Captured) -> &'static str {
    match captured.preamble.tag {
        Tag::Hello => check_control::<Hello>(captured),
        Tag::AuthRequest => {
            check_control::<AuthRequest>(captured);
            let request = AuthRequest::decode(&captured.segments[0]).unwrap();
            let none = AuthNone::decode(&request.payload).unwrap();
            assert_eq!(AuthRequest::none(&none), request);
        }
        Tag::AuthDone => check_control::<AuthDone>(captured),
        Tag::AuthSignature => {
            check_control::<Signature>(captured);
            Signature::decode(&captured.segments[0]).unwrap().check_none().unwrap();
        }
        Tag::ClientIdent => check_control::<ClientIdent>(captured),
        Tag::ServerIdent => check_control::<ServerIdent>(captured),
        Tag::Wait => check_control::<Wait>(captured),
        Tag::Ack => check_control::<Ack>(captured),
        Tag::Keepalive2 => check_control::<Keepalive2>(captured),
        Tag::Keepalive2Ack => check_control::<Keepalive2Ack>(captured),
        other => panic!("{}: no check for {other:?}", captured.title),
    }
    "CONTROL"
}

/// The front decodes, and encodes to the same bytes and the same versions.
fn check_front<T: Front>(captured: &Captured, header: &Header2) {
    let decoded =
        T::from_front(header, captured.front()).unwrap_or_else(|e| panic!("{}: {e}", captured.title));
    let ours = T::header();
    let same = (ours.version, ours.compat, ours.priority);
    assert_eq!(same, (header.version, header.compat, header.priority), "{}", captured.title);
    assert_eq!(decoded.to_front(), captured.front(), "{}", captured.title);
}

fn check_request(captured: &Captured, header: &Header2) {
    let front = captured.front();
    let request = OsdRequest::decode(header, front).unwrap_or_else(|e| panic!("{}: {e}", captured.title));
    let peeked = peek(front).unwrap();
    assert_eq!(peeked, (request.pg, request.hash, request.epoch, request.flags), "{}", captured.title);
    let mut encoded = Vec::new();
    request.encode_into(&mut encoded);
    assert_eq!(encoded, front, "{}", captured.title);
    let same = (header.version, header.compat, header.priority);
    let ours = OsdRequest::header(header.tid);
    assert_eq!((ours.version, ours.compat, ours.priority), same);
    if request.locator.hash == -1 {
        let object = request.clone().take_object_id();
        assert_eq!(
            carmine_types::ObjectId::head(object.pool, &object.nspace, &object.key, &object.name),
            object
        );
    }
    let data_len = captured.preamble.len(frame::segment::DATA);
    let ranges = payload_ranges(&request.ops, data_len).unwrap();
    assert_eq!(ranges.last().map_or(0, |range| range.end), data_len, "{}", captured.title);
    // An OSD refuses requests whose locator names another pool than the PG's; real clients send none.
    assert_eq!(request.locator.pool, request.pg.pool, "{}", captured.title);
    for (op, range) in request.ops.iter().zip(ranges) {
        if matches!(op.code, ops::WRITE | ops::WRITE_FULL | ops::APPEND) {
            assert_eq!(op.extent().length, range.len() as u64, "{}", captured.title);
        }
        assert_ne!(ops::name(op.code), "unknown op", "{}: {:#x}", captured.title, op.code);
        if op.code == ops::PGNLS {
            let payload = &captured.data()[range];
            assert_eq!(PgNlsArg::decode(payload).unwrap().encode(), payload);
        }
    }
}

fn check_reply(captured: &Captured, header: &Header2) {
    let front = captured.front();
    let reply = OsdReply::decode(header, front).unwrap_or_else(|e| panic!("{}: {e}", captured.title));
    let mut encoded = Vec::new();
    reply.encode_into(&mut encoded);
    assert_eq!(encoded, front, "{}", captured.title);
    let ours = OsdReply::header(header.tid);
    let same = (header.version, header.compat, header.priority);
    assert_eq!((ours.version, ours.compat, ours.priority), same);
    let data_len = captured.preamble.len(frame::segment::DATA);
    let ranges = payload_ranges(&reply.ops, data_len).unwrap();
    assert_eq!(ranges.last().map_or(0, |range| range.end), data_len, "{}", captured.title);
    for (op, range) in reply.ops.iter().zip(ranges) {
        if op.code == ops::PGNLS && captured.is_whole() {
            let output = &captured.data()[range];
            assert_eq!(PgNlsReply::decode(output).unwrap().encode(), output);
        }
    }
}

fn check_message(captured: &Captured) -> &'static str {
    let header = Header2::decode(&captured.segments[0]).unwrap();
    assert_eq!(header.encode()[..], captured.segments[0], "{}", captured.title);
    if captured.cut[frame::segment::FRONT] {
        return "CUT";
    }
    if captured.is_whole() {
        let mut whole = Vec::new();
        let tail = frame::message_head(&mut whole, &header, captured.front(), captured.data().len());
        whole.extend_from_slice(captured.data());
        frame::message_tail(&mut whole, tail, crc32c::raw(crc32c::SEED, captured.data()));
        assert_eq!(whole, captured.bytes(), "{}", captured.title);
    }
    match header.kind {
        kinds::MON_MAP => check_front::<MonMapMsg>(captured, &header),
        kinds::MON_GET_MAP => check_front::<GetMap>(captured, &header),
        kinds::MON_SUBSCRIBE => check_front::<Subscribe>(captured, &header),
        kinds::CONFIG => check_front::<ConfigMsg>(captured, &header),
        // OSDs, and monitors in answer to some requests, send maps with other priorities.
        kinds::OSD_MAP => check_front::<OsdMapMsg>(captured, &Header2 { priority: 196, ..header }),
        kinds::MON_GET_VERSION => check_front::<GetVersion>(captured, &header),
        kinds::MON_GET_VERSION_REPLY => check_front::<GetVersionReply>(captured, &header),
        kinds::MON_COMMAND => check_front::<Command>(captured, &header),
        kinds::MON_COMMAND_ACK => check_front::<CommandAck>(captured, &header),
        kinds::OSD_BOOT => check_front::<Boot>(captured, &header),
        // The monitor's answer has the priority of its answers.
        kinds::OSD_MARK_ME_DOWN => check_front::<MarkMeDown>(captured, &Header2 { priority: 127, ..header }),
        kinds::OSD_ALIVE => check_front::<Alive>(captured, &header),
        kinds::OSD_BEACON => check_front::<Beacon>(captured, &header),
        kinds::OSD_PG_TEMP => check_front::<PgTemp>(captured, &header),
        kinds::OSD_FAILURE => check_front::<Failure>(captured, &header),
        kinds::OSD_PG_CREATE2 => check_front::<PgCreate>(captured, &header),
        kinds::OSD_PG_CREATED => check_front::<PgCreated>(captured, &header),
        kinds::OSD_PG_READY_TO_MERGE => check_front::<ReadyToMerge>(captured, &header),
        kinds::OSD_PG_QUERY2 => check_front::<PgQuery2>(captured, &header),
        kinds::OSD_PG_NOTIFY2 => check_front::<PgNotify2>(captured, &header),
        kinds::OSD_PING => check_front::<OsdPing>(captured, &header),
        // Of the manager's map only a part is read.
        kinds::MGR_MAP => drop(MgrMapMsg::from_front(&header, captured.front()).unwrap()),
        kinds::MGR_CONFIGURE => check_front::<MgrConfigure>(captured, &header),
        kinds::MGR_REPORT => check_front::<MgrReport>(captured, &header),
        kinds::PG_STATS => check_front::<PgStatsMsg>(captured, &header),
        kinds::OSD_OP => check_request(captured, &header),
        kinds::OSD_OP_REPLY => check_reply(captured, &header),
        _ => return "OTHER",
    }
    kinds::name(header.kind)
}

fn check(captured: &Captured, seen: &mut Seen) {
    let name = if captured.is_message() { check_message(captured) } else { check_control_frame(captured) };
    *seen.entry(name).or_default() += 1;
}

fn replay_frames(dir: &Path) -> Seen {
    let mut seen = Seen::new();
    for path in files(dir, ".frames.txt") {
        frames(&path).iter().for_each(|captured| check(captured, &mut seen));
    }
    seen
}

#[test]
fn frames_of_all_captures() {
    let seen = replay_frames(&data_dir());
    let count = |name| *seen.get(name).unwrap_or(&0);
    assert_eq!(count("CUT"), 1, "only the full map of rados-bench is cut: {seen:?}");
    for (name, least) in [
        ("CONTROL", 80),
        ("MON_MAP", 8),
        ("MON_GET_MAP", 4),
        ("MON_SUBSCRIBE", 10),
        ("CONFIG", 6),
        ("OSD_MAP", 10),
        ("MON_GET_VERSION", 1),
        ("MON_GET_VERSION_REPLY", 2),
        ("MON_COMMAND", 6),
        ("MON_COMMAND_ACK", 6),
        ("OSD_BOOT", 2),
        ("OSD_MARK_ME_DOWN", 2),
        ("OSD_ALIVE", 2),
        ("OSD_BEACON", 2),
        ("OSD_PG_TEMP", 2),
        ("OSD_FAILURE", 1),
        ("OSD_PG_CREATE2", 2),
        ("OSD_PG_CREATED", 1),
        ("OSD_PG_READY_TO_MERGE", 2),
        ("OSD_PG_QUERY2", 2),
        ("OSD_PG_NOTIFY2", 3),
        ("OSD_PING", 4),
        ("MGR_MAP", 1),
        ("MGR_CONFIGURE", 1),
        ("MGR_REPORT", 4),
        ("PG_STATS", 3),
        ("OSD_OP", 40),
        ("OSD_OP_REPLY", 40),
    ] {
        assert!(count(name) >= least, "{name}: {seen:?}");
    }
}

#[test]
fn whole_streams() {
    let mut seen = Seen::new();
    for path in files(&data_dir(), ".streams.txt") {
        for stream in streams(&path) {
            let (banner_len, frames) = split(&stream);
            assert_eq!(banner_len, BANNER_BYTES);
            let mut seq = 0;
            for captured in frames {
                if captured.is_message() {
                    seq += 1;
                    assert_eq!(Header2::decode(&captured.segments[0]).unwrap().seq, seq);
                }
                check(&captured, &mut seen);
            }
        }
    }
    assert!(seen["OSD_OP"] >= 16 && seen["MON_SUBSCRIBE"] >= 24 && seen["CONTROL"] >= 100, "{seen:?}");
}

/// The same over any folder of `*.frames.txt`, such as the unpacked captures of ../shared/oracle:
/// `CARMINE_FRAMES=DIR cargo test -p carmine-wire --test replay -- --ignored`.
#[test]
#[ignore = "needs CARMINE_FRAMES, a folder with more captures"]
fn frames_of_another_folder() {
    let dir = std::env::var_os("CARMINE_FRAMES").expect("set CARMINE_FRAMES to a folder of *.frames.txt");
    println!("{:?}", replay_frames(Path::new(&dir)));
}
