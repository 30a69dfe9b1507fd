//! A placement group on the reactor that owns it.
//!
//! Phases: `Loading` (state comes from the store) → by the map: primary of a full acting set: `Peering` → `Active`;
//! member but not primary: `Replica`; fewer OSDs up than the pool's size: `Down`; not a member: `Stray`. A new interval
//! (other acting set, or one of its OSDs restarted) begins again.
//!
//! Invariants: versions are given at submission, without a suspension in between; what is durable is a prefix of the log;
//! a write is answered when it is durable here and on every replica; a read waits for the writes of its object.

mod activate;
mod exec;
mod follow;
mod interval;
mod list;
mod log;
mod object;
mod replica;
mod replicate;
mod run;
mod txn;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use carmine_reactor::sync::Notify;
use carmine_types::{Epoch, Eversion, OsdId, PgId, errno};
use carmine_wire::EntityAddr;

pub(crate) use follow::not_ready;
pub(crate) use log::PgLog;
pub(crate) use object::Objects;
pub(crate) use replica::ReplyPath;
pub(crate) use replicate::on_ack;

use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;
use replica::Replica;
use replicate::InFlight;

/// What a PG is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its state is being read from the store.
    Loading,
    /// Not all OSDs of the acting set are up.
    Down(String),
    /// The primary is making all copies equal.
    Peering,
    /// The primary found something that it must not overwrite, or cannot go on.
    Incomplete(String),
    /// Serves clients.
    Active,
    /// Serves a primary.
    Replica,
    /// Not a member of the acting set.
    Stray,
}

impl Phase {
    /// State and reason, as `status` shows them.
    pub(crate) fn describe(&self) -> (&'static str, String) {
        match self {
            Phase::Loading => ("loading", String::new()),
            Phase::Down(why) => ("down", why.clone()),
            Phase::Peering => ("peering", String::new()),
            Phase::Incomplete(why) => ("incomplete", why.clone()),
            Phase::Active => ("active+clean", String::new()),
            Phase::Replica => ("replica", String::new()),
            Phase::Stray => ("stray", String::new()),
        }
    }
}

/// One PG.
pub(crate) struct Pg {
    pub id: PgId,
    /// Low hash bits that its objects share, for listing.
    pub bits: Cell<u32>,
    pub phase: RefCell<Phase>,
    /// Members of the interval with their addresses, primary first: if any of it changes, a new interval begins.
    pub members: RefCell<Vec<(OsdId, EntityAddr)>>,
    /// Epoch at which this OSD saw the interval begin.
    pub interval: Cell<Epoch>,
    pub log: RefCell<PgLog>,
    pub objects: Objects,
    /// Writes not yet durable everywhere, oldest first (primary).
    pub in_flight: RefCell<VecDeque<Rc<InFlight>>>,
    /// Operations that wait until the PG is active.
    pub waiting: RefCell<VecDeque<ClientOp>>,
    /// What it does for another primary.
    pub replica: Replica,
    /// Fires when phase or interval change.
    pub changed: Notify,
}

impl Pg {
    pub(crate) fn new(id: PgId) -> Rc<Pg> {
        Rc::new(Pg {
            id,
            bits: Cell::new(0),
            phase: RefCell::new(Phase::Loading),
            members: RefCell::default(),
            interval: Cell::new(Epoch(0)),
            log: RefCell::new(PgLog::new(id)),
            objects: Objects::default(),
            in_flight: RefCell::default(),
            waiting: RefCell::default(),
            replica: Replica::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn is_active(&self) -> bool {
        *self.phase.borrow() == Phase::Active
    }

    /// Primary's followers.
    pub(crate) fn replicas(&self) -> Vec<OsdId> {
        self.members.borrow().iter().skip(1).map(|(osd, _)| *osd).collect()
    }

    pub(crate) fn acting(&self) -> Vec<OsdId> {
        self.members.borrow().iter().map(|(osd, _)| *osd).collect()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        *self.phase.borrow_mut() = phase;
        self.changed.notify_all();
    }

    /// The version of the next write. Epochs of the log never fall, so versions rise across intervals too.
    pub(crate) fn next_version(&self, epoch: Epoch) -> Eversion {
        let last = self.log.borrow().info.last_update;
        Eversion::new(epoch.0.max(last.epoch), last.version + 1)
    }

    /// Takes an operation of a client: starts it, keeps it until the PG is active, or drops it if this OSD is not the
    /// PG's primary any more (its client finds the new one).
    pub(crate) fn take(self: &Rc<Self>, osd: &Rc<OsdShard>, op: ClientOp) {
        self.take_or_wait(osd, op, false);
    }

    /// The same for an operation that was started already: it waits before those that came after it.
    pub(crate) fn take_again(self: &Rc<Self>, osd: &Rc<OsdShard>, op: ClientOp) {
        self.take_or_wait(osd, op, true);
    }

    fn take_or_wait(self: &Rc<Self>, osd: &Rc<OsdShard>, op: ClientOp, late: bool) {
        let not_ours = match *self.phase.borrow() {
            Phase::Active => None,
            Phase::Replica | Phase::Stray => Some(true),
            _ => Some(false),
        };
        match not_ours {
            None => run::start(osd, self, op),
            Some(true) => osd.metrics.borrow_mut().ops_dropped.inc(),
            Some(false) => {
                if let Some(op) = self.wait(op, late) {
                    op.reply(osd, Outcome::error(errno::EAGAIN));
                }
            }
        }
    }

    /// Keeps an operation until the PG is active; gives it back if there are too many. A client sends its operations
    /// again in a new interval, and believes the answer to the last sending only: that one takes the place of the one
    /// before it, and whatever comes late goes before what its client sent after it.
    fn wait(&self, op: ClientOp, late: bool) -> Option<ClientOp> {
        let mut waiting = self.waiting.borrow_mut();
        let id = op.reqid;
        let after =
            |w: &ClientOp| (w.reqid.client, w.reqid.inc) == (id.client, id.inc) && w.reqid.tid >= id.tid;
        let late = late || op.request.retry_attempt > 0;
        let at = if late { waiting.iter().position(after) } else { None };
        if let Some(same) = at.and_then(|at| waiting.get_mut(at)).filter(|w| w.reqid == id) {
            let is_newer = op.request.retry_attempt > same.request.retry_attempt;
            let replaced = if is_newer { std::mem::replace(same, op) } else { op };
            drop(waiting);
            drop(replaced); // gives its room back, which may wake its connection
            return None;
        }
        if waiting.len() >= crate::config::WAITING_OPS_MAX {
            return Some(op);
        }
        let at = at.unwrap_or(waiting.len());
        waiting.insert(at, op);
        None
    }

    /// Starts what waited; called when the PG became active.
    pub(crate) fn resume(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for op in waiting {
            self.take(osd, op);
        }
    }
}
