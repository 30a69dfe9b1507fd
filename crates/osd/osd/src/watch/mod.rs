//! Watches and notifications of a PG's objects, as its primary has them in memory.
//!
//! A watch lives as long as its client pings, or comes back within its timeout: then it is the same watch over another
//! connection. A notification goes to all watchers, also to those that are not connected now, and ends when all have
//! answered or its time is over. Who watches is told by the objects' attributes; what is here is lost with the primary, and
//! made again by its clients, who come back to the new one.

mod expire;
mod notices;
mod registry;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::Message;
use carmine_types::{ObjectId, errno};
use carmine_wire::osd_op::WatchNotify;
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{Decoder, Encoder, EntityAddr};

use crate::op::Origin;
use crate::pg::Pg;
use crate::shard::OsdShard;
use registry::{Ended, Watches};

pub(crate) use notices::Notices;

/// Who watches: a client, and a number that it chose for the watch.
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

/// What the attributes say of a watcher: timeout in milliseconds (u32), address.
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

    /// What does not decode has no time left: it was written by another program.
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
    /// Who has to answer.
    pub watchers: Vec<WatcherId>,
}

/// Notifications of one PG that wait for answers, at the most.
const NOTIFICATIONS_MAX: usize = 1024;

/// Who watches the objects of a PG; nothing until somebody does.
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
        let missed = self.watched().begin(|watches| {
            let is_new = watches.connect(oid, id, registered, origin, now);
            match origin.filter(|_| is_new) {
                Some(origin) => watches.unanswered(oid, id, origin),
                None => Vec::new(),
            }
        });
        missed.into_iter().for_each(|sends| notices::send(osd, sends));
        self.keep_time(osd);
    }

    /// Learns who watches an object. Who does not come back to this primary loses the watch after its timeout.
    pub(crate) fn know_watchers(
        self: &Rc<Self>,
        osd: &Rc<OsdShard>,
        oid: &Arc<ObjectId>,
        watchers: Vec<(WatcherId, Registered)>,
    ) {
        if watchers.is_empty() {
            return;
        }
        self.watched().begin(|watches| watches.know(oid, watchers, osd.shard.now_ns()));
        if let Some(view) = osd.view() {
            self.end_barred_watches(view.map());
        }
        self.keep_time(osd);
    }

    /// The watches of clients that the map keeps out are over: nobody waits for their answers.
    pub(crate) fn end_barred_watches(&self, map: &OsdMap) {
        if !map.blocklist.is_empty() {
            self.watched().with(|watches| watches.end(|addr| map.is_blocklisted(addr)));
        }
    }

    /// A client watches no longer.
    pub(crate) fn unwatch(&self, osd: &OsdShard, oid: &ObjectId, id: WatcherId) {
        let ended = self.watched().with(|watches| watches.remove(oid, id));
        finish(osd, ended);
    }

    /// The object is gone: its watchers are told.
    pub(crate) fn unwatch_all(&self, osd: &OsdShard, oid: &ObjectId) {
        let (watchers, ended) = self.watched().with(|watches| watches.remove_object(oid));
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
        let text = osd.notices.keep(std::mem::take(&mut notification.payload));
        if text.is_none() {
            notices::tell_short(osd);
        }
        let now = osd.shard.now_ns();
        let (sends, ended) =
            self.watched().begin(|watches| watches.notify(oid, notification, text, origin, version, now));
        notices::send(osd, sends);
        finish(osd, ended);
        self.keep_time(osd);
    }

    /// A watcher has answered a notification.
    pub(crate) fn answer_notify(&self, osd: &OsdShard, notify_id: u64, id: WatcherId, reply: Vec<u8>) {
        let room = osd.notices.room(reply.len());
        let ended = self.watched().with(|watches| watches.answer(notify_id, id, reply, room));
        finish(osd, ended);
    }

    /// A connection is gone.
    pub(crate) fn disconnect(&self, origin: Origin) {
        self.watched().with(|watches| watches.disconnect(origin));
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
