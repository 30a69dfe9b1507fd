//! [`LogSpace`]: the segments of the log that no lane uses.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam::queue::SegQueue;

use crate::blue::device::label::LogArea;

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
        (0..area.segments).for_each(|index| free.push(index));
        LogSpace { area, free, used: AtomicUsize::new(0) }
    }

    pub(crate) fn area(&self) -> &LogArea {
        &self.area
    }

    /// Lanes that fit: each holds on to one segment, and needs another to go on.
    pub(crate) fn lanes_max(&self) -> usize {
        self.area.segments as usize / 2
    }

    /// Takes a segment.
    pub(crate) fn take(&self) -> Option<u32> {
        let index = self.free.pop()?;
        self.used.fetch_add(1, Ordering::Relaxed);
        Some(index)
    }

    /// Gives a segment back: all that it holds is durable in the key-value store.
    pub(crate) fn give(&self, index: u32) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.free.push(index);
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Half of the log is used: time to make what it holds durable elsewhere.
    pub(crate) fn wants_trim(&self) -> bool {
        self.used() * 2 >= self.area.segments as usize
    }
}
