//! The replay of the log at a mount: everything that the key-value store lacks is applied to it, and a new epoch of the log
//! begins.
//!
//! First all lanes are scanned: how far they are intact, and which blocks have their content only in the log. Those are written
//! to their places and flushed. Then the transactions are applied, lane by lane, to the onodes of the key-value store, by the
//! code that applied them when they were submitted. Each part is committed with the position of its lane, so that an interrupted
//! mount continues where this one ended: no transaction is applied twice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use carmine_pgtypes::{ObjectChange, Step, Transaction};
use carmine_reactor::{Bytes, Payload, Shard};
use carmine_types::{Eversion, ObjectId, SpgId, crc32c, is_mutated};

use crate::blue::device::data::{Device, io_error, read_block};
use crate::blue::device::join::join_all;
use crate::blue::device::label::Label;
use crate::blue::log::record::{HEADER_BYTES, Known, LoggedTxn, decode_txns};
use crate::blue::log::scan::{Found, LogReader, Progress, ReplayReport, Scanned, Tail};
use crate::blue::meta::extents::Extents;
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::{checkpoint, codec, keys};
use crate::blue::objects::apply::{self, Placed, PlacedList, Placer, Touched, Trimmed, Work};
use crate::blue::objects::fetch;
use crate::blue::objects::onode::{Onode, Pin};
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, StoreError};

/// Bytes of the log applied together: all objects named in them are in memory meanwhile. The logs of PGs that are split count, too.
const PART_BYTES: usize = 1 << 20;
/// Reads and writes of blocks in flight.
const PARALLEL: usize = 64;

/// A store as a mount finds it.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub(crate) shard: &'a Shard,
    /// Path of the data device.
    pub(crate) path: &'a Path,
    pub(crate) device: &'a Device,
    /// The device of the log's own, if it has one.
    pub(crate) wal: Option<(&'a Path, &'a Device)>,
    pub(crate) label: &'a Label,
    pub(crate) index: &'a MetaIndex,
}

impl<'a> Whole<'a> {
    fn log(&self) -> LogReader<'a> {
        let (path, device) = self.wal.unwrap_or((self.path, self.device));
        LogReader { shard: self.shard, path, device, area: self.label.log(), log_id: self.label.log_id }
    }

    async fn flush(&self) -> Result<(), StoreError> {
        for (path, device) in [Some((self.path, self.device)), self.wal].into_iter().flatten() {
            device.fdatasync().await.map_err(|error| io_error(path, "flush", &error))?;
        }
        Ok(())
    }
}

/// Brings the key-value store up to date and ends the log's epoch. Returns the new epoch. With `accepts_loss` a log that lacks
/// durable groups is replayed as far as it goes.
pub(crate) async fn replay(whole: Whole<'_>, accepts_loss: bool) -> Result<(u64, ReplayReport), StoreError> {
    let Whole { shard, path, index, .. } = whole;
    let start_ns = shard.now_ns();
    let contained = contained(index, shard).await?;
    let log = whole.log();
    let mut progress = Progress::new(shard);
    let scanned = log.scan(contained.epoch, &mut progress).await?;
    check_age(&log, index, &contained, &scanned)?;
    if !scanned.groups.is_empty() {
        // The groups found may be only in the device's cache. The key-value store must not get them before they are durable,
        // because it may write its tables out at any time.
        whole.flush().await?;
    }
    let (images, pgs, report) = (Images::new(), BTreeMap::new(), ReplayReport::default());
    let trimmed = Trimmed::default();
    let mut replay = Replay { whole, accepts_loss, log, progress, images, pgs, report, trimmed };
    let mut chains = Vec::new();
    for (lane, known) in &scanned.known {
        let position = contained.positions.get(lane).copied().unwrap_or(0);
        chains.push(replay.chain(*lane, position, known, &scanned).await?);
    }
    replay.write_images().await?;
    let mut last = Vec::new();
    for chain in &chains {
        last.extend(replay.apply_chain(contained.epoch, chain).await?);
    }
    let new_epoch = contained.epoch + 1;
    begin_epoch(index, shard, new_epoch, last).await?;
    let mut report = replay.report;
    report.duration_ns = shard.now_ns() - start_ns;
    if report.groups + report.dropped_txns > 0 {
        tracing::info!("the log of {} was replayed: {report}", path.display());
    }
    Ok((new_epoch, report))
}

