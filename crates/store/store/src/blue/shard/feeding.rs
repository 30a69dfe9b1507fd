//! What happens to groups that are durable in the log: deferred blocks are written to their places, the key-value store is
//! fed, and the objects may leave the cache.

use std::time::Duration;

use carmine_reactor::Group as SchedulingGroup;
use carmine_types::FlushMode;
use smallvec::SmallVec;

use crate::blue::device::join::join_all;
use crate::blue::objects::onode::Pin;
use crate::blue::objects::reads::Freed;
use crate::blue::shard::Blue;
use crate::blue::shard::commit_log::FeedGroup;
use crate::blue::shard::queue::{Deferred, DeviceWrites};
use crate::kv::{KvBatch, KvError};
use crate::{BLOCK_BYTES, StoreError};

/// Bytes that are fed at once, without waiting for more: what is written again within so much is never written to the
/// key-value store.
const FEED_BYTES: usize = 1 << 20;
/// Time that less than that waits.
const FEED_DELAY: Duration = Duration::from_millis(20);
/// Bytes that a shard holds back at most for the key-value store to take; then new transactions wait.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Deferred writes in flight.
const PARALLEL: usize = 64;

/// A group that is durable in the log and that the feeder was not given.
pub(crate) struct Unfed {
    seq: u64,
    batches: Vec<KvBatch>,
    deferred: Vec<Deferred>,
    held: Handed,
}

/// What is kept for a group until the key-value store contains it.
pub(crate) struct Handed {
    seq: u64,
    txns: u64,
    bytes: usize,
    /// The objects cannot be loaded from there yet, so they stay in the cache, …
    pins: Vec<Pin>,
    /// … and listings need to know of them.
    existence: Vec<Box<[u8]>>,
}

impl Unfed {
    pub(crate) fn new(seq: u64) -> Unfed {
        let held = Handed { seq, txns: 0, bytes: 0, pins: Vec::new(), existence: Vec::new() };
        Unfed { seq, batches: Vec::new(), deferred: Vec::new(), held }
    }

    /// Adds a transaction, of so many bytes in the log.
    pub(crate) fn push(
        &mut self,
        batch: KvBatch,
        deferred: Deferred,
        pins: SmallVec<[Pin; 1]>,
        existence: Vec<Box<[u8]>>,
        bytes: usize,
    ) {
        self.batches.push(batch);
        if !deferred.writes.is_empty() {
            self.deferred.push(deferred);
        }
        self.held.pins.extend(pins);
        self.held.existence.extend(existence);
        self.held.txns += 1;
        self.held.bytes += bytes;
    }
}

impl Blue {
    /// Feeds a group in a moment, or with those before it now if they are many.
    pub(crate) fn feed_later(&self, group: Unfed) {
        let mut queue = self.queue.borrow_mut();
        queue.unfed.push_back(group);
        let many = queue.unfed.iter().map(|group| group.held.bytes).sum::<usize>() >= FEED_BYTES;
        let wait = !many && !queue.feeding && !queue.feed_waits;
        queue.feed_waits |= wait;
        drop(queue);
        if many {
            self.start_feeding();
        } else if wait && let Some(store) = self.rc() {
            self.shard.spawn(SchedulingGroup::Client, "blue-feed-later", async move {
                store.shard.sleep(FEED_DELAY).await;
                store.queue.borrow_mut().feed_waits = false;
                store.start_feeding();
            });
        }
    }

    /// Hands all durable groups to the feeder.
    pub(crate) fn start_feeding(&self) {
        let mut queue = self.queue.borrow_mut();
        if queue.unfed.is_empty() || std::mem::replace(&mut queue.feeding, true) {
            return;
        }
        drop(queue);
        let Some(store) = self.rc() else { return };
        self.shard.spawn(SchedulingGroup::Client, "blue-feed", async move {
            store.run_feed().await;
            store.queue.borrow_mut().feeding = false;
        });
    }

    async fn run_feed(&self) {
        while !self.has_failed() {
            let mut groups = std::mem::take(&mut self.queue.borrow_mut().unfed);
            if groups.is_empty() {
                return;
            }
            let deferred = groups.iter_mut().flat_map(|group| std::mem::take(&mut group.deferred)).collect();
            // What the key-value store contains is not replayed, so all of it has to be in its place before.
            if self.write_deferred(deferred).await.is_err() {
                return;
            }
            for group in groups {
                let Unfed { seq, batches, held, .. } = group;
                self.queue.borrow_mut().handed.push_back(held);
                let seq = seq + u64::from(cfg!(carmine_mutation = "feed_ahead"));
                let group = FeedGroup { shard: self.shard.id(), seq, batches };
                self.shared.log().feed(&self.shard, self.shared.instance(), group);
            }
        }
    }

