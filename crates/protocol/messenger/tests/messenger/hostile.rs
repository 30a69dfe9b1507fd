//! Peers that break the rules: each loses its connection, none harms the server.

use super::common::{Recorder, Server, both, client, message, noise, server, until};
use super::raw::{Raw, banner, ident, identity};
use carmine_messenger::{Connection, Gate};
use carmine_reactor::{Group, Shard};
use carmine_types::crc32c;
use carmine_wire::frame::{self, Preamble, Tag};
use carmine_wire::handshake::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, Hello, Keepalive2, Keepalive2Ack, MissingFeatures,
    Reconnect, Reset, ServerIdent, Signature,
};
use carmine_wire::private::VERSION;
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType, Header2, kinds};
use std::rc::Rc;
use std::time::Duration;

both!(
    v1_is_refused,
    cephx_falls_back_to_none,
    reconnect_is_reset,
    features_are_checked,
    entities_are_checked,
    signatures_are_checked,
    keepalives_are_answered,
    handshake_has_a_limit,
    silence_has_a_limit,
    connections_have_a_limit,
    silent_connections_give_way,
    half_banners_give_way,
    half_messages_give_way,
    nobody_gives_way_who_must_stay,
    byte_by_byte,
    flipped_bits,
    garbage,
    wrong_frames_in_a_session,
    old_messages_are_dropped,
    other_versions_are_refused,
);

async fn quiet(shard: &Shard) -> Server {
    server(shard, Recorder::sink(), |_| ()).await
}

/// The server still works.
async fn alive(shard: &Shard, server: &Server) {
    let before = server.recorder.messages.get();
    let conn = client(shard, server, &Recorder::sink()).await;
    conn.send(message(1, Vec::new(), Vec::new()));
    until(shard, || server.recorder.messages.get() > before).await;
    conn.close("done");
}

async fn v1_is_refused(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.send(b"ceph v027").await;
    raw.drain().await;
    alive(&shard, &server).await;
}

async fn cephx_falls_back_to_none(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.greet(EntityType::CLIENT).await;
    raw.control(&AuthRequest { method: 2, modes: vec![2, 1], payload: vec![1, 2, 3] }).await;
    let bad: AuthBadMethod = raw.expect().await;
    assert_eq!((bad.method, bad.result), (2, -95));
    assert_eq!((bad.allowed_methods, bad.allowed_modes), (vec![1], vec![1]));
    // Secure mode only: refused as well.
    raw.control(&AuthRequest { modes: vec![2], ..AuthRequest::none(&identity()) }).await;
    raw.expect::<AuthBadMethod>().await;
    raw.control(&AuthRequest::none(&identity())).await;
    assert_eq!(raw.expect::<AuthDone>().await.global_id, 4711);
    raw.expect::<Signature>().await;
    raw.control(&Signature::default()).await;
    raw.control(&ident(server.addr)).await;
    raw.expect::<ServerIdent>().await;
    // Not for ever.
    let mut stubborn = Raw::connect(&shard, server.addr).await;
    stubborn.greet(EntityType::CLIENT).await;
    for _ in 0..100 {
        stubborn.control(&AuthRequest { method: 2, modes: vec![1], payload: Vec::new() }).await;
    }
    stubborn.drain().await;
}

async fn reconnect_is_reset(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.authenticate().await;
    let addrs = EntityAddrVec::default();
    let reconnect =
        Reconnect { addrs, client_cookie: 1, server_cookie: 2, global_seq: 3, connect_seq: 4, in_seq: 5 };
    raw.control(&reconnect).await;
    assert_eq!(raw.expect::<Reset>().await, Reset { full: true });
    raw.control(&ident(server.addr)).await;
    let ident: ServerIdent = raw.expect().await;
    assert_eq!((ident.flags, ident.cookie), (1, 0), "sessions are lossy");
    assert_eq!(ident.addrs, server.addr.into());
}

async fn features_are_checked(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.authenticate().await;
    raw.control(&ClientIdent { supported: 1 << 57 | 1 << 56 | 1 << 21, ..ident(server.addr) }).await;
    assert_eq!(raw.expect::<MissingFeatures>().await, MissingFeatures(1 << 59));
    raw.drain().await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.authenticate().await;
    // Bit 62 is none of ours.
    raw.control(&ClientIdent { required: 1 << 62, ..ident(server.addr) }).await;
    assert_eq!(raw.expect::<MissingFeatures>().await, MissingFeatures(1 << 62));
    raw.drain().await;
    assert!(server.recorder.accepted.borrow().is_empty());
}

async fn entities_are_checked(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |config| config.accept = vec![EntityType::CLIENT]).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.send(&banner()).await;
    raw.control(&Hello { entity: EntityType::MDS, peer_addr: EntityAddr::default() }).await;
    raw.drain().await;
    alive(&shard, &server).await;
}

