//! [`Commit`]: the promise that a transaction will be durable.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use carmine_reactor::sync::oneshot;

use crate::StoreError;

/// Resolves when its transaction is durable, or with the reason why it never will be. Dropping it changes nothing
/// about the transaction.
#[must_use = "a transaction is durable only when its Commit says so"]
pub struct Commit(State);

enum State {
    Ready(Option<Result<(), StoreError>>),
    Pending(oneshot::Receiver<Result<(), StoreError>>),
}

impl Commit {
    /// The result, if it is known without waiting.
    #[must_use]
    pub fn peek(&self) -> Option<Result<(), StoreError>> {
        match &self.0 {
            State::Ready(result) => result.clone(),
            State::Pending(_) => None,
        }
    }

    /// Already decided.
    pub(crate) fn ready(result: Result<(), StoreError>) -> Commit {
        Commit(State::Ready(Some(result)))
    }

    pub(crate) fn pending(receiver: oneshot::Receiver<Result<(), StoreError>>) -> Commit {
        Commit(State::Pending(receiver))
    }
}

impl Future for Commit {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(result) => Poll::Ready(result.take().unwrap_or(Ok(()))),
            State::Pending(receiver) => {
                let result = ready!(Pin::new(receiver).poll(cx));
                Poll::Ready(result.unwrap_or_else(|_| Err(StoreError::failed("the store was closed"))))
            }
        }
    }
}
