//! [`MetaIndex`]: the one seam behind which `blue` keeps its metadata: an ordered map of bytes that is read and changed without
//! blocking a reactor. RocksDB, whose calls block, is one implementation ([`KvIndex`]); one that uses the ring itself could be
//! another variant.
//!
//! Changes become visible at once and durable in the order in which they were applied, at the latest with the next
//! [`flush`](MetaIndex::flush). Changes of one epoch are numbered: the log records from time to time which of them is durable,
//! and a mount that finds fewer fails (FORMAT.md §5).
// A lock is held on alien threads only, never on a reactor.
#![allow(clippy::disallowed_types)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use carmine_reactor::Shard;

use crate::blue::meta::{codec, keys, lookups};
use crate::kv::{Kv, KvBatch, KvCpu, KvError, KvOp};

/// Virtual times of its calls in the simulator. Applying is fast, so that tests catch missing waits.
const SIM_LOAD_NS: u64 = 10_000;
const SIM_SCAN_NS: u64 = 50_000;
const SIM_APPLY_NS: u64 = 20_000;
const SIM_FLUSH_NS: u64 = 500_000;
const SIM_LOOK_NS: u64 = 1_000;

/// Pairs of one page of a scan, and the bytes of keys and values after which it ends.
const PAGE_PAIRS: usize = 1024;
const PAGE_BYTES: usize = 1 << 20;

/// Where metadata is kept. Clones are handles of the same.
#[derive(Clone)]
pub enum MetaIndex {
    /// A key-value store that blocks, behind alien threads.
    Kv(KvIndex),
}

/// A key-value store, and the numbers of what is applied to it.
#[derive(Clone)]
pub struct KvIndex {
    kv: Arc<dyn Kv>,
    numbers: Arc<Numbers>,
}

#[derive(Default)]
struct Numbers {
    /// The epoch of the log, and the number of the last application in it; none before the first epoch. Held during an
    /// application, so that the numbers are in order.
    last: Mutex<Option<(u64, u64)>>,
    durable: AtomicU64,
}

impl From<Arc<dyn Kv>> for MetaIndex {
    fn from(kv: Arc<dyn Kv>) -> MetaIndex {
        MetaIndex::Kv(KvIndex { kv, numbers: Arc::default() })
    }
}

/// Space of a key-value store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Used, including what is only in memory.
    pub(crate) used_bytes: u64,
    /// Free, if known.
    pub(crate) free_bytes: Option<u64>,
}

/// Keys to scan: from `start` (inclusive) to `end` (exclusive), in order.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    /// Pairs of a page at most.
    pub(crate) pairs_max: usize,
    /// Values are left out.
    pub(crate) keys_only: bool,
}

impl Scan {
    /// All pairs of a range.
    pub(crate) fn new((start, end): (Vec<u8>, Vec<u8>)) -> Scan {
        Scan { start, end, pairs_max: PAGE_PAIRS, keys_only: false }
    }
}

/// How many pairs the scans of one listing ask for. Removed keys that are still in the index shorten a page, so each scan asks
/// for more than the one before: any number of removed keys is skipped in few scans.
#[derive(Default)]
pub(crate) struct GrowingPages {
    pairs_min: usize,
}

impl GrowingPages {
    /// Pairs of the next scan if `wanted` are needed; at least 1.
    pub(crate) fn next(&mut self, wanted: usize) -> usize {
        let pairs = wanted.max(self.pairs_min).clamp(1, PAGE_PAIRS);
        self.pairs_min = (4 * self.pairs_min).clamp(16, PAGE_PAIRS);
        pairs
    }
}

/// The pairs that a scan found.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the page is full, so that there may be more after its last key.
    pub(crate) is_full: bool,
}

impl Page {
    /// The scan of the rest of the range; `None` at its end.
    pub(crate) fn next_scan(&self, scan: Scan) -> Option<Scan> {
        let (last, _) = self.pairs.last().filter(|_| self.is_full)?;
        let mut start = last.clone();
        start.push(0); // the smallest key above it
        Some(Scan { start, ..scan })
    }
}

impl MetaIndex {
    /// The values of these keys; `None` for missing ones.
    pub(crate) async fn load(
        &self,
        shard: &Shard,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        let MetaIndex::Kv(KvIndex { kv, .. }) = self.clone();
        shard.alien(SIM_LOAD_NS, move || keys.iter().map(|key| kv.get(key)).collect()).await
    }

    /// A page of a range. It has at least one pair if the range has any.
    pub(crate) async fn scan(&self, shard: &Shard, scan: Scan) -> Result<Page, KvError> {
        let MetaIndex::Kv(KvIndex { kv, .. }) = self.clone();
        shard.alien(SIM_SCAN_NS, move || scan_page(&*kv, &scan)).await
    }

