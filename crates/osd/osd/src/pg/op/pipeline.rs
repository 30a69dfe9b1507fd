//! The operations of a PG from their arrival to their answer: those that wait for the PG, the queue of each object, and the
//! writes that are submitted and not yet durable on all members.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use carmine_reactor::sync::oneshot;
use carmine_types::{Eversion, ObjectId, ReqId, SpgId, is_mutated, is_unasserted};
use foldhash::fast::FixedState;

use super::object::Objects;
use crate::op::{ClientOp, Outcome, Stage};

/// The operations of a PG.
#[derive(Default)]
pub(in crate::pg) struct Pipeline {
    pg: SpgId,
    /// Operations that wait until the PG is active.
    waiting: RefCell<VecDeque<Rc<ClientOp>>>,
    objects: RefCell<Objects<Rc<ClientOp>>>,
    /// Writes that are not durable everywhere, oldest first; their version numbers have no gaps (primary).
    in_flight: RefCell<VecDeque<Write>>,
    /// Most writes in flight: few enough that the log keeps all of them within its limit.
    in_flight_max: usize,
    /// Planned writes that wait for room in flight, …
    planned: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// … and the number of those that were granted it and have not resumed yet.
    promised: Cell<usize>,
    /// Set while answers are being sent.
    settling: Cell<bool>,
}

/// A submitted write.
pub(in crate::pg) struct Write {
    pub(in crate::pg) version: Eversion,
    pub(in crate::pg) op: Rc<ClientOp>,
    /// Its answer.
    pub(in crate::pg) outcome: Outcome,
    /// When it was submitted to the store.
    pub(in crate::pg) submitted_ns: u64,
    /// When it became durable here; 0: not yet.
    pub(in crate::pg) local_ns: u64,
    /// Requests answered when this write is durable everywhere: resends of it, and others whose answers depend on it.
    pub(in crate::pg) followers: Vec<(Rc<ClientOp>, Outcome)>,
}

impl Write {
    fn ops(&self) -> impl Iterator<Item = &Rc<ClientOp>> {
        std::iter::once(&self.op).chain(self.followers.iter().map(|(op, _)| op))
    }
}

impl Pipeline {
    /// A pipeline with at most `in_flight_max` writes in flight.
    pub(in crate::pg) fn new(pg: SpgId, in_flight_max: usize) -> Pipeline {
        Pipeline { pg, in_flight_max, ..Pipeline::default() }
    }

    /// Keeps an operation until the PG is active; returns it if too many wait. A client resends its operations in a new interval,
    /// and accepts only the answer to the last one sent: a resend replaces the earlier one, or else is put before what its client
    /// sent after it.
    pub(in crate::pg) fn wait(&self, op: Rc<ClientOp>) -> Option<Rc<ClientOp>> {
        let mut waiting = self.waiting.borrow_mut();
        let id = op.reqid;
        let is_after =
            |w: &Rc<ClientOp>| (w.reqid.client, w.reqid.inc) == (id.client, id.inc) && w.reqid.tid >= id.tid;
        let again = op.request.retry_attempt > 0;
        op.enters(Stage::WaitingForPg);
        if again && let Some(same) = waiting.iter_mut().find(|w| w.reqid == id) {
            let replaced = keep_newer(same, op);
            drop(waiting);
            replaced.abandon(); // releases its budget, which may wake its connection
            return None;
        }
        let at = if again { waiting.iter().position(is_after) } else { None };
        if waiting.len() >= crate::config::WAITING_OPS_MAX {
            return Some(op);
        }
        let at = at.unwrap_or(waiting.len());
        waiting.insert(at, op);
        None
    }

