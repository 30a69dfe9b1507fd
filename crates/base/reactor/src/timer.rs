//! Timers of a shard: an ordered map, so that a cancelled timer leaves nothing behind.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::op::WakeTarget;
use crate::shard::Shard;

type Key = (u64, u64);

/// The timers that have not fired.
#[derive(Default)]
pub(crate) struct Timers {
    map: BTreeMap<Key, WakeTarget>,
    seq: u64,
}

impl Timers {
    /// When the next one fires, in nanoseconds of the shard's clock.
    pub(crate) fn next(&self) -> Option<u64> {
        self.map.first_key_value().map(|(k, _)| k.0)
    }

    /// Takes one timer that is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<WakeTarget> {
        if self.next()? > now_ns {
            return None;
        }
        self.map.pop_first().map(|(_, t)| t)
    }
}

/// Future of [`Shard::sleep`].
pub(crate) struct Sleep {
    shard: Shard,
    deadline_ns: u64,
    key: Option<Key>,
}

impl Sleep {
    pub(crate) fn new(shard: Shard, deadline_ns: u64) -> Sleep {
        Sleep { shard, deadline_ns, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let target = self.shard.wake_target(cx);
        let mut timers = self.shard.inner().timers.borrow_mut();
        match self.key {
            None => {
                if self.shard.inner().turn_now.get() >= self.deadline_ns {
                    return Poll::Ready(());
                }
                timers.seq += 1;
                let key = (self.deadline_ns, timers.seq);
                timers.map.insert(key, target);
                drop(timers);
                self.key = Some(key);
                Poll::Pending
            }
            Some(key) => match timers.map.get_mut(&key) {
                Some(slot) => {
                    *slot = target;
                    Poll::Pending
                }
                None => {
                    drop(timers);
                    self.key = None;
                    self.deadline_ns = 0;
                    Poll::Ready(())
                }
            },
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let timer = self.shard.inner().timers.borrow_mut().map.remove(&key);
            drop(timer);
        }
    }
}