async fn signatures_are_checked(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.greet(EntityType::CLIENT).await;
    raw.control(&AuthRequest::none(&identity())).await;
    raw.control(&Signature([1; 32])).await;
    raw.control(&ident(server.addr)).await;
    raw.drain().await;
    assert!(server.recorder.accepted.borrow().is_empty());
}

async fn keepalives_are_answered(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.handshake(server.addr).await;
    let stamp = carmine_types::UTime { sec: 1_700_000_000, nsec: 17 };
    raw.control(&Keepalive2(stamp)).await;
    assert_eq!(raw.expect::<Keepalive2Ack>().await, Keepalive2Ack(stamp));
    // And asked: the answer counts as a sign of life.
    let conn = client(&shard, &server, &Recorder::sink()).await;
    shard.sleep(Duration::from_millis(50)).await;
    assert!(conn.silence() >= Duration::from_millis(40));
    conn.keepalive();
    until(&shard, || conn.silence() < Duration::from_millis(20)).await;
}

async fn handshake_has_a_limit(shard: Shard) {
    let server =
        server(&shard, Recorder::sink(), |config| config.limits.handshake = Duration::from_millis(100)).await;
    let started = shard.now_ns();
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.send(&banner()).await;
    raw.drain().await;
    let took = shard.now_ns() - started;
    assert!((90_000_000..30_000_000_000).contains(&took), "{took} ns");
    // Whoever is through is left alone.
    let conn = client(&shard, &server, &Recorder::sink()).await;
    shard.sleep(Duration::from_millis(250)).await;
    assert!(!conn.is_closed());
}

async fn silence_has_a_limit(shard: Shard) {
    let limit = Duration::from_millis(200);
    let server = server(&shard, Recorder::sink(), |config| config.limits.idle = Some(limit)).await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    for _ in 0..8 {
        shard.sleep(limit / 4).await;
        conn.keepalive();
    }
    assert!(!conn.is_closed(), "it was not silent");
    until(&shard, || conn.is_closed()).await;
    assert!(server.recorder.closed.borrow()[0].starts_with("idle"));
}

/// Until the server hangs up; some changes do no harm, and it keeps the connection.
async fn settle(shard: &Shard, raw: &mut Raw) {
    let _ = carmine_messenger::with_timeout(shard, Duration::from_millis(20), raw.drain()).await;
}

/// A correct session from banner to messages, as bytes.
async fn session_bytes(addr: EntityAddr) -> Vec<u8> {
    use carmine_wire::handshake::Control;
    let mut bytes = banner();
    Hello { entity: EntityType::CLIENT, peer_addr: addr }.frame_into(&mut bytes);
    AuthRequest::none(&identity()).frame_into(&mut bytes);
    Signature::default().frame_into(&mut bytes);
    ident(addr).frame_into(&mut bytes);
    for seq in 1..=3 {
        append_message(&mut bytes, seq, &noise(seq, 60), &noise(seq, 700));
    }
    bytes
}

fn append_message(bytes: &mut Vec<u8>, seq: u64, front: &[u8], data: &[u8]) {
    let header = Header2 { seq, ..Header2::new(0x8fff, VERSION, VERSION) };
    let tail = frame::message_head(bytes, &header, front, data.len());
    bytes.extend_from_slice(data);
    frame::message_tail(bytes, tail, crc32c::raw(crc32c::SEED, data));
}

async fn connections_have_a_limit(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |config| {
        config.gate = Gate::new(2);
        config.limits.patience = Duration::from_secs(60);
    });
    let server = server.await;
    let healthy = client(&shard, &server, &Recorder::sink()).await;
    // One that says nothing takes a place as well, and the next one is sent away at once.
    let mut silent = Raw::connect(&shard, server.addr).await;
    assert!(silent.banner().await.is_some(), "it was let in");
    let mut third = Raw::connect(&shard, server.addr).await;
    assert_eq!(third.drain().await, b"");
    healthy.send(message(1, Vec::new(), Vec::new()));
    until(&shard, || server.recorder.messages.get() == 1).await;
    // Places come back: of those that were refused, that failed, and that ended.
    silent.send(b"garbage, garbage, garbage, garbage").await;
    silent.drain().await;
    for _ in 0..5 {
        alive(&shard, &server).await;
        until(&shard, || {
            server.recorder.closed.borrow().len() == server.recorder.accepted.borrow().len() - 1
        })
        .await;
    }
}

const PLACES: usize = 8;
const PATIENCE: Duration = Duration::from_millis(200);

