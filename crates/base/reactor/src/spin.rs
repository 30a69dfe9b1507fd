//! Looking for work without system calls, for as long as that pays.

use crate::shard::Shard;
use crate::{stats, sys, turn};

/// A gap between two looks at the clock while spinning that is longer than this was not spent spinning: the thread
/// had lost its CPU.
const GAP_NS: u64 = 5_000;

/// Decides whether to spin, by how the last spins ended. A spin that finds nothing costs about as much as a sleep and a
/// wake-up, so that one of three has to find work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Spins that may fail in a row.
    credit: u8,
    /// Pauses without a spin since the last one.
    passed: u8,
}

impl Budget {
    const CREDIT_MAX: u8 = 8;
    /// Of so many pauses one is spun through without credit, to see whether work comes faster now.
    const PROBE_EVERY: u8 = 32;

    /// Whether this pause is certainly one without a spin; it counts as one then.
    fn forbids(&mut self) -> bool {
        let forbids = self.credit == 0 && self.passed + 1 < Self::PROBE_EVERY;
        self.passed += u8::from(forbids);
        forbids
    }

    /// Whether to spin in this pause.
    fn allows(&mut self) -> bool {
        self.passed += 1;
        let allows = self.credit > 0 || self.passed >= Self::PROBE_EVERY;
        if allows {
            self.passed = 0;
        }
        allows
    }

    fn note(&mut self, found: bool) {
        self.credit = match found {
            true => (self.credit + 2).min(Self::CREDIT_MAX),
            false => self.credit.saturating_sub(1),
        };
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { credit: Self::CREDIT_MAX, passed: 0 }
    }
}

/// Spins for at most `limit_ns` if that has paid lately; false if no work was found.
pub(crate) fn within_budget(shard: &Shard, limit_ns: u64) -> bool {
    if is_wanted(shard) {
        return true;
    }
    let mut budget = shard.inner().spin_budget.get();
    let found = budget.allows() && {
        let found = spin(shard, limit_ns);
        budget.note(found);
        found
    };
    shard.inner().spin_budget.set(budget);
    found
}

/// Spins have not paid lately, and this pause is none to try again in.
pub(crate) fn is_futile(shard: &Shard) -> bool {
    let mut budget = shard.inner().spin_budget.get();
    let is_futile = budget.forbids();
    shard.inner().spin_budget.set(budget);
    is_futile
}

/// There is something to do, or an event to take.
pub(crate) fn is_wanted(shard: &Shard) -> bool {
    turn::has_work(shard) || shard.inner().driver.borrow_mut().has_events()
}

/// Looks for work; false if there was none for `limit_ns`. Never inlined: `scripts/instructions` leaves it out by its name.
#[inline(never)]
pub(crate) fn spin(shard: &Shard, limit_ns: u64) -> bool {
    let inner = shard.inner();
    stats::add(&inner.counters.spins, 1);
    let limit = if limit_ns == u64::MAX { u64::MAX } else { inner.clock.to_ticks(limit_ns) };
    let gap = inner.clock.to_ticks(GAP_NS);
    // A timer that comes due ends the spin: translate its time to ticks once.
    let next = inner.timers.borrow().next();
    let to_timer = next.map_or(u64::MAX, |t| inner.clock.to_ticks(t.saturating_sub(sys::monotonic_ns())));
    let backlog = inner.mail.borrow().has_backlog();
    let start = sys::ticks();
    let (mut last, mut spun) = (start, 0u64);
    let found = loop {
        if is_wanted(shard) || backlog {
            break true;
        }
        std::hint::spin_loop();
        let now = sys::ticks();
        let step = now.wrapping_sub(last);
        spun += step.min(gap);
        last = now;
        let elapsed = now.wrapping_sub(start);
        if elapsed >= to_timer {
            break true;
        }
        if elapsed >= limit {
            break false;
        }
    };
    stats::add(&inner.counters.spin_ticks, spun);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Part of `pauses` that are spun through, if every `one_in` of the spins finds work.
    fn spun(budget: &mut Budget, pauses: u32, one_in: u32) -> u32 {
        let mut spins = 0;
        for _ in 0..pauses {
            if !budget.forbids() && budget.allows() {
                spins += 1;
                budget.note(spins % one_in == 0);
            }
        }
        spins
    }

    #[test]
    fn a_reactor_spins_while_that_finds_work_and_looks_again_later() {
        let mut budget = Budget::default();
        assert_eq!(spun(&mut budget, 1000, 1), 1000);
        assert_eq!(spun(&mut budget, 1000, 2), 1000, "every other spin pays for itself");
        // Eight fail; then one pause in 32 is tried.
        assert_eq!(spun(&mut budget, 8 + 320, u32::MAX), 8 + 10);
        // A probe that finds work brings spinning back.
        assert!(spun(&mut budget, 1000, 1) > 960);
    }
}
