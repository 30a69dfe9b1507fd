//! The types of a placement group, each with one encoding: the change of an object ([`ObjectChange`]), the log entry
//! ([`LogEntry`]), the PG's info ([`PgInfo`]), an object's metadata ([`ObjectMeta`]), and the [`Transaction`] that carries
//! changes and entries together.
//!
//! A write is encoded once. The same bytes go to every replica and to the store's log, and one decoder reads them
//! ([`Transaction::decode`]). The data that clients wrote is not part of them: it is sent and stored separately.
#![forbid(unsafe_code)]

mod change;
pub mod cursor;
mod entry;
mod info;
mod merge;
mod meta;
pub mod object;
mod osd_set;
pub mod snaps;
mod split;
mod txn;

pub use change::{KEY_BYTES, ObjectChange, STEP_BYTES, Step};
pub use entry::{LogEntry, Returned};
pub use info::{
    Interval, OmapSize, Omaps, PgHistory, PgInfo, PgState, Promised, Scrubbed, pg_bits, pg_contains, pg_id,
    pg_range,
};
pub use merge::Merge;
pub use meta::{ObjectMeta, Xattrs};
pub use osd_set::OsdSet;
pub use split::{pg_children, pg_first_object, pg_parent};
pub use txn::{STEPS_MAX, Sealed, Transaction, merged_away};

/// Largest object that a store accepts, in bytes. (RADOS itself stops far below, at `osd_max_object_size`.)
pub const OBJECT_BYTES_MAX: u64 = 4 << 30;

/// Longest name, locator key or namespace of an object that a store accepts, in bytes. Clients are held to less (2048).
pub const NAME_BYTES_MAX: usize = 4096;

/// Declared limit: decoding never holds more than this many bytes of memory for each byte of input, nor
/// [`MEMORY_BYTES_FIXED`] on top. (The worst case is steps of one byte each, while their vector grows.)
pub const MEMORY_PER_INPUT_BYTE_MAX: usize = 220;
/// See [`MEMORY_PER_INPUT_BYTE_MAX`]: the ranges that represent the largest data if the data itself is not available.
pub const MEMORY_BYTES_FIXED: usize = 4 << 20;
