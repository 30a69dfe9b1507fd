//! Operations: a task's requests to the driver, and the table that owns them while the driver has them.
//!
//! An operation owns its buffers and its handle. The future that waits for it holds only an index: dropping that
//! future cancels the operation, but buffers stay in the table until the driver says that it is done with them.

use std::ffi::CString;
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::buf::{Buf, Bytes, Chunk};
use crate::driver::sim::SimHandle;
use crate::nvme::Namespace;
use crate::shard::Shard;
use crate::sys::{self, SockAddr};
use crate::whole::Whole;

/// An operation descriptor.
pub(crate) enum Op {
    /// Reads into `buf[at..len]`; `off` is the place of the byte that comes to `at`.
    Read { handle: Rc<Handle>, buf: Buf, at: usize, len: usize, off: u64 },
    /// Writes `data`, less its first `skip` bytes, at `off` (which is the place of the first unskipped byte).
    Write { handle: Rc<Handle>, data: Vec<Bytes>, skip: usize, off: u64, dsync: bool },
    /// Flushes data and the device's cache.
    Datasync { handle: Rc<Handle> },
    /// Makes a folder's entries durable.
    SyncFolder { handle: Rc<Handle> },
    /// Receives into `buf[at..capacity]`.
    Recv { handle: Rc<Handle>, buf: Buf, at: usize, poll_first: bool },
    /// Sends `chunks`, less their first `skip` bytes.
    Send { handle: Rc<Handle>, chunks: Vec<Chunk>, skip: usize },
    /// Accepts one connection.
    Accept { handle: Rc<Handle> },
    /// Connects a socket.
    Connect { handle: Rc<Handle>, addr: Box<SockAddr> },
    /// Opens a path.
    Open { path: CString, flags: i32 },
    /// Sets a file's length.
    SetLen { handle: Rc<Handle>, len: u64 },
    /// Gives bytes of a file back to its file system; they read as zeros. A drive that is commanded may forget them, or
    /// writes zeros there if `zeros` says so.
    Discard { handle: Rc<Handle>, off: u64, len: u64, zeros: bool },
}

/// Which of a reactor's rings handles an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Main,
    /// Completions are polled for.
    Polled,
    /// NVMe commands.
    Commands,
}

impl Op {
    /// The ring for the operation. Only reads and writes that reach the drive in one piece can be polled for, and no writes that
    /// may need a flush after them.
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Op::Read { handle, at, len, off, .. } => {
                handle.way().lane(|whole| whole.fits(*off, len.saturating_sub(*at)))
            }
            Op::Write { handle, data, skip, off, dsync: false } => handle
                .way()
                .lane(|whole| whole.takes_parts(*off, data.iter().map(|part| part.as_slice()), *skip)),
            Op::Write { handle, .. } | Op::Datasync { handle } | Op::Discard { handle, .. }
                if matches!(handle.way(), Way::Commands(_)) =>
            {
                Lane::Commands
            }
            _ => Lane::Main,
        }
    }

    /// Whether a drive or a file system completes it, not a peer.
    fn is_of_drive(&self) -> bool {
        matches!(
            self,
            Op::Read { .. }
                | Op::Write { .. }
                | Op::Datasync { .. }
                | Op::SyncFolder { .. }
                | Op::SetLen { .. }
                | Op::Discard { .. }
        )
    }

    /// Completions of these carry a new descriptor.
    fn makes_fd(&self) -> bool {
        matches!(self, Op::Accept { .. } | Op::Open { .. })
    }

    fn is_os(&self) -> bool {
        match self {
            Op::Accept { handle } => matches!(**handle, Handle::Os(..)),
            Op::Open { .. } => true,
            _ => false,
        }
    }
}

/// The task or waker to wake.
#[derive(Default)]
pub(crate) enum WakeTarget {
    #[default]
    Nobody,
    /// A task of this shard, by index: costs nothing.
    Task(u32),
    /// A waker made by a combinator.
    Waker(Waker),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    Queued,
    InFlight,
    Done,
    /// Dropped before the driver saw it.
    DeadQueued,
    /// Dropped while the driver has it.
    Orphan,
}

