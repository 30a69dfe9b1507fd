//! One operation in flight.

use crate::error::Result;
use carmine_reactor::Payload;
use carmine_reactor::sync::Permit;
use carmine_types::{Eversion, OsdId};
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags};
use smallvec::SmallVec;
use std::task::Waker;
use std::time::Duration;

/// What a caller wants done.
pub(crate) struct Ask {
    /// Complete but for `pg`, `epoch`, `flags` RETRY and `retry_attempt`, which depend on the map.
    pub(crate) request: OsdRequest,
    /// The ops' payloads, one after the other.
    pub(crate) data: Payload,
    /// Checksum of `data`, if it is known.
    pub(crate) data_crc: Option<u32>,
    /// Limit from now on.
    pub(crate) timeout: Option<Duration>,
}

/// What an OSD answered.
#[derive(Debug)]
pub struct Reply {
    /// Not negative: those are errors. 1: the end of a PG in a listing.
    pub result: i32,
    /// Version that a write gave the object; zero for reads.
    pub version: Eversion,
    /// The object's version as users see it.
    pub user_version: u64,
    /// What each operation returned.
    pub outputs: SmallVec<[Output; 2]>,
}

/// What one operation returned.
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
    /// See [`super::table::Table`].
    pub(super) tid: u64,
    pub(super) request: OsdRequest,
    pub(super) data: Payload,
    /// Known or computed once, however often the operation is sent.
    pub(super) data_crc: Option<u32>,
    /// Whom it is for, in the current map. `None`: its PG has no primary now, or the map says to wait.
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
