//! Flow control.

use super::common::{Recorder, both, client, message, noise, server, until};
use carmine_messenger::limits::DISPATCH_BATCH;
use carmine_messenger::{Message, Permit};
use carmine_reactor::Shard;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

both!(
    held_messages_stop_the_reader,
    detached_permits_come_back,
    unread_replies_stop_requests,
    hard_limit_closes,
    a_flood_leaves_turns_to_others
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
    // What the sockets hold, what was queued when the limit was met, and one batch.
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
