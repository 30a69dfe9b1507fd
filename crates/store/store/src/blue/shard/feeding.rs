//! What happens to changes that are durable in the log: deferred blocks are written to their places, the key-value store is fed
//! with whole windows of changes (window.rs), and then the objects may leave the cache.

use std::time::Duration;

use carmine_reactor::Group as SchedulingGroup;
use carmine_types::{FlushMode, is_mutated};

use crate::blue::device::join::join_all;
use crate::blue::objects::onode::Pin;
use crate::blue::objects::reads::Freed;
use crate::blue::shard::commit_log::FeedGroup;
use crate::blue::shard::queue::{Deferred, DeviceWrites};
use crate::blue::shard::window::Changes;
use crate::blue::shard::{Blue, is_nearly_full};
use crate::kv::KvError;
use crate::{BLOCK_BYTES, StoreError};

/// Number of deferred blocks that triggers writing them to their places: blocks overwritten before that are never written there.
const PLACE_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES;
/// Time without a durable group after which fewer are written, and after which a lane records what is durable.
const REST_DELAY: Duration = Duration::from_millis(20);
/// Most bytes that a shard holds because the log or the key-value store lacks them; beyond that new transactions wait.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Deferred writes in flight.
const PARALLEL: usize = 64;
/// Keys encoded at once, about; then other tasks run.
const ENCODE_KEYS: usize = 128;

/// The part of a window that is kept until the key-value store contains it.
pub(crate) struct Handed {
    number: u64,
    /// Its last group.
    seq: u64,
    /// The first transaction after it.
    end: u64,
    bytes: usize,
    /// Its objects cannot be loaded from the key-value store yet, so they stay in the cache, …
    objects: Vec<Pin>,
    /// … and listings need to know which exist.
    existence: Vec<Box<[u8]>>,
}

impl Blue {
    /// Groups up to `seq` are durable: feeds them at once if they are many or end a window, else after a delay.
    pub(crate) fn feed_later(&self, seq: u64) {
        let mut queue = self.queue.borrow_mut();
        let base = queue.base;
        let now = queue.windows.note_durable(base, seq) || queue.unplaced_blocks >= PLACE_BLOCKS;
        let wait = !std::mem::replace(&mut queue.rest_waits, true);
        drop(queue);
        if now {
            self.start_feeding();
        }
        if wait && let Some(store) = self.rc() {
            self.shard.spawn(
                SchedulingGroup::Client,
                "blue-rest",
                async move { store.wait_for_rest(seq).await },
            );
        }
    }

    /// Watches the lane until no group has become durable for a while, and then feeds; `seq` is the last durable one.
    async fn wait_for_rest(&self, mut seq: u64) {
        loop {
            self.shard.sleep(REST_DELAY).await;
            // The unmount has done everything, and the next mount may use the lane.
            if self.closed.get() {
                return;
            }
            let (last, empty) = {
                let mut queue = self.queue.borrow_mut();
                queue.rest_waits = queue.durable_seq > seq;
                (std::mem::replace(&mut seq, queue.durable_seq), queue.records.is_empty())
            };
            if empty {
                self.mark_soon();
            }
            self.witness().await;
            // The next commit may be far off.
            self.shared.log().measure_room_soon(&self.shard);
            if last == seq {
                // Space of removed keys is freed only when the key-value store has the removals.
                if is_nearly_full(self.shared.statfs()) {
                    return self.feed_now();
                }
                return self.start_feeding();
            }
        }
    }

    /// Feeds the key-value store with everything submitted so far, as soon as it is durable.
    pub(crate) fn feed_now(&self) {
        self.queue.borrow_mut().close_window();
        self.start_feeding();
    }

    /// Writes deferred blocks, and hands durable windows to the feeder.
    pub(crate) fn start_feeding(&self) {
        let mut queue = self.queue.borrow_mut();
        let any = !queue.unplaced.is_empty() || queue.windows.feedable(queue.durable_seq).is_some();
        if !any || std::mem::replace(&mut queue.feeding, true) {
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
            let (deferred, durable) = {
                let mut queue = self.queue.borrow_mut();
                queue.unplaced_blocks = 0;
                (std::mem::take(&mut queue.unplaced), queue.durable_seq)
            };
            let idle = deferred.is_empty();
            // A replay skips changes that the key-value store contains, so their data must be in place first.
            if self.write_deferred(deferred).await.is_err() || self.has_failed() {
                return;
            }
            let window = self.queue.borrow().windows.feedable(durable);
            match window {
                Some((number, seq)) => self.feed_window(number, seq).await,
                None if idle => return,
                None => {}
            }
        }
    }

