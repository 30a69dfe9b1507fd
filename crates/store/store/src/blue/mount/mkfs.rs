//! Making a new store on a file or device.

use std::path::Path;
use std::time::Duration;

use carmine_reactor::{Bytes, Shard};
use carmine_types::{OsdId, Uuid};

use crate::blue::device::BLOCKS_MAX;
use crate::blue::device::data::{Device, Place, Places, io_error};
use crate::blue::device::join::join_all;
use crate::blue::device::label::{LogArea, VERSION, WAL_BYTES_MIN, wal_bytes};
use crate::blue::device::wal::{WalLabel, write_blocks, write_label};
use crate::blue::meta::index::MetaIndex;
use crate::blue::meta::keys;
use crate::kv::KvBatch;
use crate::{BLOCK_BYTES, Label, StoreError};

/// Bytes of one write of zeros.
const CHUNK_BYTES: u64 = 1 << 20;
/// Writes of zeros in flight.
const PARALLEL: u64 = 8;
/// Bytes discarded at once, and the time limit for the whole drive.
const FORGET_STEP_BYTES: u64 = 1 << 30;
const FORGET_LIMIT: Duration = Duration::from_secs(60);
/// Smallest device: below this, labels and reserve would leave little space.
pub(crate) const SIZE_BYTES_MIN: u64 = 4 << 20;
/// The first bytes of a device, which show whether it is in use.
const BLANK_BYTES: usize = 64 << 10;

/// The properties of a new store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsOptions {
    /// The cluster.
    pub fsid: Uuid,
    /// The OSD that it belongs to.
    pub osd: OsdId,
    /// Bytes to use. Needed for a new file; a device is used whole if this is `None`.
    pub size_bytes: Option<u64>,
    /// Treatment of the rest of the device.
    pub fill: Fill,
    /// Overwrite existing content.
    pub force: bool,
}

/// mkfs's treatment of the space around the labels. None of it is needed for correctness: a store reads only what it has written
/// itself, by checksums, and groups of its own log, by the log's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Write zeros everywhere: a file gets all its space, and every later write is an overwrite.
    Zeros,
    /// The same for a file. A block device is discarded; one that cannot do so in a minute keeps its content.
    Fresh,
    /// Nothing: a file stays sparse, so the first write of each block also has the cost of the file system's allocation.
    Nothing,
}

/// Called with the progress of the preparation: bytes done, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Makes a new store: prepares the files or devices as [`Fill`] says, empties the key-value store, and writes the labels last, so
/// that a half-made store cannot be mounted. The log gets the first place of `places.wal`, a whole device, if there is one.
///
/// # Errors
/// If the place is not blank and `force` is not set; if a device is mounted or too small; I/O errors.
pub async fn mkfs(
    shard: &Shard,
    places: impl Into<Places>,
    options: MkfsOptions,
    index: impl Into<MetaIndex>,
    progress: Progress<'_>,
) -> Result<Label, StoreError> {
    let Places { block: place, wal } = places.into();
    let path = place.path.as_path();
    let index = index.into();
    let has_label = index.load(shard, vec![keys::SUPER.to_vec()]).await?.iter().any(Option::is_some);
    if has_label && !options.force {
        let why = format!(
            "the key-value store in {} belongs to a store already: remove it, or force",
            index.place()
        );
        return Err(StoreError::unusable(path, why));
    }
    let MkfsOptions { fsid, osd, fill, force, .. } = options;
    let wanted = Wanted { size_bytes: options.size_bytes, least_bytes: SIZE_BYTES_MIN, force };
    let (device, size_bytes) = claim(shard, &place, &wanted).await?;
    let wal = match wal.first() {
        Some(place) => Some((place, claim_wal(shard, place, None, wal_bytes(size_bytes), force).await?)),
        None => None,
    };
    let label = Label {
        version: VERSION,
        fsid,
        osd,
        size_bytes,
        generation: shard.random_u64(),
        revision: 1,
        log_id: shard.random_u64(),
        home: LogArea::beside_data(size_bytes / BLOCK_BYTES),
        wal: wal.as_ref().map(|(_, (_, bytes))| (LogArea::on_own_device(*bytes / BLOCK_BYTES), *bytes)),
    };
    prepare(shard, path, &device, size_bytes, fill, progress).await?;
    if let Some((place, (device, bytes))) = &wal {
        prepare(shard, &place.path, device, *bytes, fill, &mut |_, _| {}).await?;
        write_label(shard, place, device, &WalLabel::for_store(&label), *bytes).await?;
    }
    let mut batch = KvBatch::default();
    batch.delete_range(&[0], &[0xff]);
    batch.put(keys::SUPER, &label.encode());
    index.apply(shard, vec![batch], true).await?;
    write_blocks(shard, path, &device, size_bytes, &label.encode()).await?;
    Ok(label)
}

