//! The registry of watchers with their connections, and of the notifications that wait for their answers: a pure data structure.

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
    /// Notifications by number.
    notifications: BTreeMap<u64, Notified>,
    /// Set while a task checks the deadlines.
    pub(super) is_timed: bool,
}

struct Watcher {
    /// `None`: not connected.
    origin: Option<Origin>,
    registered: Registered,
    /// When it expires unless its client is heard before.
    deadline_ns: u64,
}

/// A notification that waits for answers, or has just ended.
pub(super) struct Notified {
    oid: Arc<ObjectId>,
    pub to: Option<Origin>,
    /// The message to the watchers, without their cookies and the text.
    pub message: WatchNotify,
    text: Text,
    /// The sender's cookie.
    pub cookie: u64,
    waits_for: BTreeSet<WatcherId>,
    pub done: NotifyDone,
    /// Room for the answers, until this is dropped.
    rooms: Vec<Room>,
    deadline_ns: u64,
}

/// A notification for watchers, each with its cookie; all of them get the same text.
pub(super) struct Sends {
    pub message: WatchNotify,
    pub text: Text,
    pub to: Vec<(Origin, u64)>,
}

impl Watches {
    /// Notes that a watcher was heard; true if its connection changed.
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

    /// Adds watchers, as disconnected unless they are known already.
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

    /// Expires the watchers with such addresses.
    pub(super) fn end(&mut self, is_over: impl Fn(&EntityAddr) -> bool) {
        for watcher in self.objects.values_mut().flat_map(BTreeMap::values_mut) {
            if is_over(&watcher.registered.addr) {
                watcher.deadline_ns = 0;
            }
        }
    }

    /// The notifications of an object that this watcher has not answered yet.
    pub(super) fn unanswered(&self, oid: &ObjectId, id: WatcherId, origin: Origin) -> Vec<Sends> {
        let waiting = self.notifications.values().filter(|n| *n.oid == *oid && n.waits_for.contains(&id));
        let again = |n: &Notified| {
            let to = vec![(origin, id.cookie)];
            Sends { message: n.message.clone(), text: n.text.clone(), to }
        };
        waiting.map(again).collect()
    }

    /// Marks the watchers of a closed connection as disconnected.
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

    /// Removes a watcher; returns the notifications that waited only for it.
    pub(super) fn remove(&mut self, oid: &ObjectId, id: WatcherId) -> Vec<Notified> {
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

    /// Removes all watchers of an object.
    pub(super) fn remove_object(
        &mut self,
        oid: &ObjectId,
    ) -> (Vec<(WatcherId, Option<Origin>)>, Vec<Notified>) {
        let watchers = self.objects.remove(oid).unwrap_or_default();
        for notification in self.notifications.values_mut().filter(|n| *n.oid == *oid) {
            notification.waits_for.clear();
        }
        (watchers.into_iter().map(|(id, watcher)| (id, watcher.origin)).collect(), self.take_ended())
    }

    /// Begins a notification; returns the messages to send, and the notification if it ends at once. `text` is `None` if there is
    /// no room for it: then all watchers miss it.
    pub(super) fn notify(
        &mut self,
        oid: &Arc<ObjectId>,
        notification: Notification,
        text: Option<Text>,
        to: Option<Origin>,
        version: u64,
        now_ns: u64,
    ) -> (Sends, Vec<Notified>) {
        let Notification { id: notify_id, notifier, cookie, timeout, watchers, .. } = notification;
        let op = WatchNotify::NOTIFY;
        let message = WatchNotify { op, version, notify_id, notifier, ..WatchNotify::default() };
        let is_full = self.notifications.len() >= NOTIFICATIONS_MAX || text.is_none();
        let text = text.unwrap_or_default();
        let mut waiting = Notified {
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

    /// Handles a watcher's answer, unless the notification has ended. Without room for the answer, the sender learns that this
    /// watcher missed the notification.
    pub(super) fn answer(
        &mut self,
        notify_id: u64,
        id: WatcherId,
        reply: Vec<u8>,
        room: Option<Room>,
    ) -> Vec<Notified> {
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

    /// Expired watchers. They stay until they are removed from the attributes.
    pub(super) fn silent(&mut self, now_ns: u64) -> Vec<(Arc<ObjectId>, WatcherId, Option<Origin>)> {
        let mut silent = Vec::new();
        for (oid, watchers) in &mut self.objects {
            for (id, watcher) in watchers.iter_mut().filter(|(_, watcher)| watcher.deadline_ns <= now_ns) {
                silent.push((Arc::clone(oid), *id, watcher.origin));
                // If that fails, or takes long, try again.
                watcher.deadline_ns =
                    now_ns + watcher.registered.timeout.max(Duration::from_secs(1)).as_nanos() as u64;
            }
        }
        silent
    }

    /// Ends notifications whose timeout has expired.
    pub(super) fn expire(&mut self, now_ns: u64) -> Vec<Notified> {
        for waiting in self.notifications.values_mut().filter(|n| n.deadline_ns <= now_ns) {
            let missed = std::mem::take(&mut waiting.waits_for);
            waiting.done.missed.extend(missed.into_iter().map(|id| (id.gid, id.cookie)));
        }
        self.take_ended()
    }

    /// Whether there are no watches and no notifications.
    pub(super) fn is_idle(&self) -> bool {
        self.objects.is_empty() && self.notifications.is_empty()
    }

    fn take_ended(&mut self) -> Vec<Notified> {
        let over = self.notifications.extract_if(.., |_, waiting| waiting.waits_for.is_empty());
        over.map(|(_, mut ended)| {
            ended.done.acked.sort_unstable();
            ended.done.missed.sort_unstable();
            ended
        })
        .collect()
    }
}
