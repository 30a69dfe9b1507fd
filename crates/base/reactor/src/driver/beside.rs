//! The rings beside a shard's main one: one that is polled, and one for NVMe commands.
//!
//! Both have entries of 128 and completions of 32 bytes, which commands need and the main ring does not pay for. They are
//! entered and reaped in the same turn as the main ring. A command's completion wakes a sleeping shard through its eventfd;
//! nothing announces a polled one, so a shard that waits for any does not sleep.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::uring::{MAX_IOVECS, Registered, read_entry, write_entry};
use crate::nvme::{self, Command, Layout, Namespace, Transfer};
use crate::op::{Done, Lane, Op, Way};
use crate::sys::{self, RingFd};

/// Least time between two lines in the log about failed commands.
const REPORT_NS: u64 = 1_000_000_000;

/// Memory that a command needs while it is in flight. It is kept for the next operation with the same index.
#[derive(Default)]
struct Flight {
    /// Bytes that the operation reports if the command succeeds.
    bytes: u64,
    /// Its gather list, which the kernel reads whenever it gets to the command.
    iovecs: Vec<libc::iovec>,
    /// Its list of one range.
    range: Vec<u8>,
    /// It names a registered buffer.
    fixed: bool,
}

/// A ring beside the main one.
pub(crate) struct Beside {
    ring: IoUring<squeue::Entry128, cqueue::Entry32>,
    fd: RingFd,
    lane: Lane,
    in_flight: usize,
    completed: u64,
    flights: Vec<Flight>,
    /// Buffers whose pages are registered with this ring.
    registered: Option<Registered>,
    reported_ns: u64,
}

