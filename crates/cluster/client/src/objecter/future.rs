//! Waiting for an operation.

use super::Objecter;
use super::op::Reply;
use crate::error::{ClientError, Result};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Resolves with the operation's outcome. Dropping it gives the operation up: a reply that still comes is ignored (a write
/// may happen all the same).
pub(super) struct InFlight {
    pub(super) objecter: Rc<Objecter>,
    pub(super) tid: u64,
}

impl Future for InFlight {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let mut table = self.objecter.table.borrow_mut();
        // Polled again after its end, or taken out by a shutdown.
        let Some(op) = table.get(self.tid) else { return Poll::Ready(Err(ClientError::Closed)) };
        if let Some(outcome) = op.outcome.take() {
            let done = table.remove(self.tid);
            drop(table);
            drop(done);
            return Poll::Ready(outcome);
        }
        if !op.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            op.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // The permits inside wake whoever waits for them: not while the table is borrowed.
        let given_up = self.objecter.table.borrow_mut().remove(self.tid);
        drop(given_up);
    }
}
