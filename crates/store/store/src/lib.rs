//! The object store of an OSD: one [`Store`] per reactor, opened from one [`StoreShared`] per process.
//!
//! - `cyan` keeps everything in memory: the instrument that shows the OSD's own cost.
//! - `null` keeps sizes and versions but no data.
//! - `blue` keeps data in a block file or device, checksummed and copy-on-write, and metadata in a [`Kv`].
//!   Its byte-level format is `FORMAT.md` beside this crate.
//!
//! How a write goes: [`Store::prepare`] loads what the transaction will touch (it does not suspend when all of it is cached),
//! then [`Store::submit`] applies it at once and in order; the [`Commit`] that it returns resolves when the transaction is
//! durable.
#![forbid(unsafe_code)]

mod api;
pub mod blue;
mod error;
mod extents;
mod kv;
mod mem;
mod memkv;
mod pages;
mod store;

pub use api::{OmapPage, OmapRange, StatFs, StoreStats};
pub use blue::{BlueShared, Label};
pub use error::StoreError;
pub use kv::{Kv, KvBatch, KvCpu, KvError, KvOp};
pub use mem::MemShared;
pub use memkv::MemKv;
pub use store::{Commit, Prepared, Released, Store, StoreShared};

/// Bytes of a page (`cyan`), of a block (`blue`) and of what one checksum covers.
pub const BLOCK_BYTES: u64 = carmine_types::crc32c::BLOCK_BYTES as u64;