    /// Hands the oldest window to the feeder; group `seq` is the last of it.
    async fn feed_window(&self, number: u64, seq: u64) {
        self.encode_window(number).await;
        let Some((end, changes)) = self.queue.borrow_mut().windows.pop() else { return };
        let Changes { batch, objects, existence, bytes } = changes;
        self.queue.borrow_mut().handed.push_back(Handed { number, seq, end, bytes, objects, existence });
        let seq = seq + u64::from(is_mutated("feed_ahead"));
        let group = FeedGroup { shard: self.shard.id(), seq, batch };
        self.shared.log().feed(&self.shard, self.shared.instance(), group);
    }

    /// Encodes the objects of a closed window, a few at a time.
    pub(crate) async fn encode_window(&self, number: u64) {
        let mut at = 0;
        loop {
            let next = self.queue.borrow_mut().windows.encode(number, at, ENCODE_KEYS);
            match next {
                Some(next) => at = next,
                None => return,
            }
            self.shard.yield_now().await;
        }
    }

    /// Writes deferred blocks to their places, and makes that durable. A failure stops the store.
    async fn write_deferred(&self, deferred: Vec<Deferred>) -> Result<(), StoreError> {
        if deferred.is_empty() {
            return Ok(());
        }
        let (mut writes, mut written, mut bytes) = (Vec::new(), Vec::new(), 0);
        for part in deferred {
            bytes += part.held_bytes();
            let queue = self.queue.borrow();
            let dead = |block: u64| queue.deferred.get(&block) == Some(&true);
            let wanted = |blocks: u64, count: u64| !(blocks..blocks + count).all(dead);
            writes.extend(part.writes.0.into_iter().filter(|write| wanted(write.block, write.blocks)));
            written.extend(part.written);
        }
        let writes = DeviceWrites::joined(writes).0;
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
                onode.note_written(block);
                if self.queue.borrow_mut().deferred.remove(&block) == Some(true) {
                    free.push(block);
                }
            }
        }
        self.free_when_unread(free);
        self.queue.borrow_mut().held_bytes -= bytes;
        Ok(())
    }

    /// Notes deferred blocks, which only the log has for now.
    pub(crate) fn note_deferred(&self, deferred: Deferred) {
        if deferred.writes.is_empty() {
            return;
        }
        let mut queue = self.queue.borrow_mut();
        for write in &deferred.writes.0 {
            queue.deferred.extend((write.block..write.block + write.blocks).map(|block| (block, false)));
        }
        queue.held_bytes += deferred.held_bytes();
        queue.unplaced_blocks += deferred.writes.blocks();
        queue.unplaced.push(deferred);
    }

    /// Holds freed blocks back that are still to be written to their places; returns the others.
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

    /// Notes that the key-value store contains the groups up to `seq`, or has failed.
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
            let window = self.queue.borrow_mut().handed.pop_front_if(|window| window.seq <= seq);
            let Some(window) = window else { break };
            self.settle_existence(window.existence);
            settle_omaps(&window.objects, window.number);
            drop(window.objects);
            let mut queue = self.queue.borrow_mut();
            queue.fed = window.end;
            queue.held_bytes -= window.bytes;
        }
        self.progress.notify_all();
    }

    /// Trims the groups up to `seq`, which are durable in the key-value store, from the log.
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
        self.feed_now();
        self.wait_until(|queue| queue.fed >= until).await
    }

    /// Whether what the shard holds is within the limit.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.borrow().held_bytes <= HELD_BYTES_MAX
    }

    /// Waits while the shard holds too much.
    pub(crate) async fn wait_for_room(&self) -> Result<(), StoreError> {
        if self.has_room() {
            return Ok(());
        }
        self.count(|stats| stats.held_back += 1);
        self.feed_now();
        Box::pin(self.wait_until(|queue| queue.held_bytes <= HELD_BYTES_MAX)).await
    }
}

/// Drops a window's omap changes from its objects, since the key-value store has them.
pub(crate) fn settle_omaps(objects: &[Pin], window: u64) {
    for object in objects {
        object.state.borrow_mut().omap.drop_indexed(window);
    }
}
