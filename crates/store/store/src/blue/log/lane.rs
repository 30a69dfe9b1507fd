//! [`Lane`]: where a shard's next group goes in the log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;

use crate::blue::device::label::LogArea;

/// A shard's part of the log: segments, the last of which is being filled.
#[derive(Default)]
pub(crate) struct Lane {
    /// Oldest first, each with the number of the last group in it.
    segments: VecDeque<(u32, u64)>,
    /// Blocks used of the last segment.
    used_blocks: u64,
    /// Number of the last group.
    seq: u64,
}

impl Lane {
    /// Allocates the place of the next group, which has `blocks` blocks (at most a segment's). Returns its number and first
    /// block; `None` if a new segment is needed and none is free.
    pub(crate) fn place_group(&mut self, blocks: u64, space: &LogSpace) -> Option<(u64, u64)> {
        let (seq, block) = self.next_place(blocks, space)?;
        self.seq = seq;
        self.used_blocks += blocks;
        if let Some((_, last)) = self.segments.back_mut() {
            *last = seq;
        }
        Some((seq, block))
    }

    /// Where [`place_group`](Lane::place_group) would put the next group.
    pub(crate) fn next_place(&mut self, blocks: u64, space: &LogSpace) -> Option<(u64, u64)> {
        let area = space.area();
        let fits = self.used_blocks + blocks <= u64::from(area.segment_blocks);
        if self.segments.is_empty() || !fits {
            self.segments.push_back((space.take_segment()?, self.seq));
            self.used_blocks = 0;
        }
        let (index, _) = self.segments.back()?;
        Some((self.seq + 1, area.segment(*index) + self.used_blocks))
    }

    /// Frees the segments whose groups are all among the first `seq`, except the one that is being filled.
    pub(crate) fn trim(&mut self, seq: u64, space: &LogSpace) {
        while self.segments.len() > 1
            && let Some((index, last)) = self.segments.front().copied()
            && last <= seq
        {
            self.segments.pop_front();
            space.free_segment(index);
        }
    }
}

// [`LogSpace`]: the segments of the log that no lane uses.

/// The log's area and its free segments; shared by all shards.
pub(crate) struct LogSpace {
    area: LogArea,
    free: SegQueue<u32>,
    used: AtomicUsize,
}

impl LogSpace {
    /// All segments are free.
    pub(crate) fn new(area: LogArea) -> LogSpace {
        let free = SegQueue::new();
        (0..area.group_segments()).for_each(|index| free.push(index));
        LogSpace { area, free, used: AtomicUsize::new(0) }
    }

    pub(crate) fn area(&self) -> &LogArea {
        &self.area
    }

    /// Most lanes: each keeps one segment, and needs another to continue.
    pub(crate) fn lanes_max(&self) -> usize {
        self.area.group_segments() as usize / 2
    }

    /// Allocates a segment.
    pub(crate) fn take_segment(&self) -> Option<u32> {
        let index = self.free.pop()?;
        self.used.fetch_add(1, Ordering::Relaxed);
        Some(index)
    }

    /// Frees a segment: everything in it is durable in the key-value store.
    pub(crate) fn free_segment(&self, index: u32) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.free.push(index);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether half of the log is used, so that its content should become durable in the key-value store.
    pub(crate) fn wants_trim(&self) -> bool {
        self.used() * 2 >= self.area.group_segments() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blue::device::label::LogArea;

    #[test]
    fn groups_lie_in_segments_and_segments_come_back_when_all_of_them_is_elsewhere() {
        let space = LogSpace::new(LogArea { start: 100, segments: 4, segment_blocks: 4 });
        let mut lane = Lane::default();
        assert_eq!(lane.place_group(3, &space), Some((1, 100)));
        assert_eq!(lane.next_place(1, &space), Some((2, 103)));
        assert_eq!(lane.place_group(1, &space), Some((2, 103)));
        assert_eq!(lane.place_group(2, &space), Some((3, 104)));
        assert_eq!(lane.place_group(3, &space), Some((4, 108)));
        assert!(space.wants_trim());
        assert_eq!(lane.place_group(2, &space), None);
        assert_eq!(lane.place_group(1, &space), Some((5, 111)), "what failed took nothing");
        lane.trim(1, &space);
        assert_eq!((lane.place_group(4, &space), space.used()), (None, 3));
        lane.trim(2, &space);
        assert_eq!(space.used(), 2);
        assert_eq!(lane.place_group(4, &space), Some((6, 100)));
        lane.trim(6, &space);
        assert_eq!((space.used(), lane.place_group(1, &space)), (1, Some((7, 104))));
    }
}