/// A server with few places, and a client that is never silent for long.
async fn crowded(shard: &Shard) -> (Server, Rc<Connection>) {
    let server = server(shard, Recorder::sink(), |config| {
        config.gate = Gate::new(PLACES);
        config.limits.patience = PATIENCE;
    });
    let server = server.await;
    let healthy = client(shard, &server, &Recorder::sink()).await;
    let (conn, own) = (Rc::downgrade(&healthy), shard.clone());
    shard.spawn(Group::Client, "talk", async move {
        while let Some(conn) = conn.upgrade().filter(|conn| !conn.is_closed()) {
            conn.send(message(1, Vec::new(), Vec::new()));
            own.sleep(PATIENCE / 10).await;
        }
    });
    (server, healthy)
}

/// Newcomers are let in, and the client that talks stays.
async fn newcomers_get_in(shard: &Shard, server: &Server, healthy: &Connection) {
    shard.sleep(PATIENCE * 2).await;
    for _ in 0..3 {
        alive(shard, server).await;
    }
    assert!(!healthy.is_closed(), "{:?}", healthy.close_reason());
}

async fn silent_connections_give_way(shard: Shard) {
    let (server, healthy) = crowded(&shard).await;
    let mut silent = Vec::new();
    for _ in 1..PLACES {
        let mut raw = Raw::connect(&shard, server.addr).await;
        raw.handshake(server.addr).await;
        silent.push(raw);
    }
    newcomers_get_in(&shard, &server, &healthy).await;
    assert!(server.recorder.closed.borrow().iter().any(|why| why.contains("gave way")));
}

async fn half_banners_give_way(shard: Shard) {
    let (server, healthy) = crowded(&shard).await;
    let mut half = Vec::new();
    // As many as there are, and more than that.
    for _ in 0..3 * PLACES {
        let raw = Raw::connect(&shard, server.addr).await;
        raw.send(&banner()[..5]).await;
        half.push(raw);
    }
    newcomers_get_in(&shard, &server, &healthy).await;
}

async fn half_messages_give_way(shard: Shard) {
    let (server, healthy) = crowded(&shard).await;
    let mut half = Vec::new();
    for _ in 1..PLACES {
        let mut raw = Raw::connect(&shard, server.addr).await;
        raw.handshake(server.addr).await;
        raw.send(&Preamble::new(Tag::Message, [41, 2_000, 0, 8 << 20]).encode()).await;
        raw.send(&[7; 1_000]).await;
        half.push(raw);
    }
    newcomers_get_in(&shard, &server, &healthy).await;
}

/// A dispatcher may keep a connection whatever happens; for the others it is as ever.
async fn nobody_gives_way_who_must_stay(shard: Shard) {
    let recorder = Recorder::new(|conn, _| conn.keep_place());
    let server = server(&shard, recorder, |config| {
        config.gate = Gate::new(1);
        config.limits.patience = PATIENCE;
    });
    let server = server.await;
    let kept = client(&shard, &server, &Recorder::sink()).await;
    kept.send(message(1, Vec::new(), Vec::new()));
    until(&shard, || server.recorder.messages.get() == 1).await;
    shard.sleep(PATIENCE * 2).await;
    let mut next = Raw::connect(&shard, server.addr).await;
    assert_eq!(next.drain().await, b"", "it was let in");
    assert!(!kept.is_closed());
}

async fn byte_by_byte(shard: Shard) {
    let server = quiet(&shard).await;
    let raw = Raw::connect(&shard, server.addr).await;
    for byte in session_bytes(server.addr).await {
        raw.send(&[byte]).await;
    }
    until(&shard, || server.recorder.messages.get() == 3).await;
}

/// One wrong bit anywhere in a session ends it: no message with a wrong bit is ever dispatched.
async fn flipped_bits(shard: Shard) {
    let server = server(
        &shard,
        Recorder::new(|_, msg| {
            let seq = msg.header.seq;
            assert_eq!(msg.front, noise(seq, 60));
            assert_eq!(msg.data.to_vec(), noise(seq, 700));
        }),
        |config| config.limits.handshake = Duration::from_millis(500),
    )
    .await;
    let good = session_bytes(server.addr).await;
    for at in (0..good.len()).step_by(13) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let mut raw = Raw::connect(&shard, server.addr).await;
        raw.send(&bad).await;
        settle(&shard, &mut raw).await;
    }
    alive_with(&shard, &server).await;
}

/// Like [`alive`], with messages that the recorder of [`flipped_bits`] accepts.
async fn alive_with(shard: &Shard, server: &Server) {
    let before = server.recorder.messages.get();
    let raw = Raw::connect(shard, server.addr).await;
    raw.send(&session_bytes(server.addr).await).await;
    until(shard, || server.recorder.messages.get() == before + 3).await;
}

