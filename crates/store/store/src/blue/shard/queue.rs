//! Makes transactions durable, in the order of submission: data and log in flight together, then one flush.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Group as SchedulingGroup, probes};
use carmine_types::{FlushMode, is_mutated};
use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::blue::device::IO_BLOCKS_MAX;
use crate::blue::device::join::{join, join_all};
use crate::blue::log::lane::Lane;
use crate::blue::log::record::{Known, TxnParts, txn_bytes};
use crate::blue::objects::onode::Onode;
use crate::blue::objects::reads::Freed;
use crate::blue::shard::Blue;
use crate::blue::shard::feeding::Handed;
use crate::blue::shard::window::Windows;
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, StoreError};

/// Most gathered pieces of one write (the kernel allows 1024).
const PIECES_MAX: usize = 256;

/// Most concurrent data writes that are written through, each durable by itself. That pays on a crowded CPU, where a file's flush
/// has to wait for a kernel worker, and for long writes, which would delay a flush. With more writes, one flush after them costs
/// less.
const THROUGH_MAX: usize = 4;
/// From this many bytes on, writes count as long.
const LONG_BYTES: u64 = 1 << 20;
/// From this much on, data does not wait for its group of the log any longer.
const WAITING_BYTES: u64 = 256 << 10;

/// One write of the device.
pub(crate) struct DeviceWrite {
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    pub(crate) data: Vec<Bytes>,
}

/// The writes of a transaction; neighbours on the device become one.
#[derive(Default)]
pub(crate) struct DeviceWrites(pub(crate) SmallVec<[DeviceWrite; 1]>);

impl DeviceWrite {
    /// Whether the given blocks follow on the device, and may be part of the same write.
    fn is_followed_by(&self, block: u64, blocks: u64, pieces: usize) -> bool {
        self.block + self.blocks == block
            && self.blocks + blocks <= IO_BLOCKS_MAX
            && self.data.len() + pieces <= PIECES_MAX
    }
}

impl DeviceWrites {
    /// Adds whole blocks.
    pub(crate) fn push(&mut self, block: u64, data: Bytes) {
        let blocks = data.len() as u64 / BLOCK_BYTES;
        if block == 0 {
            return; // block 0 is the label; see `Allocated::take_run`
        }
        match self.0.last_mut() {
            Some(last) if last.is_followed_by(block, blocks, 1) => {
                last.blocks += blocks;
                last.data.push(data);
            }
            _ => self.0.push(DeviceWrite { block, blocks, data: vec![data] }),
        }
    }

    /// Appends the only write of another transaction to the only one here, if it follows on the device; false if not.
    fn absorb(&mut self, next: &mut DeviceWrites) -> bool {
        let ([last], [more]) = (self.0.as_mut_slice(), next.0.as_mut_slice()) else { return false };
        if !last.is_followed_by(more.block, more.blocks, more.data.len()) {
            return false;
        }
        last.blocks += more.blocks;
        last.data.append(&mut more.data);
        next.0.clear();
        true
    }

    /// Joins the writes of several transactions, which write no block twice, into as few as possible.
    pub(crate) fn joined(mut writes: Vec<DeviceWrite>) -> DeviceWrites {
        writes.sort_unstable_by_key(|write| write.block);
        let mut all = DeviceWrites::default();
        for write in writes {
            let mut block = write.block;
            for data in write.data {
                let blocks = data.len() as u64 / BLOCK_BYTES;
                all.push(block, data);
                block += blocks;
            }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.0.iter().map(|write| write.blocks).sum()
    }
}

/// Blocks that a transaction wrote of one object.
pub(crate) type Written = SmallVec<[(Rc<Onode>, SmallVec<[u64; 2]>); 1]>;

/// Data written to its place, not into the log: of one transaction, or of several that are neighbours on the device.
pub(crate) struct DataWrites {
    writes: DeviceWrites,
    /// The transactions, by number, with the blocks of each.
    txns: SmallVec<[(u64, Written); 1]>,
}

/// Deferred blocks: their content goes into the log first, and to its place when that is durable.
#[derive(Default)]
pub(crate) struct Deferred {
    pub(crate) writes: DeviceWrites,
    pub(crate) written: Written,
}

impl Deferred {
    /// Bytes held in memory until the blocks are in their places.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.writes.blocks() * BLOCK_BYTES) as usize
    }
}

