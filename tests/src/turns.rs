//! Turns of tests that run testbeds, which share two CPUs and the disk with each other, whatever test program they are in. Most
//! tests wait more than they compute, so some run beside each other; one that measures, or looks at the clock, runs alone.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Testbeds that run at the same time, whatever the machine has: tests pin processes to CPUs 0 and 1.
const BESIDE: usize = 2;

/// A turn; given back when dropped, or when its process ends: each place is a file, and to have it is to have it locked.
pub(crate) struct Turn {
    _places: Vec<File>,
}

impl Turn {
    /// Waits until nobody else runs who has the same folder.
    pub(crate) fn alone(folder: &Path) -> Turn {
        Turn::wait(folder, BESIDE)
    }

    /// Waits until there is a place next to others, who do not mind.
    pub(crate) fn shared(folder: &Path) -> Turn {
        Turn::wait(folder, 1)
    }

    fn wait(folder: &Path, places: usize) -> Turn {
        let file = |name: String| File::create(folder.join(name)).expect("a file of the turns");
        // Those who wait stand in a row, so that others never take the places of one that needs them all.
        let row = file("turns".into());
        row.lock().expect("a lock");
        let mut others: Vec<File> = (0..BESIDE).map(|place| file(format!("turn.{place}"))).collect();
        let mut taken = Vec::new();
        while taken.len() < places {
            match others.iter().position(|place| place.try_lock().is_ok()) {
                Some(free) => taken.push(others.swap_remove(free)),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Turn { _places: taken }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn some_run_beside_each_other_and_one_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (beside, alone, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for n in 0..9 {
                let (folder, beside, alone, most) = (folder.path(), &beside, &alone, &most);
                scope.spawn(move || {
                    let (_turn, count) = match n % 3 {
                        0 => (Turn::alone(folder), alone),
                        _ => (Turn::shared(folder), beside),
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
