//! How long to wait before a connection to another OSD is made again.

use std::cell::Cell;
use std::time::Duration;

/// A connection that lasted this long was a good one: the next is made at once.
const GOOD: Duration = Duration::from_secs(5);
/// Wait after the first one that did not.
const FIRST: Duration = Duration::from_millis(50);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(2);

/// Doubles the wait from [`FIRST`] to [`LONGEST`] with each connection in a row that ended early. A message that its receiver
/// does not take is sent again on the next connection: without a pause both sides would do nothing else.
#[derive(Default)]
pub(crate) struct Backoff {
    early: Cell<u32>,
    until_ns: Cell<u64>,
}

impl Backoff {
    /// A connection ended. Those that end together count once.
    pub(crate) fn ended(&self, made_ns: u64, now_ns: u64) {
        if now_ns < self.until_ns.get() {
            return;
        }
        if now_ns.saturating_sub(made_ns) >= GOOD.as_nanos() as u64 {
            return self.early.set(0);
        }
        let early = self.early.get();
        self.early.set(early.saturating_add(1));
        let wait = FIRST.saturating_mul(1 << early.min(16)).min(LONGEST);
        self.until_ns.set(now_ns + wait.as_nanos() as u64);
    }

    /// What is left of the wait.
    pub(crate) fn left(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.until_ns.get().saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_a_connection_lasts() {
        let (backoff, mut now_ns, mut waits_ms) = (Backoff::default(), 0, Vec::new());
        for lives_ms in [10, 10, 4999, 10, 10, 10, 10, 10, 5000, 10] {
            let made_ns = now_ns;
            now_ns += lives_ms * 1_000_000;
            // It has connections to several reactors.
            (0..3).for_each(|_| backoff.ended(made_ns, now_ns));
            let left = backoff.left(now_ns);
            waits_ms.push(left.as_millis());
            now_ns += left.as_nanos() as u64;
        }
        assert_eq!(waits_ms, [50, 100, 200, 400, 800, 1600, 2000, 2000, 0, 50]);
    }
}
