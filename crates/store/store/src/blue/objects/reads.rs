//! Delays the reuse of freed blocks while reads that may need them are in flight.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use smallvec::SmallVec;

/// Blocks that one transaction freed.
pub(crate) type Freed = SmallVec<[u64; 2]>;

/// The reads in flight, in order of their beginning, and the freed blocks that wait for them.
#[derive(Default)]
pub(crate) struct Reads {
    state: RefCell<InFlightReads>,
}

#[derive(Default)]
struct InFlightReads {
    /// Number of the oldest read in `active`.
    base: u64,
    /// Whether each read is still in flight; the front always is.
    active: VecDeque<bool>,
    /// Freed blocks, and the number of the first read that began after.
    parked: VecDeque<(u64, Freed)>,
}

/// A read in flight; ends when dropped.
pub(crate) struct ReadGuard<F: Fn(Freed)> {
    reads: Rc<Reads>,
    number: u64,
    release: F,
}

impl Reads {
    /// Begins a read; when it ends, `release` gets the blocks that may be reused.
    pub(crate) fn begin<F: Fn(Freed)>(self: &Rc<Self>, release: F) -> ReadGuard<F> {
        let mut state = self.state.borrow_mut();
        let number = state.base + state.active.len() as u64;
        state.active.push_back(true);
        ReadGuard { reads: Rc::clone(self), number, release }
    }

    /// Parks freed blocks until the reads in flight have ended; returns them at once if there are none.
    pub(crate) fn park(&self, freed: Freed) -> Option<Freed> {
        let mut state = self.state.borrow_mut();
        if state.active.is_empty() {
            return Some(freed);
        }
        let after = state.base + state.active.len() as u64;
        state.parked.push_back((after, freed));
        None
    }

    /// The number of reads that have begun so far.
    pub(crate) fn begun(&self) -> u64 {
        let state = self.state.borrow();
        state.base + state.active.len() as u64
    }

    /// Whether the first `reads` reads have ended.
    pub(crate) fn have_ended(&self, reads: u64) -> bool {
        self.state.borrow().base >= reads
    }

    /// Whether no read is in flight and no block is parked.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.active.is_empty() && state.parked.is_empty()
    }

    fn end(&self, number: u64) -> SmallVec<[Freed; 1]> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if let Some(active) = state.active.get_mut((number - state.base) as usize) {
            *active = false;
        }
        while state.active.front() == Some(&false) {
            state.active.pop_front();
            state.base += 1;
        }
        let mut out = SmallVec::new();
        while state.parked.front().is_some_and(|(after, _)| *after <= state.base) {
            out.extend(state.parked.pop_front().map(|(_, freed)| freed));
        }
        out
    }
}

impl<F: Fn(Freed)> Drop for ReadGuard<F> {
    fn drop(&mut self) {
        for freed in self.reads.end(self.number) {
            (self.release)(freed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_wait_for_the_reads_that_began_before() {
        let reads = Rc::new(Reads::default());
        let out = Rc::new(RefCell::new(Vec::new()));
        let begin = || {
            let out = Rc::clone(&out);
            reads.begin(move |freed: Freed| out.borrow_mut().extend(freed))
        };
        assert_eq!(reads.park(SmallVec::from_slice(&[1])).as_deref(), Some([1].as_slice()));
        let (a, b) = (begin(), begin());
        assert!(reads.park(SmallVec::from_slice(&[2])).is_none());
        let c = begin();
        assert!(reads.park(SmallVec::from_slice(&[3])).is_none());
        drop(b);
        assert!(out.borrow().is_empty());
        drop(a);
        assert_eq!(*out.borrow(), [2]);
        drop(c);
        assert_eq!(*out.borrow(), [2, 3]);
        assert!(reads.park(SmallVec::from_slice(&[4])).is_some());
    }
}
