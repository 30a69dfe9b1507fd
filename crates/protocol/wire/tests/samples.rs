//! Frames that Ceph 16.2.15 clients and daemons sent, made from values.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // capture reads files

mod capture;

use capture::hex;
use carmine_types::{Epoch, Eversion, ObjectId, PgId, UTime, crc32c};
use carmine_wire::addr::kind;
use carmine_wire::frame;
use carmine_wire::handshake::*;
use carmine_wire::header::Front;
use carmine_wire::osd_msg::ReadyToMerge;
use carmine_wire::osd_op::{OpList, OsdOp, OsdReply, OsdRequest, flags};
use carmine_wire::{EntityAddr, EntityType, Header2};

const GID: u64 = 0x101e;

/// 127.0.0.1:45114/10717, the OSD of the samples.
fn osd() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:45114".parse().unwrap(), 0x29dd)
}

fn frame_of(control: &impl Control) -> Vec<u8> {
    let mut bytes = Vec::new();
    control.frame_into(&mut bytes);
    bytes
}

/// Segment 0 and its checksum: the samples leave out parts of the preambles.
fn body_of(control: &impl Control) -> Vec<u8> {
    frame_of(control)[frame::PREAMBLE_BYTES..].to_vec()
}

/// The last four bytes of a control frame's preamble.
fn preamble_crc(control: &impl Control) -> Vec<u8> {
    frame_of(control)[28..32].to_vec()
}

#[test]
fn banner() {
    let mut bytes = Vec::new();
    Banner { supported: 1, required: 0 }.encode_into(&mut bytes);
    assert_eq!(bytes, hex("63657068 2076320a 1000 0100000000000000 0000000000000000"));
}

#[test]
fn hellos() {
    let to_osd = Hello { entity: EntityType::CLIENT, peer_addr: osd() };
    let preamble = "0101 24000000 0800 000000000000000000000000000000000000 0000 3fbd6b06";
    let body = "08 01 0101 1c000000 02000000 dd290000 10000000 0200b03a7f0000010000000000000000 1e9618c5";
    assert_eq!(frame_of(&to_osd), [hex(preamble), hex(body)].concat());
    let client = EntityAddr::msgr2("127.0.0.1:52720".parse().unwrap(), 0);
    let to_client = Hello { entity: EntityType::OSD, peer_addr: client };
    let body = "04 01 0101 1c000000 02000000 00000000 10000000 0200cdf07f0000010000000000000000 e2d00d10";
    assert_eq!(frame_of(&to_client), [hex(preamble), hex(body)].concat());
}

#[test]
fn authentication() {
    let admin = AuthNone {
        target: AuthTarget::Osd,
        entity: EntityType::CLIENT,
        name: "admin".to_owned(),
        global_id: GID,
    };
    let request = AuthRequest::none(&admin);
    let body =
        "01000000 01000000 01000000 16000000 01 08000000 05000000 61646d696e 1e10000000000000 adc9dfea";
    assert_eq!(preamble_crc(&request), hex("8c5ee4be"));
    assert_eq!(body_of(&request), hex(body));
    let done = AuthDone { global_id: GID, mode: connection_mode::CRC, payload: Vec::new() };
    assert_eq!(preamble_crc(&done), hex("5b0630a6"));
    assert_eq!(body_of(&done), hex("1e10000000000000 01000000 00000000 7a380628"));
    let signature = Signature::default();
    assert_eq!(preamble_crc(&signature), hex("a80c9872"));
    assert_eq!(body_of(&signature), [hex(&"00".repeat(32)), hex("55c96e75")].concat());
}

#[test]
fn idents() {
    let own = EntityAddr::client("127.0.0.1".parse().unwrap(), 0x1a70_dae6);
    let client = ClientIdent {
        addrs: own.into(),
        target: osd(),
        gid: GID,
        global_seq: 2,
        supported: FEATURES,
        required: 0x0800_0000_0000_1000,
        flags: FLAG_LOSSY,
        cookie: 0,
    };
    assert_eq!(own.kind, kind::ANY);
    assert_eq!(preamble_crc(&client), hex("738a9895"));
    let body = "02 01000000 01 0101 1c000000 03000000 e6da701a 10000000 020000007f0000010000000000000000
        01 0101 1c000000 02000000 dd290000 10000000 0200b03a7f0000010000000000000000
        1e10000000000000 0200000000000000 fffffdffbdcf013f 0010000000000008 0100000000000000
        0000000000000000 74c4949f";
    assert_eq!(body_of(&client), hex(body));
    let server = ServerIdent {
        addrs: osd().into(),
        gid: 1,
        global_seq: 2,
        supported: FEATURES,
        required: 0x0c01_0200_4204_0000,
        flags: FLAG_LOSSY,
        cookie: 0,
    };
    assert_eq!(preamble_crc(&server), hex("83a1f3e6"));
    let body = "02 01000000 01 0101 1c000000 02000000 dd290000 10000000 0200b03a7f0000010000000000000000
        0100000000000000 0200000000000000 fffffdffbdcf013f 000004420002010c 0100000000000000
        0000000000000000 ab978bfd";
    assert_eq!(body_of(&server), hex(body));
}