impl Beside {
    /// Makes the ring on the calling thread, which must be the one that uses it.
    pub(crate) fn new(
        lane: Lane,
        entries: u32,
        event: Option<&OwnedFd>,
        registered: Option<&Registered>,
    ) -> io::Result<Beside> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry32>::builder();
        builder
            .setup_single_issuer()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(8));
        match lane {
            Lane::Polled => builder.setup_iopoll(),
            Lane::Main | Lane::Commands => builder.setup_defer_taskrun().setup_taskrun_flag(),
        };
        let mut ring = builder.build(entries)?;
        if let Some(event) = event.filter(|_| lane == Lane::Commands) {
            ring.submitter().register_eventfd(event.as_raw_fd())?;
            ring.completion().disable_eventfd();
        }
        let raw = ring.as_raw_fd();
        let fd = sys::register_ring_fd(raw).map_or(RingFd::Plain(raw), RingFd::Registered);
        let registered = registered.filter(|buffers| buffers.register(&ring.submitter())).cloned();
        Ok(Beside {
            ring,
            fd,
            lane,
            in_flight: 0,
            completed: 0,
            flights: Vec::new(),
            registered,
            reported_ns: 0,
        })
    }

    /// Operations completed since the start.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether the drive must be polled for completions.
    fn is_polling(&self) -> bool {
        self.lane == Lane::Polled && self.in_flight > 0
    }

    /// It must be entered or reaped now. Reads shared memory only.
    #[inline]
    pub(crate) fn has_events(&mut self) -> bool {
        if self.in_flight == 0 {
            return false;
        }
        let polling = self.is_polling();
        let (_, sq, cq) = self.ring.split();
        polling || !sq.is_empty() || !cq.is_empty() || sq.taskrun() || sq.cq_overflow()
    }

    /// Lets completions wake the shard. True: there are some already, and it must not sleep.
    pub(crate) fn listen(&mut self) -> bool {
        if self.lane == Lane::Commands && self.in_flight > 0 {
            self.ring.completion().enable_eventfd();
            // Either the kernel sees the request to signal, or this thread sees the completions.
            fence(Ordering::SeqCst);
        }
        self.has_events()
    }

    /// The shard is awake: no signals.
    pub(crate) fn awake(&mut self) {
        if self.lane == Lane::Commands && self.in_flight > 0 {
            self.ring.completion().disable_eventfd();
        }
    }

    /// There is room for one more operation.
    pub(crate) fn has_room(&mut self) -> bool {
        !self.ring.submission().is_full()
    }

    /// Accepts an operation, for which there must be room; false if this ring cannot express it.
    pub(crate) fn push(&mut self, index: u32, op: &mut Op) -> bool {
        let at = index as usize;
        if self.flights.len() <= at {
            self.flights.resize_with(at + 1, Flight::default);
        }
        let registered = self.registered.as_ref();
        let entry = match self.lane {
            Lane::Commands => self.flights[at].command(op, registered),
            Lane::Main | Lane::Polled => self.flights[at].polled(op, registered).map(squeue::Entry128::from),
        };
        let Some(entry) = entry else { return false };
        let entry = entry.user_data(u64::from(index));
        // SAFETY: the entry points to memory that `Ops` (buffers) or `flights` (gather lists and ranges, one set for each
        // operation) own until the completion is reaped.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "{} operations are in flight, and the ring is full", self.in_flight);
        self.in_flight += 1;
        true
    }

    /// Submits, and lets the kernel look for completions.
    fn enter(&mut self) -> io::Result<()> {
        loop {
            let submit = self.ring.submission().len() as u32;
            match sys::ring_enter(self.fd, submit, 0, None) {
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                // Memory is short, or completions must be reaped first: in the next turn.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Submits what was pushed and takes what is done. Tells how often the kernel was entered.
    pub(crate) fn turn(&mut self, done: &mut Vec<Done>) -> io::Result<u64> {
        if !self.has_events() {
            return Ok(0);
        }
        let only_reap = !self.is_polling() && {
            let (_, sq, _) = self.ring.split();
            sq.is_empty() && !sq.taskrun() && !sq.cq_overflow()
        };
        if !only_reap {
            self.enter()?;
        }
        self.reap(done);
        Ok(u64::from(!only_reap))
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        let (mut failed, mut unfixed) = (None, false);
        let (_, _, mut cq) = self.ring.split();
        for completion in &mut cq {
            let op = completion.user_data() as u32;
            let result = match (self.lane, completion.result()) {
                // A command answers with its status only; on success everything requested was done.
                (Lane::Commands, 0) => self.flights.get(op as usize).map_or(0, |flight| flight.bytes as i32),
                (Lane::Commands, status @ 1..) => {
                    failed = Some(status as u32);
                    -nvme::errno(status as u32)
                }
                // Linux 6.1 refuses commands that name a part of a registered buffer of huge pages: the file gives it again,
                // and this ring names none from now on.
                (Lane::Commands, result)
                    if result == -libc::EINVAL
                        && self.flights.get(op as usize).is_some_and(|flight| flight.fixed) =>
                {
                    unfixed = true;
                    -libc::EINTR
                }
                // The drive had no room for it, and polled requests cannot wait for some: the file gives it again.
                (Lane::Polled, result) if result == -libc::EAGAIN => -libc::EINTR,
                (_, result) => result,
            };
            self.in_flight -= 1;
            self.completed += 1;
            done.push(Done { op, result, flags: 0 });
        }
        drop(cq);
        if unfixed && self.registered.take().is_some() {
            tracing::info!("the kernel takes no registered buffers for NVMe commands: they go without");
        }
        if let Some(status) = failed {
            self.report(status);
        }
    }

    fn report(&mut self, status: u32) {
        let now = sys::monotonic_ns();
        if now.saturating_sub(self.reported_ns) > REPORT_NS {
            self.reported_ns = now;
            let (kind, code) = (status >> 8 & 7, status & 0xff);
            tracing::warn!(
                "a drive refused a command with status {code:#04x} of type {kind} (NVM Express Base Specification)"
            );
        }
    }
}

impl Flight {
    /// An operation as a read or write of the block layer.
    fn polled(&mut self, op: &Op, registered: Option<&Registered>) -> Option<squeue::Entry> {
        match op {
            Op::Read { handle, buf, at, len, off } => {
                let into = (buf.ptr().as_ptr().wrapping_add(*at), len.checked_sub(*at)?);
                Some(read_entry(handle.raw(), into, *off, registered))
            }
            Op::Write { handle, data, skip, off, .. } => {
                self.gather(data.iter().map(|part| part.as_slice()), *skip, usize::MAX);
                if let ([part], [_]) = (data.as_slice(), self.iovecs.as_slice()) {
                    return Some(write_entry(handle.raw(), part.get(*skip..)?, (*off, 0), registered));
                }
                let (list, count) = (self.iovecs.as_ptr(), self.iovecs.len() as u32);
                Some(opcode::Writev::new(types::Fd(handle.raw()), list, count).offset(*off).build())
            }
            _ => None,
        }
    }

    /// An operation as a command.
    fn command(&mut self, op: &Op, registered: Option<&Registered>) -> Option<squeue::Entry128> {
        let (namespace, command, gathered) = self.command_for(op)?;
        let fixed = registered
            .filter(|_| !gathered && command.data_len > 0)
            .and_then(|buffers| buffers.region(command.addr as usize, command.data_len as usize));
        let code = if gathered { nvme::COMMAND_GATHERED } else { nvme::COMMAND };
        let entry = opcode::UringCmd80::new(types::Fd(namespace.generic.as_raw_fd()), code)
            .cmd(command.encode())
            .buf_index(fixed);
        self.fixed = fixed.is_some();
        Some(entry.build())
    }

    /// The command for an operation, with its memory; true if that is a gather list.
    fn command_for<'a>(&mut self, op: &'a Op) -> Option<(&'a Namespace, Command, bool)> {
        match op {
            Op::Read { handle, buf, at, len, off } => {
                let namespace = commanded(handle.way())?;
                let bytes = len.checked_sub(*at)?.min(namespace.layout.transfer_bytes_max());
                let command = namespace.layout.transfer(Transfer::Read, *off, bytes)?;
                self.bytes = bytes as u64;
                Some((namespace, command.with(buf.ptr().as_ptr().wrapping_add(*at) as u64, bytes), false))
            }
            Op::Write { handle, data, skip, off, dsync } => {
                let namespace = commanded(handle.way())?;
                let what = if *dsync { Transfer::WriteThrough } else { Transfer::Write };
                let parts = data.iter().map(|part| part.as_slice());
                let (command, gathered) = self.write(&namespace.layout, what, *off, (parts, *skip))?;
                Some((namespace, command, gathered))
            }
            Op::Datasync { handle } => {
                let namespace = commanded(handle.way())?;
                self.bytes = 0;
                Some((namespace, namespace.layout.flush(), false))
            }
            Op::Discard { handle, off, len, zeros } => {
                let namespace = commanded(handle.way())?;
                let command = self.forget(&namespace.layout, *off, *len, *zeros)?;
                Some((namespace, command, false))
            }
            _ => None,
        }
    }

    /// A write of as much of the parts, less their first `skip` bytes, as one command carries.
    fn write<'a>(
        &mut self,
        layout: &Layout,
        what: Transfer,
        off: u64,
        (parts, skip): (impl Iterator<Item = &'a [u8]>, usize),
    ) -> Option<(Command, bool)> {
        let bytes = self.gather(parts, skip, layout.transfer_bytes_max());
        let command = layout.transfer(what, off, bytes)?;
        self.bytes = bytes as u64;
        Some(match self.iovecs.as_slice() {
            [one] => (command.with(one.iov_base as u64, bytes), false),
            all => (command.with(all.as_ptr() as u64, all.len()), true),
        })
    }

    /// Lists at most `most` bytes of the parts, less their first `skip` bytes; how many it lists.
    fn gather<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, mut skip: usize, most: usize) -> usize {
        let mut bytes = 0;
        self.iovecs.clear();
        for part in parts {
            let Some(rest) = part.get(skip..).filter(|rest| !rest.is_empty()) else {
                skip -= part.len();
                continue;
            };
            skip = 0;
            let len = rest.len().min(most - bytes);
            self.iovecs.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: len });
            bytes += len;
            if bytes == most || self.iovecs.len() == MAX_IOVECS {
                break;
            }
        }
        bytes
    }

    fn forget(&mut self, layout: &Layout, off: u64, len: u64, zeros: bool) -> Option<Command> {
        if zeros {
            let (command, bytes) = layout.zeros(off, len)?;
            self.bytes = bytes;
            return Some(command);
        }
        let (command, range, bytes) = layout.discard(off, len)?;
        self.bytes = bytes;
        self.range.clear();
        self.range.extend_from_slice(&range);
        Some(command.with(self.range.as_ptr() as u64, range.len()))
    }
}

