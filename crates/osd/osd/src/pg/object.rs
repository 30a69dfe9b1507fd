//! Order of execution, object by object.
//!
//! Operations on one object start in the order they came. Writes run alone until they are submitted to the store; then the
//! next one may start, so that many uncommitted writes to one object are on their way together. Reads run side by side, but
//! not before everything submitted earlier is committed: they see what can no longer be taken back. While reads run no write
//! starts, for the store shows submitted bytes at once.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use carmine_types::ObjectId;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// What stands in an object's queue: a handle, cheap to clone.
pub(crate) trait Queued: Clone {
    /// It changes the object.
    fn is_write(&self) -> bool;
    /// It is the same operation.
    fn same(&self, other: &Self) -> bool;
}

/// The objects of a PG on which something is waiting, running or uncommitted.
pub(crate) struct Objects<T> {
    busy: HashMap<Arc<ObjectId>, Busy<T>, FixedState>,
}

/// One such object.
struct Busy<T> {
    /// Waiting, oldest first.
    queue: VecDeque<T>,
    /// Started and not finished: one write, or any number of reads.
    running: SmallVec<[T; 1]>,
    /// Version number of the last submitted write; 0 if all are known to be committed.
    submitted: u64,
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects { busy: HashMap::default() }
    }
}

impl<T: Queued> Objects<T> {
    /// Puts an operation behind all others of its object.
    pub(crate) fn push(&mut self, oid: &Arc<ObjectId>, op: T) {
        match self.busy.get_mut(oid) {
            Some(busy) => busy.queue.push_back(op),
            None => {
                let mut queue = VecDeque::new();
                queue.push_back(op);
                let busy = Busy { queue, running: SmallVec::new(), submitted: 0 };
                self.busy.insert(Arc::clone(oid), busy);
            }
        }
    }

    /// Starts an operation at once if nothing is known of its object; else gives it back to be queued.
    pub(crate) fn start_alone(&mut self, oid: &Arc<ObjectId>, op: T) -> Result<(), T> {
        let Entry::Vacant(vacant) = self.busy.entry(Arc::clone(oid)) else { return Err(op) };
        vacant.insert(Busy { queue: VecDeque::new(), running: SmallVec::from_buf([op]), submitted: 0 });
        Ok(())
    }

    /// The object's next operation, if it may start now; it then counts as running. `committed` is the version number up to
    /// which all writes of the PG are committed.
    pub(crate) fn next(&mut self, oid: &ObjectId, committed: u64) -> Option<T> {
        let busy = self.busy.get_mut(oid)?;
        let head = busy.queue.front()?;
        let may_start = if head.is_write() {
            busy.running.is_empty()
        } else {
            busy.submitted <= committed && !busy.running.iter().any(Queued::is_write)
        };
        if !may_start {
            return None;
        }
        let op = busy.queue.pop_front()?;
        busy.running.push(op.clone());
        Some(op)
    }

    /// An operation has finished; a write that was submitted, with its version number.
    pub(crate) fn finish(&mut self, oid: &Arc<ObjectId>, op: &T, submitted: Option<u64>) {
        let Entry::Occupied(mut found) = self.busy.entry(Arc::clone(oid)) else { return };
        let busy = found.get_mut();
        busy.running.retain(|running| !running.same(op));
        if let Some(version) = submitted {
            busy.submitted = version;
        }
        forget_if_idle(found);
    }

    /// All writes of this object up to `version` are committed.
    pub(crate) fn commit(&mut self, oid: &Arc<ObjectId>, version: u64) {
        let Entry::Occupied(mut found) = self.busy.entry(Arc::clone(oid)) else { return };
        let busy = found.get_mut();
        if busy.submitted <= version {
            busy.submitted = 0;
        }
        forget_if_idle(found);
    }

