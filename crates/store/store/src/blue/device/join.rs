//! Awaiting several futures at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future until it is ready, and its output from then on.
type Slot<F> = (Option<Pin<Box<F>>>, Option<<F as Future>::Output>);

/// Drives all futures and gives their outputs in the same order. Meant for a few dozen: each wake-up polls all unfinished ones.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut slots: Vec<Slot<F>> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for (future, output) in &mut slots {
            if let Some(running) = future {
                match running.as_mut().poll(cx) {
                    Poll::Ready(value) => {
                        *output = Some(value);
                        *future = None;
                    }
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    slots.into_iter().filter_map(|(_, output)| output).collect()
}

/// Drives two futures and gives both outputs.
pub(crate) async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut done_a, mut done_b) = (None, None);
    poll_fn(move |cx| {
        if done_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            done_a = Some(output);
        }
        if done_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            done_b = Some(output);
        }
        match (done_a.take(), done_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (left_a, left_b) => {
                (done_a, done_b) = (left_a, left_b);
                Poll::Pending
            }
        }
    })
    .await
}
