//! What a mount does with the log: everything in it that the key-value store lacks goes there, and the log begins anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use carmine_reactor::Shard;
use carmine_types::{Eversion, PgId, crc32c};

use super::device::Device;
use super::join::join_all;
use super::label::Label;
use super::record::{HEADER_BYTES, LoggedTxn, decode_txns};
use super::scan::{self, Found, Groups};
use super::shared::{io, read_block};
use super::tail::Tail;
use super::{codec, keys, pg};
use crate::kv::{Kv, KvBatch};
use crate::{BLOCK_BYTES, StoreError};

/// Bytes of changes that go to the key-value store together.
const BATCH_BYTES: usize = 8 << 20;
/// Reads and writes of blocks in flight.
const PARALLEL: usize = 64;
/// Groups between two lines about the progress.
const PROGRESS_GROUPS: u64 = 10_000;
/// Virtual time of the key-value store's part in the simulator.
const SIM_KV_NS: u64 = 200_000;

/// What a mount found in the log and did with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Lanes that had something to replay.
    pub lanes: u64,
    /// Groups replayed.
    pub groups: u64,
    /// Transactions replayed.
    pub txns: u64,
    /// Transactions that were in the log but whose data was not on the device: they had not been acknowledged.
    pub dropped_txns: u64,
    /// Blocks that were written from the log.
    pub blocks_written: u64,
    /// Nanoseconds.
    pub duration_ns: u64,
}

/// Brings the key-value store up to date and ends the log's epoch. Gives the new epoch.
pub(crate) async fn replay(
    shard: &Shard,
    path: &Path,
    device: &Device,
    label: &Label,
    kv: &Arc<dyn Kv>,
) -> Result<(u64, ReplayReport), StoreError> {
    let start_ns = shard.now_ns();
    let reader = Arc::clone(kv);
    let (epoch, positions) = shard.alien(SIM_KV_NS, move || positions(&*reader)).await?;
    let groups = scan::scan(shard, path, device, label, epoch).await?;
    if !groups.is_empty() {
        // What is found may be in the device's cache only. The key-value store must not come to know anything of it
        // before it is durable: it might write its tables out at any time.
        device.fdatasync().await.map_err(|error| io(path, "flush", &error))?;
    }
    let mut replay = Replay {
        shard,
        path,
        device,
        label,
        kv,
        images: Images::new(),
        pgs: BTreeMap::new(),
        report: ReplayReport::default(),
    };
    let mut lanes: Vec<u16> = groups.keys().map(|(lane, _)| *lane).collect();
    lanes.dedup();
    for lane in lanes {
        let contained = positions.get(&lane).copied().unwrap_or(0);
        replay.lane(lane, contained, &groups).await?;
    }
    replay.write_images().await?;
    let new_epoch = epoch + 1;
    let writer = Arc::clone(kv);
    shard.alien(SIM_KV_NS, move || begin_epoch(&*writer, new_epoch)).await?;
    let mut report = replay.report;
    report.duration_ns = shard.now_ns() - start_ns;
    if report.groups + report.dropped_txns > 0 {
        tracing::info!(?report, store = %path.display(), "the log was replayed");
    }
    Ok((new_epoch, report))
}

/// On an alien thread: the log's epoch, and how far each of its lanes is in the key-value store.
fn positions(kv: &dyn Kv) -> Result<(u64, BTreeMap<u16, u64>), StoreError> {
    let epoch = match kv.get(keys::LOG_EPOCH)? {
        Some(value) => codec::decode_epoch(keys::LOG_EPOCH, &value)?,
        None => 0,
    };
    let mut out = BTreeMap::new();
    pg::scan(kv, keys::lane_range(), |key, value| {
        let (of, seq) = codec::decode_position(key, value)?;
        if let Some(lane) = keys::decode_lane(key).filter(|_| of == epoch) {
            out.insert(lane, seq);
        }
        Ok(())
    })?;
    Ok((epoch, out))
}

