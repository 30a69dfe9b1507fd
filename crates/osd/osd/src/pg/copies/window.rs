//! How far a backfill has come, on the primary, and which changes its target is therefore sent.
//!
//! The target gets all changes of objects that the backfill has passed. Of other objects it may have any old content: it is sent
//! only the log entries of their changes, and the objects are copied whole when the backfill reaches them. A change withheld from
//! the range being compared adds its object to those that differ. Objects are treated with their clones: a family is passed as a
//! whole.
//!
//! A family is first [chosen](Window::choose), and passed once no write to it is in flight: from a write that began before, the
//! target would get a part of an object with the version of the whole, and an interruption would leave it like that.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use carmine_pgtypes::Transaction;
use carmine_types::{ObjectId, is_mutated};

use crate::pg::family::{self, Families, Family};

/// The window of one target.
pub(crate) struct Window(RefCell<State>);

struct State {
    /// The backfill has passed all families before this object's, …
    reached: ObjectId,
    /// … and that one, too.
    is_passed: bool,
    /// The backfill is complete.
    is_done: bool,
    scan: Scan,
    /// Objects to copy: those that differ in the compared range, and those whose copy failed.
    pending: Families,
    /// Heads of the chosen families that are not passed yet.
    chosen: BTreeSet<Arc<ObjectId>>,
    /// Heads of postponed families: they are left for the next comparison.
    left: BTreeSet<Arc<ObjectId>>,
}

enum Scan {
    /// Nothing is compared.
    None,
    /// Objects from `reached` on are being compared, up to an end that is not known yet.
    Open,
    /// Objects up to this one (exclusive) were compared; `None`: all.
    Until(Option<ObjectId>),
}

impl Window {
    /// A backfill that continues at this object.
    pub(in crate::pg) fn at(from: ObjectId) -> Window {
        Window(RefCell::new(State {
            reached: from,
            is_passed: false,
            is_done: false,
            scan: Scan::None,
            pending: Families::new(),
            chosen: BTreeSet::new(),
            left: BTreeSet::new(),
        }))
    }

    /// Whether the target is sent only the log entry of this change.
    pub(in crate::pg) fn withholds(&self, txn: &Transaction) -> bool {
        let mut state = self.0.borrow_mut();
        // The mapper's entries are copied with the families.
        let changed =
            || txn.changes.iter().map(|change| &*change.oid).filter(|oid| !family::mapper::is_mapper(oid));
        let is_sent = changed().all(|oid| state.is_sent(&family::head_of(oid)));
        if is_sent || is_mutated("withhold_nothing") {
            return false;
        }
        changed().for_each(|oid| state.note(oid));
        true
    }

    /// Begins a comparison; returns the object where it starts.
    pub(in crate::pg) fn begin(&self) -> ObjectId {
        let mut state = self.0.borrow_mut();
        state.scan = Scan::Open;
        state.reached.clone()
    }

    /// Sets the result of the comparison up to `until` (exclusive): these objects differ.
    pub(in crate::pg) fn set_differing(
        &self,
        differ: impl IntoIterator<Item = ObjectId>,
        until: Option<ObjectId>,
    ) {
        let mut state = self.0.borrow_mut();
        for oid in differ {
            if !state.has_passed(&family::head_of(&oid)) {
                family::add(&mut state.pending, &oid);
            }
        }
        if let Some(until) = &until {
            let behind = state.pending.split_off(until);
            if is_mutated("keep_behind") {
                state.pending.extend(behind);
            }
        }
        state.scan = Scan::Until(until);
    }

    /// Whether there are objects to copy that are not chosen yet.
    pub(in crate::pg) fn has_next(&self) -> bool {
        self.0.borrow().next().is_some()
    }

    /// Chooses the next object to copy, by its head. Its changes are still withheld.
    pub(in crate::pg) fn choose(&self) -> Option<Arc<ObjectId>> {
        let mut state = self.0.borrow_mut();
        let head = state.next()?;
        state.chosen.insert(Arc::clone(&head));
        Some(head)
    }

    /// Postpones a chosen object to the next comparison.
    pub(in crate::pg) fn postpone(&self, head: &Arc<ObjectId>) {
        let mut state = self.0.borrow_mut();
        state.chosen.remove(head);
        state.left.insert(Arc::clone(head));
    }

    /// Passes a chosen object that has no write in flight: the target is sent its changes from here on.
    ///
    /// # Panics
    /// If it was not chosen.
    pub(in crate::pg) fn pass(&self, head: &Arc<ObjectId>) -> Family {
        let mut state = self.0.borrow_mut();
        let entry = state.pending.remove_entry(head).filter(|_| state.chosen.remove(head));
        let Some((head, members)) = entry else { panic!("{head} is passed, and was not chosen") };
        if !state.has_passed(&head) {
            assert!(state.reached <= *head, "a backfill goes back from {} to {head}", state.reached);
            state.reached = ObjectId::clone(&head);
            state.is_passed = true;
        }
        Family { head, members }
    }

