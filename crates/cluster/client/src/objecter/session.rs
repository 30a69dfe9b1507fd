//! Connections to one OSD, and which of its reactors owns which PG.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use carmine_messenger::{Connection, Target};
use carmine_reactor::sync::Notify;
use carmine_types::{Epoch, OsdId, PgId};
use carmine_wire::EntityAddr;
use carmine_wire::private::RouteReply;
use foldhash::fast::FixedState;

use super::reply::Holds;
use crate::options::RouteMode;
use crate::pace::Pace;
use crate::pending::Pending;

/// One incarnation of an OSD: when its address in the map changes (and the nonce does with every start), the session is
/// thrown away and a new one is made.
pub(super) struct Session {
    pub(super) osd: OsdId,
    pub(super) addr: EntityAddr,
    pub(super) route: RefCell<Route>,
    /// A Route message is on its way.
    pub(super) asking: Cell<bool>,
    lanes: RefCell<Vec<Rc<Lane>>>,
    /// Ranges of objects that the OSD told us to hold back.
    pub(super) holds: Holds,
    /// Route and Admin requests.
    pub(super) pending: Pending,
    closed: Cell<bool>,
}

/// One connection of a session, or the place for it.
pub(super) struct Lane {
    pub(super) index: LaneIndex,
    pub(super) target: Target,
    conn: RefCell<Option<Rc<Connection>>>,
    /// A task is connecting, or waits to.
    pub(super) connecting: Cell<bool>,
    /// Its session ended, or has no such lane any more.
    pub(super) closed: Cell<bool>,
    /// Callers that wait for the connection itself, not for an operation.
    pub(super) waiting: Cell<usize>,
    /// The connection came up, or the session was ended.
    pub(super) changed: Notify,
    /// The last connection was lost: wait a little before making a new one.
    pub(super) lost: Cell<bool>,
    pub(super) pace: Pace,
    /// Why the last attempt failed, for errors.
    pub(super) fault: RefCell<String>,
}

impl Session {
    pub(super) fn new(osd: OsdId, addr: EntityAddr, mode: RouteMode) -> Rc<Session> {
        let route = match mode {
            RouteMode::Direct => Route::Unknown,
            RouteMode::Single => Route::Single,
        };
        Rc::new(Session {
            osd,
            addr,
            route: RefCell::new(route),
            asking: Cell::new(false),
            lanes: RefCell::new(vec![Lane::new(PUBLIC, addr.into())]),
            holds: Holds::default(),
            pending: Pending::default(),
            closed: Cell::new(false),
        })
    }

    /// Takes over what the OSD told about its reactors. Lanes whose port did not change keep their connection.
    pub(super) fn set_route(&self, route: Route) {
        if let Route::Known(table) = &route {
            let mut lanes = self.lanes.borrow_mut();
            let mut old = std::mem::take(&mut *lanes);
            for (index, target) in std::iter::once(self.addr.into())
                .chain(table.ports.iter().map(|port| Target::port_of(self.addr, *port)))
                .enumerate()
            {
                let same = old.iter().position(|lane| lane.index == index && lane.target == target);
                lanes.push(same.map_or_else(|| Lane::new(index, target), |at| old.swap_remove(at)));
            }
            drop(lanes);
            old.iter().for_each(|lane| lane.close("the OSD's reactors changed"));
        }
        *self.route.borrow_mut() = route;
    }

    pub(super) fn lane(&self, index: LaneIndex) -> Option<Rc<Lane>> {
        self.lanes.borrow().get(index).cloned()
    }

    pub(super) fn lanes(&self) -> Vec<Rc<Lane>> {
        self.lanes.borrow().clone()
    }

    /// The connection of a lane, if it stands.
    pub(super) fn up(&self, index: LaneIndex) -> Option<Rc<Connection>> {
        self.lanes.borrow().get(index).and_then(|lane| lane.conn())
    }

    /// Ends all connections; nothing is sent through this session again.
    pub(super) fn close(&self, reason: &str) {
        self.closed.set(true);
        self.pending.fail_all();
        self.lanes().iter().for_each(|lane| lane.close(reason));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }
}

impl Lane {
    fn new(index: LaneIndex, target: Target) -> Rc<Lane> {
        Rc::new(Lane {
            index,
            target,
            conn: RefCell::new(None),
            connecting: Cell::new(false),
            closed: Cell::new(false),
            waiting: Cell::new(0),
            changed: Notify::new(),
            lost: Cell::new(false),
            pace: Pace::default(),
            fault: RefCell::new(String::new()),
        })
    }

