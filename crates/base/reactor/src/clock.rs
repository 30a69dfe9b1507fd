//! Time: the kernel's clocks, or the virtual clock of `sim`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::sys;

/// A virtual world begins at this wall-clock time: 2026-01-01 00:00:00 UTC.
const VIRTUAL_EPOCH_S: u64 = 1_767_225_600;
/// Ticks that a step of a task takes on the virtual counter.
const VIRTUAL_TICKS: u64 = 1_000;
/// Of the nanoseconds of a tick: good to a nanosecond in a second, as far as the rate is.
const FRACTION_BITS: u32 = 32;

/// A shard's source of time.
pub(crate) enum Clock {
    Real(TickRate),
    /// Nanoseconds of virtual time, a tick counter of this shard, and what the node's wall clock is ahead, nanoseconds.
    Virtual(Rc<Cell<u64>>, Cell<u64>, Rc<Cell<i64>>),
}

impl Clock {
    /// Monotonic nanoseconds.
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::Real(_) => sys::monotonic_ns(),
            Clock::Virtual(t, ..) => t.get(),
        }
    }

    /// A turn begins now, in monotonic nanoseconds: stamps count from here.
    pub(crate) fn begin_turn(&self) -> u64 {
        let now_ns = self.now_ns();
        if let Clock::Real(rate) = self {
            rate.turn.set((now_ns, sys::ticks()));
        }
        now_ns
    }

    /// Monotonic nanoseconds, by the tick counter since the turn began.
    #[inline]
    pub(crate) fn stamp_ns(&self) -> u64 {
        match self {
            Clock::Real(rate) => {
                let (turn_ns, turn_ticks) = rate.turn.get();
                turn_ns + rate.to_ns(sys::ticks().wrapping_sub(turn_ticks))
            }
            Clock::Virtual(t, ..) => t.get(),
        }
    }

    /// Wall clock since 1970.
    pub(crate) fn unix_now(&self) -> Duration {
        match self {
            Clock::Real(_) => Duration::from_nanos(sys::realtime_ns()),
            Clock::Virtual(t, _, ahead_ns) => {
                Duration::from_secs(VIRTUAL_EPOCH_S)
                    + Duration::from_nanos(t.get().saturating_add_signed(ahead_ns.get()))
            }
        }
    }

    /// A cheap counter for durations.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        match self {
            Clock::Real(_) => sys::ticks(),
            Clock::Virtual(_, ticks, _) => {
                let t = ticks.get() + VIRTUAL_TICKS;
                ticks.set(t);
                t
            }
        }
    }

    /// Ticks of a duration.
    pub(crate) fn to_ticks(&self, ns: u64) -> u64 {
        match self {
            Clock::Real(r) => {
                let ticks = (u128::from(ns) << FRACTION_BITS) / u128::from(r.ns_per_tick.get().max(1));
                u64::try_from(ticks).unwrap_or(u64::MAX)
            }
            Clock::Virtual(..) => ns,
        }
    }

    /// Duration of ticks in nanoseconds.
    pub(crate) fn to_ns(&self, ticks: u64) -> u64 {
        match self {
            Clock::Real(r) => r.to_ns(ticks),
            Clock::Virtual(..) => ticks,
        }
    }
}

/// How fast the tick counter runs, measured against the monotonic clock.
pub(crate) struct TickRate {
    start_ticks: u64,
    start_ns: u64,
    /// With [`FRACTION_BITS`] bits behind the point: a division, and floats, would cost each stamp twenty instructions more.
    ns_per_tick: Cell<u64>,
    /// Monotonic nanoseconds and ticks when the turn began.
    turn: Cell<(u64, u64)>,
}

impl TickRate {
    /// Measures for 100 µs: good to a percent, and `refine` makes it better.
    pub(crate) fn measure() -> TickRate {
        let (start_ns, start_ticks) = (sys::monotonic_ns(), sys::ticks());
        while sys::monotonic_ns() < start_ns + 100_000 {
            std::hint::spin_loop();
        }
        let turn = Cell::new((start_ns, start_ticks));
        let rate = TickRate { start_ticks, start_ns, ns_per_tick: Cell::new(1 << FRACTION_BITS), turn };
        rate.refine();
        rate
    }

    #[inline]
    fn to_ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick.get())) >> FRACTION_BITS) as u64
    }

    /// Measures again over all the time since the start.
    pub(crate) fn refine(&self) {
        let ns = sys::monotonic_ns().saturating_sub(self.start_ns);
        let ticks = sys::ticks().wrapping_sub(self.start_ticks);
        if ns > 0 && ticks > 0 {
            self.ns_per_tick.set(((u128::from(ns) << FRACTION_BITS) / u128::from(ticks)) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_go_on_from_the_beginning_of_the_turn() {
        let clock = Clock::Real(TickRate::measure());
        let turn_ns = clock.begin_turn();
        while clock.now_ns() < turn_ns + 1_000_000 {}
        let (before_ns, stamp_ns) = (clock.now_ns() - turn_ns, clock.stamp_ns() - turn_ns);
        let after_ns = clock.now_ns() - turn_ns;
        // The rate was measured for 100 us only.
        assert!(
            (before_ns * 9 / 10..=after_ns * 11 / 10).contains(&stamp_ns),
            "{before_ns} {stamp_ns} {after_ns}"
        );
    }
}
