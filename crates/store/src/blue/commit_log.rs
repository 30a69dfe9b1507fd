//! [`CommitLog`]: groups of transactions become durable. First form: one committer for the whole process, which takes
//! the ready groups of all shards, makes one batch of them, and syncs once.
//!
//! The seam for the final form (a log lane per shard on the device): a shard appends groups in order, and is told in
//! the same order that they are durable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use carmine_reactor::{Group as SchedulingGroup, Shard, ShardId};
use crossbeam::queue::SegQueue;
use foldhash::fast::FixedState;

use super::local;
use crate::kv::{Kv, KvBatch, KvError, KvOp};

/// Bytes of keys and values that one batch takes at most (one group more may overshoot).
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Below this much room for the key-value store, writes are refused and only deleting and truncating goes on.
const KV_FREE_BYTES_MIN: u64 = 64 << 20;
/// Commits between two looks at that room.
const SPACE_CHECK_COMMITS: u64 = 64;
/// Virtual time of a commit in the simulator: short, so that it can overtake whatever it should wait for.
const SIM_COMMIT_NS: u64 = 20_000;

/// Transactions of one shard that are to become durable together; their data already is.
pub(crate) struct Group {
    /// Who is told.
    pub(crate) shard: ShardId,
    /// Their changes, in order, one batch each.
    pub(crate) batches: Vec<KvBatch>,
}

/// The committer and its queue.
pub(crate) struct CommitLog {
    kv: Arc<dyn Kv>,
    queue: SegQueue<Group>,
    /// A task of some shard is emptying the queue.
    busy: AtomicBool,
    commits: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    /// The key-value store has little room left.
    low: AtomicBool,
    /// The first failure. What is in the queue after it must not become durable either: it would leave a gap.
    failed: OnceLock<KvError>,
}

/// What the committer did so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitStats {
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    pub(crate) busy_ns: u64,
}

impl CommitLog {
    pub(crate) fn new(kv: Arc<dyn Kv>) -> CommitLog {
        CommitLog {
            kv,
            queue: SegQueue::new(),
            busy: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            low: AtomicBool::new(false),
            failed: OnceLock::new(),
        }
    }

    pub(crate) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.commits.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
        }
    }

    /// The key-value store has little room left: only what gives space back may be taken.
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// On an alien thread.
    fn commit(&self, batches: &[KvBatch]) -> Result<(), KvError> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        if self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(SPACE_CHECK_COMMITS) {
            self.low
                .store(self.kv.free_bytes().is_some_and(|free| free < KV_FREE_BYTES_MIN), Ordering::Relaxed);
        }
        let result = match coalesce(batches) {
            Some(merged) => self.kv.commit(&[merged], true),
            None => self.kv.commit(batches, true),
        };
        if let Err(error) = &result {
            // A second failure changes nothing.
            let _ = self.failed.set(error.clone());
        }
        result
    }

    /// Queues a group. [`local::durable`] is called on its shard when it is durable or has failed; groups of a shard
    /// in the order of their appending. The queue is as bounded as the transactions in flight are.
    pub(crate) fn append(self: &Arc<Self>, shard: &Shard, instance: usize, group: Group) {
        self.queue.push(group);
        if !self.busy.swap(true, Ordering::AcqRel) {
            let log = Arc::clone(self);
            let task_shard = shard.clone();
            shard.spawn(SchedulingGroup::Client, "blue-committer", async move {
                log.run(&task_shard, instance).await;
            });
        }
    }

    /// Commits until the queue is empty. Runs as one task at a time in the whole process.
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
            let (counts, batches) = split(groups);
            self.bytes.fetch_add(batches.iter().map(|batch| batch.bytes() as u64).sum(), Ordering::Relaxed);
            let log = Arc::clone(&self);
            let start_ns = shard.now_ns();
            let result = shard.alien(SIM_COMMIT_NS, move || log.commit(&batches)).await;
            self.busy_ns.fetch_add(shard.now_ns().saturating_sub(start_ns), Ordering::Relaxed);
            for (to, count) in counts {
                let result = result.clone();
                if to == shard.id() {
                    local::durable(shard, instance, count, &result);
                } else {
                    shard.submit_to(to, move |shard| local::durable(shard, instance, count, &result));
                }
            }
        }
    }

    fn take(&self) -> Vec<Group> {
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

/// Who is to be told of how many transactions, and all batches in order.
fn split(groups: Vec<Group>) -> (Vec<(ShardId, usize)>, Vec<KvBatch>) {
    let mut counts: Vec<(ShardId, usize)> = Vec::new();
    let mut batches = Vec::new();
    for group in groups {
        match counts.iter_mut().find(|(shard, _)| *shard == group.shard) {
            Some((_, count)) => *count += group.batches.len(),
            None => counts.push((group.shard, group.batches.len())),
        }
        batches.extend(group.batches);
    }
    (counts, batches)
}

/// One batch with only the last change of each key, if a key is changed more than once. Range deletions stay where
/// they are: what is put after one is after it still, and what is put before one and again later is put later.
fn coalesce(batches: &[KvBatch]) -> Option<KvBatch> {
    if batches.len() < 2 {
        return None;
    }
    let mut last: HashMap<&[u8], usize, FixedState> = HashMap::default();
    let mut repeated = false;
    let ops = || batches.iter().flat_map(KvBatch::iter).enumerate();
    for (number, op) in ops() {
        if let KvOp::Put(key, _) | KvOp::Delete(key) = op {
            repeated |= last.insert(key, number).is_some();
        }
    }
    if !repeated {
        return None;
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
    Some(merged)
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
            let (plain, merged) = (MemKv::new(), Arc::new(MemKv::new()));
            plain.commit(&batches, true).unwrap();
            CommitLog::new(merged.clone()).commit(&batches).unwrap();
            prop_assert_eq!(content(&plain), content(&merged));
        }
    }

    #[test]
    fn counts_are_per_shard() {
        let group = |shard, count| Group { shard: ShardId(shard), batches: vec![KvBatch::default(); count] };
        let (counts, batches) = split(vec![group(0, 2), group(1, 3), group(0, 1)]);
        assert_eq!(counts, [(ShardId(0), 3), (ShardId(1), 3)]);
        assert_eq!(batches.len(), 6);
    }
}
