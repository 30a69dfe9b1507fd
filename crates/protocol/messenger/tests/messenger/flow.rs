//! Flow control.

use super::common::{Recorder, both, client, message, noise, server, until};
use carmine_messenger::limits::DISPATCH_BATCH;
use carmine_messenger::{Budget, Connection, Message, Permit};
use carmine_reactor::{Bytes, Shard};
use carmine_types::crc32c;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

both!(
    held_messages_stop_the_reader,
    detached_permits_come_back,
    unread_replies_stop_requests,
    hard_limit_closes,
    a_flood_leaves_turns_to_others,
    connections_share_a_budget,
    unread_replies_count_in_the_budget,
    shared_fronts_cost_nothing
);

/// A dispatcher that keeps every permit.
fn hoarder() -> (Rc<Recorder>, Rc<RefCell<Vec<Permit>>>) {
    let held = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&held);
    let recorder =
        Recorder::new(move |_, mut msg: Message| own.borrow_mut().push(msg.take_permit().unwrap()));
    (recorder, held)
}

async fn held_messages_stop_the_reader(shard: Shard) {
    let (recorder, held) = hoarder();
    let server = server(&shard, recorder, |config| {
        config.limits.held_messages = 10;
        config.limits.held_bytes = 20_000;
    })
    .await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    let settle = async || shard.sleep(Duration::from_millis(30)).await;
    for tid in 1..=30 {
        conn.send(message(tid, Vec::new(), noise(tid, 100)));
    }
    until(&shard, || server.recorder.messages.get() == 10).await;
    settle().await;
    assert_eq!(server.recorder.messages.get(), 10, "ten are held");
    held.borrow_mut().truncate(7);
    until(&shard, || server.recorder.messages.get() == 13).await;
    settle().await;
    assert_eq!(server.recorder.messages.get(), 13);
    let accepted = Rc::clone(&server.recorder.accepted.borrow()[0]);
    assert_eq!(accepted.held_bytes(), 1000);
    held.borrow_mut().clear();
    until(&shard, || server.recorder.messages.get() == 23).await;
    held.borrow_mut().clear();
    until(&shard, || server.recorder.messages.get() == 30).await;
    held.borrow_mut().clear();
    // By bytes; one message always gets in, however long.
    for tid in 31..=33 {
        conn.send(message(tid, Vec::new(), noise(tid, 1 << 20)));
    }
    for total in 31..=33 {
        until(&shard, || server.recorder.messages.get() == total).await;
        settle().await;
        assert_eq!(server.recorder.messages.get(), total);
        held.borrow_mut().clear();
    }
    assert_eq!(accepted.held_bytes(), 0);
}

async fn detached_permits_come_back(shard: Shard) {
    let (recorder, held) = hoarder();
    let server = server(&shard, recorder, |config| config.limits.held_messages = 1).await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    conn.send(message(1, Vec::new(), Vec::new()));
    conn.send(message(2, Vec::new(), Vec::new()));
    until(&shard, || server.recorder.messages.get() == 1).await;
    let token = held.borrow_mut().pop().unwrap().detach();
    shard.sleep(Duration::from_millis(20)).await;
    assert_eq!(server.recorder.messages.get(), 1, "a detached permit still counts");
    // As if it had been to another shard.
    let token = std::thread::spawn(move || token).join().unwrap();
    server.recorder.accepted.borrow()[0].release(token);
    until(&shard, || server.recorder.messages.get() == 2).await;
}