    /// Writes blocks that only the log has to their places, and makes that durable. A failure stops the store.
    async fn write_deferred(&self, deferred: Vec<Deferred>) -> Result<(), StoreError> {
        if deferred.is_empty() {
            return Ok(());
        }
        let (mut writes, mut written) = (Vec::new(), Vec::new());
        for part in deferred {
            let queue = self.queue.borrow();
            let dead = |block: u64| queue.deferred.get(&block) == Some(&true);
            let wanted = |blocks: u64, count: u64| !(blocks..blocks + count).all(dead);
            writes.extend(part.writes.0.into_iter().filter(|write| wanted(write.block, write.blocks)));
            written.extend(part.written);
        }
        self.count(|stats| {
            stats.deferred_writes += writes.len() as u64;
            stats.device_writes += writes.len() as u64;
            stats.device_write_bytes += writes.iter().map(|write| write.blocks * BLOCK_BYTES).sum::<u64>();
        });
        let any = !writes.is_empty();
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let part: Vec<_> = writes.by_ref().take(PARALLEL).collect();
            let part =
                part.into_iter().map(|write| self.write(DeviceWrites([write].into_iter().collect()), false));
            let result: std::io::Result<()> = join_all(part).await.into_iter().collect();
            if let Err(error) = result {
                let error = StoreError::io(format!("write to {}", self.shared.path().display()), &error);
                self.fail(error.clone());
                return Err(error);
            }
        }
        if any && self.shared.flush_mode() != FlushMode::None {
            self.flush_device().await?;
        }
        let mut free = Freed::new();
        for (onode, blocks) in written {
            for block in blocks {
                onode.written(block);
                if self.queue.borrow_mut().deferred.remove(&block) == Some(true) {
                    free.push(block);
                }
            }
        }
        self.release(free);
        Ok(())
    }

    /// From now on these blocks are written late.
    pub(crate) fn note_deferred(&self, deferred: &Deferred) {
        let mut queue = self.queue.borrow_mut();
        for write in &deferred.writes.0 {
            queue.deferred.extend((write.block..write.block + write.blocks).map(|block| (block, false)));
        }
    }

    /// Keeps those of the freed blocks back that are still to be written.
    pub(crate) fn hold_deferred(&self, mut freed: Freed) -> Freed {
        let mut queue = self.queue.borrow_mut();
        if !queue.deferred.is_empty() {
            freed.retain(|block| match queue.deferred.get_mut(block) {
                Some(dead) => {
                    *dead = true;
                    false
                }
                None => true,
            });
        }
        freed
    }

    /// The key-value store contains the groups up to `seq`.
    pub(crate) fn fed(&self, seq: u64, result: &Result<(), KvError>) {
        if let Err(error) = result {
            return self.fail(StoreError::Kv(error.clone()));
        }
        let durable = self.queue.borrow().durable_seq;
        assert!(
            seq <= durable,
            "the index contains group {seq}, and the log is durable up to {durable} only"
        );
        loop {
            let group = self.queue.borrow_mut().handed.pop_front_if(|group| group.seq <= seq);
            let Some(group) = group else { break };
            self.settle_existence(group.existence);
            drop(group.pins);
            let mut queue = self.queue.borrow_mut();
            queue.fed += group.txns;
            queue.held_bytes -= group.bytes;
        }
        if self.queue.borrow().is_idle() {
            self.mark_soon();
        }
        self.progress.notify_all();
    }

    /// The groups up to `seq` are durable in the key-value store: the log need not keep them.
    pub(crate) fn trimmed(&self, seq: u64, result: &Result<(), KvError>) {
        match result {
            Ok(()) => self.queue.borrow_mut().lane.trim(seq, self.shared.log().space()),
            Err(error) => self.fail(StoreError::Kv(error.clone())),
        }
    }

    pub(crate) fn settle_existence(&self, changed: Vec<Box<[u8]>>) {
        let mut existence = self.existence.borrow_mut();
        for key in changed {
            if let Some(entry) = existence.get_mut(&key) {
                entry.transactions -= 1;
                if entry.transactions == 0 {
                    existence.remove(&key);
                }
            }
        }
    }

    /// Waits until the key-value store contains everything submitted so far.
    pub(crate) async fn feed_all(&self) -> Result<(), StoreError> {
        self.sync().await?;
        let until = self.queue.borrow().base;
        self.start_feeding();
        self.wait_until(|queue| queue.fed >= until).await
    }

    /// Waits while too much is held back.
    pub(crate) async fn wait_for_room(&self) -> Result<(), StoreError> {
        if self.queue.borrow().held_bytes <= HELD_BYTES_MAX {
            return Ok(());
        }
        self.count(|stats| stats.held_back += 1);
        self.start_feeding();
        Box::pin(self.wait_until(|queue| queue.held_bytes <= HELD_BYTES_MAX)).await
    }
}
