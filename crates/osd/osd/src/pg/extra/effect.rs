//! What is done about watches when a request is executed.

use std::rc::Rc;

use super::Extra;
use crate::op::{ClientOp, Origin};
use crate::pg::Pg;
use crate::shard::OsdShard;
use crate::watch::{Notification, Registered, WatcherId};

/// One such thing.
pub(crate) enum Effect {
    /// The client watches over the connection that the request came through.
    Watch { id: WatcherId, registered: Registered },
    /// It does so no longer.
    Unwatch(WatcherId),
    /// The watchers are notified, and their answers are waited for.
    Notify(Notification),
    /// A watcher has answered.
    Answer { notify_id: u64, id: WatcherId, reply: Vec<u8> },
    /// The object is gone, and nobody watches it any more.
    Removed,
}

impl Extra {
    /// Does what follows from a request. `origin` is where it came from, `version` the object's as clients see it.
    pub(crate) fn take_effect(
        self,
        osd: &Rc<OsdShard>,
        pg: &Rc<Pg>,
        op: &ClientOp,
        origin: Option<Origin>,
        version: u64,
    ) {
        pg.know_watchers(osd, &op.oid, self.watchers);
        for effect in self.effects {
            match effect {
                Effect::Watch { id, registered } => pg.watch(osd, &op.oid, id, registered, origin),
                Effect::Unwatch(id) => pg.unwatch(osd, &op.oid, id),
                Effect::Notify(notification) => pg.notify(osd, &op.oid, notification, origin, version),
                Effect::Answer { notify_id, id, reply } => pg.answer_notify(osd, notify_id, id, reply),
                Effect::Removed => pg.unwatch_all(osd, &op.oid),
            }
        }
    }
}
