//! How a change becomes durable on all members of the acting set.
//!
//! A backend gets a sealed transaction, sends every member its part, and knows up to which version number it is durable on all of
//! them. Each member applies changes in the order of versions, so one number per member is enough.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use carmine_peering::{Event, Reason};
use carmine_pgtypes::{Sealed, Transaction};
use carmine_reactor::{Payload, probes};
use carmine_types::{Errno, OsdId, SpgId, errno, is_mutated};

use super::window::Window;
use crate::messages::{Head, Packed, RepAck, RepOp};
use crate::peers::Peers;
use crate::pg::Pg;
use crate::shard::OsdShard;

/// How the members of a PG hold its data.
#[derive(Clone, Copy, Default)]
pub(in crate::pg) enum Kind {
    /// Each has a whole copy.
    #[default]
    Replicated,
}

/// Sends each change of a PG to its members, and keeps the version up to which each member has stored them. Two things depend on the
/// kind: the message that a member gets for a change, and where objects are read ([`Objects`](super::reads::Objects)).
#[derive(Default)]
pub(in crate::pg) struct Backend {
    kind: Kind,
    /// The replicas (primary, active).
    followers: RefCell<Vec<Follower>>,
    /// Whether some of them have windows.
    has_windows: Cell<bool>,
    /// Changes sent to them that are not durable everywhere, oldest first; version numbers have no gaps. Empty without replicas.
    sent: RefCell<VecDeque<Sent>>,
    /// Version number of the newest change.
    last: Cell<u64>,
    /// Version number up to which everything is durable here.
    local: Cell<u64>,
    /// Version number up to which everything is durable everywhere (primary).
    committed: Cell<u64>,
}

/// A change as it is sent to the other members, kept until all have it.
pub(in crate::pg) struct Sent {
    version: u64,
    packed: Packed,
    /// The message for members whose backfill has not passed the change's objects.
    bare: Option<Box<Bare>>,
}

/// A change's log entry alone.
struct Bare {
    to: Vec<OsdId>,
    packed: Packed,
}

/// The primary's record of another member.
struct Follower {
    osd: OsdId,
    /// Version number up to which everything is durable there.
    acked: u64,
    /// The version number after which changes were last resent because it asked for them: once is enough.
    resent: Option<u64>,
    /// Set if it is sent only a part of the changes.
    window: Option<Rc<Window>>,
}

impl Backend {
    /// How the members hold the data.
    pub(in crate::pg) fn kind(&self) -> Kind {
        self.kind
    }

    /// Begins a new generation: nothing is in flight, and everything up to this version number counts as durable. Nothing is
    /// answered until the PG is active.
    pub(in crate::pg) fn start_over(&self, last: u64) {
        self.followers.borrow_mut().clear();
        self.has_windows.set(false);
        self.sent.borrow_mut().clear();
        self.last.set(last);
        self.local.set(last);
        self.committed.set(last);
    }

    /// The PG is active, and these members have this one's log; those with windows are being backfilled.
    pub(in crate::pg) fn serve(&self, followers: &[OsdId], windows: Vec<(OsdId, Rc<Window>)>) {
        let acked = self.last.get();
        let follower = |osd: &OsdId| {
            let window = windows.iter().find(|(of, _)| of == osd).map(|(_, window)| Rc::clone(window));
            Follower { osd: *osd, acked, resent: None, window }
        };
        *self.followers.borrow_mut() = followers.iter().map(follower).collect();
        self.has_windows.set(!windows.is_empty());
    }

    /// The backfill of a member has ended.
    pub(in crate::pg) fn forget_window(&self, of: OsdId) {
        let mut followers = self.followers.borrow_mut();
        followers.iter_mut().filter(|f| f.osd == of).for_each(|f| f.window = None);
        self.has_windows.set(followers.iter().any(|f| f.window.is_some()));
    }

    /// Version number up to which everything is durable here.
    pub(in crate::pg) fn local(&self) -> u64 {
        self.local.get()
    }

