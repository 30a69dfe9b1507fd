//! The registry of who watches what over which connection, and which notifications wait for whom: without a clock, a
//! socket or a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carmine_types::ObjectId;
use carmine_wire::EntityAddr;
use carmine_wire::osd_op::{NotifyDone, WatchNotify};

use super::notices::{Room, Text};
use super::{NOTIFICATIONS_MAX, Notification, Registered, WatcherId};
use crate::op::Origin;

/// Watches and notifications of one PG.
#[derive(Default)]
pub(crate) struct Watches {
    objects: BTreeMap<Arc<ObjectId>, BTreeMap<WatcherId, Watcher>>,
    /// By their numbers.
    notifications: BTreeMap<u64, Waiting>,
    /// A task looks at the deadlines.
    pub(super) is_timed: bool,
}

struct Watcher {
    /// `None`: not connected.
    origin: Option<Origin>,
    registered: Registered,
    /// It ends when nothing was heard until then.
    deadline_ns: u64,
}

/// A notification that is not over.
struct Waiting {
    oid: Arc<ObjectId>,
    to: Option<Origin>,
    /// The message to the watchers, but for their cookies and the text.
    message: WatchNotify,
    text: Text,
    /// The sender's cookie.
    cookie: u64,
    waits_for: BTreeSet<WatcherId>,
    done: NotifyDone,
    /// Room for the answers.
    rooms: Vec<Room>,
    deadline_ns: u64,
}

/// A notification that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub to: Option<Origin>,
    pub cookie: u64,
    pub notifier: u64,
    pub version: u64,
    pub notify_id: u64,
    pub done: NotifyDone,
    /// Room for the answers.
    pub rooms: Vec<Room>,
}

/// A notification for watchers, each with its cookie; all of them get the same text.
pub(super) struct Sends {
    pub message: WatchNotify,
    pub text: Text,
    pub to: Vec<(Origin, u64)>,
}

impl Watches {
    /// A watcher was heard; true if its connection is another one than before.
    pub(super) fn connect(
        &mut self,
        oid: &Arc<ObjectId>,
        id: WatcherId,
        registered: Registered,
        origin: Option<Origin>,
        now_ns: u64,
    ) -> bool {
        let watchers = self.objects.entry(Arc::clone(oid)).or_default();
        let deadline_ns = now_ns + registered.timeout.as_nanos() as u64;
        let old = watchers.insert(id, Watcher { origin, registered, deadline_ns });
        old.is_none_or(|old| old.origin != origin)
    }

    /// These watch too: not connected, if they are new.
    pub(super) fn add_registered(
        &mut self,
        oid: &Arc<ObjectId>,
        watchers: Vec<(WatcherId, Registered)>,
        now_ns: u64,
    ) {
        let known = self.objects.entry(Arc::clone(oid)).or_default();
        for (id, registered) in watchers {
            let deadline_ns = now_ns + registered.timeout.as_nanos() as u64;
            known.entry(id).or_insert(Watcher { origin: None, registered, deadline_ns });
        }
    }

