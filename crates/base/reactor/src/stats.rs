//! What a reactor counts, and the four clocks.

use std::cell::Cell;

use crate::group::{GROUPS, Group};

/// A snapshot of one reactor's counters; all are since its start. `busy + spin + sleep + wait = wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorStats {
    /// Turns of the loop.
    pub turns: u64,
    /// System calls `io_uring_enter`.
    pub enters: u64,
    /// Turns that slept in the kernel.
    pub sleeps: u64,
    /// Times that the reactor spun because it had nothing to do.
    pub spins: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Tasks alive.
    pub tasks: u64,
    /// I/O operations completed.
    pub ops: u64,
    /// I/O operations in flight.
    pub ops_in_flight: u64,
    /// Of those the accepts and receives: they stand until a peer does something, also on an idle reactor.
    pub ops_standing: u64,
    /// Messages sent to other shards.
    pub hops_sent: u64,
    /// Messages received from other shards.
    pub hops_received: u64,
    /// Messages that found a peer's queue full, counted once per turn that they waited.
    pub hops_delayed: u64,
    /// Sleeping peers woken.
    pub wakes_sent: u64,
    /// Nanoseconds since the reactor started.
    pub wall_ns: u64,
    /// Thread CPU time less `spin_ns`.
    pub busy_ns: u64,
    /// CPU time of spinning with nothing to do.
    pub spin_ns: u64,
    /// Time asleep in the kernel.
    pub sleep_ns: u64,
    /// Time runnable but without a CPU (schedstat).
    pub wait_ns: u64,
    /// CPU time of alien threads on behalf of this shard.
    pub alien_busy_ns: u64,
    /// Closures given to alien threads.
    pub alien_jobs: u64,
    /// Buffers that the arena could not give and the heap gave.
    pub buf_fallbacks: u64,
    /// Bytes of buffers registered with the ring; 0 if the kernel refused or nobody asked.
    pub registered_bytes: u64,
    /// Bytes copied by code that could not avoid it ([`Shard::count_copy`](crate::Shard::count_copy)).
    pub bytes_copied: u64,
    /// Polls of one task that took longer than the stall limit.
    pub stalls: u64,
    /// Time of ready tasks by group, in the order of [`Group::ALL`].
    pub group_ns: [u64; 5],
}

/// The counters of a running shard.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) turns: Cell<u64>,
    pub(crate) sleeps: Cell<u64>,
    pub(crate) spins: Cell<u64>,
    pub(crate) polls: Cell<u64>,
    pub(crate) hops_sent: Cell<u64>,
    pub(crate) hops_received: Cell<u64>,
    pub(crate) hops_delayed: Cell<u64>,
    pub(crate) wakes_sent: Cell<u64>,
    pub(crate) spin_ticks: Cell<u64>,
    pub(crate) buf_fallbacks: Cell<u64>,
    pub(crate) bytes_copied: Cell<u64>,
    pub(crate) stalls: Cell<u64>,
    group_ticks: [Cell<u64>; GROUPS],
}

/// Adds to a counter.
pub(crate) fn add(c: &Cell<u64>, n: u64) {
    c.set(c.get().wrapping_add(n));
}

impl Counters {
    pub(crate) fn add_group(&self, group: Group, ticks: u64) {
        add(&self.group_ticks[group as usize], ticks);
    }

    pub(crate) fn group_ticks(&self) -> [u64; GROUPS] {
        std::array::from_fn(|g| self.group_ticks[g].get())
    }
}

/// CPU time and waiting time of the calling thread since it began, in nanoseconds: what schedstat says; without
/// schedstat the thread's CPU clock and no waiting time.
pub(crate) fn thread_account(tid: u32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    let mut fields = text.split_ascii_whitespace().map(|f| f.parse::<u64>().ok());
    let (_, wait) = (fields.next(), fields.next().flatten().unwrap_or(0));
    // schedstat's run time is only brought up to date by the scheduler; the CPU clock is exact.
    (crate::sys::thread_cpu_ns(), wait)
}
