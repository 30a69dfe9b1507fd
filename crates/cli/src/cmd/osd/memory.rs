//! How an OSD's memory (`--osd-memory`) is divided.

use carmine_testbed::Plan;

const MIB: u64 = 1 << 20;

/// Shares of an OSD's memory, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// I/O buffers of each reactor.
    pub(crate) arena_per_shard: usize,
    /// Metadata cache of each reactor (`blue`).
    pub(crate) onodes_per_shard: usize,
    /// RocksDB's cache of table blocks.
    pub(crate) kv_cache: usize,
    /// One of RocksDB's write buffers; it keeps up to four.
    pub(crate) kv_write_buffer: usize,
    /// Client requests that each reactor holds.
    pub(crate) requests_per_shard: usize,
}

impl Memory {
    /// A quarter each for I/O buffers, onodes and requests, an eighth for RocksDB's cache, the rest for its write
    /// buffers, code and stacks. Everything has a floor below which it would not work.
    pub(crate) fn of(plan: &Plan) -> Self {
        let (all, shards) = (plan.osd_memory_bytes, plan.cpu.reactors.max(1) as u64);
        let share = |part: u64, min: u64, max: u64| (all / part).clamp(min, max) as usize;
        let per_shard = |part: u64, min: u64, max: u64| (all / part / shards).clamp(min, max) as usize;
        Self {
            arena_per_shard: per_shard(4, 16 * MIB, 1024 * MIB),
            onodes_per_shard: per_shard(4, 4 * MIB, u64::MAX),
            kv_cache: share(8, 8 * MIB, 4096 * MIB),
            kv_write_buffer: share(32, 4 * MIB, 64 * MIB),
            requests_per_shard: per_shard(4, 16 * MIB, 128 * MIB),
        }
    }
}
