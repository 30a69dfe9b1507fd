//! Runs a few futures at the same time in one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs `work` on all items, at most `limit` at a time. The first error ends it and drops the futures in flight.
pub(crate) async fn for_each<T, E, F>(
    limit: usize,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> F,
) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    let mut items = items.into_iter();
    let mut running: Vec<Pin<Box<F>>> = Vec::with_capacity(limit);
    poll_fn(|cx| {
        loop {
            while running.len() < limit.max(1) {
                let Some(item) = items.next() else { break };
                running.push(Box::pin(work(item)));
            }
            let before = running.len();
            let mut failed = None;
            running.retain_mut(|future| match future.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    failed = failed.take().or(result.err());
                    false
                }
            });
            if let Some(error) = failed {
                return Poll::Ready(Err(error));
            }
            if running.is_empty() && before == 0 {
                return Poll::Ready(Ok(()));
            }
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Waker};

    use super::*;

    /// Ready at its second poll.
    async fn pause() {
        let mut polled = false;
        poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn finish<R>(future: impl Future<Output = R>) -> R {
        let mut future = std::pin::pin!(future);
        for _ in 0..100 {
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return result;
            }
        }
        panic!("never ready");
    }

    #[test]
    fn runs_all_and_never_too_many() {
        let (running, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let work = |_| async {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            pause().await;
            running.set(running.get() - 1);
            done.set(done.get() + 1);
            Ok::<(), ()>(())
        };
        assert_eq!(finish(for_each(3, 0..10, work)), Ok(()));
        assert_eq!((most.get(), done.get()), (3, 10));
        assert_eq!(finish(for_each(3, 0..0, work)), Ok(()));
    }

    #[test]
    fn the_first_error_ends_it() {
        let started = Cell::new(0);
        let work = |n: u32| {
            started.set(started.get() + 1);
            async move { if n == 2 { Err(n) } else { Ok(()) } }
        };
        assert_eq!(finish(for_each(1, 0..10, work)), Err(2));
        assert_eq!(started.get(), 3);
    }
}