    /// Operations wait for the PG.
    pub(in crate::pg) fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// The operation that has waited for the PG longest.
    pub(in crate::pg) fn next_waiting(&self) -> Option<Rc<ClientOp>> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Moves these of the operations that wait for the PG to the front, keeping their order.
    pub(in crate::pg) fn put_first(&self, is_such: impl Fn(&ClientOp) -> bool) {
        let (mut first, rest): (VecDeque<_>, VecDeque<_>) =
            self.waiting.take().into_iter().partition(|op| is_such(op));
        first.extend(rest);
        *self.waiting.borrow_mut() = first;
    }

    /// Removes the operations that wait for the PG.
    pub(in crate::pg) fn take_waiting(&self) -> VecDeque<Rc<ClientOp>> {
        self.waiting.take()
    }

    /// Drops the waiting operations of a disconnected client, which resends them if it comes back.
    pub(in crate::pg) fn forget(&self, is_gone: impl Fn(&ClientOp) -> bool) {
        let (gone, left): (VecDeque<_>, VecDeque<_>) =
            self.waiting.take().into_iter().partition(|op| is_gone(op));
        *self.waiting.borrow_mut() = left;
        gone.iter().for_each(|op| op.abandon());
    }

    /// Lets all operations wait for the PG again, in the order in which they have to be started over. Of a request that was sent
    /// several times, the last one is kept, in the place of the first: nobody reads the answers to the others, and one executed
    /// much later might not be found in the log any more.
    pub(in crate::pg) fn start_over(&self) {
        let mut ops = VecDeque::new();
        for Write { op, followers, .. } in self.in_flight.take() {
            ops.push_back(op);
            ops.extend(followers.into_iter().map(|(op, _)| op));
        }
        ops.extend(self.objects.borrow_mut().drain());
        ops.extend(self.waiting.take());
        self.promised.set(0);
        drop(self.planned.take()); // wakes them
        let mut kept = VecDeque::with_capacity(ops.len());
        let mut places = HashMap::<_, _, FixedState>::default();
        let mut replaced = Vec::new();
        for op in ops {
            op.enters(Stage::WaitingForPg);
            op.release_more();
            match places.entry(op.reqid) {
                Entry::Occupied(place) if op.reqid != ReqId::default() => {
                    replaced.push(keep_newer(&mut kept[*place.get()], op));
                }
                place => {
                    place.insert_entry(kept.len());
                    kept.push_back(op);
                }
            }
        }
        *self.waiting.borrow_mut() = kept;
        replaced.iter().for_each(|op| op.abandon());
    }

    /// Adds an operation: true if it may run at once, otherwise it is queued after others of its object, or until there is room.
    /// `committed` as in [`Self::next`].
    pub(in crate::pg) fn enter(&self, op: &Rc<ClientOp>, committed: u64) -> bool {
        if op.request.retry_attempt > 0 {
            let here = self.objects.borrow_mut().enter_again(&op.oid, op, |other| is_older(other, op));
            if let Some(replaced) = here {
                op.enters(Stage::Queued);
                replaced.iter().for_each(|op| op.abandon());
                return false;
            }
        }
        let has_room = !op.is_write || self.has_room();
        let starts = self.objects.borrow_mut().enter(&op.oid, op, committed, has_room);
        if !starts {
            op.enters(Stage::Queued);
        }
        starts
    }

    /// Whether one more write may be submitted.
    pub(in crate::pg) fn has_room(&self) -> bool {
        let in_flight = self.in_flight.borrow().len() + self.promised.get();
        in_flight < self.in_flight_max || is_mutated("trim_uncommitted")
    }

    /// Waits until a planned write may be submitted. The caller must then submit it at once, or [give the room
    /// up](Self::claim_room). Planned writes come before queued ones, because they hold what they read. False: all operations
    /// were started over.
    pub(in crate::pg) async fn room(&self) -> bool {
        let (tell, told) = oneshot::channel();
        self.planned.borrow_mut().push_back(tell);
        told.await.is_ok()
    }

    /// The granted room is used, or given up.
    pub(in crate::pg) fn claim_room(&self) {
        self.promised.set(self.promised.get().saturating_sub(1));
    }