/// The part of the log that the key-value store contains.
struct Contained {
    epoch: u64,
    /// Number of its newest commit in this epoch.
    commits: u64,
    /// By lane, the last group.
    positions: BTreeMap<u16, u64>,
}

async fn contained(index: &MetaIndex, shard: &Shard) -> Result<Contained, StoreError> {
    let keys = vec![keys::LOG_EPOCH.to_vec(), keys::COMMITS.to_vec()];
    let mut values = index.load(shard, keys).await?.into_iter();
    let epoch = values.next().flatten().map(|value| codec::decode_epoch(keys::LOG_EPOCH, &value));
    let epoch = epoch.transpose()?.unwrap_or(0);
    let commits = values.next().flatten().map(|value| codec::decode_position(keys::COMMITS, &value));
    let commits = commits.transpose()?.filter(|(of, _)| *of == epoch);
    let mut positions = BTreeMap::new();
    let each = async |key: &[u8], value: &[u8]| {
        let (of, seq) = codec::decode_position(key, value)?;
        if let Some(lane) = keys::decode_lane(key).filter(|_| of == epoch) {
            positions.insert(lane, seq);
        }
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, keys::lane_range(), each).await?;
    Ok(Contained { epoch, commits: commits.map_or(0, |(_, number)| number), positions })
}

/// Fails if the key-value store is older than it was when the log was trimmed: changes would be in neither of them.
fn check_age(
    log: &LogReader<'_>,
    index: &MetaIndex,
    contained: &Contained,
    scanned: &Scanned,
) -> Result<(), StoreError> {
    let Contained { epoch, commits, .. } = contained;
    let durable = scanned.known.values().map(|known| known.commits).max().unwrap_or(0);
    let newer = match scanned.newer_epoch {
        Some(newer) => format!("it ends in epoch {epoch} of the log, and the log is in epoch {newer}"),
        None if durable > *commits => {
            format!(
                "its newest commit of epoch {epoch} is number {commits}, and number {durable} was durable"
            )
        }
        None => return Ok(()),
    };
    let why = format!(
        "the metadata in {} is older than what the log was trimmed to: {newer}. Files of it are lost or of another time: \
         restore this store from its replicas",
        index.place()
    );
    Err(StoreError::unusable(log.path, why))
}

/// Begins an epoch with an empty log. Makes earlier commits durable, together with `batches`, the last transactions of lanes that
/// end in the middle of a group.
async fn begin_epoch(
    index: &MetaIndex,
    shard: &Shard,
    epoch: u64,
    mut batches: Vec<KvBatch>,
) -> Result<(), StoreError> {
    let mut batch = KvBatch::default();
    let (start, end) = keys::lane_range();
    batch.delete_range(&start, &end);
    batch.delete(keys::COMMITS);
    checkpoint::remove(&mut batch);
    batch.put_with(
        |out| out.extend_from_slice(keys::LOG_EPOCH),
        |out, at| codec::push(out, at, |e| e.u64(epoch)),
    );
    batches.push(batch);
    Ok(index.apply(shard, batches, true).await?)
}

/// The intact groups of a lane after those that the key-value store contains.
struct Chain {
    lane: u16,
    groups: Vec<Found>,
    /// The number of intact transactions in the last group, if not all are.
    txns_of_last: Option<usize>,
}

/// Blocks whose content may be only in the log, and the byte position of the content on the log's device.
type Images = BTreeMap<u64, u64>;

/// Adds the blocks whose content is in a transaction's record, and removes the blocks that it frees.
fn note_images(images: &mut Images, found: &Found, txn: &LoggedTxn) {
    for (block, range) in &txn.images {
        let at = found.block * BLOCK_BYTES + (HEADER_BYTES + range.start) as u64;
        for n in 0..range.len() as u64 / BLOCK_BYTES {
            images.insert(block + n, at + n * BLOCK_BYTES);
        }
    }
    for (block, blocks) in &txn.freed {
        for block in *block..*block + u64::from(*blocks) {
            images.remove(&block);
        }
    }
}

struct Replay<'a> {
    whole: Whole<'a>,
    accepts_loss: bool,
    log: LogReader<'a>,
    progress: Progress<'a>,
    images: Images,
    /// The lane of each PG, and its last version there.
    pgs: BTreeMap<SpgId, (u16, Eversion)>,
    report: ReplayReport,
    trimmed: Trimmed,
}

