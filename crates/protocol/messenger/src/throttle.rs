//! The read throttle: messages that were dispatched and are not released yet.

use crate::budget::{Budget, FREE_BYTES, Need, RoomRequest};
use crate::signal::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// Counts the bytes and messages of one connection that its dispatcher holds.
#[derive(Debug)]
pub(crate) struct Throttle {
    bytes_max: usize,
    messages_max: usize,
    bytes: Cell<usize>,
    messages: Cell<usize>,
    /// Fired by every release while the reader waits for room.
    room: Rc<Signal>,
    /// The budget shared with other connections; `None`: there is none.
    budget: Option<Rc<Budget>>,
}

impl Throttle {
    pub(crate) fn new(bytes_max: usize, messages_max: usize, budget: Option<Rc<Budget>>) -> Rc<Throttle> {
        Rc::new(Throttle {
            bytes_max,
            messages_max: messages_max.max(1),
            bytes: Cell::new(0),
            messages: Cell::new(0),
            room: Rc::new(Signal::new()),
            budget,
        })
    }

    /// Whether its dispatcher holds no message.
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.get() == 0
    }

    pub(crate) fn budget(&self) -> Option<&Rc<Budget>> {
        self.budget.as_ref()
    }

    /// Whether others wait for room in the budget.
    pub(crate) fn others_wait(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_short_beside(&self.room))
    }

    /// Whether this connection's own limits allow to read a message of `bytes`. One message is always allowed, however long: the
    /// limits of frames bound it.
    fn has_room(&self, bytes: usize) -> bool {
        let held = self.messages.get();
        held == 0 || (held < self.messages_max && self.bytes.get().saturating_add(bytes) <= self.bytes_max)
    }

    /// The only message of a connection is not counted with those of others while it is small.
    fn is_free(&self, bytes: usize) -> bool {
        self.messages.get() == 0 && bytes <= FREE_BYTES
    }

    /// Counts another message, of no bytes yet.
    fn enter(self: &Rc<Self>) -> Permit {
        self.messages.set(self.messages.get() + 1);
        Permit { throttle: Some(Rc::clone(self)), bytes: 0, shared_bytes: 0 }
    }

    /// The permit of [`Self::admit`] if there is room, and nobody waits for it.
    pub(crate) fn try_admit(self: &Rc<Self>, bytes: usize) -> Option<Permit> {
        if !self.has_room(bytes) {
            return None;
        }
        let shared_bytes = if self.is_free(bytes) { 0 } else { self.try_share(Need::Input, 0, bytes)? };
        let mut permit = self.enter();
        permit.shared_bytes = shared_bytes;
        permit.grow(bytes);
        Some(permit)
    }

    /// Takes room of the budget if there is enough; returns the bytes counted there.
    fn try_share(&self, step: Need, own: usize, bytes: usize) -> Option<usize> {
        match &self.budget {
            None => Some(0),
            Some(budget) => budget.try_take(step, own, bytes).then_some(bytes),
        }
    }

    /// Waits for room for a message of `bytes`, which counts as held until the permit is dropped. `None`: the connection ended.
    pub(crate) async fn admit(self: &Rc<Self>, bytes: usize, is_closed: impl Fn() -> bool) -> Option<Permit> {
        while !is_closed() && !self.has_room(bytes) {
            self.room.wait().await;
        }
        let is_free = self.is_free(bytes);
        let mut permit = self.enter();
        if !is_free {
            permit.share(Need::Input, bytes, &is_closed).await?;
        }
        permit.grow(bytes);
        (!is_closed()).then_some(permit)
    }

    /// [`Self::admit_output`] if there is room, and nobody waits for it.
    pub(crate) fn try_admit_output(&self, permit: &mut Permit, bytes: usize) -> bool {
        let taken = match self.output(permit, bytes) {
            _ if !self.has_room_for_output(bytes) => None,
            0 => Some(0),
            needed => self.try_share(Need::Output, permit.shared_bytes, needed),
        };
        if let Some(shared_bytes) = taken {
            permit.shared_bytes += shared_bytes;
            permit.grow(bytes);
        }
        taken.is_some()
    }

    fn has_room_for_output(&self, bytes: usize) -> bool {
        self.messages.get() <= 1 || self.bytes.get().saturating_add(bytes) <= self.bytes_max
    }

    /// The room of the budget that a message needs together with its output: a small message is counted from here on.
    fn output(&self, permit: &Permit, bytes: usize) -> usize {
        let is_free =
            permit.shared_bytes == 0 && self.messages.get() <= 1 && permit.bytes + bytes <= FREE_BYTES;
        let uncounted = permit.bytes - permit.shared_bytes.min(permit.bytes);
        if is_free { 0 } else { uncounted + bytes }
    }

    /// Waits for room for the additional memory of a message. False: the connection ended.
    pub(crate) async fn admit_output(
        self: &Rc<Self>,
        permit: &mut Permit,
        bytes: usize,
        is_closed: impl Fn() -> bool,
    ) -> bool {
        while !is_closed() && !self.has_room_for_output(bytes) {
            self.room.wait().await;
        }
        let needed = self.output(permit, bytes);
        if needed > 0 && permit.share(Need::Output, needed, &is_closed).await.is_none() {
            return false;
        }
        permit.grow(bytes);
        !is_closed()
    }

    /// Wakes the reader, e.g. because the connection was closed.
    pub(crate) fn wake(&self) {
        self.room.fire();
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.get()
    }

    fn release(&self, bytes: usize, shared_bytes: usize) {
        debug_assert!(self.messages.get() > 0 && self.bytes.get() >= bytes);
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.messages.set(self.messages.get().saturating_sub(1));
        if let Some(budget) = self.budget.as_ref().filter(|_| shared_bytes > 0) {
            budget.release(shared_bytes);
        }
        self.room.fire();
    }
}

