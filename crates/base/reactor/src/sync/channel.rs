//! A queue between tasks of the same shard. It has no bound of its own: [`Sender::len`] is there for whoever admits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct State<T> {
    queue: RefCell<VecDeque<T>>,
    waker: RefCell<Option<Waker>>,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
}

impl<T> State<T> {
    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(w) = waker {
            w.wake();
        }
    }
}

/// A sending end; clones share the queue.
pub struct Sender<T>(Rc<State<T>>);

/// The receiving end.
pub struct Receiver<T>(Rc<State<T>>);

/// Makes a pair.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let s = Rc::new(State {
        queue: RefCell::new(VecDeque::new()),
        waker: RefCell::new(None),
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
    });
    (Sender(Rc::clone(&s)), Receiver(s))
}

impl<T> Sender<T> {
    /// Appends a value.
    ///
    /// # Errors
    /// Gives the value back if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), T> {
        if self.0.receiver_gone.get() {
            return Err(value);
        }
        self.0.queue.borrow_mut().push_back(value);
        self.0.wake();
        Ok(())
    }

    /// Values that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.queue.borrow().len()
    }

    /// No value waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.receiver_gone.get()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The next value; `None` when all senders are gone and the queue is empty.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(v) = self.try_recv() {
                return Poll::Ready(Some(v));
            }
            if self.0.senders.get() == 0 {
                return Poll::Ready(None);
            }
            let mut slot = self.0.waker.borrow_mut();
            if !slot.as_ref().is_some_and(|k| k.will_wake(cx.waker())) {
                *slot = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// The next value, if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.queue.borrow_mut().pop_front()
    }

    /// Values that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.queue.borrow().len()
    }

    /// No value waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        let left = std::mem::take(&mut *self.0.queue.borrow_mut());
        drop(left);
    }
}
