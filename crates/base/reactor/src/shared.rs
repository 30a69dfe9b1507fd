//! The part of a shard that other threads see: the wake queue, the sleep flag, and the means to wake it.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};

use crossbeam::queue::SegQueue;
use crossbeam::utils::CachePadded;

use crate::sys;

/// A value that came back from another thread for a slot of the call table.
pub(crate) struct Returned {
    pub(crate) slot: u32,
    pub(crate) value: Box<dyn Any + Send>,
}

/// The shared face of one shard.
pub(crate) struct ShardShared {
    /// Tasks woken through a `Waker`; at most one entry per task.
    pub(crate) wakes: SegQueue<u32>,
    /// Results of alien work; bounded by the alien work that the shard has outstanding.
    pub(crate) returned: SegQueue<Returned>,
    sleeping: CachePadded<AtomicBool>,
    event: Option<OwnedFd>,
    ring_fd: AtomicI32,
    pub(crate) alien_busy_ns: AtomicU64,
}

impl ShardShared {
    /// With an eventfd for a shard that can sleep, without for `sim`.
    pub(crate) fn new(can_sleep: bool) -> io::Result<Arc<ShardShared>> {
        Ok(Arc::new(ShardShared {
            wakes: SegQueue::new(),
            returned: SegQueue::new(),
            sleeping: CachePadded::new(AtomicBool::new(false)),
            event: if can_sleep { Some(sys::eventfd()?) } else { None },
            ring_fd: AtomicI32::new(-1),
            alien_busy_ns: AtomicU64::new(0),
        }))
    }

    pub(crate) fn event(&self) -> Option<&OwnedFd> {
        self.event.as_ref()
    }

    pub(crate) fn set_ring_fd(&self, fd: i32) {
        self.ring_fd.store(fd, Ordering::Release);
    }

    /// The ring that takes wake-up messages, or -1.
    pub(crate) fn ring_fd(&self) -> i32 {
        self.ring_fd.load(Ordering::Acquire)
    }

    /// Says that the shard is about to sleep. Everything that others may have queued must be checked once more after this: either
    /// the shard sees the work, or the queueing thread sees the flag (both sides have a full fence between their write and their
    /// read).
    pub(crate) fn announce_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The shard is awake again.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// After work was queued and a SeqCst fence was passed: true if the caller has to wake the shard.
    pub(crate) fn claim_wake(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }

    /// Wakes it through the eventfd, from any thread.
    pub(crate) fn signal(&self) {
        if let Some(fd) = &self.event {
            sys::eventfd_signal(fd);
        }
    }

    /// To be called after queueing something: wakes the shard if it sleeps.
    pub(crate) fn kick(&self) {
        fence(Ordering::SeqCst);
        if self.claim_wake() {
            self.signal();
        }
    }

    /// Whether its queues are empty.
    pub(crate) fn is_quiet(&self) -> bool {
        self.wakes.is_empty() && self.returned.is_empty()
    }
}

/// State that all shards of a process (or of a simulated node) share.
pub(crate) struct ProcessShared {
    stop: AtomicBool,
    pub(crate) shards: Vec<Arc<ShardShared>>,
}

impl ProcessShared {
    pub(crate) fn new(shards: Vec<Arc<ShardShared>>) -> Arc<ProcessShared> {
        Arc::new(ProcessShared { stop: AtomicBool::new(false), shards })
    }

    /// Asks all shards to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        for s in &self.shards {
            s.signal();
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
