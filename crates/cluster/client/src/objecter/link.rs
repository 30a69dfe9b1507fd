//! Making connections to OSDs, and what follows when they come and go.

use super::Objecter;
use super::session::{Lane, LaneIndex, PUBLIC, Route, RouteTable, Session};
use crate::error::{ClientError, Result};
use carmine_messenger::{Connection, Dispatcher, Message, connect, with_timeout};
use carmine_reactor::Group;
use carmine_types::OsdId;
use carmine_wire::EntityType;
use carmine_wire::private::{Admin, AdminReply, Route as RouteRequest, RouteReply};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Time an OSD has to tell its route.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(5);

/// Gets what comes in on one lane.
struct LaneDispatcher {
    objecter: Weak<Objecter>,
    session: Weak<Session>,
    lane: Weak<Lane>,
}

impl LaneDispatcher {
    fn upgrade(&self) -> Option<(Rc<Objecter>, Rc<Session>, Rc<Lane>)> {
        Some((self.objecter.upgrade()?, self.session.upgrade()?, self.lane.upgrade()?))
    }
}

impl Dispatcher for LaneDispatcher {
    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        if let Some((objecter, session, lane)) = self.upgrade() {
            objecter.on_message(&session, &lane, conn, msg);
        }
    }

    fn on_closed(&self, conn: &Rc<Connection>, reason: &str) {
        if let Some((objecter, session, lane)) = self.upgrade() {
            objecter.on_lane_closed(&session, &lane, conn, reason);
        }
    }
}

impl Objecter {
    /// Sees to it that a lane gets its connection.
    pub(super) fn want(&self, session: &Rc<Session>, index: LaneIndex) {
        let Some(lane) = session.lane(index) else { return };
        if session.is_closed() || lane.conn().is_some() || lane.connecting.replace(true) {
            return;
        }
        let Some(objecter) = self.own.upgrade() else { return };
        let session = Rc::clone(session);
        self.shard.spawn(Group::Client, "objecter-connect", connect_lane(objecter, session, lane));
    }

    fn on_lane_closed(&self, session: &Rc<Session>, lane: &Rc<Lane>, conn: &Rc<Connection>, reason: &str) {
        tracing::info!(osd = %session.osd, addr = %lane.target.dial, %reason, "connection to OSD lost");
        *lane.fault.borrow_mut() = reason.to_owned();
        if lane.has(conn) {
            lane.set_conn(None);
            lane.lost.set(true);
        }
        if lane.index == PUBLIC {
            // Requests of this kind are not sent again: their callers decide.
            session.pending.fail_all();
        }
        session.holds.clear();
        let id = conn.id();
        self.table.borrow_mut().iter().filter(|op| op.sent_on == id).for_each(|op| op.sent_on = 0);
        // Asks for a new connection if something waits for it.
        self.kick(session.osd);
    }

    /// Asks an OSD for its route, unless that is under way.
    pub(super) fn ask_route(&self, session: &Rc<Session>) {
        let Some(conn) = session.up(PUBLIC) else { return self.want(session, PUBLIC) };
        if session.asking.replace(true) {
            return;
        }
        let Some(objecter) = self.own.upgrade() else { return };
        let session = Rc::clone(session);
        self.shard.spawn(Group::Client, "objecter-route", async move {
            objecter.route_told(&session, &conn).await;
            session.asking.set(false);
            objecter.kick(session.osd);
        });
    }

    /// Sends Route and takes over the answer.
    async fn route_told(&self, session: &Session, conn: &Connection) {
        let asked = self.view().map(|view| view.epoch()).unwrap_or_default();
        let (id, reply) = session.pending.register(|_| Message::encode(&RouteRequest { epoch: asked }));
        session.pending.send(id, conn);
        let answer = with_timeout(&self.shard, ROUTE_TIMEOUT, reply).await;
        let route = match answer {
            // The connection ended: asked again when it is back.
            Some(Err(_)) => return,
            Some(Ok(msg)) => msg.decode::<RouteReply>().map_err(|error| error.to_string()),
            None => Err(format!("no answer within {ROUTE_TIMEOUT:?}")),
        };
        let route = route
            .and_then(|reply| RouteTable::new(reply, asked).ok_or_else(|| "it names no reactors".to_owned()));
        match route {
            Ok(table) => {
                session.set_route(Route::Known(table));
                self.reroute(session);
            }
            Err(reason) => {
                tracing::warn!(osd = %session.osd, reason, "no route: everything goes through its public port");
                session.set_route(Route::Single);
            }
        }
    }

