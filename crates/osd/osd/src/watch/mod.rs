//! Watches and notifications of a PG's objects, in the memory of its primary.
//!
//! A watch lives as long as its client pings. If the client reconnects within the timeout, the watch continues on the new
//! connection. A notification goes to all watchers, including those not connected now, and ends when all have answered or its
//! timeout expires. The objects' attributes name the watchers; the state here is lost with the primary, and restored by the
//! clients, which reconnect to the new one.

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
use registry::{Notified, Watches};

pub(crate) use notices::Notices;

/// A watcher: a client, and a number that it chose for the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WatcherId {
    pub gid: u64,
    pub cookie: u64,
}

impl WatcherId {
    /// The name of its attribute.
    pub(crate) fn key(self) -> [u8; 16] {
        (u128::from(self.gid) << 64 | u128::from(self.cookie)).to_be_bytes()
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<WatcherId> {
        let both = u128::from_be_bytes(key.try_into().ok()?);
        Some(WatcherId { gid: (both >> 64) as u64, cookie: both as u64 })
    }
}

/// A watcher, as its attribute describes it: timeout in milliseconds (u32), address.
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

    /// Decodes an attribute. One written by another program, which does not decode, has expired.
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
    /// The sender's number for it.
    pub cookie: u64,
    pub payload: Vec<u8>,
    pub timeout: Duration,
    /// The watchers that must answer.
    pub watchers: Vec<WatcherId>,
}

/// Most notifications of one PG that wait for answers.
const NOTIFICATIONS_MAX: usize = 1024;

/// The watchers of a PG's objects; `None` until the first watch.
#[derive(Default)]
pub(crate) struct Watched(RefCell<Option<Box<Watches>>>);

impl Watched {
    /// Applies `work` to the watches; the default if there are none.
    fn with<T: Default>(&self, work: impl FnOnce(&mut Watches) -> T) -> T {
        self.0.borrow_mut().as_mut().map(|watches| work(watches)).unwrap_or_default()
    }

    /// Applies `work` to the watches, creating them if there are none.
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

    /// Drops all watches and notifications.
    pub(crate) fn forget(&self) {
        self.0.take();
    }
}

impl Pg {
    /// Adds a client's watch, or renews it.
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

    /// Adds the watchers registered in an object's attributes. A watcher that does not reconnect to this primary loses its watch
    /// after the timeout.
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

    /// Ends the watches of blocklisted clients: nobody waits for their answers.
    pub(crate) fn end_blocklisted_watches(&self, map: &OsdMap) {
        if !map.blocklist.is_empty() {
            self.ops.watched().with(|watches| watches.end(|addr| map.is_blocklisted(addr)));
        }
    }

    /// Ends a client's watch.
    pub(crate) fn unwatch(&self, osd: &OsdShard, oid: &ObjectId, id: WatcherId) {
        let ended = self.ops.watched().with(|watches| watches.remove(oid, id));
        finish(osd, ended);
    }

    /// Ends all watches of a removed object, and tells the watchers.
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

    /// Handles a watcher's answer to a notification.
    pub(crate) fn answer_notify(&self, osd: &OsdShard, notify_id: u64, id: WatcherId, reply: Vec<u8>) {
        let room = osd.notices.room(reply.len());
        let ended = self.ops.watched().with(|watches| watches.answer(notify_id, id, reply, room));
        finish(osd, ended);
    }

    /// A connection closed: its watchers are disconnected.
    pub(crate) fn disconnect(&self, origin: Origin) {
        self.ops.watched().with(|watches| watches.disconnect(origin));
    }
}

/// Tells the senders that their notifications have ended.
fn finish(osd: &OsdShard, ended: Vec<Notified>) {
    for Notified { to, cookie, message, done, .. } in &ended {
        let result = if done.missed.is_empty() { 0 } else { errno::ETIMEDOUT };
        let message = WatchNotify { op: WatchNotify::DONE, cookie: *cookie, result, ..message.clone() };
        if let Some(to) = to {
            osd.send_to(*to, Message::encode(&message).with_data(done.encode()));
        }
    }
}

/// Tells a client that its watch has ended.
fn disconnect(osd: &OsdShard, id: WatcherId, origin: Option<Origin>) {
    let message = WatchNotify { op: WatchNotify::DISCONNECT, cookie: id.cookie, ..WatchNotify::default() };
    if let Some(origin) = origin {
        osd.send_to(origin, Message::encode(&message));
    }
}

// Timeouts of watchers and notifications.

/// How often deadlines are checked.
const LOOK: Duration = Duration::from_millis(500);
/// Marks requests that the OSD makes in a client's name: no client has this incarnation.
const INTERNAL_INC: i32 = i32::MIN;

impl Pg {
    /// Starts checking deadlines, as long as there are any.
    fn keep_time(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if self.ops.watched().with(|watches| std::mem::replace(&mut watches.is_timed, true)) {
            return;
        }
        let (pg, own) = (Rc::clone(self), Rc::clone(osd));
        osd.shard.spawn(Group::Client, "watch-time", async move {
            while pg.is_watched() {
                own.shard.sleep(LOOK).await;
                pg.check_deadlines(&own);
            }
        });
    }

    /// Whether any watch or notification is left; if not, the state is dropped.
    fn is_watched(&self) -> bool {
        let is_watched = self.ops.watched().with(|watches| !watches.is_idle());
        if !is_watched {
            self.ops.watched().forget();
        }
        is_watched
    }

    fn check_deadlines(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let now = osd.shard.now_ns();
        let ended = self.ops.watched().with(|watches| watches.expire(now));
        finish(osd, ended);
        if !self.peer.serves() {
            return; // clients cannot be heard while the PG is not active
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

/// The request by which the OSD ends a watch in its client's name.
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
