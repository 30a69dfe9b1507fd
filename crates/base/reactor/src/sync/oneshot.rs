//! One value from one task to another of the same shard.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The sender was dropped without sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender of a oneshot channel was dropped without sending")]
pub struct Closed;

struct Shared<T> {
    value: Cell<Option<T>>,
    waker: RefCell<Option<Waker>>,
    sender_gone: Cell<bool>,
    receiver_gone: Cell<bool>,
}

/// The sending end.
pub struct Sender<T>(Rc<Shared<T>>);

/// The receiving end: a future.
pub struct Receiver<T>(Rc<Shared<T>>);

/// Makes a pair.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let s = Rc::new(Shared {
        value: Cell::new(None),
        waker: RefCell::new(None),
        sender_gone: Cell::new(false),
        receiver_gone: Cell::new(false),
    });
    (Sender(Rc::clone(&s)), Receiver(s))
}

impl<T> Sender<T> {
    /// Delivers the value.
    ///
    /// # Errors
    /// Gives the value back if the receiver is gone.
    pub fn send(self, value: T) -> Result<(), T> {
        if self.0.receiver_gone.get() {
            return Err(value);
        }
        self.0.value.set(Some(value));
        Ok(()) // dropping self wakes the receiver
    }

    /// The receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.receiver_gone.get()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.sender_gone.set(true);
        let waker = self.0.waker.borrow_mut().take();
        if let Some(w) = waker {
            w.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The value, if it is there.
    #[must_use]
    pub fn try_recv(&self) -> Option<T> {
        self.0.value.take()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(v) = self.0.value.take() {
            return Poll::Ready(Ok(v));
        }
        if self.0.sender_gone.get() {
            return Poll::Ready(Err(Closed));
        }
        let mut slot = self.0.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|k| k.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
    }
}
