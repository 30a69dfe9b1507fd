//! `cyan` and `null`: stores in memory. `null` is `cyan` without pages.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carmine_pgtypes::{
    LogEntry, OBJECT_BYTES_MAX, ObjectMeta, PgInfo, PgState, Sealed, Step, Transaction, pg_first_object,
    pg_range,
};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Eversion, ObjectId, SpgId};
use foldhash::fast::FixedState;

use crate::extents::written_runs;
use crate::pages::{PAGE, Pages, SentPages};
use crate::{BLOCK_BYTES, OmapPage, OmapRange, StatFs, StoreError, StoreStats};

/// What the shards of an in-memory store share: its memory limit.
#[derive(Debug)]
pub struct MemShared {
    capacity_bytes: u64,
    used_bytes: AtomicU64,
    /// `false`: `null`.
    keep_data: bool,
}

impl MemShared {
    /// A store for `capacity_bytes` of data; without `keep_data` the data is dropped.
    #[must_use]
    pub fn new(capacity_bytes: u64, keep_data: bool) -> Arc<MemShared> {
        Arc::new(MemShared { capacity_bytes, used_bytes: AtomicU64::new(0), keep_data })
    }

    pub(crate) fn keeps_data(&self) -> bool {
        self.keep_data
    }

    pub(crate) fn statfs(&self) -> StatFs {
        let used = self.used_bytes.load(Ordering::Relaxed);
        let free = self.capacity_bytes.saturating_sub(used);
        StatFs { total: self.capacity_bytes, used, metadata: 0, free }
    }
}

#[derive(Clone, Default)]
struct Object {
    meta: ObjectMeta,
    /// Bytes after the end of the object are zero.
    pages: Pages,
    omap: Omap,
}

#[derive(Clone, Default)]
struct Omap {
    header: Bytes,
    entries: BTreeMap<Box<[u8]>, Bytes>,
    /// Of the header, the keys and the values.
    bytes: usize,
}

#[derive(Default)]
struct Pg {
    info: PgInfo,
    tail: Eversion,
    log: VecDeque<LogEntry>,
}

#[derive(Default)]
struct Objects {
    /// Places in `slots`.
    objects: HashMap<Arc<ObjectId>, usize, FixedState>,
    /// The object looked up last: a write looks it up twice.
    last: RefCell<Option<(Arc<ObjectId>, usize)>>,
    slots: Vec<Object>,
    vacant: Vec<usize>,
    /// The same objects in Ceph's order, for listing.
    order: BTreeSet<Arc<ObjectId>>,
    pgs: HashMap<SpgId, Pg, FixedState>,
    stats: StoreStats,
}

/// A PG with its objects, out of one shard of a store.
pub(crate) struct MemPart {
    objects: Vec<(Arc<ObjectId>, ObjectMeta, SentPages, Omap)>,
    pg: Option<(SpgId, Pg)>,
}

/// One shard of an in-memory store.
pub(crate) struct Mem {
    shared: Arc<MemShared>,
    state: RefCell<Objects>,
    zeros: Bytes,
}

/// Bytes of zeros that are kept at hand.
const ZEROS_BYTES: usize = 64 << 10;

impl Mem {
    pub(crate) fn new(shared: &Arc<MemShared>) -> Mem {
        Mem {
            shared: Arc::clone(shared),
            state: RefCell::default(),
            zeros: Bytes::from(vec![0; ZEROS_BYTES]),
        }
    }

    pub(crate) fn stat(&self, oid: &ObjectId) -> Option<ObjectMeta> {
        self.state.borrow().get(oid).map(|object| object.meta.clone())
    }

    /// The same for an object that will be changed next.
    pub(crate) fn stat_before_write(&self, oid: &Arc<ObjectId>) -> Option<ObjectMeta> {
        let state = self.state.borrow();
        state.slots.get(state.place(oid)?).map(|object| object.meta.clone())
    }

    /// An object's version as clients see it, and its bytes; `None` if it does not exist.
    pub(crate) fn read(&self, oid: &ObjectId, off: u64, len: u64) -> Option<(u64, Payload)> {
        let mut state = self.state.borrow_mut();
        state.stats.reads += 1;
        let object = state.get(oid)?;
        Some((object.meta.user_version, self.bytes_of(object, off, len)))
    }

