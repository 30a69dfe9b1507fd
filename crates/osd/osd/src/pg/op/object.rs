//! Order of execution, object by object.
//!
//! Operations on one object start in the order they came. Writes run alone until they are submitted to the store; then the next
//! one may start, so that many uncommitted writes to one object are in flight together. Reads run concurrently, but only after
//! everything submitted earlier is committed: they never see changes that may be lost. While reads run no write starts, because
//! the store shows submitted bytes at once. While the PG has its maximum of writes in flight, no write starts either: objects
//! whose next write waits only for that queue up.

use std::collections::hash_map::{Entry, OccupiedEntry};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use carmine_types::ObjectId;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// An entry of an object's queue: a handle, cheap to clone.
pub(crate) trait Queued: Clone {
    /// Whether it changes the object.
    fn is_write(&self) -> bool;
    /// Whether it is the same operation.
    fn is_same(&self, other: &Self) -> bool;
}

/// The objects of a PG with waiting, running or uncommitted operations.
pub(crate) struct Objects<T> {
    busy: HashMap<Arc<ObjectId>, Busy<T>, FixedState>,
    /// Number of waiting operations, on all objects.
    waiting: usize,
    /// Objects whose next write waits only for room, in order of arrival.
    starved: VecDeque<Arc<ObjectId>>,
}

/// One such object.
struct Busy<T> {
    /// Waiting, oldest first.
    queue: VecDeque<T>,
    /// Started and not finished: one write, or any number of reads.
    running: SmallVec<[T; 1]>,
    /// Version number of the last submitted write; 0 if all are known to be committed.
    submitted: u64,
    /// Writes wait until it is [released](Objects::release).
    is_held: bool,
    /// Set while it is in `starved`.
    is_starved: bool,
}

impl<T> Default for Busy<T> {
    fn default() -> Busy<T> {
        let (queue, running) = (VecDeque::new(), SmallVec::new());
        Busy { queue, running, submitted: 0, is_held: false, is_starved: false }
    }
}

impl<T: Queued> Busy<T> {
    /// Whether the object's next operation may start. `committed`: see [`Objects::next`].
    fn may_start(&self, op: &T, committed: u64) -> bool {
        if op.is_write() {
            self.running.is_empty() && !self.is_held
        } else {
            self.submitted <= committed && !self.running.iter().any(Queued::is_write)
        }
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects { busy: HashMap::default(), waiting: 0, starved: VecDeque::new() }
    }
}

impl<T: Queued> Objects<T> {
    /// Adds an operation: true if it starts at once, otherwise it is queued after all others of its object. An operation that
    /// starts on an idle object gets no entry yet: before another one arrives, it must [wait](Self::wait) or
    /// [finish](Self::finish). `has_room` as in [`Self::next`].
    pub(crate) fn enter(&mut self, oid: &Arc<ObjectId>, op: &T, committed: u64, has_room: bool) -> bool {
        let lacks_room = !has_room && op.is_write();
        let Some(busy) = self.busy.get_mut(oid) else {
            if lacks_room {
                self.starve(oid, op);
            }
            return !lacks_room;
        };
        let may_start = busy.queue.is_empty() && busy.may_start(op, committed);
        if may_start && !lacks_room {
            busy.running.push(op.clone());
            return true;
        }
        if may_start {
            self.starve(oid, op);
        } else {
            busy.queue.push_back(op.clone());
            self.waiting += 1;
        }
        false
    }

    /// Adds a request that was sent before (`is_earlier`): it replaces a waiting one, which is returned, or becomes the next one
    /// after a running one. `None`: no earlier one is queued.
    #[cold]
    pub(crate) fn enter_again(
        &mut self,
        oid: &Arc<ObjectId>,
        op: &T,
        is_earlier: impl Fn(&T) -> bool,
    ) -> Option<Option<T>> {
        let busy = self.busy.get_mut(oid)?;
        if let Some(waiting) = busy.queue.iter_mut().find(|waiting| is_earlier(waiting)) {
            return Some(Some(std::mem::replace(waiting, op.clone())));
        }
        if !busy.running.iter().any(is_earlier) {
            return None;
        }
        busy.queue.push_front(op.clone());
        self.waiting += 1;
        Some(None)
    }

