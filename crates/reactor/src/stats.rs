//! What a reactor counts.

/// A snapshot of one reactor's counters; all are since its start. `busy + spin + sleep + wait = wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorStats {
    /// Turns of the loop.
    pub turns: u64,
    /// System calls `io_uring_enter`.
    pub enters: u64,
    /// Turns that slept in the kernel.
    pub sleeps: u64,
    /// Idle polls of the rings and queues without a system call.
    pub spins: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Tasks alive.
    pub tasks: u64,
    /// I/O operations completed.
    pub ops: u64,
    /// I/O operations in flight.
    pub ops_in_flight: u64,
    /// Messages sent to other shards.
    pub hops_sent: u64,
    /// Messages received from other shards.
    pub hops_received: u64,
    /// Messages that found a peer's queue full and waited in the backlog.
    pub hops_delayed: u64,
    /// Sleeping peers woken.
    pub wakes_sent: u64,
    /// Nanoseconds since the reactor started.
    pub wall_ns: u64,
    /// Thread CPU time less `spin_ns`.
    pub busy_ns: u64,
    /// CPU time of turns that found nothing to do.
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
    /// Bytes copied by code that could not avoid it ([`Shard::count_copy`](crate::Shard::count_copy)).
    pub bytes_copied: u64,
    /// Polls of one task that took longer than the stall limit.
    pub stalls: u64,
    /// CPU time of ready tasks by group, in the order of [`Group::ALL`](crate::Group::ALL).
    pub group_ns: [u64; 5],
}
