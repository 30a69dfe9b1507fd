//! [`CommitLog`]: what all shards share of the log, and the feeder behind it.
//!
//! A shard writes its groups into its lane (queue.rs); that is what makes them durable. Some time later they come here:
//! a task of some shard takes what all shards have, makes one batch of it, and gives it to the key-value store on an alien
//! thread, with each lane's position and without a sync. When the log is half full, the key-value store is told to write
//! its tables out; then the lanes are trimmed up to the positions that were contained.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use carmine_reactor::{Group as SchedulingGroup, Shard, ShardId};
use crossbeam::queue::SegQueue;
use foldhash::fast::FixedState;

use super::label::Label;
use super::log_space::LogSpace;
use super::numbered::NumberedKv;
use super::record::GroupId;
use super::{codec, keys, local};
use crate::kv::{Kv, KvBatch, KvError, KvOp};

/// Bytes of keys and values that one batch takes at most (one group more may overshoot).
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Below this much room for the key-value store, writes are refused and only deleting and truncating goes on.
const KV_FREE_BYTES_MIN: u64 = 64 << 20;
/// Virtual time of a look at that room.
const SIM_LOOK_NS: u64 = 5_000;
/// Virtual time of a commit in the simulator: short, so that it can overtake whatever it should wait for.
const SIM_COMMIT_NS: u64 = 20_000;
/// Virtual time of writing the tables out.
pub(crate) const SIM_FLUSH_NS: u64 = 500_000;

/// A group of a lane that is durable in the log, on its way to the key-value store.
pub(crate) struct FeedGroup {
    /// Whose it is: the lane has the same number.
    pub(crate) shard: ShardId,
    pub(crate) seq: u64,
    /// The changes of its transactions, in order, one batch each.
    pub(crate) batches: Vec<KvBatch>,
}

/// The log's space, the feeder and its queue.
pub(crate) struct CommitLog {
    kv: NumberedKv,
    log_id: u64,
    epoch: u64,
    space: LogSpace,
    queue: SegQueue<FeedGroup>,
    /// A task of some shard is emptying the queue.
    busy: AtomicBool,
    /// The key-value store is writing its tables out.
    trimming: AtomicBool,
    /// By lane: the last group that the key-value store contains, durable or not.
    fed: Box<[AtomicU64]>,
    commits: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    /// CPU time of the alien threads that feed and trim.
    cpu_ns: AtomicU64,
    trims: AtomicU64,
    /// The key-value store has little room left.
    low: AtomicBool,
    /// A task is there that looks whether it has.
    looking: AtomicBool,
    /// The first failure. What is in the queue after it must not get in either: it would leave a gap.
    failed: OnceLock<KvError>,
}

/// What the feeder did so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitStats {
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    pub(crate) busy_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) trims: u64,
}

/// How far each lane is contained.
type Positions = Vec<(ShardId, u64)>;

impl CommitLog {
    /// An empty log.
    pub(crate) fn new(kv: Arc<dyn Kv>, label: &Label, epoch: u64) -> CommitLog {
        let space = LogSpace::new(label.log());
        CommitLog {
            kv: NumberedKv::new(kv, epoch),
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
        }
    }

    pub(crate) fn space(&self) -> &LogSpace {
        &self.space
    }

    /// The name of a group of this mount.
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

    /// The key-value store has little room left: only what gives space back may be taken.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// On an alien thread: how much room the key-value store has.
    fn look(&self) {
        let low = self.kv.free_bytes().is_some_and(|free| free < KV_FREE_BYTES_MIN);
        if low != self.low.swap(low, Ordering::Relaxed) {
            let state =
                if low { "is nearly full: writes are refused until there is room" } else { "has room again" };
            tracing::warn!("the file system of the key-value store in {} {state}", self.kv.place());
        }
    }

