//! Messages between shards: one bounded single-producer queue per ordered pair, published in batches.
//!
//! A message goes to a local backlog first; the flush at the end of the turn moves as many as fit in the peer's queue. Messages
//! that do not fit wait in the backlog (senders are bounded by admission, and the delay is counted).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rtrb::{Consumer, Producer, RingBuffer};

use crate::shard::Shard;
use crate::shared::ShardShared;

/// Entries of each queue.
pub(crate) const DEPTH: usize = 128;

/// A message: run on the receiving shard.
pub(crate) type Msg = Box<dyn FnOnce(&Shard) + Send>;

struct Outbox {
    producer: Option<Producer<Msg>>,
    backlog: VecDeque<Msg>,
    dirty: bool,
    peer: Arc<ShardShared>,
}

/// One shard's ends of all queues.
pub(crate) struct Mail {
    me: usize,
    out: Vec<Outbox>,
    dirty: Vec<usize>,
    inbound: Vec<Consumer<Msg>>,
    local: VecDeque<Msg>,
    /// Peers that slept when the last flush sent them something: the driver wakes them.
    pub(crate) to_wake: Vec<usize>,
    /// Empty; kept for its capacity.
    pub(crate) inbox: Vec<Msg>,
}

/// The numbers of messages that a flush moved to the queues and left in the backlog.
#[derive(Default)]
pub(crate) struct Flushed {
    pub(crate) sent: u64,
    pub(crate) delayed: u64,
}

/// The queues of `n` shards, one `Mail` for each.
pub(crate) fn matrix(shared: &[Arc<ShardShared>]) -> Vec<Mail> {
    let n = shared.len();
    let mut mails: Vec<Mail> = (0..n)
        .map(|me| Mail {
            me,
            out: shared
                .iter()
                .map(|peer| Outbox {
                    producer: None,
                    backlog: VecDeque::new(),
                    dirty: false,
                    peer: Arc::clone(peer),
                })
                .collect(),
            dirty: Vec::new(),
            inbound: Vec::new(),
            local: VecDeque::new(),
            to_wake: Vec::new(),
            inbox: Vec::new(),
        })
        .collect();
    for from in 0..n {
        for to in (0..n).filter(|to| *to != from) {
            let (producer, consumer) = RingBuffer::new(DEPTH);
            mails[from].out[to].producer = Some(producer);
            mails[to].inbound.push(consumer);
        }
    }
    mails
}

impl Mail {
    /// Queues a message. A peer that does not exist is a bug of the caller: the message is dropped and `false` returned.
    pub(crate) fn send(&mut self, to: usize, msg: Msg) -> bool {
        if to == self.me {
            self.local.push_back(msg);
            return true;
        }
        let Some(out) = self.out.get_mut(to) else { return false };
        out.backlog.push_back(msg);
        if !out.dirty {
            out.dirty = true;
            self.dirty.push(to);
        }
        true
    }

    /// Publishes what fits and notes which peers have to be woken.
    pub(crate) fn flush(&mut self) -> Flushed {
        let mut result = Flushed::default();
        if self.dirty.is_empty() {
            return result;
        }
        let dirty = &mut self.dirty;
        let out = &mut self.out;
        for to in dirty.iter() {
            let o = &mut out[*to];
            let Some(p) = &mut o.producer else { continue };
            let n = p.slots().min(o.backlog.len());
            if n > 0
                && let Ok(chunk) = p.write_chunk_uninit(n)
            {
                result.sent += chunk.fill_from_iter(o.backlog.drain(..n)) as u64;
            }
            result.delayed += o.backlog.len() as u64;
        }
        // Between the queues' writes above and the reads of the sleep flags below; its peer is in announce_sleep.
        fence(Ordering::SeqCst);
        let to_wake = &mut self.to_wake;
        dirty.retain(|to| {
            let o = &mut out[*to];
            if o.peer.claim_wake() {
                to_wake.push(*to);
            }
            o.dirty = !o.backlog.is_empty();
            o.dirty
        });
        result
    }

    /// Whether messages wait because a queue is full.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether something arrived.
    pub(crate) fn has_mail(&self) -> bool {
        !self.local.is_empty() || self.inbound.iter().any(|c| !c.is_empty())
    }

    /// Moves everything that has arrived into `into`.
    pub(crate) fn drain_into(&mut self, into: &mut Vec<Msg>) {
        into.extend(self.local.drain(..));
        for c in &mut self.inbound {
            let n = c.slots();
            if n > 0
                && let Ok(chunk) = c.read_chunk(n)
            {
                into.extend(chunk);
            }
        }
    }

    /// Drops what was never sent (shutdown).
    pub(crate) fn clear(&mut self) -> Vec<Msg> {
        let mut all: Vec<Msg> = self.local.drain(..).collect();
        for o in &mut self.out {
            all.extend(o.backlog.drain(..));
        }
        self.drain_into(&mut all);
        all
    }
}