/// Requirements for a place.
struct Wanted {
    /// Bytes to use; `None`: all.
    size_bytes: Option<u64>,
    least_bytes: u64,
    /// Existing content may be overwritten.
    force: bool,
}

/// Claims a place for a log: `size_bytes` of it, or by default a whole device, and of a file as many bytes as the log would have
/// on the data device.
pub(crate) async fn claim_wal(
    shard: &Shard,
    place: &Place,
    bytes: Option<u64>,
    of_file: u64,
    force: bool,
) -> Result<(Device, u64), StoreError> {
    let is_device = match Device::open(shard, place, true).await {
        Ok(device) => device.is_device(),
        Err(StoreError::Io { kind: std::io::ErrorKind::NotFound, .. }) => false,
        Err(error) => return Err(error),
    };
    let size_bytes = bytes.or((!is_device).then_some(of_file));
    claim(shard, place, &Wanted { size_bytes, least_bytes: WAL_BYTES_MIN, force }).await
}

/// Opens an existing place, or creates a file, and determines the size.
async fn claim(shard: &Shard, place: &Place, options: &Wanted) -> Result<(Device, u64), StoreError> {
    let path = place.path.as_path();
    let refuse = |why: String| Err(StoreError::unusable(path, why));
    let (device, is_new) = match Device::open(shard, place, true).await {
        Ok(device) => (device, false),
        Err(StoreError::Io { kind: std::io::ErrorKind::NotFound, .. }) => {
            match options.size_bytes {
                None => return refuse("a new file needs a size".to_owned()),
                Some(bytes) => usable_size(path, bytes, options.least_bytes)?,
            };
            (Device::create(shard, place).await?, true)
        }
        Err(error) => return Err(error),
    };
    let length = device.len().await.map_err(|error| io_error(path, "length of", &error))?;
    let is_file = is_new || !device.is_device();
    if !is_new && !options.force {
        // A file with slices exists since its first slice was made.
        if is_file && length > 0 && !device.is_slice() {
            return refuse("the file exists and is not empty: remove it, name another, or force".to_owned());
        }
        if (!is_file || device.is_slice()) && !is_blank(shard, path, &device).await? {
            return refuse(
                "the device is not blank: name another, or take --force-wipe, which destroys what is on it"
                    .to_owned(),
            );
        }
    }
    let wanted = match options.size_bytes {
        Some(bytes) if !is_file && bytes > length => {
            return refuse(format!("the device has {length} bytes, less than the {bytes} asked for"));
        }
        Some(bytes) => bytes,
        None if length > 0 => length,
        None => return refuse("a new file needs a size".to_owned()),
    };
    let size_bytes = usable_size(path, wanted, options.least_bytes)?;
    if let Some(slice) = place.slice.filter(|slice| slice.size_bytes < size_bytes) {
        return refuse(format!(
            "its slice has {} bytes, less than the {size_bytes} asked for",
            slice.size_bytes
        ));
    }
    if is_file {
        device.reserve(size_bytes).await.map_err(|error| io_error(path, "set the size of", &error))?;
        // Also for an existing file: its creator may have been killed before this step.
        Device::sync_folder(shard, path).await?;
    }
    Ok((device, size_bytes))
}

