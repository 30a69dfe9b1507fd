use std::sync::Arc;
use std::time::Duration;

use carmine_reactor::ShardId;
use carmine_types::ObjectId;
use carmine_wire::EntityAddr;
use carmine_wire::osd_op::NotifyDone;

use super::notices::{Notices, Room, Text};
use super::{NOTIFICATIONS_MAX, Notification, Registered, WatcherId, Watches};
use crate::op::Origin;

const SECOND: u64 = 1_000_000_000;

fn oid(name: &str) -> Arc<ObjectId> {
    Arc::new(ObjectId::head(1, b"", b"", name.as_bytes()))
}

fn id(gid: u64) -> WatcherId {
    WatcherId { gid, cookie: gid * 10 }
}

fn origin(conn: u64) -> Option<Origin> {
    Some(Origin { home: ShardId(0), conn })
}

fn notification(number: u64, watchers: &[u64]) -> Notification {
    let timeout = Duration::from_secs(5);
    Notification {
        id: number,
        notifier: 99,
        cookie: 7,
        payload: b"news".to_vec(),
        timeout,
        watchers: watchers.iter().map(|gid| id(*gid)).collect(),
    }
}

fn text() -> Option<Text> {
    Notices::default().store_text(b"news".to_vec())
}

fn room() -> Option<Room> {
    Notices::default().room(5)
}

fn watch(watches: &mut Watches, gid: u64) -> bool {
    watches.connect(&oid("o"), id(gid), registered(gid as u32, 30), origin(gid), 0)
}

/// A watcher whose address has this nonce, with so many seconds.
fn registered(nonce: u32, seconds: u64) -> Registered {
    let addr = EntityAddr { nonce, ..EntityAddr::parse_any("10.0.0.1").expect("an address") };
    Registered { timeout: Duration::from_secs(seconds), addr }
}

#[test]
fn ids_and_values_round_trip() {
    assert_eq!(WatcherId::of_key(&id(3).key()), Some(id(3)));
    assert_eq!(WatcherId::of_key(b"short"), None);
    let registered = Registered { timeout: Duration::from_secs(9), ..Registered::default() };
    assert_eq!(Registered::decode(&registered.encode()), registered);
    assert_eq!(Registered::decode(b"?"), Registered::default());
}

#[test]
fn a_notification_ends_with_the_last_answer() {
    let mut watches = Watches::default();
    assert!(watch(&mut watches, 1) && watch(&mut watches, 2));
    assert!(!watch(&mut watches, 1), "a ping is over the same connection");
    let (sends, ended) = watches.notify(&oid("o"), notification(5, &[1, 2]), text(), origin(9), 3, 0);
    let cookies: Vec<u64> = sends.to.iter().map(|(_, cookie)| *cookie).collect();
    assert_eq!(sends.text.bytes(), b"news");
    assert_eq!((cookies, ended.len()), (vec![10, 20], 0));
    assert!(watches.answer(5, id(2), b"two".to_vec(), room()).is_empty());
    assert!(watches.answer(5, id(2), b"again".to_vec(), room()).is_empty());
    assert!(watches.answer(4, id(1), b"another".to_vec(), room()).is_empty());
    let ended = watches.answer(5, id(1), b"one".to_vec(), room());
    let acked = vec![((1, 10), b"one".to_vec()), ((2, 20), b"two".to_vec())];
    assert_eq!(ended[0].done, NotifyDone { acked, missed: vec![] });
    assert_eq!((ended[0].to, ended[0].cookie, ended[0].message.version), (origin(9), 7, 3));
}

#[test]
fn nobody_watches_so_it_is_over_at_once() {
    let mut watches = Watches::default();
    let (sends, ended) = watches.notify(&oid("o"), notification(5, &[]), text(), origin(9), 3, 0);
    assert_eq!((sends.to.len(), ended.len()), (0, 1));
    assert!(watches.is_idle());
}

#[test]
fn one_that_comes_back_is_told_what_it_missed() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    watches.disconnect(Origin { home: ShardId(0), conn: 1 });
    let (sends, ended) = watches.notify(&oid("o"), notification(5, &[1]), text(), origin(9), 3, 0);
    assert_eq!((sends.to.len(), ended.len()), (0, 0));
    assert!(watches.connect(&oid("o"), id(1), registered(1, 30), origin(4), SECOND));
    assert_eq!(watches.unanswered(&oid("o"), id(1), origin(4).unwrap())[0].to, [(origin(4).unwrap(), 10)]);
    assert!(watches.unanswered(&oid("other"), id(1), origin(4).unwrap()).is_empty());
    assert_eq!(watches.answer(5, id(1), vec![], room()).len(), 1);
}

#[test]
fn one_that_does_not_come_back_to_a_new_primary_loses_its_watch() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    watches.add_registered(
        &oid("o"),
        vec![(id(1), registered(1, 1)), (id(2), registered(2, 30))],
        5 * SECOND,
    );
    assert_eq!(watches.silent(30 * SECOND), [(oid("o"), id(1), origin(1))], "it was known: nothing is new");
    assert_eq!(watches.silent(35 * SECOND), [(oid("o"), id(2), None)]);
}

#[test]
fn time_ends_notifications_and_watches() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    watches.notify(&oid("o"), notification(5, &[1]), text(), origin(9), 3, 0);
    assert!(watches.expire(4 * SECOND).is_empty());
    assert_eq!(watches.expire(5 * SECOND)[0].done.missed, [(1, 10)]);
    assert_eq!(watches.silent(29 * SECOND), []);
    assert_eq!(watches.silent(30 * SECOND), [(oid("o"), id(1), origin(1))]);
    assert_eq!(watches.silent(31 * SECOND), [], "it is being removed");
    watches.remove(&oid("o"), id(1));
    assert!(watches.is_idle());
}

#[test]
fn a_watcher_that_is_kept_out_is_over_at_once() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    watches.add_registered(&oid("o"), vec![(id(2), registered(2, 30))], 0);
    watches.end(|addr| addr.nonce == 2);
    assert_eq!(watches.silent(SECOND), [(oid("o"), id(2), None)]);
    watches.end(|addr| addr.nonce == 1);
    assert_eq!(watches.silent(SECOND), [(oid("o"), id(1), origin(1))]);
}

#[test]
fn a_watcher_that_goes_is_not_waited_for() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    watch(&mut watches, 2);
    watches.notify(&oid("o"), notification(5, &[1, 2]), text(), origin(9), 3, 0);
    assert!(watches.remove(&oid("o"), id(1)).is_empty());
    let (watchers, ended) = watches.remove_object(&oid("o"));
    assert_eq!((watchers, ended.len()), (vec![(id(2), origin(2))], 1));
}

#[test]
fn notifications_are_bounded() {
    let mut watches = Watches::default();
    watch(&mut watches, 1);
    for number in 0..NOTIFICATIONS_MAX as u64 {
        assert!(watches.notify(&oid("o"), notification(number, &[1]), text(), None, 3, 0).1.is_empty());
    }
    let (sends, ended) = watches.notify(&oid("o"), notification(u64::MAX, &[1]), text(), None, 3, 0);
    assert_eq!((sends.to.len(), ended[0].done.missed.as_slice()), (0, [(1, 10)].as_slice()));
}
