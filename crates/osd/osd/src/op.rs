//! One client operation inside the OSD, and where its answer goes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use carmine_crush::object_hash;
use carmine_messenger::{Connection, Permit, PermitToken};
use carmine_reactor::{Payload, Shard, ShardId, probes, sync::oneshot};
use carmine_types::{Eversion, ObjectId, ReqId, SNAP_DIR, SNAP_HEAD, UTime, errno};
use carmine_wire::header::Header2;
use carmine_wire::osd_op::{
    ANSWER_BYTES, Extent, OPS_MAX, OsdOp, OsdReply, OsdRequest, flags, ops, payload_bytes,
};
use smallvec::{SmallVec, smallvec};

use crate::cls;
use crate::config::{NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, WRITE_BYTES_MAX};
use crate::pg::{Extra, Outputs, Queued};
use crate::room::{More, acquire_more};
use crate::shard::OsdShard;

/// A decoded request, with all it needs to be executed and answered. It stays the same while it waits, runs, and is started over
/// in a new interval; it is answered once.
pub(crate) struct ClientOp {
    /// The request; its name has been moved into `oid`.
    pub(crate) request: OsdRequest,
    /// The object's head, whatever snapshot is asked for (an empty name for PG operations).
    pub(crate) oid: Arc<ObjectId>,
    /// Input of all ops, concatenated.
    pub(crate) data: Payload,
    /// Identity of the request, by which resends are found; its tid is the message's, echoed.
    pub(crate) reqid: ReqId,
    /// Whether it changes its object.
    pub(crate) is_write: bool,
    /// Whether it is about the head and its client knows of no snapshot.
    pub(crate) is_snapless: bool,
    /// Set for the OSD's own operation that trims this snapshot of the object.
    pub(crate) trims: Option<u64>,
    /// When it was decoded.
    pub(crate) arrived_ns: u64,
    /// When it was last started: when it arrived, unless it waited.
    pub(crate) started_ns: Cell<u64>,
    /// Its current stage.
    stage: Cell<Stage>,
    /// It was given to the store.
    is_submitted: Cell<bool>,
    /// Where the answer goes; `None` once it is sent.
    to: RefCell<Option<ReplyTo>>,
    /// Extra memory granted while it runs.
    more: RefCell<Option<More>>,
}

/// The stage that an operation is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The PG is not active.
    WaitingForPg,
    /// Other operations of its object come first.
    Queued,
    /// It reads what it needs from the store.
    Executing,
    /// Submitted with this version number, and not durable here.
    Store { version: u64 },
    /// Durable here with this version number, and not on all members.
    Replicas { version: u64 },
    /// Durable everywhere.
    Reply,
}

impl Stage {
    /// As `dump_ops_in_flight` prints it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::WaitingForPg => "waiting_for_pg",
            Stage::Queued => "queued",
            Stage::Executing => "executing",
            Stage::Store { .. } => "store",
            Stage::Replicas { .. } => "replicas",
            Stage::Reply => "reply",
        }
    }
}

/// A connection, from any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Its shard, and its id there.
    pub home: ShardId,
    pub conn: u64,
}

/// Where an answer goes.
pub(crate) enum ReplyTo {
    /// A connection of this shard; the permit lets its peer send more when the operation ends.
    Conn(Rc<Connection>, #[allow(dead_code)] Option<Permit>),
    /// A connection of another shard.
    Hop(HopBack),
    /// A generator inside this process.
    Local(oneshot::Sender<LocalReply>),
}

/// The way back to the shard of the connection. Dropping it releases the budget that the operation holds there, whatever becomes
/// of the operation.
pub(crate) struct HopBack {
    /// The shard that the operation is on.
    pub here: Shard,
    /// The connection.
    pub origin: Origin,
    pub token: Option<PermitToken>,
}

impl HopBack {
    fn send_back(&mut self, reply: Option<(Header2, Vec<u8>, Payload)>) {
        let (Origin { home, conn }, token) = (self.origin, self.token.take());
        if token.is_none() && reply.is_none() {
            return;
        }
        self.here.submit_to(home, move |home| {
            let Some(home) = OsdShard::on(home) else { return };
            let Some(conn) = home.conn(conn) else {
                token.into_iter().for_each(|token| token.give_back(&home.budget));
                return;
            };
            if let Some((header, front, data)) = reply {
                conn.send_with(&header, |out| out.extend_from_slice(&front), data);
            }
            token.into_iter().for_each(|token| conn.release(token));
        });
    }
}

impl Drop for HopBack {
    fn drop(&mut self) {
        self.send_back(None);
    }
}

/// The result of executing a request.
#[derive(Default)]
pub(crate) struct Outcome {
    /// A negative errno, or the last operation's result.
    pub result: i32,
    pub outputs: Outputs,
    /// Log version of a write.
    pub version: Eversion,
    pub user_version: u64,
    /// The operation's effects besides the answer.
    pub extra: Option<Box<Extra>>,
}

impl Outcome {
    /// Bytes of all outputs.
    pub(crate) fn bytes(&self) -> u64 {
        self.outputs.iter().map(|(_, data)| data.len() as u64).sum()
    }

