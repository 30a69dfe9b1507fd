//! How long to wait before trying again.

use std::cell::Cell;
use std::time::Duration;

/// First wait after a fault.
const FIRST: Duration = Duration::from_millis(200);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(15);

/// Doubles from [`FIRST`] to [`LONGEST`] with each failure in a row.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    failures: Cell<u32>,
}

impl Pace {
    /// It went well: the next wait is the first one again.
    pub(crate) fn reset(&self) {
        self.failures.set(0);
    }

    /// It failed: how long to wait. Up to a quarter less by `random`, so that clients do not come back all at once.
    pub(crate) fn next(&self, random: u64) -> Duration {
        let failures = self.failures.get();
        self.failures.set(failures.saturating_add(1));
        let wait = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
        let quarter = wait.as_nanos() as u64 / 4;
        wait - Duration::from_nanos(random % quarter.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_and_starts_over() {
        let pace = Pace::default();
        let waits: Vec<_> = (0..9).map(|_| pace.next(0).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000]);
        pace.reset();
        assert!((150..=200).contains(&pace.next(u64::MAX).as_millis()));
    }
}
