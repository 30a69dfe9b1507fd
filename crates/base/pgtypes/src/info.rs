//! [`PgInfo`]: what a PG remembers of itself.

use carmine_codec::{Decoder, Encoder, Result};
use carmine_types::{Epoch, Eversion, OsdId, PgId, SpgId};

use crate::LogEntry;

/// What a PG remembers of itself (pg_info_t).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// The PG.
    pub pg: SpgId,
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

/// A PG's info and log, as a store gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgState {
    /// The PG's info; `last_update` and `log_tail` already follow the log.
    pub info: PgInfo,
    /// The log, oldest first.
    pub log: Vec<LogEntry>,
}

impl PgInfo {
    /// Appends the encoding.
    pub fn encode(&self, e: &mut Encoder<'_>) {
        encode_pg(e, self.pg);
        e.eversion(self.last_update);
        e.eversion(self.log_tail);
        e.u32(self.last_epoch_started.0);
        e.u32(self.same_interval_since.0);
        e.vec(&self.acting, |e, osd| e.u32(osd.0));
        e.bool(self.incomplete);
    }

    /// Reads what [`PgInfo::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are no info.
    pub fn decode(d: &mut Decoder<'_>) -> Result<PgInfo> {
        Ok(PgInfo {
            pg: decode_pg(d)?,
            last_update: d.eversion()?,
            log_tail: d.eversion()?,
            last_epoch_started: Epoch(d.u32()?),
            same_interval_since: Epoch(d.u32()?),
            acting: d.vec(4, |d| Ok(OsdId(d.u32()?)))?,
            incomplete: d.bool()?,
        })
    }
}

/// Appends a PG's id: pool, seed, shard.
pub(crate) fn encode_pg(e: &mut Encoder<'_>, pg: SpgId) {
    e.i64(pg.pgid.pool);
    e.u32(pg.pgid.ps);
    e.i8(pg.shard);
}

/// Reads what [`encode_pg`] wrote.
pub(crate) fn decode_pg(d: &mut Decoder<'_>) -> Result<SpgId> {
    Ok(SpgId { pgid: PgId { pool: d.i64()?, ps: d.u32()? }, shard: d.i8()? })
}
