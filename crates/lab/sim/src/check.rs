//! Checks whether one order of an object's changes explains every answer.
//!
//! Acknowledged changes have versions, which are their order. The order must agree with time (what was answered before
//! another was asked comes first) and with each client's own order. Between them may lie changes whose clients died before
//! the answer, each once, or not at all: a search tries them. Then each read must have seen one of the states between the
//! last change that it must know and the first that it cannot know.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::history::{Call, History};
use crate::model::{Object, apply};

/// Steps of the search for one object; unanswered changes are few.
const BUDGET: usize = 200_000;

/// A fault in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub object: u32,
    pub what: String,
    /// The requests that show it, and some before it.
    pub calls: Vec<String>,
}

/// Checks all objects; the faults, at most one of each.
pub fn check(history: &History) -> Vec<Fault> {
    let objects: BTreeSet<u32> = history.calls.iter().map(|call| call.object).collect();
    let fault_of = |object: u32| {
        let calls = history.calls_for(object);
        Search::new(&calls, history.may_be_full).run().err().map(|failed| failed.fault(object, &calls))
    };
    objects.into_iter().filter_map(fault_of).collect()
}

/// The point at which the search failed.
struct Failed {
    what: String,
    at: usize,
}

impl Failed {
    fn fault(&self, object: u32, calls: &[&Call]) -> Fault {
        let from = self.at.saturating_sub(12);
        let shown = calls.iter().enumerate().skip(from).take(self.at - from + 4);
        let mark = |n: usize| if n == self.at { "> " } else { "  " };
        let calls = shown.map(|(n, call)| format!("{}{call}", mark(n))).collect();
        Fault { object, what: self.what.clone(), calls }
    }
}

struct Search<'a> {
    calls: &'a [&'a Call],
    /// The drives may be full: a client's reads may pass its own writes, and a change may find no room.
    may_be_full: bool,
    /// Acknowledged changes, in order of their versions.
    changes: Vec<usize>,
    /// Changes without an answer.
    open: Vec<usize>,
    /// Requests that changed nothing: reads, and those that were refused.
    reads: Vec<usize>,
    best: Option<(usize, Failed)>,
    steps: usize,
    /// Places that were searched in vain: changes applied, the state, open changes applied; with the reads that were explained.
    seen: BTreeMap<(usize, u64, Vec<usize>), Vec<BTreeSet<usize>>>,
}

#[derive(Clone)]
struct Place {
    state: Option<Object>,
    /// Acknowledged changes that are applied.
    applied: usize,
    /// Open changes that are applied.
    taken: Vec<usize>,
    /// Reads that are explained.
    explained: BTreeSet<usize>,
}