/// Right to hold one received message. Reading from the peer pauses while too many are held; dropping it releases the room. It
/// stays on the connection's shard: work that moves to another shard carries a [`PermitToken`].
#[derive(Debug)]
pub struct Permit {
    /// None once the permit was detached.
    throttle: Option<Rc<Throttle>>,
    bytes: usize,
    /// The part counted in the shared budget.
    shared_bytes: usize,
}

impl Permit {
    /// Turns the guard into a plain value that may move to another shard. It must come back to [`crate::Connection::release`], or
    /// to [`PermitToken::give_back`] if the connection has ended.
    pub fn detach(mut self) -> PermitToken {
        self.throttle = None;
        PermitToken { bytes: self.bytes, shared_bytes: self.shared_bytes }
    }

    /// Bytes that the permit stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn grow(&mut self, bytes: usize) {
        if let Some(throttle) = &self.throttle {
            throttle.bytes.set(throttle.bytes.get().saturating_add(bytes));
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// Takes room of the budget. `None`: the connection ended.
    async fn share(&mut self, step: Need, bytes: usize, is_closed: &impl Fn() -> bool) -> Option<()> {
        let throttle = self.throttle.as_ref()?;
        let Some(budget) = &throttle.budget else { return Some(()) };
        if !budget.try_take(step, self.shared_bytes, bytes) {
            let place = budget.queue(step, self.shared_bytes, bytes, &throttle.room);
            Box::pin(granted(&place, &throttle.room, is_closed)).await?;
        }
        self.shared_bytes += bytes;
        Some(())
    }
}

async fn granted(place: &RoomRequest, room: &Signal, is_closed: &impl Fn() -> bool) -> Option<()> {
    while !place.claim() {
        if is_closed() {
            return None;
        }
        room.wait().await;
    }
    Some(())
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(throttle) = &self.throttle {
            throttle.release(self.bytes, self.shared_bytes);
        }
    }
}

/// A [`Permit`] that left its shard; see [`Permit::detach`].
#[derive(Debug)]
#[must_use = "give it back with Connection::release, or the connection's room shrinks"]
pub struct PermitToken {
    bytes: usize,
    shared_bytes: usize,
}

impl PermitToken {
    /// Releases the room.
    pub(crate) fn release(self, throttle: &Throttle) {
        throttle.release(self.bytes, self.shared_bytes);
    }

    /// The same for a token whose connection has ended, so that other connections get its room. `budget` is that of the
    /// connection's shard.
    pub fn give_back(self, budget: &Budget) {
        if self.shared_bytes > 0 {
            budget.release(self.shared_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    /// The value of a future that does not wait.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    proptest! {
        /// `try_admit` admits what `admit` would admit without waiting, and counts the same.
        #[test]
        fn trying_is_asking(steps in prop::collection::vec((0..5u8, 0..2 * FREE_BYTES, any::<prop::sample::Index>()), 0..60)) {
            let make = || {
                let budget = Budget::new(5 * FREE_BYTES);
                (Throttle::new(3 * FREE_BYTES, 4, Some(Rc::clone(&budget))), budget)
            };
            let ((tried, tried_budget), (asked, asked_budget)) = (make(), make());
            let mut permits: Vec<(Permit, Permit)> = Vec::new();
            for (what, bytes, at) in steps {
                match what {
                    0..2 => {
                        let (a, b) = (tried.try_admit(bytes), now(asked.admit(bytes, || false)).flatten());
                        prop_assert_eq!(a.is_some(), b.is_some());
                        permits.extend(a.zip(b));
                    }
                    _ if permits.is_empty() => {}
                    2 => {
                        let at = at.index(permits.len());
                        let (a, b) = &mut permits[at];
                        let asks = now(asked.admit_output(b, bytes, || false)) == Some(true);
                        prop_assert_eq!(tried.try_admit_output(a, bytes), asks);
                    }
                    _ => drop(permits.swap_remove(at.index(permits.len()))),
                }
                prop_assert_eq!(tried.held_bytes(), asked.held_bytes());
                prop_assert_eq!(tried_budget.used_bytes(), asked_budget.used_bytes());
            }
        }
    }
}
