//! Time: watchers that are not heard any more, notifications that are not answered.

use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::sync::oneshot;
use carmine_reactor::{Group, Payload};
use carmine_types::{ObjectId, ReqId, UTime};
use carmine_wire::osd_op::{OpList, OsdOp, OsdRequest, flags};

use super::{WatcherId, disconnect, finish};
use crate::op::{ClientOp, ReplyTo};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// How often deadlines are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Marks requests that the OSD makes in a client's name: no client counts its incarnations down from here.
const INTERNAL_INC: i32 = i32::MIN;

impl Pg {
    /// Looks at the deadlines from now on, as long as there are any.
    pub(super) fn keep_time(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        if self.watched().with(|watches| std::mem::replace(&mut watches.is_timed, true)) {
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
        let is_watched = self.watched().with(|watches| !watches.is_idle());
        if !is_watched {
            self.watched().forget();
        }
        is_watched
    }

    fn look_at_time(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let now = osd.shard.now_ns();
        let ended = self.watched().with(|watches| watches.expire(now));
        finish(osd, ended);
        if !self.is_active() {
            return; // the clients cannot be heard either
        }
        let silent = self.watched().with(|watches| watches.silent(now));
        for (oid, id, origin) in silent {
            tracing::info!(
                "pg {}: client.{} watches {oid} no longer: nothing was heard of it",
                self.id,
                id.gid
            );
            disconnect(osd, id, origin);
            self.take(osd, unwatch(osd, self, &oid, id));
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
    ClientOp::new(request, reqid, (Payload::new(), None), osd.shard.now_ns(), ReplyTo::Local(to))
}
