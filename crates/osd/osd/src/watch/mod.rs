//! Watches and notifications of a PG's objects, as its primary has them in memory.
//!
//! A watch lives as long as its client pings, or comes back within its timeout: then it is the same watch over another
//! connection. A notification goes to all watchers, also to those that are not connected now, and ends when all have
//! answered or its time is over. The objects' attributes tell who watches; the state here is lost with the primary, and
//! made again by its clients, who come back to the new one.

mod notices;
mod registry;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Group, Payload};
use carmine_types::{ObjectId, ReqId, UTime, errno};
use carmine_wire::osd_op::{OpList, OsdOp, OsdRequest, WatchNotify, flags};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{Decoder, Encoder, EntityAddr};
use serde_json::{Value, json};

use crate::admin::address;
use crate::op::{ClientOp, Origin, ReplyTo};
use crate::pg::Pg;
use crate::shard::OsdShard;
use registry::{Ended, Watches};

pub(crate) use notices::Notices;

/// A watcher: a client, and a number that it chose for the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WatcherId {
    pub gid: u64,
    pub cookie: u64,
}

impl WatcherId {
    /// Its name among the attributes.
    pub(crate) fn key(self) -> [u8; 16] {
        (u128::from(self.gid) << 64 | u128::from(self.cookie)).to_be_bytes()
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<WatcherId> {
        let both = u128::from_be_bytes(key.try_into().ok()?);
        Some(WatcherId { gid: (both >> 64) as u64, cookie: both as u64 })
    }
}

/// A watcher, as the attributes describe it: timeout in milliseconds (u32), address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registered {
    pub timeout: Duration,
    pub addr: EntityAddr,
}

impl Registered {
    pub(crate) fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.u32(self.timeout.as_millis() as u32);
            e.put(&self.addr);
        })
    }

    /// A watcher that does not decode has no time left: another program wrote it.
    pub(crate) fn decode(bytes: &[u8]) -> Registered {
        let read = |d: &mut Decoder<'_>| Ok((d.u32()?, d.get()?));
        match Decoder::all(bytes, "watcher", read) {
            Ok((millis, addr)) => Registered { timeout: Duration::from_millis(millis.into()), addr },
            Err(_) => Registered::default(),
        }
    }
}

/// A notification that begins.
pub(crate) struct Notification {
    pub id: u64,
    /// Global id of its sender.
    pub notifier: u64,
    /// By which the sender knows its end.
    pub cookie: u64,
    pub payload: Vec<u8>,
    pub timeout: Duration,
    /// The watchers that have to answer.
    pub watchers: Vec<WatcherId>,
}

/// Notifications of one PG that wait for answers, at the most.
const NOTIFICATIONS_MAX: usize = 1024;

/// The watchers of a PG's objects; nothing until somebody watches.
#[derive(Default)]
pub(crate) struct Watched(RefCell<Option<Box<Watches>>>);

impl Watched {
    /// Works on what is there; the default if nobody watches.
    fn with<T: Default>(&self, work: impl FnOnce(&mut Watches) -> T) -> T {
        self.0.borrow_mut().as_mut().map(|watches| work(watches)).unwrap_or_default()
    }

    /// Works on what is there; from now on there is something.
    fn begin<T>(&self, work: impl FnOnce(&mut Watches) -> T) -> T {
        work(self.0.borrow_mut().get_or_insert_default())
    }

    /// The watchers, as `dump_watchers` of Ceph shows them.
    pub(crate) fn dump(&self) -> Vec<Value> {
        let one = |(oid, id, registered): (&ObjectId, WatcherId, Registered)| {
            json!({ "watch": {
                "namespace": String::from_utf8_lossy(&oid.nspace), "object": String::from_utf8_lossy(&oid.name),
                "entity_name": { "type": "client", "num": id.gid }, "cookie": id.cookie,
                "timeout": registered.timeout.as_secs(), "entity_addr_t": address(&registered.addr),
            }})
        };
        self.with(|watches| watches.all().map(one).collect())
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) {
        self.0.take();
    }
}

impl Pg {
    /// A client watches an object, or shows that it still does.
    pub(crate) fn watch(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        oid: &Arc<ObjectId>,
        id: WatcherId,
        registered: Registered,
        origin: Option<Origin>,
    ) {
        let now = osd.shard.now_ns();
        let missed = self.ops.watched().begin(|watches| {
            let is_new = watches.connect(oid, id, registered, origin, now);
            match origin.filter(|_| is_new) {
                Some(origin) => watches.unanswered(oid, id, origin),
                None => Vec::new(),
            }
        });
        missed.into_iter().for_each(|sends| notices::send(osd, sends));
        self.keep_time(osd);
    }

    /// Learns who watches an object. A watcher that does not come back to this primary loses its watch after the
    /// timeout.
    pub(crate) fn add_registered_watchers(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        oid: &Arc<ObjectId>,
        watchers: Vec<(WatcherId, Registered)>,
    ) {
        if watchers.is_empty() {
            return;
        }
        self.ops.watched().begin(|watches| watches.add_registered(oid, watchers, osd.shard.now_ns()));
        if let Some(view) = osd.view() {
            self.end_blocklisted_watches(view.map());
        }
        self.keep_time(osd);
    }

