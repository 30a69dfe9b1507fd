//! Watch and notify.

use std::cell::Cell;
use std::time::Duration;

use carmine_types::errno;
use carmine_wire::Encoder;
use carmine_wire::osd_op::{NotifyDone, OsdOp, WatchNotify, flags::watch, ops};

use super::cluster::{Cluster, Disks};
use super::raw::{Answer, Raw};

const SECOND: Duration = Duration::from_secs(1);
/// Of all watches here.
const TIMEOUT_SECONDS: u32 = 3;

/// A client and the number of its next request.
struct Client<'a> {
    cluster: &'a Cluster,
    raw: Raw,
    tid: Cell<u64>,
}

impl<'a> Client<'a> {
    fn new(cluster: &'a Cluster, gid: u64) -> Client<'a> {
        Client { cluster, raw: Raw::of_client(cluster, 0, gid), tid: Cell::new(cluster.sim.now_ns()) }
    }

    fn ask(&self, op: OsdOp, data: &[u8]) -> Answer {
        self.tid.set(self.tid.get() + 1);
        let request = self.raw.request(self.cluster, "o", op);
        self.raw.ask(self.cluster, request, data, self.tid.get()).expect("an answer")
    }

    fn watch(&self, op: u8, cookie: u64) -> i32 {
        self.ask(OsdOp::watch_op(op, cookie, TIMEOUT_SECONDS), b"").result
    }

    /// Notifies; returns the number of the notification.
    fn notify(&self, cookie: u64, text: &str, seconds: u32) -> u64 {
        let input = Encoder::collect(|e| {
            e.u32(1);
            e.u32(seconds);
            e.str(text);
        });
        let answer = self.ask(OsdOp::notify_op(cookie, input.len() as u32), &input);
        assert_eq!(answer.result, 0);
        u64::from_le_bytes(answer.data.try_into().unwrap())
    }

    fn answer(&self, notify_id: u64, cookie: u64, reply: &str) {
        let input = Encoder::collect(|e| {
            e.u64(notify_id);
            e.u64(cookie);
            e.str(reply);
        });
        let answer = self.ask(OsdOp::with_payload(ops::NOTIFY_ACK, input.len() as u32), &input);
        assert_eq!(answer.result, 0);
    }

    fn event(&self) -> (WatchNotify, Vec<u8>) {
        self.cluster.wait("an event", || self.raw.has_events());
        let mut events = self.raw.take_events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// The end of a notification.
    fn done(&self, notify_id: u64) -> (i32, NotifyDone) {
        let (event, data) = self.event();
        assert_eq!((event.op, event.notify_id), (WatchNotify::DONE, notify_id));
        (event.result, NotifyDone::decode(&data).unwrap())
    }

    /// How many watch.
    fn watchers(&self) -> u32 {
        let data = self.ask(OsdOp::with_payload(ops::LIST_WATCHERS, 0), b"").data;
        u32::from_le_bytes(data[6..10].try_into().unwrap())
    }
}

fn create(client: &Client<'_>) {
    assert_eq!(client.ask(OsdOp::create(false), b"").result, 0);
}

#[test]
fn watchers_are_notified_and_their_answers_gathered() {
    for seed in 0..4 {
        let cluster = Cluster::start(seed, Disks::Cyan, 1, 8, &[2]);
        let (a, b, c) = (Client::new(&cluster, 11), Client::new(&cluster, 12), Client::new(&cluster, 13));
        assert_eq!(a.watch(watch::WATCH, 1), errno::ENOENT);
        create(&a);
        assert_eq!(a.watch(watch::PING, 1), errno::ENOTCONN);
        let alone = c.notify(5, "nobody", 5);
        assert_eq!(c.done(alone), (0, NotifyDone::default()));
        assert_eq!((a.watch(watch::WATCH, 1), b.watch(watch::WATCH, 2)), (0, 0));
        assert_eq!((a.watch(watch::PING, 1), c.watchers()), (0, 2));

        let id = c.notify(6, "news", 5);
        for (client, cookie) in [(&a, 1), (&b, 2)] {
            let (event, _) = client.event();
            assert_eq!((event.op, event.cookie, event.notify_id), (WatchNotify::NOTIFY, cookie, id));
            assert_eq!((event.payload.as_slice(), event.notifier), (b"news".as_slice(), 13));
        }
        b.answer(id, 2, "heard");
        a.answer(id, 1, "");
        let (event, data) = c.event();
        assert_eq!((event.op, event.cookie, event.result), (WatchNotify::DONE, 6, 0));
        let acked = vec![((11, 1), b"".to_vec()), ((12, 2), b"heard".to_vec())];
        assert_eq!(NotifyDone::decode(&data).unwrap(), NotifyDone { acked, missed: vec![] });

        // One does not answer in time.
        let id = c.notify(7, "again", 2);
        a.answer(id, 1, "yes");
        let (result, done) = c.done(id);
        assert_eq!((result, done.missed), (errno::ETIMEDOUT, vec![(12, 2)]));
        a.raw.take_events();
        b.raw.take_events();

        assert_eq!(a.watch(watch::UNWATCH, 1), 0);
        assert_eq!((a.watch(watch::PING, 1), c.watchers()), (errno::ENOTCONN, 1));
        // The object goes: who watches is told.
        assert_eq!(c.ask(OsdOp::delete(), b"").result, 0);
        let (event, _) = b.event();
        assert_eq!((event.op, event.cookie), (WatchNotify::DISCONNECT, 2));
    }
}

#[test]
fn who_is_not_heard_watches_no_longer() {
    let cluster = Cluster::start(1, Disks::Cyan, 1, 8, &[2]);
    let (a, b) = (Client::new(&cluster, 11), Client::new(&cluster, 12));
    create(&a);
    assert_eq!((a.watch(watch::WATCH, 1), b.watch(watch::WATCH, 2)), (0, 0));
    for _ in 0..5 {
        cluster.pass(SECOND);
        assert_eq!(a.watch(watch::PING, 1), 0);
    }
    assert_eq!(a.watchers(), 1);
    assert_eq!(b.event().0.op, WatchNotify::DISCONNECT);
    assert_eq!(b.watch(watch::RECONNECT, 2), errno::ENOTCONN);
}

/// The primary is killed: who watches is known when it is back, and is reached over the new connection.
#[test]
fn watches_outlive_the_primary() {
    for seed in 0..2 {
        let cluster = Cluster::start(seed, Disks::Blue, 1, 8, &[2]);
        {
            let (a, b) = (Client::new(&cluster, 11), Client::new(&cluster, 12));
            create(&a);
            assert_eq!((a.watch(watch::WATCH, 1), b.watch(watch::WATCH, 2)), (0, 0));
        }
        cluster.kill(0);
        cluster.start_osd(0, 1);
        cluster.pass(SECOND);
        cluster.wait_up(1);
        let (a, c) = (Client::new(&cluster, 11), Client::new(&cluster, 13));
        assert_eq!(c.watchers(), 2);
        let id = c.notify(3, "back", 60);
        assert_eq!(a.watch(watch::RECONNECT, 1), 0);
        assert_eq!(a.event().0.notify_id, id, "it is told what it missed");
        a.answer(id, 1, "here");
        // The other one does not come back: nobody waits for it when its watch is over.
        for _ in 0..5 {
            cluster.pass(SECOND);
            assert_eq!(a.watch(watch::PING, 1), 0);
        }
        let (_, done) = c.done(id);
        assert_eq!(done.acked, [((11, 1), b"here".to_vec())]);
        assert_eq!(c.watchers(), 1);
    }
}
