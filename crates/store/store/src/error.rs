//! Errors of a store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carmine_types::{ObjectId, errno};

use crate::KvError;

/// Why a store did not do as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The object does not exist.
    #[error("object {0} does not exist")]
    NotFound(ObjectId),
    /// A block's bytes are not those that were written, by the CRC32C that the metadata holds. They are never returned.
    /// Offsets, here as in the next one, are in bytes.
    #[error(
        "object {oid}, offset {offset}: checksum {found:#010x} of the block at device offset {device_offset} should be \
         {expected:#010x}"
    )]
    Corrupt { oid: ObjectId, offset: u64, device_offset: u64, expected: u32, found: u32 },
    /// The device cannot read a block.
    #[error(
        "object {oid}, offset {offset}: the block at device offset {device_offset} cannot be read: {message}"
    )]
    Unreadable { oid: ObjectId, offset: u64, device_offset: u64, expected: u32, message: Arc<str> },
    /// A piece of metadata is damaged.
    #[error("metadata {what} is damaged: {why}")]
    Damaged { what: String, why: String },
    /// Two pieces of metadata claim the same block, or one claims a block outside of the device. `oid` is the object whose
    /// claim was found second.
    #[error("object {oid} claims block {block}, which {why}")]
    BadBlock { oid: Box<ObjectId>, block: u64, why: &'static str },
    /// These bytes were lost in all copies when this one was made. The block's checksum, if this copy knows it; zero: it does
    /// not.
    #[error(
        "object {oid}, offset {offset}: the block was lost before this copy was made; overwrite it, or remove the object"
    )]
    Lost { oid: ObjectId, offset: u64, expected: u32 },
    /// The transaction needs more space than this shard can allocate. Nothing was changed.
    #[error("no space: {needed_bytes} bytes needed, {free_bytes} bytes free")]
    NoSpace { needed_bytes: u64, free_bytes: u64 },
    /// The object would be larger than any store takes. Nothing was changed.
    #[error("object {oid} would have {size} bytes, more than {}", carmine_pgtypes::OBJECT_BYTES_MAX)]
    TooLarge { oid: ObjectId, size: u64 },
    /// A name, key or namespace is too long. Nothing was changed.
    #[error("a name of {bytes} bytes is too long: at most {max} are possible")]
    NameTooLong { bytes: usize, max: usize },
    /// `submit` needs something that `prepare` did not load, or that was evicted because the `Prepared` was dropped too early.
    /// Nothing was changed: prepare and submit again.
    #[error("object {0} is not prepared: call Store::prepare and hold what it returns until after submit")]
    NotPrepared(ObjectId),
    /// The store stopped: after a failed write or flush nothing is acknowledged any more.
    #[error("the store has stopped: {0}")]
    Failed(Arc<str>),
    /// An operation on the data file or device failed.
    #[error("{what}: {message}")]
    Io { what: Arc<str>, kind: io::ErrorKind, message: Arc<str> },
    /// The key-value store failed.
    #[error("key-value store: {0}")]
    Kv(#[from] KvError),
    /// The path holds no store, or not one that this program can open.
    #[error("{}: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
}

impl StoreError {
    pub(crate) fn failed(why: &str) -> StoreError {
        StoreError::Failed(why.into())
    }

    pub(crate) fn io(what: impl AsRef<str>, error: &io::Error) -> StoreError {
        StoreError::Io {
            what: what.as_ref().into(),
            kind: error.kind(),
            message: error.to_string().as_str().into(),
        }
    }

    pub(crate) fn unusable(path: &Path, why: impl Into<String>) -> StoreError {
        StoreError::Unusable { path: path.to_owned(), why: why.into() }
    }

    pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into(), why: why.into() }
    }

    /// The object, and the offset in it, of a block whose content is lost here: another copy may have it, for
    /// [`Store::heal`](crate::Store::heal).
    #[must_use]
    pub fn lost_block(&self) -> Option<(&ObjectId, u64)> {
        match self {
            StoreError::Corrupt { oid, offset, .. }
            | StoreError::Unreadable { oid, offset, .. }
            | StoreError::Lost { oid, offset, .. } => Some((oid, *offset)),
            _ => None,
        }
    }

    /// Whether stored metadata is lost: retrying does not help, and only other copies have it.
    #[must_use]
    pub fn is_metadata_damage(&self) -> bool {
        match self {
            StoreError::Damaged { .. } | StoreError::BadBlock { .. } => true,
            StoreError::Kv(error) => error.is_damage,
            _ => false,
        }
    }

    /// The CRC32C that this block should have; zero: unknown.
    #[must_use]
    pub fn lost_crc(&self) -> u32 {
        match self {
            StoreError::Corrupt { expected, .. }
            | StoreError::Unreadable { expected, .. }
            | StoreError::Lost { expected, .. } => *expected,
            _ => 0,
        }
    }

    /// The negative errno for clients.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            StoreError::NotFound(_) => errno::ENOENT,
            StoreError::NoSpace { .. } => errno::ENOSPC,
            StoreError::TooLarge { .. } => errno::EFBIG,
            StoreError::NameTooLong { .. } => errno::EINVAL,
            StoreError::NotPrepared(_) => errno::EAGAIN,
            StoreError::Failed(_) => errno::ESHUTDOWN,
            StoreError::Corrupt { .. }
            | StoreError::Unreadable { .. }
            | StoreError::Lost { .. }
            | StoreError::Damaged { .. }
            | StoreError::BadBlock { .. }
            | StoreError::Io { .. }
            | StoreError::Kv(_) => errno::EIO,
            StoreError::Unusable { .. } => errno::EINVAL,
        }
    }
}