/// A transaction that is not durable yet.
pub(crate) struct Record {
    /// The transaction, encoded, for the log.
    pub(crate) encoded: Bytes,
    /// Blocks that it writes outside the log, with their checksums.
    pub(crate) writes: SmallVec<[(u64, u32); 1]>,
    pub(crate) deferred: Deferred,
    /// Blocks that are free once it is durable.
    pub(crate) freed: Freed,
    /// Blocks of the log reserved for it.
    pub(crate) log_blocks: u64,
    /// Set if it fits into no group and goes around the log.
    pub(crate) around: bool,
    pub(crate) reply: oneshot::Sender<Result<(), StoreError>>,
    pub(crate) progress: Progress,
}

/// How far a transaction has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Whether its data is on the device (in its cache), or it has none.
    pub(crate) written: bool,
    /// The flush that makes its data durable.
    pub(crate) flush: u64,
    /// The group that has it.
    pub(crate) group: Option<u64>,
}

impl Record {
    /// Most bytes that it needs in the log.
    pub(crate) fn log_bytes(&self) -> usize {
        let image_blocks = self.deferred.writes.blocks() as usize;
        txn_bytes(self.encoded.len(), self.writes.len(), image_blocks, self.freed.len())
    }

    /// The parts that go into the log; `images` borrows from the record, too.
    pub(crate) fn parts<'a>(&'a self, images: &'a [(u64, &'a [Bytes])]) -> TxnParts<'a> {
        TxnParts { txn: &self.encoded, writes: &self.writes, images, freed: &self.freed }
    }
}

/// A group that is written or being written to the log, and not durable.
pub(crate) struct InFlight {
    pub(crate) seq: u64,
    /// Number of its transactions.
    pub(crate) txns: u64,
    /// Whether it is in the log (in the device's cache).
    pub(crate) logged: bool,
    /// Number of its transactions whose data is not on the device.
    pub(crate) outstanding: u64,
    /// The flush that makes it durable.
    pub(crate) flush: u64,
}

impl InFlight {
    fn is_written(&self) -> bool {
        self.logged && self.outstanding == 0
    }
}

/// A shard's transactions, oldest first: those that only the key-value store lacks; those in the log; and those not yet there.
#[derive(Default)]
pub(crate) struct Queue {
    /// Transactions that are not durable.
    pub(crate) records: VecDeque<Record>,
    /// Number of the first record.
    pub(crate) base: u64,
    /// Number of the first that is in no group.
    pub(crate) grouped: u64,
    /// Data not being written yet: it is written together with a group of the log, or when there is enough of it.
    data: Vec<DataWrites>,
    waiting_blocks: u64,
    /// Number of data writes in flight that need a flush.
    plain_writes: usize,
    pub(crate) groups: VecDeque<InFlight>,
    pub(crate) lane: Lane,
    /// Number of the last group that is durable.
    pub(crate) durable_seq: u64,
    /// Set while a task writes groups.
    pub(crate) logging: bool,
    /// Whether nothing was in flight when the last transaction arrived.
    was_idle: bool,
    /// What the lane's log records as durable.
    pub(crate) told: Known,
    /// What the lane's witness records as durable.
    pub(crate) witnessed: Known,
    /// Whether a mark should be written if more is durable than that.
    pub(crate) mark_wanted: bool,
    /// Number of the last flush begun, …
    pub(crate) flush_begun: u64,
    /// … and of the last one completed.
    pub(crate) flush_done: u64,
    /// Set while a flush is scheduled or running.
    flushing: bool,
    /// Whether data was written that no flush begun so far covers.
    pub(crate) unflushed_data: bool,
    /// Changes not handed to the feeder yet.
    pub(crate) windows: Windows,
    /// Windows handed to the feeder.
    pub(crate) handed: VecDeque<Handed>,
    /// Number of the first transaction that the key-value store lacks.
    pub(crate) fed: u64,
    /// Deferred blocks of durable groups that are not in their places, …
    pub(crate) unplaced: Vec<Deferred>,
    /// … and their number.
    pub(crate) unplaced_blocks: u64,
    /// Set while a task writes those to their places and hands windows to the feeder.
    pub(crate) feeding: bool,
    /// Set while a task waits for the lane to become idle.
    pub(crate) rest_waits: bool,
    /// Bytes held because the log or the key-value store lacks them.
    pub(crate) held_bytes: usize,
    /// Blocks that are in the log and not in their places; `true` if they have been freed since.
    pub(crate) deferred: HashMap<u64, bool, FixedState>,
}

