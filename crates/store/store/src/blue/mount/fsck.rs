//! Checking a mounted, idle store: both labels are good, every record decodes, block maps and reference counts agree, the
//! accounting is right, and (deep) every block's checksum holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use carmine_reactor::Shard;
use carmine_types::{ObjectId, crc32c};

use crate::blue::device::data::{Device, read_block};
use crate::blue::device::join::join_all;
use crate::blue::device::space::Space;
use crate::blue::device::wal;
use crate::blue::meta::extents::{Extents, PIECE_BYTES};
use crate::blue::meta::index::{MetaIndex, Page, Scan};
use crate::blue::meta::{checkpoint, codec, keys};
use crate::blue::mount::claims::{Claims, SharedSums};
use crate::blue::mount::repair::read_labels;
use crate::blue::shard::shared::BlueShared;
use crate::{BLOCK_BYTES, StoreError};

/// Most errors in the report; more are only counted.
const ERRORS_KEPT: usize = 100;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct FsckReport {
    /// Objects.
    pub objects: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Blocks that several objects share.
    pub shared_blocks: u64,
    /// Runs of blocks that are contiguous in their object and on the device.
    pub extents: u64,
    /// Blocks whose content was read and checked.
    pub blocks_read: u64,
    /// Entries of PG logs.
    pub log_entries: u64,
    /// Omap keys.
    pub omap_keys: u64,
    /// Number of errors.
    pub error_count: u64,
    /// Descriptions of the first errors.
    pub errors: Vec<String>,
}

impl FsckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.error_count == 0
    }

    fn error(&mut self, error: impl Into<String>) {
        self.error_count += 1;
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(error.into());
        }
    }
}

/// A piece of a block map, and the size of its object if that exists.
struct Piece {
    oid: ObjectId,
    index: u32,
    extents: Extents,
    size: Option<u64>,
}

/// Checks a store to which nothing is being written; with `deep` it also reads all data.
///
/// # Errors
/// If metadata cannot be read at all, or the device cannot be opened. Errors in the metadata are in the report.
pub async fn fsck(shared: &Arc<BlueShared>, shard: &Shard, deep: bool) -> Result<FsckReport, StoreError> {
    shared.feed_all(shard).await?;
    let index = shared.index();
    let mut report = check_records(index, shard).await?;
    let blocks = shared.label().blocks();
    let claims = Claims::new(shared.label());
    let device = Device::open(shard, shared.place(), false).await?;
    check_labels(shared, shard, &device, &mut report).await?;
    let mut rest = Some(Scan::new(keys::kind_range(keys::EXTENTS)));
    while let Some(scan) = rest {
        let page = index.scan(shard, scan.clone()).await?;
        for piece in pieces(index, shard, &page, &mut report).await? {
            check_piece(&piece, &claims, &mut report);
            if deep {
                check_content(shared, shard, &device, &piece, &mut report).await;
            }
        }
        rest = page.next_scan(scan);
    }
    let found = claims.space();
    report.blocks = found.used_blocks();
    check_references(shared, shard, &found, &mut report).await?;
    let space = shared.space();
    if space.used_blocks() != found.used_blocks() {
        let (counted, scanned) = (space.used_blocks(), found.used_blocks());
        report.error(format!("{counted} blocks are counted as taken, and the block maps have {scanned}"));
    }
    for block in (0..blocks).filter(|block| space.is_taken(*block) != found.is_taken(*block)) {
        let how =
            if found.is_taken(block) { "in use and counted as free" } else { "free and counted as taken" };
        report.error(format!("block {block} is {how}"));
    }
    Ok(report)
}