    /// The connection, if it stands.
    pub(super) fn conn(&self) -> Option<Rc<Connection>> {
        self.conn.borrow().as_ref().filter(|conn| !conn.is_closed()).cloned()
    }

    pub(super) fn set_conn(&self, conn: Option<Rc<Connection>>) {
        *self.conn.borrow_mut() = conn;
        self.changed.notify_all();
    }

    /// True if this is the lane's connection.
    pub(super) fn has(&self, conn: &Rc<Connection>) -> bool {
        self.conn.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, conn))
    }

    pub(super) fn close(&self, reason: &str) {
        self.closed.set(true);
        let conn = self.conn.borrow_mut().take();
        if let Some(conn) = conn {
            conn.close(reason);
        }
        self.changed.notify_all();
    }
}

/// Lane of a session: 0 is the OSD's public address, reactor N has lane N + 1.
pub(super) type LaneIndex = usize;

/// The lane of the public address.
pub(super) const PUBLIC: LaneIndex = 0;

/// The client's knowledge of an OSD's reactors.
pub(super) enum Route {
    /// One lane for everything: single route, or an OSD that does not tell.
    Single,
    /// Not told yet: operations wait.
    Unknown,
    /// Told by the OSD.
    Known(RouteTable),
}

/// The answer to a Route message.
pub(super) struct RouteTable {
    /// Port of each reactor.
    pub(super) ports: Vec<u16>,
    /// Map that the answer is good for: a PG that is missing in it may appear later.
    epoch: Epoch,
    lanes: HashMap<PgId, LaneIndex, FixedState>,
}

impl RouteTable {
    /// `None` if the OSD names no reactors. `asked` is the client's map when it asked.
    pub(super) fn new(reply: RouteReply, asked: Epoch) -> Option<RouteTable> {
        let reactors = reply.reactors.len();
        if reactors == 0 {
            return None;
        }
        let known = reply.pgs.into_iter().map(|(pg, shard)| (pg, usize::from(shard)));
        let lanes = known.filter(|(_, shard)| *shard < reactors).map(|(pg, shard)| (pg, shard + 1)).collect();
        Some(RouteTable { ports: reply.reactors, epoch: reply.epoch.max(asked), lanes })
    }
}

impl Route {
    /// The lane for operations on `pg` while the map is of `epoch`; `None`: the OSD has to be asked (again) first.
    pub(super) fn lane(&self, pg: PgId, epoch: Epoch) -> Option<LaneIndex> {
        match self {
            Route::Single => Some(PUBLIC),
            Route::Unknown => None,
            Route::Known(table) => match table.lanes.get(&pg) {
                Some(lane) => Some(*lane),
                // A new pool or a new member of the PG: it was dealt to a reactor after we asked.
                None if table.epoch < epoch => None,
                None => Some(PUBLIC),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(asked: u32) -> Route {
        let pgs = vec![(PgId::new(1, 0), 0), (PgId::new(1, 1), 1), (PgId::new(1, 2), 9)];
        let reply = RouteReply { epoch: Epoch(5), reactors: vec![7001, 7002], pgs };
        Route::Known(RouteTable::new(reply, Epoch(asked)).unwrap())
    }

    #[test]
    fn each_pg_has_the_lane_of_its_reactor() {
        let route = table(4);
        assert_eq!(route.lane(PgId::new(1, 0), Epoch(5)), Some(1));
        assert_eq!(route.lane(PgId::new(1, 1), Epoch(9)), Some(2));
        // Dealt to a reactor that does not exist: as if unknown.
        assert_eq!(route.lane(PgId::new(1, 2), Epoch(5)), Some(PUBLIC));
    }

    #[test]
    fn an_unknown_pg_is_asked_for_once_per_map() {
        let route = table(4);
        assert_eq!(route.lane(PgId::new(2, 0), Epoch(5)), Some(PUBLIC));
        assert_eq!(route.lane(PgId::new(2, 0), Epoch(6)), None);
        assert_eq!(table(6).lane(PgId::new(2, 0), Epoch(6)), Some(PUBLIC));
        assert_eq!(Route::Unknown.lane(PgId::new(1, 0), Epoch(1)), None);
        assert_eq!(Route::Single.lane(PgId::new(1, 0), Epoch(1)), Some(PUBLIC));
    }
}