struct Slot {
    op: Option<Op>,
    state: SlotState,
    result: i32,
    flags: u32,
    target: WakeTarget,
}

/// A completion as the driver reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) op: u32,
    /// Bytes or descriptor, or a negative errno.
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

/// The operation table of a shard.
#[derive(Default)]
pub(crate) struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Not yet given to the driver, in order.
    pub(crate) queue: Vec<u32>,
    /// To be cancelled.
    pub(crate) cancels: Vec<u32>,
    /// Completions that the driver reported and the shard has not yet seen.
    pub(crate) done: Vec<Done>,
    in_flight: usize,
    /// Queued or in flight, to be completed by a drive.
    at_drives: usize,
    completed: u64,
}

impl Ops {
    fn add(&mut self, op: Op) -> u32 {
        self.at_drives += usize::from(op.is_of_drive());
        let slot =
            Slot { op: Some(op), state: SlotState::Queued, result: 0, flags: 0, target: WakeTarget::Nobody };
        let index = match self.free.pop() {
            Some(i) => {
                self.slots[i as usize] = slot;
                i
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.queue.push(index);
        index
    }

    fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Free;
        slot.target = WakeTarget::Nobody;
        self.free.push(index);
    }

    /// Marks a queued operation as the driver's and shows it; `None` if its future was dropped meanwhile.
    pub(crate) fn start(&mut self, index: u32) -> Option<&mut Op> {
        match self.slots[index as usize].state {
            SlotState::Queued => {
                self.in_flight += 1;
                let slot = &mut self.slots[index as usize];
                slot.state = SlotState::InFlight;
                slot.op.as_mut()
            }
            SlotState::DeadQueued => {
                self.release(index);
                None
            }
            _ => None,
        }
    }

    /// An operation that the driver has (`sim` moves the bytes when it completes).
    pub(crate) fn running(&mut self, index: u32) -> Option<&mut Op> {
        let slot = self.slots.get_mut(index as usize)?;
        matches!(slot.state, SlotState::InFlight | SlotState::Orphan).then_some(slot.op.as_mut()).flatten()
    }

    /// The driver has an operation at this index whose future was dropped.
    pub(crate) fn is_orphan(&self, index: u32) -> bool {
        self.slots.get(index as usize).is_some_and(|slot| slot.state == SlotState::Orphan)
    }

    /// Stores a completion; returns whom to wake.
    pub(crate) fn finish(&mut self, d: Done) -> WakeTarget {
        let slot = &mut self.slots[d.op as usize];
        let was_at_drive = slot.op.as_ref().is_some_and(Op::is_of_drive);
        let target = match slot.state {
            SlotState::InFlight => {
                slot.state = SlotState::Done;
                slot.result = d.result;
                slot.flags = d.flags;
                std::mem::take(&mut slot.target)
            }
            SlotState::Orphan => {
                if let Some(op) = slot.op.take()
                    && op.makes_fd()
                    && op.is_os()
                    && d.result >= 0
                {
                    drop(sys::own_fd(d.result));
                }
                self.release(d.op);
                WakeTarget::Nobody
            }
            SlotState::Free | SlotState::Queued | SlotState::Done | SlotState::DeadQueued => {
                return WakeTarget::Nobody;
            }
        };
        self.in_flight -= 1;
        self.at_drives -= usize::from(was_at_drive);
        self.completed += 1;
        target
    }

    /// Operations that the driver has.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether an operation is at a drive, or queued for one.
    pub(crate) fn wait_for_drive(&self) -> bool {
        self.at_drives > 0
    }

    /// The in-flight operations that only a peer can complete (accepts, receives): every listener and every open connection has
    /// one.
    pub(crate) fn standing(&self) -> usize {
        let held = |slot: &&Slot| matches!(slot.state, SlotState::InFlight | SlotState::Orphan);
        let waits = |slot: &&Slot| matches!(slot.op, Some(Op::Accept { .. } | Op::Recv { .. }));
        self.slots.iter().filter(held).filter(waits).count()
    }

    /// Operations completed since the start.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    fn abandon(&mut self, index: u32) {
        // After the shard has ended the table is gone.
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        slot.target = WakeTarget::Nobody;
        match slot.state {
            SlotState::Queued => {
                slot.state = SlotState::DeadQueued;
                self.at_drives -= usize::from(slot.op.take().is_some_and(|op| op.is_of_drive()));
            }
            SlotState::InFlight => {
                slot.state = SlotState::Orphan;
                self.cancels.push(index);
            }
            SlotState::Done => {
                let op = slot.op.take();
                let result = slot.result;
                self.release(index);
                if let Some(op) = op
                    && op.makes_fd()
                    && op.is_os()
                    && result >= 0
                {
                    drop(sys::own_fd(result));
                }
            }
            SlotState::Free | SlotState::DeadQueued | SlotState::Orphan => {}
        }
    }
}