/// `wanted` bytes rounded to whole blocks; an error if that is too little or too much.
pub(crate) fn usable_size(path: &Path, wanted: u64, least_bytes: u64) -> Result<u64, StoreError> {
    let refuse = |why: String| Err(StoreError::unusable(path, why));
    let size_bytes = wanted / BLOCK_BYTES * BLOCK_BYTES;
    if size_bytes < least_bytes {
        return refuse(format!("{wanted} bytes are too few: at least {least_bytes} are needed"));
    }
    if size_bytes / BLOCK_BYTES > BLOCKS_MAX {
        return refuse(format!("{wanted} bytes are more than the format can address"));
    }
    Ok(size_bytes)
}

async fn is_blank(shard: &Shard, path: &Path, device: &Device) -> Result<bool, StoreError> {
    let (result, buf) = device.read_at(shard.buf(BLANK_BYTES), BLANK_BYTES, 0).await;
    let found = result.map_err(|error| io_error(path, "read", &error))?;
    Ok(buf.iter().take(found).all(|byte| *byte == 0))
}

/// Fills a place as requested, and in any case overwrites old labels with zeros.
pub(crate) async fn prepare(
    shard: &Shard,
    path: &Path,
    device: &Device,
    total: u64,
    fill: Fill,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let zeros = {
        let mut buf = shard.buf(CHUNK_BYTES as usize);
        buf.fill(0);
        buf.freeze()
    };
    let write = |at: u64, bytes: u64| {
        let data: Bytes = zeros.slice(..bytes as usize);
        device.write_at(vec![data], at, false)
    };
    let failed = |error: std::io::Error| io_error(path, "write zeros to", &error);
    if fill == Fill::Zeros || (fill == Fill::Fresh && !device.is_device()) {
        let mut at = 0;
        while at < total {
            progress(at, total);
            let end = (at + PARALLEL * CHUNK_BYTES).min(total);
            let chunks =
                (at..end).step_by(CHUNK_BYTES as usize).map(|at| write(at, CHUNK_BYTES.min(end - at)));
            for result in join_all(chunks).await {
                result.map_err(failed)?;
            }
            at = end;
        }
    } else {
        if fill == Fill::Fresh {
            forget(shard, device, total, progress).await;
        }
        write(0, BLANK_BYTES as u64).await.map_err(failed)?;
        write(total - BLOCK_BYTES, BLOCK_BYTES).await.map_err(failed)?;
    }
    device.fdatasync().await.map_err(|error| io_error(path, "flush", &error))?;
    progress(total, total);
    Ok(())
}

/// Discards all content of a drive, or lets it write zeros by itself. It may refuse: nothing depends on it.
async fn forget(shard: &Shard, device: &Device, total: u64, progress: Progress<'_>) {
    if !in_steps(shard, total, progress, |at, bytes| device.discard(at, bytes)).await {
        in_steps(shard, total, progress, |at, bytes| device.write_zeros(at, bytes)).await;
    }
}

/// Applies `step` to `total` bytes, piece by piece; false if the drive refuses, or is so slow that it must be writing everything.
async fn in_steps<F: Future<Output = std::io::Result<()>>>(
    shard: &Shard,
    total: u64,
    progress: Progress<'_>,
    step: impl Fn(u64, u64) -> F,
) -> bool {
    let begin_ns = shard.now_ns();
    for at in (0..total).step_by(FORGET_STEP_BYTES as usize) {
        progress(at, total);
        let bytes = FORGET_STEP_BYTES.min(total - at);
        if step(at, bytes).await.is_err() {
            return false;
        }
        let spent_ns = u128::from(shard.now_ns() - begin_ns);
        let in_all_ns = spent_ns * u128::from(total) / u128::from(at + bytes);
        if in_all_ns > FORGET_LIMIT.as_nanos() {
            return false;
        }
    }
    true
}
