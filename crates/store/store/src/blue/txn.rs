//! Applying a transaction: first everything that could refuse it, then the cached state, the metadata, the writes.

use std::rc::Rc;

use carmine_pgtypes::{NAME_BYTES_MAX, OBJECT_BYTES_MAX, ObjectMeta, Sealed, Step, Transaction};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Buf, Bytes, Payload};
use carmine_types::{Eversion, ObjectId, crc32c};
use smallvec::SmallVec;

use super::extents::{Entry, SHARD_BLOCKS, SHARD_BYTES};
use super::onode::{Onode, Pin, Recent, State, needs};
use super::queue::{Deferred, DeviceWrites, Progress, Record, Written};
use super::reads::Freed;
use super::record::txn_bytes;
use super::space::{Run, Runs};
use super::{Blue, Existence, IO_BLOCKS_MAX, codec, keys};
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, Commit, StoreError};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A transaction that takes more than this part of the largest group is not deferred.
const DEFERRED_PART: usize = 2;

/// An object that the transaction changes.
struct Touched {
    pin: Pin,
    existed: bool,
    /// Pieces of the block map that changed, with repetitions.
    pieces: SmallVec<[u32; 2]>,
    /// Blocks written.
    blocks: SmallVec<[u64; 2]>,
    /// The block map's memory changed.
    resized: bool,
}

type TouchedList = SmallVec<[Touched; 1]>;

/// What [`Blue::admit`] settles.
struct Admitted {
    touched: TouchedList,
    /// The place in `touched` of each change's object.
    places: SmallVec<[usize; 1]>,
    runs: Runs,
}

