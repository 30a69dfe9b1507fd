//! A placement group on the reactor that owns it. It has four parts, each with private state:
//!
//! - `carmine_peering::Peering` decides what the PG does: phases, intervals, attempts. `shell` carries its effects out and
//!   brings it events; `push` copies objects to replicas; `follow` carries out the orders of another primary.
//! - `pipeline`: the operations, from those that wait for an active PG over the queue of each object (`object`) to the
//!   writes in flight.
//! - `log`: the PG log in memory, as the store has it.
//! - `backend`: makes a change durable on all members.
//!
//! `write` shows the whole path of a write; `read` that of everything else; `replica` applies the writes of another primary; `scrub`
//! compares the copies; `stat` is what the monitor is told.
//!
//! Invariants: versions are given at submission, without a suspension in between; what is durable is a prefix of the log;
//! a write is answered when it is durable here and on every replica; a read waits for the writes of its object. A task
//! that was suspended looks whether its generation is still the PG's before it touches anything: in a new one the operations
//! of the old one are started over, in order, or were dropped.

mod copies;
mod family;
mod op;
mod peer;
mod recovery;
mod scrub;

use std::cell::RefCell;
use std::rc::Rc;

use carmine_peering::{Peering, Phase, Reason};
use carmine_pgtypes::{LogEntry, PgHistory, PgInfo, Transaction, pg_contains};
use carmine_reactor::sync::Notify;
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, SpgId, errno, is_mutated};
use carmine_wire::osdmap::IntervalSet;

use crate::config::LogLimits;
use crate::op::{ClientOp, Outcome, Stage};
use crate::shard::OsdShard;
use crate::watch::Watched;
use copies::backend::Backend;
use copies::commit::Commits;
use copies::replica::Replica;
use op::list::Bits;
use op::pipeline::Pipeline;
use op::served::Served;
use op::snaps::Snaps;
use op::usage::Usage;
use peer::lease::Leases;
use peer::log::PgLog;
use peer::stat::Reported;
use recovery::Recoveries;
use scrub::Scrubs;

pub(crate) use copies::replica::ReplyPath;
pub(crate) use family::mapper::is_mapper;
pub(crate) use op::exec::{ObjectState, Outputs, Told};
pub(crate) use op::extra::{Extra, METHOD_BYTES_MAX};
pub(crate) use op::object::Queued;
pub(crate) use op::snaps::TRIMMED_TOLD_MAX;
pub(crate) use peer::follow::not_ready;
pub(crate) use peer::lease::{give_up_leases, start as start_leases};
pub(crate) use recovery::remove::{WHOLE_POOL, remove_objects, remove_orphans};
pub(crate) use recovery::{Reserver, start_strays};
pub(crate) use scrub::{Pace, Scrubber, order as order_scrubs, start as start_scrubs};

/// One PG. No borrow of its cells lasts across a suspension, or while an operation is answered.
pub(crate) struct Pg {
    pub(crate) id: SpgId,
    bits: Bits,
    peering: RefCell<Peering>,
    pipeline: Pipeline,
    /// Until when it may serve.
    leases: Leases,
    log: RefCell<PgLog>,
    backend: Backend,
    /// Writes of another primary on their way into the store.
    replica: Replica,
    commits: Commits,
    /// The number and the size of its objects (primary).
    usage: RefCell<Usage>,
    /// What its clients were answered (primary).
    served: Served,
    /// The statistics that were told last (primary).
    told: RefCell<Reported>,
    /// The watchers of its objects (primary).
    watched: Watched,
    /// The snapshots that it knows of.
    snaps: Snaps,
    /// Its scrubs (primary).
    scrub: Scrubs,
    /// Members that lack objects, and what is done for them.
    recovery: Recoveries,
    /// Fires when phase, generation or the committed version change.
    changed: Notify,
}

impl Pg {
    /// A PG whose state has yet to be read, on this OSD.
    pub(crate) fn new(id: SpgId, me: OsdId, limits: LogLimits) -> Rc<Pg> {
        Rc::new(Pg {
            id,
            bits: Bits::default(),
            peering: RefCell::new(Peering::new(me)),
            pipeline: Pipeline::new(limits.in_flight_max()),
            leases: Leases::default(),
            log: RefCell::new(PgLog::new(id)),
            backend: Backend::default(),
            replica: Replica::default(),
            commits: Commits::default(),
            usage: RefCell::default(),
            served: Served::default(),
            told: RefCell::default(),
            watched: Watched::default(),
            snaps: Snaps::default(),
            scrub: Scrubs::default(),
            recovery: Recoveries::default(),
            changed: Notify::new(),
        })
    }

