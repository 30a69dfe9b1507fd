//! Ceph's OSDMap: the full map, its incrementals, and pools.
//!
//! Layouts are those of Ceph 16.2 (full: client section 9, OSD section 9; incremental: 8 and 9; `pg_pool` 29).
//! Newer sections are read by skipping what is unknown; the unknown tail is kept and written back, so that any map
//! decodes and encodes byte for byte. Older sections are refused.

mod apply;
mod blocklist;
pub(crate) mod coding;
pub mod consts;
mod full;
mod incremental;
mod incremental_coding;
mod info;
mod map;
mod pin;
mod pool;
mod pool_coding;

pub use apply::ApplyError;
pub use incremental::Incremental;
pub use info::{MergeMeta, OsdInfo, OsdXinfo};
pub use map::OsdMap;
pub use pin::Pin;
pub use pool::{HitSetParams, PgPool, PoolOpt, PoolSnap};

use std::collections::BTreeMap;

/// Half-open ranges of snapshot ids as `(start, length)`, ascending: Ceph's `interval_set`.
pub type IntervalSet = Vec<(u64, u64)>;
/// A string-to-string dictionary (profiles, application metadata, crush location).
pub type StringMap = BTreeMap<String, String>;

/// The versions an envelope was written with, and the bytes that this program does not know.
///
/// Re-encoding writes the same versions and the same tail: a map from a newer Ceph survives a round trip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Version of the writer.
    pub version: u8,
    /// Oldest reader version that may read it.
    pub compat: u8,
    /// Bytes after the last known field, kept verbatim.
    pub tail: Vec<u8>,
}

impl Section {
    /// An envelope as this program writes it by itself.
    pub const fn new(version: u8, compat: u8) -> Self {
        Self { version, compat, tail: Vec::new() }
    }
}
