//! Executes the operations of one request: reads at once, writes into a plan that the caller submits. The first operation that
//! fails ends the request with its errno, and nothing is applied.
//!
//! This file has the common operations on data; all others are in `extra`, reached by one call that the common ones skip.

use std::sync::Arc;

use carmine_pgtypes::snaps::SNAPSET;
use carmine_pgtypes::{ObjectChange, ObjectMeta, Step, Xattrs};
use carmine_reactor::Payload;
use carmine_types::{Eversion, LogOp, ObjectId, UTime, errno};
use carmine_wire::osd_op::{Extent, OsdOp, WHOLE_OBJECT_BYTES, flags, ops, payload_bytes};
use carmine_wire::osdmap::consts::POOL_FULL_QUOTA;
use smallvec::SmallVec;

use super::changes::Changes;
use super::extra::{self, Extra, OmapView};
use super::snaps::{self, Target, Writing};
use super::sparse;
use crate::cls;
use crate::config::{
    OBJECT_BYTES_MAX, OUTPUT_BYTES_MAX, REQUEST_BYTES_MAX, TXN_BYTES_MAX, WRITE_BYTES_MAX,
    WRITE_OUTPUT_BYTES_MAX,
};
use crate::error::{OpError, refuse_if};
use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;
use crate::pg::copies::{IfUnfound, Objects};
use crate::shard::OsdShard;

/// The effects of a write request, if it is submitted.
pub(crate) struct Plan {
    pub changes: Changes,
    /// Its effect on the object, as the log records it.
    pub effect: LogOp,
    /// A negative errno, or the last operation's result ([`Told`]) if the client wants it.
    pub result: i32,
    /// Version of the object before it.
    pub prior: Eversion,
    /// The object's size before and after it; `None`: it does not exist.
    pub sizes: (Option<u64>, Option<u64>),
    /// The object's version before it, as clients see it.
    pub user_version: u64,
    pub outputs: Outputs,
    /// Its other effects.
    pub extra: Option<Box<Extra>>,
}

/// Result and output of each operation; missing ones are 0 and empty. A plain read has one, and a plain write none.
pub(crate) type Outputs = SmallVec<[(i32, Payload); 1]>;

impl Plan {
    /// The plan of a request that fails.
    pub(crate) fn failed(result: i32) -> Plan {
        Plan {
            changes: Changes::default(),
            effect: LogOp::Error,
            result,
            prior: Eversion::ZERO,
            sizes: (None, None),
            user_version: 0,
            outputs: SmallVec::new(),
            extra: None,
        }
    }
}

/// The object as the request's operations so far have left it.
pub(crate) struct ObjectState<'a> {
    pub(in crate::pg) oid: &'a Arc<ObjectId>,
    /// The object before the request.
    pub(in crate::pg) was: Option<ObjectMeta>,
    pub(in crate::pg) exists: bool,
    pub(in crate::pg) size: u64,
    /// Time of its last modification, if this request is one.
    pub(crate) mtime: UTime,
    pub(in crate::pg) steps: SmallVec<[Step; 2]>,
    /// The xattrs after those steps.
    pub(in crate::pg) xattrs: Xattrs,
    /// Bytes that `steps` write.
    written: u64,
    /// What is left of [`OUTPUT_BYTES_MAX`].
    pub(in crate::pg) left: u64,
    /// State of the operations in `extra`.
    pub(crate) extra: Option<Box<Extra>>,
}

/// Whether the operation is executed in this file.
fn is_plain(code: u16) -> bool {
    matches!(
        code,
        ops::READ
            | ops::WRITE
            | ops::WRITE_FULL
            | ops::SET_ALLOC_HINT
            | ops::STAT
            | ops::SPARSE_READ
            | ops::ASSERT_VER
            | ops::APPEND
            | ops::TRUNCATE
            | ops::ZERO
            | ops::DELETE
            | ops::CREATE
    )
}

/// The extent of a request that reads one extent of an object, as nearly all do.
fn plain_read(op: &ClientOp) -> Option<Extent> {
    let [read] = op.request.ops.as_slice() else { return None };
    let extent = read.extent();
    // Without a length it may need more memory than the request was admitted for.
    let is_plain = read.code == ops::READ && (1..=OUTPUT_BYTES_MAX).contains(&extent.length);
    (is_plain && op.is_snapless).then_some(extent)
}

