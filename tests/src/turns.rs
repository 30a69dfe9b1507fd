//! Turns of tests that run testbeds, which share two CPUs and the disk with each other. Most tests wait more than they
//! compute, so two of them run beside each other; one that measures, or looks at the clock, runs alone.

use std::sync::{Condvar, Mutex, PoisonError};

/// Testbeds that run at the same time within one test binary, whatever the machine has: tests pin processes to CPUs 0 and 1.
const BESIDE: usize = 2;

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// A turn; given back when dropped.
pub(crate) struct Turn {
    places: usize,
}

impl Turn {
    /// Waits until nobody else runs.
    pub(crate) fn alone() -> Turn {
        Turn::wait(BESIDE)
    }

    /// Waits until at most one other runs, who does not mind.
    pub(crate) fn beside() -> Turn {
        Turn::wait(1)
    }

    fn wait(places: usize) -> Turn {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |taken: &mut usize| *taken + places > BESIDE;
        *GIVEN_BACK.wait_while(taken, full).unwrap_or_else(PoisonError::into_inner) += places;
        Turn { places }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= self.places;
        GIVEN_BACK.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn two_run_beside_each_other_and_one_alone() {
        let (beside, alone, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for n in 0..9 {
                let (beside, alone, most) = (&beside, &alone, &most);
                scope.spawn(move || {
                    let (_turn, count) = match n % 3 {
                        0 => (Turn::alone(), alone),
                        _ => (Turn::beside(), beside),
                    };
                    count.fetch_add(1, SeqCst);
                    most.fetch_max(beside.load(SeqCst), SeqCst);
                    assert!(alone.load(SeqCst) == 0 || (alone.load(SeqCst), beside.load(SeqCst)) == (1, 0));
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    count.fetch_sub(1, SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), BESIDE);
    }
}