/// What applying produces.
struct Work<'a> {
    store: &'a Blue,
    /// Blocks allocated and not used yet, last run first.
    runs: Runs,
    writes: DeviceWrites,
    /// The blocks of `writes` with their checksums.
    crcs: SmallVec<[(u64, u32); 1]>,
    freed: Freed,
    /// Metadata: what is done to omaps so far, in order.
    batch: KvBatch,
    /// Number of this transaction.
    number: u64,
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

    /// Checks everything that could refuse the transaction and takes the space that it needs. Changes nothing else.
    fn admit(&self, txn: &Transaction) -> Result<Admitted, StoreError> {
        let (mut touched, mut places) = (TouchedList::new(), SmallVec::new());
        let (mut blocks, mut reserve) = (0, true);
        for change in &txn.changes {
            let oid = &*change.oid;
            check_names(oid)?;
            let place = self.touch(&mut touched, oid)?;
            places.push(place);
            let Some(object) = touched.get(place) else { continue };
            let state = object.pin.state.borrow();
            let at_hand = |index: u64| {
                state
                    .entry(index)
                    .is_some_and(|entry| entry.is_hole() || state.recent.contains_key(&entry.block()))
            };
            for step in &change.steps {
                if step.end() > OBJECT_BYTES_MAX {
                    return Err(StoreError::TooLarge { oid: oid.clone(), size: step.end() });
                }
                let needs = needs(step);
                if !state.is_loaded(&needs.map) || !needs.edges.into_iter().flatten().all(at_hand) {
                    return Err(StoreError::NotPrepared(oid.clone()));
                }
                blocks += needs.blocks;
                reserve &= needs.blocks == 0 || needs.reserve;
            }
        }
        for entry in &txn.log {
            check_names(&entry.oid)?;
        }
        Ok(Admitted { touched, places, runs: self.allocate(blocks, reserve)? })
    }

    /// The place of an object in the list.
    fn touch(&self, touched: &mut TouchedList, oid: &ObjectId) -> Result<usize, StoreError> {
        if let Some(place) = touched.iter().position(|touched| touched.pin.oid == *oid) {
            return Ok(place);
        }
        let pin = self.cache.borrow().get(oid).map(Pin::new);
        let pin = pin.ok_or_else(|| StoreError::NotPrepared(oid.clone()))?;
        let existed = pin.state.borrow().exists;
        touched.push(Touched {
            pin,
            existed,
            pieces: SmallVec::new(),
            blocks: SmallVec::new(),
            resized: false,
        });
        Ok(touched.len() - 1)
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
        // What only waits to be discarded is as good as free.
        let runs = take().or_else(|| if self.skip_discards() { take() } else { None });
        let mut runs = runs.ok_or_else(no_space)?;
        runs.reverse();
        Ok(runs)
    }

    fn apply(&self, txn: Sealed, admitted: Admitted) -> Commit {
        let Admitted { mut touched, places, runs } = admitted;
        self.count(|stats| stats.txns += 1);
        let (writes, crcs) = (DeviceWrites::default(), SmallVec::new());
        let (batch, number) = (KvBatch::with_capacity(1536), self.queue.borrow().next());
        let mut work = Work { store: self, runs, writes, crcs, freed: Freed::new(), batch, number };
        for (change, place) in txn.changes.iter().zip(places) {
            if let Some(object) = touched.get_mut(place) {
                let onode = Rc::clone(&object.pin);
                let mut state = onode.state.borrow_mut();
                change.steps.iter().for_each(|step| work.apply(step, object, &mut state));
            }
        }
        let Work { runs, mut writes, mut crcs, freed, mut batch, .. } = work;
        for run in runs {
            (run.start..run.start + run.blocks).for_each(|block| self.shared.space().free(block));
        }
        self.encode(&mut batch, &txn, &mut touched);
        let existence = self.note_existence(&touched);
        let mut written = Written::new();
        let mut pins = SmallVec::new();
        for object in touched {
            if object.resized {
                self.cache.borrow_mut().recount(&object.pin.oid);
            }
            if !object.blocks.is_empty() {
                written.push((Rc::clone(&object.pin), object.blocks));
            }
            pins.push(object.pin);
        }
        let mut deferred = Deferred::default();
        if self.defers(&txn, &batch, &writes) {
            self.count(|stats| stats.deferred_txns += 1);
            crcs.clear();
            deferred =
                Deferred { writes: std::mem::take(&mut writes), written: std::mem::take(&mut written) };
        }
        let (reply, receiver) = oneshot::channel();
        let version = txn.version();
        let progress = Progress::default();
        let record = Record {
            pg: txn.pg,
            version,
            batch,
            writes: crcs,
            deferred,
            freed,
            pins,
            existence,
            reply,
            progress,
        };
        self.enqueue(record, writes, written);
        Commit::pending(receiver)
    }

    /// The transaction's blocks go into the log first, and to their places later.
    fn defers(&self, txn: &Transaction, batch: &KvBatch, writes: &DeviceWrites) -> bool {
        let bytes = txn.data_bytes();
        let in_log = txn_bytes(batch, 0, writes.blocks() as usize, 0);
        !writes.is_empty()
            && bytes < self.shared.prefer_deferred_bytes()
            && in_log <= self.group_bytes_max() / DEFERRED_PART
    }

    /// Adds the transaction's metadata.
    fn encode(&self, batch: &mut KvBatch, txn: &Transaction, touched: &mut TouchedList) {
        for object in touched {
            object.pieces.sort_unstable();
            object.pieces.dedup();
            encode_object(batch, object);
        }
        if let Some(keep_to) = txn.log_rewind_to {
            let (mut start, end) = (keys::log(txn.pg, keep_to), keys::log_range(txn.pg).1);
            start.push(0);
            batch.delete_range(&start, &end);
            // The tail is what the info says from now on; it may be an older one.
            batch.delete(&keys::pg(keys::PG_TAIL, txn.pg));
            self.trimmed.borrow_mut().remove(&txn.pg);
        }
        for entry in &txn.log {
            batch.put_with(
                |out| keys::push_log(out, txn.pg, entry.version),
                |out, at| codec::push(out, at, |e| entry.encode(e)),
            );
        }
        if let Some(to) = txn.log_trim_to {
            // What was trimmed before is not there: beginning behind it keeps the store's range deletions apart.
            let from = self.trimmed.borrow_mut().insert(txn.pg, to).unwrap_or(Eversion::ZERO);
            let (start, mut end) = (keys::log(txn.pg, from.min(to)), keys::log(txn.pg, to));
            end.push(0);
            batch.delete_range(&start, &end);
            batch.put_with(
                |out| out.extend_from_slice(&keys::pg(keys::PG_TAIL, txn.pg)),
                |out, at| codec::push(out, at, |e| e.eversion(to)),
            );
        }
        if let Some(info) = &txn.info {
            batch.put_with(
                |out| out.extend_from_slice(&keys::pg(keys::PG_INFO, txn.pg)),
                |out, at| codec::push(out, at, |e| info.encode(e)),
            );
        }
        if txn.forget_pg {
            let (start, end) = keys::log_range(txn.pg);
            batch.delete_range(&start, &end);
            [keys::PG_INFO, keys::PG_TAIL].iter().for_each(|kind| batch.delete(&keys::pg(*kind, txn.pg)));
            self.trimmed.borrow_mut().remove(&txn.pg);
        }
    }

    /// Remembers for listings which objects came and went.
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