    /// Calls `each` for all pairs of a range, in order, until it fails.
    pub(crate) async fn scan_all<E: From<KvError>>(
        &self,
        shard: &Shard,
        range: (Vec<u8>, Vec<u8>),
        mut each: impl AsyncFnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = Some(Scan::new(range));
        while let Some(scan) = rest {
            let page = self.scan(shard, scan.clone()).await?;
            for (key, value) in &page.pairs {
                each(key, value).await?;
            }
            rest = page.next_scan(scan);
        }
        Ok(())
    }

    /// Applies batches as one atomic change; with `sync` it is durable on return.
    pub(crate) async fn apply(
        &self,
        shard: &Shard,
        batches: Vec<KvBatch>,
        sync: bool,
    ) -> Result<(), KvError> {
        let MetaIndex::Kv(index) = self.clone();
        shard.alien(SIM_APPLY_NS, move || index.apply(batches, sync)).await
    }

    /// Applies the sum of batches as one atomic change, sorted by key, which becomes durable later. Returns the bytes of the sum,
    /// and the CPU time in nanoseconds.
    pub(crate) async fn apply_sorted(
        &self,
        shard: &Shard,
        batches: Vec<KvBatch>,
    ) -> (Result<u64, KvError>, u64) {
        let MetaIndex::Kv(index) = self.clone();
        let apply = move || {
            let run = sorted(&lookups::expand(&*index.kv, batches)?);
            let bytes = run.bytes() as u64;
            index.apply(vec![run], false).map(|()| bytes)
        };
        shard.alien_timed(SIM_APPLY_NS, apply).await
    }

    /// Makes everything applied so far durable. Also returns the CPU time in nanoseconds.
    pub(crate) async fn flush(&self, shard: &Shard) -> (Result<(), KvError>, u64) {
        let MetaIndex::Kv(index) = self.clone();
        shard.alien_timed(SIM_FLUSH_NS, move || index.flush()).await
    }

    /// The space that it uses, and has left. If it uses more than `reclaim_above` bytes, it begins to reclaim the space of
    /// removed keys.
    pub(crate) async fn room(&self, shard: &Shard, reclaim_above: u64) -> Room {
        let MetaIndex::Kv(KvIndex { kv, .. }) = self.clone();
        let look = move || {
            let room = Room { used_bytes: kv.used_bytes(), free_bytes: kv.free_bytes() };
            if room.used_bytes > reclaim_above {
                kv.reclaim();
            }
            room
        };
        shard.alien(SIM_LOOK_NS, look).await
    }

    /// CPU time of its own threads, if it has any and knows.
    pub(crate) async fn cpu(&self, shard: &Shard) -> Option<KvCpu> {
        let MetaIndex::Kv(KvIndex { kv, .. }) = self.clone();
        shard.alien(SIM_LOOK_NS, move || kv.cpu()).await
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        let MetaIndex::Kv(KvIndex { kv, .. }) = self;
        kv.place()
    }

    /// Begins an epoch of the log: applications are numbered from 1.
    pub(crate) fn begin_epoch(&self, epoch: u64) {
        let MetaIndex::Kv(KvIndex { numbers, .. }) = self;
        *numbers.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((epoch, 0));
        numbers.durable.store(0, Ordering::Release);
    }

    /// The number up to which this epoch's applications are durable.
    pub(crate) fn durable_number(&self) -> u64 {
        let MetaIndex::Kv(KvIndex { numbers, .. }) = self;
        numbers.durable.load(Ordering::Acquire)
    }
}

/// On an alien thread.
fn scan_page(kv: &dyn Kv, scan: &Scan) -> Result<Page, KvError> {
    let (mut page, mut bytes) = (Page::default(), 0);
    kv.scan(&scan.start, &scan.end, &mut |key, value| {
        bytes += key.len() + value.len();
        let value = if scan.keys_only { Vec::new() } else { value.to_vec() };
        page.pairs.push((key.to_vec(), value));
        page.is_full = page.pairs.len() >= scan.pairs_max || bytes >= PAGE_BYTES;
        !page.is_full
    })?;
    Ok(page)
}

