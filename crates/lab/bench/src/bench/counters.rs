//! The processor's counters over the window, where there are any.

use crate::sample::Counters;
use carmine_load::window::CounterWindow;

/// Counters that are attached, or none: then nothing happens.
pub(super) struct Attached(Option<Counters>);

impl Attached {
    /// Attaches to OSDs if samples are wanted: what counts costs a little at each switch of threads, too.
    pub(super) fn to(osds: &[u32], wanted: bool) -> Attached {
        Attached(wanted.then(|| Counters::attach(osds)).flatten())
    }

    pub(super) fn start(&mut self) {
        self.tell(Counters::start);
    }

    pub(super) fn stop(&mut self) {
        self.tell(Counters::stop);
    }

    pub(super) fn read(self) -> Option<CounterWindow> {
        self.0.and_then(Counters::read)
    }

    /// Counters that do not follow a command are dropped: their figures would be of another window.
    fn tell(&mut self, word: fn(&mut Counters) -> bool) {
        if self.0.as_mut().is_some_and(|counters| !word(counters)) {
            self.0 = None;
        }
    }
}
