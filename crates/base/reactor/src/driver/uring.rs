//! The `uring` driver: one ring per shard, and beside it those that its drives ask for (`beside.rs`).
//!
//! Entries point into memory that the operation table owns until the completion, or (gather lists and message headers)
//! into scratch memory that is only needed until the kernel has taken the entry, which it does during the enter.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, Submitter, opcode, squeue, types};

use super::Wait;
use super::beside::Beside;
use crate::buf::Chunk;
use crate::buf::arena::Slice;
use crate::op::{Done, Lane, Op, Ops};
use crate::shared::{ProcessShared, ShardShared};
use crate::sys::{self, RingFd};

/// Completions that are not an operation's.
const EVENT: u64 = u64::MAX;
const MESSAGE: u64 = u64::MAX - 1;
const IGNORED: u64 = u64::MAX - 2;
/// Completion of a wake-up message; the peer's index is in the lower bits.
const WAKE: u64 = 1 << 62;
/// Most bytes of one registered buffer.
pub(super) const REGION: usize = 1 << 30;
/// Most gather entries that the kernel takes (UIO_MAXIOV).
pub(super) const MAX_IOVECS: usize = 1024;
const POLL_FIRST: u16 = 1;
/// The kernel gives a drive what more entries than these read and write with one doorbell, and rings once for each of fewer
/// (IO_PLUG_THRESHOLD of io_uring). For a virtual drive each is an exit to the hypervisor.
const PLUG_ABOVE: usize = 2;
/// How long a shutdown waits for operations that the kernel still has.
const DRAIN_NS: u64 = 20_000_000_000;

/// One shard's ring.
pub(crate) struct Uring {
    ring: IoUring,
    fd: RingFd,
    enters: u64,
    iovecs: Scratch<libc::iovec>,
    headers: Scratch<libc::msghdr>,
    shared: Arc<ShardShared>,
    process: Arc<ProcessShared>,
    /// Buffers whose pages are registered with the ring.
    registered: Option<Registered>,
    /// Rings for files that are not read and written through this one.
    beside: Vec<(Lane, Beside)>,
    entries: u32,
    event_buf: Box<[u8; 8]>,
    event_armed: bool,
    wakes: Vec<usize>,
}