    /// Queues objects again whose copy failed.
    pub(in crate::pg) fn requeue(&self, family: Family) {
        self.0.borrow_mut().pending.entry(family.head).or_default().extend(family.members);
    }

    /// Completes the compared range, if all of its objects are copied; returns where the next one begins, `None` at the end. An
    /// error if objects were postponed: the range is compared again.
    pub(in crate::pg) fn end_comparison(&self) -> Result<Option<ObjectId>, Unfinished> {
        let mut state = self.0.borrow_mut();
        let scan = std::mem::replace(&mut state.scan, Scan::None);
        state.chosen.clear();
        state.left.clear();
        match scan {
            Scan::Until(until) if state.pending.is_empty() => {
                state.is_done = until.is_none();
                if let Some(until) = &until {
                    assert!(state.reached < *until, "a backfill goes on from {} to {until}", state.reached);
                    state.reached = until.clone();
                    state.is_passed = false;
                }
                Ok(until)
            }
            _ => {
                let State { reached, is_passed, pending, .. } = &mut *state;
                pending.retain(|head, _| **head < *reached || (*is_passed && **head == *reached));
                Err(Unfinished)
            }
        }
    }

    /// Whether it has passed all objects.
    pub(in crate::pg) fn is_done(&self) -> bool {
        self.0.borrow().is_done
    }

    /// Its position, for display; `None`: at the end.
    pub(in crate::pg) fn position(&self) -> Option<ObjectId> {
        let state = self.0.borrow();
        (!state.is_done).then(|| state.reached.clone())
    }
}

/// Some objects were postponed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) struct Unfinished;

impl State {
    fn next(&self) -> Option<Arc<ObjectId>> {
        let is_free = |head: &&Arc<ObjectId>| !self.chosen.contains(*head) && !self.left.contains(*head);
        self.pending.keys().find(is_free).cloned()
    }

    fn has_passed(&self, head: &ObjectId) -> bool {
        self.is_done || *head < self.reached || (self.is_passed && *head == self.reached)
    }

    fn is_sent(&self, head: &ObjectId) -> bool {
        self.has_passed(head) && !self.pending.contains_key(head)
    }