/// The outcome of a plain read of data in memory, without a future; `None` for all other requests, and those that fail.
pub(in crate::pg) fn read_at_hand(objects: Objects<'_>, op: &ClientOp) -> Option<Outcome> {
    let Extent { offset, length, .. } = plain_read(op)?;
    let (user_version, data) = objects.read_at_hand(&op.oid, offset, length)?;
    // Without data the object may be a whiteout.
    (!data.is_empty()).then(|| read_done(user_version, data))
}

/// The outcome of a plain read of one block of the device, by a short path; `None` for all other requests.
pub(in crate::pg) async fn read_block(objects: Objects<'_>, op: &ClientOp) -> Option<Outcome> {
    let Extent { offset, length, .. } = plain_read(op)?;
    match objects.read_block(&op.oid, offset, length).await? {
        Ok((user_version, data)) => Some(read_done(user_version, data)),
        // After healing, the normal path reads it again.
        Err(error) => Box::pin(objects.heal(error, IfUnfound::Wait)).await.err().map(|unhealed| {
            let told = OpError::from(unhealed.error).report();
            let is_ok = op.request.ops.iter().any(|op| op.flags & flags::op::FAILOK != 0);
            let mut outcome = Outcome::error(if is_ok { 0 } else { told });
            outcome.outputs.push((told, Payload::new()));
            outcome
        }),
    }
}

fn read_done(user_version: u64, data: Payload) -> Outcome {
    let mut outcome = Outcome { user_version, ..Outcome::default() };
    outcome.outputs.push((0, data));
    outcome
}

/// The plan of a request of plain writes to an object whose metadata is in memory; `None` for all other requests, and those that
/// fail.
#[inline]
pub(in crate::pg) fn plan_at_hand(objects: Objects<'_>, op: &ClientOp) -> Option<Plan> {
    let ops = &op.request.ops;
    debug_assert_eq!(payload_bytes(ops), op.data.len() as u64, "refused before it got here");
    let is_plain = ops.iter().all(|op| is_plain(op.code) && op.is_write());
    if !is_plain || op.request.flags & flags::FULL_TRY != 0 || !op.is_snapless {
        return None;
    }
    let meta = objects.stat_at_hand(&op.oid)?;
    if meta.as_ref().is_some_and(|meta| meta.xattrs.get(SNAPSET).is_some()) {
        return None; // its clones need work
    }
    let mut state = ObjectState::new(&op.oid, meta, op.mtime(objects.osd));
    for (request, input) in op.with_inputs() {
        state.apply(request, op.data.slice(input.start, input.len())).ok()?;
    }
    if state.steps.is_empty() {
        return None;
    }
    let plan = state.into_plan(Outputs::new());
    if !objects.is_prepared(plan.changes.all()) {
        return None;
    }
    Some(plan)
}

/// Operations of one request after which other tasks run.
const OPS_AT_ONCE: usize = 64;

/// Yields before the operation with this index, if enough were executed since the last time.
async fn yield_between_ops(osd: &OsdShard, at: usize) {
    if at > 0 && at.is_multiple_of(OPS_AT_ONCE) {
        osd.shard.yield_now().await;
    }
}

/// Executes a request without writes. As in Ceph, none of its operations is executed if it calls an unknown method, or if there
/// is no object.
pub(crate) async fn read_only(osd: &OsdShard, pg: &Pg, op: &ClientOp) -> Outcome {
    let found = match refusal(osd, op) {
        Ok(()) => snaps::find(osd, pg, op).await,
        Err(error) => Err(error),
    };
    let Target { oid, meta } = match found {
        Ok(target) if target.meta.is_none() && !op.only_watches() => return Outcome::error(errno::ENOENT),
        Ok(target) => target,
        Err(error) => return Outcome::error(error.report()),
    };
    let user_version = meta.as_ref().map_or(0, |m| m.user_version);
    let mut outcome = Outcome { user_version, ..Outcome::default() };
    let mut state: Option<Box<ObjectState<'_>>> = None;
    let mut left = OUTPUT_BYTES_MAX;
    for (at, (request, input)) in op.with_inputs().enumerate() {
        yield_between_ops(osd, at).await;
        let step = if is_plain(request.code) {
            read_op(pg.objects(osd), op, &oid, meta.as_ref(), request, left).await.map(|data| (0, data))
        } else {
            let state =
                state.get_or_insert_with(|| Box::new(ObjectState::new(&oid, meta.clone(), op.mtime(osd))));
            state.left = left;
            let step = Box::pin(extra::step(osd, pg, op, state, request, input)).await;
            left = state.left;
            step
        };
        match step.and_then(|done| charge_output(&mut left, done)) {
            Ok((told, output)) => {
                outcome.result = if keeps_result(request.code) { outcome.result } else { told };
                outcome.outputs.push((outcome.result, output));
            }
            Err(error) if request.flags & flags::op::FAILOK != 0 => {
                outcome.result = 0;
                outcome.outputs.push((error.report(), Payload::new()));
            }
            Err(error) => {
                outcome.result = error.report();
                outcome.outputs.push((outcome.result, Payload::new()));
                break;
            }
        }
    }
    outcome.extra = state.and_then(|state| state.extra).filter(|_| outcome.result >= 0);
    if outcome.result < 0 {
        outcome.user_version = 0; // as in Ceph
    }
    outcome
}