    /// Removes the object's next operation from its queue, if `is_such` holds for it.
    pub(crate) fn take_next(&mut self, oid: &Arc<ObjectId>, is_such: impl Fn(&T) -> bool) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        let busy = self.busy.get_mut(oid)?;
        let taken = busy.queue.pop_front_if(|next| is_such(next))?;
        self.waiting -= 1;
        Some(taken)
    }

    /// Notes that an object's next write waits only for room.
    #[cold]
    fn starve(&mut self, oid: &Arc<ObjectId>, op: &T) {
        let busy = self.busy.entry(Arc::clone(oid)).or_default();
        busy.queue.push_back(op.clone());
        self.waiting += 1;
        if !std::mem::replace(&mut busy.is_starved, true) {
            self.starved.push_back(Arc::clone(oid));
        }
    }

    /// A started operation has to wait: it is registered as running.
    pub(crate) fn wait(&mut self, oid: &Arc<ObjectId>, op: &T) {
        let busy = self.busy.entry(Arc::clone(oid)).or_default();
        if !busy.running.iter().any(|running| running.is_same(op)) {
            busy.running.push(op.clone());
        }
    }

    /// The object's next operation, if it may start now; it then counts as running. `committed` is the version number up to
    /// which all writes of the PG are committed; `has_room`: one more of them may be submitted.
    pub(crate) fn next(&mut self, oid: &Arc<ObjectId>, committed: u64, has_room: bool) -> Option<T> {
        if self.waiting == 0 {
            return None;
        }
        let busy = self.busy.get_mut(oid)?;
        let next = busy.queue.front()?;
        if !busy.may_start(next, committed) {
            return None;
        }
        if !has_room && next.is_write() {
            if !std::mem::replace(&mut busy.is_starved, true) {
                self.starved.push_back(Arc::clone(oid));
            }
            return None;
        }
        let op = busy.queue.pop_front()?;
        self.waiting -= 1;
        busy.running.push(op.clone());
        Some(op)
    }

    /// Removes and returns the object that has waited longest for room.
    pub(crate) fn next_starved(&mut self) -> Option<Arc<ObjectId>> {
        let oid = self.starved.pop_front()?;
        if let Some(busy) = self.busy.get_mut(&oid) {
            busy.is_starved = false;
        }
        Some(oid)
    }

    /// Whether any object waits for room.
    pub(crate) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// An operation has finished; `submitted` is the version number of a write that is not committed yet.
    pub(crate) fn finish(&mut self, oid: &Arc<ObjectId>, op: &T, submitted: Option<u64>) {
        if self.busy.is_empty() && submitted.is_none() {
            return; // it was never registered
        }
        match self.busy.entry(Arc::clone(oid)) {
            Entry::Occupied(mut found) => {
                let busy = found.get_mut();
                busy.running.retain(|running| !running.is_same(op));
                busy.submitted = submitted.unwrap_or(busy.submitted);
                forget_if_idle(found);
            }
            Entry::Vacant(vacant) => {
                if let Some(submitted) = submitted {
                    vacant.insert(Busy { submitted, ..Busy::default() });
                }
            }
        }
    }

    /// All writes of this object up to `version` are committed.
    pub(crate) fn commit(&mut self, oid: &Arc<ObjectId>, version: u64) {
        if self.busy.is_empty() {
            return;
        }
        let Entry::Occupied(mut found) = self.busy.entry(Arc::clone(oid)) else { return };
        let busy = found.get_mut();
        if busy.submitted <= version {
            busy.submitted = 0;
        }
        forget_if_idle(found);
    }

    /// Holds an object: no write of it starts until it is [released](Self::release); reads do.
    pub(crate) fn hold(&mut self, oid: &Arc<ObjectId>) {
        self.busy.entry(Arc::clone(oid)).or_default().is_held = true;
    }

    /// Whether a write of the object has started and is not submitted.
    pub(crate) fn is_writing(&self, oid: &ObjectId) -> bool {
        self.busy.get(oid).is_some_and(|busy| busy.running.iter().any(Queued::is_write))
    }

    /// Whether the object is held.
    pub(crate) fn is_held(&self, oid: &ObjectId) -> bool {
        self.busy.get(oid).is_some_and(|busy| busy.is_held)
    }

    /// Whether no write of the object runs and all are committed.
    pub(crate) fn is_quiet(&self, oid: &ObjectId, committed: u64) -> bool {
        !self.is_writing(oid) && self.busy.get(oid).is_none_or(|busy| busy.submitted <= committed)
    }

    /// Releases a held object: its writes may start.
    pub(crate) fn release(&mut self, oid: &Arc<ObjectId>) {
        if let Entry::Occupied(mut found) = self.busy.entry(Arc::clone(oid)) {
            found.get_mut().is_held = false;
            forget_if_idle(found);
        }
    }

    /// Removes everything that runs or waits, in an order that keeps that of each object.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.waiting = 0;
        self.starved.clear();
        // Sorted, so that the order does not depend on the hash table.
        let mut all: Vec<_> = std::mem::take(&mut self.busy).into_iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().flat_map(|(_, busy)| busy.running.into_iter().chain(busy.queue))
    }

    /// Everything that runs or waits, in no order.
    pub(in crate::pg) fn iter(&self) -> impl Iterator<Item = &T> {
        self.busy.values().flat_map(|busy| busy.running.iter().chain(&busy.queue))
    }

    /// Number of objects in use.
    pub(crate) fn len(&self) -> usize {
        self.busy.len()
    }
}

