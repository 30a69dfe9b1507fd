//! Reads objects: every block is checked against its checksum before it is returned.

use std::ops::Range;

use carmine_pgtypes::{ObjectChange, ObjectMeta, Step, Transaction};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{ObjectId, crc32c};
use smallvec::SmallVec;

use crate::blue::device::IO_BLOCKS_MAX;
use crate::blue::device::join::join_all;
use crate::blue::meta::extents::Entry;
use crate::blue::objects::onode::{Onode, PreparedPin, Recent};
use crate::blue::shard::{Blue, ZEROS_BYTES};
use crate::extents::written_runs;
use crate::{BLOCK_BYTES, Commit, StoreError};

/// Device reads in flight for one read of an object.
const PARALLEL: usize = 64;

/// Where a run of an object's blocks is.
pub(crate) enum Source {
    /// Nowhere: zeros.
    Hole { blocks: u64 },
    /// In memory, because its write is in flight: one block, and its checksum.
    Memory(Bytes, u32),
    /// Lost in all copies: the `index`th block of the object.
    Lost { index: u64, crc: u32 },
    /// On the device.
    Device { index: u64, block: u64, crcs: SmallVec<[u32; 1]> },
}

impl Source {
    /// Extends the checksum `before` by this run.
    fn crc(&self, before: u32) -> u32 {
        match self {
            Source::Memory(_, crc) | Source::Lost { crc, .. } => crc32c::combine_block(before, *crc),
            Source::Device { crcs, .. } => crcs.iter().copied().fold(before, crc32c::combine_block),
            Source::Hole { blocks } => crc32c::zeros(before, blocks * BLOCK_BYTES),
        }
    }
}

/// The object's version, and the entry of its block at `off`, if the block is whole, and only on the device.
fn plain_block(onode: &Onode, off: u64) -> Option<(u64, Entry)> {
    let state = onode.state.borrow();
    let entry = state.entry(off / BLOCK_BYTES)?;
    let is_plain = !entry.is_hole() && !entry.is_lost() && !state.recent.contains_key(&entry.block());
    let is_whole = state.exists && off + BLOCK_BYTES <= state.meta.size;
    (is_plain && is_whole).then_some((state.meta.user_version, entry))
}

impl Blue {
    /// See [`crate::Store::stat`].
    pub(crate) async fn stat(&self, oid: &ObjectId) -> Result<Option<ObjectMeta>, StoreError> {
        let pin = self.load(oid, &(0..0)).await?;
        let state = pin.state.borrow();
        Ok(state.exists.then(|| state.meta.clone()))
    }