/// Why a client's request is refused as a whole: it has no operations, or calls an unknown method.
fn refusal(osd: &OsdShard, op: &ClientOp) -> Result<(), OpError> {
    refuse_if(op.request.ops.is_empty(), errno::EINVAL)?;
    cls::refusal(osd, op)
}

/// Whether an operation that succeeds keeps the result of the one before it, as in Ceph: the 1 of a comparison, or a method's
/// number.
fn keeps_result(code: u16) -> bool {
    matches!(
        code,
        ops::STAT | ops::OMAP_GET_KEYS | ops::OMAP_GET_VALS | ops::OMAP_GET_VALS_BY_KEYS | ops::OMAP_CMP
    )
}

/// Executes a request with writes against the object as it is now.
pub(crate) async fn plan_write(osd: &OsdShard, pg: &Pg, op: &ClientOp) -> Result<Box<Plan>, OpError> {
    refuse_if(payload_bytes(&op.request.ops) != op.data.len() as u64, errno::EINVAL)?;
    refusal(osd, op)?;
    let context = pg.ops.snaps.context(op)?;
    let (writing, head) = Writing::new(op, context, pg.objects(osd).stat(&op.oid).await?)?;
    let mut state = ObjectState::new(&op.oid, head, op.mtime(osd));
    if writing.is_some() {
        state.extra.get_or_insert_default().writing = writing;
    }
    let mut outputs = Outputs::new();
    let mut result = 0;
    for (at, (request, input)) in op.with_inputs().enumerate() {
        yield_between_ops(osd, at).await;
        let step = if !is_plain(request.code) {
            Box::pin(extra::step(osd, pg, op, &mut state, request, input)).await
        } else if request.is_write() {
            state.apply(request, op.data.slice(input.start, input.len())).map(|()| (0, Payload::new()))
        } else {
            Box::pin(state.read(pg.objects(osd), op, request)).await.map(|data| (0, data))
        };
        match step
            .and_then(|done| charge_output(&mut state.left, done))
            .and_then(|done| bounded_output(op, done))
        {
            Ok(_) if state.is_too_long() => return Ok(Box::new(Plan::failed(errno::EMSGSIZE))),
            Ok((told, output)) => {
                result = if keeps_result(request.code) { result } else { told };
                outputs.push((result, output));
            }
            Err(error) if request.flags & flags::op::FAILOK != 0 => {
                result = 0;
                outputs.push((error.report(), Payload::new()));
            }
            Err(error) => {
                let result = error.report();
                let output = error.output().filter(|_| returns_all(op)).unwrap_or_default();
                outputs.push((result, Payload::from(output.as_bytes().to_vec())));
                return Ok(Box::new(Plan { outputs, ..Plan::failed(result) }));
            }
        }
    }
    if state.exists && state.steps.is_empty() && op.request.ops.iter().any(|op| always_modifies(op.code)) {
        state.steps.push(Step::Touch);
    }
    if op.request.flags & flags::FULL_TRY != 0 && state.grows() && is_over_quota(osd, op) {
        return Ok(Box::new(Plan { outputs, ..Plan::failed(errno::EDQUOT) }));
    }
    // As in Ceph, a request that changes nothing is answered like a read.
    let is_told = returns_all(op) || state.steps.is_empty();
    if !is_told {
        outputs.iter_mut().for_each(|(_, output)| *output = Payload::new());
    }
    let told = if is_told { result } else { 0 };
    let plan = match state.extra.as_mut().and_then(|extra| extra.writing.take()) {
        None => state.into_plan(outputs),
        Some(writing) => snaps::finish(pg, state, &writing, outputs)?,
    };
    // No message to another member could carry it.
    if plan.changes.bytes_max() > TXN_BYTES_MAX {
        return Ok(Box::new(Plan::failed(errno::EMSGSIZE)));
    }
    Ok(Box::new(Plan { result: told, ..plan }))
}