fn forget_if_idle<T>(found: OccupiedEntry<'_, Arc<ObjectId>, Busy<T>>) {
    let busy = found.get();
    if busy.queue.is_empty() && busy.running.is_empty() && busy.submitted == 0 && !busy.is_held {
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

        fn is_same(&self, other: &Op) -> bool {
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
        assert!(objects.enter(&oid, &ops[0], 0, true));
        objects.wait(&oid, &ops[0]);
        ops[1..].iter().for_each(|op| assert!(!objects.enter(&oid, op, 0, true)));
        assert_eq!(objects.next(&oid, 0, true), None);
        objects.finish(&oid, &ops[0], Some(1));
        assert_eq!(objects.next(&oid, 0, true), Some(Op(1, true)));
        objects.finish(&oid, &ops[1], Some(2));
        assert_eq!(objects.next(&oid, 1, true), None, "the second write is not committed");
        objects.commit(&oid, 2);
        assert_eq!(objects.next(&oid, 2, true), Some(Op(2, false)));
        assert_eq!(objects.next(&oid, 2, true), Some(Op(3, false)));
        assert_eq!(objects.next(&oid, 2, true), None, "a write waits for the readers");
        objects.finish(&oid, &ops[2], None);
        assert_eq!(objects.next(&oid, 2, true), None);
        objects.finish(&oid, &ops[3], None);
        assert_eq!(objects.next(&oid, 2, true), Some(Op(4, true)));
        objects.finish(&oid, &ops[4], None);
        assert!(objects.busy.is_empty());
    }

    #[test]
    fn a_held_object_is_read_and_not_written() {
        let (oid, mut objects) = (object(), Objects::default());
        let ops = [Op(0, true), Op(1, false), Op(2, true), Op(3, false)];
        assert!(objects.enter(&oid, &ops[0], 0, true));
        objects.wait(&oid, &ops[0]);
        objects.hold(&oid);
        assert!(!objects.is_quiet(&oid, 0), "a write runs");
        objects.finish(&oid, &ops[0], Some(1));
        assert!(!objects.is_quiet(&oid, 0), "and is not committed");
        objects.commit(&oid, 1);
        assert!(objects.is_quiet(&oid, 1) && objects.len() == 1);
        assert!(objects.enter(&oid, &ops[1], 1, true), "a read starts");
        ops[2..].iter().for_each(|op| assert!(!objects.enter(&oid, op, 1, true)));
        objects.finish(&oid, &ops[1], None);
        assert_eq!(objects.next(&oid, 1, true), None, "the next one writes");
        objects.release(&oid);
        for op in &ops[2..] {
            assert_eq!(objects.next(&oid, 1, true).as_ref(), Some(op));
            objects.finish(&oid, op, None);
        }
        assert!(objects.busy.is_empty());
    }

    #[test]
    fn a_later_sending_comes_in_the_place_of_an_earlier_one() {
        let (oid, mut objects) = (object(), Objects::default());
        let ops: Vec<Op> = (0..5).map(|n| Op(n, true)).collect();
        assert_eq!(objects.enter_again(&oid, &ops[3], |op| op.0 == 1), None, "nothing waits");
        assert!(objects.enter(&oid, &ops[0], 0, true));
        objects.wait(&oid, &ops[0]);
        ops[1..3].iter().for_each(|op| assert!(!objects.enter(&oid, op, 0, true)));
        assert_eq!(objects.enter_again(&oid, &ops[3], |op| op.0 == 9), None, "another request");
        assert_eq!(objects.enter_again(&oid, &ops[3], |op| op.0 == 1), Some(Some(Op(1, true))));
        assert_eq!(objects.enter_again(&oid, &ops[4], |op| op.0 == 0), Some(None), "the first one runs");
        assert_eq!(objects.take_next(&oid, |op| op.0 == 3), None, "it is not the next one");
        assert_eq!(objects.take_next(&oid, |op| op.0 == 4), Some(Op(4, true)));
        for (ended, next) in [(0, 3), (3, 2)] {
            objects.finish(&oid, &ops[ended], None);
            assert_eq!(objects.next(&oid, 0, true).as_ref(), Some(&ops[next]));
        }
        objects.finish(&oid, &ops[2], None);
        assert!(objects.busy.is_empty() && objects.waiting == 0);
    }

    #[test]
    fn objects_stand_in_line_for_room() {
        let [a, b] = ["a", "b"].map(|name| Arc::new(ObjectId::head(1, b"", b"", name.as_bytes())));
        let mut objects = Objects::default();
        let ops: Vec<Op> = (0..5).map(|n| Op(n, n != 4)).collect();
        assert!(!objects.enter(&a, &ops[0], 0, false) && !objects.enter(&b, &ops[1], 0, false));
        assert!(!objects.enter(&a, &ops[2], 0, true), "no write passes another one of its object");
        assert!(
            objects.enter(&Arc::new(ObjectId::head(1, b"", b"", b"c")), &ops[4], 0, false),
            "reads need none"
        );
        assert_eq!(objects.next(&a, 0, false), None);
        assert_eq!(objects.next_starved().as_ref(), Some(&a));
        assert_eq!(objects.next(&a, 0, true).as_ref(), Some(&ops[0]));
        objects.finish(&a, &ops[0], Some(1));
        assert_eq!(objects.next(&a, 0, false), None, "it stands in line again, behind the other one");
        assert_eq!([objects.next_starved(), objects.next_starved()], [Some(b), Some(Arc::clone(&a))]);
        assert_eq!(objects.next_starved(), None);
        objects.hold(&a);
        assert_eq!(
            (objects.next(&a, 0, false), objects.is_starved()),
            (None, false),
            "it waits for something else"
        );
    }

    /// A test's record of one object's operations.
    #[derive(Default)]
    struct Model {
        started: u32,
        running: Vec<Op>,
        /// Version number of the last submitted write, and of the last committed one.
        last: u64,
        committed: u64,
        /// Writes in flight at the most.
        limit: u64,
    }

    impl Model {
        fn has_room(&self) -> bool {
            self.last - self.committed < self.limit
        }

        /// Starts are in order, a write is alone, and a read never sees an uncommitted write.
        fn start(&mut self, op: &Op) {
            assert_eq!(op.0, self.started);
            self.started += 1;
            assert!(self.running.iter().all(|other| !other.1 && !op.1), "a write is alone");
            assert!(op.1 || self.last <= self.committed, "a read saw an uncommitted write");
            assert!(!op.1 || self.has_room(), "a write started without room");
        }

        fn submitted(&mut self, op: &Op) -> Option<u64> {
            self.last += u64::from(op.1);
            op.1.then_some(self.last)
        }

        /// An operation comes: it starts at once if it may, and then ends at once, with its commit or before it, or waits.
        fn arrive(&mut self, objects: &mut Objects<Op>, oid: &Arc<ObjectId>, op: Op, choice: u8) {
            let is_idle = objects.busy.is_empty();
            if !objects.enter(oid, &op, self.committed, self.has_room()) {
                return;
            }
            self.start(&op);
            if !is_idle {
                return self.running.push(op);
            }
            match choice % 3 {
                0 => {
                    self.committed = self.submitted(&op).unwrap_or(self.committed);
                    objects.finish(oid, &op, None);
                }
                1 => {
                    let version = self.submitted(&op);
                    objects.finish(oid, &op, version);
                }
                _ => {
                    objects.wait(oid, &op);
                    self.running.push(op);
                }
            }
        }

        fn pump(&mut self, objects: &mut Objects<Op>, oid: &Arc<ObjectId>) {
            while let Some(op) = objects.next(oid, self.committed, self.has_room()) {
                self.start(&op);
                self.running.push(op);
            }
        }

        /// Starts what may start; then something ends, or is committed.
        fn step(&mut self, objects: &mut Objects<Op>, oid: &Arc<ObjectId>, choice: u8) {
            self.pump(objects, oid);
            if choice % 2 == 1 || self.running.is_empty() {
                self.committed = self.last;
                objects.commit(oid, self.committed);
                // As the pipeline does it: those in line go first, and all that waits is asked again.
                while self.has_room() && objects.next_starved().is_some() {
                    self.pump(objects, oid);
                }
                return;
            }
            let op = self.running.remove(usize::from(choice) % self.running.len());
            let version = self.submitted(&op);
            objects.finish(oid, &op, version);
        }
    }

    proptest! {
        /// Whatever happens, the rules hold, and no entry is left at the end.
        #[test]
        fn every_schedule_keeps_the_rules(
            arrivals in prop::collection::vec(any::<(bool, u8, u8)>(), 1..20),
            choices: Vec<u8>,
            limit in 1..4u64,
        ) {
            let (oid, mut objects, mut model) = (object(), Objects::default(), Model { limit, ..Model::default() });
            for (n, (is_write, choice, steps)) in (0..).zip(&arrivals) {
                model.arrive(&mut objects, &oid, Op(n, *is_write), *choice);
                (0..steps % 3).for_each(|step| model.step(&mut objects, &oid, choice.rotate_left(step.into())));
            }
            for choice in choices.into_iter().chain([2, 1].into_iter().cycle().take(200)) {
                model.step(&mut objects, &oid, choice);
            }
            prop_assert_eq!(model.started as usize, arrivals.len());
            prop_assert!(objects.busy.is_empty() && objects.waiting == 0 && !objects.is_starved());
        }
    }
}