impl<'a> Search<'a> {
    fn new(calls: &'a [&'a Call], may_be_full: bool) -> Search<'a> {
        let of = |is: &dyn Fn(&Call) -> bool| -> Vec<usize> {
            calls.iter().enumerate().filter(|(_, call)| is(call)).map(|(n, _)| n).collect()
        };
        let mut changes = of(&Call::has_changed);
        changes.sort_by_key(|n| calls[*n].version());
        Search {
            calls,
            may_be_full,
            changes,
            open: of(&|call| call.writes() && call.answer.is_none()),
            reads: of(&|call| call.answer.is_some() && !call.has_changed()),
            best: None,
            steps: 0,
            seen: BTreeMap::new(),
        }
    }

    fn run(mut self) -> Result<(), Failed> {
        self.check_order()?;
        let start = Place { state: None, applied: 0, taken: Vec::new(), explained: BTreeSet::new() };
        if self.go_on(start) {
            return Ok(());
        }
        let mut failed = match self.best {
            Some((_, failed)) => failed,
            None => Failed { what: "no change comes first".to_owned(), at: 0 },
        };
        if self.steps > BUDGET {
            failed.what = format!("the search was given up after {BUDGET} steps; {}", failed.what);
        }
        Err(failed)
    }

    /// Versions agree with time and with each client's own order.
    fn check_order(&self) -> Result<(), Failed> {
        let mut last_of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut latest_call: Option<usize> = None;
        for pair in self.changes.windows(2) {
            if self.calls[pair[0]].version() == self.calls[pair[1]].version() {
                let what = "two changes have the same version".to_owned();
                return Err(Failed { what, at: pair[1] });
            }
        }
        for &n in &self.changes {
            let call = self.calls[n];
            if let Some(later) = latest_call.filter(|later| call.answered_ns() < self.calls[*later].at_ns) {
                let what = format!(
                    "a change has a lower version than one that was requested after it ended: {}",
                    self.calls[n]
                );
                return Err(Failed { what, at: later });
            }
            if latest_call.is_none_or(|later| self.calls[later].at_ns < call.at_ns) {
                latest_call = Some(n);
            }
            if last_of.insert(call.client, n).is_some_and(|before| before > n) {
                let what = "changes of one client are in another order than it asked for them".to_owned();
                return Err(Failed { what, at: n });
            }
        }
        Ok(())
    }

    /// Explains the rest from here; true if that is possible.
    fn go_on(&mut self, mut place: Place) -> bool {
        loop {
            self.steps += 1;
            if self.steps > BUDGET {
                return false;
            }
            self.explain(&mut place);
            let next = self.changes.get(place.applied).copied();
            // A read that cannot see the next change must be explained before it.
            let late = self.reads.iter().copied().find(|read| {
                !place.explained.contains(read) && next.is_none_or(|next| self.must_precede(*read, next))
            });
            // An open change may come now if it was asked for before the next acknowledged one ended.
            let end_ns = next.map_or(u64::MAX, |next| self.calls[next].answered_ns());
            let is_asked = |n: &usize| self.calls[*n].at_ns < end_ns;
            let branches: Vec<usize> = self.next_open(&place).filter(is_asked).collect();
            if !branches.is_empty() {
                let mut taken = place.taken.clone();
                taken.sort_unstable();
                let state = BuildHasherDefault::<DefaultHasher>::default().hash_one(&place.state);
                // Another way may have explained fewer reads; then that search says nothing about this place.
                let before = self.seen.entry((place.applied, state, taken)).or_default();
                if before.iter().any(|explained| explained.is_superset(&place.explained)) {
                    return false;
                }
                before.push(place.explained.clone());
            }
            if let Some(read) = late {
                // Only a change without an answer can help.
                if self.try_open(&place, &branches) {
                    return true;
                }
                self.note(&place, read);
                return false;
            }
            let Some(next) = next else { return true };
            match apply(place.state.as_ref(), &self.calls[next].steps) {
                Ok((state, _)) => {
                    if !branches.is_empty() {
                        let with = Place { state, applied: place.applied + 1, ..place.clone() };
                        return self.go_on(with) || self.try_open(&place, &branches);
                    }
                    place.state = state;
                    place.applied += 1;
                }
                Err(refusal) => {
                    if self.try_open(&place, &branches) {
                        return true;
                    }
                    let what = format!("a change was acknowledged that must have been refused: {refusal:?}");
                    self.note_as(&place, Failed { what, at: next });
                    return false;
                }
            }
        }
    }

    /// Each client's oldest change that is neither answered nor applied: a client's requests take effect in its order.
    fn next_open(&self, place: &Place) -> impl Iterator<Item = usize> {
        let mut clients = BTreeSet::new();
        let left = self.open.iter().filter(|n| !place.taken.contains(n));
        left.filter(move |n| clients.insert(self.calls[**n].client)).copied()
    }

    fn try_open(&mut self, place: &Place, branches: &[usize]) -> bool {
        branches.iter().any(|&n| {
            let mut refused = place.clone();
            refused.taken.push(n);
            // One that is refused leaves the object as it is.
            match apply(place.state.as_ref(), &self.calls[n].steps) {
                Ok((state, _)) => {
                    let with = Place { state, ..refused.clone() };
                    self.go_on(with) || self.may_be_full && self.go_on(refused)
                }
                Err(_) => self.go_on(refused),
            }
        })
    }

    /// The read was answered before the change was asked for.
    fn must_precede(&self, read: usize, change: usize) -> bool {
        self.calls[read].answered_ns() < self.calls[change].at_ns
    }

    /// Explains all reads that the state explains; it is never wrong to do this now.
    fn explain(&self, place: &mut Place) {
        // A read waits for all later changes that it must know.
        let (rest, before) = (&self.changes[place.applied..], place.explained.clone());
        // One that was asked for after another's answer comes after that, too.
        let mut first_end = rest.iter().map(|n| self.calls[*n].answered_ns()).min().unwrap_or(u64::MAX);
        for &read in self.reads.iter().filter(|read| !before.contains(read)) {
            let call = self.calls[read];
            // A client's own changes before its read are seen by it.
            let is_own = |n: &usize| *n < read && self.calls[*n].client == call.client;
            let waits = || !self.may_be_full && rest.iter().any(is_own);
            if call.at_ns <= first_end && !waits() && is_explained(call, place.state.as_ref()) {
                place.explained.insert(read);
            } else {
                first_end = first_end.min(call.answered_ns());
            }
        }
    }

    fn note(&mut self, place: &Place, read: usize) {
        let (call, size) = (self.calls[read], place.state.as_ref().map(|object| object.data.len()));
        let what = match size {
            Some(size) => format!("nothing explains this answer; the object has {size} bytes here: {call}"),
            None => format!("nothing explains this answer; there is no object here: {call}"),
        };
        self.note_as(place, Failed { what, at: read });
    }

    /// Keeps the failure that came furthest.
    fn note_as(&mut self, place: &Place, failed: Failed) {
        let reached = place.applied + place.explained.len();
        if self.best.as_ref().is_none_or(|(best, _)| *best < reached) {
            self.best = Some((reached, failed));
        }
    }
}