    /// Sends operations again that are on another lane than the new route says: later ones on the same object go there,
    /// and must not overtake them.
    fn reroute(&self, session: &Session) {
        let Some(epoch) = self.view().map(|view| view.epoch()) else { return };
        let lanes: Vec<u64> =
            session.lanes().iter().map(|lane| lane.conn().map_or(0, |conn| conn.id())).collect();
        let route = session.route.borrow();
        let mut table = self.table.borrow_mut();
        for op in table.iter().filter(|op| op.osd == Some(session.osd) && op.sent_on != 0) {
            let lane = route.lane(op.request.pg, epoch).unwrap_or(PUBLIC);
            if lanes.get(lane) != Some(&op.sent_on) {
                op.sent_on = 0;
            }
        }
    }

    /// Sends a private Admin message to an OSD and returns the answer.
    pub(crate) async fn admin(&self, osd: OsdId, json: &str, limit: Duration) -> Result<AdminReply> {
        let what = format!("admin request to {osd}");
        let ask = self.admin_once(osd, json, &what);
        with_timeout(&self.shard, limit, ask).await.unwrap_or_else(|| {
            Err(ClientError::Timeout { what: what.clone(), after: limit, hint: String::new() })
        })
    }

    async fn admin_once(&self, osd: OsdId, json: &str, what: &str) -> Result<AdminReply> {
        let epoch = self.view().map_or(0, |view| view.epoch().0);
        let (session, _) = self.session(osd).ok_or(ClientError::OsdDown(osd, epoch))?;
        let conn = self.public(&session).await.ok_or(ClientError::OsdDown(osd, epoch))?;
        let (id, reply) =
            session.pending.register(|_| Message::encode(&Admin { json: json.as_bytes().to_vec() }));
        session.pending.send(id, &conn);
        let msg = reply.await.map_err(|_| ClientError::Lost(what.to_owned()))?;
        msg.decode().map_err(|e| ClientError::BadReply { what: what.to_owned(), reason: e.to_string() })
    }

    /// The connection to an OSD's public port, once it stands. `None` if the session was ended.
    async fn public(&self, session: &Rc<Session>) -> Option<Rc<Connection>> {
        let lane = session.lane(PUBLIC)?;
        lane.waiting.set(lane.waiting.get() + 1);
        let conn = loop {
            if session.is_closed() {
                break None;
            }
            if let Some(conn) = lane.conn() {
                break Some(conn);
            }
            self.want(session, PUBLIC);
            lane.changed.notified().await;
        };
        lane.waiting.set(lane.waiting.get() - 1);
        conn
    }

    /// True if something waits for this session's connections.
    fn is_wanted(&self, session: &Session, lane: &Lane) -> bool {
        let mut table = self.table.borrow_mut();
        lane.waiting.get() > 0 || table.iter().any(|op| op.osd == Some(session.osd) && op.sent_on == 0)
    }
}

/// Tries until the lane has a connection, or nobody wants it any more.
async fn connect_lane(objecter: Rc<Objecter>, session: Rc<Session>, lane: Rc<Lane>) {
    let shard = objecter.shard.clone();
    let config = Rc::clone(&objecter.config);
    let dispatcher = Rc::new(LaneDispatcher {
        objecter: Rc::downgrade(&objecter),
        session: Rc::downgrade(&session),
        lane: Rc::downgrade(&lane),
    });
    // Not to be kept alive by an attempt to connect.
    let weak = Rc::downgrade(&objecter);
    drop(objecter);
    if lane.lost.take() {
        shard.sleep(lane.pace.next(shard.random_u64())).await;
    }
    loop {
        let outcome =
            connect(&shard, lane.target, EntityType::OSD, Rc::clone(&config), dispatcher.clone()).await;
        let Some(objecter) = weak.upgrade() else { return };
        let error = match outcome {
            Ok(conn) if lane.closed.get() => return conn.close("the session was ended"),
            Ok(conn) => {
                lane.set_conn(Some(conn));
                lane.connecting.set(false);
                lane.fault.borrow_mut().clear();
                return objecter.kick(session.osd);
            }
            Err(error) => error.to_string(),
        };
        tracing::info!(osd = %session.osd, error, "cannot connect to OSD");
        *lane.fault.borrow_mut() = error;
        drop(objecter);
        shard.sleep(lane.pace.next(shard.random_u64())).await;
        let Some(objecter) = weak.upgrade() else { return };
        if lane.closed.get() || !objecter.is_wanted(&session, &lane) {
            return lane.connecting.set(false);
        }
    }
}
