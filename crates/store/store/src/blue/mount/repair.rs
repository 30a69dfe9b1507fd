//! Repairs that need no other copy: labels, and block maps without an object.

use carmine_reactor::Shard;

use crate::blue::device::data::{Device, Place, Places, io_error, read_block};
use crate::blue::device::wal;
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::{codec, keys};
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, Label, StoreError};

/// The label in the first block of a device, and its copy in the last.
#[derive(Clone, Debug)]
pub struct Labels {
    /// The first block's.
    pub first: Result<Label, StoreError>,
    /// The last block's.
    pub copy: Result<Label, StoreError>,
}

impl Labels {
    /// Returns any readable label.
    ///
    /// # Errors
    /// The first one's error, if neither is readable.
    pub fn any(&self) -> Result<&Label, StoreError> {
        self.first.as_ref().or(self.copy.as_ref()).map_err(|_| match &self.first {
            Err(error) => error.clone(),
            Ok(_) => StoreError::failed("both labels are good"),
        })
    }
}

/// Reads both labels.
///
/// # Errors
/// If the device cannot be opened.
pub async fn labels(shard: &Shard, place: impl Into<Place>) -> Result<Labels, StoreError> {
    let place = place.into();
    let device = Device::open(shard, &place, false).await?;
    read_labels(shard, &place, &device).await
}

pub(crate) async fn read_labels(shard: &Shard, place: &Place, device: &Device) -> Result<Labels, StoreError> {
    let path = place.path.as_path();
    let read = async |block: u64| {
        let bytes = read_block(shard, path, device, block).await?;
        Label::decode(path, &bytes)
    };
    let first = read(0).await;
    let length = device.len().await.map_err(|error| io_error(path, "length of", &error))?;
    let blocks = first.as_ref().map_or(length / BLOCK_BYTES, Label::blocks);
    let copy = read(blocks.saturating_sub(1)).await;
    Ok(Labels { first, copy })
}

/// Repairs a store that is not mounted; returns a description of each repair. Mounting the store and
/// [`fsck`](crate::blue::mount::fsck()) report the damage that is left.
///
/// # Errors
/// If the device or the key-value store cannot be read or written, or no label is good.
pub async fn repair(
    shard: &Shard,
    places: impl Into<Places>,
    index: impl Into<MetaIndex>,
) -> Result<Vec<String>, StoreError> {
    let Places { block: place, wal: candidates } = places.into();
    let device = Device::open(shard, &place, place.slice.is_none()).await?;
    let (label, mut done) = repair_labels(shard, &place, &device).await?;
    done.extend(wal::repair(shard, &place.path, &label, &candidates).await?);
    done.extend(remove_strays(&index.into(), shard).await?);
    Ok(done)
}

async fn repair_labels(
    shard: &Shard,
    place: &Place,
    device: &Device,
) -> Result<(Label, Vec<String>), StoreError> {
    let labels = read_labels(shard, place, device).await?;
    let good = labels.any()?.clone();
    let mut done = Vec::new();
    for (what, found, block) in
        [("label", &labels.first, 0), ("copy of the label", &labels.copy, good.blocks().saturating_sub(1))]
    {
        if found.as_ref().is_ok_and(|label| *label == good) {
            continue;
        }
        let mut buf = shard.buf(BLOCK_BYTES as usize);
        buf.fill(0);
        buf.iter_mut().zip(good.encode()).for_each(|(to, from)| *to = from);
        let written = device.write_at(vec![buf.freeze()], block * BLOCK_BYTES, false).await;
        written.map_err(|error| io_error(&place.path, "write the label of", &error))?;
        device.fdatasync().await.map_err(|error| io_error(&place.path, "flush", &error))?;
        done.push(format!("the {what} in block {block} is written again"));
    }
    Ok((good, done))
}

/// Removes pieces of block maps whose object does not exist.
async fn remove_strays(index: &MetaIndex, shard: &Shard) -> Result<Vec<String>, StoreError> {
    let (mut done, mut batch) = (Vec::new(), KvBatch::default());
    let each = async |key: &[u8], value: &[u8]| {
        let Ok((oid, piece)) = keys::decode_extents(key) else { return Ok(()) };
        let onode = index.load(shard, vec![keys::onode(&keys::oid_bytes(&oid))]).await?;
        if onode == [None] && codec::decode_extents(key, value).is_ok() {
            batch.delete(key);
            done.push(format!(
                "piece {piece} of the block map of object {oid}, which does not exist, is removed"
            ));
        }
        Ok::<_, StoreError>(())
    };
    index.scan_all(shard, keys::kind_range(keys::EXTENTS), each).await?;
    if !batch.is_empty() {
        index.apply(shard, vec![batch], true).await?;
    }
    Ok(done)
}