fn write_request() -> OsdRequest {
    let object = ObjectId::head(1, b"", b"", b"obj1");
    let pg = PgId::of_hash(1, object.hash, 8);
    let ops = OpList::from_slice(&[OsdOp::write_full(4096)]);
    let mut request = OsdRequest::new(pg, Epoch(16), flags::CLIENT_WRITE, &object, ops);
    request.mtime = UTime { sec: 0x6b00_f276, nsec: 0x2f94_be5e };
    request
}

#[test]
fn a_write() {
    let mut bytes = Vec::new();
    let header = Header2 { seq: 1, ..OsdRequest::header(1) };
    let tail = frame::message_head_with(&mut bytes, &header, 4096, |out| write_request().encode_into(out));
    // The sheet prints this preamble's checksum as da075503: a slip of the pen, its bytes give this.
    // The data's checksum comes from elsewhere; the data itself is not in the sheet.
    frame::message_tail(&mut bytes, tail, 0x31f6_7a70);
    let expected = "1104 29000000 0800 d5000000 0800 00000000 0800 00100000 0010 0000 07da0553
        0100000000000000 0100000000000000 2a00 3f00 0800 00000000 0000 0000000000000000 03 0300 0000 de5ce7bd
        01 01 12000000 01 0100000000000000 07000000 ffffffff ff  ffdef86c 10000000 24004000
        0202 15000000 000000000000000000000000000000000000000000
        000000000000000000000000000000000000000000000000 00000000 76f2006b5ebe942f
        0603 1c000000 0100000000000000 ffffffff 00000000 00000000 ffffffffffffffff 04000000 6f626a31
        0100 0222 00000000 0000000000000000 0010000000000000 0000000000000000 00000000 00100000
        feffffffffffffff 0000000000000000 00000000 00000000 fffffdffbdcf013f
        0e fce5c18c ffffffff 707af631";
    assert_eq!(bytes, hex(expected));
    assert_eq!(bytes.len() + 4096, 4096 + 299 + 4, "§5.3");
}

#[test]
fn the_reply_to_the_write() {
    let request = write_request();
    let mut reply = OsdReply::to(&request, b"obj1", Epoch(16), 0);
    reply.bad_replay = Eversion::new(16, 1);
    reply.replay_version = Eversion::new(16, 1);
    reply.user_version = 1;
    let mut bytes = Vec::new();
    let header = Header2 { seq: 1, ack_seq: 1, ..OsdReply::header(1) };
    let tail = frame::message_head_with(&mut bytes, &header, 0, |out| reply.encode_into(out));
    frame::message_tail(&mut bytes, tail, crc32c::SEED);
    let expected = "1102 29000000 0800 94000000 0800 000000000000000000000000 0000 54adcde2
        0100000000000000 0100000000000000 2b00 7f00 0800 00000000 0000 0100000000000000 03 0200 0000 337e4169
        04000000 6f626a31 01 0100000000000000 07000000 ffffffff 2500400000000000 00000000
        0100000000000000 10000000 10000000
        01000000 0222 00000000 0000000000000000 0010000000000000 0000000000000000 00000000 00000000
        00000000 00000000 0100000000000000 10000000 0100000000000000 00
        000000000000000000000000000000000000000000000000
        0e a75b6763 00000000 00000000";
    assert_eq!(bytes, hex(expected));
}

/// The first one of oracle2/split: PG 2.f is merged into 2.7.
#[test]
fn ready_to_merge() {
    let version = Eversion::new(21, 46);
    let told = ReadyToMerge {
        version: 52,
        source: PgId::new(2, 15),
        source_version: version,
        target_version: version,
        last_epoch_started: Epoch(52),
        last_epoch_clean: Epoch(52),
        ready: true,
    };
    let front = "3400000000000000 ffff 0000000000000000 01 0200000000000000 0f000000 ffffffff 2e00000000000000 15000000 \
                 2e00000000000000 15000000 34000000 34000000 01";
    assert_eq!(told.to_front(), hex(front));
}