    pub(crate) fn error(result: i32) -> Outcome {
        Outcome { result, ..Outcome::default() }
    }

    /// The outcome of a request that is one operation with an output.
    pub(crate) fn with_output(result: i32, output: Vec<u8>) -> Outcome {
        Outcome { result, outputs: smallvec![(result, Payload::from(output))], ..Outcome::default() }
    }
}

/// Answer to an operation that did not come through a connection.
#[derive(Debug)]
pub struct LocalReply {
    /// A negative errno, or 0 or a positive number.
    pub result: i32,
    /// Output of each op.
    pub outputs: SmallVec<[Payload; 2]>,
}

impl ClientOp {
    /// An operation that has just arrived.
    #[inline(always)] // otherwise the long request is copied once more
    pub(crate) fn new(
        mut request: OsdRequest,
        reqid: ReqId,
        data: Payload,
        arrived_ns: u64,
        to: ReplyTo,
    ) -> Rc<ClientOp> {
        let oid = Arc::new(ObjectId { snap: SNAP_HEAD, ..request.take_object_id() });
        let is_write = with_inputs(&request, data.len()).any(|(op, input)| match op.code {
            ops::WATCH => !matches!(op.watch().op, flags::watch::PING | flags::watch::RECONNECT),
            ops::CALL => cls::writes(&request, op, &data.slice(input.start, input.len())),
            _ => op.is_write(),
        });
        let is_snapless = request.snap_seq == 0 && request.snapid == SNAP_HEAD;
        let op = Rc::new(ClientOp {
            request,
            oid,
            data,
            reqid,
            is_write,
            is_snapless,
            trims: None,
            arrived_ns,
            started_ns: Cell::new(arrived_ns),
            stage: Cell::new(Stage::WaitingForPg),
            is_submitted: Cell::new(false),
            to: RefCell::new(Some(to)),
            more: RefCell::default(),
        });
        op.is_received();
        op
    }

    /// The OSD's own operation that trims a snapshot of an object.
    pub(crate) fn trim(request: OsdRequest, snap: u64, arrived_ns: u64, to: ReplyTo) -> Rc<ClientOp> {
        // Entries without a client have a zero id.
        let op = ClientOp::new(request, ReqId::default(), Payload::new(), arrived_ns, to);
        let op = Rc::into_inner(op).map(|op| ClientOp {
            is_write: true,
            is_snapless: false,
            trims: Some(snap),
            ..op
        });
        let op = Rc::new(op.expect("nobody else has it yet"));
        op.is_received(); // it has another address
        op
    }

    /// Identifies it in probes: no other live operation has its address.
    #[inline]
    fn address(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }

    #[inline]
    fn is_received(&self) {
        let (ReqId { client, tid, .. }, pg) = (self.reqid, self.request.pg);
        probes::op_received(self.address(), client, tid, pg.pool, pg.ps);
    }

    /// It is given to the store; true if it was before.
    pub(crate) fn submits_again(&self) -> bool {
        self.is_submitted.replace(true)
    }

    /// Its current stage.
    pub(crate) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Takes over the stage of another operation, with which it will be answered.
    pub(crate) fn copy_stage(&self, other: &ClientOp) {
        self.stage.set(other.stage());
    }

