//! The frames of a 4 KiB write: MOSDOp with its data, and the reply. Encode = header, front, checksums (the data itself
//! is not copied: it is sent from where it lies); decode = checksums verified, header and front read into values.
//! Expected: 0.3 to 0.7 µs each way for the request, of which the data's CRC takes a third; half of that for the reply.

use std::hint::black_box;

use carmine_types::{Epoch, Eversion, ObjectId, PgId, UTime, crc32c};
use carmine_wire::Header2;
use carmine_wire::frame::{self, Frame, FrameReader, segment};
use carmine_wire::osd_op::{OpList, OsdOp, OsdReply, OsdRequest, flags};
use criterion::{Criterion, criterion_group, criterion_main};

const BLOCK_BYTES: usize = 4096;
const NAME: &[u8] = b"bench.0000000000000017";

fn request() -> OsdRequest {
    let object = ObjectId::head(1, b"", b"", NAME);
    let pg = PgId::of_hash(1, object.hash, 128);
    let ops = OpList::from_slice(&[OsdOp::write(8192, BLOCK_BYTES as u32)]);
    let mut request = OsdRequest::new(pg, Epoch(16), flags::CLIENT_WRITE, &object, ops);
    request.mtime = UTime { sec: 1_795_000_000, nsec: 1 };
    request
}

fn reply(request: &OsdRequest) -> OsdReply<'_> {
    let mut reply = OsdReply::to(request, NAME, Epoch(16), 0);
    reply.replay_version = Eversion::new(16, 4711);
    reply.user_version = 4711;
    reply
}

/// All of the request's frame but its data, which stays where it is.
fn encode_request(out: &mut Vec<u8>, request: &OsdRequest, data: &[u8]) {
    let header = OsdRequest::header(7);
    let tail = frame::message_head_with(out, &header, data.len(), |out| request.encode_into(out));
    frame::message_tail(out, tail, crc32c::raw(crc32c::SEED, data));
}

fn encode_reply(out: &mut Vec<u8>, reply: &OsdReply<'_>) {
    let tail = frame::message_head_with(out, &OsdReply::header(7), 0, |out| reply.encode_into(out));
    frame::message_tail(out, tail, crc32c::SEED);
}

/// The whole frame as it arrives.
fn received(request: &OsdRequest, data: &[u8]) -> Vec<u8> {
    let (mut out, header) = (Vec::new(), OsdRequest::header(7));
    let tail = frame::message_head_with(&mut out, &header, data.len(), |out| request.encode_into(out));
    out.extend_from_slice(data);
    frame::message_tail(&mut out, tail, crc32c::raw(crc32c::SEED, data));
    out
}

fn parse(bytes: &mut [u8]) -> (Header2, Frame<'_>) {
    let (frame, _) = FrameReader::default().next(bytes).expect("a frame").expect("all of it");
    (Header2::decode(frame.segments[segment::HEADER]).expect("a header"), frame)
}

fn frames(c: &mut Criterion) {
    let data = vec![0xa5u8; BLOCK_BYTES];
    let request = request();
    let reply = reply(&request);
    let mut whole_request = received(&request, &data);
    let mut whole_reply = Vec::new();
    encode_reply(&mut whole_reply, &reply);

    let mut group = c.benchmark_group("frame/4KiB write");
    let mut out = Vec::with_capacity(1024);
    group.bench_function("encode request", |b| {
        b.iter(|| {
            out.clear();
            encode_request(&mut out, black_box(&request), black_box(&data));
            out.len()
        });
    });
    group.bench_function("decode request", |b| {
        b.iter(|| {
            let (header, frame) = parse(black_box(&mut whole_request));
            OsdRequest::decode(&header, frame.segments[segment::FRONT]).expect("a request")
        });
    });
    group.bench_function("encode reply", |b| {
        b.iter(|| {
            out.clear();
            encode_reply(&mut out, black_box(&reply));
            out.len()
        });
    });
    group.bench_function("decode reply", |b| {
        b.iter(|| {
            let (header, frame) = parse(black_box(&mut whole_reply));
            let reply = OsdReply::decode(&header, frame.segments[segment::FRONT]).expect("a reply");
            reply.user_version
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = carmine_benches::criterion();
    targets = frames
}
criterion_main!(benches);
