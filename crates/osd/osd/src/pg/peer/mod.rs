//! Who may serve a PG, and what its copy has.
//!
//! - `shell`: drives the state machine (`carmine_peering`). `follow`: the orders of another primary, on the replica.
//! - `lease`: until when a primary may serve, and what its replicas have promised.
//! - `log`: the PG log in memory, as the store has it, and the PG's info.
//! - `stat`: the statistics for the monitor.

pub(crate) mod follow;
pub(crate) mod lease;
pub(crate) mod log;
pub(crate) mod shell;
pub(crate) mod stat;

use std::cell::{Cell, Ref, RefCell};

use carmine_peering::{AttemptId, Peering, Phase, Reason};
use carmine_pgtypes::{LogEntry, OsdSet, PgHistory, PgInfo, PgState, Transaction, pg_contains};
use carmine_reactor::sync::Notify;
use carmine_store::Commit;
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, SpgId, is_mutated};

use crate::join::Mergeable;
use crate::messages::Head;
use crate::pg::copies::own_store;
use crate::shard::OsdShard;
use lease::Leases;
use log::PgLog;
use stat::Reported;

/// The part of a PG that decides who serves it.
pub(crate) struct Peer {
    id: SpgId,
    /// The PG whose split makes this one, if it waits for that.
    parent: Cell<Option<SpgId>>,
    peering: RefCell<Peering>,
    /// Until when it may serve.
    leases: Leases,
    log: RefCell<PgLog>,
    /// Low hash bits that its objects share.
    bits: Cell<u32>,
    /// The statistics that were reported last (primary).
    reported: RefCell<Reported>,
    /// The monitor ordered it to be made (MOSDPGCreate2), and has yet to hear that it is.
    ordered: RefCell<Option<PgHistory>>,
    /// What the session with the monitor knows of it, while it is about to be merged (primary).
    mergeable: Cell<Option<Mergeable>>,
    /// Fires when phase, generation or the committed version change.
    changed: Notify,
}

impl From<Head> for AttemptId {
    fn from(Head { interval, attempt, .. }: Head) -> AttemptId {
        AttemptId { interval, attempt }
    }
}

impl Peer {
    /// The state of a PG that has yet to be read, on this OSD.
    pub(in crate::pg) fn new(id: SpgId, me: OsdId) -> Peer {
        Peer {
            id,
            parent: Cell::new(None),
            peering: RefCell::new(Peering::new(me)),
            leases: Leases::new(id),
            log: RefCell::new(PgLog::new(id)),
            bits: Cell::default(),
            reported: RefCell::default(),
            ordered: RefCell::default(),
            mergeable: Cell::default(),
            changed: Notify::new(),
        }
    }

    /// It is made by the split of this PG, for which it waits; `None`: it waits no longer.
    pub(in crate::pg) fn set_parent(&self, parent: Option<SpgId>) {
        self.parent.set(parent);
    }

    /// The PG whose split makes this one, if it waits for that.
    pub(in crate::pg) fn parent(&self) -> Option<SpgId> {
        self.parent.get()
    }

    /// Goes on from the copy that its parent has, of which `before` is the info and `part` this child's part. Returns the info that is to be
    /// written down with the split.
    pub(in crate::pg) fn inherit(&self, parent: &Peer, before: &PgInfo, part: PgInfo) -> PgInfo {
        let history = self.peering.borrow_mut().inherit(&parent.peering.borrow(), before);
        self.leases.inherit(&parent.leases);
        self.parent.set(None);
        self.log.borrow_mut().inherit(&parent.log.borrow(), PgInfo { history, ..part });
        self.note_bits();
        self.info()
    }

    /// What remains of the copy of a PG that was split.
    pub(in crate::pg) fn become_part(&self, part: PgInfo) {
        self.log.borrow_mut().become_part(part);
        self.note_bits();
    }

    /// The copy of a PG that others were merged into, as the store has it.
    pub(in crate::pg) fn become_merged(&self, merged: PgState) {
        let is_log = self.log.borrow_mut().load(merged);
        assert!(is_log, "pg {}: a merged log has no gaps", self.id);
        self.note_bits();
    }

    pub(in crate::pg) fn note_bits(&self) {
        self.bits.set(self.log.borrow().info().bits().unwrap_or_default());
    }

    /// The state machine, to be asked.
    pub(in crate::pg) fn machine(&self) -> Ref<'_, Peering> {
        self.peering.borrow()
    }

    /// The log, to be read.
    pub(in crate::pg) fn log(&self) -> Ref<'_, PgLog> {
        self.log.borrow()
    }

    /// Changes the info in memory only: it is written down with the next activation.
    pub(in crate::pg) fn change_info(&self, change: impl FnOnce(&mut PgInfo)) {
        self.log.borrow_mut().change_info(change);
    }

    /// Changes the info, and submits it in the same step.
    pub(in crate::pg) fn write_info(&self, osd: &OsdShard, change: impl FnOnce(&mut PgInfo)) -> Commit {
        self.change_info(change);
        own_store(osd).submit(Transaction { info: Some(self.info().into()), ..self.transaction() })
    }

    /// The copy is no more: what is made here from now on has nothing of intervals that began before this epoch.
    pub(in crate::pg) fn forget_log(&self, epoch: Epoch) {
        self.log.borrow_mut().clear();
        self.change_info(|info| info.made = epoch);
    }

    /// Until when it may serve.
    pub(in crate::pg) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Fires when phase, generation or the committed version change.
    pub(in crate::pg) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Low hash bits that its objects share.
    pub(crate) fn bits(&self) -> u32 {
        self.bits.get()
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

    /// It serves clients, as far as its lease allows.
    pub(crate) fn serves(&self) -> bool {
        self.peering.borrow().serves()
    }

    /// All its members have all of it, and nothing is unfound.
    pub(in crate::pg) fn is_clean(&self) -> bool {
        self.peering.borrow().is_clean() && self.log.borrow().info().unfound.is_empty()
    }

    /// This copy follows the primary that sent this head.
    pub(in crate::pg) fn follows(&self, head: &Head) -> bool {
        self.peering.borrow().takes_writes_of((*head).into())
    }

    /// A replica answers this primary, which is active, and not an earlier attempt of it.
    pub(in crate::pg) fn is_answered(&self, head: &Head) -> bool {
        self.is_active() && self.peering.borrow().attempt_id() == (*head).into()
    }

    /// This OSD is its primary.
    pub(crate) fn leads(&self) -> bool {
        self.peering.borrow().leads()
    }

    pub(crate) fn acting(&self) -> OsdSet {
        self.peering.borrow().acting().clone()
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

    /// Ceph's name of the state of its state machine.
    pub(crate) fn recovery_state_name(&self) -> &'static str {
        match self.peering.borrow().phase() {
            Phase::Loading => "Reset",
            Phase::Down(_) => "Started/Primary/Peering/Down",
            Phase::Peering(_) => "Started/Primary/Peering",
            Phase::Peered(_) => "Started/Primary/Peering/GetMissing",
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

    pub(in crate::pg) fn generation(&self) -> u64 {
        self.peering.borrow().generation()
    }

    /// The generation in which a task began is over.
    pub(in crate::pg) fn is_past(&self, generation: u64) -> bool {
        self.generation() != generation
    }

    /// A submitted entry is the newest of the log.
    pub(in crate::pg) fn note_entry(&self, entry: LogEntry, trim_to: Option<Eversion>) {
        let mut log = self.log.borrow_mut();
        log.push(entry);
        if let Some(to) = trim_to {
            log.trim(to);
        }
    }
}
