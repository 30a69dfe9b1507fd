//! The read throttle: what was dispatched and is not released yet.

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
    room: Signal,
}

impl Throttle {
    pub(crate) fn new(bytes_max: usize, messages_max: usize) -> Rc<Throttle> {
        Rc::new(Throttle {
            bytes_max,
            messages_max: messages_max.max(1),
            bytes: Cell::new(0),
            messages: Cell::new(0),
            room: Signal::new(),
        })
    }

    /// True if a message of `bytes` may be read now. One message is always let in, however long it is: the limits of the
    /// frames bound it.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let held = self.messages.get();
        held == 0 || (held < self.messages_max && self.bytes.get().saturating_add(bytes) <= self.bytes_max)
    }

    /// Counts a message of `bytes` as held until the permit is dropped.
    pub(crate) fn admit(self: &Rc<Self>, bytes: usize) -> Permit {
        self.bytes.set(self.bytes.get() + bytes);
        self.messages.set(self.messages.get() + 1);
        Permit { throttle: Some(Rc::clone(self)), bytes }
    }

    /// Resumes after a release (or at once, if there was one since the last call).
    pub(crate) async fn released(&self) {
        self.room.wait().await;
    }

    /// Wakes the reader, e.g. because the connection was closed.
    pub(crate) fn wake(&self) {
        self.room.fire();
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.get()
    }

    fn release(&self, bytes: usize) {
        debug_assert!(self.messages.get() > 0 && self.bytes.get() >= bytes);
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.messages.set(self.messages.get().saturating_sub(1));
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
}

impl Permit {
    /// Turns the guard into a plain value that may travel to another shard. It must come back to
    /// [`crate::Connection::release`]; a lost one narrows the connection's room until the connection ends.
    pub fn detach(mut self) -> PermitToken {
        self.throttle = None;
        PermitToken { bytes: self.bytes }
    }

    /// Counts more bytes: those that the message's answer will hold until the permit is dropped.
    pub fn grow(&mut self, bytes: usize) {
        if let Some(throttle) = &self.throttle {
            throttle.bytes.set(throttle.bytes.get().saturating_add(bytes));
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    /// Bytes that the permit stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(throttle) = &self.throttle {
            throttle.release(self.bytes);
        }
    }
}

/// A [`Permit`] that left its shard; see [`Permit::detach`].
#[derive(Debug)]
#[must_use = "give it back with Connection::release, or the connection's room shrinks"]
pub struct PermitToken {
    bytes: usize,
}

impl PermitToken {
    /// Gives the room back.
    pub(crate) fn release(self, throttle: &Throttle) {
        throttle.release(self.bytes);
    }
}
