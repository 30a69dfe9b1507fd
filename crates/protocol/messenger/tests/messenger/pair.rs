//! Client and server against each other.

use super::common::{NONCE, Recorder, both, client, client_config, message, noise, server, until};
use carmine_messenger::{Connection, Message, connect};
use carmine_reactor::{Payload, Shard};
use carmine_types::crc32c;
use carmine_wire::{EntityType, FEATURES};
use std::cell::Cell;
use std::rc::Rc;

both!(who_is_who, assigned_ids, echo_of_all_sizes, both_at_once, known_checksums, finishes_what_was_queued);

async fn who_is_who(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |_| ()).await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    let (peer, own) = (conn.peer(), conn.global_id());
    assert_eq!(
        (peer.entity, peer.gid, peer.addr, peer.features),
        (EntityType::OSD, 3, server.addr, FEATURES)
    );
    assert_eq!(own, 4711);
    until(&shard, || !server.recorder.accepted.borrow().is_empty()).await;
    let accepted = Rc::clone(&server.recorder.accepted.borrow()[0]);
    let peer = accepted.peer();
    assert_eq!((peer.entity, peer.gid, peer.name.as_str()), (EntityType::CLIENT, 4711, "admin"));
    assert_eq!((peer.addr.nonce, peer.addr.kind), (77, 3));
    conn.close("enough");
    until(&shard, || server.recorder.closed.borrow().len() == 1).await;
    assert_eq!(server.recorder.closed.borrow()[0], "the peer closed the connection");
    assert_eq!(conn.close_reason().as_deref(), Some("enough"));
}

async fn assigned_ids(shard: Shard) {
    let next = Cell::new(4096);
    let server = server(&shard, Recorder::sink(), |config| {
        config.entity = EntityType::MON;
        config.global_ids = carmine_messenger::GlobalIds::Assign(Box::new(move |claim| {
            assert_eq!((claim.entity, claim.name.as_str()), (EntityType::CLIENT, "admin"));
            next.set(next.get() + 1);
            Some(if claim.gid == 0 { next.get() } else { claim.gid })
        }));
    })
    .await;
    let config = client_config();
    config.gid.set(0);
    let dial = || connect(&shard, server.addr, EntityType::MON, Rc::clone(&config), Recorder::sink());
    let first = dial().await.unwrap();
    assert_eq!((first.global_id(), config.gid.get()), (4097, 4097));
    let again = dial().await.unwrap();
    assert_eq!(again.global_id(), 4097, "a process keeps its id");
    assert_ne!(first.id(), again.id());
}

/// Lengths around every limit of the receiving code, and up to 8 MiB.
const SIZES: [usize; 20] = [
    0,
    1,
    511,
    512,
    1023,
    1024,
    1025,
    4095,
    4096,
    4097,
    16_000,
    16_384,
    65_536,
    262_000,
    262_144,
    262_145,
    1_048_576,
    1_048_577,
    3_000_001,
    8 << 20,
];

/// Sends messages of all sizes in a mixed order, and wants them back unharmed and in order.
async fn echo_of_all_sizes(shard: Shard) {
    let server = server(&shard, Recorder::echo(), |_| ()).await;
    let sent: Vec<(Vec<u8>, Vec<u8>)> = (0..60_u64)
        .map(|n| {
            let data = SIZES[(n as usize * 7) % SIZES.len()];
            (noise(n, (n as usize * 37) % 700), noise(n + 1000, data))
        })
        .collect();
    let expected = sent.clone();
    let (next, done) = (Cell::new(0), Rc::new(Cell::new(false)));
    let set = Rc::clone(&done);
    let recorder = Recorder::new(move |_, msg: Message| {
        let n = next.get();
        let (front, data) = &expected[n];
        assert_eq!((msg.header.tid, msg.header.seq), (n as u64, n as u64 + 1));
        assert_eq!(msg.front, *front);
        assert!(msg.data.to_vec() == *data, "message {n}");
        let crc = (!data.is_empty()).then(|| crc32c::raw(crc32c::SEED, data));
        assert_eq!(msg.data.known_crc(), crc);
        assert!(
            msg.data
                .iter()
                .all(|chunk| chunk.len() <= 1 << 20 && (chunk.as_ptr() as usize).is_multiple_of(4096))
        );
        next.set(n + 1);
        set.set(n + 1 == expected.len());
    });
    let conn = client(&shard, &server, &recorder).await;
    for (tid, (front, data)) in sent.into_iter().enumerate() {
        conn.send(message(tid as u64, front, data));
        // The limit of what may be queued is the sender's to keep.
        until(&shard, || conn.queued_bytes() < 16 << 20).await;
    }
    until(&shard, || done.get()).await;
    assert!(recorder.closed.borrow().is_empty());
}