/// All on alien threads.
impl KvIndex {
    fn apply(&self, batches: Vec<KvBatch>, sync: bool) -> Result<(), KvError> {
        let mut batches = lookups::expand(&*self.kv, batches)?;
        let mut last = self.numbers.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((epoch, number)) = &mut *last {
            *number += 1;
            let mut numbered = KvBatch::default();
            numbered.put_with(
                |out| out.extend_from_slice(keys::COMMITS),
                |out, at| codec::push_position(out, at, *epoch, *number),
            );
            batches.push(numbered);
        }
        self.kv.commit(&batches, sync)?;
        if let Some((_, number)) = last.filter(|_| sync) {
            self.numbers.durable.fetch_max(number, Ordering::AcqRel);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), KvError> {
        let last = *self.numbers.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.kv.flush()?;
        if let Some((_, number)) = last {
            self.numbers.durable.fetch_max(number, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// A change of a key: the key, its position among all changes, and the new value.
type Change<'a> = (&'a [u8], usize, Option<&'a [u8]>);
/// A removal of a range: start, end, and its position.
type Removal<'a> = (&'a [u8], &'a [u8], usize);

/// The sum of batches: all removals of ranges, then the last change of each key, in order, unless a later removal covers it.
/// Neighbouring entries of a PG's log become runs.
pub(crate) fn sorted(batches: &[KvBatch]) -> KvBatch {
    let (mut changes, mut removals): (Vec<Change<'_>>, Vec<Removal<'_>>) = (Vec::new(), Vec::new());
    for (place, op) in batches.iter().flat_map(KvBatch::iter).enumerate() {
        match op {
            KvOp::Put(key, value) => changes.push((key, place, Some(value))),
            KvOp::Delete(key) => changes.push((key, place, None)),
            KvOp::DeleteRange(start, end) if start < end => removals.push((start, end, place)),
            KvOp::DeleteRange(..) => {}
        }
    }
    changes.sort_unstable_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
    changes.dedup_by(|later, first| later.0 == first.0);
    let mut gone = vec![false; changes.len()];
    for (start, end, place) in &removals {
        let from = changes.partition_point(|(key, ..)| key < start);
        let to = changes.partition_point(|(key, ..)| key < end);
        let within = gone.iter_mut().zip(&changes).take(to).skip(from);
        within.for_each(|(gone, (_, changed, _))| *gone |= changed < place);
    }
    let mut run = KvBatch::with_capacity(batches.iter().map(KvBatch::bytes).sum());
    for (start, end) in joined(removals) {
        run.delete_range(start, end);
    }
    let mut log = LogRun::default();
    for ((key, _, value), _) in changes.into_iter().zip(gone).filter(|(_, gone)| !gone) {
        match value {
            Some(value) if log.add_pair(key, value, &mut run) => {}
            Some(value) => run.put(key, value),
            None => run.delete(key),
        }
    }
    log.put(&mut run);
    run
}

/// Bytes of a run of a PG's log, about.
const LOG_RUN_BYTES: usize = 32 << 10;

/// Entries of a PG's log that become one pair: single entries would cost the key-value store as much, for every write, as a whole
/// piece of a block map.
#[derive(Default)]
struct LogRun<'a> {
    /// The key of the last entry.
    key: &'a [u8],
    entries: Vec<u8>,
}

impl<'a> LogRun<'a> {
    /// Adds the pair to the run if it is one of a PG's log; false if it is not. First puts the run so far into `out` if the pair
    /// does not continue it.
    fn add_pair(&mut self, key: &'a [u8], value: &[u8], out: &mut KvBatch) -> bool {
        let entries = if keys::is_log(key) { codec::log_entries(key, value) } else { None };
        let is_next = keys::are_of_one_pg(self.key, key) && self.entries.len() < LOG_RUN_BYTES;
        if entries.is_none() || !is_next {
            self.put(out);
        }
        let Some(entries) = entries else { return false };
        self.key = key;
        self.entries.extend_from_slice(entries);
        true
    }

    fn put(&mut self, out: &mut KvBatch) {
        if !self.entries.is_empty() {
            out.put_with(
                |out| out.extend_from_slice(self.key),
                |out, at| codec::push(out, at, |e| e.bytes(&self.entries)),
            );
            self.entries.clear();
        }
    }
}

/// Joins removed ranges that overlap or touch, such as those of a log that is trimmed repeatedly.
fn joined<'a>(mut removals: Vec<Removal<'a>>) -> Vec<(&'a [u8], &'a [u8])> {
    removals.sort_unstable();
    let mut out: Vec<(&[u8], &[u8])> = Vec::new();
    for (start, end, _) in removals {
        match out.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(last),
            _ => out.push((start, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemKv;
    use crate::blue::meta::codec::tests::entry;
    use carmine_types::{Eversion, PgId, SpgId};
    use proptest::prelude::*;

    #[test]
    fn applications_are_numbered_and_known_to_be_durable_when_they_are() {
        let mem = Arc::new(MemKv::new());
        let index = MetaIndex::from(Arc::clone(&mem) as Arc<dyn Kv>);
        let MetaIndex::Kv(kv) = &index;
        let number =
            || mem.get(keys::COMMITS).unwrap().map(|v| codec::decode_position(keys::COMMITS, &v).unwrap());
        kv.apply(vec![KvBatch::default()], true).unwrap();
        assert_eq!((number(), index.durable_number()), (None, 0), "no epoch has begun");
        index.begin_epoch(9);
        kv.apply(Vec::new(), false).unwrap();
        kv.apply(Vec::new(), false).unwrap();
        assert_eq!((number(), index.durable_number()), (Some((9, 2)), 0));
        kv.flush().unwrap();
        assert_eq!(index.durable_number(), 2);
        kv.apply(Vec::new(), true).unwrap();
        assert_eq!((number(), index.durable_number()), (Some((9, 3)), 3));
        index.begin_epoch(10);
        assert_eq!(index.durable_number(), 0);
    }

    #[derive(Clone, Debug)]
    enum Change {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0u8..6, any::<u8>()).prop_map(|(key, value)| Change::Put(key, value)),
            (0u8..6).prop_map(Change::Delete),
            (0u8..6, 0u8..7).prop_map(|(start, end)| Change::DeleteRange(start, end)),
        ]
    }

    fn content(kv: &MemKv) -> Vec<(Vec<u8>, Vec<u8>)> {
        let scan = Scan { start: vec![], end: vec![9], pairs_max: usize::MAX, keys_only: false };
        scan_page(kv, &scan).unwrap().pairs
    }

    proptest! {
        #[test]
        fn a_sorted_run_changes_the_same_in_the_end(before in prop::collection::vec(any::<u8>(), 0..6),
                                                    txns in prop::collection::vec(prop::collection::vec(change(), 0..6), 0..8)) {
            let batches: Vec<KvBatch> = txns.iter().map(|changes| {
                let mut batch = KvBatch::default();
                for change in changes {
                    match change {
                        Change::Put(key, value) => batch.put(&[*key], &[*value]),
                        Change::Delete(key) => batch.delete(&[*key]),
                        Change::DeleteRange(start, end) => batch.delete_range(&[*start], &[*end]),
                    }
                }
                batch
            }).collect();
            let mut first = KvBatch::default();
            before.iter().enumerate().for_each(|(key, value)| first.put(&[key as u8], &[*value]));
            let (plain, sorted) = (MemKv::new(), MemKv::new());
            for kv in [&plain, &sorted] {
                kv.commit(&[first.clone()], true).unwrap();
            }
            plain.commit(&batches, true).unwrap();
            let run = super::sorted(&batches);
            let mut last: &[u8] = &[];
            let is_sorted = run.iter().all(|op| {
                let (KvOp::Put(key, _) | KvOp::Delete(key)) = op else { return true };
                std::mem::replace(&mut last, key) < key
            });
            prop_assert!(is_sorted);
            sorted.commit(&[run], true).unwrap();
            prop_assert_eq!(content(&plain), content(&sorted));
        }
    }

    #[test]
    fn entries_of_a_log_become_few_pairs_of_bounded_size() {
        let pg = SpgId { pgid: PgId { pool: 1, ps: 0 }, shard: -1 };
        let mut batch = KvBatch::default();
        (1..=1000).for_each(|n| codec::put_log(&mut batch, pg, &entry(Eversion::new(1, n))));
        let run = super::sorted(&[batch]);
        assert!((2..20).contains(&run.len()), "{} pairs", run.len());
        let is_small = |op| matches!(op, KvOp::Put(_, value) if value.len() < 2 * LOG_RUN_BYTES);
        assert!(run.iter().all(is_small));
    }

    #[test]
    fn a_run_that_is_damaged_is_not_hidden_in_another() {
        let pg = SpgId { pgid: PgId { pool: 1, ps: 0 }, shard: -1 };
        let version = |n| Eversion::new(1, n);
        let mut batch = KvBatch::default();
        codec::put_log(&mut batch, pg, &entry(version(1)));
        batch.put(&keys::log(pg, version(2)), b"damaged");
        codec::put_log(&mut batch, pg, &entry(version(3)));
        let run = super::sorted(&[batch]);
        let found: Vec<_> = run.iter().map(|op| matches!(op, KvOp::Put(_, b"damaged"))).collect();
        assert_eq!(found, [false, true, false]);
    }

    #[test]
    fn pages_follow_one_another() {
        let kv = MemKv::new();
        let mut batch = KvBatch::default();
        (0..10u8).for_each(|n| batch.put(&[n], &[n]));
        kv.commit(&[batch], true).unwrap();
        let (mut rest, mut found) =
            (Some(Scan { pairs_max: 3, ..Scan::new((vec![1], vec![9])) }), Vec::new());
        while let Some(scan) = rest {
            let page = scan_page(&kv, &scan).unwrap();
            assert!(page.pairs.len() <= 3);
            rest = page.next_scan(scan);
            found.extend(page.pairs.into_iter().map(|(key, _)| key[0]));
        }
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
