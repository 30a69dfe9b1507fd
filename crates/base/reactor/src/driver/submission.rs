//! A shard's main ring: entries on their way to the kernel, with the scratch memory to which they point.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use carmine_types::is_mutated;
use io_uring::{IoUring, Submitter, cqueue, squeue};

use super::scratch::Scratch;
use crate::sys::{self, RingFd};

/// A ring that owns its entries' scratch memory. The memory is reused only when the kernel has all entries, and an entry is built
/// only if there is room for it: no enter can happen between building its gather list and pushing it.
pub(super) struct Submission {
    ring: IoUring,
    fd: RingFd,
    scratch: Scratch,
    entries: u32,
    /// Entries for which there is room. Only an enter makes it more.
    room: u32,
    enters: u64,
}

impl Submission {
    pub(super) fn new(mut ring: IoUring) -> Submission {
        let raw = ring.as_raw_fd();
        let fd = sys::register_ring_fd(raw).map_or(RingFd::Plain(raw), RingFd::Registered);
        let entries = ring.submission().capacity() as u32;
        Submission { ring, fd, scratch: Scratch::new(), entries, room: entries, enters: 0 }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// How often the kernel was entered.
    pub(super) fn enters(&self) -> u64 {
        self.enters
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Entries that the kernel does not have yet.
    #[inline]
    pub(super) fn unsent(&self) -> u32 {
        self.entries - self.room
    }

    /// Completions wait, or the kernel has deferred work. Reads shared memory only.
    #[inline]
    pub(super) fn has_events(&mut self) -> bool {
        let (_, sq, cq) = self.ring.split();
        !cq.is_empty() || sq.taskrun() || sq.cq_overflow()
    }

    /// The kernel must be entered before it completes more.
    #[inline]
    pub(super) fn has_deferred(&mut self) -> bool {
        let sq = self.ring.submission();
        sq.taskrun() || sq.cq_overflow()
    }

    /// Puts the entry that `build` makes into the ring, which must have room.
    ///
    /// # Safety
    /// All other memory to which the entry points must stay in place until its completion is reaped.
    #[inline]
    pub(super) unsafe fn push(&mut self, build: impl FnOnce(&mut Scratch) -> squeue::Entry) {
        let entry = build(&mut self.scratch);
        // SAFETY: scratch memory stays as it is until `unsent` is 0; the caller answers for the rest.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "{} of {} entries are free, but the ring is full", self.room, self.entries);
        self.room -= 1;
    }

    /// Submits all entries, lets the kernel do its deferred work, and waits until `want` completions are there or the time is over.
    /// Where the kernel refuses (memory is short, or the completion ring is full) the entries wait for the next enter.
    pub(super) fn enter(&mut self, want: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        loop {
            self.enters += 1;
            let result = ring_enter(self.fd, self.unsent(), want, timeout_ns);
            self.room = self.entries - self.ring.submission().len() as u32;
            match result.map_err(|error| (error.raw_os_error(), error)) {
                Err((Some(libc::EINTR), _)) if want == 0 && self.unsent() > 0 => {}
                // ETIME: the wait timed out, after the entries were submitted.
                Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => break,
                Err((_, error)) => return Err(error),
            }
        }
        if self.unsent() == 0 || is_mutated("reset_early") {
            self.scratch.reset(self.ring.submission().len() as u32);
        }
        Ok(())
    }

    pub(super) fn completion(&mut self) -> cqueue::CompletionQueue<'_> {
        self.ring.completion()
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        self.ring.submitter()
    }

    pub(super) fn into_ring(self) -> IoUring {
        self.ring
    }
}

/// Enters the kernel, which refuses in tests of that.
fn ring_enter(fd: RingFd, submit: u32, want: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
    #[cfg(test)]
    if let Some(error) = tests::refusal(submit) {
        return Err(error);
    }
    sys::ring_enter(fd, submit, want, timeout_ns)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use crate::{Bytes, Config, FileOptions, Group, PollPolicy, block_on};

    const ENTRIES: u32 = 8;
    const WRITES: usize = 50;
    const PART_BYTES: usize = 512;

    thread_local! {
        /// How often the kernel refuses a full ring before it takes it, and the refusals until it does.
        static REFUSE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    }

    pub(super) fn refusal(submit: u32) -> Option<io::Error> {
        let (each, left) = REFUSE.get();
        if each == 0 || submit < ENTRIES {
            return None;
        }
        REFUSE.set((each, left.checked_sub(1).unwrap_or(each)));
        let errno = if left % 2 == 0 { libc::EBUSY } else { libc::EAGAIN };
        (left > 0).then(|| io::Error::from_raw_os_error(errno))
    }

    /// Two parts, which say whose they are.
    fn parts(n: usize) -> [Vec<u8>; 2] {
        [vec![n as u8; PART_BYTES], vec![!(n as u8); PART_BYTES]]
    }

    fn write_all(poll: PollPolicy, path: &Path) {
        let config = Config { poll, ring_entries: ENTRIES, ..Config::unpinned("refused", 1) };
        block_on(config, async |shard| {
            let options = FileOptions { read: true, write: true, create: true, ..FileOptions::default() };
            let file = shard.open(path, options).await.expect("open");
            let left = Rc::new(Cell::new(WRITES));
            for n in 0..WRITES {
                let (file, left) = (file.clone(), Rc::clone(&left));
                shard.spawn(Group::Client, "write", async move {
                    let data = parts(n).map(Bytes::from).to_vec();
                    file.write_at(data, (n * 2 * PART_BYTES) as u64, false).await.expect("a write");
                    left.set(left.get() - 1);
                });
            }
            while left.get() > 0 {
                shard.sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .expect("the reactor lives");
    }

    #[test]
    fn a_kernel_that_refuses_a_full_ring_is_asked_again() {
        let folder = tempfile::tempdir().expect("a folder");
        for poll in [PollPolicy::Sleep, PollPolicy::default(), PollPolicy::Poll] {
            for each in [1, 2, 100] {
                let path = folder.path().join(format!("{poll}-{each}"));
                REFUSE.set((each, each));
                write_all(poll, &path);
                REFUSE.set((0, 0));
                let want: Vec<u8> = (0..WRITES).flat_map(parts).flatten().collect();
                assert!(std::fs::read(&path).expect("the file") == want, "{poll}, {each} refusals");
            }
        }
    }
}