    /// Version number up to which everything is durable on all members.
    pub(in crate::pg) fn committed(&self) -> u64 {
        self.committed.get()
    }

    /// Encodes a change for the other members; `None` if there are none. The transaction itself goes to the store next.
    ///
    /// A replicated PG encodes one message and sends its bytes to all members. A member whose window withholds the change gets a second
    /// one, with the log entry alone. An erasure-coded PG would encode one message for each member here, and return the transaction of
    /// its own shard: only [`Sent::packed`] chooses the message of a member.
    pub(in crate::pg) fn encode(&self, head: impl FnOnce() -> Head, txn: &Sealed) -> Option<Sent> {
        if self.followers.borrow().is_empty() {
            return None;
        }
        let head = head();
        let bare = if self.has_windows.get() { self.bare(&head, txn) } else { None };
        let packed = match self.kind {
            Kind::Replicated => RepOp::pack(&head, txn, txn.data()),
        };
        Some(Sent { version: txn.version().version, packed, bare })
    }

    /// The change's log entry alone, for members whose windows withhold the change.
    #[cold]
    fn bare(&self, head: &Head, txn: &Sealed) -> Option<Box<Bare>> {
        let followers = self.followers.borrow();
        let withholds = |f: &&Follower| f.window.as_ref().is_some_and(|window| window.withholds(txn));
        let to: Vec<OsdId> = followers.iter().filter(withholds).map(|f| f.osd).collect();
        if to.is_empty() {
            return None;
        }
        let log = Transaction {
            log: txn.log.clone(),
            log_trim_to: txn.log_trim_to,
            ..Transaction::new(txn.pg, txn.bits)
        };
        Some(Box::new(Bare { to, packed: RepOp::pack(head, &Sealed::from(log), Payload::new()) }))
    }

    /// Sends the change with this version number, which the store has accepted, to the other members.
    pub(in crate::pg) fn submit(&self, peers: &Peers, pg: SpgId, version: u64, sent: Option<Sent>) {
        assert_eq!(version, self.last.get() + 1, "pg {pg}: versions have no gaps");
        self.last.set(version);
        let Some(sent) = sent else { return };
        self.followers.borrow().iter().for_each(|follower| sent.send(peers, pg, follower.osd));
        if is_mutated("forget_sent") && version.is_multiple_of(3) {
            return;
        }
        let mut all = self.sent.borrow_mut();
        assert!(
            all.back().is_none_or(|last| last.version + 1 == version),
            "pg {pg}: what is in flight has no gaps"
        );
        all.push_back(sent);
    }

    /// Notes, on a replica, that the store has accepted its primary's change with this version number.
    pub(in crate::pg) fn note_replica_op(&self, version: u64) {
        self.last.set(version);
    }

    /// Everything up to this version number is durable here.
    pub(in crate::pg) fn note_durable(&self, version: u64) {
        let last = self.last.get();
        assert!(version <= last, "version {version} is durable, and only up to {last} was submitted");
        self.local.set(version.max(self.local.get()));
    }

    /// Notes that everything up to this version number is durable on another member; false if it was not sent that much.
    fn note_ack(&self, from: OsdId, version: u64) -> bool {
        if version > self.last.get() {
            return false;
        }
        if let Some(follower) = self.followers.borrow_mut().iter_mut().find(|f| f.osd == from) {
            let version = version + u64::from(is_mutated("ack_ahead"));
            follower.acked = version.max(follower.acked);
            let (acked, last) = (follower.acked, self.last.get());
            assert!(acked <= last, "{from} acknowledged version {acked}, and was sent only up to {last}");
        }
        true
    }

