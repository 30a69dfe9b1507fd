//! Limits how many connections a daemon accepts.
//!
//! Each needs a file descriptor and some 25 KiB before its peer has identified itself. Without a limit, anyone could open enough
//! of them to use up the descriptors that the object store needs, and the daemon would fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::limits::NOTICE_PERIOD;

/// Counts the connections of one or more listening ports, on all reactors, and refuses those beyond a number unless others give way.
/// Connections that are still in their handshake count. A clone is the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    connections_max: usize,
    open: AtomicUsize,
    refused: Notices,
    gave_way: Notices,
    failed: Notices,
}

/// One connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct GateSlot(Arc<Inner>);

impl Gate {
    /// A gate for this many connections at once.
    pub fn new(connections_max: usize) -> Gate {
        Gate(Arc::new(Inner { connections_max, ..Inner::default() }))
    }

    /// Most connections at once.
    pub fn connections_max(&self) -> usize {
        self.0.connections_max
    }

    /// A place; `None` if all are taken.
    pub(crate) fn enter(&self) -> Option<GateSlot> {
        // Counted first and checked afterwards, so that two reactors cannot both take the last place.
        let place = GateSlot(Arc::clone(&self.0));
        (self.0.open.fetch_add(1, Ordering::Relaxed) < self.0.connections_max).then_some(place)
    }

    pub(crate) fn is_same(&self, other: &Gate) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Lines about connections that were refused.
    pub(crate) fn refused(&self) -> &Notices {
        &self.0.refused
    }

    /// Lines about connections that were closed for newcomers.
    pub(crate) fn gave_way(&self) -> &Notices {
        &self.0.gave_way
    }

    /// Lines about handshakes that failed.
    pub(crate) fn failed(&self) -> &Notices {
        &self.0.failed
    }
}

impl Drop for GateSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Log lines of one kind that peers can cause as often as they like: one per period is written.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Since the last line.
    count: AtomicU64,
    /// When the next line is due, by the reactor's clock.
    due_ns: AtomicU64,
}

impl Notices {
    /// Counts an event; the number since the last line if another one is due.
    pub(crate) fn count(&self, now_ns: u64) -> Option<u64> {
        self.count_all(1, now_ns)
    }

    /// The same for several events. Without an event no line is written, and the next one is not put off.
    pub(crate) fn count_all(&self, events: u64, now_ns: u64) -> Option<u64> {
        if events == 0 {
            return None;
        }
        self.count.fetch_add(events, Ordering::Relaxed);
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        if now_ns < due_ns {
            return None;
        }
        let next_ns = now_ns.saturating_add(NOTICE_PERIOD.as_nanos() as u64);
        // Of several reactors only one writes the line.
        let is_first =
            self.due_ns.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        is_first.then(|| self.count.swap(0, Ordering::Relaxed))
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
    fn events_are_told_now_and_then() {
        let notices = Notices::default();
        let second_ns = 1_000_000_000;
        assert_eq!(notices.count(second_ns), Some(1));
        assert_eq!(notices.count(2 * second_ns), None);
        assert_eq!(notices.count_all(5, 3 * second_ns), None);
        assert_eq!(notices.count(12 * second_ns), Some(7));
    }
}
