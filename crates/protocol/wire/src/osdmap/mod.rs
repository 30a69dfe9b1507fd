//! Ceph's OSDMap: the full map, its incrementals, and pools.
//!
//! Layouts are those of Ceph 16.2 (full: client section 9, OSD section 9; incremental: 8 and 9; `pg_pool` 29).
//! Newer sections are read by skipping what is unknown; the unknown tail is kept and written back, so that any map
//! decodes and encodes byte for byte. Older sections are refused.

mod apply;
pub mod consts;
mod incremental;
pub mod intervals;
mod map;
mod pool;

use std::collections::BTreeMap;

use crate::{DecodeError, Decoder, Encoder, Result};

pub use apply::ApplyError;
pub use incremental::Incremental;
pub use intervals::IntervalSet;
pub use map::{MergeMeta, OsdInfo, OsdMap, OsdXinfo};
pub use pool::{HitSetParams, PgPool, PoolOpt, PoolSnap};

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

/// Number of OSDs (and of crush devices) above which a map is refused: it bounds what a map can make us allocate.
pub(crate) const OSD_LIMIT: u32 = 65_536;

/// Reads an envelope whose unknown tail is to be kept: `fields` reads what it knows of the body, given the version.
pub(crate) fn section<'a, T>(
    d: &mut Decoder<'a>,
    what: &'static str,
    known: u8,
    oldest: u8,
    fields: impl FnOnce(&mut Decoder<'a>, u8) -> Result<T>,
) -> Result<(T, Section)> {
    let envelope = d.envelope(what, known)?;
    envelope.at_least(oldest)?;
    let (version, compat, mut body) = (envelope.version, envelope.compat, envelope.body);
    let value = fields(&mut body, version)?;
    Ok((value, Section { version, compat, tail: body.rest().to_vec() }))
}

/// Writes what [`section`] reads.
pub(crate) fn put_section(e: &mut Encoder<'_>, section: &Section, fields: impl FnOnce(&mut Encoder<'_>)) {
    e.envelope(section.version, section.compat, |e| {
        fields(e);
        e.bytes(&section.tail);
    });
}

/// Refuses a number of OSDs that no real cluster has.
pub(crate) fn check_osds(what: &'static str, n: i64) -> Result<u32> {
    match u32::try_from(n) {
        Ok(n) if n <= OSD_LIMIT => Ok(n),
        _ => Err(DecodeError::BadValue { what, value: n as u64 }),
    }
}
