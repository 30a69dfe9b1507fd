//! Operations on their way: from an object's name to the OSD that serves it, through map changes and lost connections.
//!
//! Every operation is in the [`Table`] from its submission to its end. At any time it is in one of three places: sent on a
//! connection that stands, waiting for a connection (or route) of its OSD, or parked because the map has no primary for its
//! PG or says to wait. Whatever happens (a new map, a lost connection, an answer "try again"), the operations concerned are
//! put back to *waiting* and [`Objecter::kick`] sends what can be sent, in the order of submission. So writes to one object
//! leave in the order in which they were submitted, also after a fault.

mod link;
mod op;
mod remap;
mod reply;
mod session;
mod tick;

pub(crate) use op::{Ask, describe};
pub use op::{Output, Reply};

use crate::error::{ClientError, Result};
use crate::maps::Maps;
use crate::options::{OPS_IN_FLIGHT_MAX, Options};
use carmine_crush::MapView;
use carmine_messenger::{ClientConfig, Connection, ConnectionStats, with_timeout};
use carmine_reactor::Shard;
use carmine_reactor::sync::{Permit, Semaphore};
use carmine_types::{Epoch, OsdId};
use carmine_wire::osd_op::{OsdRequest, flags, ops};
use op::{InFlight, Op, Table};
use session::Session;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Sends operations. One per client; lives on one shard.
pub(crate) struct Objecter {
    /// For tasks that outlive the call that starts them.
    own: Weak<Objecter>,
    shard: Shard,
    config: Rc<ClientConfig>,
    options: Options,
    maps: Rc<Maps>,
    /// The current map with its placements. `None` until the first one comes.
    view: RefCell<Option<Arc<MapView>>>,
    table: RefCell<Table>,
    sessions: RefCell<BTreeMap<OsdId, Rc<Session>>>,
    ops_budget: Semaphore,
    bytes_budget: Semaphore,
    closed: Cell<bool>,
}

impl Objecter {
    pub(crate) fn start(
        shard: &Shard,
        config: Rc<ClientConfig>,
        options: Options,
        maps: Rc<Maps>,
    ) -> Rc<Objecter> {
        let objecter = Rc::new_cyclic(|own| Objecter {
            own: Weak::clone(own),
            shard: shard.clone(),
            config,
            ops_budget: Semaphore::new(options.ops_in_flight.clamp(1, OPS_IN_FLIGHT_MAX)),
            bytes_budget: Semaphore::new(options.bytes_in_flight.max(1)),
            options,
            maps: Rc::clone(&maps),
            view: RefCell::new(None),
            table: RefCell::new(Table::default()),
            sessions: RefCell::new(BTreeMap::new()),
            closed: Cell::new(false),
        });
        let weak = Rc::downgrade(&objecter);
        maps.watch(move |map| {
            if let Some(objecter) = weak.upgrade() {
                objecter.on_map(map);
            }
        });
        tick::start(&objecter);
        objecter
    }

    /// The current map with its placements.
    pub(crate) fn view(&self) -> Option<Arc<MapView>> {
        self.view.borrow().clone()
    }

    /// Does what is asked, however many attempts it takes.
    ///
    /// # Errors
    /// The OSD's errno, the time limit, or that the client was shut down.
    pub(crate) async fn execute(self: &Rc<Self>, ask: Ask) -> Result<Reply> {
        let permits = match self.try_admit(&ask) {
            Some(permits) => permits,
            None => self.admit(&ask).await?,
        };
        let tid = self.submit(ask, permits)?;
        InFlight { objecter: Rc::clone(self), tid }.await
    }

