//! [`Notify`]: wake tasks that wait for something to change.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct Waiter {
    woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Waiter {
    fn wake(&self) {
        self.woken.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(w) = waker {
            w.wake();
        }
    }
}

/// An edge: `notify_one` wakes the longest waiting task, or is remembered (once) if none waits; `notify_all` wakes
/// those that wait now and remembers nothing.
#[derive(Default)]
pub struct Notify {
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    stored: Cell<bool>,
}

impl Notify {
    /// Nothing stored, nobody waiting.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes one waiter, or lets the next `notified` return at once.
    pub fn notify_one(&self) {
        let waiter = self.waiters.borrow_mut().pop_front();
        match waiter {
            Some(w) => w.wake(),
            None => self.stored.set(true),
        }
    }

    /// Wakes all tasks that wait now.
    #[inline]
    pub fn notify_all(&self) {
        if self.waiting() == 0 {
            return; // most often
        }
        let all = std::mem::take(&mut *self.waiters.borrow_mut());
        for w in all {
            w.wake();
        }
    }

    /// Tasks that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Waits for a notification. Registered when first polled.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, waiter: None }
    }
}

/// Future of [`Notify::notified`].
pub struct Notified<'a> {
    notify: &'a Notify,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &self.waiter {
            None => {
                if self.notify.stored.replace(false) {
                    return Poll::Ready(());
                }
                let w = Rc::new(Waiter::default());
                *w.waker.borrow_mut() = Some(cx.waker().clone());
                self.notify.waiters.borrow_mut().push_back(Rc::clone(&w));
                self.waiter = Some(w);
                Poll::Pending
            }
            Some(w) if w.woken.get() => {
                self.waiter = None;
                Poll::Ready(())
            }
            Some(w) => {
                let mut slot = w.waker.borrow_mut();
                if !slot.as_ref().is_some_and(|k| k.will_wake(cx.waker())) {
                    *slot = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(w) = self.waiter.take() else { return };
        if w.woken.get() {
            // Woken by notify_one or notify_all but never told: pass it on rather than lose it.
            self.notify.notify_one();
        } else {
            self.notify.waiters.borrow_mut().retain(|x| !Rc::ptr_eq(x, &w));
        }
    }
}