fn check_names(oid: &ObjectId) -> Result<(), StoreError> {
    match [&oid.nspace, &oid.key, &oid.name].into_iter().find(|name| name.len() > NAME_BYTES_MAX) {
        Some(name) => Err(StoreError::NameTooLong { bytes: name.len(), max: NAME_BYTES_MAX }),
        None => Ok(()),
    }
}

fn encode_object(batch: &mut KvBatch, object: &Touched) {
    let onode: &Onode = &object.pin;
    let state = onode.state.borrow();
    if state.exists {
        batch.put_with(
            |out| keys::push_onode(out, &onode.key),
            |out, at| codec::push(out, at, |e| state.meta.encode(e)),
        );
    } else if object.existed {
        batch.delete(&keys::onode(&onode.key));
    }
    for &piece in &object.pieces {
        match state.map.get(piece as usize) {
            Some(Some(extents)) if !extents.is_empty() => batch.put_with(
                |out| keys::push_extents(out, &onode.key, piece),
                |out, at| codec::push_extents(out, at, extents),
            ),
            _ => batch.delete(&keys::extents(&onode.key, piece)),
        }
    }
}

impl Touched {
    fn changed(&mut self, index: u64) {
        let piece = (index / SHARD_BLOCKS as u64) as u32;
        if self.pieces.last() != Some(&piece) {
            self.pieces.push(piece);
        }
    }
}