    /// Takes everything that runs or waits, in an order that keeps that of every object.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        // Sorted, so that the order does not hang on the hash table.
        let mut all: Vec<_> = std::mem::take(&mut self.busy).into_iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().flat_map(|(_, busy)| busy.running.into_iter().chain(busy.queue))
    }

    /// Everything that runs or waits, in no order.
    pub(super) fn each(&self) -> impl Iterator<Item = &T> {
        self.busy.values().flat_map(|busy| busy.running.iter().chain(&busy.queue))
    }

    /// Number of such objects.
    pub(crate) fn len(&self) -> usize {
        self.busy.len()
    }
}

fn forget_if_idle<T>(found: OccupiedEntry<'_, Arc<ObjectId>, Busy<T>>) {
    let busy = found.get();
    if busy.queue.is_empty() && busy.running.is_empty() && busy.submitted == 0 {
        found.remove();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Op(u32, bool);

    impl Queued for Op {
        fn is_write(&self) -> bool {
            self.1
        }

        fn same(&self, other: &Op) -> bool {
            self.0 == other.0
        }
    }

    fn object() -> Arc<ObjectId> {
        Arc::new(ObjectId::head(1, b"", b"", b"o"))
    }

    #[test]
    fn writes_pipeline_and_reads_wait_for_their_commit() {
        let (oid, mut objects) = (object(), Objects::default());
        let ops = [Op(0, true), Op(1, true), Op(2, false), Op(3, false), Op(4, true)];
        ops.iter().for_each(|op| objects.push(&oid, op.clone()));
        assert_eq!(objects.next(&oid, 0), Some(Op(0, true)));
        assert_eq!(objects.next(&oid, 0), None);
        objects.finish(&oid, &ops[0], Some(1));
        assert_eq!(objects.next(&oid, 0), Some(Op(1, true)));
        objects.finish(&oid, &ops[1], Some(2));
        assert_eq!(objects.next(&oid, 1), None, "the second write is not committed");
        objects.commit(&oid, 2);
        assert_eq!(objects.next(&oid, 2), Some(Op(2, false)));
        assert_eq!(objects.next(&oid, 2), Some(Op(3, false)));
        assert_eq!(objects.next(&oid, 2), None, "a write waits for the readers");
        objects.finish(&oid, &ops[2], None);
        assert_eq!(objects.next(&oid, 2), None);
        objects.finish(&oid, &ops[3], None);
        assert_eq!(objects.next(&oid, 2), Some(Op(4, true)));
        objects.finish(&oid, &ops[4], None);
        assert!(objects.busy.is_empty());
    }

    proptest! {
        /// Whatever happens: starts are in order, a write is alone, a read never sees an uncommitted write, and all is
        /// forgotten at the end.
        #[test]
        fn every_schedule_keeps_the_rules(kinds in prop::collection::vec(any::<bool>(), 1..20), choices: Vec<u8>) {
            let (oid, mut objects) = (object(), Objects::default());
            for (n, write) in kinds.iter().enumerate() {
                objects.push(&oid, Op(n as u32, *write));
            }
            let (mut started, mut running) = (0, Vec::<Op>::new());
            let (mut last, mut committed) = (0, 0);
            for choice in choices.into_iter().chain(std::iter::repeat_n(2, 4).cycle().take(200)) {
                while let Some(op) = objects.next(&oid, committed) {
                    prop_assert_eq!(op.0, started);
                    started += 1;
                    prop_assert!(running.iter().all(|other| !other.1 && !op.1), "a write is alone");
                    prop_assert!(op.1 || last <= committed, "a read saw an uncommitted write");
                    running.push(op);
                }
                if choice % 2 == 1 || running.is_empty() {
                    committed = last;
                    objects.commit(&oid, committed);
                } else {
                    let op = running.remove(usize::from(choice) % running.len());
                    let version = op.1.then(|| { last += 1; last });
                    objects.finish(&oid, &op, version);
                }
            }
            prop_assert_eq!(started as usize, kinds.len());
            prop_assert!(objects.busy.is_empty());
        }
    }
}
