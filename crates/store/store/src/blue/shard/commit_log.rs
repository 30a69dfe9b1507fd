//! [`CommitLog`]: what all shards share of the log, and the feeder of the key-value store.
//!
//! A shard writes its groups into its lane (queue.rs), which makes them durable. Some time later their changes are queued here
//! (feeding.rs): a task of some shard collects those of all shards, and an alien thread sorts them into one batch and commits
//! that to the key-value store, with each lane's position and without a sync. When the log is half full, the key-value store has
//! to write its tables out; then the lanes are trimmed up to the positions that it contains.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use carmine_reactor::{Group as SchedulingGroup, Shard, ShardId};
use crossbeam::queue::SegQueue;

use crate::StoreError;
use crate::blue::device::label::Label;
use crate::blue::device::space::Space;
use crate::blue::log::lane::LogSpace;
use crate::blue::log::record::GroupId;
use crate::blue::meta::index::{MetaIndex, Room};
use crate::blue::meta::{codec, keys};
use crate::blue::shard::shared;
use crate::kv::{KvBatch, KvError};

/// Most bytes of keys and values in one batch (the last group may overshoot). It is in memory several times while it is applied.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Below this much free space for the key-value store, writes are refused, and only deletes and truncates are allowed.
const KV_FREE_BYTES_MIN: u64 = 64 << 20;

/// Changes of a lane that are durable in the log, on their way to the key-value store.
pub(crate) struct FeedGroup {
    /// The shard that made them: the lane has the same number.
    pub(crate) shard: ShardId,
    /// The last group that they come from.
    pub(crate) seq: u64,
    pub(crate) batch: KvBatch,
}

/// The log's space, the feeder and its queue.
pub(crate) struct CommitLog {
    index: MetaIndex,
    /// The store's space, part of which is counted for the index.
    blocks: Arc<Space>,
    log_id: u64,
    epoch: u64,
    space: LogSpace,
    queue: SegQueue<FeedGroup>,
    /// Set while a task of some shard empties the queue.
    busy: AtomicBool,
    /// Set while the key-value store is writing its tables out.
    trimming: AtomicBool,
    /// By lane: the last group that the key-value store contains, durable or not.
    fed: Box<[AtomicU64]>,
    commits: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    /// CPU time of the alien threads that feed and trim.
    cpu_ns: AtomicU64,
    trims: AtomicU64,
    /// Set when the key-value store has little space left.
    low: AtomicBool,
    /// Set while a task is scheduled to check that.
    looking: AtomicBool,
    /// The first failure. Later groups in the queue must not be committed either, because that would leave a gap.
    failed: OnceLock<KvError>,
    /// The first metadata damage met.
    damage: OnceLock<StoreError>,
}

/// The feeder's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitStats {
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    pub(crate) busy_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) trims: u64,
}

/// How far the key-value store contains each lane.
type Positions = Vec<(ShardId, u64)>;

impl CommitLog {
    /// An empty log.
    pub(crate) fn new(index: MetaIndex, label: &Label, blocks: Arc<Space>, epoch: u64) -> CommitLog {
        let space = LogSpace::new(label.log());
        CommitLog {
            index,
            blocks,
            log_id: label.log_id,
            epoch,
            queue: SegQueue::new(),
            busy: AtomicBool::new(false),
            trimming: AtomicBool::new(false),
            fed: (0..space.lanes_max()).map(|_| AtomicU64::new(0)).collect(),
            space,
            commits: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            low: AtomicBool::new(false),
            looking: AtomicBool::new(false),
            failed: OnceLock::new(),
            damage: OnceLock::new(),
        }
    }

    pub(crate) fn space(&self) -> &LogSpace {
        &self.space
    }

    /// The log's epoch in this mount.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The id of a group of this mount.
    pub(crate) fn group_id(&self, lane: u16, seq: u64) -> GroupId {
        GroupId { log_id: self.log_id, epoch: self.epoch, lane, seq }
    }

