//! A placement group on the reactor that owns it. It is composed of five parts, each with a type and private state:
//!
//! - `op`, [`ClientOps`]: the operations of clients. They wait until the PG is active, then in the queue of their object; writes are then
//!   in flight. `op/write.rs` shows the whole path of a write, `op/read.rs` that of all other operations.
//! - `copies`, [`Copies`]: makes a change durable on all members, applies the changes of another primary, and reads objects.
//! - `peer`, [`Peer`]: who may serve. `carmine_peering::Peering` decides what the PG does: phases, intervals, attempts. `Peer`
//!   adds its driver, the leases, the PG log, and the reports to the monitor.
//! - `recovery`, [`Recoveries`]: gives members the objects that they lack, before the PG serves clients or meanwhile.
//! - `scrub`, [`Scrubs`]: compares the copies, and repairs them.
//!
//! `effects` carries out what the state machine decides, in all parts. `family` has the notion that all of them use: an object
//! with its clones. The parts call each other by methods of [`Pg`]; what they import from each other is listed in
//! ARCHITECTURE.md.
//!
//! Invariants: versions are given at submission, without a suspension in between; what is durable is a prefix of the log; a write
//! is answered when it is durable here and on every replica; a read waits for the writes of its object. A task that was suspended
//! checks that its generation is still the PG's before it touches anything: in a new generation the old operations are started
//! over, in order, or were dropped.

mod copies;
mod effects;
mod family;
mod merge;
mod moving;
mod op;
mod peer;
mod recovery;
mod scrub;
mod split;

use std::rc::Rc;

use carmine_peering::Phase;
use carmine_types::{OsdId, SpgId, errno, is_mutated};
use carmine_wire::osdmap::IntervalSet;

use crate::config::LogLimits;
use crate::op::{ClientOp, Outcome, Stage};
use crate::shard::OsdShard;
use copies::Copies;
use op::ClientOps;
use peer::Peer;
use recovery::Recoveries;
use scrub::Scrubs;

pub(crate) use copies::{Objects, ReplyPath};
pub(crate) use family::mapper::is_mapper;
pub(crate) use moving::Leaving;
pub(crate) use op::exec::{ObjectState, Outputs, Told};
pub(crate) use op::extra::{Extra, METHOD_BYTES_MAX};
pub(crate) use op::object::Queued;
pub(crate) use op::snaps::TRIMMED_TOLD_MAX;
pub(crate) use peer::follow::{has_nothing, not_ready};
pub(crate) use peer::lease::{give_up_leases, start as start_leases};
pub(crate) use recovery::remove::{WHOLE_POOL, remove_objects, remove_orphans};
pub(crate) use recovery::{Reserver, start_strays};
pub(crate) use scrub::{Pace, Scrubber, order as order_scrubs, start as start_scrubs};

/// One PG. No borrow of its cells lasts across a suspension, or while an operation is answered.
pub(crate) struct Pg {
    pub(crate) id: SpgId,
    pub(crate) ops: ClientOps,
    copies: Copies,
    pub(crate) peer: Peer,
    pub(crate) recovery: Recoveries,
    scrub: Scrubs,
}

impl Pg {
    /// A PG whose state is still to be loaded.
    pub(crate) fn new(id: SpgId, me: OsdId, limits: LogLimits) -> Rc<Pg> {
        Rc::new(Pg {
            id,
            ops: ClientOps::new(id, limits),
            copies: Copies::default(),
            peer: Peer::new(id, me),
            recovery: Recoveries::default(),
            scrub: Scrubs::default(),
        })
    }