    /// Grants room to those that wait for it; returns an object whose next write may start now.
    pub(in crate::pg) fn use_room(&self) -> Option<Arc<ObjectId>> {
        let mut objects = self.objects.borrow_mut();
        let mut planned = self.planned.borrow_mut();
        if !objects.is_starved() && planned.is_empty() {
            return None;
        }
        while self.has_room()
            && let Some(tell) = planned.pop_front()
        {
            if tell.send(()).is_ok() {
                self.promised.set(self.promised.get() + 1);
            }
        }
        if self.has_room() { objects.next_starved() } else { None }
    }

    /// A running operation has to wait: later ones of its object are queued after it.
    pub(in crate::pg) fn suspend(&self, op: &Rc<ClientOp>) {
        self.objects.borrow_mut().wait(&op.oid, op);
    }

    /// The object's next operation, if it may run now. `committed` is the version number up to which everything is durable
    /// everywhere.
    pub(in crate::pg) fn next(&self, oid: &Arc<ObjectId>, committed: u64) -> Option<Rc<ClientOp>> {
        let has_room = self.has_room();
        self.objects.borrow_mut().next(oid, committed, has_room)
    }

    /// Removes an operation that changed nothing from its object's queue.
    pub(in crate::pg) fn leave(&self, op: &Rc<ClientOp>) {
        self.objects.borrow_mut().finish(&op.oid, op, None);
    }

    /// Holds these objects: their writes wait.
    pub(in crate::pg) fn hold(&self, oids: &[Arc<ObjectId>]) {
        let mut objects = self.objects.borrow_mut();
        oids.iter().for_each(|oid| objects.hold(oid));
    }

    /// Whether a write of one of these objects has begun and is not submitted.
    pub(in crate::pg) fn is_writing(&self, oids: &[Arc<ObjectId>]) -> bool {
        let objects = self.objects.borrow();
        oids.iter().any(|oid| objects.is_writing(oid))
    }

    /// Whether the object is held, no write of it runs, and all are committed.
    pub(in crate::pg) fn is_still(&self, oid: &ObjectId, committed: u64) -> bool {
        let objects = self.objects.borrow();
        objects.is_held(oid) && objects.is_quiet(oid, committed)
    }

    /// Whether no write of this object runs and all are committed.
    pub(in crate::pg) fn is_quiet(&self, oid: &ObjectId, committed: u64) -> bool {
        self.objects.borrow().is_quiet(oid, committed)
    }

    /// Releases these objects: their writes may start.
    pub(in crate::pg) fn release(&self, oids: &[Arc<ObjectId>]) {
        let mut objects = self.objects.borrow_mut();
        oids.iter().for_each(|oid| objects.release(oid));
    }

    /// Adds a submitted write, which is answered when it is committed.
    pub(in crate::pg) fn submitted(&self, write: Write) {
        let version = write.version.version;
        let is_clients = write.op.reqid != ReqId::default();
        assert!(
            !write.op.submits_again()
                || !is_clients
                || is_unasserted("forget_resend")
                || is_unasserted("trim_uncommitted"),
            "pg {}: {:?} of {} is executed twice",
            self.pg,
            write.op.reqid,
            write.op.oid
        );
        write.op.enters(Stage::Store { version });
        let mut in_flight = self.in_flight.borrow_mut();
        let last = in_flight.back().map(|last| last.version.version);
        assert!(
            last.is_none_or(|last| last + 1 == version),
            "pg {}: write {version} in flight comes after {last:?}",
            self.pg
        );
        if is_mutated("forget_write") && version.is_multiple_of(3) {
            return;
        }
        in_flight.push_back(write);
    }