    /// Operations in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.borrow().len()
    }

    /// Connections that stand: OSD, TCP port, counters.
    pub(crate) fn connections(&self) -> Vec<(OsdId, u16, ConnectionStats)> {
        let sessions = self.sessions.borrow();
        let lanes = sessions.values().flat_map(|session| {
            session.lanes().into_iter().filter_map(|lane| Some((session.osd, lane.conn()?)))
        });
        lanes.map(|(osd, conn)| (osd, conn.peer().sock.port(), conn.stats())).collect()
    }

    /// Ends everything: operations in flight fail with [`ClientError::Closed`].
    pub(crate) fn shutdown(&self) {
        self.closed.set(true);
        self.table.borrow_mut().iter().for_each(|op| op.complete(Err(ClientError::Closed)));
        let sessions = std::mem::take(&mut *self.sessions.borrow_mut());
        sessions.values().for_each(|session| session.close("the client was shut down"));
    }

    /// The share of what may be in flight, if it is free.
    fn try_admit(&self, ask: &Ask) -> Option<[Permit; 2]> {
        let ops = self.ops_budget.try_acquire(1)?;
        let bytes = self.bytes_budget.try_acquire(weight(ask))?;
        Some([ops, bytes])
    }

    #[cold]
    async fn admit(&self, ask: &Ask) -> Result<[Permit; 2]> {
        let wait = async {
            let ops = self.ops_budget.acquire(1).await;
            [ops, self.bytes_budget.acquire(weight(ask)).await]
        };
        let Some(after) = ask.timeout else { return Ok(wait.await) };
        with_timeout(&self.shard, after, wait).await.ok_or_else(|| ClientError::Timeout {
            what: describe(&ask.request),
            after,
            hint: format!(" (not sent: {} operations were in flight before it)", self.in_flight()),
        })
    }

    fn submit(&self, ask: Ask, permits: [Permit; 2]) -> Result<u64> {
        if self.closed.get() {
            return Err(ClientError::Closed);
        }
        let now_ns = self.shard.now_ns();
        let after_ns = ask.timeout.map(|after| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let op = Op {
            tid: 0,
            request: ask.request,
            data: ask.data,
            osd: None,
            sent_on: 0,
            sent: false,
            sent_ns: 0,
            not_before_ns: 0,
            deadline_ns: after_ns.map_or(u64::MAX, |after| now_ns.saturating_add(after)),
            timeout: ask.timeout,
            outcome: None,
            waker: None,
            _permits: permits,
        };
        let mut table = self.table.borrow_mut();
        // The budget is not larger than the table, so there is always a slot.
        let tid = table.insert(op).ok_or(ClientError::Closed)?;
        if let Some(op) = table.get(tid) {
            self.aim(op);
            self.deliver(op, now_ns);
        }
        Ok(tid)
    }

    /// Sets the operation's PG and OSD from the current map.
    fn aim(&self, op: &mut Op) {
        let view = self.view.borrow();
        let Some(view) = view.as_ref() else { return };
        op.osd = remap::place(view, op);
    }

    /// Sends the operation if its connection stands; else sees to it that there will be one.
    fn deliver(&self, op: &mut Op, now_ns: u64) {
        let Some(osd) = op.osd else { return };
        if op.sent_on != 0 || op.outcome.is_some() || self.closed.get() {
            return;
        }
        let Some((session, epoch)) = self.session(osd) else { return };
        let lane = session.route.borrow().lane(op.request.pg, epoch);
        let Some(lane) = lane else { return self.ask_route(&session) };
        let Some(conn) = session.up(lane) else { return self.want(&session, lane) };
        let held = session.holds.covers(op.request.pg, &op.request);
        if !held && op.not_before_ns <= now_ns {
            transmit(op, &conn, epoch, now_ns);
        }
    }

    /// The session with an OSD that is up, and the epoch of the map that says so.
    fn session(&self, osd: OsdId) -> Option<(Rc<Session>, Epoch)> {
        let view = self.view.borrow();
        let view = view.as_ref()?;
        if let Some(session) = self.sessions.borrow().get(&osd) {
            return Some((Rc::clone(session), view.epoch()));
        }
        let addr = view.map().client_addr(osd)?.msgr2()?;
        let session = Session::new(osd, addr, self.options.route);
        self.sessions.borrow_mut().insert(osd, Rc::clone(&session));
        Some((session, view.epoch()))
    }

    /// Sends everything that waits for `osd` and can be sent now, in the order of submission.
    fn kick(&self, osd: OsdId) {
        let now_ns = self.shard.now_ns();
        let mut table = self.table.borrow_mut();
        for tid in table.pick(|op| op.osd == Some(osd) && op.sent_on == 0) {
            if let Some(op) = table.get(tid) {
                self.deliver(op, now_ns);
            }
        }
    }
}

impl Drop for Objecter {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Puts the operation on the connection.
fn transmit(op: &mut Op, conn: &Connection, epoch: Epoch, now_ns: u64) {
    op.request.epoch = epoch;
    if op.sent {
        op.request.retry_attempt += 1;
        op.request.flags |= flags::RETRY;
    }
    (op.sent, op.sent_on, op.sent_ns, op.not_before_ns) = (true, conn.id(), now_ns, 0);
    conn.send_with(&OsdRequest::header(op.tid), |out| op.request.encode_into(out), op.data.clone());
}

/// Bytes that an operation counts for: what it carries, and what it asks for.
fn weight(ask: &Ask) -> usize {
    let reads = ask.request.ops.iter().filter(|op| op.code == ops::READ);
    let asked: u64 = reads.map(|op| op.extent().length).fold(0, u64::saturating_add);
    ask.data.len().saturating_add(usize::try_from(asked).unwrap_or(usize::MAX))
}
