//! Whether other threads compete for a reactor's CPU. If so, work that the kernel hands to its own threads, and each wake-up,
//! makes the reactor wait for the CPU.

use std::cell::Cell;

use crate::clock::Clock;
use crate::shard::Shard;
use crate::stats;

/// Time between two checks.
const LOOK_NS: u64 = 100_000_000;
/// A reactor that waits for its CPU for more than one in this many parts of the time is crowded.
const WAITS_ONE_IN: u64 = 5;

/// The last check.
#[derive(Default)]
pub(crate) struct Crowd {
    looked_ns: Cell<u64>,
    wait_ns: Cell<u64>,
    is_crowded: Cell<bool>,
}

impl Crowd {
    /// Notes the waiting time of the thread since its start, nanoseconds.
    fn note(&self, now_ns: u64, wait_ns: u64) {
        let waited = wait_ns.saturating_sub(self.wait_ns.replace(wait_ns));
        let passed = now_ns - self.looked_ns.replace(now_ns);
        self.is_crowded.set(waited > passed / WAITS_ONE_IN);
    }
}

impl Shard {
    /// Whether this reactor has waited for its CPU for more than a fifth of the time lately. Reads `/proc` at most every 100 ms;
    /// the simulator draws a random answer as often.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let inner = self.inner();
        let (crowd, now_ns) = (&inner.crowd, inner.turn_now.get());
        if now_ns.saturating_sub(crowd.looked_ns.get()) >= LOOK_NS {
            match inner.clock {
                Clock::Real(_) => crowd.note(now_ns, stats::thread_account(inner.tid).1),
                Clock::Virtual(..) => {
                    crowd.looked_ns.set(now_ns);
                    crowd.is_crowded.set(self.random_u64().is_multiple_of(2));
                }
            }
        }
        crowd.is_crowded.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reactor_that_waits_for_more_than_a_fifth_of_the_time_is_crowded() {
        let crowd = Crowd::default();
        let looks = [(100, 10, false), (200, 31, true), (300, 50, false), (500, 91, true), (600, 91, false)];
        for (now, wait, expected) in looks {
            crowd.note(now, wait);
            assert_eq!(crowd.is_crowded.get(), expected, "at {now}");
        }
    }
}
