//! The writer of a shard's lane: one group at a time, with all waiting transactions.

use std::rc::Rc;

use carmine_reactor::{Bytes, Group as SchedulingGroup, probes};
use smallvec::SmallVec;

use crate::blue::log::record::{GroupHeader, HEADER_BYTES, Known, Out};
use crate::blue::shard::feeding::settle_omaps;
use crate::blue::shard::queue::{InFlight, Queue};
use crate::blue::shard::window::Changes;
use crate::blue::shard::{Blue, shared};
use crate::{BLOCK_BYTES, StoreError};

/// Bytes of the largest group: the largest buffer of the arena.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Time between two checks for a free segment.
const ROOM_POLL: std::time::Duration = std::time::Duration::from_millis(1);

/// The next action of the task that writes the log.
enum NextWrite {
    /// Nothing.
    Rest,
    /// Write this group, which is encoded except for its header: its transactions, and bytes.
    Write { group: carmine_reactor::Buf, txns: u64, bytes: usize },
    /// Commit a transaction that fits into no group.
    Around(u64),
}

impl Blue {
    /// Bytes of the largest group that this store's log takes.
    pub(crate) fn group_bytes_max(&self) -> usize {
        let segment = u64::from(self.shared.label().log().segment_blocks) * BLOCK_BYTES;
        (segment as usize).min(GROUP_BYTES_MAX)
    }

    /// Starts the task that writes the queued transactions to the log, if it is not running.
    pub(crate) fn start_logging(&self) {
        if std::mem::replace(&mut self.queue.borrow_mut().logging, true) {
            return;
        }
        // The task runs after those that are ready now, so the first group has their transactions, too.
        let Some(store) = self.rc() else { return };
        self.shard.spawn(SchedulingGroup::Client, "blue-log", async move {
            store.run_log().await;
            store.queue.borrow_mut().logging = false;
            store.progress.notify_all();
        });
    }

    async fn run_log(self: &Rc<Self>) {
        while !self.has_failed() {
            let step = self.next_step();
            if !matches!(step, NextWrite::Rest) {
                self.begin_data();
            }
            match step {
                NextWrite::Rest if !self.mark().await => return,
                NextWrite::Rest => {}
                NextWrite::Write { group, txns, bytes } => self.write_group(group, txns, bytes).await,
                NextWrite::Around(number) => {
                    if let Err(error) = self.commit_around(number).await {
                        self.fail(error);
                    }
                }
            }
        }
    }

    /// Encodes waiting transactions into a group, as many as fit.
    fn next_step(&self) -> NextWrite {
        let queue = self.queue.borrow();
        let end = queue.windows.end_of(queue.grouped).min(queue.next());
        let waiting = queue.records.range((queue.grouped - queue.base) as usize..(end - queue.base) as usize);
        let max = self.group_bytes_max();
        let (mut bytes, mut txns) = (HEADER_BYTES, 0);
        for record in waiting.clone() {
            if record.around {
                return NextWrite::Around(queue.grouped);
            }
            let more = record.log_bytes();
            if bytes + more > max {
                break;
            }
            bytes += more;
            txns += 1;
        }
        if txns == 0 {
            return NextWrite::Rest;
        }
        let mut group = self.shard.buf(bytes.next_multiple_of(BLOCK_BYTES as usize));
        let mut out = Out::new(&mut group, HEADER_BYTES);
        for record in waiting.take(txns) {
            let images: SmallVec<[(u64, &[Bytes]); 1]> =
                record.deferred.writes.0.iter().map(|write| (write.block, write.data.as_slice())).collect();
            out.txn(&record.parts(&images));
        }
        let bytes = out.at();
        if let Some(rest) = group.get_mut(bytes..) {
            rest.fill(0);
        }
        NextWrite::Write { group, txns: txns as u64, bytes }
    }

    /// Makes the lane record what is durable when no group follows that would; so a group damaged later is not mistaken for one
    /// that was never written.
    pub(crate) fn mark_soon(&self) {
        self.queue.borrow_mut().mark_wanted = true;
        self.start_logging();
    }

    /// What is known to be durable now.
    fn known(&self, queue: &Queue) -> Known {
        Known { durable: queue.durable_seq, commits: self.shared.log().commits_durable() }
    }

    /// Writes the wanted mark, if it has news. The next group overwrites it.
    async fn mark(&self) -> bool {
        let log = self.shared.log();
        let (known, place) = {
            let mut queue = self.queue.borrow_mut();
            let known = self.known(&queue);
            if !std::mem::take(&mut queue.mark_wanted) || known == queue.told {
                return false;
            }
            (known, queue.lane.next_place(1, log.space()))
        };
        // If there is no place, groups are about to follow.
        let Some((seq, block)) = place else { return false };
        let mut mark = self.shard.buf(BLOCK_BYTES as usize);
        mark.fill(0);
        GroupHeader::seal(log.group_id(self.shard.id().0, seq), known, 0, 0, &mut mark);
        let result = self.log_file().write_at(vec![mark.freeze()], block * BLOCK_BYTES, false).await;
        if let Err(error) = result {
            self.fail(self.log_error("write to", &error));
            return false;
        }
        self.queue.borrow_mut().told = known;
        self.count(|stats| stats.log_marks += 1);
        true
    }

