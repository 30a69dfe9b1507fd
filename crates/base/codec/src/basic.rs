//! The small structures that occur in many messages.

use carmine_types::{Epoch, Eversion, OsdId, PgId, ReqId, ScrubStamp, SpgId, UTime, Uuid};

use crate::{Coded, DecodeError, Decoder, Encoder, Result};

/// Encoded sizes, in bytes.
pub mod size {
    pub const UTIME: usize = 8;
    pub const UUID: usize = 16;
    pub const PG: usize = 17;
    pub const SPG: usize = 24;
    pub const EVERSION: usize = 12;
    pub const REQID: usize = 27;
    pub const SCRUB_STAMP: usize = EVERSION + UTIME;
    pub const TRACE: usize = 24;
    /// The head of a versioned structure.
    pub const ENVELOPE: usize = 6;
}

/// The shard field of PGs of replicated pools.
pub const NO_SHARD: i8 = -1;

impl Decoder<'_> {
    /// Seconds and nanoseconds.
    #[inline]
    pub fn utime(&mut self) -> Result<UTime> {
        Ok(UTime { sec: self.u32()?, nsec: self.u32()? })
    }

    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid(self.array()?))
    }

    #[inline]
    pub fn epoch(&mut self) -> Result<Epoch> {
        self.u32().map(Epoch)
    }

    #[inline]
    pub fn osd(&mut self) -> Result<OsdId> {
        self.u32().map(OsdId)
    }

    /// pg_t: version byte 1, pool, seed, and a field that is no longer used.
    #[inline]
    pub fn pg(&mut self) -> Result<PgId> {
        let bytes: [u8; size::PG] = self.array()?;
        let mut d = Decoder::new(&bytes, "pg");
        let version = d.u8()?;
        if version != 1 {
            return Err(DecodeError::BadValue { what: "pg version", value: version.into() });
        }
        Ok(PgId { pool: d.i64()?, ps: d.u32()? })
    }

    /// spg_t: a PG and its shard ([`NO_SHARD`] in replicated pools).
    #[inline]
    pub fn spg(&mut self) -> Result<(PgId, i8)> {
        let mut body = self.envelope("spg", 1)?.body;
        Ok((body.pg()?, body.i8()?))
    }

    /// Version and time.
    #[inline]
    pub fn scrub_stamp(&mut self) -> Result<ScrubStamp> {
        Ok(ScrubStamp { version: self.eversion()?, time: self.utime()? })
    }

    #[inline]
    pub fn eversion(&mut self) -> Result<Eversion> {
        let version = self.u64()?;
        Ok(Eversion { version, epoch: self.u32()? })
    }

    /// osd_reqid_t. The name's type byte is dropped: clients send the whole field as zeros.
    #[inline]
    pub fn reqid(&mut self) -> Result<ReqId> {
        let mut body = self.envelope("reqid", 2)?.body;
        body.u8()?;
        let client = body.i64()? as u64;
        let tid = body.u64()?;
        Ok(ReqId { client, tid, inc: body.i32()? })
    }
}

impl Encoder<'_> {
    #[inline]
    pub fn utime(&mut self, time: UTime) {
        self.u32(time.sec);
        self.u32(time.nsec);
    }

    #[inline]
    pub fn uuid(&mut self, uuid: Uuid) {
        self.bytes(&uuid.0);
    }

    #[inline]
    pub fn epoch(&mut self, epoch: Epoch) {
        self.u32(epoch.0);
    }

    #[inline]
    pub fn osd(&mut self, osd: OsdId) {
        self.u32(osd.0);
    }

    #[inline]
    pub fn pg(&mut self, pg: PgId) {
        self.u8(1);
        self.i64(pg.pool);
        self.u32(pg.ps);
        self.i32(-1);
    }

    #[inline]
    pub fn spg(&mut self, pg: PgId, shard: i8) {
        self.envelope(1, 1, |e| {
            e.pg(pg);
            e.i8(shard);
        });
    }

    #[inline]
    pub fn scrub_stamp(&mut self, stamp: ScrubStamp) {
        self.eversion(stamp.version);
        self.utime(stamp.time);
    }

    #[inline]
    pub fn eversion(&mut self, version: Eversion) {
        self.u64(version.version);
        self.u32(version.epoch);
    }

    /// osd_reqid_t with the given name type (8 = client; 0 in the all-zero field that clients send).
    #[inline]
    pub fn reqid(&mut self, name_type: u8, id: ReqId) {
        self.envelope(2, 2, |e| {
            e.u8(name_type);
            e.i64(id.client as i64);
            e.u64(id.tid);
            e.i32(id.inc);
        });
    }
}

macro_rules! by_value {
    ($($name:ident: $type:ty, $bytes:expr;)*) => {$(
        impl Coded for $type {
            const BYTES_MIN: usize = $bytes;
            #[inline]
            fn put(&self, e: &mut Encoder<'_>) {
                e.$name(*self);
            }
            #[inline]
            fn get(d: &mut Decoder<'_>) -> Result<Self> {
                d.$name()
            }
        }
    )*};
}

by_value! {
    utime: UTime, size::UTIME;
    uuid: Uuid, size::UUID;
    pg: PgId, size::PG;
    eversion: Eversion, size::EVERSION;
    scrub_stamp: ScrubStamp, size::SCRUB_STAMP;
    epoch: Epoch, 4;
    osd: OsdId, 4;
}

impl Coded for SpgId {
    const BYTES_MIN: usize = size::SPG;

    fn put(&self, e: &mut Encoder<'_>) {
        e.spg(self.pgid, self.shard);
    }

    fn get(d: &mut Decoder<'_>) -> Result<SpgId> {
        d.spg().map(|(pgid, shard)| SpgId { pgid, shard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_documented() {
        let len = |encode: &dyn Fn(&mut Encoder<'_>)| Encoder::collect(|e| encode(e)).len();
        assert_eq!(len(&|e| e.utime(UTime::ZERO)), size::UTIME);
        assert_eq!(len(&|e| e.uuid(Uuid::default())), size::UUID);
        assert_eq!(len(&|e| e.pg(PgId::default())), size::PG);
        assert_eq!(len(&|e| e.spg(PgId::default(), NO_SHARD)), size::SPG);
        assert_eq!(len(&|e| e.eversion(Eversion::ZERO)), size::EVERSION);
        assert_eq!(len(&|e| e.scrub_stamp(ScrubStamp::default())), size::SCRUB_STAMP);
        assert_eq!(len(&|e| e.reqid(0, ReqId::default())), size::REQID);
    }

    #[test]
    fn a_pg_of_another_version_is_refused() {
        let mut bytes = Encoder::collect(|e| e.pg(PgId::new(1, 2)));
        bytes[0] = 2;
        let error = Decoder::new(&bytes, "test").pg().unwrap_err();
        assert_eq!(error.to_string(), "pg version: 0x2 is not a valid value");
    }
}
