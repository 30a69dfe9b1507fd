//! A placement group on the reactor that owns it.
//!
//! Phases: `Loading` (state comes from the store) → by the map: primary of a full acting set: `Peering` → `Active`;
//! member but not primary: `Replica`; fewer OSDs up than the pool's size: `Down`; not a member: `Stray`. A new interval
//! (other acting set, or one of its OSDs restarted) begins again.
//!
//! An operation takes its turn on its object (`object`), runs (`run`, `exec`), and a write is then given to the store and
//! the replicas in one step (`txn`, `replicate`) and stands in `inflight` until it is durable everywhere. That happens in
//! the order of versions, on each member, so that one number, `committed`, says it all.
//!
//! Invariants: versions are given at submission, without a suspension in between; what is durable is a prefix of the log;
//! a write is answered when it is durable here and on every replica; a read waits for the writes of its object. A task
//! that was suspended looks whether its turn is still the PG's before it touches anything: in a new turn the operations
//! of the old one are started over, in order, or were dropped.

mod activate;
mod commit;
mod exec;
mod extra;
mod follow;
mod heal;
mod inflight;
mod interval;
mod list;
mod log;
mod object;
mod ops;
mod remove;
mod replica;
mod replicate;
mod report;
mod run;
mod txn;
mod usage;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use carmine_pgtypes::{LogEntry, Transaction, pg_contains};
use carmine_reactor::sync::Notify;
use carmine_store::StoreError;
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, SpgId, errno};

pub(crate) use exec::State;
pub(crate) use extra::{Extra, decode as decode_input};
pub(crate) use follow::not_ready;
pub(crate) use log::PgLog;
pub(crate) use object::Queued;
pub(crate) use ops::OpInFlight;
pub(crate) use remove::{WHOLE_POOL, remove_objects, remove_orphans};
pub(crate) use replica::ReplyPath;

use crate::op::{ClientOp, Outcome};
use crate::shard::OsdShard;
use crate::watch::Watches;
use commit::Commits;
use inflight::InFlight;
use interval::Member;
use object::Objects;
use replica::Replica;
use replicate::Follower;
use usage::Usage;

/// What a PG is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its state is being read from the store.
    Loading,
    /// Not all OSDs of the acting set are up.
    Down(String),
    /// The primary is making all copies equal; with what it does or waits for.
    Peering(String),
    /// The primary found something that it must not overwrite, or cannot go on.
    Incomplete(String),
    /// Serves clients.
    Active,
    /// Serves a primary; `true` once that has activated the interval.
    Replica(bool),
    /// Not a member of the acting set.
    Stray,
    /// Its store failed: nothing is acknowledged any more.
    Failed(String),
}

impl Phase {
    /// Ceph's name of the state in which a primary does not serve clients; `None` if it does.
    pub(crate) fn stuck(&self) -> Option<&'static str> {
        match self {
            Phase::Active => None,
            Phase::Loading | Phase::Replica(_) | Phase::Stray => Some("peering"),
            Phase::Failed(_) => Some("failed"),
            Phase::Down(_) | Phase::Peering(_) | Phase::Incomplete(_) => Some(self.describe().0),
        }
    }

    /// State and reason, as `status` shows them.
    pub(crate) fn describe(&self) -> (&'static str, String) {
        match self {
            Phase::Loading => ("loading", String::new()),
            Phase::Down(why) => ("down", why.clone()),
            Phase::Peering(why) => ("peering", why.clone()),
            Phase::Incomplete(why) => ("incomplete", why.clone()),
            Phase::Active => ("active+clean", String::new()),
            Phase::Replica(true) => ("replica", String::new()),
            Phase::Replica(false) => ("replica", "waits for the primary".to_owned()),
            Phase::Stray => ("stray", String::new()),
            Phase::Failed(why) => ("failed", why.clone()),
        }
    }
}