    /// Removes a submitted write, with this version number, from its object's queue: the next write may run, and reads once it is
    /// committed. Returns a resend of it that arrived meanwhile.
    pub(in crate::pg) fn leave_submitted(
        &self,
        op: &Rc<ClientOp>,
        version: u64,
        committed: u64,
    ) -> Option<Rc<ClientOp>> {
        let mut objects = self.objects.borrow_mut();
        let again = objects.take_next(&op.oid, |next| next.reqid == op.reqid);
        objects.finish(&op.oid, op, (version > committed).then_some(version));
        again
    }

    /// Answers a request together with the write of this version number; returns it if that is not in flight.
    pub(in crate::pg) fn attach(
        &self,
        version: u64,
        op: Rc<ClientOp>,
        outcome: Outcome,
    ) -> Option<(Rc<ClientOp>, Outcome)> {
        let mut in_flight = self.in_flight.borrow_mut();
        match find(&mut in_flight, version) {
            Some(write) => {
                op.copy_stage(&write.op);
                write.followers.push((op, outcome));
                None
            }
            None => Some((op, outcome)),
        }
    }

    /// Notes that writes with these version numbers became durable here now.
    pub(in crate::pg) fn durable(&self, versions: std::ops::RangeInclusive<u64>, now_ns: u64) {
        let mut in_flight = self.in_flight.borrow_mut();
        for version in versions {
            if let Some(write) = find(&mut in_flight, version) {
                write.local_ns = now_ns;
                write.ops().for_each(|op| op.enters(Stage::Replicas { version }));
            }
        }
    }

    /// Removes and returns the oldest write in flight, if everything up to it is durable everywhere.
    pub(in crate::pg) fn committed(&self, committed: u64) -> Option<Write> {
        let is_committed = |write: &mut Write| write.version.version <= committed;
        let mut in_flight = self.in_flight.borrow_mut();
        let write = in_flight.pop_front_if(is_committed)?;
        let (version, next) = (write.version.version, in_flight.front().map(|next| next.version.version));
        assert!(
            next.is_none_or(|next| next == version + 1),
            "pg {}: write {next:?} in flight comes after {version}",
            self.pg
        );
        drop(in_flight);
        write.ops().for_each(|op| op.enters(Stage::Reply));
        self.objects.borrow_mut().commit(&write.op.oid, write.version.version);
        Some(write)
    }

    /// Begins to send answers; false if that is under way.
    pub(in crate::pg) fn begin_settling(&self) -> bool {
        !self.settling.replace(true)
    }

    pub(in crate::pg) fn end_settling(&self) {
        self.settling.set(false);
    }

    /// Calls `see` with each operation.
    pub(in crate::pg) fn each(&self, mut see: impl FnMut(&Rc<ClientOp>)) {
        self.waiting.borrow().iter().for_each(&mut see);
        self.objects.borrow().iter().for_each(&mut see);
        self.in_flight.borrow().iter().flat_map(Write::ops).for_each(&mut see);
    }

    /// Operations that wait for the PG, objects in use, and writes in flight.
    pub(in crate::pg) fn lengths(&self) -> (usize, usize, usize) {
        (self.waiting.borrow().len(), self.objects.borrow().len(), self.in_flight.borrow().len())
    }
}

/// Whether `op` is the same request as `than`, sent earlier.
fn is_older(op: &ClientOp, than: &ClientOp) -> bool {
    op.reqid == than.reqid && op.request.retry_attempt < than.request.retry_attempt
}

/// Keeps the later of two sendings of a request; returns the other.
fn keep_newer(kept: &mut Rc<ClientOp>, op: Rc<ClientOp>) -> Rc<ClientOp> {
    if is_older(kept, &op) { std::mem::replace(kept, op) } else { op }
}

/// The write with this version number.
fn find(in_flight: &mut VecDeque<Write>, version: u64) -> Option<&mut Write> {
    let first = in_flight.front()?.version.version;
    let at = usize::try_from(version.checked_sub(first)?).ok()?;
    in_flight.get_mut(at)
}