    /// The watches of clients that the map keeps out are over: nobody waits for their answers.
    pub(crate) fn end_blocklisted_watches(&self, map: &OsdMap) {
        if !map.blocklist.is_empty() {
            self.ops.watched().with(|watches| watches.end(|addr| map.is_blocklisted(addr)));
        }
    }

    /// A client watches no longer.
    pub(crate) fn unwatch(&self, osd: &OsdShard, oid: &ObjectId, id: WatcherId) {
        let ended = self.ops.watched().with(|watches| watches.remove(oid, id));
        finish(osd, ended);
    }

    /// The object is gone: its watchers are told.
    pub(crate) fn unwatch_all(&self, osd: &OsdShard, oid: &ObjectId) {
        let (watchers, ended) = self.ops.watched().with(|watches| watches.remove_object(oid));
        for (id, origin) in watchers {
            disconnect(osd, id, origin);
        }
        finish(osd, ended);
    }

    /// Begins a notification.
    pub(crate) fn notify(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        oid: &Arc<ObjectId>,
        mut notification: Notification,
        origin: Option<Origin>,
        version: u64,
    ) {
        let text = osd.notices.store_text(std::mem::take(&mut notification.payload));
        if text.is_none() {
            notices::report_short(osd);
        }
        let now = osd.shard.now_ns();
        let (sends, ended) =
            self.ops.watched().begin(|watches| watches.notify(oid, notification, text, origin, version, now));
        notices::send(osd, sends);
        finish(osd, ended);
        self.keep_time(osd);
    }

    /// A watcher has answered a notification.
    pub(crate) fn answer_notify(&self, osd: &OsdShard, notify_id: u64, id: WatcherId, reply: Vec<u8>) {
        let room = osd.notices.room(reply.len());
        let ended = self.ops.watched().with(|watches| watches.answer(notify_id, id, reply, room));
        finish(osd, ended);
    }

    /// A connection is gone.
    pub(crate) fn disconnect(&self, origin: Origin) {
        self.ops.watched().with(|watches| watches.disconnect(origin));
    }
}

/// Tells the senders of notifications that they are over.
fn finish(osd: &OsdShard, ended: Vec<Ended>) {
    for Ended { to, cookie, notifier, version, notify_id, done, rooms: _rooms } in ended {
        let result = if done.missed.is_empty() { 0 } else { errno::ETIMEDOUT };
        let op = WatchNotify::DONE;
        let message =
            WatchNotify { op, cookie, version, notify_id, result, notifier, ..WatchNotify::default() };
        if let Some(to) = to {
            osd.send_to(to, Message::of(&message).with_data(done.encode()));
        }
    }
}

/// Tells a client that it watches no longer.
fn disconnect(osd: &OsdShard, id: WatcherId, origin: Option<Origin>) {
    let message = WatchNotify { op: WatchNotify::DISCONNECT, cookie: id.cookie, ..WatchNotify::default() };
    if let Some(origin) = origin {
        osd.send_to(origin, Message::of(&message));
    }
}

// Time: watchers that are not heard any more, notifications that are not answered.

/// How often deadlines are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Marks requests that the OSD makes in a client's name: no client counts its incarnations down from here.
const INTERNAL_INC: i32 = i32::MIN;

impl Pg {
    /// Looks at the deadlines from now on, as long as there are any.
    fn keep_time(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if self.ops.watched().with(|watches| std::mem::replace(&mut watches.is_timed, true)) {
            return;
        }
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Client, "watch-time", async move {
            while pg.is_watched() {
                own.shard.sleep(LOOK).await;
                pg.look_at_time(&own);
            }
        });
    }

    /// There is something to wait for; else all of it is forgotten.
    fn is_watched(&self) -> bool {
        let is_watched = self.ops.watched().with(|watches| !watches.is_idle());
        if !is_watched {
            self.ops.watched().forget();
        }
        is_watched
    }

    fn look_at_time(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let now = osd.shard.now_ns();
        let ended = self.ops.watched().with(|watches| watches.expire(now));
        finish(osd, ended);
        if !self.peer.is_active() {
            return; // the clients cannot be heard either
        }
        let silent = self.ops.watched().with(|watches| watches.silent(now));
        for (oid, id, origin) in silent {
            tracing::info!(
                "pg {}: client.{} watches {oid} no longer: nothing was heard of it",
                self.id,
                id.gid
            );
            disconnect(osd, id, origin);
            self.handle_op(osd, unwatch(osd, self, &oid, id));
        }
    }
}

/// The request by which a client would end its watch.
fn unwatch(osd: &OsdShard, pg: &Pg, oid: &ObjectId, id: WatcherId) -> Rc<ClientOp> {
    let ops = OpList::from_slice(&[OsdOp::watch_op(flags::watch::UNWATCH, id.cookie, 0)]);
    let mut request = OsdRequest::new(pg.id.pgid, osd.epoch(), flags::CLIENT_WRITE, oid, ops);
    request.mtime = UTime::from_unix(osd.shard.unix_now());
    let reqid = ReqId { client: id.gid, inc: INTERNAL_INC, tid: osd.shard.random_u64() };
    // Nobody waits for the answer.
    let (to, _) = oneshot::channel();
    ClientOp::new(request, reqid, Payload::new(), osd.shard.now_ns(), ReplyTo::Local(to))
}

#[cfg(test)]
mod tests;
