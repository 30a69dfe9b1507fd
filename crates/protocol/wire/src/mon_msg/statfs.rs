//! Space in the cluster or in a pool (`rados df`).

use carmine_types::Uuid;

use super::paxos;
use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MStatfs v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Map version that the client knows.
    pub version: u64,
    pub fsid: Uuid,
    /// One pool, or the whole cluster.
    pub pool: Option<i64>,
}

impl Front for StatFs {
    const KIND: u16 = kinds::STATFS;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const OLDEST: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.bool(self.pool.is_some());
        if let Some(pool) = self.pool {
            e.i64(pool);
        }
    }

    fn decode(version: u16, d: &mut Decoder<'_>) -> Result<StatFs> {
        let (known, fsid) = (paxos::get(d)?, d.uuid()?);
        let pool = if version >= 2 && d.bool()? { Some(d.i64()?) } else { None };
        Ok(StatFs { version: known, fsid, pool })
    }
}

/// MStatfsReply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFsReply {
    pub fsid: Uuid,
    pub version: u64,
    pub total_kib: u64,
    pub used_kib: u64,
    pub available_kib: u64,
    pub objects: u64,
}

impl Front for StatFsReply {
    const KIND: u16 = kinds::STATFS_REPLY;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.uuid(self.fsid);
        e.u64(self.version);
        e.u64(self.total_kib);
        e.u64(self.used_kib);
        e.u64(self.available_kib);
        e.u64(self.objects);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<StatFsReply> {
        Ok(StatFsReply {
            fsid: d.uuid()?,
            version: d.u64()?,
            total_kib: d.u64()?,
            used_kib: d.u64()?,
            available_kib: d.u64()?,
            objects: d.u64()?,
        })
    }
}
