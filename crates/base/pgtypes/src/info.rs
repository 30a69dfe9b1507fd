//! [`PgInfo`]: what a PG remembers of itself.

use carmine_codec::{Decoder, Encoder, Result, coded};
use carmine_types::{Epoch, Eversion, OsdId, PgId, SpgId};

use crate::LogEntry;

coded! {
    /// What a PG remembers of itself (pg_info_t).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct PgInfo {
        /// The PG.
        pub pg: SpgId = pg_id,
        /// Version of the newest modification.
        pub last_update: Eversion,
        /// The log holds the entries after this version.
        pub log_tail: Eversion,
        /// Epoch in which the PG was last activated.
        pub last_epoch_started: Epoch,
        /// Epoch since which the acting set is the same.
        pub same_interval_since: Epoch,
        /// The acting set, primary first.
        pub acting: Vec<OsdId>,
        /// Objects are being copied here, or replaced, behind the log: until an activation ends this, the copy must not lead
        /// and does not count as one.
        pub incomplete: bool,
    }
}

/// A PG's info and log, as a store gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgState {
    /// The PG's info; `last_update` and `log_tail` already follow the log.
    pub info: PgInfo,
    /// The log, oldest first.
    pub log: Vec<LogEntry>,
}

/// A PG's id: pool, seed, shard.
pub mod pg_id {
    use super::*;

    /// Bytes of an id.
    pub const BYTES_MIN: usize = 8 + 4 + 1;

    /// Appends an id.
    pub fn put(pg: &SpgId, e: &mut Encoder<'_>) {
        e.i64(pg.pgid.pool);
        e.u32(pg.pgid.ps);
        e.i8(pg.shard);
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn get(d: &mut Decoder<'_>) -> Result<SpgId> {
        Ok(SpgId { pgid: PgId { pool: d.i64()?, ps: d.u32()? }, shard: d.i8()? })
    }
}