/// Waits for an operation; gives it back with its result and the driver's flags.
pub(crate) struct OpFuture {
    shard: Shard,
    index: Option<u32>,
}

impl OpFuture {
    pub(crate) fn new(shard: &Shard, op: Op) -> OpFuture {
        let index = shard.inner().ops.borrow_mut().add(op);
        OpFuture { shard: shard.clone(), index: Some(index) }
    }
}

/// Outcome of an operation: the result (negative = errno), the driver's flags and the descriptor with its buffers.
pub(crate) struct Outcome {
    pub(crate) result: i32,
    pub(crate) flags: u32,
    pub(crate) op: Op,
}

impl Outcome {
    /// The result as `std` spells it.
    pub(crate) fn io(&self) -> std::io::Result<usize> {
        to_io(self.result)
    }
}

/// A driver result as `std` spells it.
pub(crate) fn to_io(result: i32) -> std::io::Result<usize> {
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result))
}

impl Future for OpFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Some(index) = self.index else { return Poll::Pending };
        let mut ops = self.shard.inner().ops.borrow_mut();
        let Some(slot) = ops.slots.get_mut(index as usize) else { return Poll::Pending };
        if slot.state != SlotState::Done {
            slot.target = self.shard.wake_target(cx);
            return Poll::Pending;
        }
        let Some(op) = slot.op.take() else { return Poll::Pending };
        let (result, flags) = (slot.result, slot.flags);
        ops.release(index);
        drop(ops);
        self.index = None;
        Poll::Ready(Outcome { result, flags, op })
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if let Some(index) = self.index.take() {
            self.shard.inner().ops.borrow_mut().abandon(index);
        }
    }
}

// A socket or file as the driver has it.

/// A descriptor of the driver in use; closing happens on drop, after the last operation that holds it.
pub(crate) enum Handle {
    Os(OwnedFd, Way),
    Sim(SimHandle),
}

/// How a descriptor's reads and writes reach the kernel.
pub(crate) enum Way {
    Plain,
    /// A block device that is polled for completions of requests in one piece.
    Polled(Whole),
    /// A block device whose drive gets NVMe commands. Boxed: it is large, and every socket has a handle, too.
    Commands(Box<Namespace>),
}

impl Way {
    /// The ring for a read or write; `is_whole` says whether it reaches the drive in one piece.
    #[inline]
    fn lane(&self, is_whole: impl FnOnce(&Whole) -> bool) -> Lane {
        match self {
            Way::Plain => Lane::Main,
            Way::Polled(whole) if is_whole(whole) => Lane::Polled,
            Way::Polled(_) => Lane::Main,
            Way::Commands(_) => Lane::Commands,
        }
    }
}

impl From<OwnedFd> for Handle {
    fn from(fd: OwnedFd) -> Handle {
        Handle::Os(fd, Way::Plain)
    }
}

impl Handle {
    /// The kernel's number, or -1 under `sim`.
    pub(crate) fn raw(&self) -> RawFd {
        match self {
            Handle::Os(fd, _) => fd.as_raw_fd(),
            Handle::Sim(_) => -1,
        }
    }

    pub(crate) fn way(&self) -> &Way {
        match self {
            Handle::Os(_, way) => way,
            Handle::Sim(_) => &Way::Plain,
        }
    }
}
