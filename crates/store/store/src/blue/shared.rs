//! [`BlueShared`]: what the shards of a process share of one store, and mounting it.

use std::path::Path;
use std::sync::Arc;

use carmine_reactor::{Shard, ShardId};
use carmine_types::{FlushMode, READAHEAD_BYTES};

use super::commit_log::CommitLog;
use super::device::{Device, Place, Places};
use super::index::MetaIndex;
use super::opened::Opened;
use super::replay::replay;
use super::replay_report::ReplayReport;
use super::space::Space;
use super::{codec, keys, local};
use crate::{BLOCK_BYTES, Label, StatFs, StoreError};

/// Settings of a mounted store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Budget of each shard's onode cache, in bytes. An onode of a 4 MiB object with all of its map takes about 13 KiB.
    pub cache_bytes_per_shard: usize,
    /// Budget of each shard's cache of data, in bytes; 0: none, as in BlueStore on fast drives, where a read of the
    /// device costs little and hits would hide what the device does.
    pub data_cache_bytes_per_shard: usize,
    /// How much of an object is read ahead of one who reads it from front to back, in bytes; 0: nothing.
    pub readahead_bytes: u64,
    /// A transaction with less data than this goes into the log first, and to its place later; 0: none does. `None`: as
    /// suits the device.
    pub prefer_deferred_bytes: Option<u64>,
    /// How writes become durable. `None`: flushed, which is right for every device.
    pub flush: Option<FlushMode>,
    /// Freed space is discarded before it is used again.
    pub discard: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache_bytes_per_shard: 256 << 20,
            data_cache_bytes_per_shard: 0,
            readahead_bytes: READAHEAD_BYTES,
            prefer_deferred_bytes: None,
            flush: None,
            discard: false,
        }
    }
}

/// A mounted store: its device, its key-value store, its space and its log.
pub struct BlueShared {
    place: Place,
    /// Of the log, if it has a device of its own.
    wal: Option<Place>,
    label: Label,
    options: MountOptions,
    index: MetaIndex,
    space: Arc<Space>,
    log: Arc<CommitLog>,
    replayed: ReplayReport,
}

impl BlueShared {
    /// Opens the devices, checks that they and the key-value store belong together, replays the log, and scans the block
    /// maps for what is taken (about 0.5 µs for every 256 KiB of data). Call it on one shard; the devices stay held until
    /// that shard's store is unmounted.
    ///
    /// # Errors
    /// If a device cannot be opened, holds no store of this format, or is another store's; if the log's own device is
    /// missing; if metadata is damaged or of another time, or two objects claim the same block.
    pub async fn mount(
        shard: &Shard,
        places: impl Into<Places>,
        index: impl Into<MetaIndex>,
        options: MountOptions,
    ) -> Result<Arc<BlueShared>, StoreError> {
        let opened = Opened::open(shard, places.into(), index.into()).await?;
        let (epoch, replayed) = replay(opened.whole(shard)).await?;
        let Opened { place, device, wal, label, index } = opened;
        let space = scan_space(&index, shard, &label).await?;
        index.begin_epoch(epoch);
        let (wal, wal_device) = wal.unzip();
        let shared = Arc::new(BlueShared {
            log: Arc::new(CommitLog::new(index.clone(), &label, epoch)),
            replayed,
            label,
            options,
            index,
            space: Arc::new(space),
            place,
            wal,
        });
        for device in [Some(device), wal_device].into_iter().flatten() {
            local::stores(shard).hold_device(shared.instance(), device);
        }
        Ok(shared)
    }

    /// The device's label.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The block file or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// The block file or device, and the part of it that is the store's.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The device of the log's own, if it has one.
    #[must_use]
    pub fn wal(&self) -> Option<&Place> {
        self.wal.as_ref()
    }

    /// The file or device that the log lies on.
    pub(crate) fn log_path(&self) -> &Path {
        self.wal.as_ref().map_or(self.path(), |place| &place.path)
    }

