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
    /// Shared with other connections; `None`: this one is not bounded together with others.
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

    pub(crate) fn budget(&self) -> Option<&Rc<Budget>> {
        self.budget.as_ref()
    }

    /// Others wait for room in the budget.
    pub(crate) fn others_wait(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_short_beside(&self.room))
    }

    /// True if a message of `bytes` may be read as far as this connection goes. One message is always let in, however long it
    /// is: the limits of the frames bound it.
    fn has_room(&self, bytes: usize) -> bool {
        let held = self.messages.get();
        held == 0 || (held < self.messages_max && self.bytes.get().saturating_add(bytes) <= self.bytes_max)
    }

    /// Waits for room for a message of `bytes`, which counts as held until the permit is dropped. `None`: the connection ended.
    pub(crate) async fn admit(self: &Rc<Self>, bytes: usize, is_closed: impl Fn() -> bool) -> Option<Permit> {
        while !is_closed() && !self.has_room(bytes) {
            self.room.wait().await;
        }
        let is_free = self.messages.get() == 0 && bytes <= FREE_BYTES;
        let mut permit = Permit { throttle: Some(Rc::clone(self)), bytes: 0, shared_bytes: 0 };
        self.messages.set(self.messages.get() + 1);
        if !is_free {
            permit.share(Need::Input, bytes, &is_closed).await?;
        }
        permit.grow(bytes);
        (!is_closed()).then_some(permit)
    }

    /// Waits for room for memory that a message will need beside its own bytes. False: the connection ended.
    pub(crate) async fn admit_output(
        self: &Rc<Self>,
        permit: &mut Permit,
        bytes: usize,
        is_closed: impl Fn() -> bool,
    ) -> bool {
        let has_room =
            || self.messages.get() <= 1 || self.bytes.get().saturating_add(bytes) <= self.bytes_max;
        while !is_closed() && !has_room() {
            self.room.wait().await;
        }
        let is_free =
            permit.shared_bytes == 0 && self.messages.get() <= 1 && permit.bytes + bytes <= FREE_BYTES;
        // One that was small so far is counted from here on.
        let uncounted = permit.bytes - permit.shared_bytes.min(permit.bytes);
        if !is_free && permit.share(Need::Output, uncounted + bytes, &is_closed).await.is_none() {
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

/// Right to hold one received message. Reading from the peer pauses while too many are held; dropping it gives the room
/// back. It stays on the connection's shard: work that moves to another shard takes a [`PermitToken`] along.
#[derive(Debug)]
pub struct Permit {
    /// None once the permit was detached.
    throttle: Option<Rc<Throttle>>,
    bytes: usize,
    /// The part of them that is counted in the budget of all connections.
    shared_bytes: usize,
}

impl Permit {
    /// Turns the guard into a plain value that may travel to another shard. It must come back to
    /// [`crate::Connection::release`], or to [`PermitToken::give_back`] if the connection has ended.
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
    while !place.take() {
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
    /// Gives the room back.
    pub(crate) fn release(self, throttle: &Throttle) {
        throttle.release(self.bytes, self.shared_bytes);
    }

    /// The same for a token whose connection has ended: other connections have its room again. `budget` is that of the
    /// connection's shard.
    pub fn give_back(self, budget: &Budget) {
        if self.shared_bytes > 0 {
            budget.release(self.shared_bytes);
        }
    }
}