impl Work<'_> {
    fn apply(&mut self, step: &Step, object: &mut Touched, state: &mut State) {
        state.exists |= step.creates();
        match step {
            Step::Touch => {}
            Step::Write { off, data, crc } => {
                self.write(object, state, *off, data, *crc);
                state.meta.size = state.meta.size.max(step.end());
            }
            Step::Zero { off, len } => {
                let end = off.saturating_add(*len).min(state.meta.size);
                self.zero(object, state, *off, end);
            }
            Step::Truncate { size } => {
                self.zero(object, state, *size, state.meta.size);
                if *size < state.meta.size {
                    state.map.truncate(size.div_ceil(SHARD_BYTES) as usize);
                }
                state.meta.size = *size;
            }
            Step::Remove => {
                self.zero(object, state, 0, state.meta.size);
                self.clear_omap(object, state);
                state.map.clear();
                state.meta = ObjectMeta::default();
                object.resized = true;
                state.exists = false;
            }
            Step::Lose { off, len } => {
                let end = off.saturating_add(*len).min(state.meta.size);
                for index in off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
                    self.map(object, state, index, Entry::lost());
                }
            }
            Step::SetMeta { version, user_version, mtime } => {
                let meta = &mut state.meta;
                (meta.version, meta.user_version, meta.mtime) = (*version, *user_version, *mtime);
            }
            Step::SetXattr { name, value } => {
                state.meta.xattrs.set(name, value.clone());
                object.resized = true;
            }
            Step::RemoveXattr { name } => {
                state.meta.xattrs.remove(name);
                object.resized = true;
            }
            Step::SetOmap { .. } | Step::SetOmapHeader { .. } => {
                state.meta.has_omap = true;
                self.change_omap(step, object, state);
            }
            Step::RemoveOmap { .. } | Step::RemoveOmapRange { .. } if state.meta.has_omap => {
                self.change_omap(step, object, state);
            }
            Step::RemoveOmap { .. } | Step::RemoveOmapRange { .. } => {}
            Step::ClearOmap => self.clear_omap(object, state),
        }
    }

    fn change_omap(&mut self, step: &Step, object: &Touched, state: &mut State) {
        state.omap_changed = Some(self.number);
        let (oid, batch) = (&*object.pin.key, &mut self.batch);
        match step {
            Step::SetOmap { entries } => entries.iter().for_each(|(key, value)| {
                batch.put_with(
                    |out| keys::push_omap(out, oid, key),
                    |out, at| codec::push(out, at, |e| e.bytes(value)),
                );
            }),
            Step::SetOmapHeader { header } => batch.put_with(
                |out| out.extend_from_slice(&keys::omap_header(oid)),
                |out, at| codec::push(out, at, |e| e.bytes(header)),
            ),
            Step::RemoveOmap { keys } => keys.iter().for_each(|key| batch.delete(&keys::omap(oid, key))),
            Step::RemoveOmapRange { from, to } if from < to => {
                batch.delete_range(&keys::omap(oid, from), &keys::omap(oid, to));
            }
            _ => {}
        }
    }

    fn clear_omap(&mut self, object: &Touched, state: &mut State) {
        if std::mem::take(&mut state.meta.has_omap) {
            state.omap_changed = Some(self.number);
            let (start, end) = keys::omap_range(&object.pin.key, &[]);
            self.batch.delete_range(&start, &end);
            self.batch.delete(&keys::omap_header(&object.pin.key));
        }
    }

    fn write(&mut self, object: &mut Touched, state: &mut State, off: u64, data: &Payload, crc: Option<u32>) {
        let end = off + data.len() as u64;
        let mut at = off;
        while at < end {
            let (index, within) = (at / BLOCK_BYTES, (at % BLOCK_BYTES) as usize);
            let skip = (at - off) as usize;
            let whole = (end - at) / BLOCK_BYTES;
            if within == 0 && whole > 0 {
                let run = self.take(whole.min(IO_BLOCKS_MAX));
                let part = data.slice(skip, (run.blocks * BLOCK_BYTES) as usize);
                self.write_run(object, state, index, run, &part, crc.filter(|_| data.len() == BLOCK));
                at += run.blocks * BLOCK_BYTES;
            } else {
                let len = (BLOCK - within).min((end - at) as usize);
                self.patch(object, state, index, within, len, Some(&data.slice(skip, len)));
                at += len as u64;
            }
        }
    }

    /// Takes up to `blocks` neighbouring blocks of what was allocated.
    fn take(&mut self, blocks: u64) -> Run {
        let Some(last) = self.runs.last_mut() else {
            // Cannot happen: `admit` counts at least what `apply` takes. If it does, nothing may be acknowledged any
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
    fn write_run(
        &mut self,
        object: &mut Touched,
        state: &mut State,
        index: u64,
        run: Run,
        data: &Payload,
        crc: Option<u32>,
    ) {
        let mut number = 0;
        for bytes in self.aligned(data) {
            for at in (0..bytes.len()).step_by(BLOCK) {
                let content = bytes.slice(at..at + BLOCK);
                let crc = crc.unwrap_or_else(|| crc32c::raw(crc32c::SEED, &content));
                self.map(object, state, index + number, Entry::new(run.start + number, crc));
                self.crcs.push((run.start + number, crc));
                state.recent.insert(run.start + number, Recent { data: content, writing: true });
                object.blocks.push(run.start + number);
                number += 1;
            }
            let first = run.start + number - (bytes.len() / BLOCK) as u64;
            self.writes.push(first, bytes);
        }
    }

    /// The bytes in pieces fit for the device: themselves if they are, else a copy.
    fn aligned(&self, data: &Payload) -> SmallVec<[Bytes; 1]> {
        if data.iter().all(|bytes| bytes.is_aligned(BLOCK)) {
            return data.iter().cloned().collect();
        }
        let mut buf = self.store.shard.buf(data.len());
        data.copy_to(&mut buf);
        self.store.count(|stats| stats.bytes_copied += data.len() as u64);
        SmallVec::from_iter([buf.freeze()])
    }

    /// Replaces a part of a block, by zeros if there is no data.
    fn patch(
        &mut self,
        object: &mut Touched,
        state: &mut State,
        index: u64,
        within: usize,
        len: usize,
        data: Option<&Payload>,
    ) {
        let old = state.entry(index).unwrap_or_default();
        let mut buf = self.store.shard.buf(BLOCK);
        match state.recent.get(&old.block()) {
            Some(recent) if !old.is_hole() => buf.copy_from_slice(&recent.data),
            _ => buf.fill(0),
        }
        self.store.count(|stats| stats.bytes_copied += BLOCK as u64);
        fill_part(&mut buf, within, len, data);
        let run = self.take(1);
        let crc = crc32c::raw(crc32c::SEED, &buf);
        let content = buf.freeze();
        self.map(object, state, index, Entry::new(run.start, crc));
        self.crcs.push((run.start, crc));
        state.recent.insert(run.start, Recent { data: content.clone(), writing: true });
        object.blocks.push(run.start);
        self.writes.push(run.start, content);
    }

    /// Points a block of the object somewhere else; what it pointed to is free once this is durable.
    fn map(&mut self, object: &mut Touched, state: &mut State, index: u64, entry: Entry) {
        let old = state.set_entry(index, entry);
        if old.has_block() {
            self.freed.push(old.block());
            self.store.forget_content(old.block());
        }
        self.store.readahead.forget(&object.pin);
        object.resized |= old.is_hole() != entry.is_hole();
        object.changed(index);
    }

    /// Makes bytes `from..to` (within the object) zeros.
    fn zero(&mut self, object: &mut Touched, state: &mut State, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Behind the end of the object all is zero anyway, so the last block may go as a whole.
        let to = if to == state.meta.size { to.next_multiple_of(BLOCK_BYTES) } else { to };
        let (first, last) = (from / BLOCK_BYTES, to / BLOCK_BYTES);
        let (head, tail) = ((from % BLOCK_BYTES) as usize, (to % BLOCK_BYTES) as usize);
        if first == last {
            self.zero_part(object, state, first, head, tail - head);
            return;
        }
        if head > 0 {
            self.zero_part(object, state, first, head, BLOCK - head);
        }
        let end = last.min((state.map.len() * SHARD_BLOCKS) as u64);
        for index in from.div_ceil(BLOCK_BYTES)..end {
            if state.entry(index).is_some_and(|entry| !entry.is_hole()) {
                self.map(object, state, index, Entry::default());
            }
        }
        if tail > 0 {
            self.zero_part(object, state, last, 0, tail);
        }
    }

    fn zero_part(&mut self, object: &mut Touched, state: &mut State, index: u64, within: usize, len: usize) {
        if state.entry(index).is_some_and(|entry| !entry.is_hole()) {
            self.patch(object, state, index, within, len, None);
        }
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