/// Checks both labels of each device: a mount needs only one of the two.
async fn check_labels(
    shared: &BlueShared,
    shard: &Shard,
    device: &Device,
    report: &mut FsckReport,
) -> Result<(), StoreError> {
    let label = shared.label();
    let labels = read_labels(shard, shared.place(), device).await?;
    for (block, found) in [(0, labels.first), (label.blocks() - 1, labels.copy)] {
        match found {
            Ok(found) if found == *label => {}
            Ok(found) => report.error(format!(
                "the label in block {block} is revision {}, and should be {}",
                found.revision, label.revision
            )),
            Err(error) => report.error(format!("the label in block {block}: {error}")),
        }
    }
    let Some(place) = shared.wal() else { return Ok(()) };
    let device = Device::open(shard, place, false).await?;
    for block in wal::damaged(shard, place, &device, label).await {
        let path = place.path.display();
        report.error(format!("the label of the log in block {block} of {path} is damaged"));
    }
    Ok(())
}

/// Checks that all records except block maps decode.
async fn check_records(index: &MetaIndex, shard: &Shard) -> Result<FsckReport, StoreError> {
    let mut report = FsckReport::default();
    let mut owner: Option<ObjectId> = None;
    let each = async |key: &[u8], value: &[u8]| {
        let result = match key.first() {
            Some(&keys::ONODE) => {
                report.objects += 1;
                keys::decode_onode(key).and_then(|_| codec::decode_onode(key, value)).map(drop)
            }
            Some(&keys::PREFIX_PG_LOG) => {
                codec::decode_log(key, value).map(|entries| report.log_entries += entries.len() as u64)
            }
            Some(&keys::PG_INFO) => codec::decode_info(key, value).map(drop),
            Some(&keys::PG_TAIL) => codec::decode_tail(key, value).map(drop),
            Some(&keys::EXTENTS) => Ok(()),
            Some(&keys::OMAP | &keys::OMAP_HEADER) => {
                report.omap_keys += u64::from(key.first() == Some(&keys::OMAP));
                check_omap(index, shard, key, value, &mut owner).await
            }
            _ if key == keys::SUPER => Ok(()),
            _ if key == keys::LOG_EPOCH => codec::decode_epoch(key, value).map(drop),
            _ if key == keys::COMMITS || keys::decode_lane(key).is_some() => {
                codec::decode_position(key, value).map(drop)
            }
            _ => checkpoint::check(key, value),
        };
        if let Err(error) = result {
            report.error(error.to_string());
        }
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, (vec![0], vec![0xff]), each).await?;
    Ok(report)
}

/// Checks an omap key or header: its value decodes, and its object exists and has its flag for omaps set. `owner` is the object
/// looked up last.
async fn check_omap(
    index: &MetaIndex,
    shard: &Shard,
    key: &[u8],
    value: &[u8],
    owner: &mut Option<ObjectId>,
) -> Result<(), StoreError> {
    codec::decode_omap(key, value)?;
    let (oid, _) = keys::decode_omap(key)?;
    if owner.as_ref() == Some(&oid) {
        return Ok(());
    }
    let onode = keys::onode(&keys::oid_bytes(&oid));
    let found = index.load(shard, vec![onode.clone()]).await?.pop().flatten();
    let meta = found.map(|value| codec::decode_onode(&onode, &value)).transpose()?;
    if !meta.is_some_and(|meta| meta.has_omap) {
        return Err(StoreError::damaged(keys::printable(key), format!("object {oid} has no omap")));
    }
    *owner = Some(oid);
    Ok(())
}

/// The pieces of block maps of a page, with the sizes of their objects.
async fn pieces(
    index: &MetaIndex,
    shard: &Shard,
    page: &Page,
    report: &mut FsckReport,
) -> Result<Vec<Piece>, StoreError> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (key, value) in &page.pairs {
        match keys::decode_extents(key).and_then(|id| Ok((id, codec::decode_extents(key, value)?))) {
            Ok(((oid, index), extents)) => pieces.push(Piece { oid, index, extents, size: None }),
            Err(error) => report.error(error.to_string()),
        }
    }
    let onodes: Vec<_> = pieces.iter().map(|piece| keys::onode(&keys::oid_bytes(&piece.oid))).collect();
    let values = index.load(shard, onodes.clone()).await?;
    for ((piece, key), value) in pieces.iter_mut().zip(onodes).zip(values) {
        // A damaged onode is reported elsewhere.
        let meta = value.map(|value| codec::decode_onode(&key, &value));
        piece.size = meta.map(|meta| meta.map_or(u64::MAX, |meta| meta.size));
    }
    Ok(pieces)
}