/// On an alien thread: from now on the log is empty. Makes durable what was committed before.
fn begin_epoch(kv: &dyn Kv, epoch: u64) -> Result<(), StoreError> {
    let mut batch = KvBatch::default();
    let (start, end) = keys::lane_range();
    batch.delete_range(&start, &end);
    batch.put_with(|out| out.extend_from_slice(keys::LOG_EPOCH), |out, at| codec::push_epoch(out, at, epoch));
    Ok(kv.commit(&[batch], true)?)
}

/// Blocks whose content may be in the log only, and the byte of the device where it is.
type Images = BTreeMap<u64, u64>;

/// Remembers which blocks the log has the content of.
fn note(images: &mut Images, found: &Found, txn: &LoggedTxn) {
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
    shard: &'a Shard,
    path: &'a Path,
    device: &'a Device,
    label: &'a Label,
    kv: &'a Arc<dyn Kv>,
    images: Images,
    /// The lane of each PG, and its last version there.
    pgs: BTreeMap<PgId, (u16, Eversion)>,
    report: ReplayReport,
}

impl Replay<'_> {
    /// Replays what a lane has behind group `contained`.
    async fn lane(&mut self, lane: u16, contained: u64, groups: &Groups) -> Result<(), StoreError> {
        let of_lane = groups.range((lane, 0)..=(lane, u64::MAX));
        let known_durable = of_lane.map(|(_, found)| found.header.durable).max().unwrap_or(0);
        let chain: Vec<Found> =
            (contained + 1..).map_while(|seq| groups.get(&(lane, seq)).copied()).collect();
        let end = contained + chain.len() as u64;
        if known_durable > end {
            return Err(StoreError::damaged(
                format!("group {} of lane {lane} of the log on {}", end + 1, self.path.display()),
                format!(
                    "it is not whole, and group {known_durable} was durable: restore this store from its replicas"
                ),
            ));
        }
        let durable = chain.iter().filter(|found| found.header.id.seq <= known_durable).count();
        let (head, tail) = chain.split_at(durable);
        let mut believed = self.believed(tail).await?;
        self.report.lanes += u64::from(!chain.is_empty());
        // A block that this lane freed may have an image in another lane since, so each lane is looked at by itself.
        let mut images = Images::new();
        let mut batches = Vec::new();
        for (number, found) in head.iter().chain(tail).enumerate() {
            let mut txns = self.txns(found).await?;
            if number >= durable {
                let part = txns.len().min(believed);
                believed -= part;
                self.report.dropped_txns += (txns.len() - part) as u64;
                txns.truncate(part);
            }
            for txn in &txns {
                note(&mut images, found, txn);
                self.check_order(lane, txn)?;
            }
            self.report.groups += u64::from(!txns.is_empty());
            self.report.txns += txns.len() as u64;
            if self.report.groups % PROGRESS_GROUPS == PROGRESS_GROUPS - 1 {
                tracing::info!(lane, of = chain.len(), report = ?self.report, "replaying the log");
            }
            batches.extend(txns.into_iter().map(|txn| txn.batch));
            if batches.iter().map(KvBatch::bytes).sum::<usize>() >= BATCH_BYTES {
                self.commit(std::mem::take(&mut batches)).await?;
            }
        }
        self.images.extend(images);
        self.commit(batches).await
    }

    /// How many transactions at the end of a lane may be believed.
    async fn believed(&self, groups: &[Found]) -> Result<usize, StoreError> {
        let mut tail = Tail::default();
        for found in groups {
            for txn in self.txns(found).await? {
                let held = self.holds(&txn.writes).await;
                let mut held = held.into_iter();
                tail.push(&txn, |_, _| held.next().unwrap_or(false));
            }
        }
        Ok(tail.believed())
    }

    /// Whether each block has its checksum. One that cannot be read does not.
    async fn holds(&self, writes: &[(u64, u32)]) -> Vec<bool> {
        if cfg!(carmine_mutation = "ignore_data_crc") {
            return vec![true; writes.len()];
        }
        let mut out = Vec::with_capacity(writes.len());
        for part in writes.chunks(PARALLEL) {
            let reads = part.iter().map(|(block, _)| read_block(self.shard, self.path, self.device, *block));
            for (content, (_, crc)) in join_all(reads).await.into_iter().zip(part) {
                out.push(content.is_ok_and(|content| crc32c::raw(crc32c::SEED, &content) == *crc));
            }
        }
        out
    }

    async fn txns(&self, found: &Found) -> Result<Vec<LoggedTxn>, StoreError> {
        let body = scan::body(self.shard, self.path, self.device, found).await?;
        let txns = if found.header.holds(&body) { decode_txns(found.header.txns, &body) } else { None };
        let data = 1..self.label.log.start;
        let known = |txn: &LoggedTxn| {
            let written = txn.writes.iter().map(|(block, _)| (*block, 1));
            let images = txn.images.iter().map(|(block, range)| (*block, range.len() as u64 / BLOCK_BYTES));
            let freed = txn.freed.iter().map(|(block, blocks)| (*block, u64::from(*blocks)));
            written
                .chain(images)
                .chain(freed)
                .all(|(block, blocks)| data.contains(&block) && block + blocks <= data.end)
        };
        txns.filter(|txns| txns.iter().all(known)).ok_or_else(|| {
            let what = format!("block {} of the log on {}", found.block, self.path.display());
            StoreError::damaged(what, "its checksum holds, but this program did not write it")
        })
    }

    /// The order of a PG's transactions is that of its lane, so in one epoch it must have one lane only.
    fn check_order(&mut self, lane: u16, txn: &LoggedTxn) -> Result<(), StoreError> {
        let (first, last) = self.pgs.entry(txn.pg).or_insert((lane, txn.version));
        if *first != lane {
            let why = format!("it has version {last} in lane {first} and {} in lane {lane}", txn.version);
            return Err(StoreError::damaged(format!("the log of pg {}", txn.pg), why));
        }
        *last = txn.version;
        Ok(())
    }

    async fn commit(&self, batches: Vec<KvBatch>) -> Result<(), StoreError> {
        if batches.is_empty() {
            return Ok(());
        }
        let kv = Arc::clone(self.kv);
        // Nothing says yet that these are contained: until the new epoch is durable, another mount begins again.
        Ok(self.shard.alien(SIM_KV_NS, move || kv.commit(&batches, false)).await?)
    }

    /// Writes the blocks whose content may be in the log only.
    async fn write_images(&mut self) -> Result<(), StoreError> {
        let images: Vec<(u64, u64)> = std::mem::take(&mut self.images).into_iter().collect();
        for part in images.chunks(PARALLEL) {
            let writes = part.iter().map(|(block, at)| self.write_image(*block, *at));
            join_all(writes).await.into_iter().collect::<Result<(), StoreError>>()?;
        }
        self.report.blocks_written = images.len() as u64;
        if images.is_empty() {
            return Ok(());
        }
        self.device.fdatasync().await.map_err(|error| io(self.path, "flush", &error))
    }

    async fn write_image(&self, block: u64, at: u64) -> Result<(), StoreError> {
        let bytes = scan::read(self.shard, self.path, self.device, at / BLOCK_BYTES, 2).await?;
        let within = (at % BLOCK_BYTES) as usize;
        let mut buf = self.shard.buf(BLOCK_BYTES as usize);
        let Some(content) = bytes.get(within..within + BLOCK_BYTES as usize) else {
            return Err(StoreError::damaged(format!("byte {at} of the log"), "the device ends there"));
        };
        buf.copy_from_slice(content);
        let written = self.device.write_at(vec![buf.freeze()], block * BLOCK_BYTES, false).await;
        written.map_err(|error| io(self.path, "write", &error))
    }
}