impl Uring {
    /// Makes the ring on the calling thread, which must be the one that uses it.
    pub(crate) fn new(
        entries: u32,
        shared: Arc<ShardShared>,
        process: Arc<ProcessShared>,
    ) -> io::Result<Uring> {
        let entries = entries.clamp(8, 32_768).next_power_of_two();
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(8))
            .build(entries)
            .map_err(|e| refused(&e))?;
        let raw = ring.as_raw_fd();
        let fd = sys::register_ring_fd(raw).map_or(RingFd::Plain(raw), RingFd::Registered);
        shared.set_ring_fd(raw);
        Ok(Uring {
            ring,
            fd,
            enters: 0,
            iovecs: Scratch::new(MAX_IOVECS),
            headers: Scratch::new(64),
            shared,
            process,
            registered: None,
            beside: Vec::new(),
            entries,
            event_buf: Box::new([0; 8]),
            event_armed: false,
            wakes: Vec::new(),
        })
    }

    pub(crate) fn enters(&self) -> u64 {
        self.enters
    }

    /// Completions wait, or the kernel has deferred work for this ring. Reads shared memory only.
    #[inline]
    pub(crate) fn has_events(&mut self) -> bool {
        let (_, sq, cq) = self.ring.split();
        let own = !cq.is_empty() || sq.taskrun() || sq.cq_overflow();
        own || self.beside.iter_mut().any(|(_, ring)| ring.has_events())
    }

    pub(crate) fn wake_peer(&mut self, peer: usize) {
        self.wakes.push(peer);
    }

    /// Registers the pages of the arena's first `bytes` with the ring, so that disk I/O need not look them up each time. Takes
    /// that memory at once. Where the kernel refuses (locked-memory limit), I/O works without.
    pub(crate) fn register(&mut self, arena: &Arc<Slice>, bytes: usize) {
        let wanted = Registered { arena: Arc::clone(arena), bytes: bytes.min(arena.range().1) };
        self.registered = wanted.register(&self.ring.submitter()).then_some(wanted);
    }

    /// Bytes of registered buffers.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.registered.as_ref().map_or(0, |registered| registered.bytes as u64)
    }

    /// Operations that a ring beside this one has completed.
    pub(crate) fn completed(&self, lane: Lane) -> u64 {
        self.beside.iter().filter(|(of, _)| *of == lane).map(|(_, ring)| ring.completed()).sum()
    }

    /// Makes the ring of a lane, if there is none yet.
    pub(crate) fn open_lane(&mut self, lane: Lane) -> io::Result<()> {
        if lane != Lane::Main && !self.beside.iter().any(|(open, _)| *open == lane) {
            let ring = Beside::new(lane, self.entries, self.shared.event(), self.registered.as_ref());
            self.beside.push((lane, ring.map_err(|e| refused(&e))?));
        }
        Ok(())
    }

    pub(crate) fn turn(&mut self, ops: &mut Ops, wait: Wait) -> io::Result<()> {
        self.prepare(ops)?;
        self.turn_beside(ops)?;
        let (submit, pending) = {
            let sq = self.ring.submission();
            (sq.len() as u32, sq.taskrun() || sq.cq_overflow())
        };
        let is_busy = !ops.done.is_empty() || self.beside.iter_mut().any(|(_, ring)| ring.has_events());
        match wait {
            Wait::Sleep(timeout) if !is_busy => self.sleep(submit, timeout)?,
            _ if submit == 0 && !pending => {}
            _ => self.enter(submit, 0, None)?,
        }
        self.reap(ops);
        Ok(())
    }

    /// The part of a turn that is that of the rings beside this one.
    fn turn_beside(&mut self, ops: &mut Ops) -> io::Result<()> {
        for (_, ring) in &mut self.beside {
            self.enters += ring.turn(&mut ops.done)?;
        }
        Ok(())
    }

    fn sleep(&mut self, submit: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        let has_events = self.beside.iter_mut().any(|(_, ring)| ring.listen());
        let result = if has_events { self.enter(submit, 0, None) } else { self.enter(submit, 1, timeout_ns) };
        self.beside.iter_mut().for_each(|(_, ring)| ring.awake());
        result
    }

    /// Puts all queued operations, cancellations and wake-ups into the submission ring.
    fn prepare(&mut self, ops: &mut Ops) -> io::Result<()> {
        if !self.event_armed
            && let Some(event) = self.shared.event()
        {
            let e = opcode::Read::new(types::Fd(event.as_raw_fd()), self.event_buf.as_mut_ptr(), 8);
            self.push(e.build().user_data(EVENT))?;
            self.event_armed = true;
        }
        let mut queue = std::mem::take(&mut ops.queue);
        let mut transfers = 0;
        for index in queue.drain(..) {
            let Some(op) = ops.start(index) else { continue };
            let lane = op.lane();
            if lane == Lane::Main {
                transfers += usize::from(matches!(op, Op::Read { .. } | Op::Write { .. }));
                let entry = self.entry(op).user_data(u64::from(index));
                self.push(entry)?;
            } else if !self.push_beside(lane, index, op)? {
                ops.done.push(Done { op: index, result: -libc::EINVAL, flags: 0 });
            }
        }
        ops.queue = queue;
        while let Some(index) = ops.cancels.pop() {
            self.push(opcode::AsyncCancel::new(u64::from(index)).build().user_data(IGNORED))?;
        }
        while let Some(peer) = self.wakes.pop() {
            let Some(shared) = self.process.shards.get(peer) else { continue };
            let e = opcode::MsgRingData::new(types::Fd(shared.ring_fd()), 0, MESSAGE, None).build();
            self.push(e.user_data(WAKE | peer as u64))?;
        }
        if transfers == PLUG_ABOVE && self.ring.submission().len() == PLUG_ABOVE {
            let nothing = opcode::Nop::new().build().flags(squeue::Flags::SKIP_SUCCESS);
            self.push(nothing.user_data(IGNORED))?;
        }
        Ok(())
    }

    /// Gives an operation to a ring beside this one. False: none takes it.
    fn push_beside(&mut self, lane: Lane, index: u32, op: &mut Op) -> io::Result<bool> {
        let ring = self.beside.iter_mut().find(|(open, _)| *open == lane);
        ring.map_or(Ok(false), |(_, ring)| ring.push(index, op))
    }

    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        for _ in 0..2 {
            // SAFETY: the entry points to memory that `Ops` owns until the completion is reaped (buffers, addresses,
            // paths), to the event buffer, which the drain at shutdown outlives, or to scratch memory, which is not
            // reused before the kernel has taken the entry.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            let n = self.ring.submission().len() as u32;
            self.enter(n, 0, None)?;
        }
        Err(io::Error::other("the submission ring stays full although the kernel was entered"))
    }

    fn enter(&mut self, mut submit: u32, want: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        loop {
            self.enters += 1;
            match sys::ring_enter(self.fd, submit, want, timeout_ns) {
                Ok(_) => break,
                Err(e) => match e.raw_os_error() {
                    // The wait timed out; what was to be submitted has been.
                    Some(libc::ETIME) => break,
                    Some(libc::EINTR) if want == 0 => {}
                    Some(libc::EINTR) => break,
                    // The completion ring is full, or memory is short: reap first. Nothing was submitted.
                    Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                    _ => return Err(e),
                },
            }
            submit = self.ring.submission().len() as u32;
            if submit == 0 {
                break;
            }
        }
        if self.ring.submission().is_empty() {
            self.iovecs.reset();
            self.headers.reset();
        }
        Ok(())
    }

    fn reap(&mut self, ops: &mut Ops) {
        let (_, _, mut cq) = self.ring.split();
        for c in &mut cq {
            match c.user_data() {
                EVENT => self.event_armed = false,
                MESSAGE | IGNORED => {}
                wake if wake & WAKE != 0 => {
                    // A message that did not get through: the eventfd always does.
                    if c.result() < 0
                        && let Some(peer) = self.process.shards.get((wake & !WAKE) as usize)
                    {
                        peer.signal();
                    }
                }
                op => ops.done.push(Done { op: op as u32, result: c.result(), flags: c.flags() }),
            }
        }
    }

    /// The kernel's form of an operation.
    fn entry(&mut self, op: &mut Op) -> squeue::Entry {
        match op {
            Op::Read { handle, buf, at, len, off } => {
                let (ptr, len) = (buf.ptr().as_ptr().wrapping_add(*at), len.saturating_sub(*at));
                read_entry(handle.raw(), (ptr, len), *off, self.registered.as_ref())
            }
            Op::Write { handle, data, skip, off, dsync } => {
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                if let [one] = data.as_slice() {
                    let rest = one.get(*skip..).unwrap_or_default();
                    return write_entry(handle.raw(), rest, (*off, flags), self.registered.as_ref());
                }
                let (iov, n) = self.gather(data.iter().map(|b| b.as_slice()), *skip);
                opcode::Writev::new(types::Fd(handle.raw()), iov, n).offset(*off).rw_flags(flags).build()
            }
            Op::Datasync { handle } => {
                opcode::Fsync::new(types::Fd(handle.raw())).flags(types::FsyncFlags::DATASYNC).build()
            }
            // Without DATASYNC: what that leaves out of a folder is up to the file system.
            Op::SyncFolder { handle } => opcode::Fsync::new(types::Fd(handle.raw())).build(),
            Op::Recv { handle, buf, at, poll_first } => {
                let room = buf.capacity() - *at;
                opcode::Recv::new(types::Fd(handle.raw()), buf.ptr().as_ptr().wrapping_add(*at), to_u32(room))
                    .ioprio(if *poll_first { POLL_FIRST } else { 0 })
                    .build()
            }
            Op::Send { handle, chunks, skip } => self.send_entry(handle.raw(), chunks, *skip),
            Op::Accept { handle } => {
                opcode::Accept::new(types::Fd(handle.raw()), std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Op::Connect { handle, addr } => {
                opcode::Connect::new(types::Fd(handle.raw()), addr.as_ptr(), addr.len()).build()
            }
            Op::Open { path, flags } => opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
                .flags(*flags)
                .mode(0o600)
                .build(),
            Op::SetLen { handle, len } => opcode::Ftruncate::new(types::Fd(handle.raw()), *len).build(),
            Op::Discard { handle, off, len, .. } => opcode::Fallocate::new(types::Fd(handle.raw()), *len)
                .offset(*off)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
        }
    }

    fn send_entry(&mut self, fd: RawFd, chunks: &[Chunk], skip: usize) -> squeue::Entry {
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        if let [one] = chunks {
            let rest = one.as_slice().get(skip..).unwrap_or_default();
            return opcode::Send::new(types::Fd(fd), rest.as_ptr(), to_u32(rest.len())).flags(flags).build();
        }
        let (iov, n) = self.gather(chunks.iter().map(Chunk::as_slice), skip);
        let header = self.headers.take(1);
        header[0].msg_iov = iov.cast_mut();
        header[0].msg_iovlen = n as usize;
        opcode::SendMsg::new(types::Fd(fd), header.as_ptr()).flags(flags as u32).build()
    }

    /// A gather list of `parts` without their first `skip` bytes; at most what the kernel takes at once.
    fn gather<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
        skip: usize,
    ) -> (*const libc::iovec, u32) {
        let most = parts.clone().count().min(MAX_IOVECS);
        let list = self.iovecs.take(most);
        let (mut n, mut skip) = (0, skip);
        for part in parts {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            if n == most {
                break;
            }
            let rest = &part[skip..];
            skip = 0;
            list[n] = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            n += 1;
        }
        (list.as_ptr(), n as u32)
    }

    /// Cancels everything and waits until the kernel has let go of every operation. False: it has not, and the table
    /// must never be freed.
    pub(crate) fn drain(&mut self, ops: &mut Ops) -> bool {
        let end = sys::monotonic_ns() + DRAIN_NS;
        let _ = self.turn(ops, Wait::No);
        loop {
            let _ = self.ring.submitter().register_sync_cancel(None, types::CancelBuilder::any());
            for d in std::mem::take(&mut ops.done) {
                drop(ops.finish(d));
            }
            if ops.in_flight() == 0 && !self.event_armed {
                return true;
            }
            if sys::monotonic_ns() > end {
                return false;
            }
            if self.turn_beside(ops).is_err() || self.enter(0, 1, Some(20_000_000)).is_err() {
                return false;
            }
            self.reap(ops);
        }
    }

    /// The ring itself: it must stay open until no peer can send it a message.
    pub(crate) fn into_ring(self) -> IoUring {
        self.ring
    }

    /// Gives up on memory that the kernel may still write to.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

/// The first bytes of an arena, whose pages are registered with a ring: the kernel need not look them up for each operation.
#[derive(Clone)]
pub(super) struct Registered {
    /// Whoever uses the ring keeps it.
    arena: Arc<Slice>,
    bytes: usize,
}

impl Registered {
    /// Registers them; false if the kernel refuses.
    pub(super) fn register(&self, ring: &Submitter<'_>) -> bool {
        let (base, len) = (self.arena.range().0, self.bytes);
        let regions: Vec<libc::iovec> = (0..len)
            .step_by(REGION)
            .map(|at| libc::iovec {
                iov_base: (base + at) as *mut libc::c_void,
                iov_len: REGION.min(len - at),
            })
            .collect();
        // SAFETY: the ranges are the arena's mapping, which the ring's owner keeps as long as it uses the ring.
        let result = unsafe { ring.register_buffers(&regions) };
        if let Err(e) = &result {
            tracing::info!("{len} bytes of buffers are not registered with the ring: {e}");
        }
        result.is_ok()
    }

    /// Index of the region that holds `len` bytes at `address`.
    pub(super) fn region(&self, address: usize, len: usize) -> Option<u16> {
        let at = address.checked_sub(self.arena.range().0)?;
        (at + len <= self.bytes).then_some((at / REGION) as u16)
    }
}

/// A read into a buffer, for a ring with which an arena may be registered.
pub(super) fn read_entry(
    fd: RawFd,
    (ptr, len): (*mut u8, usize),
    off: u64,
    registered: Option<&Registered>,
) -> squeue::Entry {
    let (fd, n) = (types::Fd(fd), to_u32(len));
    match registered.and_then(|buffers| buffers.region(ptr as usize, len)) {
        Some(i) => opcode::ReadFixed::new(fd, ptr, n, i).offset(off).build(),
        None => opcode::Read::new(fd, ptr, n).offset(off).build(),
    }
}

/// A write of one buffer, with its `RWF_` flags.
pub(super) fn write_entry(
    fd: RawFd,
    bytes: &[u8],
    (off, flags): (u64, i32),
    registered: Option<&Registered>,
) -> squeue::Entry {
    let (fd, ptr, n) = (types::Fd(fd), bytes.as_ptr(), to_u32(bytes.len()));
    match registered.and_then(|buffers| buffers.region(ptr as usize, bytes.len())) {
        Some(i) => opcode::WriteFixed::new(fd, ptr, n, i).offset(off).rw_flags(flags).build(),
        None => opcode::Write::new(fd, ptr, n).offset(off).rw_flags(flags).build(),
    }
}

fn to_u32(n: usize) -> u32 {
    // The kernel caps one transfer at 2 GiB less a page anyway; callers go on after a short one.
    u32::try_from(n).unwrap_or(1 << 30)
}

/// Says what refused the ring and what to do about it.
fn refused(e: &io::Error) -> io::Error {
    let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let sysctl = sysctl.trim();
    let why = match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !sysctl.is_empty() && sysctl != "0" => format!(
            "the sysctl kernel.io_uring_disabled is {sysctl}; run `sysctl -w kernel.io_uring_disabled=0` on the host"
        ),
        Some(libc::EPERM | libc::EACCES) => "a seccomp filter forbids io_uring (containers do this by default); start \
             the container with --security-opt seccomp=unconfined, or check the sysctl kernel.io_uring_disabled"
            .to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring, or a seccomp filter of the container hides it; start the \
             container with --security-opt seccomp=unconfined, or check the sysctl kernel.io_uring_disabled"
            .to_owned(),
        Some(libc::EINVAL) => "the kernel is too old for DEFER_TASKRUN; Linux 6.1 or later is needed".to_owned(),
        Some(libc::ENOMEM) => {
            "no memory for the ring; raise the locked-memory limit (ulimit -l) or use a smaller ring".to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE) => "too many open files; raise `ulimit -n`".to_owned(),
        _ => "unexpected".to_owned(),
    };
    io::Error::new(e.kind(), format!("io_uring_setup was refused ({e}): {why}"))
}

