//! Submits a transaction: first all checks that could refuse it, then the cached state, the metadata, the writes.

use std::rc::Rc;

use carmine_pgtypes::{NAME_BYTES_MAX, OBJECT_BYTES_MAX, ObjectChange, Sealed};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Buf, Bytes, Payload};
use carmine_types::{ObjectId, crc32c, is_mutated};
use smallvec::SmallVec;

use crate::blue::device::space::{Run, Runs};
use crate::blue::device::{IO_BLOCKS_MAX, PIECE_BLOCKS};
use crate::blue::log::record::{HEADER_BYTES, txn_bytes};
use crate::blue::meta::extents::Extents;
use crate::blue::objects::apply::{Placed, PlacedList, Placer, Sources, Touched, Work, encode_pg, needs};
use crate::blue::objects::onode::Pin;
use crate::blue::shard::clone::has_clones;
use crate::blue::shard::queue::{Deferred, DeviceWrites, Progress, Record, Written};
use crate::blue::shard::{Blue, Existence};
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, Commit, StoreError};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A transaction larger than this part of the largest group is not deferred.
const DEFERRED_PART: usize = 2;

pub(crate) type TouchedList = SmallVec<[Touched; 1]>;

/// The result of [`Blue::admit`].
struct Admitted {
    touched: TouchedList,
    /// The index in `touched` of each change's object.
    places: SmallVec<[usize; 1]>,
    sources: Sources,
    runs: Runs,
    /// It writes less than [`Blue::deferred_below`].
    is_small: bool,
    /// Most bytes that it needs in the log.
    log_bytes: usize,
}

/// The objects and blocks that a transaction's changes touch, in total.
pub(crate) struct Counted {
    /// The index of each change's object among all that are touched.
    pub(crate) places: SmallVec<[usize; 1]>,
    pub(crate) sources: Sources,
    /// Most blocks that they write, and that they free.
    pub(crate) blocks: u64,
    pub(crate) freed: u64,
    /// Whether they may use the reserve.
    pub(crate) reserve: bool,
    /// Bytes added to omaps.
    pub(crate) omap_bytes: u64,
}

impl Default for Counted {
    fn default() -> Counted {
        Counted {
            places: SmallVec::new(),
            sources: Sources::new(),
            blocks: 0,
            freed: 0,
            reserve: true,
            omap_bytes: 0,
        }
    }
}

impl Blue {
    /// See [`crate::Store::submit`].
    pub(crate) fn submit(&self, txn: Sealed) -> Commit {
        if let Some(error) = self.refusal() {
            return Commit::ready(Err(error));
        }
        match self.admit(&txn) {
            Ok(admitted) => self.apply(txn, admitted),
            Err(error) => Commit::ready(Err(error)),
        }
    }

    /// Checks everything that could refuse the transaction and allocates the space that it needs. Changes nothing else.
    fn admit(&self, txn: &Sealed) -> Result<Admitted, StoreError> {
        let mut touched = TouchedList::new();
        let counted = if has_clones(&txn.changes) {
            self.admit_clones(&txn.changes, &mut touched)?
        } else {
            self.admit_changes(&txn.changes, &mut touched)?
        };
        let Counted { places, sources, blocks, freed, reserve, omap_bytes } = counted;
        self.admit_omap(omap_bytes)?;
        for entry in &txn.log {
            check_names(&entry.oid)?;
        }
        let is_small = txn.data_bytes() < self.deferred_below();
        let log_bytes = self.log_bytes_max(txn, blocks as usize, freed as usize, is_small);
        Ok(Admitted { touched, places, sources, runs: self.allocate(blocks, reserve)?, is_small, log_bytes })
    }

    fn admit_changes(
        &self,
        changes: &[ObjectChange],
        touched: &mut TouchedList,
    ) -> Result<Counted, StoreError> {
        let Counted { mut places, sources, mut blocks, mut freed, mut reserve, mut omap_bytes } =
            Counted::default();
        for change in changes {
            let oid = &*change.oid;
            check_names(oid)?;
            let place = self.touch(touched, oid)?;
            places.push(place);
            let Some(object) = touched.get(place) else { continue };
            let state = object.pin.state.borrow();
            let at_hand = |index| state.has_content(index);
            for step in &change.steps {
                if step.end() > OBJECT_BYTES_MAX {
                    return Err(StoreError::TooLarge { oid: oid.clone(), size: step.end() });
                }
                let needs = needs(step);
                if !state.is_loaded(&needs.map) || !needs.edges.into_iter().flatten().all(at_hand) {
                    return Err(StoreError::NotPrepared(oid.clone()));
                }
                // Of blocks that the object has, or just got.
                let has = (state.map.len() * PIECE_BLOCKS) as u64 + blocks + needs.blocks;
                let (first, end) = (needs.map.start / BLOCK_BYTES, needs.map.end.div_ceil(BLOCK_BYTES));
                freed += has.min(end - first);
                blocks += needs.blocks;
                reserve &= needs.blocks == 0 || needs.reserve;
                omap_bytes += step.omap_bytes();
            }
        }
        Ok(Counted { places, sources, blocks, freed, reserve, omap_bytes })
    }