    /// Number of objects, of clones among them, and of bytes, as far as they are counted (primary).
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        self.ops.usage().totals()
    }

    /// The removed snapshots that are trimmed on all members.
    pub(crate) fn trimmed_snaps(&self) -> IntervalSet {
        if self.peer.is_active() { self.ops.snaps().trimmed() } else { IntervalSet::new() }
    }

    /// State and reason, as `status` shows them.
    pub(crate) fn describe(&self, osd: &OsdShard) -> (String, String) {
        let peering = self.peer.machine();
        let phase = peering.phase();
        let state = peering.state(self.recovery.stage());
        if self.is_laggy(osd) {
            return (format!("{state}+laggy"), "its replicas have not renewed its read lease".to_owned());
        }
        (state, phase.reason().map(ToString::to_string).unwrap_or_default())
    }

    /// Numbers of operations that wait for it, of objects in use, and of writes in flight.
    pub(crate) fn lengths(&self) -> (usize, usize, usize) {
        self.ops.pipeline().lengths()
    }

    /// Handles a client's operation: starts it, keeps it until the PG serves clients, or drops it where the client will resend it
    /// because this OSD is no longer the primary, or was not for a while.
    pub(crate) fn handle_op(self: &Rc<Self>, osd: &Rc<OsdShard>, op: Rc<ClientOp>) {
        if self.is_misdirected(&op) {
            return self.refuse_misdirected(osd, &op);
        }
        let not_ours = match self.peer.machine().phase() {
            // Another OSD has led since the client sent it. As in Ceph this OSD dropped all earlier operations then; the client
            // resends them in order, with this one.
            _ if self.peer.leases().is_late(op.request.epoch) => Some(true),
            Phase::Active if self.peer.serves() && self.peer.leases().covers(op.arrived_ns) => None,
            Phase::Replica { .. } | Phase::Stray => Some(true),
            _ => Some(false),
        };
        match not_ours {
            // Earlier operations still wait, perhaps some of the same client: they go first.
            None if self.ops.pipeline().has_waiting() => {
                self.keep(osd, op);
                self.resume(osd);
            }
            None if op.request.retry_attempt > 0 => self.start_again(osd, op),
            None => self.start(osd, op),
            Some(true) if osd.is_deleted(self.id.pgid.pool) => self.finish_deleted(osd, &op),
            Some(true) => drop_late(osd, &op),
            Some(false) => self.keep(osd, op),
        }
    }

    /// Keeps an operation until the PG serves.
    fn keep(&self, osd: &OsdShard, op: Rc<ClientOp>) {
        if let Some(op) = self.ops.pipeline().wait(op) {
            op.reply(osd, Outcome::error(errno::EAGAIN));
        }
    }

    /// Whether it names an object, or a pool, that is not this PG's.
    fn is_misdirected(&self, op: &ClientOp) -> bool {
        op.request.locator.pool != self.id.pgid.pool || !(self.peer.contains(&op.oid) || op.is_pg_op())
    }

    /// Ends a misdirected operation. By an older map the object may have been this PG's: then the client, which has our map or
    /// was just sent it, finds the right PG itself.
    fn refuse_misdirected(&self, osd: &OsdShard, op: &ClientOp) {
        if op.request.epoch < osd.epoch() {
            return drop_late(osd, op);
        }
        tracing::debug!("pg {}: {} is misdirected", self.id, op.oid);
        self.finish_read(osd, op, Outcome::error(errno::ENXIO));
    }

    /// Drops the waiting operations of a disconnected client, which resends them if it comes back.
    pub(crate) fn forget(&self, is_gone: impl Fn(&ClientOp) -> bool) {
        self.ops.pipeline().forget(is_gone);
    }

    /// Starts the waiting operations when the PG becomes active or its lease is renewed. Those executed before come first: the
    /// others may be more than the log remembers.
    fn resume(self: &Rc<Self>, osd: &Rc<OsdShard>) {
        self.ops.pipeline().put_first(|op| op.is_write && self.executed(op).is_some());
        while self.peer.serves()
            && self.peer.leases().covers(osd.shard.now_ns())
            && let Some(op) = self.ops.pipeline().next_waiting()
        {
            op.note_started(osd);
            match self.peer.leases().is_late(op.request.epoch) {
                true => drop_late(osd, &op),
                false if is_mutated("forget_started") => self.start(osd, op),
                false => self.start_again(osd, op),
            }
        }
    }
}

/// Drops an operation that its client sends again by a newer map.
fn drop_late(osd: &OsdShard, op: &ClientOp) {
    osd.metrics.borrow_mut().ops_dropped += 1;
    op.abandon();
}

// Every unanswered operation of a PG: its stage, and what it waits for.

/// An unanswered operation.
pub(crate) struct OpInFlight {
    pub op: Rc<ClientOp>,
    /// `waiting_for_map`, or the name of its [`Stage`].
    pub stage: &'static str,
    /// The event that it waits for.
    pub waits_for: String,
}

impl Pg {
    /// The unanswered operations of this PG.
    pub(crate) fn ops_in_flight(&self, osd: &OsdShard) -> Vec<OpInFlight> {
        let mut ops = Vec::new();
        self.ops.pipeline().each(|op| {
            let stage = op.stage();
            ops.push(OpInFlight {
                op: Rc::clone(op),
                stage: stage.name(),
                waits_for: self.waits_for(osd, stage),
            });
        });
        ops
    }

    /// The same, without descriptions.
    pub(crate) fn each_op(&self, visit: impl FnMut(&Rc<ClientOp>)) {
        self.ops.pipeline().each(visit);
    }

    fn waits_for(&self, osd: &OsdShard, stage: Stage) -> String {
        match stage {
            Stage::WaitingForPg => match self.describe(osd) {
                (state, why) if why.is_empty() => format!("pg is {state}"),
                (state, why) => format!("pg is {state}: {why}"),
            },
            Stage::Queued if self.ops.pipeline().has_room() => {
                "operations of the object that came before it".to_owned()
            }
            Stage::Queued => "the commit of other writes: the pg has as many in flight as it may".to_owned(),
            Stage::Executing => "the store: metadata or data of the object".to_owned(),
            Stage::Store { .. } => "its data and metadata to be durable here".to_owned(),
            Stage::Replicas { version } => {
                let missing: Vec<String> =
                    self.copies.backend().unacked_members(version).iter().map(ToString::to_string).collect();
                format!("acknowledgements of {}", missing.join(", "))
            }
            Stage::Reply => "its answer to be sent".to_owned(),
        }
    }
}