/// Whether an operation gives an existing object a new version, and a clone if needed, even if it changes nothing.
fn always_modifies(code: u16) -> bool {
    matches!(code, ops::SET_ALLOC_HINT | ops::TRUNCATE | ops::WRITE | ops::WRITE_FULL | ops::APPEND)
}

/// Whether the pool has reached its quota. Clients wait then, except those that ask for an error (FULL_TRY).
fn is_over_quota(osd: &OsdShard, op: &ClientOp) -> bool {
    let view = osd.view();
    let pool = view.as_ref().and_then(|view| view.map().pool(op.oid.pool));
    let is_forced = op.request.flags & flags::FULL_FORCE != 0;
    !is_forced && pool.is_some_and(|pool| pool.flags & POOL_FULL_QUOTA != 0)
}

/// The result of a successful operation, 0 or a positive number, and its output.
pub(crate) type Told = (i32, Payload);

/// Charges the output to the request's limit; EMSGSIZE if it exceeds that.
fn charge_output(left: &mut u64, told: Told) -> Result<Told, OpError> {
    *left = left.checked_sub(told.1.len() as u64).ok_or(OpError::new(errno::EMSGSIZE))?;
    Ok(told)
}

/// Whether a write returns its operations' results and outputs, as a read does (RETURNVEC).
pub(in crate::pg) fn returns_all(op: &ClientOp) -> bool {
    op.request.flags & flags::RETURN_VEC != 0
}

/// Checks that the output of a write's operation is not too long to return.
fn bounded_output(op: &ClientOp, told: Told) -> Result<Told, OpError> {
    refuse_if(returns_all(op) && told.1.len() > WRITE_OUTPUT_BYTES_MAX, errno::EOVERFLOW).map(|()| told)
}

async fn read_op(
    objects: Objects<'_>,
    client: &ClientOp,
    oid: &ObjectId,
    meta: Option<&ObjectMeta>,
    op: &OsdOp,
    left: u64,
) -> Result<Payload, OpError> {
    let found = meta.ok_or(OpError::new(errno::ENOENT));
    match op.code {
        ops::READ => {
            let meta = found?;
            admit_read(objects.osd, client, op, meta.size).await;
            read_bytes(objects, oid, meta.size, op, left).await
        }
        // Boxed: it is rare, and awaits more than once.
        ops::SPARSE_READ => Box::pin(sparse::read(objects, oid, found?.size, op, left)).await,
        ops::STAT => found.map(|m| stat_output(m.size, m.mtime)),
        ops::ASSERT_VER => assert_version(op, found?.user_version),
        _ => Err(OpError::new(errno::EOPNOTSUPP)),
    }
}

/// Waits for memory for a read up to the object's end, whose length was not known at admission.
async fn admit_read(osd: &OsdShard, client: &ClientOp, op: &OsdOp, size: u64) {
    let extent = op.extent();
    if extent.length == 0 && size.saturating_sub(extent.offset) > WHOLE_OBJECT_BYTES {
        Box::pin(client.acquire_more(osd)).await;
    }
}

/// Fails unless the object has the version that the operation names.
fn assert_version(op: &OsdOp, have: u64) -> Result<Payload, OpError> {
    match op.assert_ver().ver {
        0 => Err(OpError::new(errno::EINVAL)),
        want if want == have => Ok(Payload::new()),
        want => Err(wrong_version(want, have)),
    }
}

/// The error for a client that expects another version of the object.
pub(in crate::pg) fn wrong_version(want: u64, have: u64) -> OpError {
    OpError::new(if want < have { errno::ERANGE } else { errno::EOVERFLOW })
}