fn check_piece(piece: &Piece, claims: &Claims, report: &mut FsckReport) {
    let Piece { oid, index, extents, size } = piece;
    match size {
        None => report.error(format!("object {oid} does not exist but has a block map")),
        Some(size) if u64::from(*index) * PIECE_BYTES >= *size => {
            report.error(format!("object {oid} of {size} bytes has blocks behind its end (piece {index})"));
        }
        Some(_) => {}
    }
    if extents.is_empty() {
        report.error(format!("object {oid}: piece {index} of the block map is empty"));
    }
    let mut next = None;
    for (n, entry) in (0u64..).zip(extents.entries()) {
        report.extents += u64::from(entry.has_block() && next != Some(entry.block()));
        next = entry.has_block().then_some(entry.block() + 1);
        if entry.is_lost() {
            let offset = u64::from(*index) * PIECE_BYTES + n * BLOCK_BYTES;
            let expected = entry.crc();
            report.error(StoreError::Lost { oid: oid.clone(), offset, expected }.to_string());
        }
    }
    for entry in extents.entries().iter().filter(|entry| entry.has_block()) {
        if let Err(why) = claims.claim(extents, entry.block()) {
            report.error(format!("object {oid} claims block {}, which {why}", entry.block()));
        }
    }
}

/// Checks that the counts of shared blocks match the block maps (`found`), and that all pieces with a block agree on its
/// checksum.
async fn check_references(
    shared: &BlueShared,
    shard: &Shard,
    found: &Space,
    report: &mut FsckReport,
) -> Result<(), StoreError> {
    let (counted, scanned) = (shared.space().references(), found.references());
    let both: BTreeSet<u64> = counted.all().chain(scanned.all()).map(|(block, _)| block).collect();
    report.shared_blocks = scanned.all().count() as u64;
    for block in both {
        let (counted, scanned) = (counted.count(block) + 1, scanned.count(block) + 1);
        if counted != scanned {
            report.error(format!(
                "block {block} is counted as that of {counted} objects, and {scanned} have it; the next mount counts anew"
            ));
        }
    }
    if report.shared_blocks == 0 {
        return Ok(());
    }
    let mut sums = SharedSums::default();
    let each = async |key: &[u8], value: &[u8]| {
        // Damage was reported before.
        let Ok(piece) = codec::decode_extents(key, value) else { return Ok(()) };
        for entry in piece.entries().iter().filter(|entry| entry.has_block()) {
            if let Some(other) = sums.conflicting_sum(found, *entry) {
                let (oid, _) = keys::decode_extents(key)?;
                let (block, crc) = (entry.block(), entry.crc());
                report.error(format!(
                    "object {oid} has block {block} with checksum {crc:#010x}, and another with {other:#010x}"
                ));
            }
        }
        Ok::<_, StoreError>(())
    };
    shared.index().scan_all(shard, keys::kind_range(keys::EXTENTS), each).await
}

/// Reads all blocks of a piece.
async fn check_content(
    shared: &BlueShared,
    shard: &Shard,
    device: &Device,
    piece: &Piece,
    report: &mut FsckReport,
) {
    let entries = || piece.extents.entries().iter().filter(|entry| entry.has_block());
    let reads = entries().map(|entry| read_block(shard, shared.path(), device, entry.block()));
    for (entry, content) in entries().zip(join_all(reads).await) {
        report.blocks_read += 1;
        match content {
            Ok(content) => {
                let crc = crc32c::raw(crc32c::SEED, &content);
                if crc != entry.crc() {
                    let (oid, block, expected) = (&piece.oid, entry.block(), entry.crc());
                    report.error(format!(
                        "object {oid}: block {block} has checksum {crc:#010x} and should have {expected:#010x}"
                    ));
                }
            }
            Err(error) => report.error(error.to_string()),
        }
    }
}