    /// All watchers, by objects.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ObjectId, WatcherId, Registered)> {
        self.objects.iter().flat_map(|(oid, watchers)| {
            watchers.iter().map(|(id, watcher)| (&**oid, *id, watcher.registered))
        })
    }

    /// The time of the watchers with such addresses is over.
    pub(super) fn end(&mut self, is_over: impl Fn(&EntityAddr) -> bool) {
        for watcher in self.objects.values_mut().flat_map(BTreeMap::values_mut) {
            if is_over(&watcher.registered.addr) {
                watcher.deadline_ns = 0;
            }
        }
    }

    /// The notifications of an object that this watcher has yet to answer.
    pub(super) fn unanswered(&self, oid: &ObjectId, id: WatcherId, origin: Origin) -> Vec<Sends> {
        let waiting = self.notifications.values().filter(|n| *n.oid == *oid && n.waits_for.contains(&id));
        let again = |n: &Waiting| {
            let to = vec![(origin, id.cookie)];
            Sends { message: n.message.clone(), text: n.text.clone(), to }
        };
        waiting.map(again).collect()
    }

    /// Nothing comes over this connection any more.
    pub(super) fn disconnect(&mut self, origin: Origin) {
        for watcher in self.objects.values_mut().flat_map(BTreeMap::values_mut) {
            if watcher.origin == Some(origin) {
                watcher.origin = None;
            }
        }
        for notification in self.notifications.values_mut() {
            if notification.to == Some(origin) {
                notification.to = None;
            }
        }
    }

    /// A watcher goes; notifications that waited for it only are over.
    pub(super) fn remove(&mut self, oid: &ObjectId, id: WatcherId) -> Vec<Ended> {
        if let Some(watchers) = self.objects.get_mut(oid) {
            watchers.remove(&id);
            if watchers.is_empty() {
                self.objects.remove(oid);
            }
        }
        for notification in self.notifications.values_mut().filter(|n| *n.oid == *oid) {
            notification.waits_for.remove(&id);
        }
        self.take_ended()
    }

    /// All watchers of an object go.
    pub(super) fn remove_object(&mut self, oid: &ObjectId) -> (Vec<(WatcherId, Option<Origin>)>, Vec<Ended>) {
        let watchers = self.objects.remove(oid).unwrap_or_default();
        for notification in self.notifications.values_mut().filter(|n| *n.oid == *oid) {
            notification.waits_for.clear();
        }
        (watchers.into_iter().map(|(id, watcher)| (id, watcher.origin)).collect(), self.take_ended())
    }

    /// Begins a notification: what is sent to whom, and what is over at once. `text` is `None` if there is no room for it: then all
    /// miss it.
    pub(super) fn notify(
        &mut self,
        oid: &Arc<ObjectId>,
        notification: Notification,
        text: Option<Text>,
        to: Option<Origin>,
        version: u64,
        now_ns: u64,
    ) -> (Sends, Vec<Ended>) {
        let Notification { id: notify_id, notifier, cookie, timeout, watchers, .. } = notification;
        let op = WatchNotify::NOTIFY;
        let message = WatchNotify { op, version, notify_id, notifier, ..WatchNotify::default() };
        let is_full = self.notifications.len() >= NOTIFICATIONS_MAX || text.is_none();
        let text = text.unwrap_or_default();
        let mut waiting = Waiting {
            oid: Arc::clone(oid),
            to,
            message,
            text,
            cookie,
            waits_for: BTreeSet::new(),
            done: NotifyDone::default(),
            rooms: Vec::new(),
            deadline_ns: now_ns + timeout.as_nanos() as u64,
        };
        let mut sends =
            Sends { message: waiting.message.clone(), text: waiting.text.clone(), to: Vec::new() };
        let known = self.objects.get(oid);
        for id in watchers {
            if is_full {
                waiting.done.missed.push((id.gid, id.cookie));
                continue;
            }
            waiting.waits_for.insert(id);
            if let Some(origin) = known.and_then(|known| known.get(&id)).and_then(|watcher| watcher.origin) {
                sends.to.push((origin, id.cookie));
            }
        }
        self.notifications.insert(notify_id, waiting);
        (sends, self.take_ended())
    }

    /// A watcher's answer; of a notification that is over it is too late. Without room for it the sender is told that this
    /// watcher has missed the notification.
    pub(super) fn answer(
        &mut self,
        notify_id: u64,
        id: WatcherId,
        reply: Vec<u8>,
        room: Option<Room>,
    ) -> Vec<Ended> {
        if let Some(waiting) = self.notifications.get_mut(&notify_id)
            && waiting.waits_for.remove(&id)
        {
            match room {
                Some(room) => {
                    waiting.done.acked.push(((id.gid, id.cookie), reply));
                    waiting.rooms.push(room);
                }
                None => waiting.done.missed.push((id.gid, id.cookie)),
            }
        }
        self.take_ended()
    }

    /// Watchers that were not heard in time. They stay until the attributes know that they are gone.
    pub(super) fn silent(&mut self, now_ns: u64) -> Vec<(Arc<ObjectId>, WatcherId, Option<Origin>)> {
        let mut silent = Vec::new();
        for (oid, watchers) in &mut self.objects {
            for (id, watcher) in watchers.iter_mut().filter(|(_, watcher)| watcher.deadline_ns <= now_ns) {
                silent.push((Arc::clone(oid), *id, watcher.origin));
                // If that fails, or takes long, it is looked at again.
                watcher.deadline_ns =
                    now_ns + watcher.registered.timeout.max(Duration::from_secs(1)).as_nanos() as u64;
            }
        }
        silent
    }

    /// Ends notifications whose time is over.
    pub(super) fn expire(&mut self, now_ns: u64) -> Vec<Ended> {
        for waiting in self.notifications.values_mut().filter(|n| n.deadline_ns <= now_ns) {
            let missed = std::mem::take(&mut waiting.waits_for);
            waiting.done.missed.extend(missed.into_iter().map(|id| (id.gid, id.cookie)));
        }
        self.take_ended()
    }

    /// Nobody watches, and nothing is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.objects.is_empty() && self.notifications.is_empty()
    }

    fn take_ended(&mut self) -> Vec<Ended> {
        let over = self.notifications.extract_if(.., |_, waiting| waiting.waits_for.is_empty());
        over.map(|(notify_id, mut waiting)| {
            waiting.done.acked.sort_unstable();
            waiting.done.missed.sort_unstable();
            Ended {
                to: waiting.to,
                cookie: waiting.cookie,
                notifier: waiting.message.notifier,
                version: waiting.message.version,
                notify_id,
                done: waiting.done,
                rooms: waiting.rooms,
            }
        })
        .collect()
    }
}
