//! Changes the layout of an unmounted store: moves the log, or expands to the full size of a device that has grown. Each change
//! is one commit of a label in the key-value store ([`Opened::relabel`]); before that nothing has changed.

use carmine_reactor::Shard;

use crate::blue::device::BLOCKS_MAX;
use crate::blue::device::data::{Device, Place, Places, io_error};
use crate::blue::device::label::{Label, LogArea, wal_bytes};
use crate::blue::device::wal::{WalLabel, wipe_label, write_label};
use crate::blue::meta::index::MetaIndex;
use crate::blue::mount::mkfs::{Fill, claim_wal, prepare};
use crate::blue::mount::mounting::Opened;
use crate::blue::mount::replay::replay;
use crate::{BLOCK_BYTES, StoreError};

/// A device for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLog {
    /// The device.
    pub place: Place,
    /// Bytes to use. `None`: a device is used whole, a file gets as many as the log would have on the data device.
    pub size_bytes: Option<u64>,
    /// Treatment of the rest of it.
    pub fill: Fill,
    /// Overwrite existing content.
    pub force: bool,
}

/// The old and the new place of a log; `None`: on the data device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMove {
    /// The old log device, whose labels are wiped.
    pub from: Option<Place>,
    /// The new log device.
    pub to: Option<Place>,
    /// Bytes of the new log.
    pub log_bytes: u64,
}

/// Moves the log to a separate device, or (`None`) to the data device. The content of the old log goes to the key-value store
/// first, so nothing is copied. After a crash the log is in one of the two places; `places` of the next mount must have both
/// devices.
///
/// # Errors
/// Those of a mount; if the new device is not blank or too small, or is the one that the log has.
pub async fn move_log(
    shard: &Shard,
    places: impl Into<Places>,
    index: impl Into<MetaIndex>,
    to: Option<NewLog>,
) -> Result<LogMove, StoreError> {
    let mut opened = Opened::open(shard, places.into(), index.into()).await?;
    replay(opened.for_replay(shard), false).await?;
    let old = opened.wal.take();
    let from = old.as_ref().map(|(place, _)| place.clone());
    if to.is_none() && from.is_none() {
        return Err(StoreError::unusable(
            &opened.place.path,
            "its log lies beside the data already: there is nothing to move",
        ));
    }
    if let Some(new) = to.as_ref().filter(|new| Some(&new.place) == from.as_ref()) {
        return Err(StoreError::unusable(&new.place.path, "the log lies there already"));
    }
    let mut label = Label { log_id: shard.random_u64(), wal: None, ..opened.label.clone() };
    if let Some(new) = &to {
        let of_file = wal_bytes(label.size_bytes);
        let (device, bytes) = claim_wal(shard, &new.place, new.size_bytes, of_file, new.force).await?;
        label.wal = Some((LogArea::on_own_device(bytes / BLOCK_BYTES), bytes));
        prepare(shard, &new.place.path, &device, bytes, new.fill, &mut |_, _| {}).await?;
        write_label(shard, &new.place, &device, &WalLabel::for_store(&label), bytes).await?;
    }
    let old_bytes = opened.label.wal_bytes();
    let log = label.log_range();
    opened.relabel(shard, label).await?;
    if let (Some((place, device)), Some(bytes)) = (old, old_bytes) {
        wipe_label(shard, &place, &device, bytes).await?;
    }
    Ok(LogMove { from, to: to.map(|new| new.place), log_bytes: log.end - log.start })
}

/// Bytes in use before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// The data device.
    pub block: (u64, u64),
    /// The separate log device, if there is one.
    pub wal: Option<(u64, u64)>,
}

/// Expands a store to the full size of devices that have grown since it was made.
///
/// # Errors
/// Those of a mount; if a device is larger than the format can address.
pub async fn expand(
    shard: &Shard,
    places: impl Into<Places>,
    index: impl Into<MetaIndex>,
) -> Result<Expanded, StoreError> {
    let mut opened = Opened::open(shard, places.into(), index.into()).await?;
    // The size of the segments changes: the log must be empty.
    replay(opened.for_replay(shard), false).await?;
    let mut label = opened.label.clone();
    let block = (label.size_bytes, length(&opened.place, &opened.device).await?);
    label.size_bytes = block.1;
    let mut wal = None;
    if let (Some((place, device)), Some(old)) = (&opened.wal, opened.label.wal_bytes()) {
        let new = length(place, device).await?;
        wal = Some((old, new));
        label.wal = Some((LogArea::on_own_device(new / BLOCK_BYTES), new));
    }
    if label == opened.label {
        return Ok(Expanded { block, wal });
    }
    if let (Some((place, device)), Some((_, new))) = (&opened.wal, wal) {
        // Its label does not have its length, so both are valid from now on.
        write_label(shard, place, device, &WalLabel::for_store(&label), new).await?;
    }
    opened.relabel(shard, label).await?;
    Ok(Expanded { block, wal })
}

/// Whole blocks of a device, in bytes.
async fn length(place: &Place, device: &Device) -> Result<u64, StoreError> {
    let bytes = device.len().await.map_err(|error| io_error(&place.path, "length of", &error))?;
    if bytes / BLOCK_BYTES > BLOCKS_MAX {
        let why = format!("it has {bytes} bytes, more than the format can address");
        return Err(StoreError::unusable(&place.path, why));
    }
    Ok(bytes / BLOCK_BYTES * BLOCK_BYTES)
}