fn commanded(way: &Way) -> Option<&Namespace> {
    match way {
        Way::Commands(namespace) => Some(namespace),
        Way::Plain | Way::Polled(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::buf::Bytes;
    use crate::op::Handle;

    /// Whether this kernel polls for the file or refuses each write, every operation completes once.
    #[test]
    fn a_full_ring_makes_room_and_completes_each_operation_once() {
        const WRITES: u32 = 50;
        let file = tempfile::tempfile().expect("a file");
        let handle = Rc::new(Handle::from(OwnedFd::from(file)));
        let mut ring = Beside::new(Lane::Polled, 8, None, None).expect("a ring");
        let data = || vec![Bytes::from(vec![1; 512]), Bytes::from(vec![2; 512])];
        let write = |n: u32| Op::Write {
            handle: Rc::clone(&handle),
            data: data(),
            skip: 0,
            off: u64::from(n) * 1024,
            dsync: false,
        };
        let mut ops: Vec<Op> = (0..WRITES).map(write).collect();
        let mut done = Vec::new();
        for (n, op) in (0..).zip(&mut ops) {
            while !ring.has_room() {
                ring.turn(&mut done).expect("a turn");
            }
            assert!(ring.push(n, op));
        }
        while done.len() < ops.len() {
            ring.turn(&mut done).expect("a turn");
        }
        let mut indexes: Vec<u32> = done.iter().map(|done| done.op).collect();
        indexes.sort_unstable();
        assert!(indexes.into_iter().eq(0..WRITES));
        assert_eq!((ring.in_flight, ring.completed()), (0, u64::from(WRITES)));
    }

    #[test]
    fn a_gather_list_skips_what_is_written_and_ends_where_a_command_does() {
        let memory = [7u8; 64];
        let parts = [&memory[..16], &[], &memory[16..24], &memory[24..64]];
        let mut flight = Flight::default();
        let mut listed = |skip, most| {
            let bytes = flight.gather(parts.into_iter(), skip, most);
            let begin = |list: &libc::iovec| list.iov_base as usize - memory.as_ptr() as usize;
            (bytes, flight.iovecs.iter().map(|list| (begin(list), list.iov_len)).collect::<Vec<_>>())
        };
        assert_eq!(listed(0, 1000), (64, vec![(0, 16), (16, 8), (24, 40)]));
        assert_eq!(listed(16, 1000), (48, vec![(16, 8), (24, 40)]));
        assert_eq!(listed(20, 8), (8, vec![(20, 4), (24, 4)]));
        assert_eq!(listed(64, 8), (0, vec![]));
    }
}