    /// Looks at that room in a moment: where nothing is committed nobody else does.
    pub(crate) fn look_for_room(self: &Arc<Self>, shard: &Shard) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (log, own) = (Arc::clone(self), shard.clone());
        shard.spawn(SchedulingGroup::Admin, "blue-look-for-room", async move {
            let looked = Arc::clone(&log);
            own.alien(SIM_LOOK_NS, move || looked.look()).await;
            log.looking.store(false, Ordering::Release);
        });
    }

    /// Number of a commit of this epoch that is durable in the key-value store, as are all before it.
    pub(crate) fn commits_durable(&self) -> u64 {
        self.kv.durable()
    }

    /// On an alien thread: makes all that was committed durable.
    pub(crate) fn flush(&self) -> Result<(), KvError> {
        let result = self.kv.flush();
        if let Err(error) = &result {
            let _ = self.failed.set(error.clone());
        }
        result
    }

    /// Why the key-value store takes nothing any more, if so.
    pub(crate) fn failure(&self) -> Option<&KvError> {
        self.failed.get()
    }

    /// On an alien thread: changes that are too large for the log go straight into the key-value store.
    pub(crate) fn commit_durably(&self, batch: KvBatch) -> Result<(), KvError> {
        self.commit(&[batch], &Positions::new(), true)
    }

    /// On an alien thread.
    fn commit(&self, batches: &[KvBatch], positions: &Positions, sync: bool) -> Result<(), KvError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.look();
        let mut batch = coalesce(batches);
        for (lane, seq) in positions {
            batch.put_with(
                |out| out.extend_from_slice(&keys::lane(lane.0)),
                |out, at| codec::push_position(out, at, self.epoch, *seq),
            );
        }
        let result = self.kv.commit(batch, sync);
        if let Err(error) = &result {
            // A second failure changes nothing.
            let _ = self.failed.set(error.clone());
        }
        result
    }

    /// Queues a group. [`local::fed`] is called on its shard when the key-value store contains it or has failed; groups
    /// of a shard come in order. The queue is as bounded as what shards hold back is.
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

    /// Feeds until the queue is empty. Runs as one task at a time in the whole process.
    async fn run(self: Arc<Self>, shard: &Shard, instance: usize) {
        loop {
            let groups = self.take();
            if groups.is_empty() {
                self.busy.store(false, Ordering::Release);
                // Whoever appended between the look and the store found `busy` set and went away.
                if self.queue.is_empty() || self.busy.swap(true, Ordering::AcqRel) {
                    return;
                }
                continue;
            }
            let (positions, batches) = split(groups);
            self.bytes.fetch_add(batches.iter().map(|batch| batch.bytes() as u64).sum(), Ordering::Relaxed);
            let (log, contained) = (Arc::clone(&self), positions.clone());
            let start_ns = shard.now_ns();
            let feed = move || log.commit(&batches, &contained, false);
            let (result, cpu_ns) = shard.alien_timed(SIM_COMMIT_NS, feed).await;
            self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
            self.busy_ns.fetch_add(shard.now_ns().saturating_sub(start_ns), Ordering::Relaxed);
            for (to, seq) in positions {
                if let Some(fed) = self.fed.get(usize::from(to.0)).filter(|_| result.is_ok()) {
                    fed.store(seq, Ordering::Release);
                }
                let result = result.clone();
                tell(shard, to, move |shard| local::fed(shard, instance, seq, &result));
            }
            if self.space.wants_trim() {
                self.trim(shard, instance);
            }
        }
    }

    /// Lets the key-value store write its tables out and the lanes forget what is in them, unless that is going on.
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
            let flushed = Arc::clone(&log);
            let (result, cpu_ns) = own.alien_timed(SIM_FLUSH_NS, move || flushed.flush()).await;
            log.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
            log.trims.fetch_add(1, Ordering::Relaxed);
            log.trimming.store(false, Ordering::Release);
            for (lane, seq) in fed {
                let result = result.clone();
                tell(&own, lane, move |shard| local::trimmed(shard, instance, seq, &result));
            }
        });
    }

    fn take(&self) -> Vec<FeedGroup> {
        let mut groups = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX {
            let Some(group) = self.queue.pop() else { break };
            bytes += group.batches.iter().map(KvBatch::bytes).sum::<usize>();
            groups.push(group);
        }
        groups
    }
}

/// Runs `f` on shard `to`; at once if that is here.
fn tell(shard: &Shard, to: ShardId, f: impl FnOnce(&Shard) + Send + 'static) {
    if to == shard.id() {
        f(shard);
    } else {
        shard.submit_to(to, f);
    }
}

/// How far the groups bring each lane, and all batches in order.
fn split(groups: Vec<FeedGroup>) -> (Positions, Vec<KvBatch>) {
    let mut positions = Positions::new();
    let mut batches = Vec::new();
    for group in groups {
        match positions.iter_mut().find(|(shard, _)| *shard == group.shard) {
            Some((_, seq)) => *seq = group.seq,
            None => positions.push((group.shard, group.seq)),
        }
        batches.extend(group.batches);
    }
    (positions, batches)
}

/// One batch with only the last change of each key. Range deletions stay where they are: what is put after one is after
/// it still, and what is put before one and again later is put later.
fn coalesce(batches: &[KvBatch]) -> KvBatch {
    let mut last: HashMap<&[u8], usize, FixedState> = HashMap::default();
    let ops = || batches.iter().flat_map(KvBatch::iter).enumerate();
    for (number, op) in ops() {
        if let KvOp::Put(key, _) | KvOp::Delete(key) = op {
            last.insert(key, number);
        }
    }
    let mut merged = KvBatch::with_capacity(batches.iter().map(KvBatch::bytes).sum());
    for (number, op) in ops() {
        match op {
            KvOp::Put(key, value) if last.get(key) == Some(&number) => merged.put(key, value),
            KvOp::Delete(key) if last.get(key) == Some(&number) => merged.delete(key),
            KvOp::Put(..) | KvOp::Delete(_) => {}
            KvOp::DeleteRange(start, end) => merged.delete_range(start, end),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemKv;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..6, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            (0u8..6).prop_map(Step::Delete),
            (0u8..6, 0u8..7).prop_map(|(start, end)| Step::DeleteRange(start, end)),
        ]
    }

    fn content(kv: &MemKv) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut out = Vec::new();
        kv.scan(&[], &[9], &mut |key, value| {
            out.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
        out
    }

    proptest! {
        #[test]
        fn coalescing_changes_nothing_in_the_end(txns in prop::collection::vec(prop::collection::vec(step(), 0..6), 0..8)) {
            let batches: Vec<KvBatch> = txns.iter().map(|steps| {
                let mut batch = KvBatch::default();
                for step in steps {
                    match step {
                        Step::Put(key, value) => batch.put(&[*key], &[*value]),
                        Step::Delete(key) => batch.delete(&[*key]),
                        Step::DeleteRange(start, end) => batch.delete_range(&[*start], &[*end]),
                    }
                }
                batch
            }).collect();
            let (plain, merged) = (MemKv::new(), MemKv::new());
            plain.commit(&batches, true).unwrap();
            merged.commit(&[coalesce(&batches)], true).unwrap();
            prop_assert_eq!(content(&plain), content(&merged));
        }
    }

    #[test]
    fn positions_are_the_last_of_each_lane() {
        let group =
            |shard, seq| FeedGroup { shard: ShardId(shard), seq, batches: vec![KvBatch::default(); 2] };
        let (positions, batches) = split(vec![group(0, 1), group(1, 7), group(0, 2)]);
        assert_eq!(positions, [(ShardId(0), 2), (ShardId(1), 7)]);
        assert_eq!(batches.len(), 6);
    }
}