/// The answer is that of a request that meets this state and changes nothing.
fn is_explained(call: &Call, state: Option<&Object>) -> bool {
    let Some(answer) = &call.answer else { return true };
    match (apply(state, &call.steps), &answer.result) {
        (Ok((_, outputs)), Ok(seen)) => outputs == *seen,
        (Err(refusal), Err(code)) => refusal.is(*code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Answer;
    use crate::model::{Output, Step, bytes};
    use carmine_types::Eversion;

    fn call(
        client: u32,
        from: u64,
        to: u64,
        version: u64,
        steps: Vec<Step>,
        result: Result<Vec<Output>, i32>,
    ) -> Call {
        let version = Eversion { epoch: 1, version };
        let answer = Some(Answer { at_ns: to, result, version }).filter(|_| to > 0);
        Call { client, object: 0, steps, at_ns: from, answer }
    }

    fn write(client: u32, from: u64, to: u64, version: u64, data: u64) -> Call {
        call(client, from, to, version, vec![Step::WriteFull { len: 4, data }], Ok(vec![Output::None]))
    }

    fn read(client: u32, from: u64, to: u64, data: Option<u64>) -> Call {
        let result = data.map(|data| vec![Output::Data(bytes(data, 0, 20)[16..].to_vec())]).ok_or(-2);
        call(client, from, to, 0, vec![Step::Read], result)
    }

    /// Data behind the tag, so that it differs.
    fn full(client: u32, from: u64, to: u64, version: u64, data: u64) -> Call {
        let steps = vec![Step::Delete, Step::Append { len: 4, data }];
        let steps = if version == 1 { steps[1..].to_vec() } else { steps };
        let outputs = steps.iter().map(|_| Output::None).collect();
        call(client, from, to, version, steps, Ok(outputs))
    }

    fn see(client: u32, from: u64, to: u64, data: u64) -> Call {
        call(client, from, to, 0, vec![Step::Read], Ok(vec![Output::Data(bytes(data, 8, 4))]))
    }

    fn faults(calls: Vec<Call>) -> usize {
        check(&History { calls, ..History::default() }).len()
    }

    #[test]
    fn while_a_pool_is_full_reads_pass_their_client_s_writes() {
        let calls = vec![full(0, 1, 2, 1, 7), full(1, 10, 20, 2, 8), see(1, 12, 15, 7)];
        assert_eq!(faults(calls.clone()), 1);
        assert_eq!(check(&History { calls, may_be_full: true }), Vec::new());
    }

    #[test]
    fn requests_that_had_no_room_did_nothing() {
        let refused = || call(0, 3, 4, 0, vec![Step::Append { len: 2, data: 8 }], Err(-28));
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), refused(), see(1, 5, 6, 7)]), 0);
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), refused(), see(1, 5, 6, 8)]), 1);
    }

    /// The next one of its client may need less room (`carmine sim --seed 9362`).
    #[test]
    fn a_change_without_an_answer_may_have_had_no_room() {
        let open = |at, len| call(2, at, 0, 0, vec![Step::Append { len, data: 1 }], Ok(vec![]));
        let size = |bytes| call(1, 5, 6, 0, vec![Step::Stat], Ok(vec![Output::Size(bytes)]));
        let calls = |bytes| vec![full(0, 1, 2, 1, 7), open(3, 20), open(4, 3), size(bytes)];
        let faults_where_full = |bytes| check(&History { calls: calls(bytes), may_be_full: true }).len();
        assert_eq!([4, 7, 24, 27].map(faults_where_full), [0; 4]);
        assert_eq!([4, 7, 24, 27].map(|bytes| faults(calls(bytes))), [0, 1, 0, 0]);
        assert_eq!(faults_where_full(8), 1);
    }

    #[test]
    fn reads_beside_a_write_see_one_or_the_other() {
        assert_eq!(
            faults(vec![full(0, 1, 2, 1, 7), full(0, 10, 20, 2, 8), see(1, 12, 15, 7), see(1, 16, 30, 8)]),
            0
        );
        // First the new state, then the old one.
        assert_eq!(
            faults(vec![full(0, 1, 2, 1, 7), full(0, 10, 20, 2, 8), see(1, 12, 15, 8), see(1, 16, 30, 7)]),
            1
        );
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), full(0, 10, 20, 2, 8), see(1, 21, 30, 7)]), 1, "stale");
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), see(1, 3, 4, 9)]), 1);
        // From the future.
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), see(1, 3, 4, 8), full(0, 10, 20, 2, 8)]), 1);
        assert_eq!(faults(vec![read(0, 1, 2, None), write(0, 3, 4, 1, 5)]), 0);
    }

    #[test]
    fn a_change_without_an_answer_happens_once_or_not_at_all() {
        let open = || call(2, 3, 0, 0, vec![Step::Append { len: 2, data: 1 }], Ok(vec![]));
        let size = |from, bytes| call(1, from, from + 1, 0, vec![Step::Stat], Ok(vec![Output::Size(bytes)]));
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), open(), size(5, 4), size(8, 4)]), 0);
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), open(), size(5, 4), size(8, 6)]), 0);
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), open(), size(5, 6), size(8, 8)]), 1, "twice");
        assert_eq!(
            faults(vec![full(0, 1, 2, 1, 7), open(), size(5, 6), size(8, 4)]),
            1,
            "it went away again"
        );
    }

    /// Changes of different bytes make the same state in any order, but not the same states on the way (`carmine sim --seed 496`).
    #[test]
    fn the_same_state_by_another_way_may_explain_more() {
        let write = |off| Step::Write { off, len: 1, data: off + 1 };
        let after = |offsets: &[u64]| {
            let steps = offsets.iter().map(|off| write(*off));
            let steps: Vec<Step> = [Step::Append { len: 4, data: 7 }].into_iter().chain(steps).collect();
            apply(None, &steps).unwrap().0.unwrap().data
        };
        let open = |at, off| call(2, at, 0, 0, vec![write(off)], Ok(vec![]));
        let see = |from, to, data| call(3, from, to, 0, vec![Step::Read], Ok(vec![Output::Data(data)]));
        let calls = vec![
            full(0, 1, 2, 1, 7),
            open(3, 0),
            open(4, 1),
            call(2, 5, 0, 0, vec![Step::Truncate(1)], Ok(vec![])), // never executed
            see(5, 20, after(&[0, 1])),
            call(3, 6, 30, 2, vec![write(2)], Ok(vec![Output::None])),
            see(31, 32, after(&[0, 1, 2])),
        ];
        assert_eq!(faults(calls), 0);
    }

    #[test]
    fn versions_are_an_order_in_time() {
        assert_eq!(faults(vec![full(0, 1, 2, 3, 7), full(1, 10, 20, 2, 8)]), 1);
        assert_eq!(faults(vec![full(0, 1, 30, 3, 7), full(1, 10, 20, 1, 8)]), 0);
        assert_eq!(faults(vec![full(0, 1, 30, 3, 7), full(0, 10, 40, 1, 8)]), 1, "one client's own order");
        assert_eq!(faults(vec![full(0, 1, 30, 1, 7), full(1, 10, 20, 1, 8)]), 1, "the same version");
    }

    #[test]
    fn a_lost_change_is_found() {
        let calls = vec![full(0, 1, 2, 1, 7), full(0, 3, 4, 2, 8), see(1, 9, 10, 7)];
        assert_eq!(faults(calls), 1);
        // Appends happen once.
        let append = call(0, 3, 4, 2, vec![Step::Append { len: 2, data: 1 }], Ok(vec![Output::None]));
        let size = call(1, 5, 6, 0, vec![Step::Stat], Ok(vec![Output::Size(8)]));
        assert_eq!(faults(vec![full(0, 1, 2, 1, 7), append, size]), 1);
    }
}