    /// The index of an object in the list, which it is added to if needed.
    pub(crate) fn touch(&self, touched: &mut TouchedList, oid: &ObjectId) -> Result<usize, StoreError> {
        if let Some(place) = touched.iter().position(|touched| touched.pin.oid == *oid) {
            return Ok(place);
        }
        let pin = self.cache.borrow().get(oid).map(Pin::new);
        let pin = pin.ok_or_else(|| StoreError::NotPrepared(oid.clone()))?;
        touched.push(Touched::new(pin));
        Ok(touched.len() - 1)
    }

    /// Checks that there is space for what a transaction adds to omaps, in the store and on the drive of its metadata.
    fn admit_omap(&self, needed_bytes: u64) -> Result<(), StoreError> {
        if needed_bytes == 0 {
            return Ok(());
        }
        let is_low = self.shared.is_kv_low();
        let free_bytes = if is_low { 0 } else { self.shared.space().free_blocks(false) * BLOCK_BYTES };
        if needed_bytes > free_bytes {
            self.shared.log().measure_room_soon(&self.shard);
            return Err(StoreError::NoSpace { needed_bytes, free_bytes });
        }
        Ok(())
    }

    fn allocate(&self, blocks: u64, reserve: bool) -> Result<Runs, StoreError> {
        if blocks == 0 {
            return Ok(Runs::new());
        }
        let space = self.shared.space();
        let no_space = || StoreError::NoSpace {
            needed_bytes: blocks * BLOCK_BYTES,
            free_bytes: space.free_blocks(reserve) * BLOCK_BYTES,
        };
        if !reserve && self.shared.is_kv_low() {
            return Err(StoreError::NoSpace { needed_bytes: blocks * BLOCK_BYTES, free_bytes: 0 });
        }
        let take = || space.allocate(self.shard.id().0, &mut self.lease.borrow_mut(), blocks, reserve);
        // Blocks that only wait for their discard can be freed at once.
        let runs = take().or_else(|| if self.skip_discards() { take() } else { None });
        let mut runs = runs.ok_or_else(no_space)?;
        runs.reverse();
        if self.data_cache.is_some() {
            // Another shard may have freed them, for a PG that this one had before.
            let blocks = runs.iter().flat_map(|run| run.start..run.start + run.blocks);
            blocks.for_each(|block| self.forget_content(block));
        }
        Ok(runs)
    }