/// One PG. No borrow of its cells lasts across a suspension, or while an operation is answered.
pub(crate) struct Pg {
    pub id: SpgId,
    /// Low hash bits that its objects share.
    pub bits: Cell<u32>,
    pub phase: RefCell<Phase>,
    /// Info and log were read from the store.
    loaded: Cell<bool>,
    /// Members of the interval, primary first: if any of it changes, a new interval begins.
    members: RefCell<Vec<Member>>,
    /// Epoch at which this OSD saw the interval begin.
    pub interval: Cell<Epoch>,
    /// Counts intervals, and their restarts.
    turn: Cell<u64>,
    /// Counts this primary's attempts to activate it.
    attempt: Cell<u64>,
    /// Who has to lead instead of this primary, which cannot make the copies equal (primary).
    successor: Cell<Option<OsdId>>,
    /// In this epoch the monitor was told that all members are complete, and some of them may now leave (primary).
    promised: Cell<Epoch>,
    pub log: RefCell<PgLog>,
    objects: RefCell<Objects<Rc<ClientOp>>>,
    /// Writes not yet durable everywhere, oldest first (primary).
    pub in_flight: RefCell<InFlight>,
    /// The replicas (primary, active).
    followers: RefCell<Vec<Follower>>,
    commits: Commits,
    /// Version number up to which everything is durable here.
    local: Cell<u64>,
    /// Version number up to which everything is durable everywhere (primary).
    committed: Cell<u64>,
    /// `settle` is at work.
    settling: Cell<bool>,
    /// Operations that wait until the PG is active.
    pub waiting: RefCell<VecDeque<Rc<ClientOp>>>,
    /// What it holds (primary).
    pub usage: RefCell<Usage>,
    /// Who watches its objects (primary); `None` until somebody does.
    pub watches: RefCell<Option<Box<Watches>>>,
    /// What it does for another primary.
    pub replica: Replica,
    /// Fires when phase, turn or `committed` change.
    pub changed: Notify,
}

impl Pg {
    pub(crate) fn new(id: SpgId) -> Rc<Pg> {
        Rc::new(Pg {
            id,
            bits: Cell::new(0),
            phase: RefCell::new(Phase::Loading),
            loaded: Cell::new(false),
            members: RefCell::default(),
            interval: Cell::new(Epoch(0)),
            turn: Cell::new(0),
            attempt: Cell::new(0),
            successor: Cell::new(None),
            promised: Cell::new(Epoch(0)),
            log: RefCell::new(PgLog::new(id)),
            objects: RefCell::default(),
            in_flight: RefCell::default(),
            followers: RefCell::default(),
            commits: Commits::default(),
            local: Cell::new(0),
            committed: Cell::new(0),
            settling: Cell::new(false),
            waiting: RefCell::default(),
            usage: RefCell::default(),
            watches: RefCell::default(),
            replica: Replica::default(),
            changed: Notify::new(),
        })
    }

    /// The object is one of this PG's by the newest map. What comes from outside is asked before anything else: an object
    /// that two PGs change may have two reactors as its owners.
    pub(crate) fn contains(&self, oid: &ObjectId) -> bool {
        pg_contains(self.id, self.bits.get(), oid)
    }

    /// An empty transaction of this PG.
    pub(crate) fn transaction(&self) -> Transaction {
        Transaction::new(self.id, self.bits.get())
    }

    pub(crate) fn is_active(&self) -> bool {
        *self.phase.borrow() == Phase::Active
    }

    /// Primary's followers.
    fn replicas(&self) -> Vec<OsdId> {
        self.members.borrow().iter().skip(1).map(|member| member.osd).collect()
    }

    /// This OSD is its primary.
    pub(crate) fn leads(&self, osd: &OsdShard) -> bool {
        self.members.borrow().first().is_some_and(|first| first.osd == osd.config.id)
    }

    pub(crate) fn acting(&self) -> Vec<OsdId> {
        self.members.borrow().iter().map(|member| member.osd).collect()
    }

    /// Objects on which something waits, runs or is not durable.
    pub(crate) fn busy_objects(&self) -> usize {
        self.objects.borrow().len()
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.borrow_mut() = phase;
        self.changed.notify_all();
    }

    /// The turn in which a task began is over.
    fn is_past(&self, turn: u64) -> bool {
        self.turn.get() != turn
    }

    /// The version of the next write. Epochs of the log never fall, so versions rise across intervals too.
    fn next_version(&self, epoch: Epoch) -> Eversion {
        let last = self.log.borrow().info.last_update;
        Eversion::new(epoch.0.max(last.epoch), last.version + 1)
    }

    /// A submitted entry is the newest of the log.
    fn note_entry(&self, entry: LogEntry, trim_to: Option<Eversion>) {
        let mut log = self.log.borrow_mut();
        log.push(entry);
        if let Some(to) = trim_to {
            log.trim(to);
        }
    }

