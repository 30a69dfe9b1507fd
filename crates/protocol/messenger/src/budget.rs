//! Memory for requests that the clients of a reactor share.
//!
//! A request takes room up to three times: for its own bytes before they are read, for the additional memory that it is known to
//! need before it is dispatched, and, rarely, for a need found only during its execution. Each step may fill more than the one
//! before, so that a request that holds room can always finish, whatever is queued after it.
//!
//! | step | may fill |
//! |---|---|
//! | [`Need::Input`] | the limit |
//! | [`Need::Output`] | the limit and [`OUTPUT_BYTES`] |
//! | [`Need::More`] | that and [`MORE_BYTES`], one request at a time |
//!
//! Unsent answers count as well. If next to nothing else is in flight, a request is admitted however large it is: the limits of
//! frames and the OSD's own limits bound it. The only request of a connection is not counted while it is small ([`FREE_BYTES`]):
//! clients that use all the room slow others down, but do not stop them.

use crate::signal::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The most that one request is known in advance to need beyond its own bytes.
pub const OUTPUT_BYTES: usize = 96 << 20;
/// The most that one request turns out to need beyond that: a copy of the largest object.
pub const MORE_BYTES: usize = 128 << 20;
/// A connection's only request is not counted if it needs no more than this.
pub const FREE_BYTES: usize = 64 << 10;
/// This part of the limit is next to nothing.
const SLACK_PART: usize = 8;

/// The need that a request takes room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Input,
    Output,
    More,
}

/// Counts the memory that requests of a reactor's clients hold.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    /// Bytes of admitted requests.
    held: Cell<usize>,
    /// Bytes of unsent answers.
    queued: Cell<usize>,
    /// Whether a request has [`MORE_BYTES`].
    has_more: Cell<bool>,
    /// Waiting requests, in order of arrival.
    waiting: RefCell<VecDeque<Rc<Wish>>>,
}

/// A request that waits for room.
#[derive(Debug)]
struct Wish {
    step: Need,
    /// Room that it holds already.
    own: usize,
    bytes: usize,
    granted: Cell<bool>,
    /// Fired when it is granted.
    signal: Rc<Signal>,
}

impl Budget {
    /// A budget in which the requests' own bytes fill at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Rc<Budget> {
        Rc::new(Budget {
            limit_bytes,
            held: Cell::new(0),
            queued: Cell::new(0),
            has_more: Cell::new(false),
            waiting: RefCell::default(),
        })
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.held.get().saturating_add(self.queued.get())
    }

    /// Whether a request waits for room.
    pub fn is_short(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Whether a request of a connection other than this signal's waits for room.
    pub(crate) fn is_short_beside(&self, signal: &Rc<Signal>) -> bool {
        self.waiting.borrow().iter().any(|wish| !Rc::ptr_eq(&wish.signal, signal))
    }

    /// Waits for the right to hold [`MORE_BYTES`], which one request at a time has until [`More`] is dropped. This waits only for
    /// the present holder, and for answers to be sent.
    pub async fn more(self: &Rc<Self>) -> More {
        let place = self.queue(Need::More, 0, MORE_BYTES, &Rc::new(Signal::new()));
        while !place.claim() {
            place.wish.signal.wait().await;
        }
        More(Rc::clone(self))
    }

    /// Takes room if there is enough and nobody waits.
    pub(crate) fn try_take(&self, step: Need, own: usize, bytes: usize) -> bool {
        let takes = !self.is_short() && self.fits(step, own, bytes);
        if takes {
            self.held.set(self.held.get().saturating_add(bytes));
        }
        takes
    }

    /// Waits for room; `signal` is fired when [`RoomRequest::claim`] may succeed.
    pub(crate) fn queue(
        self: &Rc<Self>,
        step: Need,
        own: usize,
        bytes: usize,
        signal: &Rc<Signal>,
    ) -> RoomRequest {
        let wish = Rc::new(Wish { step, own, bytes, granted: Cell::new(false), signal: Rc::clone(signal) });
        self.waiting.borrow_mut().push_back(Rc::clone(&wish));
        self.grant();
        RoomRequest { budget: Rc::clone(self), wish }
    }

    /// Releases room.
    pub(crate) fn release(&self, bytes: usize) {
        debug_assert!(self.held.get() >= bytes);
        self.held.set(self.held.get().saturating_sub(bytes));
        self.grant();
    }

    /// Counts an unsent answer.
    pub(crate) fn queued(&self, bytes: usize) {
        self.queued.set(self.queued.get().saturating_add(bytes));
    }

    /// Uncounts an answer that was sent or dropped.
    pub(crate) fn drained(&self, bytes: usize) {
        debug_assert!(self.queued.get() >= bytes);
        self.queued.set(self.queued.get().saturating_sub(bytes));
        self.grant();
    }

    fn fits(&self, step: Need, own: usize, bytes: usize) -> bool {
        let (used, slack) = (self.used_bytes(), self.limit_bytes / SLACK_PART);
        let output_limit = self.limit_bytes.saturating_add(OUTPUT_BYTES);
        match step {
            Need::Input => used.saturating_add(bytes) <= self.limit_bytes || used <= slack,
            Need::Output => used.saturating_add(bytes) <= output_limit || used.saturating_sub(own) <= slack,
            // Admitted requests may wait for this one to end. Answers wait for nobody.
            Need::More => !self.has_more.get() && (used <= output_limit || self.queued.get() <= slack),
        }
    }

    /// Grants room to waiting requests. Requests that are not read yet do not overtake each other; one that was read already
    /// holds room, and goes first so that it ends sooner.
    fn grant(&self) {
        if !self.is_short() {
            return;
        }
        let mut input_waits = false;
        self.waiting.borrow_mut().retain(|wish| {
            let may = wish.step != Need::Input || !input_waits;
            let is_granted = may && self.fits(wish.step, wish.own, wish.bytes);
            input_waits |= wish.step == Need::Input && !is_granted;
            if is_granted {
                self.held.set(self.held.get().saturating_add(wish.bytes));
                self.has_more.set(self.has_more.get() || wish.step == Need::More);
                wish.granted.set(true);
                wish.signal.fire();
            }
            !is_granted
        });
    }
}