    /// See [`crate::Store::read`].
    pub(crate) async fn read(&self, oid: &ObjectId, off: u64, len: u64) -> Result<Payload, StoreError> {
        self.count(|stats| stats.reads += 1);
        let wanted_end = off.saturating_add(len);
        let pin = self.load(oid, &(off..wanted_end)).await?;
        let _stream = pin.stream.note_read(off, wanted_end);
        self.wait_for_readahead(&pin, &(off / BLOCK_BYTES..wanted_end.div_ceil(BLOCK_BYTES))).await;
        let _reading = self.begin_read();
        let (sources, end) = {
            let state = pin.state.borrow();
            if !state.exists {
                return Err(StoreError::NotFound(oid.clone()));
            }
            let end = wanted_end.min(state.meta.size);
            if off >= end {
                return Ok(Payload::new());
            }
            drop(state);
            // Size and map may change while the blocks are read: the answer is the present state.
            (self.sources(&pin, &(off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES))), end)
        };
        self.read_ahead(&pin, end.div_ceil(BLOCK_BYTES));
        let blocks = self.gather(&pin, sources).await?;
        let within = (off % BLOCK_BYTES) as usize;
        let wanted = end - off;
        if within == 0 && wanted == blocks.len() as u64 {
            return Ok(blocks);
        }
        Ok(blocks.slice(within, wanted as usize))
    }

    /// See [`crate::Store::written`].
    pub(crate) async fn written(
        &self,
        oid: &ObjectId,
        off: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let wanted = off..off.saturating_add(len);
        let pin = self.load(oid, &wanted).await?;
        let state = pin.state.borrow();
        if !state.exists {
            return Err(StoreError::NotFound(oid.clone()));
        }
        let end = wanted.end.min(state.meta.size);
        Ok(written_runs(off..end, |block| state.entry(block).is_some_and(|entry| !entry.is_hole())))
    }

    /// See [`crate::Store::in_part`].
    pub(crate) async fn in_part(&self, oid: &ObjectId, off: u64, len: u64) -> Result<Vec<u64>, StoreError> {
        let wanted = off..off.saturating_add(len);
        let pin = self.load(oid, &wanted).await?;
        let state = pin.state.borrow();
        let end = wanted.end.min(state.meta.size);
        let blocks = off / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        Ok(blocks.filter(|block| state.is_part(*block)).map(|block| block * BLOCK_BYTES).collect())
    }

    /// See [`crate::Store::read_block`]. A shorter [`read`](Blue::read) for the most common random read.
    pub(crate) async fn read_plain_block(
        &self,
        oid: &ObjectId,
        off: u64,
        len: u64,
    ) -> Option<Result<(u64, Payload), StoreError>> {
        if !off.is_multiple_of(BLOCK_BYTES) || len != BLOCK_BYTES {
            return None;
        }
        let onode = self.cached(oid, &(off..off + len))?;
        let (index, (user_version, entry)) = (off / BLOCK_BYTES, plain_block(&onode, off)?);
        // A block of a sequential read may be in memory already, or being read ahead.
        if self.data_cache.is_some() || onode.stream.continues_at(off) {
            return None;
        }
        self.count(|stats| {
            stats.reads += 1;
            stats.cache_hits += 1;
        });
        let _stream = onode.stream.note_read(off, off + len);
        let _reading = self.begin_read();
        let (block, crc) = (entry.block(), entry.crc());
        let read = self.read_block(oid, index, block, crc).await;
        Some(read.map(|bytes| {
            let data = Payload::from(bytes).with_crc(crc);
            debug_assert!(data.is_as_known(), "the checksum of another block");
            (user_version, data)
        }))
    }

    /// Reads the runs, several at a time, and concatenates them. The checksum of the whole is computed from those of its blocks.
    pub(crate) async fn gather(&self, onode: &Onode, sources: Vec<Source>) -> Result<Payload, StoreError> {
        let mut out = Payload::new();
        let crc = sources.iter().fold(crc32c::SEED, |before, source| source.crc(before));
        let mut sources = sources.into_iter();
        match (sources.next(), sources.len()) {
            (None, _) => {}
            // The usual case: nothing to join.
            (Some(one), 0) => self.push_source(onode, one, &mut out).await?,
            (Some(first), _) => {
                Box::pin(self.gather_many(onode, std::iter::once(first).chain(sources), &mut out)).await?;
            }
        }
        let out = out.with_crc(crc);
        debug_assert!(out.is_as_known(), "the checksums of other blocks");
        Ok(out)
    }

    async fn gather_many(
        &self,
        onode: &Onode,
        sources: impl Iterator<Item = Source>,
        out: &mut Payload,
    ) -> Result<(), StoreError> {
        let mut sources = sources.peekable();
        while sources.peek().is_some() {
            let reads: Vec<_> = sources.by_ref().take(PARALLEL).collect();
            let parts = join_all(reads.into_iter().map(|source| async {
                let mut part = Payload::new();
                self.push_source(onode, source, &mut part).await.map(|()| part)
            }))
            .await;
            for part in parts {
                part?.iter().for_each(|bytes| out.push(bytes.clone()));
            }
        }
        Ok(())
    }

    async fn push_source(&self, onode: &Onode, source: Source, out: &mut Payload) -> Result<(), StoreError> {
        match source {
            Source::Memory(bytes, _) => out.push(bytes),
            Source::Lost { index, crc } => return Err(self.lost_error(&onode.oid, index, crc)),
            Source::Device { index, block, crcs } => {
                let oid = &onode.oid;
                match self.read_blocks(oid, index, block, &crcs).await {
                    // Find the block that cannot be read.
                    Err(StoreError::Io { .. }) => {
                        for (n, crc) in (0u64..).zip(&crcs) {
                            let read = Box::pin(self.read_block(oid, index + n, block + n, *crc));
                            out.push(read.await?);
                        }
                    }
                    read => {
                        let data = read?;
                        self.cache_blocks(onode, index, block, &data);
                        out.push(data);
                    }
                }
            }
            Source::Hole { blocks } => {
                let mut left = (blocks * BLOCK_BYTES) as usize;
                while left > 0 {
                    let n = left.min(ZEROS_BYTES);
                    out.push(self.zeros.slice(..n));
                    left -= n;
                }
            }
        }
        Ok(())
    }

    /// Reads one block as [`read_blocks`](Blue::read_blocks) does; an error of the device names the block.
    pub(crate) async fn read_block(
        &self,
        oid: &ObjectId,
        index: u64,
        block: u64,
        crc: u32,
    ) -> Result<Bytes, StoreError> {
        let read = self.read_blocks(oid, index, block, &[crc]).await;
        read.map_err(|error| match error {
            StoreError::Io { message, .. } => {
                let (offset, device_offset) = (index * BLOCK_BYTES, block * BLOCK_BYTES);
                let (oid, expected) = (oid.clone(), crc);
                let error = StoreError::Unreadable { oid, offset, device_offset, expected, message };
                self.count(|stats| stats.unreadable_blocks += 1);
                tracing::error!(%error, "unreadable block");
                error
            }
            other => other,
        })
    }

    /// The error for a block that was lost in all copies when this one was made.
    pub(crate) fn lost_error(&self, oid: &ObjectId, index: u64, crc: u32) -> StoreError {
        self.count(|stats| stats.unreadable_blocks += 1);
        StoreError::Lost { oid: oid.clone(), offset: index * BLOCK_BYTES, expected: crc }
    }

    /// Reads consecutive blocks of the device, which hold the object's blocks from `index` on, and checks each against its
    /// checksum. The caller must have begun a read ([`Blue::begin_read`]) when it looked the blocks up.
    pub(crate) async fn read_blocks(
        &self,
        oid: &ObjectId,
        index: u64,
        block: u64,
        crcs: &[u32],
    ) -> Result<Bytes, StoreError> {
        let bytes = crcs.len() * BLOCK_BYTES as usize;
        let at = block * BLOCK_BYTES;
        self.count(|stats| {
            stats.device_reads += 1;
            stats.device_read_bytes += bytes as u64;
        });
        let (result, buf) = self.file.read_at(self.shard.buf(bytes), bytes, at).await;
        let failed = |why: &std::io::Error| {
            let what =
                format!("object {oid}: read {bytes} bytes at {at} of {}", self.shared.path().display());
            StoreError::io(what, why)
        };
        let found = result.map_err(|error| failed(&error))?;
        if found != bytes {
            return Err(failed(&std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                format!("only {found} bytes are there: was the file cut?"),
            )));
        }
        for ((n, content), expected) in
            (0u64..).zip(buf.as_slice().chunks_exact(BLOCK_BYTES as usize)).zip(crcs)
        {
            let found = crc32c::raw(crc32c::SEED, content);
            if found != *expected {
                // Then it may be a block whose write failed: that it has the old content is no fault of the drive.
                if let Some(stopped) = self.failed.borrow().clone() {
                    return Err(stopped);
                }
                self.count(|stats| stats.corrupt_blocks += 1);
                let (offset, device_offset) = ((index + n) * BLOCK_BYTES, at + n * BLOCK_BYTES);
                let error = StoreError::Corrupt {
                    oid: oid.clone(),
                    offset,
                    device_offset,
                    expected: *expected,
                    found,
                };
                tracing::error!(%error, "corrupt block");
                return Err(error);
            }
        }
        Ok(buf.freeze())
    }

    /// Caches blocks that were read, if the object still has them. The read began when the object had them, so a block freed
    /// since is not reused yet.
    fn cache_blocks(&self, onode: &Onode, index: u64, block: u64, data: &[u8]) {
        let Some(cache) = &self.data_cache else { return };
        let (state, mut cache) = (onode.state.borrow(), cache.borrow_mut());
        for (n, content) in (0u64..).zip(data.chunks_exact(BLOCK_BYTES as usize)) {
            if state.entry(index + n).is_some_and(|entry| entry.block() == block + n) {
                cache.put(block + n, content);
            }
        }
    }

    /// Drops a freed block from the cache.
    pub(crate) fn forget_content(&self, block: u64) {
        if let Some(cache) = &self.data_cache {
            cache.borrow_mut().forget(block);
        }
    }

    /// A block's content, if it is cached or was read ahead.
    fn at_hand(&self, onode: &Onode, index: u64, entry: Entry) -> Option<Bytes> {
        if let Some(bytes) = self.readahead.get(onode, index, entry) {
            self.count(|stats| stats.readahead_hits += 1);
            return Some(bytes);
        }
        let bytes = self.data_cache.as_ref()?.borrow_mut().get(entry.block())?;
        self.count(|stats| stats.data_cache_hits += 1);
        Some(bytes)
    }

    /// The sources of blocks `range` of the object; neighbours on the device are one run.
    pub(crate) fn sources(&self, onode: &Onode, range: &Range<u64>) -> Vec<Source> {
        let state = onode.state.borrow();
        let mut out: Vec<Source> = Vec::new();
        for index in range.clone() {
            let entry = state.entry(index).unwrap_or_default();
            if entry.is_hole() {
                match out.last_mut() {
                    Some(Source::Hole { blocks }) => *blocks += 1,
                    _ => out.push(Source::Hole { blocks: 1 }),
                }
                continue;
            }
            if entry.is_lost() {
                out.push(Source::Lost { index, crc: entry.crc() });
                continue;
            }
            let recent = state.recent.get(&entry.block()).map(|recent| recent.data.clone());
            if let Some(bytes) = recent.or_else(|| self.at_hand(onode, index, entry)) {
                out.push(Source::Memory(bytes, entry.crc()));
                continue;
            }
            match out.last_mut() {
                Some(Source::Device { block, crcs, .. })
                    if *block + crcs.len() as u64 == entry.block() && (crcs.len() as u64) < IO_BLOCKS_MAX =>
                {
                    crcs.push(entry.crc());
                }
                _ => {
                    let crcs = SmallVec::from_slice(&[entry.crc()]);
                    out.push(Source::Device { index, block: entry.block(), crcs });
                }
            }
        }
        out
    }
}

