//! Polls for work without system calls, for as long as that pays.

use crate::config::DEFAULT_SPIN_US;
use crate::shard::Shard;
use crate::{stats, sys, turn};

/// A longer gap between two clock readings while spinning means that the thread had lost its CPU.
const GAP_NS: u64 = 5_000;

/// Upper bounds of the classes of pauses.
const EDGES_NS: [u64; 7] = [5_000, 10_000, 20_000, 30_000, 50_000, 75_000, 100_000];

/// A pause that is spun through to its end tells nothing more after this time.
const _: () = assert!(EDGES_NS[EDGES_NS.len() - 1] == DEFAULT_SPIN_US as u64 * 1_000);

/// One in this many pauses is spun through to its end, to measure how long they are now. A prime, because pauses come in
/// patterns.
const PROBE_EVERY: u8 = 31;

/// Pauses that must be known before the others are judged by them.
const KNOWN_MIN: u16 = 12;

/// Pauses that are remembered. When there are more, all counts are halved.
const KNOWN_MAX: u16 = 64;

/// What a reactor waits for in a pause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A client, another OSD, or another reactor: nothing else is in flight. It may sleep, too, while this reactor works: two
    /// reactors that wait for each other in turn lose two wake-ups per round, and serve less the more they have to do.
    Peer,
    /// A drive, and perhaps peers as well. A drive answers no sooner if the reactor spins.
    Drive,
}

impl Source {
    /// Nanoseconds of spinning that are worth one sleep and its wake-up, with what these cost the peer.
    const fn sleep_ns(self) -> u64 {
        match self {
            Source::Peer => 80_000,
            Source::Drive => 20_000,
        }
    }
}

/// How long recent pauses of one source were, and how long to spin in the next: the time that would have minimised the cost of
/// spinning and sleeping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// Pauses by [`EDGES_NS`]; the last are longer than all of these.
    known: [u16; EDGES_NS.len() + 1],
    /// The spinning time with the least cost.
    limit_ns: u64,
    /// Pauses since the last one that was spun through to its end.
    since_probe: u8,
}

impl Pauses {
    fn wants_probe(&self) -> bool {
        self.since_probe + 1 >= PROBE_EVERY || self.known.iter().sum::<u16>() < KNOWN_MIN
    }

    /// Whether this pause is certainly one without a spin; it counts as one then.
    fn forbids(&mut self) -> bool {
        let forbids = self.limit_ns == 0 && !self.wants_probe();
        self.since_probe += u8::from(forbids);
        forbids
    }

    /// Notes a pause that was spun through: its length, or `None` if it was longer than all edges.
    fn note(&mut self, took_ns: Option<u64>, sleep_ns: u64) {
        let at = took_ns.and_then(|ns| EDGES_NS.iter().position(|edge| ns <= *edge));
        self.known[at.unwrap_or(EDGES_NS.len())] += 1;
        if self.known.iter().sum::<u16>() > KNOWN_MAX {
            self.known = self.known.map(|pauses| pauses / 2);
        }
        self.since_probe = 0;
        self.limit_ns = self.cheapest_ns(sleep_ns);
    }

    /// The limit that would have cost least in the pauses that are known.
    fn cheapest_ns(&self, sleep_ns: u64) -> u64 {
        let mut longer = self.known.iter().copied().map(u64::from).sum::<u64>();
        let mut spun_ns = 0;
        let mut best = (longer * sleep_ns, 0);
        for (pauses, edge) in self.known.iter().zip(EDGES_NS) {
            spun_ns += u64::from(*pauses) * edge;
            longer -= u64::from(*pauses);
            best = best.min((spun_ns + longer * (edge + sleep_ns), edge));
        }
        best.1
    }
}

fn source(shard: &Shard) -> Source {
    if shard.inner().ops.borrow().wait_for_drive() { Source::Drive } else { Source::Peer }
}

/// Spins as long as has paid lately, at most `limit_ns`; false if no work was found.
pub(crate) fn while_it_pays(shard: &Shard, limit_ns: u64) -> bool {
    if is_wanted(shard) {
        return true;
    }
    let source = source(shard);
    let cell = &shard.inner().pauses[source as usize];
    let mut pauses = cell.get();
    let found = if pauses.wants_probe() {
        let begun = sys::ticks();
        let found = spin(shard, limit_ns);
        let took_ns = shard.inner().clock.to_ns(sys::ticks().wrapping_sub(begun));
        pauses.note(found.then_some(took_ns), source.sleep_ns());
        found
    } else {
        pauses.since_probe += 1;
        spin(shard, limit_ns.min(pauses.limit_ns))
    };
    cell.set(pauses);
    found
}

/// Whether spinning does not pay now, and it is not time to try again.
pub(crate) fn is_futile(shard: &Shard) -> bool {
    let cell = &shard.inner().pauses[source(shard) as usize];
    let mut pauses = cell.get();
    let is_futile = pauses.forbids();
    cell.set(pauses);
    is_futile
}

/// Whether there is something to do, or an event to reap.
pub(crate) fn is_wanted(shard: &Shard) -> bool {
    turn::has_work(shard) || shard.inner().driver.borrow_mut().has_events()
}

/// Polls for work; false if there was none for `limit_ns`. Never inlined: `scripts/instructions` leaves it out by its name.
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

    /// Microseconds that are spun in the last of many pauses of these lengths, which come in turns.
    fn spun_us(source: Source, pauses_us: &[u64]) -> u64 {
        let (mut pauses, mut limit_ns) = (Pauses::default(), 0);
        for pause_us in pauses_us.iter().cycle().take(20_000) {
            if pauses.forbids() {
                limit_ns = 0;
            } else if pauses.wants_probe() {
                pauses.note(Some(*pause_us * 1_000), source.sleep_ns());
            } else {
                (pauses.since_probe, limit_ns) = (pauses.since_probe + 1, pauses.limit_ns);
            }
        }
        limit_ns / 1_000
    }

    #[test]
    fn a_reactor_spins_for_as_long_as_pauses_last_if_that_is_cheaper_than_sleeping() {
        assert_eq!(spun_us(Source::Peer, &[4]), 5);
        assert_eq!(spun_us(Source::Peer, &[45]), 50, "a client that works off what it was answered");
        assert_eq!(spun_us(Source::Peer, &[8, 8, 8, 900]), 10, "no longer than most pauses");
        assert_eq!(spun_us(Source::Peer, &[900]), 0);
        assert_eq!(spun_us(Source::Drive, &[90]), 0, "a drive answers no sooner if it is watched");
        assert_eq!(spun_us(Source::Drive, &[8]), 10);
    }

    #[test]
    fn a_reactor_notices_that_pauses_became_shorter_and_longer() {
        let mut pauses = Pauses::default();
        for (took_us, limit_us) in [(900, 0), (15, 20), (900, 0)] {
            for _ in 0..200 {
                pauses.note(Some(took_us * 1_000), Source::Peer.sleep_ns());
            }
            assert_eq!(pauses.limit_ns, limit_us * 1_000);
        }
        let probes = (0..310)
            .filter(|_| {
                !pauses.forbids() && {
                    pauses.since_probe = 0;
                    true
                }
            })
            .count();
        assert_eq!(probes, 310 / usize::from(PROBE_EVERY));
    }
}