impl Queue {
    pub(crate) fn new(windows: Windows) -> Queue {
        Queue { windows, ..Queue::default() }
    }

    /// Transactions that are not durable.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether nothing is in flight to the device.
    fn is_idle(&self) -> bool {
        self.records.is_empty() && !self.flushing && !self.logging
    }

    /// Whether transactions arrive one at a time: nothing is in flight now, and nothing was when the last one arrived.
    pub(crate) fn is_alone(&self) -> bool {
        self.was_idle && self.is_idle()
    }

    /// Closes the open window of changes after the last transaction.
    pub(crate) fn close_window(&mut self) {
        let group = self.records.is_empty().then_some(self.durable_seq);
        self.windows.close(self.next(), group);
    }

    /// Adds an applied transaction to the open window.
    pub(crate) fn enter_window(
        &mut self,
        changes: (KvBatch, usize),
        pieces: usize,
        existence: Vec<Box<[u8]>>,
        log: (u64, bool),
    ) {
        let bytes_before = self.windows.open_bytes();
        self.windows.enter(changes, pieces, existence, log);
        self.held_bytes += self.windows.open_bytes() - bytes_before;
    }

    /// Number of the next transaction.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Record> {
        let index = number.checked_sub(self.base)?;
        self.records.get_mut(index as usize)
    }

    pub(crate) fn group(&mut self, seq: u64) -> Option<&mut InFlight> {
        let index = seq.checked_sub(self.groups.front()?.seq)?;
        self.groups.get_mut(index as usize)
    }

    /// Removes and returns the oldest group if it is durable.
    fn pop_durable(&mut self) -> Option<InFlight> {
        let flush_done = self.flush_done;
        self.groups.pop_front_if(|group| {
            (group.is_written() && group.flush <= flush_done) || is_mutated("answer_early")
        })
    }

    /// Whether a flush would make something durable and none is scheduled.
    fn wants_flush(&self) -> bool {
        // Check all of them: data of an earlier group may have been written later.
        let mut written = self.groups.iter().take_while(|group| group.is_written());
        !self.flushing && written.any(|group| group.flush > self.flush_begun)
    }

    /// Queues data to be written; true if there is enough to start.
    fn add_data(&mut self, number: u64, mut writes: DeviceWrites, written: Written) -> bool {
        self.waiting_blocks += writes.blocks();
        if let Some(last) = self.data.last_mut()
            && last.writes.absorb(&mut writes)
        {
            last.txns.push((number, written));
        } else {
            self.data.push(DataWrites { writes, txns: [(number, written)].into_iter().collect() });
        }
        self.waiting_blocks * BLOCK_BYTES >= WAITING_BYTES
    }

    /// Removes all waiting data; also returns whether it is little enough to be written through.
    fn take_data(&mut self, is_crowded: bool) -> (Vec<DataWrites>, bool) {
        let (data, blocks) = (std::mem::take(&mut self.data), std::mem::take(&mut self.waiting_blocks));
        let writes: usize = data.iter().map(|data| data.writes.0.len()).sum();
        let pays = is_crowded || blocks * BLOCK_BYTES >= LONG_BYTES;
        // A single write is then one operation instead of two.
        let is_alone =
            self.was_idle && matches!(data.as_slice(), [one] if one.txns.len() == 1 && writes == 1);
        (data, is_alone || pays && writes <= THROUGH_MAX)
    }

    /// Whether a group should be written through: it should if all data before it is.
    pub(crate) fn is_written_through(&self, group: &InFlight, has_data: bool) -> bool {
        let is_alone = self.groups.is_empty() && group.txns == 1 && self.was_idle;
        self.plain_writes == 0 && group.flush <= self.flush_begun && (is_alone || has_data)
    }

    fn clear(&mut self) -> VecDeque<Record> {
        let records = std::mem::take(&mut self.records);
        self.base += records.len() as u64;
        self.grouped = self.base;
        self.groups.clear();
        records
    }
}