impl Replay<'_> {
    /// Finds the groups of a lane after group `contained`, and notes their images.
    async fn chain(
        &mut self,
        lane: u16,
        contained: u64,
        known: &Known,
        scanned: &Scanned,
    ) -> Result<Chain, StoreError> {
        let group = |seq: u64| scanned.groups.get(&(lane, seq)).copied();
        let chain: Vec<Found> = (contained + 1..).map_while(group).collect();
        let end = contained + chain.len() as u64;
        if known.durable > end {
            let error = self.lost_groups_error(lane, end, known.durable, &chain);
            if !self.accepts_loss {
                return Err(error);
            }
            tracing::error!("the store is mounted without what is lost: {error}");
        }
        let known_durable = known.durable.min(end);
        let durable = chain.iter().filter(|found| found.header.id.seq <= known_durable).count();
        let (head, tail) = chain.split_at(durable);
        let mut believed = self.believed(tail).await?;
        self.report.lanes += u64::from(!chain.is_empty());
        // A block freed in this lane may since have an image in another lane, so each lane is scanned by itself.
        let mut images = Images::new();
        let (mut groups, mut txns_of_last) = (Vec::new(), None);
        for (number, found) in head.iter().chain(tail).enumerate() {
            let (mut txns, _) = self.txns(found).await?;
            if number >= durable {
                let part = txns.len().min(believed);
                believed -= part;
                self.report.dropped_txns += (txns.len() - part) as u64;
                if part == 0 {
                    continue;
                }
                txns_of_last = (part < txns.len()).then_some(part);
                txns.truncate(part);
            }
            groups.push(*found);
            for txn in &txns {
                note_images(&mut images, found, txn);
                self.check_order(lane, txn)?;
            }
            self.report.groups += 1;
            self.report.txns += txns.len() as u64;
        }
        self.images.extend(images);
        Ok(Chain { lane, groups, txns_of_last })
    }

    /// The error for a lane that ends with group `end` and was durable up to a later one.
    fn lost_groups_error(&self, lane: u16, end: u64, durable: u64, chain: &[Found]) -> StoreError {
        let behind = chain.last().map_or_else(String::new, |last| {
            format!(", which began at block {} or with a segment,", last.block + last.header.blocks())
        });
        let what = format!("group {} of lane {lane} of the log on {}", end + 1, self.log.path.display());
        let why = format!(
            "it{behind} is not whole, and all up to group {durable} were durable: the acknowledged writes of {} groups are lost \
             here; restore this store from its replicas, or, if there are none, go on without these writes \
             (carmine store fsck --accept-loss)",
            durable - end
        );
        StoreError::damaged(what, why)
    }

    /// Applies the transactions of a lane. Returns the changes of the last group if only a part of it is intact: they may become
    /// durable only together with the end of the epoch.
    async fn apply_chain(&mut self, epoch: u64, chain: &Chain) -> Result<Vec<KvBatch>, StoreError> {
        let Chain { lane, groups, txns_of_last } = chain;
        let (whole, part) = match (txns_of_last, groups.split_last()) {
            (Some(txns), Some((last, whole))) => (whole, Some((last, *txns))),
            _ => (groups.as_slice(), None),
        };
        let (mut done, mut at) = (0, 0);
        while at < whole.len() {
            let (mut txns, mut bytes) = (Vec::new(), 0);
            while let Some(found) = whole.get(at).filter(|_| bytes < PART_BYTES) {
                let (found, body) = self.txns(found).await?;
                let children = found.iter().flat_map(|txn| &txn.txn.split);
                bytes = children.map(apply::log_bytes).fold(bytes + body.len(), usize::saturating_add);
                txns.extend(found.into_iter().map(|txn| (txn.placed(&body), txn.txn)));
                at += 1;
            }
            self.progress.at(format_args!("groups of lane {lane} of the log replayed"), done, groups.len());
            done = at;
            let mut changes = self.apply(txns).await?;
            if let Some(last) = at.checked_sub(1).and_then(|last| whole.get(last)) {
                changes.put_with(
                    |out| out.extend_from_slice(&keys::lane(*lane)),
                    |out, at| codec::push_position(out, at, epoch, last.header.id.seq),
                );
            }
            self.commit(changes).await?;
        }
        let Some((found, believed)) = part else { return Ok(Vec::new()) };
        let (txns, body) = self.txns(found).await?;
        let txns = txns.into_iter().take(believed).map(|txn| (txn.placed(&body), txn.txn)).collect();
        Ok(vec![self.apply(txns).await?])
    }

    /// Applies transactions to the onodes of the key-value store; returns the changes of metadata.
    async fn apply(&mut self, txns: Vec<(Vec<(u64, u32)>, Transaction)>) -> Result<KvBatch, StoreError> {
        let changes = txns.iter().flat_map(|(_, txn)| &txn.changes);
        let names: BTreeSet<Arc<ObjectId>> = changes.flat_map(named).cloned().collect();
        let found = fetch::fetch_objects(self.whole.index, self.whole.shard, names).await?;
        let mut objects: BTreeMap<Arc<ObjectId>, Rc<Onode>> = BTreeMap::new();
        for (oid, found) in found {
            objects.insert(Arc::clone(&oid), Onode::new(ObjectId::clone(&oid), fetch::state_of(found)));
        }
        let mut changes = KvBatch::default();
        for (placed, txn) in txns {
            let placer = Replayed { placed: placed.into_iter(), is_short: false };
            let mut work = Work::new(placer, std::mem::take(&mut changes));
            let sources = txn.changes.iter().flat_map(sources).filter_map(|from| objects.get(from));
            work.sources = sources.cloned().collect();
            let mut touched: Vec<Touched> = Vec::new();
            for change in &txn.changes {
                let Some(onode) = objects.get(&change.oid) else { continue };
                let at = touched.iter().position(|touched| Rc::ptr_eq(&touched.pin, onode));
                let at = at.unwrap_or_else(|| {
                    touched.push(Touched::new(Pin::new(onode)));
                    touched.len() - 1
                });
                let Some(object) = touched.get_mut(at) else { continue };
                let mut state = onode.state.borrow_mut();
                if state.dirty.window == 0 {
                    let exists = state.exists;
                    state.dirty.begin(1, exists);
                }
                change.steps.iter().for_each(|step| work.apply(step, object, &mut state));
            }
            let Work { placer, changes: after, .. } = work;
            changes = after;
            if placer.is_short || placer.placed.len() > 0 {
                let what = format!("version {} of pg {} in the log", txn.version(), txn.pg);
                return Err(StoreError::damaged(what, "the blocks that it wrote are not those of its steps"));
            }
            apply::encode_pg(&mut changes, &txn, &mut self.trimmed);
        }
        for onode in objects.values().filter(|onode| onode.state.borrow().dirty.window > 0) {
            onode.encode(&mut changes, usize::MAX);
        }
        Ok(changes)
    }

    /// How many transactions of these groups are intact.
    async fn believed(&mut self, groups: &[Found]) -> Result<usize, StoreError> {
        let mut tail = Tail::default();
        for (number, found) in groups.iter().enumerate() {
            self.progress.at("groups at the end of a lane compared with their data", number, groups.len());
            for txn in self.txns(found).await?.0 {
                let held = self.holds(&txn.writes).await;
                let mut held = held.into_iter();
                tail.push(&txn, |_, _| held.next().unwrap_or(false));
            }
        }
        Ok(tail.believed())
    }

    /// Whether each block has its checksum; false if it cannot be read.
    async fn holds(&self, writes: &[(u64, u32)]) -> Vec<bool> {
        if is_mutated("ignore_data_crc") {
            return vec![true; writes.len()];
        }
        let mut out = Vec::with_capacity(writes.len());
        let Whole { shard, path, device, .. } = self.whole;
        for part in writes.chunks(PARALLEL) {
            let reads = part.iter().map(|(block, _)| read_block(shard, path, device, *block));
            for (content, (_, crc)) in join_all(reads).await.into_iter().zip(part) {
                out.push(content.is_ok_and(|content| crc32c::raw(crc32c::SEED, &content) == *crc));
            }
        }
        out
    }

    /// The transactions of a group, and its body.
    async fn txns(&self, found: &Found) -> Result<(Vec<LoggedTxn>, Vec<u8>), StoreError> {
        let body = self.log.body(found).await?;
        let txns = if found.header.holds(&body) { decode_txns(found.header.txns, &body) } else { None };
        let label = self.whole.label;
        let known = |txn: &LoggedTxn| {
            let written = txn.writes.iter().map(|(block, _)| (*block, 1));
            let images = txn.images.iter().map(|(block, range)| (*block, range.len() as u64 / BLOCK_BYTES));
            let freed = txn.freed.iter().map(|(block, blocks)| (*block, u64::from(*blocks)));
            written.chain(images).chain(freed).all(|(block, blocks)| label.holds_data(block, blocks))
        };
        let txns = txns.filter(|txns| txns.iter().all(known)).ok_or_else(|| {
            let what = format!("block {} of the log on {}", found.block, self.log.path.display());
            StoreError::damaged(what, "its checksum holds, but this program did not write it")
        })?;
        Ok((txns, body))
    }

    /// A PG's transactions are ordered by its lane, so in one epoch it may have only one lane.
    fn check_order(&mut self, lane: u16, txn: &LoggedTxn) -> Result<(), StoreError> {
        let version = txn.txn.version();
        // A PG's first transaction may be that which splits it off, and its last one that which merges it into another.
        let children = txn.txn.split.iter().map(|child| child.pg);
        for pg in std::iter::once(txn.txn.pg).chain(children).chain(txn.txn.merge.iter().copied()) {
            let (first, last) = self.pgs.entry(pg).or_insert((lane, version));
            if *first != lane {
                let why = format!("it has version {last} in lane {first} and {version} in lane {lane}");
                return Err(StoreError::damaged(format!("the log of pg {pg}"), why));
            }
            *last = version;
        }
        Ok(())
    }

    async fn commit(&self, changes: KvBatch) -> Result<(), StoreError> {
        Ok(self.whole.index.apply(self.whole.shard, vec![changes], false).await?)
    }

    /// Writes the blocks whose content may be only in the log.
    async fn write_images(&mut self) -> Result<(), StoreError> {
        let images: Vec<(u64, u64)> = std::mem::take(&mut self.images).into_iter().collect();
        for (number, part) in images.chunks(PARALLEL).enumerate() {
            self.progress.at("blocks of the log written to their places", number * PARALLEL, images.len());
            let writes = part.iter().map(|(block, at)| self.write_image(*block, *at));
            join_all(writes).await.into_iter().collect::<Result<(), StoreError>>()?;
        }
        self.report.blocks_written = images.len() as u64;
        if images.is_empty() {
            return Ok(());
        }
        let Whole { path, device, .. } = self.whole;
        device.fdatasync().await.map_err(|error| io_error(path, "flush", &error))
    }

    async fn write_image(&self, block: u64, at: u64) -> Result<(), StoreError> {
        let Whole { shard, path, device, .. } = self.whole;
        let bytes = self.log.read(at / BLOCK_BYTES, 2).await?;
        let within = (at % BLOCK_BYTES) as usize;
        let mut buf = shard.buf(BLOCK_BYTES as usize);
        let Some(content) = bytes.get(within..within + BLOCK_BYTES as usize) else {
            return Err(StoreError::damaged(format!("byte {at} of the log"), "the device ends there"));
        };
        buf.copy_from_slice(content);
        let written = device.write_at(vec![buf.freeze()], block * BLOCK_BYTES, false).await;
        written.map_err(|error| io_error(path, "write", &error))
    }
}