    /// Records how far the lane is durable, if that has changed, in a block away from the lane's groups: so a mount detects any
    /// loss at the lane's end. It needs no flush of its own: those of the groups cover it.
    pub(crate) async fn witness(&self) {
        let log = self.shared.log();
        let lane = self.shard.id().0;
        let (known, seq) = {
            let mut queue = self.queue.borrow_mut();
            let known = self.known(&queue);
            if self.has_failed() || std::mem::replace(&mut queue.witnessed, known) == known {
                return;
            }
            (known, queue.durable_seq)
        };
        let mut mark = self.shard.buf(BLOCK_BYTES as usize);
        mark.fill(0);
        GroupHeader::seal(log.group_id(lane, seq), known, 0, 0, &mut mark);
        let at = log.space().area().witness(lane) * BLOCK_BYTES;
        match self.log_file().write_at(vec![mark.freeze()], at, false).await {
            Ok(()) => self.count(|stats| stats.log_marks += 1),
            Err(error) => self.fail(self.log_error("write to", &error)),
        }
    }

    async fn write_group(&self, mut group: carmine_reactor::Buf, txns: u64, bytes: usize) {
        let blocks = (bytes as u64).div_ceil(BLOCK_BYTES);
        let Some((seq, block)) = self.wait_for_place(blocks).await else { return };
        let id = self.shared.log().group_id(self.shard.id().0, seq);
        let (known, through) = {
            let mut queue = self.queue.borrow_mut();
            queue.told = self.known(&queue);
            (queue.told, enter_group(&mut queue, seq, txns, blocks))
        };
        GroupHeader::seal(id, known, txns as u32, bytes - HEADER_BYTES, &mut group);
        let durable = self.write_durably(through);
        self.count(|stats| {
            stats.groups += 1;
            stats.log_bytes += blocks * BLOCK_BYTES;
        });
        probes::log_begins(seq, txns, blocks * BLOCK_BYTES);
        let data = group.freeze().slice(..(blocks * BLOCK_BYTES) as usize);
        let result = self.log_file().write_at(vec![data], block * BLOCK_BYTES, durable).await;
        if let Err(error) = result {
            return self.fail(self.log_error("write to", &error));
        }
        self.note_logged(seq, durable);
    }

    /// Notes that a group is in the log, at least in the device's cache.
    fn note_logged(&self, seq: u64, durable: bool) {
        probes::log_ended(seq);
        let mut queue = self.queue.borrow_mut();
        let flush = self.flush_for(&queue, durable);
        if let Some(group) = queue.group(seq) {
            group.logged = true;
            group.flush = group.flush.max(flush);
        }
        drop(queue);
        self.pump();
    }

    /// An operation on the log failed.
    pub(crate) fn log_error(&self, what: &str, error: &std::io::Error) -> StoreError {
        StoreError::io(format!("{what} the log on {}", self.shared.log_path().display()), error)
    }

    /// Allocates the place of the next group; waits while the log is full. `None` if the store has stopped.
    async fn wait_for_place(&self, blocks: u64) -> Option<(u64, u64)> {
        loop {
            let log = self.shared.log();
            let place = self.queue.borrow_mut().lane.place_group(blocks, log.space());
            if place.is_some() {
                return place;
            }
            if let Some(error) = log.failure() {
                self.fail(StoreError::Kv(error.clone()));
            }
            if self.has_failed() {
                return None;
            }
            // Any shard may hold the segments: all of them feed what they have, and then it is made durable.
            self.count(|stats| stats.log_waits += 1);
            shared::feed_everywhere(&self.shard, self.shared.instance());
            log.trim(&self.shard, self.shared.instance());
            self.shard.sleep(ROOM_POLL).await;
        }
    }

    /// Commits a transaction that is too large for the log straight to the key-value store, after all earlier ones.
    async fn commit_around(&self, number: u64) -> Result<(), StoreError> {
        self.feed_now();
        self.wait_until(|queue| queue.fed >= number).await?;
        let written = |queue: &Queue| queue.records.front().is_none_or(|record| record.progress.written);
        self.wait_until(written).await?;
        self.flush_device().await?;
        let window = self.queue.borrow().windows.around();
        let Some(window) = window else { return Err(StoreError::failed("a transaction has no window")) };
        self.encode_window(window).await;
        let Some((_, changes)) = self.queue.borrow_mut().windows.pop() else { return Ok(()) };
        let Changes { batch, objects, existence, bytes } = changes;
        let log = std::sync::Arc::clone(self.shared.log());
        log.commit_durably(&self.shard, batch).await?;
        // Nothing else measures the space while such transactions follow one another.
        log.measure_room(&self.shard).await;
        self.count(|stats| stats.around_log += 1);
        let record = {
            let mut queue = self.queue.borrow_mut();
            let record = queue.records.pop_front();
            if let Some(record) = &record {
                queue.base += 1;
                queue.grouped += 1;
                queue.fed += 1;
                queue.held_bytes -= record.log_bytes() + bytes;
            }
            record
        };
        if let Some(mut record) = record {
            self.free_when_unread(std::mem::take(&mut record.freed));
            let _ = record.reply.send(Ok(())); // the caller may have dropped its `Commit`
        }
        self.settle_existence(existence);
        settle_omaps(&objects, window);
        drop(objects);
        self.progress.notify_all();
        Ok(())
    }
}

/// Puts the oldest ungrouped transactions into this group. True if the group should be written through.
fn enter_group(queue: &mut Queue, seq: u64, txns: u64, blocks: u64) -> bool {
    let mut group = InFlight { seq, txns, logged: false, outstanding: 0, flush: 0 };
    let (first, mut most, mut has_data) = (queue.grouped, 0, false);
    for _ in 0..txns {
        let number = queue.grouped;
        queue.grouped += 1;
        let Some(record) = queue.get(number) else { continue };
        record.progress.group = Some(seq);
        most += record.log_blocks;
        has_data |= !record.writes.is_empty();
        group.outstanding += u64::from(!record.progress.written);
        group.flush = group.flush.max(record.progress.flush);
    }
    queue.windows.note_logged(first..queue.grouped, blocks, most);
    let through = queue.is_written_through(&group, has_data);
    queue.groups.push_back(group);
    through
}