/// A peer that sends requests but does not read the replies: the server stops reading its requests.
async fn unread_replies_stop_requests(shard: Shard) {
    const REPLY: usize = 100_000;
    let recorder = Recorder::new(|conn, msg: Message| {
        conn.send(message(msg.header.tid, Vec::new(), noise(1, REPLY)));
    });
    let server = server(&shard, recorder, |config| config.limits.queue_soft_bytes = 1 << 20).await;
    let (hoarder, held) = hoarder();
    let mut config = carmine_messenger::ClientConfig::new(carmine_wire::EntityType::CLIENT, "admin", 1);
    config.limits.held_messages = 1;
    let expect = carmine_wire::EntityType::OSD;
    let conn = carmine_messenger::connect(&shard, server.addr, expect, Rc::new(config), hoarder.clone())
        .await
        .unwrap();
    const REQUESTS: u64 = 400;
    for tid in 1..=REQUESTS {
        conn.send(message(tid, Vec::new(), Vec::new()));
    }
    shard.sleep(Duration::from_millis(100)).await;
    let handled = server.recorder.messages.get();
    // Requests whose replies the sockets hold, those queued when the limit was reached, and one batch.
    assert!(handled < 250, "{handled} requests were taken of a peer that reads no replies");
    let accepted = Rc::clone(&server.recorder.accepted.borrow()[0]);
    assert!(accepted.queued_bytes() < (1 << 20) + 2 * REPLY, "{} bytes are queued", accepted.queued_bytes());
    while hoarder.messages.get() < REQUESTS {
        held.borrow_mut().clear();
        shard.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.recorder.messages.get(), REQUESTS);
}

async fn hard_limit_closes(shard: Shard) {
    let server = server(&shard, Recorder::sink(), |config| config.limits.queue_hard_bytes = 1 << 20).await;
    let _conn = client(&shard, &server, &Recorder::sink()).await;
    until(&shard, || !server.recorder.accepted.borrow().is_empty()).await;
    let accepted = Rc::clone(&server.recorder.accepted.borrow()[0]);
    let sent = Cell::new(0);
    while !accepted.is_closed() {
        accepted.send(message(1, Vec::new(), noise(1, 100_000)));
        sent.set(sent.get() + 1);
    }
    assert_eq!(sent.get(), 11);
    until(&shard, || server.recorder.closed.borrow().len() == 1).await;
    assert!(server.recorder.closed.borrow()[0].starts_with("the peer does not read"));
}

/// Of thousands of small messages that are there at once, each turn of the reactor takes a batch.
async fn a_flood_leaves_turns_to_others(shard: Shard) {
    const MESSAGES: u64 = 5_000;
    let server = server(&shard, Recorder::sink(), |_| ()).await;
    let conn = client(&shard, &server, &Recorder::sink()).await;
    for tid in 1..=MESSAGES {
        conn.send(message(tid, noise(tid, 50), Vec::new()));
    }
    let (mut before, mut most) = (0, 0);
    while before < MESSAGES {
        shard.next_turn().await;
        let now = server.recorder.messages.get();
        (before, most) = (now, most.max(now - before));
    }
    // Between two looks there are two batches if the reader came first in one turn and last in the one before.
    assert!(most < 3 * u64::from(DISPATCH_BATCH), "{most} messages were dispatched in one turn");
}

const MIB: usize = 1 << 20;

/// A server whose connections share a budget.
async fn sharing(
    shard: &Shard,
    recorder: Rc<Recorder>,
    limit_bytes: usize,
) -> (super::common::Server, Rc<Budget>) {
    let budget = Budget::new(limit_bytes);
    let own = Rc::clone(&budget);
    let server = server(shard, recorder, |config| config.budget = Some((own, |_| true))).await;
    (server, budget)
}

async fn connections_share_a_budget(shard: Shard) {
    let (recorder, held) = hoarder();
    let (server, budget) = sharing(&shard, recorder, 4 * MIB).await;
    let first = client(&shard, &server, &Recorder::sink()).await;
    let second = client(&shard, &server, &Recorder::sink()).await;
    let third = client(&shard, &server, &Recorder::sink()).await;
    let settle = async || shard.sleep(Duration::from_millis(50)).await;
    (1..=3).for_each(|tid| first.send(message(tid, Vec::new(), noise(tid, MIB))));
    until(&shard, || server.recorder.messages.get() == 3).await;
    // There is no room for this one, nor for the next of its connection.
    second.send(message(1, Vec::new(), noise(1, 2 * MIB)));
    second.send(message(2, Vec::new(), Vec::new()));
    settle().await;
    assert_eq!((server.recorder.messages.get(), budget.is_short()), (3, true));
    // A small one that is alone gets in all the same, one at a time.
    third.send(message(1, Vec::new(), noise(1, 1000)));
    until(&shard, || server.recorder.messages.get() == 4).await;
    assert_eq!(budget.used_bytes(), 3 * MIB);
    third.send(message(2, Vec::new(), noise(1, MIB)));
    settle().await;
    assert_eq!(server.recorder.messages.get(), 4);
    held.borrow_mut().remove(0);
    until(&shard, || server.recorder.messages.get() == 5).await;
    settle().await;
    assert_eq!((server.recorder.messages.get(), budget.used_bytes()), (5, 4 * MIB));
    // One that waits gives its place up when its connection ends, and what comes behind it gets in.
    server.recorder.accepted.borrow()[2].close("enough");
    until(&shard, || server.recorder.messages.get() == 6).await;
    held.borrow_mut().clear();
    assert_eq!((budget.used_bytes(), budget.is_short()), (0, false));
    // A token whose connection has ended.
    second.send(message(3, Vec::new(), noise(1, MIB)));
    until(&shard, || server.recorder.messages.get() == 7).await;
    let token = held.borrow_mut().pop().unwrap().detach();
    server.recorder.accepted.borrow()[1].close("enough");
    assert_eq!(budget.used_bytes(), MIB);
    token.give_back(&budget);
    assert_eq!(budget.used_bytes(), 0);
}

