//! Statistics of pools (`rados df`).

use carmine_types::Uuid;

use super::paxos;
use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};
use carmine_codec::basic::size;

/// MGetPoolStats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetPoolStats {
    /// Map version that the client knows.
    pub version: u64,
    pub fsid: Uuid,
    /// Pool names.
    pub pools: Vec<String>,
}

impl Front for GetPoolStats {
    const KIND: u16 = kinds::GET_POOL_STATS;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.vec(&self.pools, |e, name| e.str(name));
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<GetPoolStats> {
        Ok(GetPoolStats { version: paxos::get(d)?, fsid: d.uuid()?, pools: d.vec(4, |d| d.string())? })
    }
}

/// MGetPoolStatsReply v2. A client takes an empty list: it then shows the totals only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetPoolStatsReply {
    pub version: u64,
    pub fsid: Uuid,
    /// Pool name, and its pool_stat_t, encoded (with its envelope).
    pub stats: Vec<(String, Vec<u8>)>,
    pub per_pool: bool,
}

impl Front for GetPoolStatsReply {
    const KIND: u16 = kinds::GET_POOL_STATS_REPLY;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.vec(&self.stats, |e, (name, stat)| {
            e.str(name);
            e.bytes(stat);
        });
        e.bool(self.per_pool);
    }

    fn decode(version: u16, d: &mut Decoder<'_>) -> Result<GetPoolStatsReply> {
        let (known, fsid) = (paxos::get(d)?, d.uuid()?);
        let stats = d.map(4 + size::ENVELOPE, |d| d.string(), raw_envelope)?;
        let per_pool = version >= 2 && d.bool()?;
        Ok(GetPoolStatsReply { version: known, fsid, stats, per_pool })
    }
}

/// The bytes of one versioned structure, head included.
fn raw_envelope(d: &mut Decoder<'_>) -> Result<Vec<u8>> {
    let before = d.rest();
    d.envelope("pool_stat", u8::MAX)?;
    let taken = before.len() - d.remaining();
    Ok(before.get(..taken).unwrap_or(&[]).to_vec())
}