    fn apply(&self, txn: Sealed, admitted: Admitted) -> Commit {
        let Admitted { mut touched, places, sources, runs, is_small, log_bytes } = admitted;
        self.count(|stats| stats.txns += 1);
        let around = HEADER_BYTES + log_bytes > self.group_bytes_max();
        let log_blocks = (HEADER_BYTES + log_bytes).div_ceil(BLOCK) as u64;
        let changes = self.begin_changes(&touched, log_blocks, around);
        let bytes_before = changes.bytes();
        let placer = Allocated { store: self, runs, writes: DeviceWrites::default(), crcs: SmallVec::new() };
        let mut work = Work::new(placer, changes);
        work.sources = sources;
        for (change, place) in txn.changes.iter().zip(places) {
            if let Some(object) = touched.get_mut(place) {
                let onode = Rc::clone(&object.pin);
                let mut state = onode.state.borrow_mut();
                change.steps.iter().for_each(|step| work.apply(step, object, &mut state));
            }
        }
        let Work { placer, freed, mut changes, pieces, .. } = work;
        let Allocated { runs, mut writes, mut crcs, .. } = placer;
        for run in runs {
            (run.start..run.start + run.blocks).for_each(|block| self.shared.space().free(block));
        }
        for object in touched.iter().filter(|object| object.remapped) {
            self.readahead.forget(&object.pin);
        }
        freed.iter().for_each(|block| self.forget_content(*block));
        let omap_bytes = changes.bytes() - bytes_before;
        encode_pg(&mut changes, &txn, &mut self.trimmed.borrow_mut());
        // Changes of omaps are also kept for reads.
        let bytes = changes.bytes() - bytes_before + omap_bytes;
        let existence = self.note_existence(&touched);
        self.queue.borrow_mut().enter_window((changes, bytes), pieces, existence, (log_blocks, around));
        let mut written = Written::new();
        for object in touched {
            if object.resized {
                self.cache.borrow_mut().recount(&object.pin.oid);
            }
            if !object.blocks.is_empty() {
                written.push((Rc::clone(&object.pin), object.blocks));
            }
        }
        let mut deferred = Deferred::default();
        if is_small && self.has_room_for_images(&txn, &writes) {
            self.count(|stats| stats.deferred_txns += 1);
            crcs.clear();
            deferred =
                Deferred { writes: std::mem::take(&mut writes), written: std::mem::take(&mut written) };
        }
        let (reply, receiver) = oneshot::channel();
        let progress = Progress::default();
        let record = Record {
            encoded: txn.encoded().clone(),
            writes: crcs,
            deferred,
            freed,
            log_blocks,
            around,
            reply,
            progress,
        };
        assert!(record.log_bytes() <= log_bytes, "a transaction takes more of the log than was counted");
        self.enqueue(record, writes, written);
        Commit::pending(receiver)
    }

    /// Most bytes of a transaction in the log, if it writes and frees this many blocks.
    fn log_bytes_max(&self, txn: &Sealed, blocks: usize, freed: usize, is_small: bool) -> usize {
        let txn_len = txn.encoded().len();
        let beside = txn_bytes(txn_len, blocks, 0, freed);
        if blocks == 0 || !is_small {
            return beside;
        }
        // See `has_room_for_images`.
        let images = txn_bytes(txn_len, 0, blocks, 0).min(self.group_bytes_max() / DEFERRED_PART);
        beside.max(images + txn_bytes(0, 0, 0, freed))
    }

    /// Prepares the open window for a transaction with this many blocks of the log: opens a new one if this one is full or the
    /// transaction goes around the log. Notes that the objects are about to change; returns the window's batch.
    fn begin_changes(&self, touched: &TouchedList, log_blocks: u64, around: bool) -> KvBatch {
        let mut queue = self.queue.borrow_mut();
        let full = around || queue.windows.is_full_for(log_blocks);
        if full {
            queue.close_window();
        }
        let bytes_before = queue.windows.open_bytes();
        touched.iter().for_each(|object| queue.windows.touch(&object.pin));
        queue.held_bytes += queue.windows.open_bytes() - bytes_before;
        let batch = queue.windows.take_batch();
        drop(queue);
        if full {
            self.start_feeding();
        }
        batch
    }

    /// Transactions with fewer bytes of data than this are deferred. If transactions arrive one at a time, those with exactly the
    /// option's size are, too: one durable write, of the log, then replaces two.
    fn deferred_below(&self) -> u64 {
        let below = self.shared.prefer_deferred_bytes();
        below + u64::from(below > 0 && self.queue.borrow().is_alone())
    }

    /// Whether the log has room for this transaction with its data inlined.
    fn has_room_for_images(&self, txn: &Sealed, writes: &DeviceWrites) -> bool {
        let in_log = txn_bytes(txn.encoded().len(), 0, writes.blocks() as usize, 0);
        !writes.is_empty() && in_log <= self.group_bytes_max() / DEFERRED_PART
    }

    /// Remembers for listings which objects were created and removed.
    fn note_existence(&self, touched: &TouchedList) -> Vec<Box<[u8]>> {
        let mut changed = Vec::new();
        for object in touched {
            let exists = object.pin.state.borrow().exists;
            if exists != object.existed {
                let mut existence = self.existence.borrow_mut();
                let entry =
                    existence.entry(object.pin.key.clone()).or_insert(Existence { exists, transactions: 0 });
                entry.exists = exists;
                entry.transactions += 1;
                changed.push(object.pin.key.clone());
            }
        }
        changed
    }
}

pub(crate) fn check_names(oid: &ObjectId) -> Result<(), StoreError> {
    match [&oid.nspace, &oid.key, &oid.name].into_iter().find(|name| name.len() > NAME_BYTES_MAX) {
        Some(name) => Err(StoreError::NameTooLong { bytes: name.len(), max: NAME_BYTES_MAX }),
        None => Ok(()),
    }
}

