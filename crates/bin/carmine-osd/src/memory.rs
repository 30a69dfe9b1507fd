//! How an OSD's memory (`--osd-memory`) is divided.

use std::fmt;

use carmine_osd::PG_LOG_BYTES;
use carmine_testbed::Plan;

const MIB: u64 = 1 << 20;
/// The program, its stacks, and what RocksDB needs beside caches and write buffers; measured.
const PROGRAM_BYTES: u64 = 64 * MIB;
/// Write buffers that RocksDB keeps at most: three of each of the two families.
const WRITE_BUFFERS: u64 = 6;

/// Shares of an OSD's memory, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All of it.
    whole: u64,
    /// The OSD needs this much whatever it is given: for itself, and for the logs of its PGs.
    fixed: u64,
    shards: u64,
    /// I/O buffers of each reactor.
    pub arena_per_shard: usize,
    /// Requests of clients and their answers, of each reactor: in I/O buffers and beside them.
    pub requests_per_shard: usize,
    /// Metadata cache of each reactor (`blue`).
    pub onodes_per_shard: usize,
    /// RocksDB's cache of table blocks.
    pub kv_cache: usize,
    /// One of RocksDB's write buffers; it keeps up to six.
    pub kv_write_buffer: usize,
}

impl Memory {
    /// Divides the memory that the program and the PGs' logs leave: a quarter each for I/O buffers and onodes, an eighth each
    /// for RocksDB's cache and its write buffers; the last quarter and the I/O buffers are for clients' requests. Each has a floor
    /// below which it would not work.
    pub fn from_plan(plan: &Plan) -> Self {
        let (whole, shards) = (plan.osd_memory_bytes, plan.cpu.reactors.max(1) as u64);
        // Each of several hosts has one copy of a PG at most.
        let has_one = plan.host.is_some() && plan.joined.is_none();
        let copies = u64::from(plan.pool.pg_num) * if has_one { 1 } else { u64::from(plan.pool.size) };
        let fixed = PROGRAM_BYTES + copies.div_ceil(u64::from(plan.osds()).max(1)) * PG_LOG_BYTES;
        let left = whole.saturating_sub(fixed);
        let share = |part: u64, min: u64, max: u64| (left / part).clamp(min, max) as usize;
        let per_shard = |part: u64, min: u64, max: u64| (left / part / shards).clamp(min, max) as usize;
        Self {
            whole,
            fixed,
            shards,
            arena_per_shard: per_shard(4, 16 * MIB, 1024 * MIB),
            requests_per_shard: per_shard(2, 32 * MIB, u64::MAX),
            onodes_per_shard: per_shard(4, 4 * MIB, u64::MAX),
            kv_cache: share(8, 8 * MIB, 4096 * MIB),
            kv_write_buffer: share(8 * WRITE_BUFFERS, 4 * MIB, 64 * MIB),
        }
    }

    /// The sum of all shares but that of requests.
    fn given(&self) -> u64 {
        let per_shard = (self.arena_per_shard + self.onodes_per_shard) as u64;
        self.fixed
            + self.shards * per_shard
            + self.kv_cache as u64
            + WRITE_BUFFERS * self.kv_write_buffer as u64
    }

    /// The floors alone are more than its memory.
    pub fn is_short(&self) -> bool {
        self.given() > self.whole
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes / MIB;
        write!(
            f,
            "{} MiB: {} for the program and the logs of its PGs, {} for I/O buffers, {} for onodes, {} for RocksDB's cache, {} \
             for its write buffers",
            mib(self.whole),
            mib(self.fixed),
            mib(self.shards * self.arena_per_shard as u64),
            mib(self.shards * self.onodes_per_shard as u64),
            mib(self.kv_cache as u64),
            mib(WRITE_BUFFERS * self.kv_write_buffer as u64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_testbed::Wish;
    use carmine_topology::Topology;

    fn memory(reactors: u16, bytes: u64, pgs: u32) -> Memory {
        let machine = Topology::from_short("1x16x1").unwrap();
        let wish = Wish {
            reactors: Some(reactors),
            osd_memory_bytes: Some(bytes),
            pgs: Some(pgs),
            ..Wish::default()
        };
        Memory::from_plan(&Plan::new(&wish, &machine, "f").unwrap())
    }

    #[test]
    fn the_shares_fit_into_the_whole() {
        for (reactors, bytes, pgs) in [(1, 256 * MIB, 32), (4, 1024 * MIB, 128), (8, 64 << 30, 256)] {
            let m = memory(reactors, bytes, pgs);
            assert!(!m.is_short() && m.given() <= bytes, "{m:?} of {bytes}");
            // Beside the I/O buffers, which are part of them.
            let beside = m.shards * (m.requests_per_shard - m.arena_per_shard) as u64;
            assert!(m.given() + beside <= bytes + 32 * MIB, "{m:?} of {bytes}");
        }
        // The logs of so many PGs alone are more.
        assert!(memory(1, 256 * MIB, 256).is_short());
        assert!(memory(1, 256 * MIB, 32).to_string().starts_with("256 MiB: 108 for the program"));
    }
}