/// Objects that a change copies.
fn sources(change: &ObjectChange) -> impl Iterator<Item = &Arc<ObjectId>> {
    change.steps.iter().filter_map(|step| match step {
        Step::CloneFrom { from } => Some(from),
        _ => None,
    })
}

/// The object of a change, and those that it copies.
fn named(change: &ObjectChange) -> impl Iterator<Item = &Arc<ObjectId>> {
    std::iter::once(&change.oid).chain(sources(change))
}

/// Places blocks where the log says that they are.
struct Replayed {
    placed: std::vec::IntoIter<(u64, u32)>,
    is_short: bool,
}

impl Replayed {
    fn next(&mut self) -> Placed {
        let (block, crc) = self.placed.next().unwrap_or_else(|| {
            self.is_short = true;
            (0, 0)
        });
        Placed { block, crc, content: Bytes::new() }
    }
}

impl Placer for Replayed {
    fn whole(&mut self, data: &Payload, out: &mut PlacedList) {
        out.extend((0..data.len() as u64 / BLOCK_BYTES).map(|_| self.next()));
    }

    fn part(&mut self, _old: Option<&Bytes>, _within: usize, _len: usize, _data: Option<&Payload>) -> Placed {
        self.next()
    }

    /// Nothing to do: the mount counts references afterwards.
    fn share(&mut self, _extents: &Extents) {}

    fn unshare(&mut self, _block: u64) -> bool {
        false
    }
}