/// The right to hold [`MORE_BYTES`]; see [`Budget::more`].
#[derive(Debug)]
pub struct More(Rc<Budget>);

impl Drop for More {
    fn drop(&mut self) {
        self.0.has_more.set(false);
        self.0.release(MORE_BYTES);
    }
}

/// A waiting request; dropping it gives the place up.
pub(crate) struct RoomRequest {
    budget: Rc<Budget>,
    wish: Rc<Wish>,
}

impl RoomRequest {
    /// True, once, when the room was granted: it belongs to the caller then.
    pub(crate) fn claim(&self) -> bool {
        self.wish.granted.replace(false)
    }
}

impl Drop for RoomRequest {
    fn drop(&mut self) {
        self.budget.waiting.borrow_mut().retain(|wish| !Rc::ptr_eq(wish, &self.wish));
        match (self.wish.granted.get(), self.wish.step) {
            (true, Need::More) => drop(More(Rc::clone(&self.budget))),
            (true, _) => self.budget.release(self.wish.bytes),
            (false, _) => self.budget.grant(), // others may have waited after it
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: usize = 1 << 20;

    fn wait(budget: &Rc<Budget>, step: Need, own: usize, bytes: usize) -> RoomRequest {
        budget.queue(step, own, bytes, &Rc::new(Signal::new()))
    }

    #[test]
    fn room_is_given_in_order() {
        let budget = Budget::new(64 * MIB);
        assert!(budget.try_take(Need::Input, 0, 60 * MIB));
        assert!(!budget.try_take(Need::Input, 0, 5 * MIB));
        let (large, small) = (wait(&budget, Need::Input, 0, 5 * MIB), wait(&budget, Need::Input, 0, MIB));
        assert!(!large.claim() && !small.claim(), "a small one does not overtake");
        assert!(!budget.try_take(Need::Input, 0, MIB), "nor does one that has just come");
        budget.release(2 * MIB);
        assert!(large.claim() && small.claim() && !small.claim());
        assert_eq!((budget.used_bytes(), budget.is_short()), (64 * MIB, false));
        // A waiter that gives up does not block the next one, and room that it was given meanwhile is not lost.
        let (gone, next) = (wait(&budget, Need::Input, 0, 60 * MIB), wait(&budget, Need::Input, 0, 2 * MIB));
        budget.release(4 * MIB);
        assert!(!next.claim());
        drop(gone);
        assert!(next.claim());
        let given = wait(&budget, Need::Input, 0, MIB);
        drop(given);
        assert_eq!(budget.used_bytes(), 62 * MIB);
    }

    #[test]
    fn answers_that_wait_take_room() {
        let budget = Budget::new(64 * MIB);
        budget.queued(64 * MIB);
        let next = wait(&budget, Need::Input, 0, MIB);
        assert!(!next.claim() && budget.is_short());
        budget.drained(MIB);
        assert!(next.claim());
    }

    #[test]
    fn one_request_is_let_in_however_large_it_is() {
        let budget = Budget::new(MIB);
        assert!(budget.try_take(Need::Input, 0, 160 * MIB));
        assert!(budget.try_take(Need::Output, 160 * MIB, OUTPUT_BYTES));
        assert!(!budget.try_take(Need::Input, 0, 1));
        let more = wait(&budget, Need::More, 0, MORE_BYTES);
        assert!(more.claim(), "the others may wait for it");
        assert!(!wait(&budget, Need::More, 0, MORE_BYTES).claim(), "one at a time");
        drop(More(Rc::clone(&budget)));
        budget.release(160 * MIB + OUTPUT_BYTES);
        assert_eq!(budget.used_bytes(), 0);
    }

    /// A request: its bytes, its output, and whether it turns out to need more.
    #[derive(Clone, Debug)]
    struct Request {
        input: usize,
        output: usize,
        more: bool,
    }

    fn request() -> impl Strategy<Value = Request> {
        let large = prop_oneof![4 => 0..4 * MIB, 1 => 0..160 * MIB];
        let output = prop_oneof![4 => 0..8 * MIB, 1 => 0..=OUTPUT_BYTES];
        (large, output, any::<bool>()).prop_map(|(input, output, more)| Request { input, output, more })
    }

    proptest! {
        /// Whatever the order of requests, all get through, though some may wait for those that need more; and together they stay
        /// below the limit.
        #[test]
        fn everybody_gets_through(
            limit in 8 * MIB..128 * MIB,
            requests in prop::collection::vec(request(), 1..30),
            choices: Vec<prop::sample::Index>,
        ) {
            let budget = Budget::new(limit);
            // Steps done, and the place for the next one.
            let mut running: Vec<(Request, usize, RoomRequest)> = requests
                .into_iter()
                .map(|r| { let place = wait(&budget, Need::Input, 0, r.input); (r, 0, place) })
                .collect();
            let mut choices = choices.into_iter();
            let slack = limit / SLACK_PART;
            let bound = (limit + OUTPUT_BYTES).max(slack + 160 * MIB + OUTPUT_BYTES) + MORE_BYTES;
            while !running.is_empty() {
                prop_assert!(budget.used_bytes() <= bound, "{} of {bound}", budget.used_bytes());
                // Requests that have all their room end only if none that needs more can continue.
                let ready: Vec<usize> = (0..running.len())
                    .filter(|at| running[*at].1 < 3 && running[*at].2.wish.granted.get())
                    .collect();
                let at = match (ready.as_slice(), choices.next()) {
                    ([], _) => {
                        let mores = running.iter().any(|(r, done, _)| r.more && *done == 2);
                        let ended = |more: bool| running.iter().position(|(r, done, _)| *done == 3 && (r.more || !more));
                        let last = ended(true).or_else(|| ended(false));
                        prop_assert!(last.is_some(), "nobody goes on");
                        prop_assert!(!mores || budget.has_more.get(), "whoever needs more gets it");
                        let at = last.unwrap();
                        let (r, ..) = running.remove(at);
                        if r.more {
                            drop(More(Rc::clone(&budget)));
                        }
                        budget.release(r.input + r.output);
                        continue;
                    }
                    (ready, Some(choice)) => *choice.get(ready),
                    (ready, None) => ready[0],
                };
                let (r, done, place) = &mut running[at];
                prop_assert!(place.claim());
                *done += 1;
                match *done {
                    1 => *place = wait(&budget, Need::Output, r.input, r.output),
                    2 if r.more => *place = wait(&budget, Need::More, 0, MORE_BYTES),
                    _ => *done = 3,
                }
            }
            prop_assert_eq!((budget.used_bytes(), budget.is_short()), (0, false));
        }
    }
}