impl Blue {
    /// Queues an applied transaction, and starts its writes.
    pub(crate) fn enqueue(&self, mut record: Record, writes: DeviceWrites, written: Written) {
        if is_mutated("reuse_early") {
            let freed = record.freed.clone();
            self.reads.park(freed).into_iter().flatten().for_each(|block| self.shared.space().free(block));
        }
        record.progress.written = writes.is_empty();
        let is_much = {
            let mut queue = self.queue.borrow_mut();
            queue.was_idle = queue.is_idle();
            queue.held_bytes += record.log_bytes();
            queue.records.push_back(record);
            let number = queue.next() - 1;
            !writes.is_empty() && queue.add_data(number, writes, written)
        };
        self.start_logging();
        if is_much {
            self.begin_data();
        }
    }

    /// Starts writing all waiting data. It reaches the device in the same turn as the group of the log that is written now, and
    /// so with one doorbell.
    pub(crate) fn begin_data(&self) {
        let (data, few) = {
            let mut queue = self.queue.borrow_mut();
            if queue.data.is_empty() {
                return;
            }
            queue.take_data(self.shard.is_crowded())
        };
        for part in data {
            let durable = self.write_durably(few);
            self.queue.borrow_mut().plain_writes += usize::from(!durable);
            let Some(store) = self.rc() else { return };
            self.shard.spawn(SchedulingGroup::Client, "blue-data", async move {
                store.write_data(part, durable).await;
            });
        }
    }

    async fn write_data(&self, data: DataWrites, durable: bool) {
        let DataWrites { writes, txns } = data;
        self.count(|stats| {
            stats.device_writes += writes.0.len() as u64;
            stats.device_write_bytes += writes.blocks() * BLOCK_BYTES;
        });
        let result = self.write(writes, durable).await;
        self.queue.borrow_mut().plain_writes -= usize::from(!durable);
        for (onode, blocks) in txns.iter().flat_map(|(_, written)| written) {
            blocks.iter().for_each(|block| onode.note_written(*block));
        }
        self.data_done(txns.iter().map(|(number, _)| *number), result, durable);
    }

    /// Whether a write should be written through, which then counts as a flush. `pays`: that costs less than a flush after it.
    pub(crate) fn write_durably(&self, pays: bool) -> bool {
        let durable = match self.shared.flush_mode() {
            FlushMode::Flush => pays,
            FlushMode::Dsync => true,
            FlushMode::None => false,
        };
        self.count(|stats| stats.flushes += u64::from(durable));
        durable
    }

    /// The number of the flush that a write completed now needs; 0: none.
    pub(crate) fn flush_for(&self, queue: &Queue, durable: bool) -> u64 {
        let none = durable || self.shared.flush_mode() == FlushMode::None;
        if none { 0 } else { queue.flush_begun + 1 }
    }

    pub(crate) async fn write(&self, writes: DeviceWrites, durable: bool) -> io::Result<()> {
        let mut writes = writes.0;
        if writes.len() == 1
            && let Some(write) = writes.pop()
        {
            return self.file.write_at(write.data, write.block * BLOCK_BYTES, durable).await;
        }
        let writes = writes
            .into_iter()
            .map(|write| self.file.write_at(write.data, write.block * BLOCK_BYTES, durable));
        join_all(writes).await.into_iter().collect()
    }

    fn data_done(&self, numbers: impl Iterator<Item = u64>, result: io::Result<()>, durable: bool) {
        if let Err(error) = result {
            let what = format!("write to {}", self.shared.path().display());
            self.fail(StoreError::io(what, &error));
            return;
        }
        let mut queue = self.queue.borrow_mut();
        let flush = self.flush_for(&queue, durable);
        queue.unflushed_data |= flush > 0;
        for number in numbers {
            let Some(record) = queue.get(number) else { continue };
            record.progress.written = true;
            record.progress.flush = flush;
            match record.progress.group {
                Some(seq) => {
                    if let Some(group) = queue.group(seq) {
                        group.outstanding -= 1;
                        group.flush = group.flush.max(flush);
                    }
                }
                // It may be a transaction that goes around the log and waits for its data.
                None => self.progress.notify_all(),
            }
        }
        drop(queue);
        self.pump();
    }