    /// Sets its stage.
    #[inline(always)] // callers pass a constant stage, so that only one probe remains
    pub(crate) fn enters(&self, stage: Stage) {
        self.stage.set(stage);
        let op = self.address();
        match stage {
            Stage::WaitingForPg => probes::op_waiting(op),
            Stage::Queued => probes::op_queued(op),
            Stage::Executing => probes::op_started(op),
            Stage::Store { version } => probes::op_submitted(op, version),
            Stage::Replicas { .. } => probes::op_durable(op),
            Stage::Reply => probes::op_committed(op),
        }
    }

    /// Notes that its wait has ended.
    pub(crate) fn note_started(&self, osd: &OsdShard) {
        self.started_ns.set(osd.shard.stamp_ns());
    }

    /// Whether all it changes are watches, which leave the object as clients see it unchanged.
    pub(crate) fn only_watches(&self) -> bool {
        self.request.ops.iter().all(|op| op.code == ops::WATCH)
    }

    /// Its operations, each with the range of its input in the data.
    pub(crate) fn with_inputs(&self) -> impl Iterator<Item = (&OsdOp, Range<usize>)> {
        with_inputs(&self.request, self.data.len())
    }

    /// The connection that it arrived on; `here` is the shard that has the operation now.
    pub(crate) fn origin(&self, here: ShardId) -> Option<Origin> {
        match &*self.to.borrow() {
            Some(ReplyTo::Conn(conn, _)) => Some(Origin { home: here, conn: conn.id() }),
            Some(ReplyTo::Hop(back)) => Some(back.origin),
            Some(ReplyTo::Local(_)) | None => None,
        }
    }

    /// Whether it is about a PG, not an object.
    pub(crate) fn is_pg_op(&self) -> bool {
        self.request.ops.iter().any(|op| op.is_pg_op())
    }

    /// Time of a modification: the client's, or ours if it gave none.
    pub(crate) fn mtime(&self, osd: &OsdShard) -> UTime {
        let given = self.request.mtime;
        if given == UTime::ZERO { UTime::from_unix(osd.shard.unix_now()) } else { given }
    }

    /// Drops the operation without an answer.
    pub(crate) fn abandon(&self) {
        // Dropped after the borrow ends, because the drop releases budget.
        let to = self.to.borrow_mut().take();
        if to.is_some() {
            probes::op_dropped(self.address());
        }
        drop(to);
        self.release_more();
    }

    /// Waits until the request may hold more memory than was known at admission. It holds that until it is answered.
    pub(crate) async fn acquire_more(&self, osd: &OsdShard) {
        if !self.has_more() {
            let more = acquire_more(osd, self).await;
            *self.more.borrow_mut() = more;
        }
    }

    /// The same for an answer of this many bytes, if the request was admitted for fewer: it may have one long value.
    pub(crate) async fn acquire_for(&self, osd: &OsdShard, answer_bytes: u64) {
        if answer_bytes > ANSWER_BYTES {
            self.acquire_more(osd).await;
        }
    }

    fn has_more(&self) -> bool {
        self.more.borrow().is_some()
    }

    /// Releases that memory: the operation is answered, or will be started over.
    #[inline]
    pub(crate) fn release_more(&self) {
        if self.has_more() {
            let more = self.more.take();
            drop(more);
        }
    }

    /// The errno of a request that is refused whatever the state of its object.
    pub(crate) fn refusal(&self) -> Option<i32> {
        let oid = &self.oid;
        if self.request.ops.len() > OPS_MAX {
            return Some(errno::E2BIG);
        }
        if self.data.len() as u64 > WRITE_BYTES_MAX {
            return Some(errno::EMSGSIZE);
        }
        // Surplus data belongs to no op, yet the checksum covers it. Ceph executes nothing in parallel.
        let is_odd = payload_bytes(&self.request.ops) != self.data.len() as u64;
        if is_odd || self.request.flags & flags::PARALLEL_EXEC != 0 {
            return Some(errno::EINVAL);
        }
        if self.is_pg_op() {
            return None; // has no object; `list` checks its own requests
        }
        if oid.name.len().max(oid.key.len()) > NAME_BYTES_MAX || oid.nspace.len() > NAMESPACE_BYTES_MAX {
            return Some(errno::ENAMETOOLONG);
        }
        // Objects are sorted by this hash on disk: with a wrong one, listings and repairs would miss them.
        let is_right = oid.hash == object_hash(&oid.nspace, &oid.key, &oid.name);
        if oid.name.is_empty() || !is_right {
            return Some(errno::EINVAL);
        }
        if self.is_snapless {
            return None;
        }
        // SNAP_DIR may only be listed, and only the head may be written.
        let snap = self.request.snapid;
        let is_odd = |op: &OsdOp| snap == SNAP_DIR && op.code != ops::LIST_SNAPS;
        let refused = (self.is_write && snap != SNAP_HEAD) || self.request.ops.iter().any(is_odd);
        refused.then_some(errno::EINVAL)
    }

