//! Transactions on their way to durability: data, flush, commit, in the order of submission.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Group as SchedulingGroup};
use smallvec::SmallVec;

use super::commit_log::Group;
use super::join::join_all;
use super::onode::{Onode, Pin};
use super::reads::Freed;
use super::{Blue, IO_BLOCKS_MAX};
use crate::kv::{KvBatch, KvError};
use crate::{BLOCK_BYTES, StoreError};

/// Gathered pieces of one write at most (the kernel takes 1024).
const PIECES_MAX: usize = 256;

/// One write of the device.
pub(crate) struct DeviceWrite {
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    pub(crate) data: Vec<Bytes>,
}

/// The writes of a transaction; neighbours on the device become one.
#[derive(Default)]
pub(crate) struct DeviceWrites(SmallVec<[DeviceWrite; 1]>);

impl DeviceWrites {
    /// Adds whole blocks.
    pub(crate) fn push(&mut self, block: u64, data: Bytes) {
        let blocks = data.len() as u64 / BLOCK_BYTES;
        if block == 0 {
            return; // the label; see `Work::take`
        }
        match self.0.last_mut() {
            Some(last)
                if last.block + last.blocks == block
                    && last.blocks + blocks <= IO_BLOCKS_MAX
                    && last.data.len() < PIECES_MAX =>
            {
                last.blocks += blocks;
                last.data.push(data);
            }
            _ => self.0.push(DeviceWrite { block, blocks, data: vec![data] }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Blocks that a transaction wrote of one object.
pub(crate) type Written = SmallVec<[(Rc<Onode>, SmallVec<[u64; 2]>); 1]>;

/// A transaction that is not durable yet.
pub(crate) struct Record {
    /// Its metadata, until it goes to the committer.
    pub(crate) batch: KvBatch,
    /// Its data is on the device (in its cache).
    pub(crate) written: bool,
    /// The flush that makes its data durable.
    pub(crate) flush: u64,
    /// Blocks that nothing points to once it is durable.
    pub(crate) freed: Freed,
    pub(crate) pins: SmallVec<[Pin; 1]>,
    /// Objects that it created or removed.
    pub(crate) existence: Vec<Box<[u8]>>,
    pub(crate) reply: oneshot::Sender<Result<(), StoreError>>,
}

/// The transactions of a shard that are not durable, oldest first: handed to the committer, then those that are not.
#[derive(Default)]
pub(crate) struct Queue {
    records: VecDeque<Record>,
    /// Number of the first record.
    base: u64,
    /// Number of the first record that is not handed to the committer.
    handed: u64,
    /// Number of the last flush that was begun, …
    flush_begun: u64,
    /// … that is complete, …
    flush_done: u64,
    /// … and that somebody waits for.
    flush_wanted: u64,
    /// A task is there that will begin a flush, or has begun one.
    flushing: bool,
}

impl Queue {
    /// Transactions that are not durable.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    fn next(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    fn push(&mut self, record: Record) -> u64 {
        self.records.push_back(record);
        self.next() - 1
    }

    fn get(&mut self, number: u64) -> Option<&mut Record> {
        let index = number.checked_sub(self.base)?;
        self.records.get_mut(index as usize)
    }

    /// Takes the metadata of those that may be committed now.
    fn ready(&mut self) -> Vec<KvBatch> {
        let mut batches = Vec::new();
        let flush_done = self.flush_done;
        while let Some(record) = self.get(self.handed)
            && record.written
            && record.flush <= flush_done
        {
            batches.push(std::mem::take(&mut record.batch));
            self.handed += 1;
        }
        batches
    }

    fn clear(&mut self) -> VecDeque<Record> {
        let records = std::mem::take(&mut self.records);
        self.base += records.len() as u64;
        self.handed = self.base;
        records
    }
}

impl Blue {
    /// Queues a transaction that is applied, and starts its writes.
    pub(crate) fn enqueue(&self, record: Record, writes: DeviceWrites, written: Written) {
        let (number, alone) = {
            let mut queue = self.queue.borrow_mut();
            (queue.push(record), queue.len() == 1)
        };
        if writes.is_empty() {
            // Nothing to write, nothing to flush; but it waits for its turn.
            self.pump();
            return;
        }
        self.count(|stats| {
            stats.device_writes += writes.0.len() as u64;
            stats.device_write_bytes += writes.0.iter().map(|write| write.blocks * BLOCK_BYTES).sum::<u64>();
        });
        let Some(store) = self.rc() else { return };
        // A write that is alone is made durable by itself, which is one operation in place of two. As soon as there are
        // more, one flush for many costs less.
        let durable = alone && writes.0.len() == 1;
        self.count(|stats| stats.flushes += u64::from(durable));
        self.shard.spawn(SchedulingGroup::Client, "blue-data", async move {
            let result = store.write(writes, durable).await;
            for (onode, blocks) in written {
                blocks.into_iter().for_each(|block| onode.written(block));
            }
            store.data_done(number, result, durable);
        });
    }

    async fn write(&self, writes: DeviceWrites, durable: bool) -> io::Result<()> {
        let mut writes = writes.0;
        if writes.len() == 1
            && let Some(write) = writes.pop()
        {
            return self.file.write_at(write.data, write.block * BLOCK_BYTES, durable).await;
        }
        let writes =
            writes.into_iter().map(|write| self.file.write_at(write.data, write.block * BLOCK_BYTES, false));
        join_all(writes).await.into_iter().collect()
    }

    fn data_done(&self, number: u64, result: io::Result<()>, durable: bool) {
        if let Err(error) = result {
            let what = format!("write to {}", self.shared.path().display());
            self.fail(StoreError::io(what, &error));
            return;
        }
        let mut queue = self.queue.borrow_mut();
        let flush = if durable { queue.flush_done } else { queue.flush_begun + 1 };
        if let Some(record) = queue.get(number) {
            record.written = true;
            record.flush = flush;
            queue.flush_wanted = queue.flush_wanted.max(flush);
        }
        drop(queue);
        self.pump();
    }

    /// Hands over what is ready, and begins a flush if one is wanted and none is running.
    fn pump(&self) {
        let mut queue = self.queue.borrow_mut();
        let batches = queue.ready();
        let flush = queue.flush_wanted > queue.flush_begun && !queue.flushing;
        queue.flushing |= flush;
        drop(queue);
        if !batches.is_empty() {
            self.count(|stats| stats.groups += 1);
            let group = Group { shard: self.shard.id(), batches };
            self.shared.log().append(&self.shard, self.shared.instance(), group);
        }
        if flush && let Some(store) = self.rc() {
            // The flush begins when this task first runs: after the other completions of this turn have been seen.
            self.shard.spawn(SchedulingGroup::Client, "blue-flush", async move { store.flush().await });
        }
    }

    async fn flush(&self) {
        let number = {
            let mut queue = self.queue.borrow_mut();
            queue.flush_begun += 1;
            queue.flush_begun
        };
        self.count(|stats| stats.flushes += 1);
        let result = self.file.fdatasync().await;
        {
            let mut queue = self.queue.borrow_mut();
            queue.flushing = false;
            if result.is_ok() {
                queue.flush_done = number;
            }
        }
        match result {
            Ok(()) => self.pump(),
            Err(error) => {
                let what = format!("flush of {}", self.shared.path().display());
                self.fail(StoreError::io(what, &error));
            }
        }
    }

    /// The committer's word on the oldest `count` transactions.
    pub(crate) fn durable(&self, count: usize, result: &Result<(), KvError>) {
        if let Err(error) = result {
            self.fail(StoreError::Kv(error.clone()));
            return;
        }
        for _ in 0..count {
            let record = {
                let mut queue = self.queue.borrow_mut();
                let record = queue.records.pop_front();
                queue.base += u64::from(record.is_some());
                record
            };
            // After a failure the queue is empty already.
            let Some(record) = record else { break };
            if let Some(freed) = self.reads.park(record.freed) {
                freed.into_iter().for_each(|block| self.shared.space().free(block));
            }
            if !record.existence.is_empty() {
                self.settle_existence(record.existence);
            }
            drop(record.pins);
            let _ = record.reply.send(Ok(())); // the caller may not be interested
        }
        self.progress.notify_all();
    }

    fn settle_existence(&self, changed: Vec<Box<[u8]>>) {
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

    /// Stops the store: what is not durable now never will be acknowledged, and nothing new is taken. The failed
    /// write or flush is not tried again: the kernel may have dropped the data and would call the next one a success.
    pub(crate) fn fail(&self, error: StoreError) {
        if self.failed.borrow().is_none() {
            tracing::error!(%error, shard = %self.shard.id(), "the store stops: restart the OSD when the cause is repaired");
            *self.failed.borrow_mut() = Some(StoreError::failed(&error.to_string()));
        }
        let refusal = self.failed.borrow().clone();
        let records = self.queue.borrow_mut().clear();
        for record in records {
            let error = refusal.clone().unwrap_or(error.clone());
            let _ = record.reply.send(Err(error));
        }
        self.progress.notify_all();
    }

    /// See [`crate::Store::sync`].
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        let until = self.queue.borrow().next();
        loop {
            if let Some(error) = self.failed.borrow().clone() {
                return Err(error);
            }
            if self.queue.borrow().base >= until {
                return Ok(());
            }
            self.progress.notified().await;
        }
    }
}
