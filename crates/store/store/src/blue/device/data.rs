//! [`Device`]: the file or block device that holds a store's data, or the slice of one that is the store's.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carmine_reactor::{Buf, Bytes, File, FileOptions, Shard};
use carmine_types::{IoPath, is_mutated};

use crate::blue::device::label::Label;
use crate::{BLOCK_BYTES, StoreError};

/// A block device that another program has just closed is still busy for a moment: how often to try again, …
const BUSY_ATTEMPTS: u32 = 10;
/// … and after which pause.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A part of a device that several stores share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins, bytes; a multiple of the block size.
    pub offset_bytes: u64,
    /// Its length, bytes.
    pub size_bytes: u64,
}

/// Where a store's data lies: a whole file or block device, or a slice of one. Nothing here prevents two stores from using one
/// slice at the same time: the opener must hold a lock on that range (the testbed does).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file or device.
    pub path: PathBuf,
    /// The store's part of it; `None`: all.
    pub slice: Option<Slice>,
    /// How reads and writes reach it.
    pub io_path: IoPath,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Place {
    fn from(path: &P) -> Place {
        Place { path: path.as_ref().to_owned(), slice: None, io_path: IoPath::default() }
    }
}

/// The places of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of its data.
    pub block: Place,
    /// Candidates for the log's own device, if the store has one. There is more than one while the log moves.
    pub wal: Vec<Place>,
}

impl From<Place> for Places {
    fn from(block: Place) -> Places {
        Places { block, wal: Vec::new() }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Places {
    fn from(path: &P) -> Places {
        Places::from(Place::from(path))
    }
}

impl Place {
    /// Bytes before the slice.
    fn offset_bytes(&self) -> u64 {
        self.slice.map_or(0, |slice| slice.offset_bytes)
    }

    /// # Errors
    /// If the slice does not begin at a block.
    fn check(&self) -> Result<(), StoreError> {
        let offset_bytes = self.offset_bytes();
        if offset_bytes.is_multiple_of(BLOCK_BYTES) {
            return Ok(());
        }
        let why =
            format!("a slice cannot begin at byte {offset_bytes}, which is not a multiple of {BLOCK_BYTES}");
        Err(StoreError::unusable(&self.path, why))
    }
}

/// An open place; offsets count from its beginning.
pub(crate) struct Device {
    file: File,
    slice: Option<Slice>,
}

impl Device {
    /// Opens an existing place, bypassing the page cache. `exclusive` refuses a block device that is in use by others.
    pub(crate) async fn open(shard: &Shard, place: &Place, exclusive: bool) -> Result<Device, StoreError> {
        place.check()?;
        let path = &place.path;
        let options = FileOptions { exclusive_device: exclusive, io_path: place.io_path, ..direct() };
        let mut opened = shard.open(path, options).await;
        for _ in 0..BUSY_ATTEMPTS {
            if !opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
                break;
            }
            shard.sleep(BUSY_PAUSE).await;
            opened = shard.open(path, options).await;
        }
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => StoreError::unusable(
                path,
                format!("it is mounted or in use ({error}): name another device, or unmount this one first"),
            ),
            io::ErrorKind::InvalidInput => StoreError::unusable(
                path,
                format!("its file system takes no direct I/O ({error}): use ext4, xfs or a block device"),
            ),
            io::ErrorKind::Unsupported => StoreError::unusable(path, error.to_string()),
            _ => io_error(path, "open", &error),
        })?;
        Ok(Device { file, slice: place.slice })
    }

    /// Creates a file, whose name is not durable yet.
    pub(crate) async fn create(shard: &Shard, place: &Place) -> Result<Device, StoreError> {
        place.check()?;
        let options = FileOptions { create: true, ..direct() };
        let file = shard.open(&place.path, options).await;
        let file = file.map_err(|error| io_error(&place.path, "create", &error))?;
        Ok(Device { file, slice: place.slice })
    }

    /// Makes a file's name durable: without it, its data would be lost.
    pub(crate) async fn sync_folder(shard: &Shard, path: &Path) -> Result<(), StoreError> {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let synced = shard.sync_folder(folder.unwrap_or(Path::new("."))).await;
        synced.map_err(|error| io_error(path, "sync the folder of", &error))
    }

    fn base(&self) -> u64 {
        self.slice.map_or(0, |slice| slice.offset_bytes)
    }

    pub(crate) async fn read_at(&self, buf: Buf, len: usize, at: u64) -> (io::Result<usize>, Buf) {
        self.file.read_at(buf, len, self.base() + at).await
    }

    pub(crate) async fn write_at(&self, data: Vec<Bytes>, at: u64, durable: bool) -> io::Result<()> {
        let durable = durable && !is_mutated("skip_flush");
        self.file.write_at(data, self.base() + at, durable).await
    }

    pub(crate) async fn fdatasync(&self) -> io::Result<()> {
        if is_mutated("skip_flush") {
            return Ok(());
        }
        self.file.fdatasync().await
    }

    /// Tells the device that these bytes are no longer needed.
    pub(crate) async fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.discard(self.base() + at, bytes).await
    }

    /// Lets the drive or file system write zeros by itself.
    pub(crate) async fn write_zeros(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.write_zeros(self.base() + at, bytes).await
    }

    /// Bytes from the beginning of the place to its end, or to the end of the device if that comes first.
    pub(crate) async fn len(&self) -> io::Result<u64> {
        let length = self.file.len().await?.saturating_sub(self.base());
        Ok(self.slice.map_or(length, |slice| length.min(slice.size_bytes)))
    }

    /// Makes a file long enough for `bytes` of this place; the slices after it stay.
    pub(crate) async fn reserve(&self, bytes: u64) -> io::Result<()> {
        let end = self.base() + bytes;
        if self.slice.is_some() && self.file.len().await? >= end {
            return Ok(());
        }
        self.file.set_len(end).await
    }

    pub(crate) fn io_path(&self) -> IoPath {
        self.file.io_path()
    }

    pub(crate) fn is_device(&self) -> bool {
        self.file.is_device()
    }

    /// Whether other stores use other parts of it.
    pub(crate) fn is_slice(&self) -> bool {
        self.slice.is_some()
    }
}

fn direct() -> FileOptions {
    FileOptions { read: true, write: true, direct: true, ..FileOptions::default() }
}

/// An operation on a file or device failed.
pub(crate) fn io_error(path: &Path, what: &str, error: &std::io::Error) -> StoreError {
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
    let found = result.map_err(|error| io_error(path, "read", &error))?;
    Ok(buf.get(..found.min(buf.len())).unwrap_or_default().to_vec())
}

/// The label in the first block, or its copy in the last if the first is unreadable.
pub(crate) async fn read_label(shard: &Shard, path: &Path, device: &Device) -> Result<Label, StoreError> {
    let first = match read_block(shard, path, device, 0).await {
        Ok(bytes) => Label::decode(path, &bytes),
        Err(error) => Err(error),
    };
    let Err(error) = first else { return first };
    let length = device.len().await.map_err(|error| io_error(path, "length of", &error))?;
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