    /// Where the metadata is.
    pub(crate) fn index(&self) -> &MetaIndex {
        &self.index
    }

    /// Space of the whole store. There is none left when metadata has no room.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let space = self.space.statfs();
        if self.is_kv_low() { StatFs { free: 0, ..space } } else { space }
    }

    /// What the mount found in the log.
    #[must_use]
    pub fn replayed(&self) -> &ReplayReport {
        &self.replayed
    }

    /// How writes become durable.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        self.options.flush.unwrap_or(FlushMode::Flush)
    }

    /// Transactions with less data than this go into the log first.
    #[must_use]
    pub fn prefer_deferred_bytes(&self) -> u64 {
        self.options.prefer_deferred_bytes.unwrap_or(BLOCK_BYTES)
    }

    /// Waits until the key-value store contains what all shards of this process have submitted.
    pub(crate) async fn feed_all(&self, shard: &Shard) -> Result<(), StoreError> {
        let instance = self.instance();
        for to in (0..shard.shards()).map(ShardId) {
            let fed = if to == shard.id() {
                local::feed_all(shard, instance).await
            } else {
                shard.call(to, move |there| async move { local::feed_all(&there, instance).await }).await
            };
            fed?;
        }
        Ok(())
    }

    pub(crate) fn options(&self) -> MountOptions {
        self.options
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn log(&self) -> &Arc<CommitLog> {
        &self.log
    }

    /// Writes are refused, since metadata could not be written any more.
    pub(crate) fn is_kv_low(&self) -> bool {
        self.log.is_low()
    }

    /// Tells the mounted stores of a process apart.
    pub(crate) fn instance(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

pub(crate) fn io(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
    StoreError::io(format!("{what} {}", path.display()), error)
}

/// Reads one block.
pub(crate) async fn read_block(
    shard: &Shard,
    path: &Path,
    device: &Device,
    block: u64,
) -> Result<Vec<u8>, StoreError> {
    let bytes = BLOCK_BYTES as usize;
    let (result, buf) = device.read_at(shard.buf(bytes), bytes, block * BLOCK_BYTES).await;
    let found = result.map_err(|error| io(path, "read", &error))?;
    Ok(buf.get(..found.min(buf.len())).unwrap_or_default().to_vec())
}

/// The label in the first block, or its copy in the last if the first is unreadable.
pub(crate) async fn read_label(shard: &Shard, path: &Path, device: &Device) -> Result<Label, StoreError> {
    let first = match read_block(shard, path, device, 0).await {
        Ok(bytes) => Label::decode(path, &bytes),
        Err(error) => Err(error),
    };
    let Err(error) = first else { return first };
    let length = device.len().await.map_err(|error| io(path, "length of", &error))?;
    let Some(last) = (length / BLOCK_BYTES).checked_sub(1) else { return Err(error) };
    let copy = read_block(shard, path, device, last).await.and_then(|bytes| Label::decode(path, &bytes));
    match copy {
        Ok(label) => {
            tracing::warn!(%error, "the first label is unusable, its copy in the last block is good");
            Ok(label)
        }
        Err(_) => Err(error),
    }
}

/// Marks all blocks that the block maps claim.
pub(crate) async fn scan_space(index: &MetaIndex, shard: &Shard, label: &Label) -> Result<Space, StoreError> {
    let space = Space::of(label);
    let each = async |key: &[u8], value: &[u8]| {
        for entry in codec::decode_extents(key, value)?.entries() {
            if entry.has_block() && !space.mark(entry.block()) {
                let inside = label.holds_data(entry.block(), 1);
                let why = if inside { "another object has too" } else { "is outside of the data" };
                let oid = Box::new(keys::decode_extents(key)?.0);
                return Err(StoreError::BadBlock { oid, block: entry.block(), why });
            }
        }
        Ok(())
    };
    index.scan_all(shard, keys::kind_range(keys::EXTENTS), each).await?;
    Ok(space)
}
