//! [`BlueShared`]: what the shards of a process share of one store, and mounting it.

use std::path::Path;
use std::sync::Arc;

use carmine_reactor::{Shard, ShardId};

use super::commit_log::CommitLog;
use super::device::{Device, Place};
use super::pg::scan;
use super::replay::{ReplayReport, replay};
use super::space::Space;
use super::{codec, keys, local};
use crate::kv::Kv;
use crate::{BLOCK_BYTES, Label, StatFs, StoreError};

/// Virtual time of the scan at mount in the simulator.
const SIM_MOUNT_NS: u64 = 1_000_000;

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

/// How writes of a device become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// Many writes, then one flush of the device's cache; a lone write by itself.
    Flush,
    /// Each write by itself (`RWF_DSYNC`), which is one command where the device has FUA.
    Dsync,
    /// Not at all: what the device took survives a power cut. On any other device acknowledged writes get lost.
    None,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache_bytes_per_shard: 256 << 20,
            data_cache_bytes_per_shard: 0,
            readahead_bytes: 256 << 10,
            prefer_deferred_bytes: None,
            flush: None,
            discard: false,
        }
    }
}

/// A mounted store: its device, its key-value store, its space and its log.
pub struct BlueShared {
    place: Place,
    label: Label,
    options: MountOptions,
    kv: Arc<dyn Kv>,
    space: Arc<Space>,
    log: Arc<CommitLog>,
    replayed: ReplayReport,
}

impl BlueShared {
    /// Opens the device, checks that it and the key-value store belong together, and scans the block maps for what is
    /// taken (about 0.5 µs for every 256 KiB of data). Call it on one shard; the device stays held until that shard's
    /// store is unmounted.
    ///
    /// # Errors
    /// If the device cannot be opened, holds no store of this format, is another store's, or if metadata is damaged or
    /// two objects claim the same block.
    pub async fn mount(
        shard: &Shard,
        place: impl Into<Place>,
        kv: Arc<dyn Kv>,
        options: MountOptions,
    ) -> Result<Arc<BlueShared>, StoreError> {
        let place = place.into();
        let path = place.path.as_path();
        // Who shares a device cannot have it alone.
        let device = Device::open(shard, &place, place.slice.is_none()).await?;
        let label = read_label(shard, path, &device).await?;
        let kv_label = {
            let kv = Arc::clone(&kv);
            shard.alien(SIM_MOUNT_NS, move || kv.get(keys::SUPER)).await?
        };
        let Some(kv_label) = kv_label else {
            let why = format!(
                "it holds a store, but the key-value store in {} is empty: was it lost or moved?",
                kv.place()
            );
            return Err(StoreError::unusable(path, why));
        };
        if kv_label != label.encode() {
            let why = format!("it and the key-value store in {} do not belong together", kv.place());
            return Err(StoreError::unusable(path, why));
        }
        let length = device.len().await.map_err(|error| io(path, "length of", &error))?;
        if length < label.size_bytes {
            let why = format!("it has {length} bytes, and its label says {}: was it cut?", label.size_bytes);
            return Err(StoreError::unusable(path, why));
        }
        let (epoch, replayed) = replay(shard, path, &device, &label, &kv).await?;
        let (scan_kv, scanned) = (Arc::clone(&kv), label.clone());
        let space = shard.alien(SIM_MOUNT_NS, move || scan_space(&*scan_kv, &scanned)).await?;
        let shared = Arc::new(BlueShared {
            log: Arc::new(CommitLog::new(Arc::clone(&kv), &label, epoch)),
            replayed,
            label,
            options,
            kv,
            space: Arc::new(space),
            place,
        });
        local::stores(shard).hold_device(shared.instance(), device);
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

    /// The key-value store.
    #[must_use]
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// Space of the whole store.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        self.space.statfs()
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

/// On an alien thread: marks all blocks that the block maps claim.
pub(crate) fn scan_space(kv: &dyn Kv, label: &Label) -> Result<Space, StoreError> {
    let space = Space::of(label);
    scan(kv, keys::kind_range(keys::EXTENTS), |key, value| {
        for entry in codec::decode_extents(key, value)?.entries() {
            if !entry.is_hole() && !space.mark(entry.block()) {
                let outside = entry.block() >= label.log.start;
                let why = if outside { "is outside of the data" } else { "another object has too" };
                let oid = Box::new(keys::decode_extents(key)?.0);
                return Err(StoreError::BadBlock { oid, block: entry.block(), why });
            }
        }
        Ok(())
    })?;
    Ok(space)
}