    /// A client's read that any member of the acting set may answer.
    pub(crate) fn may_go_to_replicas(&self) -> bool {
        !self.is_write && self.request.flags & (flags::BALANCE_READS | flags::LOCALIZE_READS) != 0
    }

    /// Sends the answer, which ends the operation.
    pub(crate) fn reply(&self, osd: &OsdShard, mut outcome: Outcome) {
        if osd.holds_back(outcome.result) {
            return self.abandon();
        }
        let to = self.to.borrow_mut().take();
        match to {
            None => return self.release_more(),
            Some(ReplyTo::Local(tell)) => {
                let outputs = outcome.outputs.into_iter().map(|(_, data)| data).collect();
                let _ = tell.send(LocalReply { result: outcome.result, outputs });
            }
            Some(ReplyTo::Conn(conn, _permit)) => {
                let reply = self.encode(osd, &outcome);
                let data = joined(&mut outcome);
                conn.send_with(&OsdReply::header(self.reqid.tid), |out| reply.encode_into(out), data);
            }
            Some(ReplyTo::Hop(mut back)) => {
                let mut front = Vec::with_capacity(192 + self.oid.name.len());
                self.encode(osd, &outcome).encode_into(&mut front);
                back.send_back(Some((OsdReply::header(self.reqid.tid), front, joined(&mut outcome))));
            }
        }
        let ReqId { client, tid, .. } = self.reqid;
        probes::op_replied(self.address(), client, tid, self.arrived_ns, outcome.result);
        self.release_more(); // after the answer is queued, which counts by itself from now on
    }

    #[inline] // otherwise the long reply is copied once more
    fn encode<'a>(&'a self, osd: &OsdShard, outcome: &Outcome) -> OsdReply<'a> {
        let mut reply = OsdReply::to(&self.request, &self.oid.name, osd.epoch(), outcome.result);
        for ((op, rval), (result, data)) in reply.ops.iter_mut().zip(&mut reply.rvals).zip(&outcome.outputs) {
            set_output(op, data.len());
            *rval = *result;
        }
        reply.user_version = outcome.user_version;
        reply.replay_version = outcome.version;
        reply.bad_replay = Eversion::new(reply.epoch.0, outcome.user_version);
        reply
    }
}

/// The operations of a request, each with the range of its input in the request's data. The ranges are empty if the lengths
/// contradict the data.
fn with_inputs(request: &OsdRequest, data_bytes: usize) -> impl Iterator<Item = (&OsdOp, Range<usize>)> {
    let fits = payload_bytes(&request.ops) == data_bytes as u64;
    let mut end = 0;
    request.ops.iter().map(move |op| {
        let start = end;
        end += if fits { op.payload_len as usize } else { 0 };
        (op, start..end)
    })
}

impl Queued for Rc<ClientOp> {
    fn is_write(&self) -> bool {
        self.is_write
    }

    fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(self, other)
    }
}

/// Sets the echoed extent of a read to the length really read, as Ceph does.
fn set_output(op: &mut OsdOp, len: usize) {
    op.payload_len = len as u32;
    if op.code == ops::READ {
        *op = op.with_extent(Extent { length: len as u64, ..op.extent() });
    }
}

/// All outputs, one after the other.
fn joined(outcome: &mut Outcome) -> Payload {
    let mut outputs = outcome.outputs.iter_mut().map(|(_, data)| std::mem::take(data));
    let mut all = outputs.next().unwrap_or_default();
    outputs.for_each(|data| all.append(&data));
    all
}