    /// Takes an operation of a client: starts it, keeps it until the PG is active, or drops it if this OSD is not the
    /// PG's primary any more (its client finds the new one). One that waited comes here again.
    pub(crate) fn take(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        if self.is_misdirected(&op) {
            return self.turn_away(osd, &op);
        }
        let not_ours = match *self.phase.borrow() {
            Phase::Active => None,
            Phase::Replica(_) | Phase::Stray => Some(true),
            _ => Some(false),
        };
        match not_ours {
            None => self.start(osd, op),
            Some(true) => {
                osd.metrics.borrow_mut().ops_dropped.inc();
                op.abandon();
            }
            Some(false) => {
                if let Some(op) = self.wait(op) {
                    op.reply(osd, Outcome::error(errno::EAGAIN));
                }
            }
        }
    }

    /// It names an object, or a pool, that is not this PG's.
    fn is_misdirected(&self, op: &ClientOp) -> bool {
        op.request.locator.pool != self.id.pgid.pool || !(self.contains(&op.oid) || op.is_pg_op())
    }

    /// Ends a misdirected operation. By an older map the object may have been this PG's: then its client, which has our map
    /// or was just sent it, finds the right one itself.
    fn turn_away(&self, osd: &OsdShard, op: &ClientOp) {
        if op.request.epoch < osd.epoch() {
            osd.metrics.borrow_mut().ops_dropped.inc();
            return op.abandon();
        }
        tracing::debug!("pg {}: {} is misdirected", self.id, op.oid);
        self.finish_read(osd, op, Outcome::error(errno::ENXIO));
    }

    /// Keeps an operation until the PG is active; gives it back if there are too many. A client sends its operations
    /// again in a new interval, and believes the answer to the last sending only: that one takes the place of the one
    /// before it, and otherwise goes before what its client sent after it.
    fn wait(&self, op: Rc<ClientOp>) -> Option<Rc<ClientOp>> {
        let mut waiting = self.waiting.borrow_mut();
        let id = op.reqid;
        let is_after =
            |w: &Rc<ClientOp>| (w.reqid.client, w.reqid.inc) == (id.client, id.inc) && w.reqid.tid >= id.tid;
        let again = op.request.retry_attempt > 0;
        let at = if again { waiting.iter().position(is_after) } else { None };
        if let Some(same) = at.and_then(|at| waiting.get_mut(at)).filter(|w| w.reqid == id) {
            let is_newer = op.request.retry_attempt > same.request.retry_attempt;
            let replaced = if is_newer { std::mem::replace(same, op) } else { op };
            drop(waiting);
            replaced.abandon(); // gives its room back, which may wake its connection
            return None;
        }
        if waiting.len() >= crate::config::WAITING_OPS_MAX {
            return Some(op);
        }
        let at = at.unwrap_or(waiting.len());
        waiting.insert(at, op);
        None
    }

    /// Forgets the waiting operations of a client that is gone: it sends them again if it comes back.
    pub(crate) fn forget(&self, is_gone: impl Fn(&ClientOp) -> bool) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        let (gone, left): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(|op| is_gone(op));
        *self.waiting.borrow_mut() = left;
        gone.iter().for_each(|op| op.abandon());
    }

    /// Starts what waited; called when the PG became active.
    fn resume(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        while self.is_active() {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(op) = next else { return };
            self.take(osd, op);
        }
    }

    /// Takes all operations out, in the order in which they have to be started again.
    fn take_ops(&self) -> VecDeque<Rc<ClientOp>> {
        let mut ops: VecDeque<_> = self.in_flight.borrow_mut().drain().collect();
        ops.extend(self.objects.borrow_mut().drain());
        ops.extend(std::mem::take(&mut *self.waiting.borrow_mut()));
        ops
    }

    /// A new turn: tasks of the old one end without effect, and its operations wait to be started over.
    fn next_turn(&self) {
        self.turn.set(self.turn.get() + 1);
        let ops = self.take_ops();
        ops.iter().for_each(|op| op.release_more());
        *self.waiting.borrow_mut() = ops;
        self.followers.borrow_mut().clear();
        self.successor.set(None);
        self.changed.notify_all();
    }

    /// Forgets all operations: their clients send them to the new primary.
    fn drop_ops(&self, osd: &OsdShard) {
        let ops = std::mem::take(&mut *self.waiting.borrow_mut());
        osd.metrics.borrow_mut().ops_dropped.add(ops.len() as u64);
        ops.iter().for_each(|op| op.abandon());
    }

    /// The store failed: nothing may be acknowledged any more. Operations wait, as for a PG without OSDs; a primary that
    /// waits for this copy is told.
    fn fail(&self, osd: &OsdShard, what: &str, error: &StoreError) {
        tracing::error!("pg {}: {what}: {error}", self.id);
        self.next_turn();
        self.set_phase(Phase::Failed(format!("{what}: {error}")));
        self.report_failure(osd, error.errno());
    }
}
