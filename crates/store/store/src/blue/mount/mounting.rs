//! Mounting a store.

use std::sync::Arc;

use carmine_reactor::Shard;

use crate::StoreError;
use crate::blue::device::data::{Device, Place, Places, io_error, read_label};
use crate::blue::device::label::{Label, VERSION};
use crate::blue::device::space::Space;
use crate::blue::device::wal::{self, write_blocks};
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::{checkpoint, codec, keys};
use crate::blue::mount::claims::Claims;
use crate::blue::mount::replay::{Whole, replay};
use crate::blue::shard::shared;
use crate::blue::shard::shared::{BlueShared, MountOptions};
use crate::kv::KvBatch;

impl BlueShared {
    /// Opens the devices, checks that they and the key-value store belong together, replays the log, and determines the used
    /// blocks: from the checkpoint of a clean unmount, or by scanning the block maps (about 0.5 µs per 256 KiB of data). Call it
    /// on one shard; the devices stay held until that shard's store is unmounted.
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
        let mut opened = Opened::open(shard, places.into(), index.into()).await?;
        let left = checkpoint::read(&opened.index, shard, &opened.label).await?;
        let (epoch, replayed) = replay(opened.for_replay(shard), options.accepts_loss).await?;
        let path = opened.place.path.display();
        let space = match left.filter(|_| replayed.txns + replayed.dropped_txns == 0) {
            Some(space) => {
                tracing::info!("{path}: a clean unmount left the map of free space");
                space
            }
            None => {
                let start_ns = shard.now_ns();
                let space = scan_space(&opened.index, shard, &opened.label).await?;
                let seconds = (shard.now_ns() - start_ns) as f64 / 1e9;
                tracing::info!("{path}: all block maps were scanned for free space in {seconds:.3} s");
                space
            }
        };
        space.check();
        opened.upgrade(shard).await?;
        let Opened { place, device, wal, label, index } = opened;
        let (wal, wal_device) = wal.unzip();
        let shared = BlueShared::new((place, wal), label, options, index, space, epoch, replayed);
        shared.log().measure_room(shard).await;
        for device in [Some(device), wal_device].into_iter().flatten() {
            shared::stores(shard).hold_device(shared.instance(), device);
        }
        Ok(shared)
    }
}

/// Marks all blocks that the block maps claim.
pub(crate) async fn scan_space(index: &MetaIndex, shard: &Shard, label: &Label) -> Result<Space, StoreError> {
    let claims = Claims::new(label);
    let each = async |key: &[u8], value: &[u8]| {
        let piece = codec::decode_extents(key, value)?;
        for entry in piece.entries().iter().filter(|entry| entry.has_block()) {
            if let Err(why) = claims.claim(&piece, entry.block()) {
                let oid = Box::new(keys::decode_extents(key)?.0);
                return Err(StoreError::BadBlock { oid, block: entry.block(), why });
            }
        }
        Ok(())
    };
    index.scan_all(shard, keys::kind_range(keys::EXTENTS), each).await?;
    Ok(claims.space())
}

// Opening the parts of a store: its devices, its labels and its key-value store, all of the same store.

/// All parts of a store, opened exclusively.
pub(crate) struct Opened {
    pub(crate) place: Place,
    pub(crate) device: Device,
    /// The separate log device, if there is one.
    pub(crate) wal: Option<(Place, Device)>,
    pub(crate) label: Label,
    pub(crate) index: MetaIndex,
}

impl Opened {
    /// Opens all parts. A label on the device that is older than that in the key-value store is rewritten.
    ///
    /// # Errors
    /// If one is missing, is another store's, or is of another time.
    pub(crate) async fn open(shard: &Shard, places: Places, index: MetaIndex) -> Result<Opened, StoreError> {
        let Places { block: place, wal: candidates } = places;
        let path = place.path.as_path();
        // A store that has only a slice of a device cannot open it exclusively.
        let device = Device::open(shard, &place, place.slice.is_none()).await?;
        let found = read_label(shard, path, &device).await?;
        let label = label_of_kv(shard, &place, &found, &index).await?;
        let length = device.len().await.map_err(|error| io_error(path, "length of", &error))?;
        if length < label.size_bytes {
            let why = format!("it has {length} bytes, and its label says {}: was it cut?", label.size_bytes);
            return Err(StoreError::unusable(path, why));
        }
        let wal = wal::open(shard, path, &label, &candidates).await?;
        if found != label {
            tracing::warn!(
                "{}: the label is revision {} and should be {}: a change was cut short, and is completed",
                path.display(),
                found.revision,
                label.revision
            );
            write_blocks(shard, path, &device, label.size_bytes, &label.encode()).await?;
        }
        Ok(Opened { place, device, wal, label, index })
    }

    /// The same parts as a replay needs them.
    pub(crate) fn for_replay<'a>(&'a self, shard: &'a Shard) -> Whole<'a> {
        let wal = self.wal.as_ref().map(|(place, device)| (place.path.as_path(), device));
        let Opened { place, device, label, index, .. } = self;
        Whole { shard, path: &place.path, device, wal, label, index }
    }

    /// Makes the store one of this program's format, if it is older: from now on it may hold what older programs do not know.
    async fn upgrade(&mut self, shard: &Shard) -> Result<(), StoreError> {
        let (old, path) = (self.label.version, self.place.path.display());
        if old < VERSION {
            tracing::info!("{path}: the store becomes one of format {VERSION}; it was one of format {old}");
            self.relabel(shard, Label { version: VERSION, ..self.label.clone() }).await?;
        }
        Ok(())
    }

    /// Changes the store's label: one commit in the key-value store, then the device's two labels.
    pub(crate) async fn relabel(&mut self, shard: &Shard, mut label: Label) -> Result<(), StoreError> {
        label.revision = self.label.revision + 1;
        let bytes = label.encode();
        let mut batch = KvBatch::default();
        batch.put(keys::SUPER, &bytes);
        self.index.apply(shard, vec![batch], true).await?;
        write_blocks(shard, &self.place.path, &self.device, label.size_bytes, &bytes).await?;
        self.label = label;
        Ok(())
    }
}

/// The authoritative label in the key-value store, if it is of the same store as the device's and not older.
async fn label_of_kv(
    shard: &Shard,
    place: &Place,
    found: &Label,
    index: &MetaIndex,
) -> Result<Label, StoreError> {
    let refuse = |why: String| Err(StoreError::unusable(&place.path, why));
    let bytes = index.load(shard, vec![keys::SUPER.to_vec()]).await?.pop().flatten();
    let Some(bytes) = bytes else {
        return refuse(format!(
            "it holds a store, but the key-value store in {} is empty: was it lost or moved?",
            index.place()
        ));
    };
    let label = Label::decode(index.place().as_ref(), &bytes)?;
    if !label.is_of_same_store(found) || (label.revision == found.revision && label != *found) {
        return refuse(format!("it and the key-value store in {} do not belong together", index.place()));
    }
    if label.revision < found.revision {
        let (old, new) = (label.revision, found.revision);
        return refuse(format!(
            "the metadata in {} is older than the device: its label is revision {old}, and the device's is {new}. Restore \
             this store from its replicas",
            index.place()
        ));
    }
    Ok(label)
}