async fn unread_replies_count_in_the_budget(shard: Shard) {
    let recorder = Recorder::new(|conn, msg: Message| {
        conn.send(message(msg.header.tid, Vec::new(), noise(1, 5 * MIB)));
    });
    let (server, budget) = sharing(&shard, recorder, 8 * MIB).await;
    let (hoarder, held) = hoarder();
    let mut config = carmine_messenger::ClientConfig::new(carmine_wire::EntityType::CLIENT, "admin", 1);
    config.limits.held_messages = 1;
    let expect = carmine_wire::EntityType::OSD;
    let silent = carmine_messenger::connect(&shard, server.addr, expect, Rc::new(config), hoarder.clone())
        .await
        .unwrap();
    (1..=3).for_each(|tid| silent.send(message(tid, Vec::new(), Vec::new())));
    until(&shard, || server.recorder.messages.get() == 3).await;
    shard.sleep(Duration::from_millis(50)).await;
    assert!(budget.used_bytes() > 8 * MIB, "{} bytes", budget.used_bytes());
    let other = client(&shard, &server, &Recorder::sink()).await;
    other.send(message(1, Vec::new(), noise(1, MIB)));
    shard.sleep(Duration::from_millis(50)).await;
    assert_eq!((server.recorder.messages.get(), budget.is_short()), (3, true));
    drop(held);
    server.recorder.accepted.borrow()[0].close("it does not read");
    until(&shard, || server.recorder.messages.get() == 4).await;
    until(&shard, || budget.used_bytes() == 0).await;
}

/// One front goes out many times; it counts for nothing but the pause of requests, and each copy arrives whole.
async fn shared_fronts_cost_nothing(shard: Shard) {
    const COPIES: u64 = 40;
    let (server, budget) = sharing(&shard, Recorder::sink(), MIB).await;
    let seen = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&seen);
    let recorder = Recorder::new(move |_, msg: Message| own.borrow_mut().push(msg.front));
    let _client = client(&shard, &server, &recorder).await;
    until(&shard, || !server.recorder.accepted.borrow().is_empty()).await;
    let conn: Rc<Connection> = Rc::clone(&server.recorder.accepted.borrow()[0]);
    let text = noise(5, 100_000);
    let (shared, crc) = (Bytes::from(text.clone()), crc32c::raw(crc32c::SEED, &text));
    let header = message(0, Vec::new(), Vec::new()).header;
    for copy in 0..COPIES {
        conn.send_around(&header, [&copy.to_le_bytes(), b"end"], &shared, crc);
        conn.send(message(1, b"between".to_vec(), Vec::new()));
    }
    assert!(conn.queued_bytes() > 40 * text.len(), "the pause of requests counts them");
    assert!(budget.used_bytes() < 40 * 600, "{} bytes", budget.used_bytes());
    until(&shard, || recorder.messages.get() == 2 * COPIES).await;
    until(&shard, || conn.queued_bytes() == 0).await;
    assert_eq!(budget.used_bytes(), 0);
    for (copy, pair) in seen.borrow().chunks(2).enumerate() {
        let whole = [&(copy as u64).to_le_bytes()[..], &text, b"end"].concat();
        assert!(pair[0] == whole && pair[1] == b"between", "copy {copy}");
    }
}
