//! How many connections a daemon lets in.
//!
//! Each costs a file descriptor and some 25 KiB before its peer has said who it is. Without a bound whoever opens enough of
//! them takes the descriptors that the object store needs, and the daemon ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::GATE_NOTICE_PERIOD;

/// Counts the connections of one or more listening ports, on all reactors, and refuses those beyond a number. Connections
/// that are still in their handshake count. A clone is the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections_max: usize,
    open: AtomicUsize,
    /// Since the last notice.
    refused: AtomicU64,
    /// When the next notice is due, by the reactor's clock.
    notice_ns: AtomicU64,
}

/// One connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Inner>);

impl Gate {
    /// A gate that lets so many in at once.
    pub fn new(connections_max: usize) -> Gate {
        Gate(Arc::new(Inner {
            connections_max,
            open: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            notice_ns: AtomicU64::new(0),
        }))
    }

    /// How many it lets in at once.
    pub fn connections_max(&self) -> usize {
        self.0.connections_max
    }

    /// A place; `None` if all are taken.
    pub(crate) fn enter(&self) -> Option<Place> {
        // Counted first and looked at after: two reactors cannot both take the last place.
        let place = Place(Arc::clone(&self.0));
        (self.0.open.fetch_add(1, Ordering::Relaxed) < self.0.connections_max).then_some(place)
    }

    /// Counts a refusal; the number since the last notice if another one is due.
    pub(crate) fn refused(&self, now_ns: u64) -> Option<u64> {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let due_ns = self.0.notice_ns.load(Ordering::Relaxed);
        if now_ns < due_ns {
            return None;
        }
        let next_ns = now_ns.saturating_add(GATE_NOTICE_PERIOD.as_nanos() as u64);
        // Of several reactors one says it.
        let is_first =
            self.0.notice_ns.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_first.then(|| self.0.refused.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_and_come_back() {
        let gate = Gate::new(2);
        let other_reactor = gate.clone();
        let (first, _second) = (gate.enter().unwrap(), other_reactor.enter().unwrap());
        assert!(gate.enter().is_none() && other_reactor.enter().is_none());
        drop(first);
        assert!(gate.enter().is_some(), "refusals keep no place");
    }

    #[test]
    fn refusals_are_told_now_and_then() {
        let gate = Gate::new(0);
        let second_ns = 1_000_000_000;
        assert_eq!(gate.refused(second_ns), Some(1));
        assert_eq!(gate.refused(2 * second_ns), None);
        assert_eq!(gate.refused(3 * second_ns), None);
        assert_eq!(gate.refused(12 * second_ns), Some(3));
    }
}
