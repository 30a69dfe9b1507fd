//! Replays the bytes of real Ceph 16.2.15 clients.

use super::common::{Recorder, both, server, until};
use super::raw::Raw;
use carmine_messenger::{GlobalIds, Message};
use carmine_reactor::Shard;
use carmine_types::crc32c;
use carmine_wire::frame::Tag;
use carmine_wire::osd_op::{OsdOp, OsdRequest};
use carmine_wire::{EntityType, kinds};
use std::cell::RefCell;
use std::rc::Rc;

both!(session_with_a_mon, session_with_an_osd, librados_session);

/// The bytes of a capture file, segment by segment.
fn segments(text: &str) -> Vec<Vec<u8>> {
    let digit = |d: u8| (d as char).to_digit(16).unwrap() as u8;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect())
        .collect()
}

/// Plays a capture to a server; the messages that it dispatched, and the server's frames.
async fn play(shard: &Shard, entity: EntityType, text: &str, messages: usize) -> (Vec<Message>, Vec<Tag>) {
    let got = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&got);
    let recorder = Recorder::new(move |_, msg| own.borrow_mut().push(msg));
    let server = server(shard, recorder, |config| {
        config.entity = entity;
        config.global_ids =
            GlobalIds::Assign(Box::new(|claim| Some(if claim.gid == 0 { 4096 } else { claim.gid })));
    })
    .await;
    let mut raw = Raw::connect(shard, server.addr).await;
    for segment in segments(text) {
        raw.send(&segment).await;
    }
    until(shard, || got.borrow().len() >= messages).await;
    assert_eq!(server.recorder.closed.borrow().len(), 0);
    raw.banner().await.unwrap();
    let mut tags = Vec::new();
    while tags.last() != Some(&Tag::ServerIdent) {
        tags.push(raw.frame().await.unwrap().0);
    }
    (got.take(), tags)
}

const HANDSHAKE: [Tag; 4] = [Tag::Hello, Tag::AuthDone, Tag::AuthSignature, Tag::ServerIdent];

async fn session_with_a_mon(shard: Shard) {
    let text = include_str!("../data/rados-put-mon.hex");
    let (messages, tags) = play(&shard, EntityType::MON, text, 4).await;
    assert_eq!(tags, HANDSHAKE);
    let kinds: Vec<u16> = messages.iter().map(|msg| msg.header.kind).collect();
    let subscribe = kinds::MON_SUBSCRIBE;
    assert_eq!(kinds, [kinds::MON_GET_MAP, subscribe, subscribe, subscribe]);
    let first: carmine_wire::mon_msg::Subscribe = messages[1].decode().unwrap();
    assert_eq!(first.what[0].what, "config");
}

fn requests(messages: &[Message]) -> Vec<OsdRequest> {
    messages.iter().map(|msg| OsdRequest::decode(&msg.header, &msg.front).unwrap()).collect()
}

async fn session_with_an_osd(shard: Shard) {
    let text = include_str!("../data/rados-put-osd.hex");
    let (messages, tags) = play(&shard, EntityType::OSD, text, 1).await;
    assert_eq!(tags, HANDSHAKE);
    let requests = requests(&messages);
    assert_eq!(requests[0].ops[..], [OsdOp::write_full(4096)]);
    let data = &messages[0].data;
    assert_eq!((data.len(), data.known_crc()), (4096, Some(crc32c::raw(crc32c::SEED, &data.to_vec()))));
    assert_eq!(messages[0].data.chunks().len(), 1);
}

async fn librados_session(shard: Shard) {
    let text = include_str!("../data/librados-osd.hex");
    let (messages, _) = play(&shard, EntityType::OSD, text, 12).await;
    let requests = requests(&messages);
    let ops: Vec<u16> = requests.iter().map(|request| request.ops[0].code).collect();
    assert_eq!((ops.len(), ops[0]), (12, carmine_wire::osd_op::ops::WRITE_FULL));
    let seqs: Vec<u64> = messages.iter().map(|msg| msg.header.seq).collect();
    assert_eq!(seqs, (1..=12).collect::<Vec<_>>());
}