pub(in crate::pg) async fn read_bytes(
    objects: Objects<'_>,
    oid: &ObjectId,
    size: u64,
    op: &OsdOp,
    left: u64,
) -> Result<Payload, OpError> {
    let extent = op.extent();
    let to_end = size.saturating_sub(extent.offset);
    let len = if extent.length == 0 { to_end } else { extent.length.min(to_end) };
    refuse_if(len > left, errno::EMSGSIZE)?;
    if len == 0 {
        return Ok(Payload::new());
    }
    let read = objects.read(oid, extent.offset, len, IfUnfound::Wait).await;
    read.map_err(|unhealed| unhealed.error.into())
}

fn stat_output(size: u64, mtime: UTime) -> Payload {
    let mut out = Vec::with_capacity(16);
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&mtime.sec.to_le_bytes());
    out.extend_from_slice(&mtime.nsec.to_le_bytes());
    Payload::from(out)
}

impl<'a> ObjectState<'a> {
    /// An object before a request that modifies it at `mtime`, if it does; `was` is `None` if there is no object.
    pub(crate) fn new(oid: &'a Arc<ObjectId>, was: Option<ObjectMeta>, mtime: UTime) -> ObjectState<'a> {
        ObjectState {
            oid,
            exists: was.is_some(),
            size: was.as_ref().map_or(0, |m| m.size),
            mtime,
            steps: SmallVec::new(),
            xattrs: was.as_ref().map(|m| m.xattrs.clone()).unwrap_or_default(),
            was,
            written: 0,
            left: OUTPUT_BYTES_MAX,
            extra: None,
        }
    }

    /// Ends the request: the next one sees the resulting state.
    #[cfg(test)]
    pub(crate) fn end_request(&mut self) {
        self.was = self.exists.then(|| ObjectMeta { size: self.size, ..ObjectMeta::default() });
    }

    /// Whether it writes more than a transaction may carry; checked before all of it is in memory.
    pub(in crate::pg) fn is_too_long(&self) -> bool {
        let attr_bytes = self.extra.as_ref().map_or(0, |extra| extra.attr_bytes);
        self.written.saturating_add(attr_bytes) > TXN_BYTES_MAX
    }

    /// Appends a step that changes attributes.
    pub(in crate::pg) fn push_attr(&mut self, step: Step) {
        self.extra.get_or_insert_default().attr_bytes += step.bytes_max();
        match (self.steps.last_mut(), step) {
            (Some(Step::SetOmap { entries }), Step::SetOmap { entries: more }) => entries.extend(more),
            (_, step) => self.steps.push(step),
        }
    }

    /// Whether it creates the object or makes it longer.
    fn grows(&self) -> bool {
        self.exists && self.was.as_ref().is_none_or(|was| self.size > was.size)
    }

    /// A read among the writes of a request. Changes are not in the store yet: the size follows them, the data is the old one.
    async fn read(&self, objects: Objects<'_>, client: &ClientOp, op: &OsdOp) -> Result<Payload, OpError> {
        let is_changed = !self.steps.is_empty();
        match op.code {
            ops::STAT if is_changed && !self.exists => Err(OpError::new(errno::ENOENT)),
            ops::STAT if is_changed => Ok(stat_output(self.size, self.mtime)),
            ops::READ => {
                admit_read(objects.osd, client, op, self.size).await;
                self.bytes(objects, op).await
            }
            ops::SPARSE_READ => {
                let size = self.stored_size().unwrap_or(0);
                sparse::read(objects, self.oid, size, op, self.left).await
            }
            ops::ASSERT_VER => assert_version(op, self.stored().map_or(0, |stored| stored.user_version)),
            _ => read_op(objects, client, self.oid, self.was.as_ref(), op, self.left).await,
        }
    }

    /// The plan that leaves the object in this state.
    #[inline(always)] // otherwise the long plan is copied once more
    pub(in crate::pg) fn into_plan(self, outputs: Outputs) -> Plan {
        let ObjectState { oid, was, exists, size, steps, extra, .. } = self;
        let effect = match exists {
            _ if steps.is_empty() => LogOp::Error,
            true => LogOp::Modify,
            false => LogOp::Delete,
        };
        let sizes = (was.as_ref().map(|m| m.size), exists.then_some(size));
        let (prior, user_version) = was.map_or((Eversion::ZERO, 0), |m| (m.version, m.user_version));
        let mut changes = Changes::default();
        if !steps.is_empty() {
            changes.set_object(ObjectChange { oid: Arc::clone(oid), steps });
        }
        Plan { changes, effect, result: 0, prior, sizes, user_version, outputs, extra }
    }

    /// Executes a plain write with this input.
    fn apply(&mut self, op: &OsdOp, data: Payload) -> Result<(), OpError> {
        let extent = op.extent();
        match op.code {
            ops::WRITE | ops::WRITE_FULL | ops::APPEND if extent.length != data.len() as u64 => {
                return Err(OpError::new(errno::EINVAL));
            }
            ops::WRITE => return self.write(extent.offset, data),
            ops::APPEND => return self.write(self.size, data),
            ops::WRITE_FULL => {
                self.truncate(data.len() as u64);
                return self.write(0, data);
            }
            // As in Ceph, truncating an object that does not exist creates nothing, whatever the size.
            ops::TRUNCATE if !self.exists => {}
            ops::TRUNCATE => self.resize(range_end(extent.offset, 0)?),
            ops::ZERO => return self.zero(extent.offset, extent.length),
            ops::DELETE if !self.exists => return Err(OpError::new(errno::ENOENT)),
            ops::DELETE => self.remove(),
            ops::CREATE => {
                refuse_if(self.exists && op.flags & flags::op::EXCL != 0, errno::EEXIST)?;
                // Also for an existing object: `rados touch` sets its time.
                self.steps.push(Step::Touch);
                self.exists = true;
            }
            ops::SET_ALLOC_HINT => self.touch(),
            _ => return Err(OpError::new(errno::EOPNOTSUPP)),
        }
        Ok(())
    }

    /// Removes the object with its attributes and watches.
    pub(crate) fn remove(&mut self) {
        self.steps.push(Step::Remove);
        (self.exists, self.size, self.xattrs) = (false, 0, Xattrs::default());
        let extra = self.extra.get_or_insert_default();
        extra.omap = Some(OmapView::removed());
        extra.data = None;
        extra.effects.push(extra::Effect::Removed);
    }

    /// Number of steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Cuts the object to this size, if it is longer.
    pub(crate) fn truncate(&mut self, size: u64) {
        if self.exists && self.size > size {
            self.steps.push(Step::Truncate { size });
            self.size = size;
        }
    }

    /// Truncates the object, or extends it with a hole.
    pub(crate) fn resize(&mut self, size: u64) {
        if self.size != size {
            self.steps.push(Step::Truncate { size });
            self.size = size;
        }
    }

    /// As in Ceph, zeros that reach the object's end truncate it; beyond the end they change nothing.
    fn zero(&mut self, off: u64, len: u64) -> Result<(), OpError> {
        let end = range_end(off, len)?;
        if !self.exists || len == 0 || off >= self.size {
            return Ok(());
        }
        if end >= self.size {
            self.resize(off);
        } else {
            self.steps.push(Step::Zero { off, len });
        }
        Ok(())
    }

    pub(crate) fn touch(&mut self) {
        if !self.exists {
            self.steps.push(Step::Touch);
            self.exists = true;
        }
    }

    pub(crate) fn write(&mut self, off: u64, data: Payload) -> Result<(), OpError> {
        refuse_if(data.len() as u64 > WRITE_BYTES_MAX, errno::EMSGSIZE)?;
        self.write_unlimited(off, data)
    }

    /// Writes up to a request's limit; [`write`](Self::write) also checks that of one operation, [`WRITE_BYTES_MAX`].
    pub(in crate::pg) fn write_unlimited(&mut self, off: u64, data: Payload) -> Result<(), OpError> {
        let len = data.len() as u64;
        self.written = self.written.saturating_add(len);
        refuse_if(self.written > REQUEST_BYTES_MAX, errno::EMSGSIZE)?;
        let end = range_end(off, len)?;
        if len == 0 {
            // As in Ceph, an empty write beyond the end makes the object longer.
            self.touch();
            self.resize(self.size.max(off));
            return Ok(());
        }
        debug_assert!(data.is_as_known(), "the checksum of other data");
        self.steps.push(Step::Write { off, data });
        (self.exists, self.size) = (true, self.size.max(end));
        Ok(())
    }
}

/// The end of a range; EFBIG if it exceeds the largest object. As in Ceph, not even an empty range may begin at the largest size.
fn range_end(off: u64, len: u64) -> Result<u64, OpError> {
    let end = off.checked_add(len).filter(|end| off < OBJECT_BYTES_MAX && *end <= OBJECT_BYTES_MAX);
    end.ok_or(OpError::new(errno::EFBIG))
}
