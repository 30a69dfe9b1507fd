//! Configuration of a set of reactors: shards, pinning, polling, alien threads, memory.

use std::str::FromStr;

/// A reactor's behaviour when it has nothing to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollPolicy {
    /// Spin forever: lowest latency, one CPU always at 100 %.
    Poll,
    /// Spin for as long as pauses last where that is cheaper than a sleep and a wake-up, but at most `spin_us`, then sleep in the
    /// kernel; sleep at once while pauses are longer.
    Adaptive {
        /// Most microseconds of spinning before the reactor sleeps.
        spin_us: u32,
    },
    /// Sleep at once.
    Sleep,
}

/// Microseconds that `adaptive` spins at most unless told otherwise: longer pauses are cheaper to sleep through.
pub const DEFAULT_SPIN_US: u32 = 100;

impl Default for PollPolicy {
    fn default() -> Self {
        PollPolicy::Adaptive { spin_us: DEFAULT_SPIN_US }
    }
}

/// The text was not a poll policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("poll policy {0:?} is unknown: use poll, adaptive, adaptive:MICROSECONDS or sleep")]
pub struct PollPolicyError(String);

impl FromStr for PollPolicy {
    type Err = PollPolicyError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "poll" => Ok(PollPolicy::Poll),
            "sleep" => Ok(PollPolicy::Sleep),
            "adaptive" => Ok(PollPolicy::default()),
            _ => s
                .strip_prefix("adaptive:")
                .and_then(|us| us.parse().ok())
                .map(|spin_us| PollPolicy::Adaptive { spin_us })
                .ok_or_else(|| PollPolicyError(s.to_owned())),
        }
    }
}

impl std::fmt::Display for PollPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PollPolicy::Poll => f.write_str("poll"),
            PollPolicy::Adaptive { spin_us } => write!(f, "adaptive:{spin_us}"),
            PollPolicy::Sleep => f.write_str("sleep"),
        }
    }
}

/// [`Config::register_bytes`] of a process with a drive: enough for the buffers of some thousand operations.
pub const REGISTER_BYTES: usize = 64 << 20;

carmine_types::defaults! {
    /// Everything that [`Reactors::start`](crate::Reactors::start) needs to know.
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Prefix of the thread names (`NAME-0`, `NAME-1`, … and `NAME-alien-0`, …); the kernel shows 15 bytes.
        pub name: String = "reactor".to_owned(),
        /// One entry per shard: the CPU to pin to, or `None` for an unpinned thread.
        pub cpus: Vec<Option<usize>> = vec![None],
        /// Behaviour of idle reactors.
        pub poll: PollPolicy,
        /// Number of alien threads (blocking work). With 0 the first use of `Shard::alien` is an error in the log and
        /// the work runs on the reactor itself.
        pub alien_threads: usize = 1,
        /// CPUs of the alien threads, dealt round robin; empty means unpinned: on those of the thread that starts the reactors.
        pub alien_cpus: Vec<usize>,
        /// Aliens run on CPUs of reactors: they give way to these, and a reactor with outstanding alien work sleeps instead of
        /// spinning.
        pub alien_shares_cpu: bool,
        /// Bytes of address space for I/O buffers per shard (memory is taken as it is touched).
        pub arena_bytes_per_shard: usize = 64 << 20,
        /// Bytes of each arena, from its start, whose pages are pinned and registered with the ring: disk I/O in them costs about
        /// 0.2 µs less, but they are taken at the start. Without effect where the locked-memory limit forbids it.
        pub register_bytes: usize,
        /// Entries of the submission ring; the completion ring has eight times as many. `CARMINE_RING_ENTRIES` in the environment is
        /// used instead, so that a test can be run with rings that are always full.
        pub ring_entries: u32 = 512,
        /// Microseconds of ready tasks per turn before the reactor checks the kernel again.
        pub task_quota_us: u32 = 500,
        /// A single poll of a task that takes longer than this many milliseconds is reported as a stall; 0 = never.
        pub stall_ms: u32 = 100,
    }
}

impl Config {
    /// `shards` unpinned reactors called `name`, everything else at its default.
    #[must_use]
    pub fn unpinned(name: &str, shards: u16) -> Self {
        Config { name: name.to_owned(), cpus: vec![None; usize::from(shards)], ..Config::default() }
    }
}

// Scheduling groups: who gets the CPU when several kinds of work are ready.

carmine_types::words! {
    /// The kind of work that a task does. When several groups have ready tasks, CPU time is dealt by shares.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Group: "scheduling group" {
        /// Client operations.
        Client = "client",
        /// Replication on behalf of clients.
        Replication = "replication",
        /// Recovery and backfill.
        Recovery = "recovery",
        /// Scrub.
        Scrub = "scrub",
        /// Removal of clones whose snapshots are gone.
        SnapTrim = "snaptrim",
        /// Everything else: accept loops, maps, admin commands.
        Admin = "admin",
        /// Heartbeats between OSDs: little work, which no other may delay.
        Heartbeat = "heartbeat",
    }
}

/// Number of groups.
pub(crate) const GROUPS: usize = Group::ALL.len();

impl Group {
    /// Relative CPU share among the groups that have ready tasks.
    #[must_use]
    pub const fn shares(self) -> u32 {
        match self {
            Group::Client | Group::Replication | Group::Heartbeat => 1000,
            Group::Recovery => 250,
            Group::Scrub | Group::SnapTrim => 100,
            Group::Admin => 500,
        }
    }
}