/// Memory for entries' satellites, at stable addresses, reused once the kernel has taken the entries.
struct Scratch<T> {
    chunks: Vec<Box<[T]>>,
    chunk_len: usize,
    chunk: usize,
    used: usize,
}

impl<T: Copy> Scratch<T> {
    fn new(chunk_len: usize) -> Scratch<T> {
        Scratch { chunks: Vec::new(), chunk_len, chunk: 0, used: 0 }
    }

    fn reset(&mut self) {
        (self.chunk, self.used) = (0, 0);
    }
}

/// Types for which zeros are a value.
trait Zero: Copy {
    fn zero() -> Self;
}

impl Zero for libc::iovec {
    fn zero() -> Self {
        libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }
    }
}

impl Zero for libc::msghdr {
    fn zero() -> Self {
        // SAFETY: msghdr is plain data; zeros mean "no name, no data, no control".
        unsafe { std::mem::zeroed() }
    }
}

impl<T: Zero> Scratch<T> {
    /// `n` (at most `chunk_len`) values that stay where they are until `reset`.
    fn take(&mut self, n: usize) -> &mut [T] {
        let n = n.min(self.chunk_len);
        if self.used + n > self.chunk_len {
            self.chunk += 1;
            self.used = 0;
        }
        while self.chunks.len() <= self.chunk {
            self.chunks.push(vec![T::zero(); self.chunk_len].into_boxed_slice());
        }
        let from = self.used;
        self.used += n;
        &mut self.chunks[self.chunk][from..from + n]
    }
}
