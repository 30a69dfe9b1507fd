//! [`Semaphore`]: admission by weight, in order of arrival.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Waiter {
    want: usize,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct Shared {
    /// Below zero while more permits are held than exist, after a [`Semaphore::resize`].
    available: Cell<isize>,
    capacity: Cell<usize>,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
}

impl Shared {
    fn release(&self, n: usize) {
        self.available.set(self.available.get().saturating_add_unsigned(n));
        self.grant();
    }

    /// Whether `n` permits are free. A weight asked for before a [`Semaphore::resize`] may exceed the capacity:
    /// all permits are enough for it.
    fn has(&self, n: usize) -> bool {
        let available = self.available.get();
        let wanted = n.min(self.capacity.get());
        usize::try_from(available).is_ok_and(|available| available >= wanted)
    }

    fn claim(&self, n: usize) {
        self.available.set(self.available.get().saturating_sub_unsigned(n));
    }

    /// Serves waiters from the front while enough permits are free.
    fn grant(&self) {
        loop {
            let next = {
                let mut waiters = self.waiters.borrow_mut();
                match waiters.front() {
                    Some(w) if self.has(w.want) => waiters.pop_front(),
                    _ => None,
                }
            };
            let Some(w) = next else { return };
            self.claim(w.want);
            w.granted.set(true);
            let waker = w.waker.borrow_mut().take();
            if let Some(k) = waker {
                k.wake();
            }
        }
    }
}

/// Counts permits (ops, bytes); clones share them. Waiters are served strictly in order of arrival, so a heavy one is
/// not starved by light ones.
#[derive(Clone)]
pub struct Semaphore(Rc<Shared>);

impl Semaphore {
    /// A semaphore with `permits` permits, which is also its capacity.
    #[must_use]
    pub fn new(permits: usize) -> Semaphore {
        Semaphore(Rc::new(Shared {
            available: Cell::new(isize::try_from(permits).unwrap_or(isize::MAX)),
            capacity: Cell::new(permits),
            waiters: RefCell::new(VecDeque::new()),
        }))
    }

    /// Permits that are free.
    #[must_use]
    pub fn available(&self) -> usize {
        usize::try_from(self.0.available.get()).unwrap_or(0)
    }

    /// Permits that exist.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity.get()
    }

    /// Changes how many permits exist. Held permits stay with their holders: after a reduction none is granted until enough were
    /// returned.
    pub fn resize(&self, permits: usize) {
        let before = self.0.capacity.replace(permits);
        self.0.claim(before);
        self.0.release(permits);
    }

    /// Tasks that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiters.borrow().len()
    }

    /// `n` permits, when nobody waits and they are free. A weight above the capacity counts as the capacity.
    #[must_use]
    pub fn try_acquire(&self, n: usize) -> Option<Permit> {
        let n = n.min(self.0.capacity.get());
        if !self.0.waiters.borrow().is_empty() || !self.0.has(n) {
            return None;
        }
        self.0.claim(n);
        Some(Permit { state: Rc::clone(&self.0), n })
    }

    /// Waits for `n` permits. A weight above the capacity counts as the capacity (it then runs alone).
    pub fn acquire(&self, n: usize) -> Acquire {
        Acquire { state: Rc::clone(&self.0), want: n.min(self.0.capacity.get()), waiter: None }
    }
}

/// Future of [`Semaphore::acquire`].
pub struct Acquire {
    state: Rc<Shared>,
    want: usize,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        match &self.waiter {
            Some(w) if w.granted.get() => {
                self.waiter = None;
                return Poll::Ready(Permit { state: Rc::clone(&self.state), n: self.want });
            }
            Some(w) => {
                let mut slot = w.waker.borrow_mut();
                if !slot.as_ref().is_some_and(|k| k.will_wake(cx.waker())) {
                    *slot = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            None => {}
        }
        if self.state.waiters.borrow().is_empty() && self.state.has(self.want) {
            self.state.claim(self.want);
            return Poll::Ready(Permit { state: Rc::clone(&self.state), n: self.want });
        }
        let w = Rc::new(Waiter {
            want: self.want,
            granted: Cell::new(false),
            waker: RefCell::new(Some(cx.waker().clone())),
        });
        self.state.waiters.borrow_mut().push_back(Rc::clone(&w));
        self.waiter = Some(w);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(w) = self.waiter.take() else { return };
        if w.granted.get() {
            self.state.release(w.want);
        } else {
            self.state.waiters.borrow_mut().retain(|x| !Rc::ptr_eq(x, &w));
            // It may have been the one that held back lighter waiters.
            self.state.grant();
        }
    }
}

/// Permits that go back when this is dropped.
pub struct Permit {
    state: Rc<Shared>,
    n: usize,
}

impl Permit {
    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.n
    }

    /// Gives `n` of them back at once.
    pub fn release(&mut self, n: usize) {
        let n = n.min(self.n);
        self.n -= n;
        self.state.release(n);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.n > 0 {
            self.state.release(self.n);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({})", self.n)
    }
}
