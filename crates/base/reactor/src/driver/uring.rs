//! The `uring` driver: one ring per shard, and beside it those that its drives ask for (`beside.rs`).
//!
//! Entries point into memory that the operation table owns until the completion, or (gather lists and message headers)
//! into scratch memory, which the submission ring owns (`submission.rs`).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, Submitter, opcode, squeue, types};

use super::Wait;
use super::beside::Beside;
use super::scratch::Scratch;
use super::submission::Submission;
use crate::buf::Chunk;
use crate::buf::arena::Slice;
use crate::op::{Done, Lane, Op, Ops};
use crate::shared::{ProcessShared, ShardShared};
use crate::sys;

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
/// With more reads and writes than this in one enter, the kernel rings the drive's doorbell once; otherwise once for each
/// (IO_PLUG_THRESHOLD of io_uring). For a virtual drive each is an exit to the hypervisor.
const PLUG_ABOVE: usize = 2;
/// How often a full ring is entered in one turn before the rest waits for the next.
const ROOM_TRIES: u32 = 2;
/// How long a shutdown waits for operations that the kernel still has.
const DRAIN_NS: u64 = 20_000_000_000;

/// One shard's ring.
pub(crate) struct Uring {
    main: Submission,
    /// Enters of the rings beside the main one.
    enters_beside: u64,
    /// The next turn must not wait: the kernel has not taken everything, or completions were reaped before the end of a turn.
    no_wait: bool,
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
        let main = Submission::new(ring);
        shared.set_ring_fd(main.raw_fd());
        Ok(Uring {
            main,
            enters_beside: 0,
            no_wait: false,
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
        self.main.enters() + self.enters_beside
    }

    /// Completions wait, or the kernel wants to be entered. Reads shared memory only.
    #[inline]
    pub(crate) fn has_events(&mut self) -> bool {
        self.no_wait || self.main.has_events() || self.beside.iter_mut().any(|(_, ring)| ring.has_events())
    }

    pub(crate) fn wake_peer(&mut self, peer: usize) {
        self.wakes.push(peer);
    }

    /// Registers the pages of the arena's first `bytes` with the ring, so that disk I/O need not look them up each time. Takes
    /// that memory at once. Where the kernel refuses (locked-memory limit), I/O works without.
    pub(crate) fn register(&mut self, arena: &Arc<Slice>, bytes: usize) {
        let wanted = Registered { arena: Arc::clone(arena), bytes: bytes.min(arena.range().1) };
        self.registered = wanted.register(&self.main.submitter()).then_some(wanted);
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
        let all = self.prepare(ops)?;
        self.turn_beside(ops)?;
        let is_busy =
            self.no_wait || !ops.done.is_empty() || self.beside.iter_mut().any(|(_, ring)| ring.has_events());
        match wait {
            Wait::Sleep(timeout) if !is_busy => self.sleep(timeout)?,
            _ if self.main.unsent() == 0 && !self.main.has_deferred() => {}
            _ => self.main.enter(0, None)?,
        }
        self.reap(&mut ops.done);
        self.no_wait = !all || self.main.unsent() > 0;
        Ok(())
    }

    /// The part of a turn that is that of the rings beside this one.
    fn turn_beside(&mut self, ops: &mut Ops) -> io::Result<()> {
        for (_, ring) in &mut self.beside {
            self.enters_beside += ring.turn(&mut ops.done)?;
        }
        Ok(())
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        let has_events = self.beside.iter_mut().any(|(_, ring)| ring.listen());
        let result = if has_events { self.main.enter(0, None) } else { self.main.enter(1, timeout_ns) };
        self.beside.iter_mut().for_each(|(_, ring)| ring.awake());
        result
    }

    /// Puts queued operations, cancellations and wake-ups into the submission rings. False: the kernel takes nothing now, and the rest
    /// stays in its queue until the next turn.
    fn prepare(&mut self, ops: &mut Ops) -> io::Result<bool> {
        if !self.event_armed && !self.push_event(ops)? {
            return Ok(false);
        }
        let Some(transfers) = self.push_ops(ops)? else { return Ok(false) };
        if !self.push_cancels(ops)? || !self.push_wakes(ops)? {
            return Ok(false);
        }
        if transfers == PLUG_ABOVE && self.main.unsent() == PLUG_ABOVE as u32 && self.main.has_room() {
            let nothing = opcode::Nop::new().build().flags(squeue::Flags::SKIP_SUCCESS);
            // SAFETY: it points to nothing.
            unsafe { self.main.push(|_| nothing.user_data(IGNORED)) };
        }
        Ok(true)
    }

    /// Listens to the shard's eventfd.
    fn push_event(&mut self, ops: &mut Ops) -> io::Result<bool> {
        if !self.make_room(&mut ops.done)? {
            return Ok(false);
        }
        let Some(event) = self.shared.event() else { return Ok(true) };
        let entry = opcode::Read::new(types::Fd(event.as_raw_fd()), self.event_buf.as_mut_ptr(), 8).build();
        // SAFETY: the buffer lives as long as the driver, which the drain at shutdown ends or leaks.
        unsafe { self.main.push(|_| entry.user_data(EVENT)) };
        self.event_armed = true;
        Ok(true)
    }

    fn push_cancels(&mut self, ops: &mut Ops) -> io::Result<bool> {
        while let Some(index) = ops.cancels.last().copied() {
            // In an earlier turn there was no room: meanwhile the operation may have ended, and another may have its index.
            if ops.is_orphan(index) {
                if !self.make_room(&mut ops.done)? {
                    return Ok(false);
                }
                let entry = opcode::AsyncCancel::new(u64::from(index)).build().user_data(IGNORED);
                // SAFETY: it points to nothing.
                unsafe { self.main.push(|_| entry) };
            }
            ops.cancels.pop();
        }
        Ok(true)
    }

    fn push_wakes(&mut self, ops: &mut Ops) -> io::Result<bool> {
        while let Some(peer) = self.wakes.last().copied() {
            if !self.make_room(&mut ops.done)? {
                return Ok(false);
            }
            if let Some(shared) = self.process.shards.get(peer) {
                let entry = opcode::MsgRingData::new(types::Fd(shared.ring_fd()), 0, MESSAGE, None).build();
                // SAFETY: it points to nothing.
                unsafe { self.main.push(|_| entry.user_data(WAKE | peer as u64)) };
            }
            self.wakes.pop();
        }
        Ok(true)
    }

    /// Gives queued operations to their rings; how many reads and writes the main ring got. None: the kernel takes no more, and some are
    /// left.
    fn push_ops(&mut self, ops: &mut Ops) -> io::Result<Option<usize>> {
        let mut queue = std::mem::take(&mut ops.queue);
        let (mut transfers, mut given) = (0, 0);
        for &index in &queue {
            if !self.make_room(&mut ops.done)? {
                break;
            }
            given += 1;
            let Some(op) = ops.start(index) else { continue };
            let lane = op.lane();
            if lane == Lane::Main {
                transfers += usize::from(matches!(op, Op::Read { .. } | Op::Write { .. }));
                let registered = self.registered.as_ref();
                // SAFETY: buffers, addresses and paths stay in the operation, which `Ops` keeps until its completion is reaped.
                unsafe {
                    self.main.push(|scratch| entry(op, scratch, registered).user_data(u64::from(index)));
                }
            } else if !self.push_beside(lane, index, op) {
                ops.done.push(Done { op: index, result: -libc::EINVAL, flags: 0 });
            }
        }
        let all = given == queue.len();
        queue.drain(..given);
        ops.queue = queue;
        Ok(all.then_some(transfers))
    }

    /// Gives an operation to a ring beside this one, which has room. False: none takes it.
    fn push_beside(&mut self, lane: Lane, index: u32, op: &mut Op) -> bool {
        let ring = self.beside.iter_mut().find(|(open, _)| *open == lane);
        ring.is_some_and(|(_, ring)| ring.push(index, op))
    }

    /// Makes room for an entry in each ring, before the entry is built. False: the kernel takes nothing now.
    #[inline]
    fn make_room(&mut self, done: &mut Vec<Done>) -> io::Result<bool> {
        if self.has_room() { Ok(true) } else { self.enter_for_room(done) }
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        self.main.has_room() && self.beside.iter_mut().all(|(_, ring)| ring.has_room())
    }

    /// A full ring is entered. Completions are reaped as well: while they wait the kernel may take nothing.
    #[cold]
    fn enter_for_room(&mut self, done: &mut Vec<Done>) -> io::Result<bool> {
        // A completion that is reaped here may be the signal that ends this shard's sleep.
        self.no_wait = true;
        for _ in 0..ROOM_TRIES {
            if !self.main.has_room() {
                self.main.enter(0, None)?;
                self.reap(done);
            }
            for (_, ring) in &mut self.beside {
                if !ring.has_room() {
                    self.enters_beside += ring.turn(done)?;
                }
            }
            if self.has_room() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        for c in &mut self.main.completion() {
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
                op => done.push(Done { op: op as u32, result: c.result(), flags: c.flags() }),
            }
        }
    }

    /// Cancels everything and waits until the kernel has let go of every operation. False: it has not, and the table
    /// must never be freed.
    pub(crate) fn drain(&mut self, ops: &mut Ops) -> bool {
        let end = sys::monotonic_ns() + DRAIN_NS;
        let _ = self.turn(ops, Wait::No);
        loop {
            let _ = self.main.submitter().register_sync_cancel(None, types::CancelBuilder::any());
            for d in std::mem::take(&mut ops.done) {
                drop(ops.finish(d));
            }
            if ops.in_flight() == 0 && !self.event_armed {
                return true;
            }
            if sys::monotonic_ns() > end {
                return false;
            }
            if self.turn_beside(ops).is_err() || self.main.enter(1, Some(20_000_000)).is_err() {
                return false;
            }
            self.reap(&mut ops.done);
        }
    }

    /// The ring itself: it must stay open until no peer can send it a message.
    pub(crate) fn into_ring(self) -> IoUring {
        self.main.into_ring()
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

/// The kernel's form of an operation.
fn entry(op: &mut Op, scratch: &mut Scratch, registered: Option<&Registered>) -> squeue::Entry {
    match op {
        Op::Read { handle, buf, at, len, off } => {
            let (ptr, len) = (buf.ptr().as_ptr().wrapping_add(*at), len.saturating_sub(*at));
            read_entry(handle.raw(), (ptr, len), *off, registered)
        }
        Op::Write { handle, data, skip, off, dsync } => {
            let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
            if let [one] = data.as_slice() {
                let rest = one.get(*skip..).unwrap_or_default();
                return write_entry(handle.raw(), rest, (*off, flags), registered);
            }
            let (iov, n) = scratch.gather(data.iter().map(|b| b.as_slice()), *skip);
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
        Op::Send { handle, chunks, skip } => send_entry(handle.raw(), (chunks, *skip), scratch),
        Op::Accept { handle } => {
            opcode::Accept::new(types::Fd(handle.raw()), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Op::Connect { handle, addr } => {
            opcode::Connect::new(types::Fd(handle.raw()), addr.as_ptr(), addr.len()).build()
        }
        Op::Open { path, flags } => {
            opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(*flags).mode(0o600).build()
        }
        Op::SetLen { handle, len } => opcode::Ftruncate::new(types::Fd(handle.raw()), *len).build(),
        Op::Discard { handle, off, len, .. } => opcode::Fallocate::new(types::Fd(handle.raw()), *len)
            .offset(*off)
            .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
            .build(),
    }
}

fn send_entry(fd: RawFd, (chunks, skip): (&[Chunk], usize), scratch: &mut Scratch) -> squeue::Entry {
    let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    if let [one] = chunks {
        let rest = one.as_slice().get(skip..).unwrap_or_default();
        return opcode::Send::new(types::Fd(fd), rest.as_ptr(), to_u32(rest.len())).flags(flags).build();
    }
    let list = scratch.gather(chunks.iter().map(Chunk::as_slice), skip);
    opcode::SendMsg::new(types::Fd(fd), scratch.header(list)).flags(flags as u32).build()
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
