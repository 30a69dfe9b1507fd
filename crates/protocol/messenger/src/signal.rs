//! A wake-up for one waiting task of the same shard.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Remembers one firing; the next [`Signal::wait`] takes it. At most one task waits at a time.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    pub(crate) fn new() -> Signal {
        Signal::default()
    }

    /// Wakes the waiting task, or lets the next wait return at once.
    pub(crate) fn fire(&self) {
        self.fired.set(true);
        // Taken out first: waking must not meet the cell borrowed.
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Resolves once the signal has been fired since the last wait.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if self.fired.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
