//! A reactor's counters, and the four clocks.

use std::cell::Cell;

use carmine_metrics::{Gauge, Sum, metric_set};

use crate::config::{GROUPS, Group};

metric_set! {
    /// A snapshot of one reactor's counters; all are since its start. `busy + spin + sleep + wait = wall`.
    #[derive(Copy, PartialEq, Eq)]
    pub struct ReactorStats: "reactor" {
        /// Turns of the reactor's loop.
        turns: Sum => "reactor_polls",
        /// System calls `io_uring_enter`.
        enters: Sum => "reactor_kernel_enters",
        /// Times that the reactor went to sleep in the kernel.
        sleeps: Sum,
        /// Times that the reactor spun because it had nothing to do.
        spins: Sum,
        /// Polls of tasks.
        polls: Sum => "reactor_tasks_processed",
        /// Tasks alive.
        tasks: Gauge,
        /// Operations that the kernel completed: disk and network.
        ops: Sum => "reactor_io_completed",
        /// Operations that the kernel works on or holds.
        ops_in_flight: Gauge => _,
        /// Reads and writes of drives that were polled for (I/O path `poll`).
        polled: Sum => "reactor_io_polled",
        /// NVMe commands that drives have completed (I/O path `passthru`).
        commands: Sum => "reactor_nvme_commands",
        /// Accepts and receives that the kernel holds until a peer sends something, on an idle reactor, too.
        ops_standing: Gauge => "reactor_io_standing",
        /// Messages (hops) sent to other shards.
        hops_sent: Sum => "smp_total_sent_messages",
        /// Messages (hops) received from other shards.
        hops_received: Sum => "smp_total_received_messages",
        /// Messages that found the other shard's queue full, once per turn that they waited.
        hops_delayed: Sum => "smp_delayed_messages",
        /// Sleeping shards woken.
        wakes_sent: Sum => "smp_wakes_sent",
        /// Time since the start.
        wall_ns: Sum => "reactor_uptime_ms",
        /// CPU time of work: thread CPU time less spinning.
        busy_ns: Sum => "reactor_cpu_busy_ms",
        /// CPU time of spinning with nothing to do.
        spin_ns: Sum => "reactor_cpu_spin_ms",
        /// Time asleep in the kernel.
        sleep_ns: Sum => "reactor_sleep_time_ms_total",
        /// Time in which the reactor could have run and something else had its CPU (schedstat).
        wait_ns: Sum => "reactor_cpu_steal_time_ms",
        /// CPU time of alien threads on behalf of this shard.
        alien_busy_ns: Sum => "alien_cpu_busy_ms",
        /// Closures given to alien threads.
        alien_jobs: Sum => "alien_jobs",
        /// Buffers that the arena could not give and the heap gave.
        buf_fallbacks: Sum => "reactor_buffer_fallbacks",
        /// Bytes of buffers registered with the ring; 0 if the kernel refused or nobody asked.
        registered_bytes: Gauge,
        /// Bytes copied by code that could not avoid it.
        bytes_copied: Sum => "reactor_copied_bytes",
        /// Times that its thread took memory from the heap.
        allocations: Sum => "reactor_allocations",
        /// Polls of one task that held the reactor longer than the stall limit.
        stalls: Sum,
    }
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
