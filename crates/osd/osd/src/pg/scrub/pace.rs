//! A limit of bytes per second: for the reads of one reactor's scrubs, for its own PGs and other primaries, and for the pushes of
//! its recoveries.

use std::cell::Cell;
use std::time::Duration;

use carmine_reactor::Shard;

/// Waits shorter than this are added to the next one.
const SHORT_NS: u64 = 1_000_000;

/// Limits the bytes moved per second.
pub(crate) struct Pace {
    bytes_per_second: Cell<u64>,
    /// When the bytes moved so far will be within the limit.
    free_ns: Cell<u64>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: Cell::new(bytes_per_second.max(1)), free_ns: Cell::new(0) }
    }

    /// Changes the limit for bytes moved from now on.
    pub(crate) fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.set(bytes_per_second.max(1));
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second.get()
    }

    /// Counts bytes that were moved, and waits until more may be.
    pub(crate) async fn throttle(&self, shard: &Shard, bytes: u64) {
        let left_ns = self.note(shard.now_ns(), bytes);
        if left_ns >= SHORT_NS {
            shard.sleep(Duration::from_nanos(left_ns)).await;
        }
    }

    /// How long to wait.
    fn note(&self, now_ns: u64, bytes: u64) -> u64 {
        let takes_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let free_ns =
            self.free_ns.get().max(now_ns).saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        self.free_ns.set(free_ns);
        free_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_takes_its_time_and_idle_time_is_not_saved_up() {
        let pace = Pace::new(1000);
        assert_eq!(pace.note(5_000_000_000, 100), 100_000_000);
        assert_eq!(pace.note(5_000_000_000, 100), 200_000_000);
        assert_eq!(pace.note(5_150_000_000, 100), 150_000_000);
        assert_eq!(pace.note(9_000_000_000, 100), 100_000_000);
        pace.set(100);
        assert_eq!(pace.note(10_000_000_000, 100), 1_000_000_000);
    }
}