    /// Acknowledges durable transactions, and begins a flush if one is wanted and none is running.
    pub(crate) fn pump(&self) {
        loop {
            let group = self.queue.borrow_mut().pop_durable();
            let Some(group) = group else { break };
            self.durable(&group);
        }
        let mut queue = self.queue.borrow_mut();
        if !queue.wants_flush() {
            return;
        }
        queue.flushing = true;
        drop(queue);
        if let Some(store) = self.rc() {
            // The flush begins when this task first runs: after the other completions of this turn have been seen.
            self.shard.spawn(SchedulingGroup::Client, "blue-flush", async move { store.flush().await });
        }
    }

    async fn flush(&self) {
        let (number, data) = {
            let mut queue = self.queue.borrow_mut();
            queue.flush_begun += 1;
            (queue.flush_begun, std::mem::take(&mut queue.unflushed_data))
        };
        probes::flush_begins(number, data);
        let result = self.flush_data_and_log(data).await;
        probes::flush_ended(number);
        let mut queue = self.queue.borrow_mut();
        queue.flushing = false;
        if result.is_ok() {
            queue.flush_done = number;
            drop(queue);
            self.pump();
        }
    }

    /// Makes the log durable, and the data device, too, if data was written; a failure stops the store.
    async fn flush_data_and_log(&self, data: bool) -> Result<(), StoreError> {
        let Some(log) = &self.log_file else { return self.flush_device().await };
        let flush_log = async {
            self.count(|stats| stats.flushes += 1);
            log.fdatasync().await.map_err(|error| {
                let error = self.log_error("flush of", &error);
                self.fail(error.clone());
                error
            })
        };
        if !data {
            return flush_log.await;
        }
        let (data, log) = join(self.flush_device(), flush_log).await;
        data.and(log)
    }

    /// Flushes the device that has the data; a failure stops the store.
    pub(crate) async fn flush_device(&self) -> Result<(), StoreError> {
        self.count(|stats| stats.flushes += 1);
        let result = self.file.fdatasync().await;
        result.map_err(|error| {
            let error = StoreError::io(format!("flush of {}", self.shared.path().display()), &error);
            self.fail(error.clone());
            error
        })
    }

    /// Handles a durable group: its transactions are acknowledged, and wait for the feeder.
    fn durable(&self, group: &InFlight) {
        {
            let queue = self.queue.borrow();
            let (last, flush_done) = (queue.durable_seq, queue.flush_done);
            assert!(group.is_written() && group.flush <= flush_done, "group {} is not durable", group.seq);
            assert!(group.seq == last + 1, "group {} is answered for after group {last}", group.seq);
        }
        for _ in 0..group.txns {
            let record = {
                let mut queue = self.queue.borrow_mut();
                queue.durable_seq = group.seq;
                let record = queue.records.pop_front();
                queue.base += u64::from(record.is_some());
                record
            };
            let Some(mut record) = record else { break };
            self.queue.borrow_mut().held_bytes -= record.log_bytes();
            self.note_deferred(std::mem::take(&mut record.deferred));
            self.free_when_unread(std::mem::take(&mut record.freed));
            let _ = record.reply.send(Ok(())); // the caller may not be interested
        }
        self.feed_later(group.seq);
        self.progress.notify_all();
    }

    /// Frees blocks that nothing durable refers to, once no read needs them and no write to them is in flight.
    pub(crate) fn free_when_unread(&self, freed: Freed) {
        if is_mutated("reuse_early") {
            return; // they are handled where they were held back
        }
        let freed = self.hold_deferred(freed);
        if let Some(freed) = self.reads.park(freed) {
            self.discard_or_free(freed);
        }
    }

    /// Stops the store: transactions not durable now will never be acknowledged, and new ones are refused. The failed write or
    /// flush is not retried: the kernel may have dropped the data and would report success the next time.
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

    /// Whether the store has stopped.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// See [`crate::Store::sync`].
    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        let until = self.queue.borrow().next();
        self.wait_until(|queue| queue.base >= until).await
    }

    /// Waits until `is_so` holds, or the store has stopped.
    pub(crate) async fn wait_until(&self, is_so: impl Fn(&Queue) -> bool) -> Result<(), StoreError> {
        loop {
            if let Some(error) = self.failed.borrow().clone() {
                return Err(error);
            }
            if is_so(&self.queue.borrow()) {
                return Ok(());
            }
            self.progress.notified().await;
        }
    }
}