// Restores a damaged block from another copy.

impl Blue {
    /// See [`crate::Store::heal`]. The block map's checksum decides whether the content is right, so versions are not compared:
    /// the same bytes from another version are as good. `txn` is an empty one of the object's PG.
    pub(crate) async fn heal(
        &self,
        mut txn: Transaction,
        oid: &ObjectId,
        off: u64,
        content: &Payload,
    ) -> Result<Commit, StoreError> {
        let index = off / BLOCK_BYTES;
        let at = index * BLOCK_BYTES;
        // No suspension between reading the block map and the submission: a write in between would be lost.
        self.wait_for_room().await?;
        let pin = PreparedPin::new(self.load(oid, &(at..at + BLOCK_BYTES)).await?);
        let (entry, size, at_hand) = {
            let state = pin.state.borrow();
            let entry = state.entry(index).unwrap_or_default();
            (entry, state.meta.size, state.recent.contains_key(&entry.block()))
        };
        if entry.is_lost() && entry.crc() == 0 {
            return Err(self.lost_error(oid, index, 0));
        }
        if entry.is_hole() || at_hand {
            // It was overwritten meanwhile, or healed by another task.
            return Ok(Commit::ready(Ok(())));
        }
        // After the end of the object the rest of a block is zeros.
        let mut whole = self.shard.buf(BLOCK_BYTES as usize);
        whole.fill(0);
        let given = content.iter().flat_map(|bytes| bytes.iter().copied());
        whole.iter_mut().zip(given).for_each(|(to, from)| *to = from);
        let whole = whole.freeze();
        let found = crc32c::raw(crc32c::SEED, &whole);
        if found != entry.crc() {
            let (oid, offset, expected) = (oid.clone(), at, entry.crc());
            if entry.is_lost() {
                return Err(StoreError::Lost { oid, offset, expected });
            }
            let device_offset = entry.block() * BLOCK_BYTES;
            return Err(StoreError::Corrupt { oid, offset, device_offset, expected, found });
        }
        // The write of a part of the block (at the end of the object) needs the rest here.
        let len = (size.saturating_sub(at)).min(BLOCK_BYTES) as usize;
        let data = Payload::from(whole.slice(..len));
        pin.state.borrow_mut().recent.insert(entry.block(), Recent { data: whole, writing: false });
        txn.changes.push(ObjectChange::new(oid.clone(), [Step::Write { off: at, data }]));
        let commit = self.submit(txn.into());
        if entry.is_lost() {
            // All lost blocks have this number.
            pin.state.borrow_mut().recent.remove(&entry.block());
        }
        drop(pin);
        self.count(|stats| stats.healed_blocks += 1);
        tracing::warn!("object {oid}, offset {at}: the block has its content back from another copy");
        Ok(commit)
    }
}
