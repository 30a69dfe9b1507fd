//! The types that a placement group is made of, one for each thing, each with one encoding: the change of an object
//! ([`ObjectChange`]), the log entry ([`LogEntry`]), the PG's info ([`PgInfo`]), an object's metadata ([`ObjectMeta`]), and
//! the [`Transaction`] that carries changes and entries together.
//!
//! A write is encoded once. The same bytes go to every replica and to the store's log, and one decoder reads them
//! ([`Transaction::decode`]). The bytes that clients wrote are not among them: they travel and lie beside.
#![forbid(unsafe_code)]

mod change;
mod entry;
mod info;
mod meta;
pub mod object;
mod pg;
mod txn;

pub use change::{ObjectChange, Step};
pub use entry::LogEntry;
pub use info::{PgInfo, PgState, pg_id};
pub use meta::{ObjectMeta, Xattrs};
pub use pg::{pg_bits, pg_contains, pg_range};
pub use txn::{Sealed, Transaction};

/// Largest object that a store takes, in bytes. (RADOS itself stops far below, at `osd_max_object_size`.)
pub const OBJECT_BYTES_MAX: u64 = 4 << 30;

/// Longest name, locator key or namespace of an object that a store takes, in bytes. Clients are held to less (2048).
pub const NAME_BYTES_MAX: usize = 4096;