    /// Low hash bits that its objects share.
    pub(crate) fn bits(&self) -> u32 {
        self.bits.get()
    }

    /// The watchers of its objects.
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Objects that it holds, the clones among them, and bytes, as far as they are counted (primary).
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        self.usage.borrow().totals()
    }

    /// The removed snapshots of which it has nothing any more, on any member.
    pub(crate) fn trimmed_snaps(&self) -> IntervalSet {
        if self.is_active() { self.snaps.trimmed() } else { IntervalSet::new() }
    }

    /// The object is one of this PG's by the newest map. Every object that is named from outside is checked for this
    /// before anything else: an object that two PGs change may have two reactors as its owners.
    pub(crate) fn contains(&self, oid: &ObjectId) -> bool {
        pg_contains(self.id, self.bits.get(), oid) || is_mutated("serve_stray")
    }

    /// An empty transaction of this PG.
    pub(crate) fn transaction(&self) -> Transaction {
        Transaction::new(self.id, self.bits.get())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.peering.borrow().is_active()
    }

    /// All its members have all of it, and nothing is unfound.
    fn is_clean(&self) -> bool {
        self.peering.borrow().is_clean() && self.log.borrow().info().unfound.is_empty()
    }

    /// This OSD is its primary.
    pub(crate) fn leads(&self) -> bool {
        self.peering.borrow().leads()
    }

    pub(crate) fn acting(&self) -> Vec<OsdId> {
        self.peering.borrow().acting().collect()
    }

    /// State and reason, as `status` shows them.
    pub(crate) fn describe(&self, osd: &OsdShard) -> (String, String) {
        let peering = self.peering.borrow();
        let phase = peering.phase();
        let state = peering.state(self.recovery.stage());
        if self.is_laggy(osd) {
            return (format!("{state}+laggy"), "its replicas have not renewed its read lease".to_owned());
        }
        (state, phase.reason().map(ToString::to_string).unwrap_or_default())
    }

    /// Its own record of its state.
    pub(crate) fn info(&self) -> PgInfo {
        self.log.borrow().info().clone()
    }

    /// Its interval, and those before it that may have served clients.
    pub(crate) fn history(&self) -> PgHistory {
        self.peering.borrow().intervals().known()
    }

    /// OSDs that have to come back, or to be given up, before it can serve clients.
    pub(crate) fn blocked_by(&self) -> Vec<OsdId> {
        self.peering.borrow().phase().reason().map(Reason::blocked_by).unwrap_or_default().to_vec()
    }

    /// Members that lack objects (primary): how many by the log, and where the backfill of those is that have one.
    pub(crate) fn recovery_targets(&self) -> Vec<(OsdId, usize, Option<ObjectId>)> {
        self.recovery.targets()
    }

    /// The unfound objects that were met since it is active (primary).
    pub(crate) fn unfound(&self) -> Vec<ObjectId> {
        self.recovery.unfound()
    }

    /// Ceph's name of the state of its state machine.
    pub(crate) fn recovery_state_name(&self) -> &'static str {
        match self.peering.borrow().phase() {
            Phase::Loading => "Reset",
            Phase::Down(_) => "Started/Primary/Peering/Down",
            Phase::Peering(_) => "Started/Primary/Peering",
            Phase::Incomplete(_) => "Started/Primary/Peering/Incomplete",
            Phase::Active => "Started/Primary/Active",
            Phase::Replica { active: true } => "Started/ReplicaActive",
            Phase::Replica { active: false } | Phase::Stray => "Started/Stray",
            Phase::Failed(_) => "Crashed",
        }
    }

    /// Version of the newest change.
    pub(crate) fn last_update(&self) -> Eversion {
        self.log.borrow().info().last_update
    }

    /// Version of the newest change that is durable on all members (primary).
    fn committed_version(&self) -> Eversion {
        self.log.borrow().version_of(self.backend.committed())
    }

    /// Operations that wait for it, objects in use, and writes in flight.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        self.pipeline.lengths()
    }

    fn generation(&self) -> u64 {
        self.peering.borrow().generation()
    }

    /// The generation in which a task began is over.
    fn is_past(&self, generation: u64) -> bool {
        self.generation() != generation
    }

    /// The version of the next write. Epochs of the log never fall, so versions rise across intervals too.
    fn next_version(&self, epoch: Epoch) -> Eversion {
        let last = self.last_update();
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
    /// PG's primary any more, or is so again (its client finds the new one). One that waited comes here again.
    pub(crate) fn take(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        if self.is_misdirected(&op) {
            return self.turn_away(osd, &op);
        }
        let not_ours = match self.peering.borrow().phase() {
            // As in Ceph: another has led since it was sent, so its client sends it again, in its order with those that were
            // dropped then. This one is late.
            _ if self.leases.is_late(op.request.epoch) => Some(true),
            Phase::Active if self.leases.covers(op.arrived_ns) => None,
            Phase::Replica { .. } | Phase::Stray => Some(true),
            _ => Some(false),
        };
        match not_ours {
            None => self.start(osd, op),
            Some(true) if osd.is_deleted(self.id.pgid.pool) => self.finish_deleted(osd, &op),
            Some(true) => {
                osd.metrics.borrow_mut().ops_dropped += 1;
                op.abandon();
            }
            Some(false) => {
                if let Some(op) = self.pipeline.wait(op) {
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
            osd.metrics.borrow_mut().ops_dropped += 1;
            return op.abandon();
        }
        tracing::debug!("pg {}: {} is misdirected", self.id, op.oid);
        self.finish_read(osd, op, Outcome::error(errno::ENXIO));
    }

    /// Forgets the waiting operations of a client that is gone: it sends them again if it comes back.
    pub(crate) fn forget(&self, is_gone: impl Fn(&ClientOp) -> bool) {
        self.pipeline.forget(is_gone);
    }

    /// Starts what waited; called when the PG became active, or its lease was renewed. First what was executed before: the other
    /// operations may be more than the log remembers.
    fn resume(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        self.pipeline.put_first(|op| op.is_write && self.executed(op).is_some());
        while self.is_active()
            && self.leases.covers(osd.shard.now_ns())
            && let Some(op) = self.pipeline.next_waiting()
        {
            op.starts(osd);
            self.take(osd, op);
        }
    }
}

// Every operation of a PG that is not answered yet: where it is, and what it waits for.

/// An operation on its way.
pub(crate) struct OpInFlight {
    pub op: Rc<ClientOp>,
    /// Where it is: `waiting_for_map`, or the name of its [`Stage`].
    pub stage: &'static str,
    /// The event that it waits for.
    pub waits_for: String,
}

impl Pg {
    /// The operations of this PG.
    pub(crate) fn ops_in_flight(&self, osd: &OsdShard) -> Vec<OpInFlight> {
        let mut ops = Vec::new();
        self.pipeline.each(|op| {
            let stage = op.stage();
            ops.push(OpInFlight {
                op: Rc::clone(op),
                stage: stage.name(),
                waits_for: self.waits_for(osd, stage),
            });
        });
        ops
    }

    /// The same without words for each.
    pub(crate) fn each_op(&self, visit: impl FnMut(&Rc<ClientOp>)) {
        self.pipeline.each(visit);
    }

    fn waits_for(&self, osd: &OsdShard, stage: Stage) -> String {
        match stage {
            Stage::WaitingForPg => match self.describe(osd) {
                (state, why) if why.is_empty() => format!("pg is {state}"),
                (state, why) => format!("pg is {state}: {why}"),
            },
            Stage::Queued if self.pipeline.has_room() => {
                "operations of the object that came before it".to_owned()
            }
            Stage::Queued => "the commit of other writes: the pg has as many in flight as it may".to_owned(),
            Stage::Executing => "the store: metadata or data of the object".to_owned(),
            Stage::Store { .. } => "its data and metadata to be durable here".to_owned(),
            Stage::Replicas { version } => {
                let missing: Vec<String> =
                    self.backend.missing(version).iter().map(ToString::to_string).collect();
                format!("acknowledgements of {}", missing.join(", "))
            }
            Stage::Reply => "its answer to be sent".to_owned(),
        }
    }
}