    /// See [`crate::Store::written`]. All counts as written where no data is kept.
    pub(crate) fn written(&self, oid: &ObjectId, off: u64, len: u64) -> Option<Vec<Range<u64>>> {
        let state = self.state.borrow();
        let object = state.get(oid)?;
        let end = off.saturating_add(len).min(object.meta.size);
        let is_written = |page| !self.shared.keep_data || object.pages.get(page).is_some();
        Some(written_runs(off..end, is_written))
    }

    /// See [`crate::Store::in_part`].
    pub(crate) fn in_part(&self, oid: &ObjectId, off: u64, len: u64) -> Vec<u64> {
        let state = self.state.borrow();
        let Some(object) = state.get(oid) else { return Vec::new() };
        let end = off.saturating_add(len).min(object.meta.size);
        let pages = object.pages.parts(off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES));
        pages.map(|page| page * BLOCK_BYTES).collect()
    }

    fn bytes_of(&self, object: &Object, off: u64, len: u64) -> Payload {
        let end = off.saturating_add(len).min(object.meta.size);
        if off.is_multiple_of(BLOCK_BYTES)
            && end == off.saturating_add(BLOCK_BYTES)
            && let Some(page) = object.pages.get(off / BLOCK_BYTES)
        {
            return page.payload();
        }
        let mut out = Payload::new();
        let mut at = off;
        while at < end {
            let within = (at % BLOCK_BYTES) as usize;
            let page = at / BLOCK_BYTES;
            let n = match object.pages.get(page) {
                Some(page) => {
                    let n = (PAGE - within).min((end - at) as usize);
                    out.push(page.bytes.slice(within..within + n));
                    n
                }
                None => {
                    let next = object.pages.skip_missing(page).saturating_mul(BLOCK_BYTES);
                    let n = (next.min(end) - at).min(ZEROS_BYTES as u64) as usize;
                    out.push(self.zeros.slice(..n));
                    n
                }
            };
            at += n as u64;
        }
        out
    }

    pub(crate) fn omap_header(&self, oid: &ObjectId) -> Bytes {
        self.state.borrow().get(oid).map(|object| object.omap.header.clone()).unwrap_or_default()
    }

    pub(crate) fn omap_values(&self, oid: &ObjectId, keys: &[Box<[u8]>]) -> Vec<Option<Bytes>> {
        let state = self.state.borrow();
        let omap = state.get(oid).map(|object| &object.omap);
        keys.iter().map(|key| omap.and_then(|omap| omap.entries.get(key)).cloned()).collect()
    }

    pub(crate) fn omap_page(&self, oid: &ObjectId, range: &OmapRange) -> OmapPage {
        let (state, mut page) = (self.state.borrow(), OmapPage::default());
        let Some(object) = state.get(oid) else { return page };
        let wanted =
            object.omap.entries.range::<[u8], _>((Bound::Included(&*range.first()), Bound::Unbounded));
        for (key, value) in wanted.take_while(|(key, _)| key.starts_with(&range.prefix)) {
            if !page.push(range, key, value.clone()) {
                break;
            }
        }
        page
    }

    pub(crate) fn submit(&self, txn: Sealed) -> Result<(), StoreError> {
        self.admit(&txn)?;
        let mut txn = txn.into_boxed();
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.stats.txns += 1;
        let mut growth = 0i64;
        for change in &txn.changes {
            let mut place = state.place(&change.oid);
            for step in &change.steps {
                if let Step::CloneFrom { from } = step {
                    growth += state.copy(from, &change.oid);
                    place = state.place(&change.oid);
                    continue;
                }
                let at = match (step, place) {
                    (step, None) if !step.creates() => continue,
                    (_, Some(at)) => at,
                    (_, None) => state.create(&change.oid),
                };
                if matches!(step, Step::Remove) {
                    growth -= state.remove(&change.oid);
                    place = None;
                } else {
                    growth += state.apply(step, at, self.shared.keep_data);
                    place = Some(at);
                }
            }
        }
        // Wrapping addition of a negative number subtracts.
        self.shared.used_bytes.fetch_add(growth as u64, Ordering::Relaxed);
        state.rewind(txn.pg, txn.log_rewind_to);
        state.apply_pg(&mut txn);
        std::mem::take(&mut txn.split).into_iter().for_each(|child| state.split_pg(txn.pg, child));
        for source in &txn.merge {
            let is_here = state.pgs.remove(source).is_some();
            assert!(is_here, "PG {source} is merged into PG {} on another shard than its own", txn.pg);
        }
        if txn.forget_pg {
            state.pgs.remove(&txn.pg);
        }
        Ok(())
    }

    /// Refuses a transaction that cannot be applied, before anything changes.
    fn admit(&self, txn: &Sealed) -> Result<(), StoreError> {
        let mut needed_bytes = 0;
        for (oid, step) in txn.changes.iter().flat_map(|change| change.steps.iter().map(|s| (&change.oid, s)))
        {
            match step {
                Step::Write { off, data, .. } => {
                    let end = off.saturating_add(data.len() as u64);
                    needed_bytes += (end.div_ceil(BLOCK_BYTES) - off / BLOCK_BYTES) * BLOCK_BYTES;
                }
                // A page shared by two objects counts for both: each may need its own later.
                Step::CloneFrom { from } => {
                    needed_bytes += self.state.borrow().get(from).map_or(0, |object| object.bytes() as u64);
                }
                // Memory loses nothing, so lost blocks cannot be recorded here.
                Step::MarkLost { off, crc, .. } => {
                    return Err(StoreError::Lost { oid: ObjectId::clone(oid), offset: *off, expected: *crc });
                }
                step => needed_bytes += step.omap_bytes(),
            }
            if step.end() > OBJECT_BYTES_MAX {
                return Err(StoreError::TooLarge { oid: ObjectId::clone(oid), size: step.end() });
            }
        }
        let free_bytes = self.shared.statfs().free;
        if needed_bytes > free_bytes {
            return Err(StoreError::NoSpace { needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// See [`crate::Store::release`].
    pub(crate) fn release(&self, pg: SpgId, bits: u32) -> MemPart {
        let oids = self.listed(pg, bits, None, usize::MAX);
        let state = &mut *self.state.borrow_mut();
        let take = |oid: Arc<ObjectId>| {
            let Object { meta, pages, omap } = state.take(&oid)?;
            Some((oid, meta, pages.into(), omap))
        };
        let objects = oids.into_iter().filter_map(take).collect();
        MemPart { objects, pg: state.pgs.remove(&pg).map(|state| (pg, state)) }
    }

    /// See [`crate::Store::adopt`].
    pub(crate) fn adopt(&self, part: MemPart) {
        let state = &mut *self.state.borrow_mut();
        for (oid, meta, pages, omap) in part.objects {
            let place = state.create(&oid);
            state.slots[place] = Object { meta, pages: pages.into(), omap };
        }
        state.pgs.extend(part.pg);
    }

    pub(crate) fn list(&self, pg: SpgId, bits: u32, from: Option<&ObjectId>, max: usize) -> Vec<ObjectId> {
        self.listed(pg, bits, from, max).iter().map(|oid| ObjectId::clone(oid)).collect()
    }

    fn listed(&self, pg: SpgId, bits: u32, from: Option<&ObjectId>, max: usize) -> Vec<Arc<ObjectId>> {
        let (first, last) = pg_range(pg.pgid.ps, bits);
        // Also from the first generation on: a cursor has none, and objects without one sort last.
        let start = ObjectId {
            shard: pg.shard,
            generation: 0,
            ..ObjectId::cursor(pg.pgid.pool, first.reverse_bits())
        };
        let start = from.filter(|from| **from > start).unwrap_or(&start);
        let state = self.state.borrow();
        let inside = |oid: &&Arc<ObjectId>| {
            (oid.shard, oid.pool) == (pg.shard, pg.pgid.pool) && oid.reversed_hash() <= last
        };
        let range = state.order.range::<ObjectId, _>((Bound::Included(start), Bound::Unbounded));
        range.take_while(inside).take(max).cloned().collect()
    }

    pub(crate) fn list_pgs(&self) -> Vec<SpgId> {
        let mut pgs: Vec<SpgId> = self.state.borrow().pgs.keys().copied().collect();
        pgs.sort_unstable();
        pgs
    }

    pub(crate) fn load_pg(&self, pg: SpgId) -> Option<PgState> {
        let state = self.state.borrow();
        state.pgs.get(&pg).map(Pg::state)
    }

    pub(crate) fn statfs(&self) -> StatFs {
        self.shared.statfs()
    }

    pub(crate) fn stats(&self) -> StoreStats {
        self.state.borrow().stats
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let bytes: i64 = state.slots.iter().map(Object::bytes).sum();
        self.shared.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Objects {
    fn get(&self, oid: &ObjectId) -> Option<&Object> {
        self.slots.get(*self.objects.get(oid)?)
    }

    /// The slot of an object that is about to be looked up again.
    fn place(&self, oid: &Arc<ObjectId>) -> Option<usize> {
        let mut last = self.last.borrow_mut();
        match last.as_ref() {
            Some((asked, place)) if Arc::ptr_eq(asked, oid) => Some(*place),
            _ => {
                let place = *self.objects.get(oid)?;
                *last = Some((Arc::clone(oid), place));
                Some(place)
            }
        }
    }

    /// The slot of a new object.
    fn create(&mut self, oid: &Arc<ObjectId>) -> usize {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Object::default());
            self.slots.len() - 1
        });
        self.objects.insert(Arc::clone(oid), place);
        self.order.insert(Arc::clone(oid));
        place
    }

    /// Removes an object; returns the bytes that it used.
    fn remove(&mut self, oid: &ObjectId) -> i64 {
        self.take(oid).map_or(0, |object| object.bytes())
    }

    fn take(&mut self, oid: &ObjectId) -> Option<Object> {
        self.last.take();
        let place = self.objects.remove(oid)?;
        self.order.remove(oid);
        self.vacant.push(place);
        self.slots.get_mut(place).map(std::mem::take)
    }

    /// Applies a step to an object; returns the change of the bytes in use.
    fn apply(&mut self, step: &Step, place: usize, keep_data: bool) -> i64 {
        let Some(object) = self.slots.get_mut(place) else { return 0 };
        let before = object.bytes();
        match step {
            Step::Write { off, data } => object.write(*off, data, keep_data),
            Step::Zero { off, len } => object.zero(*off, off.saturating_add(*len).min(object.meta.size)),
            Step::Truncate { size } => {
                object.leave_gap(*size);
                object.zero(*size, object.meta.size);
                object.meta.size = *size;
            }
            Step::SetMeta { version, user_version, mtime } => {
                let meta = &mut object.meta;
                (meta.version, meta.user_version, meta.mtime) = (*version, *user_version, *mtime);
            }
            Step::SetXattr { name, value } => object.meta.xattrs.set(name, value.clone()),
            Step::RemoveXattr { name } => object.meta.xattrs.remove(name),
            Step::ClearXattrs { prefix } => object.meta.xattrs.clear(prefix),
            Step::SetOmap { .. }
            | Step::SetOmapHeader { .. }
            | Step::RemoveOmap { .. }
            | Step::RemoveOmapRange { .. }
            | Step::ClearOmap => object.omap.apply(step, &mut object.meta.has_omap),
            Step::Touch | Step::Remove | Step::CloneFrom { .. } | Step::MarkLost { .. } => {}
        }
        object.bytes() - before
    }

    /// Makes `to` a copy of `from`; returns the change of the bytes in use.
    fn copy(&mut self, from: &ObjectId, to: &Arc<ObjectId>) -> i64 {
        if *from == **to {
            return 0;
        }
        let copy = self.get(from).cloned();
        let freed = self.remove(to);
        let taken = copy.map_or(0, |copy| {
            let (bytes, place) = (copy.bytes(), self.create(to));
            if let Some(slot) = self.slots.get_mut(place) {
                *slot = copy;
            }
            bytes
        });
        taken - freed
    }

    fn rewind(&mut self, id: SpgId, keep_to: Option<Eversion>) {
        if let (Some(keep_to), Some(pg)) = (keep_to, self.pgs.get_mut(&id)) {
            pg.log.retain(|entry| entry.version <= keep_to);
            pg.tail = Eversion::ZERO;
        }
    }

    /// Applies a transaction's changes of its PG's log and info.
    fn apply_pg(&mut self, txn: &mut Transaction) {
        if txn.log.is_empty() && txn.log_trim_to.is_none() && txn.info.is_none() {
            return;
        }
        let pg = self.pgs.entry(txn.pg).or_default();
        pg.info.pg = txn.pg;
        if let Some(info) = txn.info.take() {
            pg.info = *info;
        }
        if txn.log.len() > 1 {
            pg.log.extend(txn.log.drain(..));
        } else if let Some(entry) = txn.log.pop() {
            // A client's write has one entry, for which a drain costs more.
            pg.log.push_back(entry);
        }
        if let Some(trim_to) = txn.log_trim_to {
            while pg.log.front().is_some_and(|entry| entry.version <= trim_to) {
                pg.log.pop_front();
            }
            pg.tail = pg.tail.max(trim_to);
        }
    }

    /// Gives a child its part of its parent's log.
    #[cold]
    fn split_pg(&mut self, parent: SpgId, child: PgInfo) {
        let (bits, first) = (child.bits().unwrap_or_default(), Arc::new(pg_first_object(child.pg)));
        let log = self.pgs.get(&parent).map(|parent| parent.log.iter()).into_iter().flatten();
        let log = log.filter(|entry| entry.version > child.log_tail);
        let log = log.map(|entry| entry.clone().stub_unless_in(child.pg, bits, &first)).collect();
        self.pgs.insert(child.pg, Pg { info: child, tail: Eversion::ZERO, log });
    }
}

impl Pg {
    /// The PG's state, with the info brought up to date with the log.
    fn state(&self) -> PgState {
        let log: Vec<LogEntry> = self.log.iter().cloned().collect();
        let mut info = self.info.clone();
        info.log_tail = info.log_tail.max(self.tail);
        let newest = log.last().map_or(Eversion::ZERO, |entry| entry.version);
        info.last_update = info.last_update.max(info.log_tail).max(newest);
        PgState { info, log }
    }
}

impl Omap {
    fn apply(&mut self, step: &Step, has_omap: &mut bool) {
        match step {
            Step::SetOmap { entries } => {
                *has_omap = true;
                for (key, value) in entries {
                    self.remove(key);
                    self.bytes += key.len() + value.len();
                    self.entries.insert(key.clone(), value.clone());
                }
            }
            Step::SetOmapHeader { header } => {
                *has_omap = true;
                self.bytes = self.bytes + header.len() - self.header.len();
                self.header = header.clone();
            }
            Step::RemoveOmap { keys } => keys.iter().for_each(|key| self.remove(key)),
            Step::RemoveOmapRange { from, to } => {
                let bytes = &mut self.bytes;
                self.entries.retain(|key, value| {
                    let stays = key < from || key >= to;
                    *bytes -= if stays { 0 } else { key.len() + value.len() };
                    stays
                });
            }
            _ => (*self, *has_omap) = (Omap::default(), false),
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.entries.remove(key) {
            self.bytes -= key.len() + value.len();
        }
    }
}

impl Object {
    fn bytes(&self) -> i64 {
        (self.pages.count() * BLOCK_BYTES) as i64 + self.omap.bytes as i64
    }

    fn write(&mut self, off: u64, data: &Payload, keep_data: bool) {
        let (end, size) = (off + data.len() as u64, self.meta.size);
        if !data.is_empty() && end > size {
            self.leave_gap(off);
            self.meta.size = end;
        }
        if !keep_data {
            return;
        }
        let mut at = off;
        while at < end {
            let within = (at % BLOCK_BYTES) as usize;
            let n = (PAGE - within).min((end - at) as usize);
            let page = at / BLOCK_BYTES;
            let is_part = n < PAGE
                && match self.pages.get(page) {
                    None => within > 0 || at + (n as u64) < size,
                    Some(_) => at > size && page == size / BLOCK_BYTES,
                };
            let part = (at - off) as usize..(at - off) as usize + n;
            self.pages.write(page, within, data, part);
            if is_part {
                self.pages.set_part(page);
            }
            at += n as u64;
        }
    }

    /// The object is about to grow by bytes from `off` on: the gap between its end and `off` is a hole, also within the last
    /// page.
    fn leave_gap(&mut self, off: u64) {
        if off > self.meta.size && !self.meta.size.is_multiple_of(BLOCK_BYTES) {
            self.pages.set_part(self.meta.size / BLOCK_BYTES);
        }
    }

    /// Makes `from..to` zeros (nothing if `to <= from`); whole pages are dropped, the last one also if all that remains of it
    /// lies after the end of the object.
    fn zero(&mut self, from: u64, to: u64) {
        if to <= from {
            return;
        }
        let to = if to == self.meta.size { to.next_multiple_of(BLOCK_BYTES) } else { to };
        self.pages.remove(from.div_ceil(BLOCK_BYTES), to / BLOCK_BYTES);
        let (from_within, to_within) = ((from % BLOCK_BYTES) as usize, (to % BLOCK_BYTES) as usize);
        if from / BLOCK_BYTES == to / BLOCK_BYTES {
            self.clear(from / BLOCK_BYTES, from_within, to_within);
        } else {
            if from_within > 0 {
                self.clear(from / BLOCK_BYTES, from_within, PAGE);
            }
            self.clear(to / BLOCK_BYTES, 0, to_within);
        }
    }

    /// Makes a part of a page a hole.
    fn clear(&mut self, page: u64, from: usize, to: usize) {
        if from < to {
            self.pages.clear(page, from, to);
            self.pages.set_part(page);
        }
    }
}
