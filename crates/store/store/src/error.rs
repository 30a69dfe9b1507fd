//! What can go wrong in a store.

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
    /// A block's bytes are not those that were written. They are never returned.
    #[error(
        "object {oid}, offset {offset}: checksum {found:#010x} of the block at device offset {device_offset} should be \
         {expected:#010x}"
    )]
    Corrupt {
        /// The object.
        oid: ObjectId,
        /// Offset of the block in the object, bytes.
        offset: u64,
        /// Offset of the block on the device, bytes.
        device_offset: u64,
        /// CRC32C that the metadata holds.
        expected: u32,
        /// CRC32C of what was read.
        found: u32,
    },
    /// The device does not give a block's bytes.
    #[error(
        "object {oid}, offset {offset}: the block at device offset {device_offset} cannot be read: {message}"
    )]
    Unreadable {
        /// The object.
        oid: ObjectId,
        /// Offset of the block in the object, bytes.
        offset: u64,
        /// Offset of the block on the device, bytes.
        device_offset: u64,
        /// The system's words.
        message: Arc<str>,
    },
    /// A piece of metadata cannot be what was written.
    #[error("metadata {what} is damaged: {why}")]
    Damaged {
        /// The key or structure.
        what: String,
        /// How it shows.
        why: String,
    },
    /// Two pieces of metadata claim the same block, or one claims a block outside of the device.
    #[error("object {oid} claims block {block}, which {why}")]
    BadBlock {
        /// The object whose claim was found second.
        oid: Box<ObjectId>,
        /// Number of the block.
        block: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No copy could give these bytes when this one was made.
    #[error(
        "object {oid}, offset {offset}: the block was lost before this copy was made; overwrite it, or remove the object"
    )]
    Lost {
        /// The object.
        oid: ObjectId,
        /// Offset of the block in the object.
        offset: u64,
    },
    /// No room. Nothing was changed.
    #[error("no space: {needed_bytes} bytes needed, {free_bytes} bytes free")]
    NoSpace {
        /// What the transaction needs.
        needed_bytes: u64,
        /// What this shard can give.
        free_bytes: u64,
    },
    /// The object would be larger than any store takes. Nothing was changed.
    #[error("object {oid} would have {size} bytes, more than {}", carmine_pgtypes::OBJECT_BYTES_MAX)]
    TooLarge {
        /// The object.
        oid: ObjectId,
        /// The size that it would have.
        size: u64,
    },
    /// A name, key or namespace is too long. Nothing was changed.
    #[error("a name of {bytes} bytes is too long: at most {max} are possible")]
    NameTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// `submit` needs something that `prepare` did not load, or that is gone again because the `Prepared` was dropped
    /// early. Nothing was changed: prepare and submit again.
    #[error("object {0} is not prepared: call Store::prepare and hold what it returns until after submit")]
    NotPrepared(ObjectId),
    /// The store stopped: after a failed write or flush nothing is acknowledged any more.
    #[error("the store has stopped: {0}")]
    Failed(Arc<str>),
    /// An operation on the data file or device failed.
    #[error("{what}: {message}")]
    Io {
        /// What was tried, on what.
        what: Arc<str>,
        /// The kind of error.
        kind: io::ErrorKind,
        /// The system's words.
        message: Arc<str>,
    },
    /// The key-value store failed.
    #[error("key-value store: {0}")]
    Kv(#[from] KvError),
    /// The path holds no store, or not one that this program can open.
    #[error("{}: {why}", path.display())]
    Unusable {
        /// The block file or device.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
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
            | StoreError::Lost { oid, offset } => Some((oid, *offset)),
            _ => None,
        }
    }

    /// The negative errno that a client is told.
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