/// Random bytes from the start, after the banner, and after the handshake; also behind preambles with a right checksum.
async fn garbage(shard: Shard) {
    let server =
        server(&shard, Recorder::sink(), |config| config.limits.handshake = Duration::from_millis(500)).await;
    for round in 0..60_u64 {
        let mut raw = Raw::connect(&shard, server.addr).await;
        match round % 3 {
            0 => {}
            1 => drop(raw.send(&banner()).await),
            _ => drop(raw.handshake(server.addr).await),
        }
        let mut bytes = noise(round, 1 + (round as usize * 977) % 20_000);
        if round % 2 == 0 {
            let random = noise(round + 500, 16);
            let len = |at: usize| u32::from_le_bytes(random[at..at + 4].try_into().unwrap());
            let tag = Tag::from_byte(1 + random[0] % 20).unwrap();
            let mut forged = Preamble::new(tag, [len(0) % 64, len(4), 0, len(8)]).encode().to_vec();
            forged.append(&mut bytes);
            bytes = forged;
        }
        raw.send(&bytes).await;
        settle(&shard, &mut raw).await;
    }
    alive(&shard, &server).await;
}

async fn wrong_frames_in_a_session(shard: Shard) {
    let server = quiet(&shard).await;
    let reset = |bytes: &mut Vec<u8>| frame::control(bytes, Tag::SessionReset, |e| e.u8(1));
    let huge = |bytes: &mut Vec<u8>| bytes.extend(Preamble::new(Tag::Message, [41, 17 << 20, 0, 0]).encode());
    let middle = |bytes: &mut Vec<u8>| bytes.extend(Preamble::new(Tag::Message, [41, 1, 1, 0]).encode());
    let long_control = |bytes: &mut Vec<u8>| frame::control(bytes, Tag::Keepalive2, |e| e.zeros(100_000));
    let made = |make: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        make(&mut bytes);
        bytes
    };
    let cases = [
        (made(&reset), "SessionReset frame in an open session"),
        (made(&huge), "over the limit"),
        (made(&middle), "middle segment of 1 bytes"),
        (made(&long_control), "Keepalive2 frame of 100004 bytes"),
    ];
    for (n, (bytes, reason)) in cases.iter().enumerate() {
        let mut raw = Raw::connect(&shard, server.addr).await;
        raw.handshake(server.addr).await;
        raw.send(bytes).await;
        raw.drain().await;
        until(&shard, || server.recorder.closed.borrow().len() == n + 1).await;
        let closed = server.recorder.closed.borrow()[n].clone();
        assert!(closed.contains(reason), "{closed}");
    }
}

/// A peer with another version of private messages is told ours, and its connection ends with both in the reason. A notice
/// is not answered.
async fn other_versions_are_refused(shard: Shard) {
    let server = quiet(&shard).await;
    let other = VERSION + 1;
    for (n, kind) in [0x8fff, kinds::VERSION_NOTICE].into_iter().enumerate() {
        let mut raw = Raw::connect(&shard, server.addr).await;
        raw.handshake(server.addr).await;
        let mut bytes = Vec::new();
        let header = Header2 { seq: 1, ..Header2::new(kind, other, other) };
        let tail = frame::message_head(&mut bytes, &header, b"", 0);
        frame::message_tail(&mut bytes, tail, crc32c::SEED);
        raw.send(&bytes).await;
        if kind != kinds::VERSION_NOTICE {
            let (tag, segments) = raw.frame().await.expect("a notice");
            let notice = Header2::decode(&segments[0]).unwrap();
            assert_eq!((tag, notice.kind, notice.version), (Tag::Message, kinds::VERSION_NOTICE, VERSION));
        }
        assert_eq!(raw.drain().await, b"");
        until(&shard, || server.recorder.closed.borrow().len() == n + 1).await;
        let closed = server.recorder.closed.borrow()[n].clone();
        assert!(
            closed.contains(&format!("version {other}")) && closed.contains(&format!("version {VERSION}")),
            "{closed}"
        );
    }
    assert_eq!(server.recorder.messages.get(), 0);
}

/// A repeated sequence number is not dispatched twice.
async fn old_messages_are_dropped(shard: Shard) {
    let server = quiet(&shard).await;
    let mut raw = Raw::connect(&shard, server.addr).await;
    raw.handshake(server.addr).await;
    let mut bytes = Vec::new();
    for seq in [1, 2, 2, 1, 3] {
        append_message(&mut bytes, seq, b"front", b"");
    }
    // An aborted frame in between does not count.
    let at = bytes.len();
    append_message(&mut bytes, 4, b"front", b"");
    let status = bytes.len() - frame::EPILOGUE_BYTES;
    bytes[status] = 1;
    assert!(at < status);
    append_message(&mut bytes, 4, b"front", b"");
    raw.send(&bytes).await;
    until(&shard, || server.recorder.messages.get() == 4).await;
    shard.sleep(Duration::from_millis(20)).await;
    assert_eq!(server.recorder.messages.get(), 4);
}
