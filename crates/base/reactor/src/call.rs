//! Round trips to other threads: a table of waiting callers, and their future.
//!
//! The answer is a boxed value; the slot stays in use until the answer has arrived, even if the caller is gone.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::op::WakeTarget;
use crate::shard::Shard;

#[derive(Default)]
struct Slot {
    value: Option<Box<dyn Any + Send>>,
    target: WakeTarget,
    orphan: bool,
}

/// The waiting callers of a shard.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Calls {
    fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        })
    }

    fn release(&mut self, index: u32) {
        self.slots[index as usize] = Slot::default();
        self.free.push(index);
    }

    /// Stores an answer; returns whom to wake, and what to drop once no borrow is held.
    pub(crate) fn complete(
        &mut self,
        index: u32,
        value: Box<dyn Any + Send>,
    ) -> (WakeTarget, Option<Box<dyn Any + Send>>) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return (WakeTarget::Nobody, Some(value)) };
        if slot.orphan {
            self.release(index);
            return (WakeTarget::Nobody, Some(value));
        }
        slot.value = Some(value);
        (std::mem::take(&mut slot.target), None)
    }
}

/// Waits for the answer of another thread.
pub(crate) struct CallFuture<R> {
    shard: Shard,
    index: Option<u32>,
    _answer: PhantomData<fn() -> R>,
}

impl<R: Send + 'static> CallFuture<R> {
    /// Allocates a slot.
    pub(crate) fn new(shard: &Shard) -> CallFuture<R> {
        let index = shard.inner().calls.borrow_mut().add();
        CallFuture { shard: shard.clone(), index: Some(index), _answer: PhantomData }
    }

    /// The slot that the answer must name.
    pub(crate) fn slot(&self) -> u32 {
        self.index.unwrap_or(u32::MAX)
    }
}

impl<R: Send + 'static> Future for CallFuture<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let Some(index) = self.index else { return Poll::Pending };
        let mut calls = self.shard.inner().calls.borrow_mut();
        let slot = &mut calls.slots[index as usize];
        let Some(value) = slot.value.take() else {
            slot.target = self.shard.wake_target(cx);
            return Poll::Pending;
        };
        calls.release(index);
        drop(calls);
        self.index = None;
        match value.downcast::<R>() {
            Ok(v) => Poll::Ready(*v),
            // The slot number travels with the closure that makes an R, so this cannot happen; waiting is harmless.
            Err(_) => Poll::Pending,
        }
    }
}

impl<R> Drop for CallFuture<R> {
    fn drop(&mut self) {
        let Some(index) = self.index.take() else { return };
        let mut calls = self.shard.inner().calls.borrow_mut();
        let slot = &mut calls.slots[index as usize];
        slot.target = WakeTarget::Nobody;
        let value = slot.value.take();
        if value.is_some() {
            calls.release(index);
        } else {
            slot.orphan = true;
        }
        drop(calls);
        drop(value);
    }
}
