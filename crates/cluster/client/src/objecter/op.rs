//! One operation in flight: from its submission to its reply, how its caller waits for it, and the table of all of them.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use carmine_reactor::Payload;
use carmine_reactor::sync::Permit;
use carmine_types::{Eversion, OsdId};
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags};
use smallvec::SmallVec;

use super::Objecter;
use crate::error::{ClientError, Result};
use crate::options::OPS_IN_FLIGHT_MAX;

/// A caller's request.
pub(crate) struct Ask {
    /// Complete but for `pg`, `epoch`, `flags` RETRY and `retry_attempt`, which depend on the map.
    pub(crate) request: OsdRequest,
    /// The ops' payloads, one after the other.
    pub(crate) data: Payload,
    /// Limit from now on.
    pub(crate) timeout: Option<Duration>,
}

/// The answer of an OSD.
#[derive(Debug)]
pub struct Reply {
    /// Not negative: those are errors. 1: the end of a PG in a listing.
    pub result: i32,
    /// Version that a write gave the object; zero for reads.
    pub version: Eversion,
    /// The object's version as users see it.
    pub user_version: u64,
    /// The output of each operation.
    pub outputs: SmallVec<[Output; 2]>,
}

/// The output of one operation.
#[derive(Debug)]
pub struct Output {
    /// The operation, as the OSD echoed it.
    pub op: OsdOp,
    /// Its own result.
    pub result: i32,
    /// Its data.
    pub data: Payload,
}

impl Reply {
    /// The data of operation `index`; nothing if there is no such operation.
    pub fn take_data(&mut self, index: usize) -> Payload {
        self.outputs.get_mut(index).map(|output| std::mem::take(&mut output.data)).unwrap_or_default()
    }
}

/// An operation from its submission to its reply.
pub(super) struct Op {
    /// See [`Table`].
    pub(super) tid: u64,
    pub(super) request: OsdRequest,
    pub(super) data: Payload,
    /// The OSD that it is for, in the current map. `None`: its PG has no primary now, or the map says to wait.
    pub(super) osd: Option<OsdId>,
    /// The connection that it was sent on and that still stands; 0: none.
    pub(super) sent_on: u64,
    /// Sent at least once: the next time is a retry.
    pub(super) sent: bool,
    /// Reactor time at which it was last sent.
    pub(super) sent_ns: u64,
    /// Not to be sent before this reactor time (after EAGAIN).
    pub(super) not_before_ns: u64,
    /// Reactor time at which it fails; `u64::MAX`: never.
    pub(super) deadline_ns: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) outcome: Option<Result<Reply>>,
    pub(super) waker: Option<Waker>,
    /// Its share of what may be in flight.
    pub(super) _permits: [Permit; 2],
}

impl Op {
    pub(super) fn is_write(&self) -> bool {
        self.request.flags & flags::WRITE != 0
    }

    /// For errors and logs: the operations and the object.
    pub(super) fn describe(&self) -> String {
        describe(&self.request)
    }

    /// Ends it. Wakes whoever waits.
    pub(super) fn complete(&mut self, outcome: Result<Reply>) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}

/// The operations and the object of a request, e.g. `write 0~4096 of "obj1" in pool 1`.
pub(crate) fn describe(request: &OsdRequest) -> String {
    let ops: Vec<String> = request.ops.iter().map(|op| format!("{op:?}")).collect();
    let name = String::from_utf8_lossy(&request.name);
    format!("{} of {name:?} in pool {}", ops.join(" + "), request.locator.pool)
}

/// Resolves with the operation's outcome. Dropping it gives the operation up: a reply that still comes is ignored (a write
/// may happen all the same).
pub(super) struct InFlight {
    pub(super) objecter: Rc<Objecter>,
    pub(super) tid: u64,
}

impl Future for InFlight {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let mut table = self.objecter.table.borrow_mut();
        // Polled again after its end, or taken out by a shutdown.
        let Some(op) = table.get(self.tid) else { return Poll::Ready(Err(ClientError::Closed)) };
        if let Some(outcome) = op.outcome.take() {
            let done = table.remove(self.tid);
            drop(table);
            drop(done);
            return Poll::Ready(outcome);
        }
        if !op.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            op.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // The permits inside wake whoever waits for them: not while the table is borrowed.
        let given_up = self.objecter.table.borrow_mut().remove(self.tid);
        drop(given_up);
    }
}

/// Bits of a transaction id that are the slot's index.
const INDEX_BITS: u32 = 16;
const _: () = assert!(1 << INDEX_BITS == OPS_IN_FLIGHT_MAX);

/// Operations by transaction id. An id is a rising number with the slot's index below it: found without a search, never
/// used twice, and sorted by submission.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Op>>,
    free: Vec<usize>,
    last: u64,
}

impl Table {
    /// Takes in an operation and gives it its id. `None` if all slots are taken.
    pub(super) fn insert(&mut self, mut op: Op) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < OPS_IN_FLIGHT_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.last += 1;
        op.tid = self.last << INDEX_BITS | index as u64;
        let tid = op.tid;
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(op);
        }
        Some(tid)
    }

    pub(super) fn get(&mut self, tid: u64) -> Option<&mut Op> {
        self.slots.get_mut(index(tid))?.as_mut().filter(|op| op.tid == tid)
    }

    pub(super) fn remove(&mut self, tid: u64) -> Option<Op> {
        let index = index(tid);
        let op = self.slots.get_mut(index)?.take_if(|op| op.tid == tid)?;
        self.free.push(index);
        Some(op)
    }

    /// All operations, in no order.
    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Op> {
        self.slots.iter_mut().flatten()
    }

    /// Ids of the operations that `which` picks, in the order of their submission.
    pub(super) fn pick(&mut self, mut which: impl FnMut(&mut Op) -> bool) -> Vec<u64> {
        let mut tids: Vec<u64> = self.iter().filter_map(|op| which(op).then_some(op.tid)).collect();
        tids.sort_unstable();
        tids
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn index(tid: u64) -> usize {
    (tid & ((1 << INDEX_BITS) - 1)) as usize
}