    pub(crate) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.commits.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            trims: self.trims.load(Ordering::Relaxed),
        }
    }

    /// Whether the key-value store has little space left: only transactions that free space are then accepted.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Measures how much space the index uses, and has left.
    pub(crate) async fn measure_room(&self, shard: &Shard) {
        let Room { used_bytes, free_bytes } = self.index.room(shard, self.blocks.reclaim_above_bytes()).await;
        self.blocks.set_metadata_bytes(used_bytes);
        let low = free_bytes.is_some_and(|free| free < KV_FREE_BYTES_MIN);
        if low != self.low.swap(low, Ordering::Relaxed) {
            let state =
                if low { "is nearly full: writes are refused until there is room" } else { "has room again" };
            tracing::warn!("the file system of the key-value store in {} {state}", self.index.place());
        }
    }

    /// Schedules that measurement: without commits nothing else would trigger it.
    pub(crate) fn measure_room_soon(self: &Arc<Self>, shard: &Shard) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (log, own) = (Arc::clone(self), shard.clone());
        shard.spawn(SchedulingGroup::Admin, "blue-look-for-room", async move {
            log.measure_room(&own).await;
            log.looking.store(false, Ordering::Release);
        });
    }

    /// Number up to which this epoch's commits are durable in the key-value store.
    pub(crate) fn commits_durable(&self) -> u64 {
        self.index.durable_number()
    }

    /// Makes all that was committed durable.
    pub(crate) async fn flush(&self, shard: &Shard) -> Result<(), KvError> {
        let (result, cpu_ns) = self.index.flush(shard).await;
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        self.note_failure(&result);
        result
    }

    /// Why the index accepts nothing any more, if so.
    pub(crate) fn failure(&self) -> Option<&KvError> {
        self.failed.get()
    }

    /// Metadata that cannot be read, if any was met.
    pub(crate) fn damage(&self) -> Option<&StoreError> {
        self.damage.get()
    }

    /// Remembers the error if it is the first of that kind.
    pub(crate) fn note_damage(&self, error: &StoreError) {
        if error.is_metadata_damage() {
            let _ = self.damage.set(error.clone()); // only the first one is reported
        }
    }

    fn note_failure(&self, result: &Result<(), KvError>) {
        if let Err(error) = result {
            self.note_damage(&StoreError::Kv(error.clone()));
            let _ = self.failed.set(error.clone()); // a second failure changes nothing
        }
    }

    /// Commits changes that are too large for the log straight to the index.
    pub(crate) async fn commit_durably(&self, shard: &Shard, batch: KvBatch) -> Result<(), KvError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        let result = self.index.apply(shard, vec![batch], true).await;
        self.note_failure(&result);
        result
    }

    /// Commits the changes that lanes have handed over, with their positions.
    async fn commit(
        &self,
        shard: &Shard,
        mut batches: Vec<KvBatch>,
        positions: &Positions,
    ) -> Result<(), KvError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        let mut last = KvBatch::default();
        for (lane, seq) in positions {
            last.put_with(
                |out| out.extend_from_slice(&keys::lane(lane.0)),
                |out, at| codec::push_position(out, at, self.epoch, *seq),
            );
        }
        batches.push(last);
        let (result, cpu_ns) = self.index.apply_sorted(shard, batches).await;
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        let result = result.map(|bytes| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        });
        self.note_failure(&result);
        self.measure_room(shard).await;
        result
    }

    /// Queues a group. [`shared::fed`] is called on its shard when the key-value store contains it or has failed; groups of a
    /// shard must be in order. The queue is bounded by the limit on what shards hold.
    pub(crate) fn feed(self: &Arc<Self>, shard: &Shard, instance: usize, group: FeedGroup) {
        self.queue.push(group);
        if !self.busy.swap(true, Ordering::AcqRel) {
            let log = Arc::clone(self);
            let task_shard = shard.clone();
            shard.spawn(SchedulingGroup::Client, "blue-feeder", async move {
                log.run(&task_shard, instance).await;
            });
        }
    }

    /// Feeds until the queue is empty. Only one task of the process runs this at a time.
    async fn run(self: Arc<Self>, shard: &Shard, instance: usize) {
        loop {
            let groups = self.pop_batch();
            if groups.is_empty() {
                self.busy.store(false, Ordering::Release);
                // A shard that appended between the check and the store found `busy` set and left the group to us.
                if self.queue.is_empty() || self.busy.swap(true, Ordering::AcqRel) {
                    return;
                }
                continue;
            }
            let (positions, batches) = split(groups);
            let start_ns = shard.now_ns();
            let result = self.commit(shard, batches, &positions).await;
            self.busy_ns.fetch_add(shard.now_ns().saturating_sub(start_ns), Ordering::Relaxed);
            for (to, seq) in positions {
                if let Some(fed) = self.fed.get(usize::from(to.0)).filter(|_| result.is_ok()) {
                    fed.store(seq, Ordering::Release);
                }
                let result = result.clone();
                run_on(shard, to, move |shard| shared::fed(shard, instance, seq, &result));
            }
            if self.space.wants_trim() {
                self.trim(shard, instance);
            }
        }
    }

    /// Makes the key-value store write its tables out, and then trims the lanes, unless that is under way.
    pub(crate) fn trim(self: &Arc<Self>, shard: &Shard, instance: usize) {
        if self.trimming.swap(true, Ordering::AcqRel) {
            return;
        }
        let (log, own) = (Arc::clone(self), shard.clone());
        shard.spawn(SchedulingGroup::Client, "blue-trim", async move {
            let fed: Positions = (0..own.shards())
                .map(ShardId)
                .zip(&log.fed)
                .map(|(lane, fed)| (lane, fed.load(Ordering::Acquire)))
                .collect();
            let result = log.flush(&own).await;
            log.trims.fetch_add(1, Ordering::Relaxed);
            log.trimming.store(false, Ordering::Release);
            for (lane, seq) in fed {
                let result = result.clone();
                run_on(&own, lane, move |shard| shared::trimmed(shard, instance, seq, &result));
            }
        });
    }

    fn pop_batch(&self) -> Vec<FeedGroup> {
        let (mut groups, mut bytes) = (Vec::new(), 0usize);
        while bytes < BATCH_BYTES_MAX {
            let Some(group) = self.queue.pop() else { break };
            bytes = group.batch.expanded_bytes().saturating_add(bytes);
            groups.push(group);
        }
        groups
    }
}

/// Runs `f` on shard `to`; at once if that is here.
pub(crate) fn run_on(shard: &Shard, to: ShardId, f: impl FnOnce(&Shard) + Send + 'static) {
    if to == shard.id() {
        f(shard);
    } else {
        shard.submit_to(to, f);
    }
}

/// The new position of each lane after these groups, and all batches in order.
fn split(groups: Vec<FeedGroup>) -> (Positions, Vec<KvBatch>) {
    let mut positions = Positions::new();
    let mut batches = Vec::new();
    for group in groups {
        match positions.iter_mut().find(|(shard, _)| *shard == group.shard) {
            Some((_, seq)) => *seq = group.seq,
            None => positions.push((group.shard, group.seq)),
        }
        batches.push(group.batch);
    }
    (positions, batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_the_last_of_each_lane() {
        let group = |shard, seq| FeedGroup { shard: ShardId(shard), seq, batch: KvBatch::default() };
        let (positions, batches) = split(vec![group(0, 1), group(1, 7), group(0, 2)]);
        assert_eq!(positions, [(ShardId(0), 2), (ShardId(1), 7)]);
        assert_eq!(batches.len(), 3);
    }
}