/// Thousands of small messages each way at the same time.
async fn both_at_once(shard: Shard) {
    const EACH_WAY: u64 = 3000;
    let counting = || {
        let last = Cell::new(0);
        Recorder::new(move |_: &Rc<Connection>, msg: Message| {
            last.set(last.get() + 1);
            assert_eq!(msg.header.tid, last.get());
            assert_eq!(msg.data.len() as u64, msg.header.tid % 5000);
        })
    };
    let server = server(&shard, counting(), |_| ()).await;
    let recorder = counting();
    let conn = client(&shard, &server, &recorder).await;
    until(&shard, || !server.recorder.accepted.borrow().is_empty()).await;
    let accepted = Rc::clone(&server.recorder.accepted.borrow()[0]);
    for tid in 1..=EACH_WAY {
        let data = noise(tid, tid as usize % 5000);
        conn.send(message(tid, noise(tid, 200), data.clone()));
        accepted.send(message(tid, Vec::new(), data));
        if tid % 64 == 0 {
            shard.yield_now().await;
        }
    }
    until(&shard, || recorder.messages.get() == EACH_WAY && server.recorder.messages.get() == EACH_WAY).await;
    let stats = conn.stats();
    assert_eq!((stats.messages_sent, stats.messages_received), (EACH_WAY, EACH_WAY));
    assert!(stats.sends < EACH_WAY / 4, "no coalescing: {} sends for {EACH_WAY} messages", stats.sends);
    assert!(stats.receives < EACH_WAY, "{} receives", stats.receives);
    assert_eq!(conn.queued_bytes(), 0);
}

/// A checksum given by the sender is sent as it is, and a wrong one is noticed by the receiver.
async fn known_checksums(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |_| ()).await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    let data = Payload::from(noise(1, 5000));
    let crc = data.crc32c(crc32c::SEED);
    conn.send(message(1, Vec::new(), Vec::new()).with_data(data.clone().with_crc(crc)));
    until(&shard, || server.recorder.messages.get() == 1).await;
    conn.send(message(2, Vec::new(), Vec::new()).with_data(data.with_crc(crc ^ 1)));
    until(&shard, || server.recorder.closed.borrow().len() == 1).await;
    assert_eq!(server.recorder.messages.get(), 1);
    let reason = server.recorder.closed.borrow()[0].clone();
    assert!(reason.contains("data: checksum"), "{reason}");
    until(&shard, || conn.is_closed()).await;
}

async fn finishes_what_was_queued(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |_| ()).await;
    let recorder = Recorder::sink();
    let conn = client(&shard, &server, &recorder).await;
    for tid in 1..=40 {
        conn.send(message(tid, Vec::new(), noise(tid, 100_000)));
    }
    conn.finish();
    until(&shard, || recorder.closed.borrow().len() == 1).await;
    assert_eq!(recorder.closed.borrow()[0], "finished");
    until(&shard, || server.recorder.closed.borrow().len() == 1).await;
    assert_eq!(server.recorder.messages.get(), 40);
    // Sending on a closed connection is not an error: nobody hears it.
    conn.send(message(41, Vec::new(), Vec::new()));
    assert_eq!(conn.queued_bytes(), 0);
    assert_eq!(server.addr.nonce, NONCE);
}