/// Places blocks in what was allocated for them, and collects the writes.
struct Allocated<'a> {
    store: &'a Blue,
    /// Blocks not used yet, last run first.
    runs: Runs,
    writes: DeviceWrites,
    /// The blocks of `writes` with their checksums.
    crcs: SmallVec<[(u64, u32); 1]>,
}

impl Placer for Allocated<'_> {
    fn whole(&mut self, data: &Payload, out: &mut PlacedList) {
        let (mut at, end) = (0, data.len() as u64 / BLOCK_BYTES);
        while at < end {
            let run = self.take_run((end - at).min(IO_BLOCKS_MAX));
            let part = data.slice((at * BLOCK_BYTES) as usize, (run.blocks * BLOCK_BYTES) as usize);
            self.write_run(run, &part, out);
            at += run.blocks;
        }
    }

    fn part(&mut self, old: Option<&Bytes>, within: usize, len: usize, data: Option<&Payload>) -> Placed {
        let mut buf = self.store.shard.buf(BLOCK);
        match old {
            Some(old) => buf.copy_from_slice(old),
            None => buf.fill(0),
        }
        self.store.count(|stats| stats.bytes_copied += BLOCK as u64);
        fill_part(&mut buf, within, len, data);
        let block = self.take_run(1).start;
        let crc = crc32c::raw(crc32c::SEED, &buf);
        let content = buf.freeze();
        self.crcs.push((block, crc));
        self.writes.push(block, content.clone());
        Placed { block, crc, content }
    }

    fn share(&mut self, extents: &Extents) {
        let blocks = extents.entries().iter().filter(|entry| entry.has_block());
        if !is_mutated("forget_reference") {
            self.store.shared.space().share(blocks.map(|entry| entry.block()));
        }
    }

    fn unshare(&mut self, block: u64) -> bool {
        self.store.shared.space().references().drop_reference(block)
    }
}

impl Allocated<'_> {
    /// Takes a run of up to `blocks` neighbouring blocks from the allocation.
    fn take_run(&mut self, blocks: u64) -> Run {
        let Some(last) = self.runs.last_mut() else {
            // Cannot happen: `admit` counts at least the blocks that `apply` uses. If it does, nothing may be acknowledged any
            // more; a write to block 0 is dropped (`DeviceWrites::push`).
            self.store.fail(StoreError::failed(
                "internal error: a transaction needs more blocks than were counted",
            ));
            return Run { start: 0, blocks };
        };
        let run = Run { start: last.start, blocks: last.blocks.min(blocks) };
        last.start += run.blocks;
        last.blocks -= run.blocks;
        if last.blocks == 0 {
            self.runs.pop();
        }
        run
    }

    /// Writes whole blocks to a run of the device.
    fn write_run(&mut self, run: Run, data: &Payload, out: &mut PlacedList) {
        let mut block = run.start;
        let of_all = data.known_crc().filter(|_| data.len() == BLOCK);
        for bytes in self.aligned(data) {
            let first = block;
            let known = bytes.block_crcs().unwrap_or_default();
            for (index, at) in (0..bytes.len()).step_by(BLOCK).enumerate() {
                let content = bytes.slice(at..at + BLOCK);
                let crc = of_all.or_else(|| known.get(index).copied());
                let crc = crc.unwrap_or_else(|| crc32c::raw(crc32c::SEED, &content));
                self.crcs.push((block, crc));
                out.push(Placed { block, crc, content });
                block += 1;
            }
            self.writes.push(first, bytes);
        }
    }

    /// The bytes in aligned pieces: themselves if possible, else a copy.
    fn aligned(&self, data: &Payload) -> SmallVec<[Bytes; 1]> {
        if data.iter().all(|bytes| bytes.is_aligned(BLOCK)) {
            return data.iter().cloned().collect();
        }
        let mut buf = self.store.shard.buf(data.len());
        data.copy_to(&mut buf);
        self.store.count(|stats| stats.bytes_copied += data.len() as u64);
        SmallVec::from_iter([buf.freeze()])
    }
}

fn fill_part(buf: &mut Buf, within: usize, len: usize, data: Option<&Payload>) {
    if let Some(part) = buf.get_mut(within..within + len) {
        match data {
            Some(data) => {
                data.copy_to(part);
            }
            None => part.fill(0),
        }
    }
}
