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
}

impl Memory {
    /// A quarter each for I/O buffers and onodes, an eighth each for RocksDB's cache and (four of them) its write
    /// buffers; the last quarter is left to requests and the allocator. Each has a floor below which it would not work.
    pub(crate) fn of(plan: &Plan) -> Self {
        let (all, shards) = (plan.osd_memory_bytes, plan.cpu.reactors.max(1) as u64);
        let share = |part: u64, min: u64, max: u64| (all / part).clamp(min, max) as usize;
        let per_shard = |part: u64, min: u64, max: u64| (all / part / shards).clamp(min, max) as usize;
        Self {
            arena_per_shard: per_shard(4, 16 * MIB, 1024 * MIB),
            onodes_per_shard: per_shard(4, 4 * MIB, u64::MAX),
            kv_cache: share(8, 8 * MIB, 4096 * MIB),
            kv_write_buffer: share(32, 4 * MIB, 64 * MIB),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    #[test]
    fn the_shares_fit_into_the_whole() {
        let machine = Topology::from_short("1x16x1").unwrap();
        for (reactors, bytes) in [(1, 256 * MIB), (4, 1024 * MIB), (8, 64 << 30)] {
            let wish = Wish { reactors: Some(reactors), osd_memory_bytes: Some(bytes), ..Wish::default() };
            let m = Memory::of(&Plan::new(&wish, &machine, "f").unwrap());
            let shards = usize::from(reactors);
            let sum = shards * (m.arena_per_shard + m.onodes_per_shard) + m.kv_cache + 4 * m.kv_write_buffer;
            assert!(sum as u64 <= bytes / 4 * 3, "{m:?} of {bytes}");
        }
    }
}
