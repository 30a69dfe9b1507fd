//! A new map: where operations go now.

use super::Objecter;
use super::op::Op;
use crate::error::ClientError;
use carmine_crush::MapView;
use carmine_types::errno::{ENOENT, Errno};
use carmine_types::{OsdId, PgId};
use carmine_wire::osd_op::flags::{FULL_FORCE, FULL_TRY};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::osdmap::consts::{FLAG_PAUSERD, FLAG_PAUSEWR, POOL_FULL};
use std::rc::Rc;
use std::sync::Arc;

/// Map flag: the cluster is full, client writes wait.
const FLAG_FULL: u32 = 2;

impl Objecter {
    /// Takes over a newer map: every operation is aimed again, and sent again if its PG is served by other OSDs now.
    pub(super) fn on_map(self: &Rc<Self>, map: &Arc<OsdMap>) {
        let old = self.view();
        let new = Arc::new(MapView::after(old.as_deref(), Arc::clone(map)));
        new.complaints(old.as_deref()).iter().for_each(|text| tracing::error!("{text}"));
        *self.view.borrow_mut() = Some(Arc::clone(&new));
        if self.closed.get() {
            return;
        }
        self.drop_sessions(map);
        // In an epoch that was never seen here another OSD may have served any PG.
        let follows = old.as_ref().is_some_and(|old| old.epoch().0 + 1 == new.epoch().0);
        let now_ns = self.shard.now_ns();
        let mut table = self.table.borrow_mut();
        for tid in table.pick(|op| op.outcome.is_none()) {
            let Some(op) = table.get(tid) else { continue };
            let (before, pg) = (op.osd, op.request.pg);
            op.osd = place(&new, op);
            let moved = before != op.osd || pg != op.request.pg;
            let changed = || old.as_ref().is_none_or(|old| interval_changed(old, &new, pg));
            if moved || !follows || changed() {
                op.sent_on = 0;
            }
            self.deliver(op, now_ns);
        }
    }

    /// Ends sessions with OSDs that are down, or came back as another incarnation.
    fn drop_sessions(&self, map: &OsdMap) {
        let mut gone = Vec::new();
        self.sessions.borrow_mut().retain(|osd, session| {
            let stays = map.client_addr(*osd).and_then(|addrs| addrs.msgr2()) == Some(session.addr);
            if !stays {
                gone.push(Rc::clone(session));
            }
            stays
        });
        for session in gone {
            session.close("the OSD is down, or restarted, in the newest map");
            let mut table = self.table.borrow_mut();
            table.iter().filter(|op| op.osd == Some(session.osd)).for_each(|op| op.sent_on = 0);
        }
    }
}

/// Sets the operation's PG and returns its OSD; ends the operation if its pool is gone.
pub(super) fn place(view: &MapView, op: &mut Op) -> Option<OsdId> {
    let pool_id = op.request.locator.pool;
    let Some(pool) = view.map().pool(pool_id) else {
        let what = op.describe();
        op.complete(Err(ClientError::Errno { what, errno: Errno(ENOENT) }));
        return None;
    };
    op.request.pg = PgId::of_hash(pool_id, op.request.hash, pool.pg_num);
    let flags = view.map().flags;
    let is_full = flags & FLAG_FULL != 0 || pool.flags & POOL_FULL != 0;
    let waits = if op.is_write() {
        flags & FLAG_PAUSEWR != 0 || is_full && op.request.flags & (FULL_TRY | FULL_FORCE) == 0
    } else {
        flags & FLAG_PAUSERD != 0
    };
    if waits {
        return None;
    }
    let primary = view.acting_primary(op.request.pg)?;
    // A primary without an address cannot be reached: as good as none.
    view.map().client_addr(primary)?.msgr2()?;
    Some(primary)
}

/// True if a PG is served by other OSDs, or its pool has another size or number of PGs: the new ones may never have seen
/// what was sent to the old ones.
fn interval_changed(old: &MapView, new: &MapView, pg: PgId) -> bool {
    let (Some(was), Some(is)) = (old.map().pool(pg.pool), new.map().pool(pg.pool)) else { return true };
    if (was.size, was.min_size, was.pg_num) != (is.size, is.min_size, is.pg_num) {
        return true;
    }
    let (was, is) = (old.mapping(pg), new.mapping(pg));
    was.acting != is.acting || was.up != is.up || was.acting_primary != is.acting_primary
}