    /// Notes that a change of this object was withheld.
    fn note(&mut self, oid: &ObjectId) {
        let head = family::head_of(oid);
        let is_noted = self.has_passed(&head)
            || match &self.scan {
                Scan::None => false,
                Scan::Open => true,
                Scan::Until(until) => until.as_ref().is_none_or(|until| head < *until),
            };
        if is_noted {
            family::add(&mut self.pending, oid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use carmine_pgtypes::{ObjectChange, Step};
    use carmine_types::{PgId, SpgId};
    use proptest::prelude::*;

    use super::*;

    const OBJECTS: u8 = 8;

    fn object(n: u8) -> ObjectId {
        ObjectId { name: [n].into(), ..ObjectId::cursor(1, 0) }
    }

    fn number(oid: &ObjectId) -> u8 {
        oid.name.first().copied().unwrap_or(0)
    }

    /// An event during a backfill.
    #[derive(Clone, Debug)]
    enum Act {
        /// Some objects change together: each gets a new version, or is removed.
        Write(Vec<(u8, bool)>),
        /// The backfill does its next step; with `fails` the copy of an object is refused.
        Step { fails: bool },
        /// It is interrupted, and continues later.
        Pause,
        /// Another interval begins: what was compared is forgotten.
        Restart,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        // A transaction changes one family. With two, one would be copied again from before the place where a new interval begins.
        let write = prop::collection::vec((1..=OBJECTS, prop::bool::weighted(0.7)), 1..2);
        let act = prop_oneof![
            2 => write.prop_map(Act::Write),
            4 => prop::bool::weighted(0.1).prop_map(|fails| Act::Step { fails }),
            1 => Just(Act::Pause),
            1 => Just(Act::Restart),
        ];
        prop::collection::vec(act, 0..120)
    }

    /// A version, and the version that the change was made on: a copy with a wrong base is broken.
    type Copy = BTreeMap<u8, (u32, u32)>;

    struct Model {
        primary: Copy,
        target: Copy,
        window: Window,
        clock: u32,
        /// A comparison has begun: what the primary and the target had then.
        seen: Option<(Copy, Copy)>,
        is_compared: bool,
        /// The object that is chosen: a write that has begun before may end.
        chosen: Option<Arc<ObjectId>>,
        /// The object that is passed, and not copied yet: its writes wait.
        passed: Option<Family>,
        /// Where the next interval begins.
        kept: ObjectId,
        page: u8,
    }

    impl Model {
        fn write(&mut self, changes: &[(u8, bool)]) {
            let waits = |n: &u8| self.passed.as_ref().is_some_and(|family| number(&family.head) == *n);
            if changes.iter().any(|(n, _)| waits(n)) {
                return;
            }
            let oids = changes.iter().map(|(n, _)| Arc::new(object(*n)));
            let changed = oids.map(|oid| ObjectChange::new(oid, [Step::Remove])).collect();
            let txn = Transaction { changes: changed, ..Transaction::new(SpgId::from(PgId::new(1, 0)), 0) };
            let withheld = self.window.withholds(&txn);
            self.clock += 1;
            for (n, exists) in changes {
                let base = |copy: &Copy| copy.get(n).map_or(0, |(version, _)| *version);
                let (here, there) = (base(&self.primary), base(&self.target));
                for (copy, base) in [(&mut self.primary, here), (&mut self.target, there)]
                    .into_iter()
                    .take(if withheld { 1 } else { 2 })
                {
                    match exists {
                        true => drop(copy.insert(*n, (self.clock, base))),
                        false => drop(copy.remove(n)),
                    }
                }
            }
        }

        fn step(&mut self, fails: bool) {
            if self.window.is_done() {
                return;
            }
            let Some((here, there)) = self.seen.clone() else {
                self.window.begin();
                self.seen = Some((self.primary.clone(), self.target.clone()));
                self.is_compared = false;
                return;
            };
            if !self.is_compared {
                let from = self.window.position().unwrap();
                let until = number(&from).saturating_add(self.page);
                let until = (until <= OBJECTS).then(|| object(until));
                let version = |copy: &Copy, n: &u8| copy.get(n).map(|(version, _)| *version);
                let differ = (1..=OBJECTS).filter(|n| version(&here, n) != version(&there, n)).map(object);
                let differ = differ
                    .filter(|oid| *oid >= from && until.as_ref().is_none_or(|u| oid < u))
                    .collect::<Vec<_>>();
                self.window.set_differing(differ, until);
                self.is_compared = true;
                return;
            }
            if let Some(head) = self.chosen.take() {
                match fails {
                    true => self.window.postpone(&head),
                    false => self.passed = Some(self.window.pass(&head)),
                }
                return;
            }
            match self.passed.take() {
                Some(family) if fails => {
                    // The copy may be broken by now, and then has no version.
                    self.target.insert(number(&family.head), (0, 99));
                    return self.window.requeue(family);
                }
                Some(family) => {
                    let n = number(&family.head);
                    match self.primary.get(&n) {
                        Some(value) => drop(self.target.insert(n, *value)),
                        None => drop(self.target.remove(&n)),
                    }
                    return;
                }
                None => self.chosen = self.window.choose(),
            }
            if self.chosen.is_none() {
                if let Ok(Some(next)) = self.window.end_comparison() {
                    self.kept = next;
                }
                self.seen = None;
            }
        }

        fn pause(&mut self) {
            if let Some(family) = self.passed.take() {
                self.target.insert(number(&family.head), (0, 99));
                self.window.requeue(family);
            }
            self.chosen = None;
            let _ = self.window.end_comparison();
            self.seen = None;
        }

        fn restart(&mut self) {
            self.pause();
            if !self.window.is_done() {
                self.window = Window::at(self.kept.clone());
            }
        }
    }

    proptest! {
        /// Whatever is written meanwhile, a completed backfill has made the copies equal.
        #[test]
        fn the_copies_are_equal_at_the_end(
            acts in acts(), page in 1..5u8, old in prop::collection::btree_map(1..=OBJECTS, 1..4u32, 0..8),
        ) {
            let window = Window::at(ObjectId::cursor(1, 0));
            let target = old.into_iter().map(|(n, version)| (n, (version, 77))).collect();
            let mut model =
                Model { primary: Copy::new(), target, window, clock: 10, seen: None, is_compared: false, chosen: None,
                    passed: None, kept: ObjectId::cursor(1, 0), page };
            for act in acts.into_iter().chain(std::iter::repeat_n(Act::Step { fails: false }, 100)) {
                match act {
                    Act::Write(changes) => {
                        let once: BTreeMap<u8, bool> = changes.into_iter().collect();
                        model.write(&once.into_iter().collect::<Vec<_>>());
                    }
                    Act::Step { fails } => model.step(fails),
                    Act::Pause => model.pause(),
                    Act::Restart => model.restart(),
                }
            }
            prop_assert!(model.window.is_done());
            prop_assert_eq!(model.primary, model.target);
        }
    }
}