    /// Advances the committed version to what is durable on all members; returns it if it rose.
    pub(in crate::pg) fn advance(&self) -> Option<u64> {
        let followers = self.followers.borrow();
        let local = if is_mutated("forget_local") { self.last.get() } else { self.local.get() };
        let acked = followers.iter().filter(|_| !is_mutated("forget_replicas")).map(|f| f.acked);
        let committed = acked.fold(local, u64::min);
        if committed <= self.committed.get() {
            return None;
        }
        let local = self.local.get();
        assert!(committed <= local, "version {committed} is committed, and only up to {local} durable here");
        assert!(
            followers.iter().all(|f| committed <= f.acked),
            "version {committed} is committed, and not durable on every member"
        );
        self.committed.set(committed);
        let mut sent = self.sent.borrow_mut();
        while sent.pop_front_if(|sent| sent.version <= committed).is_some() {}
        Some(committed)
    }

    /// Members that have not acknowledged this version number.
    pub(in crate::pg) fn unacked_members(&self, version: u64) -> Vec<OsdId> {
        let followers = self.followers.borrow();
        followers.iter().filter(|f| f.acked < version).map(|f| f.osd).collect()
    }

    /// Resends everything after `version` to a member that reports a gap: messages were lost with a connection.
    fn fill_gap(&self, peers: &Peers, pg: SpgId, to: OsdId, version: u64) {
        let mut followers = self.followers.borrow_mut();
        let Some(follower) = followers.iter_mut().find(|f| f.osd == to) else { return };
        if follower.resent.replace(version) != Some(version) {
            self.send_after(peers, pg, to, version);
        }
    }

    /// Resends everything that a member has not acknowledged, after its connection was lost.
    fn resend(&self, peers: &Peers, pg: SpgId, to: OsdId) {
        let mut followers = self.followers.borrow_mut();
        let Some(follower) = followers.iter_mut().find(|f| f.osd == to) else { return };
        follower.resent = None;
        self.send_after(peers, pg, to, follower.acked);
    }

    fn send_after(&self, peers: &Peers, pg: SpgId, to: OsdId, version: u64) {
        let sent = self.sent.borrow();
        sent.iter().filter(|sent| sent.version > version).for_each(|sent| sent.send(peers, pg, to));
    }
}

impl Pg {
    /// Handles a replica's answer to a write (Ceph: `do_repop_reply`).
    pub(crate) fn on_rep_ack(self: &Rc<Self>, osd: &Rc<OsdShard>, from: OsdId, ack: &RepAck) {
        let (attempt, version) = (ack.head.attempt, ack.version.version);
        if !self.peer.is_answered(&ack.head) {
            return;
        }
        let why = match ack.result {
            0 if self.copies.backend.note_ack(from, version) => {
                probes::replica_acked(self.id.pgid.pool, self.id.pgid.ps, version, from.0);
                return self.settle(osd, osd.shard.stamp_ns());
            }
            0 => {
                return tracing::error!(
                    "pg {}: {from} acknowledges version {version}, which it was not sent",
                    self.id
                );
            }
            errno::EAGAIN => return self.copies.backend.fill_gap(&osd.peers, self.id, from, version),
            // The replica is in another interval: either a map is on its way to us, or a late query of ours made it start over.
            // In both cases this PG starts over, too.
            errno::ESTALE => Reason::NotActive(from),
            // The replica's store failed: without it nothing can be committed until a map says that it is down, or up again.
            error => Reason::CannotWrite(from, Errno(error)),
        };
        self.on(osd, Event::ReplicaStopped { attempt, why });
    }

    /// Resends everything that a replica has not acknowledged, after its connection was lost.
    pub(crate) fn resend_to(&self, osd: &OsdShard, replica: OsdId) {
        self.copies.backend.resend(&osd.peers, self.id, replica);
    }
}

impl Sent {
    /// The message for this member.
    fn packed(&self, to: OsdId) -> &Packed {
        let bare = self.bare.as_ref().filter(|bare| bare.to.contains(&to));
        bare.map_or(&self.packed, |bare| &bare.packed)
    }

    fn send(&self, peers: &Peers, pg: SpgId, to: OsdId) {
        probes::replica_sent(pg.pgid.pool, pg.pgid.ps, self.version, to.0);
        peers.send(to, pg, self.packed(to).message());
    }
}
